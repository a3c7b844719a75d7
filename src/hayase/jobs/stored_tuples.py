"""Stored tuples: a table as a merge meets it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from hayase.core.declarations import TableDeclaration

__all__ = ["Stored", "StoredKey", "StoredRow"]

StoredKey = tuple[Any, ...]
"""The parts of a key, in the order of the table's."""
StoredRow = Mapping[str, Any]
"""A row: the columns of the table, without its key."""


class Stored(Protocol):
    """A table, as it is when the batch begins. Must be the same for all calls of one batch."""

    @property
    def table(self) -> TableDeclaration: ...

    def find(self, keys: Sequence[StoredKey]) -> Sequence[StoredRow | None]:
        """The row of each key, None for one that the table has not, or cannot have: with a null, or too few parts."""

    def all(self) -> Iterator[tuple[StoredKey, StoredRow]]:
        """All keys with their rows, in any order."""
