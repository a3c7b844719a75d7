"""The expiry queue: the known ends of tuples, returned in the order of (end, id) as the clock passes them.

Paper 1, 3.2, deferred sort: unordered ends are only collected, together with the earliest of them, and sorted when the
clock passes that one. Here there are several such runs of growing size instead of one, so that no single step sorts
everything. Ends that come in order, such as those of a time window, are appended to a sorted run at almost no cost.

Order: any.   Per tuple: O(1) if in order; else one sort and a logarithmic number of merges.   Space: 24 bytes per tuple.
"""

from __future__ import annotations

from collections import deque

import numpy as np

__all__ = ["ExpiryQueue", "end_order"]

_SMALLEST = 65_536
"""The least number of tuples at which an unsorted run is closed and the next one begun."""
_SHARE = 8
"""An unsorted run takes up to one in this many of all tuples before the next one is begun."""
_MOST_RUNS = 12
"""The greatest number of sorted runs; if there are more, the smaller half is merged into one."""
_LEAST = 8192
"""The least number of lines of a chunk."""


def end_order(end: np.ndarray, id: np.ndarray) -> np.ndarray:
    """Return the order of (end, id); ids are sorted only where ends are equal."""
    order = np.argsort(end)
    ends, ids = end[order], id[order]
    tie = ends[1:] == ends[:-1]
    if tie.any() and bool((tie & (ids[1:] < ids[:-1])).any()):
        tied = np.zeros(len(end), np.bool_)
        tied[1:] = tie
        tied[:-1] |= tie
        order[tied] = order[tied][np.lexsort((ids[tied], ends[tied]))]
    return order


def _is_ordered(end: np.ndarray, id: np.ndarray) -> bool:
    later = end[1:] > end[:-1]
    if later.all():
        return True
    return bool(np.all(later | ((end[1:] == end[:-1]) & (id[1:] > id[:-1]))))


class _Chunk:
    """Lines of (end, id, slot) between `first` and `stop`."""

    __slots__ = ("first", "lines", "stop")

    def __init__(self, lines: np.ndarray, stop: int) -> None:
        self.lines, self.first, self.stop = lines, 0, stop

    @property
    def held(self) -> np.ndarray:
        return self.lines[:, self.first : self.stop]


class _Run:
    """Lines in chunks, which are freed one by one; `earliest` is the least end of the run, sorted or not."""

    __slots__ = ("_chunks", "_count", "earliest", "ordered")

    def __init__(self, ordered: bool) -> None:
        self._chunks: deque[_Chunk] = deque()
        self._count = 0
        self.ordered = ordered
        self.earliest = np.iinfo(np.int64).max

    @classmethod
    def of(cls, lines: np.ndarray) -> _Run:
        """Return a sorted run of sorted lines."""
        run = cls(ordered=True)
        run._chunks.append(_Chunk(lines, lines.shape[1]))
        run._count = lines.shape[1]
        run.earliest = int(lines[0, 0])
        return run

    def __len__(self) -> int:
        return self._count

    @property
    def held(self) -> np.ndarray:
        """All lines of the run."""
        return np.concatenate([chunk.held for chunk in self._chunks], axis=1)

    @property
    def last(self) -> tuple[int, int]:
        chunk = self._chunks[-1]
        return int(chunk.lines[0, chunk.stop - 1]), int(chunk.lines[1, chunk.stop - 1])

    def append(self, end: np.ndarray, id: np.ndarray, slot: np.ndarray, earliest: int) -> None:
        count = len(end)
        chunk = self._chunks[-1] if self._chunks else None
        if chunk is None or chunk.stop + count > chunk.lines.shape[1]:
            chunk = _Chunk(np.empty((3, max(count, _LEAST)), np.int64), 0)
            self._chunks.append(chunk)
        target = chunk.lines[:, chunk.stop : chunk.stop + count]
        target[0], target[1], target[2] = end, id, slot
        chunk.stop += count
        self._count += count
        self.earliest = min(self.earliest, earliest)

    def sort(self) -> None:
        """Sort the lines, unless they are sorted."""
        if not self.ordered:
            held = self.held
            self._chunks = deque([_Chunk(held[:, end_order(held[0], held[1])], held.shape[1])])
            self.ordered = True

    def before(self, clock: int) -> np.ndarray:
        """Remove and return the lines whose end is before the clock; the run must be sorted."""
        parts = []
        while self._chunks:
            chunk = self._chunks[0]
            count = int(np.searchsorted(chunk.held[0], clock))
            parts.append(chunk.lines[:, chunk.first : chunk.first + count])
            chunk.first += count
            self._count -= count
            if chunk.first < chunk.stop:
                self.earliest = int(chunk.lines[0, chunk.first])
                break
            self._chunks.popleft()
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


class ExpiryQueue:
    """Ends, ids and slots of tuples, removed only by the clock."""

    __slots__ = ("_count", "_runs")

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, end: np.ndarray, id: np.ndarray, slot: np.ndarray) -> None:
        """Add tuples."""
        if not len(end):
            return
        self._count += len(end)
        if _is_ordered(end, id):
            first = int(end[0]), int(id[0])
            candidates = [other for other in self._runs if other.ordered and other.last < first]
            run = max(candidates, key=lambda other: other.last) if candidates else self._new_run(ordered=True)
            run.append(end, id, slot, first[0])
        else:
            limit = max(_SMALLEST, self._count // _SHARE)
            collecting = [other for other in self._runs if not other.ordered and len(other) < limit]
            run = collecting[-1] if collecting else self._new_run(ordered=False)
            run.append(end, id, slot, int(end.min()))
        self._merge()

    def pop(self, clock: int) -> np.ndarray:
        """Remove all tuples whose end is before the clock and return their slots in the order of (end, id)."""
        parts = []
        for run in self._runs:
            if run.earliest < clock:
                run.sort()
                parts.append(run.before(clock))
        if not parts:
            return np.empty(0, np.int64)
        self._runs = [filled for filled in self._runs if len(filled)]
        self._merge()
        parts.sort(key=lambda part: (int(part[0, 0]), int(part[1, 0])) if part.shape[1] else (0, 0))
        if len(parts) == 1:
            slots = parts[0][2].copy()
        else:
            lines = np.concatenate(parts, axis=1)
            ordered = _is_ordered(lines[0], lines[1])
            slots = lines[2].copy() if ordered else lines[2][end_order(lines[0], lines[1])]
        self._count -= len(slots)
        return slots

    def has(self, end: np.ndarray, id: np.ndarray) -> np.ndarray:
        """Return which of the tuples are in the queue; this sorts all runs."""
        present = np.zeros(len(end), np.bool_)
        for run in self._runs:
            run.sort()
            ends, ids, _ = run.held
            low = np.searchsorted(ends, end, "left")
            stop = np.searchsorted(ends, end, "right")
            high = stop.copy()
            while (open_ := low < high).any():
                middle = (low + high) >> 1
                less = open_ & (ids[np.minimum(middle, len(ids) - 1)] < id)
                low = np.where(less, middle + 1, low)
                high = np.where(open_ & ~less, middle, high)
            there = low < stop
            present |= there & (ids[np.where(there, low, 0)] == id)
        return present

    def _new_run(self, *, ordered: bool) -> _Run:
        run = _Run(ordered)
        self._runs.append(run)
        return run

    def _merge(self) -> None:
        """Merge the smaller half of too many sorted runs; a tuple is merged a logarithmic number of times."""
        ordered = [run for run in self._runs if run.ordered]
        if len(ordered) <= _MOST_RUNS:
            return
        small = sorted(ordered, key=len)[: _MOST_RUNS // 2]
        lines = np.concatenate([run.held for run in small], axis=1)
        merged = _Run.of(lines[:, end_order(lines[0], lines[1])])
        self._runs = [run for run in self._runs if not any(run is merging for merging in small)] + [merged]
