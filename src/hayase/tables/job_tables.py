"""Tables as merges of jobs read them: the rows of some keys, or all rows, at the state of the batch's beginning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hayase.core.data_classes import dataclass
from hayase.core.declarations import TableDeclaration
from hayase.tables.entries import many_key_bytes
from hayase.tables.lookups import reader_of, rows_of
from hayase.tables.table import Row

__all__ = ["StoredTable"]

_PAGE = 10_000


@dataclass(frozen=True)
class StoredTable:
    """A table for merges. It can be pickled; each process opens the store once."""

    table: TableDeclaration
    path: Path

    def find(self, keys: Sequence[tuple[Any, ...]]) -> list[Row | None]:
        """Return the row of each key; None for a key that the table does not or cannot contain."""
        parts = len(self.table.key)
        possible = [len(key) == parts and None not in key for key in keys]
        encoded = iter(many_key_bytes([key for key, fits in zip(keys, possible) if fits]))
        results = [next(encoded) if fits else None for fits in possible]
        return rows_of(self.path, self.table, [key if isinstance(key, bytes) else None for key in results])

    def all(self) -> Iterator[tuple[tuple[Any, ...], Row]]:
        """Yield all keys with their rows."""
        reader = reader_of(self.path, self.table)
        reader.refresh()
        after: bytes | None = None
        while True:
            page = reader.scan(after=after, limit=_PAGE)
            yield from page.rows
            after = page.next
            if after is None:
                return
