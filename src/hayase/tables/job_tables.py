"""Tables as jobs meet them: rows of some keys, or all of them, as the table is when the batch begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hayase.core.declarations import TableDeclaration
from hayase.tables.entries import many_key_bytes
from hayase.tables.lookups import reader_of
from hayase.tables.payloads import UnfitParameter
from hayase.tables.table import Row

__all__ = ["StoredTable"]

_PAGE = 10_000


@dataclass(frozen=True)
class StoredTable:
    """A table for merges. It can be sent to other processes; each opens the store once."""

    table: TableDeclaration
    path: Path

    def find(self, keys: Sequence[tuple[Any, ...]]) -> list[Row | None]:
        """The row of each key, None for one that the table has not, or cannot have."""
        parts = len(self.table.key)
        encoded = many_key_bytes([key for key in keys if len(key) == parts and None not in key])
        fitting = iter(encoded)
        sought = [next(fitting) if len(key) == parts and None not in key else None for key in keys]
        unique = list({each for each in sought if isinstance(each, bytes)})
        reader = reader_of(self.path, self.table)
        reader.refresh()
        known = dict(zip(unique, reader.get_encoded(unique), strict=True))
        return [None if each is None or isinstance(each, UnfitParameter) else known[each] for each in sought]

    def all(self) -> Iterator[tuple[tuple[Any, ...], Row]]:
        """All keys with their rows."""
        reader = reader_of(self.path, self.table)
        reader.refresh()
        after: bytes | None = None
        while True:
            page = reader.scan(after=after, limit=_PAGE)
            yield from page.rows
            after = page.next
            if after is None:
                return
