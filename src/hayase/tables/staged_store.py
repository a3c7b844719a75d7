"""A store as it is once runs that are staged have been taken in, for reading. Neither the store nor the runs are changed.

A run has only entries to put, so an entry is that of the runs, or else that of the store.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter

from hayase.core.data_classes import dataclass
from hayase.tables.stores import ReadableStore, Result, View

__all__ = ["StagedStore"]


@dataclass(frozen=True, slots=True)
class _StagedView:
    """The views of both."""

    store: View
    runs: View

    def get(self, key: bytes) -> bytes | None:
        value = self.runs.get(key)
        return self.store.get(key) if value is None else value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        pairs = zip(self.runs.get_many(keys), self.store.get_many(keys))
        return [stored if value is None else value for value, stored in pairs]

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return _merged(self.runs.scan(start, stop), self.store.scan(start, stop))

    def scan_each(self, ranges: Sequence[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
        for staged, stored in zip(self.runs.scan_each(ranges), self.store.scan_each(ranges)):
            yield list(_merged(staged, stored)) if staged else stored


def _merged(runs: Iterable[tuple[bytes, bytes]], store: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the items of both in order; of equal keys, that of the runs."""
    last = None
    for key, value in heapq.merge(runs, store, key=itemgetter(0)):
        if key != last:  # that of the runs comes first
            yield key, value
        last = key


class StagedStore:
    """A store together with runs that it has not taken in."""

    def __init__(self, store: ReadableStore, runs: ReadableStore):
        self._store, self._runs = store, runs

    def read(self, work: Callable[[View], Result]) -> Result:
        """Call `work` with a view of both."""
        return self._store.read(lambda store: self._runs.read(lambda runs: work(_StagedView(store, runs))))

    def refresh(self) -> None:
        """Do nothing: what was staged belongs to the state of the store that was opened."""

    def size(self) -> int:
        return self._store.size() + self._runs.size()

    def close(self) -> None:
        self._runs.close()
        self._store.close()
