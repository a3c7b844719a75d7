"""Changes as JSON texts and keys, as they go out in messages and requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from hayase.connectors.sink import APPEARS, HEADS, TIME
from hayase.core.declarations import StreamDeclaration
from hayase.core.times import instant_text
from hayase.streams.records import row_texts

__all__ = ["change_texts", "key_texts", "upserts"]


def change_texts(changes: pa.Table, stream: StreamDeclaration) -> Iterator[str]:
    """Yield each change as a JSON object: `time`, `change` ("+" or "-") and `row`."""
    signs = changes.column(APPEARS).to_pylist()
    scale, is_number = stream.time_scale, stream.time_unit is not None
    for time, appears, row in zip(
        changes.column(TIME).to_pylist(), signs, row_texts(changes.drop_columns(list(HEADS)))
    ):
        shown = str(time // scale) if is_number else f'"{instant_text(time)}"'
        yield f'{{"time": {shown}, "change": "{"+" if appears else "-"}", "row": {row}}}'


def key_texts(changes: pa.Table, key: Sequence[str]) -> list[str]:
    """Return the key of each change: the value of one column, a text as it is; a JSON object of several.

    >>> rows = pa.table({"user": ["taro"], "n": [1]})
    >>> key_texts(rows, ["user"]), key_texts(rows, ["user", "n"])
    (['taro'], ['{"user": "taro", "n": 1}'])
    """
    if len(key) == 1 and pa.types.is_string(changes.schema.field(key[0]).type):
        return [value if value is not None else "null" for value in changes.column(key[0]).to_pylist()]
    texts = row_texts(changes.select(list(key)))
    return texts if len(key) != 1 else [text.partition(": ")[2][:-1] for text in texts]


def upserts(changes: pa.Table, key: Sequence[str]) -> Iterator[tuple[str, int | None]]:
    """Yield, instant by instant, each key that changes, and the position of its row behind the instant; None if it has none.

    The order of the changes decides between two rows of one key: the row that appears last counts.
    """
    times, appears = changes.column(TIME).to_pylist(), changes.column(APPEARS).to_pylist()
    last: dict[str, int | None] = {}
    before: Any = None
    for at, (time, name) in enumerate(zip(times, key_texts(changes, key))):
        if time != before:
            yield from last.items()
            last, before = {}, time
        last[name] = at if appears[at] else None
    yield from last.items()
