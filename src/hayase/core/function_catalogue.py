"""What DuckDB's functions are: which give another result on a second run, and which are aggregates.

Both follow from the list of DuckDB's 3,000 functions, which takes 20 ms to read. They are the same for a version of DuckDB, and are
kept in the user's cache with a checksum; a file that is damaged is written again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

from hayase.core.purity import CLOCKS
from hayase.core.user_cache import user_cache

__all__ = ["LISTED", "Catalogue", "catalogue"]

VERSION = 1
"""To be raised when the catalogue follows from the list in another way."""
LISTED = "SELECT function_name, function_type, stability, macro_definition FROM duckdb_functions() WHERE internal"
"""The statement that lists DuckDB's functions."""


class Catalogue(NamedTuple):
    """Names of functions, with those of the macros that use them."""

    volatile: frozenset[str]
    aggregates: frozenset[str]


def catalogue(duckdb: str, rows: Callable[[], Sequence[tuple[str, str, str | None, str | None]]]) -> Catalogue:
    """Return the catalogue of a version of DuckDB, from the cache if it is there, or else from the rows of `LISTED`."""
    directory = user_cache("functions")
    if directory is None:
        return _found(rows())
    file = directory / f"{VERSION}-duckdb-{duckdb}.json"
    kept = _read(file)
    if kept is None:
        kept = _found(rows())
        _write(file, kept)
    return kept


def _read(file: Path) -> Catalogue | None:
    try:
        checksum, _, body = file.read_bytes().partition(b"\n")
    except OSError:
        return None
    if checksum != b"%d" % zlib.crc32(body):
        return None
    return Catalogue(*(frozenset(names) for names in json.loads(body)))


def _write(file: Path, found: Catalogue) -> None:
    body = json.dumps([sorted(names) for names in found]).encode()
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    with contextlib.suppress(OSError):  # the cache is full, or cannot be written: the next process looks again
        draft.write_bytes(b"%d\n%s" % (zlib.crc32(body), body))
        draft.replace(file)


def _found(rows: Sequence[tuple[str, str, str | None, str | None]]) -> Catalogue:
    scalar = {name for name, kind, stability, _ in rows if kind == "scalar" and stability != "CONSISTENT" and stability}
    aggregates = {name for name, kind, _, _ in rows if kind == "aggregate"}
    macros = {name: body for name, kind, _, body in rows if kind == "macro" and body}
    words = {name: set(re.findall(r"\w+", body)) for name, body in macros.items()}
    called = {name: set(re.findall(r"(\w+)\(", body)) for name, body in macros.items()}
    volatile = scalar | _macros_over(scalar | CLOCKS, words)
    return Catalogue(frozenset(volatile), frozenset(aggregates | _macros_over(aggregates, called)))


def _macros_over(names: Set[str], macros: Mapping[str, Set[str]]) -> set[str]:
    """Return the macros among whose words is one of these names, or such a macro."""
    found: set[str] = set()
    while more := {name for name, words in macros.items() if name not in found and words & (names | found)}:
        found |= more
    return found
