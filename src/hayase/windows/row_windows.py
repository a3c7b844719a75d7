"""Row windows by key: after every slide-th tuple of a key, the aggregate of its newest `length` tuples.

The tuples of a key are numbered from 0; numbers are never reused. All windows share one sequence of partials per key, of
which any range can be folded (`hayase.windows.folds`). Only tuples that some window still reaches are kept. If a window
moves several times at one instant, only the last move is reported.

Without keys, tuples are first folded into blocks whose size is the greatest common divisor of length and slide, so that a
block is either in the window or not. Windows with blocks of equal size share a sequence.

Order: within each key.   Laws: associative.
Per tuple: grouping by key, one append and, for each slide, a check of its number; per turn: a fold.
Space: per key the tuples that its longest window reaches.
Paper: 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

import numpy as np

from hayase.windows.folds import Folds
from hayase.windows.panes import Folding, Turns
from hayase.windows.partials import Lifting, Partials, scratch

__all__ = ["RowWindows"]

_LEAST = 64


class RowWindows:
    """Row windows `(length, slide)` over the tuples of numbered keys, or of the single key 0 if not `keyed`.

    `liftings` are the aggregates.
    """

    def __init__(self, liftings: Sequence[Lifting], windows: Sequence[tuple[int, int]], *, keyed: bool = True) -> None:
        self._windows, self._keyed = list(windows), keyed
        self._longest: dict[int, int] = {}
        for length, slide in windows:
            self._longest[slide] = max(length, self._longest.get(slide, 0))
        sizes = [1 if keyed else gcd(*window) for window in windows]
        self._sequences: dict[int, _Sequences | _Blocks] = {
            size: _Sequences(liftings) if keyed else _Blocks(size, liftings) for size in sizes
        }
        self._folding = [self._sequences[size] for size in sizes]
        self._counts = np.zeros(_LEAST, np.int64)
        self._oldest = np.zeros(_LEAST, np.int64)  # no window reaches tuples before it, or they are unknown
        self._low = np.zeros(_LEAST, np.int64)  # the oldest tuple that is needed, of keys that have just moved
        self._newest = np.full(_LEAST, -1)
        self._moved = np.empty(0, np.int64)
        self._held = 0

    def advance(
        self, keys: np.ndarray, time: np.ndarray, cause: np.ndarray, partials: Sequence[Partials]
    ) -> tuple[np.ndarray, list[tuple[Folding, Turns]]]:
        """Add tuples in time order.

        Returns their numbers, and for every window its turns and what folds them, valid until the next call.
        """
        self._trim()
        numbers = self._numbered(keys)
        for sequences in self._sequences.values():
            sequences.append(keys, numbers, partials)
        self._held += len(keys)
        of_tuples = time, keys, cause, numbers
        turns_of = {}
        for slide in self._longest:
            rows = self._due(keys, numbers, time, slide)
            turns_of[slide] = of_tuples if len(rows) == len(keys) else tuple(column[rows] for column in of_tuples)
        result: list[tuple[Folding, Turns]] = []
        for folding, (length, slide) in zip(self._folding, self._windows):
            at, key, tuple_, last = turns_of[slide]
            first = np.maximum(last - (length - 1), self._oldest[key])
            result.append((folding, Turns(at, key, tuple_, first, last)))
        return numbers, result

    def reach(self, keys: np.ndarray, of: Mapping[int, int] | None = None) -> np.ndarray:
        """Return the number of the oldest tuple of each key that is needed: a window will reach it, or it is the newest.

        `of` are the longest windows by slide, by default all.
        """
        counts = self._counts[keys]
        oldest = counts - 1
        for slide, longest in (self._longest if of is None else of).items():
            oldest = np.minimum(oldest, (counts // slide + 1) * slide - longest)
        return np.maximum(oldest, 0)

    def matters(self, keys: np.ndarray, numbers: np.ndarray, of: Mapping[int, int] | None = None) -> np.ndarray:
        """Return which tuples of the last step are needed by later steps; `of` as in `reach`."""
        self._low[self._moved] = self.reach(self._moved, of)
        return numbers >= (self._low[keys] if self._keyed else self._low[0])

    def unknown(self, keys: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Return which restored tuples to load, in order: those that are not known and have no gap up to the newest."""
        if not len(keys):
            return np.empty(0, np.int64)
        self._make_room(int(keys.max()) + 1)
        order = np.lexsort((numbers, keys))
        order = order[numbers[order] >= self._counts[keys[order]]]
        key, number = keys[order], numbers[order]
        fresh = np.ones(len(order), np.bool_)
        fresh[1:] = (key[1:] != key[:-1]) | (number[1:] != number[:-1])
        order, key, number = order[fresh], key[fresh], number[fresh]
        breaks, ends = np.ones(len(order), np.bool_), np.ones(len(order), np.bool_)
        breaks[1:] = (key[1:] != key[:-1]) | (number[1:] != number[:-1] + 1)
        ends[:-1] = key[1:] != key[:-1]
        run = np.cumsum(breaks)
        last_run = run[ends]
        return order[run == np.repeat(last_run, np.diff(np.flatnonzero(ends), prepend=-1))]

    def load(self, keys: np.ndarray, numbers: np.ndarray, partials: Sequence[Partials]) -> None:
        """Load the tuples that `unknown` has returned, in that order."""
        self._trim()
        if not len(keys):
            return
        begins, ends = np.ones(len(keys), np.bool_), np.ones(len(keys), np.bool_)
        begins[1:] = ends[:-1] = keys[1:] != keys[:-1]
        first, last = np.flatnonzero(begins), np.flatnonzero(ends)
        apart = first[numbers[first] > self._counts[keys[first]]]
        lost = keys[apart]
        self._held -= int((self._counts[lost] - self._oldest[lost]).sum())
        self._oldest[lost] = numbers[apart]
        for sequences in self._sequences.values():
            sequences.load(keys, numbers, partials, lost)
        self._counts[keys[last]] = numbers[last] + 1
        self._held += len(keys)
        self._moved = keys[last]
        self._trim()

    def size(self) -> int:
        """Return the number of tuples that are needed."""
        beyond = self.reach(self._moved) - self._oldest[self._moved]
        return self._held - int(np.maximum(beyond, 0).sum())

    def _trim(self) -> None:
        """Drop tuples that no window reaches any more, of the keys that have moved."""
        keys = self._moved
        if len(keys):
            oldest = np.maximum(self.reach(keys), self._oldest[keys])
            self._held -= int((oldest - self._oldest[keys]).sum())
            self._oldest[keys] = oldest
            for sequences in self._sequences.values():
                sequences.trim(keys, oldest)
        self._moved = np.empty(0, np.int64)

    def _numbered(self, keys: np.ndarray) -> np.ndarray:
        """Return the numbers of new tuples, and note the keys that have moved."""
        from hayase.windows import row_windows_loops

        if self._keyed:
            self._make_room(int(keys.max(initial=-1)) + 1)
            numbers = scratch(len(keys))
            row_windows_loops.number(keys, self._counts, numbers)
            self._moved = keys[numbers == self._counts[keys] - 1]
            return numbers
        first = int(self._counts[0])
        self._counts[0] += len(keys)
        self._moved = keys[-1:]
        return np.arange(first, first + len(keys))

    def _due(self, keys: np.ndarray, numbers: np.ndarray, time: np.ndarray, slide: int) -> np.ndarray:
        """Return the rows at which windows of a slide move."""
        from hayase.windows import row_windows_loops

        if self._keyed:
            rows = scratch(len(keys))
            return rows[: row_windows_loops.due(keys, numbers, time, slide, self._newest, rows)]
        rows = np.arange(-(int(self._counts[0]) - len(keys) + 1) % slide, len(keys), slide)
        at = time[rows]
        return rows[np.append(at[1:] != at[:-1], True)] if len(rows) else rows

    def _make_room(self, count: int) -> None:
        known = len(self._counts)
        if count > known:
            more = max(count, 2 * known) - known
            self._counts = np.concatenate((self._counts, np.zeros(more, np.int64)))
            self._oldest = np.concatenate((self._oldest, np.zeros(more, np.int64)))
            self._low = np.concatenate((self._low, np.zeros(more, np.int64)))
            self._newest = np.concatenate((self._newest, np.full(more, -1)))


class _Grouped:
    """Rows grouped by key: the place of each row, and the keys by place."""

    def __init__(self, rows: np.ndarray, ends: np.ndarray) -> None:
        from hayase.windows import row_windows_loops

        self.rows = rows
        self.places, self.keys, distinct = scratch(len(rows)), scratch(len(rows)), scratch(len(rows))
        row_windows_loops.group(rows, ends, self.places, self.keys, distinct)

    def put(self, values: np.ndarray) -> np.ndarray:
        """Return the values of the rows, by place."""
        from hayase.windows import row_windows_loops

        placed = scratch(len(values))
        row_windows_loops.put(values, self.places, placed)
        return placed


class _Sequences:
    """The partials of all tuples, by key. Tuples and turns are grouped by key before folding, so that the data of a key is
    adjacent and consecutive windows share most of it."""

    def __init__(self, liftings: Sequence[Lifting]) -> None:
        self._folds = [Folds(lifting) for lifting in liftings]
        self._ends = np.zeros(0, np.int64)
        self._grouped: _Grouped | None = None
        self._asked: tuple[Turns, np.ndarray, np.ndarray] | None = None

    def append(self, keys: np.ndarray, numbers: np.ndarray, partials: Sequence[Partials]) -> None:
        grouped = self._group(keys)
        for folds, lifted in zip(self._folds, partials):
            folds.append(grouped.keys, lifted, grouped.places)

    def _group(self, keys: np.ndarray) -> _Grouped:
        """Group rows by key, or return the last grouping if they are the same array."""
        grouped = self._grouped
        if grouped is None or grouped.rows is not keys:
            needed = int(keys.max(initial=-1)) + 1
            if needed > len(self._ends):
                self._ends = np.zeros(max(needed, 2 * len(self._ends)), np.int64)
            grouped = self._grouped = _Grouped(keys, self._ends)
        return grouped

    def load(self, keys: np.ndarray, numbers: np.ndarray, partials: Sequence[Partials], lost: np.ndarray) -> None:
        """Load restored tuples; all earlier tuples of the keys in `lost` are dropped."""
        for folds, lifted in zip(self._folds, partials):
            if len(lost):
                folds.drop(lost)
            folds.load(keys, numbers, lifted)

    def trim(self, keys: np.ndarray, oldest: np.ndarray) -> None:
        self._grouped = self._asked = None
        for folds in self._folds:
            folds.trim(keys, oldest)

    def fold(self, number: int, turns: Turns) -> Partials:
        """Return the partials of the windows at some turns, for the lifting of a number."""
        grouped = self._group(turns.key)
        if self._asked is None or self._asked[0] is not turns:
            self._asked = turns, grouped.put(turns.first), grouped.put(turns.last)
        return self._folds[number].fold(grouped.keys, *self._asked[1:], grouped.places)

    def filled(self, turns: Turns) -> np.ndarray:
        """Return at which turns the window is not empty: at all of them."""
        return np.ones(len(turns), np.bool_)


class _Blocks:
    """The tuples of a single key, folded into blocks of `size`; the last one may be incomplete."""

    def __init__(self, size: int, liftings: Sequence[Lifting]) -> None:
        self._size = size
        self._liftings = list(liftings)
        self._folds = [Folds(lifting) for lifting in liftings]
        self._last: list[Partials] = []
        self._known = True  # whether the folds know which block is next

    def append(self, keys: np.ndarray, numbers: np.ndarray, partials: Sequence[Partials]) -> None:
        """Add the next tuples. Each is combined after the existing content, as if all had come at once."""
        if not len(numbers):
            return
        first, stop = int(numbers[0]), int(numbers[-1]) + 1
        starts = np.arange(-first % self._size, len(numbers), self._size)
        starts = starts if len(starts) and starts[0] == 0 else np.append(0, starts)
        full = len(starts) - (stop % self._size > 0)
        last = []
        for at, (lifting, folds, lifted) in enumerate(zip(self._liftings, self._folds, partials)):
            if self._last:
                begun = lifting.combined(self._last[at], lifted.take(np.zeros(1, np.int64)))
                lifted = Partials.joined([begun, lifted.take(np.arange(1, len(lifted)))])
            blocks = lifted if self._size == 1 else lifting.runs(lifted, starts)
            done = blocks if full == len(starts) else blocks.take(np.arange(full))
            if self._known or not full:
                folds.append(None, done)
            else:
                folds.load(None, np.arange(full) + first // self._size, done)
            last.append(blocks.take(np.arange(full, len(starts))))
        self._known = self._known or full > 0
        self._last = last if full < len(starts) else []

    def load(self, keys: np.ndarray, numbers: np.ndarray, partials: Sequence[Partials], lost: np.ndarray) -> None:
        """Load restored tuples; if the key is in `lost`, all earlier tuples are dropped."""
        if len(lost):
            self._last, self._known = [], False
            for folds in self._folds:
                folds.drop(lost)
        self.append(keys, numbers, partials)

    def trim(self, keys: np.ndarray, oldest: np.ndarray) -> None:
        for folds in self._folds:
            folds.trim(None, oldest // self._size)

    def fold(self, number: int, turns: Turns) -> Partials:
        """Return the partials of the windows at some turns, for the lifting of a number."""
        return self._folds[number].fold(None, turns.first // self._size, turns.last // self._size)

    def filled(self, turns: Turns) -> np.ndarray:
        """Return at which turns the window is not empty: at all of them."""
        return np.ones(len(turns), np.bool_)
