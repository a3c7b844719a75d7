"""The interface of a table as merges read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from hayase.core.declarations import TableDeclaration

__all__ = ["Stored", "StoredKey", "StoredRow"]

StoredKey = tuple[Any, ...]
"""The parts of a key, in the order of the table's key."""
StoredRow = Mapping[str, Any]
"""A row: the columns of the table, without its key."""


class Stored(Protocol):
    """A table at the beginning of the batch; it must not change during a batch."""

    @property
    def table(self) -> TableDeclaration: ...

    def find(self, keys: Sequence[StoredKey]) -> Sequence[StoredRow | None]:
        """Return the row of each key; None for a key that the table does not contain, or cannot: with a null or too few parts."""

    def all(self) -> Iterator[tuple[StoredKey, StoredRow]]:
        """Yield all keys with their rows, in any order."""
