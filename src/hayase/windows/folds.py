"""`Folds`: sequences of partials, one per key, with the fold over any range of recent positions.

A sequence is divided into cycles of 16 slots; 16 cycles are a cycle of the next level, and so on. Each slot has a forward
value, the fold of its cycle up to it, and once the cycle is full a backward value, the fold from it to the end of the cycle
(paper 2's f and b). A range over several cycles is the backward value of its first slot, the full cycles between, which are
a range one level up, and the forward value of its last slot; no inverse is needed, and the order is always oldest first.
How a fold is bracketed follows from its two ends only, not from batches, other folds or other keys.

Order: oldest first.   Laws needed: associative.   Append: 2 combines per slot, and 1/15 of that for the levels above.
Fold over n: two stored values per level, log16(n) levels; a range within one cycle takes at most 14 combines. If windows
move tuple by tuple, the full cycles between are folded twice per 16 tuples, which leaves 2.5 combines per fold.
Space: three partials per slot that may still be read, and one line per key.
Paper: 2 (its da and qa, with qa built like da, so that no cycle length has to be chosen).
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from hayase.windows.partials import Lifting, Partials, as_rows, from_rows, objects, scratch

__all__ = ["Folds"]

_BITS = 4
_CYCLE = 1 << _BITS
_SIZES = 48
"""The number of possible sizes of regions."""
_LEVELS = 64 // _BITS
"""The levels of the longest possible sequence."""
_NO_KEYS = np.empty(0, np.int64)


class Folds:
    """Sequences of partials, one per key (a dense code). Positions are counted from 0 and never reused.

    Without keys there is one sequence, that of key 0.
    """

    def __init__(self, lifting: Lifting) -> None:
        self._form: _Rows | _Objects = _Rows(lifting) if lifting.parts else _Objects(lifting)

    def append(self, keys: np.ndarray | None, partials: Partials, places: np.ndarray | None = None) -> np.ndarray:
        """Append partials in order and return the position of each in the sequence of its key.

        It is faster if the partials of a key are adjacent. To avoid sorting partials, `places` may give for each partial
        the index of its key in `keys`, a permutation.
        """
        return self._form.append(_codes(keys), partials, places)

    def fold(
        self, keys: np.ndarray | None, first: np.ndarray, last: np.ndarray, places: np.ndarray | None = None
    ) -> Partials:
        """Return the folds over positions `first` to `last`, inclusive; positions below 0 are ignored, and `first > last`
        is empty.

        It is faster if the ranges of a key are adjacent; `places` may give for each result the index of its range.
        """
        return self._form.fold(_codes(keys), _codes(first), _codes(last), places)

    def trim(self, keys: np.ndarray | None, first: np.ndarray) -> None:
        """Declare that positions before `first` are no longer read. Their memory is reused as the sequence grows."""
        self._form.trim(_codes(keys), _codes(first))

    def load(self, keys: np.ndarray | None, positions: np.ndarray, partials: Partials) -> None:
        """Restore appended partials: for every key positions without gaps, not necessarily from 0. It is idempotent."""
        codes = np.zeros(len(positions), np.int64) if keys is None else _codes(keys)
        touched = np.unique(codes)
        of, at, old = self.held(touched)
        both = Partials.joined([old, partials])
        codes, at = np.concatenate([of, codes]), np.concatenate([at, _codes(positions)])
        order = np.lexsort((at, codes))
        fresh = np.ones(len(order), np.bool_)
        fresh[1:] = (codes[order][1:] != codes[order][:-1]) | (at[order][1:] != at[order][:-1])
        order = order[fresh]
        codes, at = codes[order], at[order]
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        self.drop(touched)
        self._form.begin(codes[starts], at[starts])
        self._form.append(codes, both.take(order), None)

    def held(self, keys: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, Partials]:
        """Return key, position and partial of everything that may still be read, of some keys or all; see `load`."""
        return self._form.held(None if keys is None else _codes(keys))

    def drop(self, keys: np.ndarray) -> None:
        """Drop keys; a key that is used again starts at 0."""
        self._form.drop(_codes(keys))


def _codes(numbers: np.ndarray | None) -> np.ndarray:
    return _NO_KEYS if numbers is None else np.ascontiguousarray(numbers, np.int64)


class _Rows:
    """Partials of a few words, in regions of one pool; see `folds_loops`."""

    def __init__(self, lifting: Lifting) -> None:
        from hayase.windows import folds_loops

        self._loops, self._lifting = folds_loops, lifting
        self._kind = folds_loops.kind_of(*lifting.parts)
        self._pool = np.empty((64, 3 * len(lifting.types_of_words)), np.int64)
        self._heads = np.full(_SIZES, -1, np.int64)
        self._heads[0] = 0
        self._table = np.zeros((1, folds_loops.table_width(1)), np.int64)

    def _ensure(self, keys: int, longest: int) -> None:
        """Make the table large enough for codes below `keys` and sequences up to `longest`.

        A level exists before its first slot does, so the number of levels does not affect how a fold is bracketed.
        """
        levels = 1
        while longest >> (_BITS * levels):
            levels += 1
        lines, width = self._table.shape
        wanted = max(self._loops.table_width(levels), width)
        if keys > lines or wanted > width:
            table = np.zeros((max(keys, 2 * lines) if keys > lines else lines, wanted), np.int64)
            table[:lines, :width] = self._table
            self._table = table

    def append(self, keys: np.ndarray, partials: Partials, places: np.ndarray | None) -> np.ndarray:
        positions = scratch(len(partials))
        if not len(partials):
            return positions
        self._ensure(int(keys.max()) + 1 if len(keys) else 1, 0)
        rows = as_rows(partials, places)
        done = 0
        while True:
            done, longest = self._loops.append_rows(
                self._pool, self._pool.view(np.float64), self._heads, self._table, keys, rows, rows.view(np.float64),
                self._kind, positions, done,
            )  # fmt: skip
            if done == len(rows):
                return positions
            if longest:
                self._ensure(0, longest)
            else:
                self._grow(len(rows) - done)

    def _grow(self, missing: int) -> None:
        """Enlarge the pool for the missing partials; memory that is not used costs nothing."""
        rows, width = self._pool.shape
        pool = np.empty((max(2 * rows, rows + 4 * missing), width), np.int64)
        pool[:rows] = self._pool
        self._pool = pool

    def fold(self, keys: np.ndarray, first: np.ndarray, last: np.ndarray, places: np.ndarray | None) -> Partials:
        words = len(self._lifting.types_of_words)
        out, middle, sides = scratch(len(first), words), scratch(1, words), scratch(_LEVELS, 2)
        self._loops.fold_rows(
            self._pool, self._pool.view(np.float64), self._table, keys, first, last, self._kind,
            out, out.view(np.float64), sides, middle, middle.view(np.float64),
        )  # fmt: skip
        return from_rows(out, self._lifting, places)

    def trim(self, keys: np.ndarray, first: np.ndarray) -> None:
        self._loops.trim_keys(self._table, keys, first)

    def begin(self, keys: np.ndarray, positions: np.ndarray) -> None:
        if len(keys):
            self._ensure(int(keys.max()) + 1, int(positions.max()))
            self._table[keys, 0] = positions

    def held(self, keys: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, Partials]:
        keys = np.arange(len(self._table)) if keys is None else keys[keys < len(self._table)]
        of = positions = _NO_KEYS
        out = np.empty((0, len(self._lifting.types_of_words)), np.int64)
        count = self._loops.held_rows(self._pool, self._table, keys, of, positions, out)
        if count:
            of, positions, out = (
                np.empty(count, np.int64),
                np.empty(count, np.int64),
                np.empty((count, out.shape[1]), np.int64),
            )
            self._loops.held_rows(self._pool, self._table, keys, of, positions, out)
        return of, positions, from_rows(out, self._lifting)

    def drop(self, keys: np.ndarray) -> None:
        self._loops.drop_keys(self._pool, self._heads, self._table, keys[keys < len(self._table)])


_GONE = object()
"""Marks a partial before the first loaded position, and totals that include one."""


class _Cycle:
    """A cycle of objects; forward and backward values are computed when they are first read."""

    __slots__ = ("backward", "forward", "values")

    def __init__(self, gone: int) -> None:
        self.values: list[Any] = [_GONE] * gone
        self.forward: list[Any] = []
        self.backward: list[Any] = []


class _Level:
    """The cycles of one level; `begins` is the number of the first one kept."""

    __slots__ = ("begins", "cycles")

    def __init__(self, begins: int) -> None:
        self.begins = begins
        self.cycles: deque[_Cycle] = deque()


class _Sequence:
    """The levels of one key, the length of its sequence, and the first position that may still be read."""

    __slots__ = ("keep", "length", "levels")

    def __init__(self, length: int) -> None:
        self.length = self.keep = length
        self.levels: list[_Level] = []


class _Objects:
    """Partials that are objects, combined by the aggregate itself."""

    def __init__(self, lifting: Lifting) -> None:
        self._lifting = lifting
        self._combine = lifting.aggregate.combine
        self._sequences: dict[int, _Sequence] = {}

    def append(self, keys: np.ndarray, partials: Partials, places: np.ndarray | None) -> np.ndarray:
        positions = np.empty(len(partials), np.int64)
        if places is not None:
            placed = np.empty(len(partials), object)
            placed[places] = partials.words[0]
            partials = Partials((placed,))
        for row, partial in enumerate(partials.words[0]):
            sequence = self._sequences.setdefault(int(keys[row]) if len(keys) else 0, _Sequence(0))
            positions[row] = sequence.length
            self._push(sequence, 0, sequence.length, partial)
            sequence.length += 1
        return positions

    def _push(self, sequence: _Sequence, number: int, slot: int, partial: Any) -> None:
        if number == len(sequence.levels):
            sequence.levels.append(_Level(slot >> _BITS))
        level = sequence.levels[number]
        if slot >> _BITS == level.begins + len(level.cycles):
            level.cycles.append(_Cycle(slot & (_CYCLE - 1)))
        cycle = level.cycles[-1]
        cycle.values.append(partial)
        if len(cycle.values) == _CYCLE:
            whole = not any(value is _GONE for value in cycle.values)
            self._push(sequence, number + 1, slot >> _BITS, self._forward(cycle, _CYCLE - 1) if whole else _GONE)
            cycle.forward = []

    def _forward(self, cycle: _Cycle, slot: int) -> Any:
        folds = cycle.forward
        while len(folds) <= slot:
            value = cycle.values[len(folds)]
            folds.append(self._combine(folds[-1], value) if folds else value)
        return folds[slot]

    def _backward(self, cycle: _Cycle, slot: int) -> Any:
        folds = cycle.backward  # newest first
        while len(folds) < _CYCLE - slot:
            value = cycle.values[_CYCLE - 1 - len(folds)]
            folds.append(self._combine(value, folds[-1]) if folds else value)
        return folds[_CYCLE - 1 - slot]

    def fold(self, keys: np.ndarray, first: np.ndarray, last: np.ndarray, places: np.ndarray | None) -> Partials:
        folded = []
        for row in range(len(first)):
            sequence = self._sequences.get(int(keys[row]) if len(keys) else 0)
            begin, end = int(first[row]), int(last[row])
            if sequence is not None:
                begin, end = max(begin, sequence.keep, 0), min(end, sequence.length - 1)
            if sequence is None or begin > end:
                folded.append(self._lifting.aggregate.empty())
            else:
                folded.append(self._stretch(sequence, 0, begin, end))
        return objects(folded) if places is None else objects(folded).take(places)

    def _stretch(self, sequence: _Sequence, number: int, first: int, last: int) -> Any:
        level = sequence.levels[number]
        oldest = level.cycles[(first >> _BITS) - level.begins]
        if first >> _BITS == last >> _BITS:
            if first & (_CYCLE - 1) == 0:
                return self._forward(oldest, last & (_CYCLE - 1))
            total = oldest.values[first & (_CYCLE - 1)]
            for value in oldest.values[(first & (_CYCLE - 1)) + 1 : (last & (_CYCLE - 1)) + 1]:
                total = self._combine(total, value)
            return total
        total = self._backward(oldest, first & (_CYCLE - 1))
        begin, end = (first >> _BITS) + 1, (last >> _BITS) - 1
        if begin <= end:
            total = self._combine(total, self._stretch(sequence, number + 1, begin, end))
        return self._combine(total, self._forward(level.cycles[(last >> _BITS) - level.begins], last & (_CYCLE - 1)))

    def trim(self, keys: np.ndarray, first: np.ndarray) -> None:
        for row in range(len(first)):
            sequence = self._sequences.get(int(keys[row]) if len(keys) else 0)
            if sequence is None:
                continue
            keep = sequence.keep = max(sequence.keep, int(first[row]))
            for level in sequence.levels:
                while len(level.cycles) > 1 and (level.begins + 1) << _BITS <= keep:
                    level.cycles.popleft()
                    level.begins += 1
                keep = (keep >> _BITS) + 1

    def begin(self, keys: np.ndarray, positions: np.ndarray) -> None:
        for key, position in zip(keys, positions):
            self._sequences[int(key)] = _Sequence(int(position))

    def held(self, keys: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, Partials]:
        of, positions, values = [], [], []
        for key in self._sequences if keys is None else keys:
            sequence = self._sequences.get(int(key))
            if sequence is None or not sequence.length:
                continue
            level = sequence.levels[0]
            for slot in range(min(sequence.keep, sequence.length - 1), sequence.length):
                of.append(int(key))
                positions.append(slot)
                values.append(level.cycles[(slot >> _BITS) - level.begins].values[slot & (_CYCLE - 1)])
        return np.array(of, np.int64), np.array(positions, np.int64), objects(values)

    def drop(self, keys: np.ndarray) -> None:
        for key in keys:
            self._sequences.pop(int(key), None)
