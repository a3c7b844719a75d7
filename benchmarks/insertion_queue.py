"""An expiry queue kept sorted by insertion, one tuple at a time: the baseline for paper 1's deferred sort.

The place of a tuple is searched from the earliest end on, and all later tuples move up: a push takes as many steps as there
are live tuples, whatever the order of ends, as in the paper. Only `bench lifetimes` uses it.
"""

from __future__ import annotations

import numpy as np

from hayase.lifetimes.slot_columns import grown

__all__ = ["InsertionQueue"]


class InsertionQueue:
    """Replaces `hayase.lifetimes.expiry.ExpiryQueue`: the same results at a different cost.

    The paper's queue processes one tuple after the other; here a batch is pushed as a whole and popped afterwards. `length` is
    the time from the arrival of a tuple to its end, so that a push does not pay for tuples that had ended by then.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._lines = np.empty((0, 3), np.int64)
        self._count = self._alive = 0

    def __len__(self) -> int:
        return self._count

    def push(self, end: np.ndarray, id: np.ndarray, slot: np.ndarray) -> None:
        """Insert tuples one after the other."""
        from benchmarks.negative_tuples import loops

        self._lines = grown(self._lines, self._count + len(end))
        self._alive = loops.insert(self._lines, self._count, self._alive, self._length, end, id, slot)
        self._count += len(end)

    def pop(self, clock: int) -> np.ndarray:
        """Remove all tuples whose end is before the clock and return their slots in the order of (end, id)."""
        gone = int(np.searchsorted(self._lines[: self._count, 0], clock))
        slots = self._lines[:gone, 2].copy()
        self._lines[: self._count - gone] = self._lines[gone : self._count]
        self._count -= gone
        self._alive = max(self._alive - gone, 0)
        return slots

    def has(self, end: np.ndarray, id: np.ndarray) -> np.ndarray:
        """Return which of the tuples are in the queue."""
        held = {(line[0], line[1]) for line in self._lines[: self._count].tolist()}
        return np.array([pair in held for pair in zip(end.tolist(), id.tolist())], np.bool_)
