"""Conforms records that are JSON texts, one for each: lines of a file, values of messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from hayase.core.declarations import StreamDeclaration
from hayase.core.numbers import exact_loads
from hayase.streams.record_text import line_text
from hayase.streams.records import Conformed, Origin, conform_rows, conform_texts

__all__ = ["conform_json", "conform_loaded", "conform_read", "load_json"]

Place = Callable[[int], str]
"""Where the text at a position stood, such as "line 7"."""


def conform_json(texts: Sequence[bytes], declaration: StreamDeclaration, now: int, place: Place) -> Conformed:
    """Conform JSON texts of which some may not be JSON; these are refused."""
    rows, unreadable = load_json(texts)
    return conform_loaded(rows, texts, declaration, now, place, unreadable)


def load_json(texts: Sequence[bytes]) -> tuple[list[Any], dict[int, str]]:
    """Return the value of each text, and the reasons, by position, of those that are not JSON; their values are empty records.

    >>> load_json([b'{"n": 1}', b"n"])[0]
    [{'n': 1}, {}]
    """
    rows: list[Any] = []
    unreadable: dict[int, str] = {}
    for at, text in enumerate(texts):
        try:
            rows.append(exact_loads(text))
        except ValueError as error:
            rows.append({})
            unreadable[at] = f"not JSON: {error}"
    return rows, unreadable


def conform_loaded(
    rows: Sequence[Any],
    texts: Sequence[bytes],
    declaration: StreamDeclaration,
    now: int,
    place: Place,
    unreadable: Mapping[int, str] | None = None,
) -> Conformed:
    """Conform the values of texts; `unreadable` has the reasons of those that have none."""
    origin = Origin(lambda at: [line_text(texts[position]) for position in at], place, unreadable or {})
    return conform_rows(rows, declaration, now, origin)


def conform_read(
    columns: Mapping[str, pa.ChunkedArray],
    texts: Sequence[bytes],
    declaration: StreamDeclaration,
    now: int,
    place: Place,
) -> Conformed:
    """Conform the columns that `json_blocks` has read from texts."""
    origin = Origin(lambda at: [line_text(texts[position]) for position in at], place)
    return conform_texts(columns, len(texts), declaration, now, origin, parse=False)
