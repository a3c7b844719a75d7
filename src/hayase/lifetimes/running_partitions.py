"""The partitions of OVER in stream mode: the number of each record in its partition, and where its frames begin.

A record is in a *sequence* of its partition, by whose code the folds over frames are kept. If all frames are by time, a record
that is alone in all its frames begins a new sequence, numbered from 0, so that results do not depend on whether the partition
was forgotten meanwhile. Otherwise a partition has one sequence for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.keys import KeyIndex, encode, hashes
from hayase.core.times import BEGINNING
from hayase.lifetimes.slot_columns import grown

__all__ = ["Placed", "RunningPartitions"]

NONE = -1
COUNT, GROUPS, LATEST, FIRST_PEER, PEER, SEQUENCE, OLDEST, NEWEST, OLDEST_NUMBER, HELD, VERSION = range(11)
"""Words of a partition: the number of its records and of their different times, its latest time, the number of the first record
of that time, a row of the step, its sequence; the oldest and newest record that a frame by time may contain, and the number of
the oldest; how many records are kept; the version of its last write."""
HEADS = 11
"""Then, for each frame by time, its first record, and the number of that."""
AT, NEXT = range(2)
"""Words of a record in the list of its partition: its time, and the next one."""
FREE, FREE_SEQUENCES, DROPPED = range(3)
"""Words of the state of the loops: the first free record, the number of free sequences, of those dropped in the step."""
_NO_NUMBERS = np.empty(0, np.int64)
_FEW = 1024
"""Fewer partitions than this are not looked through for some to forget."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The records of a step: key, sequence, number; number of the first record of the same time, and of different times so far;
    for each frame by time the number of its first record; the row of the last record of the same key and time."""

    keys: np.ndarray
    of: np.ndarray
    numbers: np.ndarray
    firsts: np.ndarray
    groups: np.ndarray
    lows: np.ndarray
    last: np.ndarray


class RunningPartitions:
    """Partitions for frames by time of the lengths `ranges`, and for frames that reach back `reach` rows (None: there are none).

    `counted`: whether numbers count all records of a partition.
    """

    def __init__(self, ranges: Sequence[int], reach: int | None, counted: bool) -> None:
        self.ranges, self.reach, self.counted = np.array(ranges, np.int64), reach, counted
        self.table = np.empty((0, HEADS + 2 * len(ranges)), np.int64)
        self.held = 0
        """The number of records that frames may still contain."""
        self.dropped = _NO_NUMBERS
        """The sequences that the last call of `place` or `forget` dropped."""
        self._index = KeyIndex()
        self._members = np.empty((0, 2), np.int64)
        self._state = np.array([NONE, 0, 0], np.int64)
        self._sequences, self._made = np.empty(0, np.int64), 0
        self._alive = 0

    def __len__(self) -> int:
        return len(self._index)

    @property
    def longest(self) -> int:
        """The length of the longest frame by time."""
        return int(self.ranges.max(initial=0))

    def slots(self, columns: Sequence[pa.Array], rows: int, *, insert: bool = True) -> np.ndarray:
        """Return the key of every row; -1 for an unknown one unless it is to be inserted."""
        encoded = encode(columns, rows)
        keys = self._index.slots(encoded, hashes(encoded), insert)
        known = len(self.table)
        if self._index.capacity > known:
            self.table = grown(self.table, self._index.capacity)
            self._clear(np.arange(known, len(self.table)))
        return keys

    def place(self, keys: np.ndarray, times: np.ndarray, given: np.ndarray = _NO_NUMBERS) -> Placed:
        """Add records in order. Restored ones have their numbers, `given`."""
        from hayase.lifetimes import running_partitions_loops as loops

        count = len(keys)
        self._make_room(count)
        numbers, firsts, groups, of, last = (np.empty(count, np.int64) for _ in range(5))
        lows = np.empty((len(self.ranges), count), np.int64)
        dropped = np.empty(count, np.int64)
        loops.place(
            self.table, self._members, self._state, self._sequences, dropped, keys, times, given, self.ranges,
            self.counted, numbers, firsts, groups, of, lows,
        )  # fmt: skip
        loops.last_peers(self.table, keys, times, last)
        self.dropped = dropped[: self._state[DROPPED]]
        touched = np.unique(keys)
        kept = self.table[touched, COUNT] - self.keep(touched)
        self.held += int((kept - self.table[touched, HELD]).sum())
        self.table[touched, HELD] = kept
        return Placed(keys, of, numbers, firsts, groups, lows, last)

    def keep(self, keys: np.ndarray) -> np.ndarray:
        """Return the number of the first record of each partition that a later frame may contain."""
        count = self.table[keys, COUNT]
        first = count if self.reach is None else count - self.reach
        if len(self.ranges):
            first = np.minimum(first, self.table[keys, OLDEST_NUMBER])
        return np.maximum(first, 0)

    def latest(self, keys: np.ndarray) -> np.ndarray:
        """Return the time of the newest record of each partition."""
        return self.table[keys, LATEST]

    def recycle(self) -> None:
        """Free the dropped sequences, once nothing reads them any more."""
        free = int(self._state[FREE_SEQUENCES])
        self._sequences = grown(self._sequences, free + len(self.dropped))
        self._sequences[free : free + len(self.dropped)] = self.dropped
        self._state[FREE_SEQUENCES] += len(self.dropped)
        self._state[DROPPED] = 0
        self.dropped = _NO_NUMBERS

    def forget(self, clock: int) -> bool:
        """Forget partitions whose records have left all frames, when there may be many of them; return whether any was."""
        if self.counted or len(self) <= 2 * self._alive + _FEW:
            return False
        from hayase.lifetimes import running_partitions_loops as loops

        used = np.flatnonzero(self.table[: self._index.capacity, SEQUENCE] != NONE)
        gone = used[self.table[used, LATEST] < clock - self.longest]
        loops.release_members(self.table, self._members, self._state, gone, len(self.ranges))
        self.dropped = self.table[gone, SEQUENCE]
        self.held -= int(self.table[gone, HELD].sum())
        self._index.drop(gone)
        self._clear(gone)
        self._alive = len(self)
        return True

    def _clear(self, keys: np.ndarray) -> None:
        self.table[keys] = 0
        for word in (PEER, SEQUENCE, OLDEST, NEWEST, VERSION):
            self.table[keys, word] = NONE
        self.table[keys, HEADS::2] = NONE
        self.table[keys, LATEST] = BEGINNING - 1

    def _make_room(self, count: int) -> None:
        """Make room for `count` more records and sequences."""
        if len(self.ranges) and self.held + count > len(self._members):
            known = len(self._members)
            self._members = grown(self._members, self.held + count)
            self._members[known:, NEXT] = np.arange(known + 1, len(self._members) + 1)
            self._members[-1, NEXT] = self._state[FREE]
            self._state[FREE] = known
        free = int(self._state[FREE_SEQUENCES])
        if count > free:
            self._sequences = grown(self._sequences, count)
            self._sequences[free:count] = np.arange(self._made + count - free, self._made, -1) - 1
            self._made += count - free
            self._state[FREE_SEQUENCES] = count
