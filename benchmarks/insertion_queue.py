"""An expiry queue kept in order by insertion, one tuple at a time: what the paper's deferred sort is measured against.

A tuple's place is looked for from the earliest end on, and all behind it move up: a push costs as many steps as tuples are
alive, as the paper says of it, in whatever order ends come. Only `bench lifetimes` uses it.
"""

from __future__ import annotations

import numpy as np

from hayase.lifetimes.slot_columns import grown

__all__ = ["InsertionQueue"]


class InsertionQueue:
    """Stands in for `hayase.lifetimes.expiry.ExpiryQueue`: the same answers, at another cost.

    The paper's queue sees one tuple after the other; here a batch is pushed whole and popped afterwards. So that a push
    does not pay for tuples that would have been gone by then, `length` says how long before its end each of them came.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._lines = np.empty((0, 3), np.int64)
        self._count = self._alive = 0

    def __len__(self) -> int:
        return self._count

    def push(self, end: np.ndarray, id: np.ndarray, slot: np.ndarray) -> None:
        """Put tuples in, one after the other."""
        from benchmarks.negative_tuples import loops

        self._lines = grown(self._lines, self._count + len(end))
        self._alive = loops.insert(self._lines, self._count, self._alive, self._length, end, id, slot)
        self._count += len(end)

    def pop(self, clock: int) -> np.ndarray:
        """Take out all whose end is before the clock; their slots in the order of (end, id)."""
        gone = int(np.searchsorted(self._lines[: self._count, 0], clock))
        slots = self._lines[:gone, 2].copy()
        self._lines[: self._count - gone] = self._lines[gone : self._count]
        self._count -= gone
        self._alive = max(self._alive - gone, 0)
        return slots

    def has(self, end: np.ndarray, id: np.ndarray) -> np.ndarray:
        """Which of these tuples are in the queue."""
        held = {(each[0], each[1]) for each in self._lines[: self._count].tolist()}
        return np.array([pair in held for pair in zip(end.tolist(), id.tolist())], np.bool_)
