"""Grouping of rows by key without a Python object per row: an exact index numbers the keys, a counting sort orders the rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.keys import KeyIndex, encode, hashes

__all__ = ["Groups", "grouped"]


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of rows, numbered in the order of the first occurrence of their keys. `order` has the rows group by group: group i is
    `order[starts[i]:ends[i]]`. `firsts[i]` is its first row in the input."""

    order: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    firsts: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def singles(cls, count: int) -> Groups:
        """Return groups of one row each."""
        rows = np.arange(count)
        return cls(rows, rows, rows + 1, rows)

    def greatest(self, numbers: np.ndarray) -> np.ndarray:
        """Return the greatest number of each group."""
        return np.maximum.reduceat(numbers[self.order], self.starts) if len(self) else np.empty(0, numbers.dtype)

    def rows(self, group: int) -> np.ndarray:
        """Return the rows of a group."""
        return self.order[self.starts[group] : self.ends[group]]

    def latest(self, time: np.ndarray) -> np.ndarray:
        """Return for each group the first row with its greatest time."""
        if not len(self):
            return np.empty(0, np.int64)
        number = np.repeat(np.arange(len(self)), self.ends - self.starts)
        at_end = np.flatnonzero(time[self.order] == self.greatest(time)[number])
        return self.order[at_end[np.flatnonzero(np.diff(number[at_end], prepend=-1))]]


def grouped(columns: Sequence[pa.Array], count: int, time: np.ndarray | None = None) -> Groups:
    """Group rows by key. Rows of a group are in the order of the input or, if times are given, in the order of their times.

    >>> grouped([pa.array(["b", "a", "b"])], 3).order.tolist()
    [0, 2, 1]
    """
    from hayase.core import key_loops

    encoded = encode(columns, count)
    index = KeyIndex()
    slots = index.slots(encoded, hashes(encoded))
    groups = len(index)
    firsts = np.empty(groups, np.int64)
    firsts[slots[::-1]] = np.arange(count - 1, -1, -1)
    by_time = None
    if time is not None and not bool(np.all(time[1:] >= time[:-1])):
        by_time = np.argsort(time, kind="stable")
        slots = slots[by_time]
    ends, order = np.zeros(groups, np.int64), np.empty(count, np.int64)
    key_loops.order_by_bucket(slots.astype(np.int32), ends, order)
    starts = np.concatenate((np.zeros(min(groups, 1), np.int64), ends[:-1]))
    return Groups(order if by_time is None else by_time[order], starts, ends, firsts)
