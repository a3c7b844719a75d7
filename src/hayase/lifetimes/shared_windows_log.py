"""The state of shared windows: the tuples that the windows of a node still need, with keys and aggregated columns.

Every node writes the columns and tuples that it needs itself, whether or not it shares its windows. Nodes that share load
what each of them has written and merge it by tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.errors import DamagedState
from hayase.core.keys import raw_values
from hayase.core.stages import OFFSET, TIME, Tuples
from hayase.lifetimes.leaves import take_rows
from hayase.lifetimes.plans import Call, Shared
from hayase.windows.panes import WindowShape, epoch_end
from hayase.windows.partials import Lifting, Partials
from hayase.windows.row_windows import RowWindows
from hayase.windows.session_folds import SessionFolds

__all__ = [
    "PANES", "ROWS", "SESSIONS", "RestoredSections", "RestoredTuples", "StepTuples", "WindowLog", "columns_of", "window_shift",
]  # fmt: skip

ROWS, PANES, SESSIONS = "rows", "panes", "sessions"
"""Sections of row windows, of time windows and of sessions."""
_NUMBER, _PASSED = "__number", "__passed"


def columns_of(call: Call) -> tuple[str, ...]:
    """Return the columns that a call aggregates."""
    return tuple(name for name in (call.argument, call.second) if name is not None)


def window_shift(kind: str, length: int, slide: int, offset: int) -> tuple[int, int]:
    """Return how far the ends of a time window are from multiples of its slide, and 1 if the window does not contain its end.

    >>> window_shift("range", 10, 3, 2), window_shift("hop", 10, 3, 1), window_shift("cumulate", 9, 3, 5)
    ((2, 0), (2, 1), (5, 1))
    """
    if kind == "range":
        return offset, 0
    return ((offset + length) % slide if kind == "hop" else offset % length), 1


@dataclass(frozen=True, slots=True)
class StepTuples:
    """The tuples of a step, as row windows (`counted`) and time windows (`timed`) see them."""

    counted: pa.RecordBatch
    slots: np.ndarray
    numbers: np.ndarray | None
    passed: np.ndarray | None
    timed: pa.RecordBatch
    clock: int
    version: int


class WindowLog:
    """Writes the sections "rows" and "panes" of a node."""

    def __init__(self, node: Shared) -> None:
        self._keys = node.keys
        self._columns = list(dict.fromkeys(name for call in node.calls for name in columns_of(call)))
        self._longest: dict[int, int] = {}
        for window in node.windows:
            if window.kind == "rows":
                self._longest[window.slide] = max(window.length, self._longest.get(window.slide, 0))
        self._ranges = [spec for spec in node.windows if spec.kind not in ("rows", "session")]
        self._gap = max((spec.length for spec in node.windows if spec.kind == "session"), default=None)
        self._lasting: list[tuple[int, int]] = []
        self._clock = 0
        self._version = -1
        self._fresh: list[tuple[pa.RecordBatch, np.ndarray]] = []

    def written(self, taken: StepTuples, counted: RowWindows | None) -> list[Tuples]:
        """Return the new tuples that the node's windows will need."""
        self._clock = taken.clock
        tuples: list[Tuples] = []
        if self._longest and counted is not None and taken.numbers is not None:
            tuples += self._counted(taken, taken.numbers, counted)
        if self._ranges and taken.timed.num_rows:
            time = taken.timed.column(TIME)
            until = self._until(raw_values(time, np.int64))
            self._lasting.append((until, len(time)))
            columns = {**self._own(taken.timed), TIME: time, OFFSET: taken.timed.column(OFFSET)}
            tuples.append(Tuples(PANES, pa.RecordBatch.from_pydict(columns), until))
        if self._gap is not None and taken.counted.num_rows:
            batch = taken.counted
            columns = {**self._own(batch), TIME: batch.column(TIME), OFFSET: batch.column(OFFSET)}
            columns |= {} if taken.passed is None else {_PASSED: pa.array(taken.passed)}
            tuples.append(Tuples(SESSIONS, pa.RecordBatch.from_pydict(columns)))
        return tuples

    def _counted(self, taken: StepTuples, numbers: np.ndarray, counted: RowWindows) -> list[Tuples]:
        """Return the tuples of the batch, from this step and earlier ones, that a row window will reach."""
        if taken.version != self._version:
            self._version, self._fresh = taken.version, []
        if not len(numbers):
            return []
        columns = {**self._own(taken.counted), _NUMBER: pa.array(numbers)}
        if taken.passed is not None:
            columns[_PASSED] = pa.array(taken.passed)
        alive = np.flatnonzero(counted.matters(taken.slots, numbers, self._longest))
        parts = [(take_rows(pa.RecordBatch.from_pydict(columns), alive), taken.slots[alive])]
        for rows, slots in self._fresh:
            left = np.flatnonzero(raw_values(rows.column(_NUMBER), np.int64) >= counted.reach(slots, self._longest))
            parts.insert(-1, (take_rows(rows, left), slots[left]))
        self._fresh = [part for part in parts if len(part[1])]
        return [Tuples(ROWS, pa.concat_batches([rows for rows, _ in parts]), whole=True)]

    def _own(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        keys = {f"key_{at}": batch.column(name) for at, name in enumerate(self._keys)}
        return keys | {f"of_{name}": batch.column(name) for name in self._columns}

    def _until(self, time: np.ndarray) -> int:
        """Return the instant from which on none of some tuples is needed."""
        ends = []
        for spec in self._ranges:
            shift, more = window_shift(spec.kind, spec.length, spec.slide, spec.offset)
            shape: WindowShape = "hop" if spec.kind == "hop" else "cumulate" if spec.kind == "cumulate" else "range"
            ends.append(int(epoch_end(time[-1:] - shift + more, spec.length, spec.slide, shape)[0]) + shift)
        return max(ends)

    def restored(self, section: str, rows: pa.RecordBatch) -> None:
        """Note that tuples were restored."""
        if section == PANES and rows.num_rows and self._ranges:
            self._lasting.append((self._until(raw_values(rows.column(TIME), np.int64)), rows.num_rows))

    def live(
        self,
        section: str,
        rows: pa.RecordBatch,
        counted: RowWindows | None,
        slots: Callable[..., np.ndarray],
        sessions: Mapping[int, SessionFolds],
    ) -> pa.RecordBatch:
        """Return the rows of tuples that are still needed."""
        if section == SESSIONS:
            if self._gap is None or self._gap not in sessions:
                return rows
            keys = slots(rows.columns[: len(self._keys)], rows.num_rows, insert=False)
            alive = keys >= 0
            times = raw_values(rows.column(TIME), np.int64)
            alive[alive] = sessions[self._gap].belongs(keys[alive], times[alive])
            return rows.filter(pa.array(alive))
        if section == PANES:
            matter = self._ranges and self._until(raw_values(rows.column(TIME), np.int64)) >= self._clock
            return rows if matter else rows.slice(0, 0)
        assert counted is not None, "only nodes with row windows write rows"
        keys = slots(rows.columns[: len(self._keys)], rows.num_rows, insert=False)
        alive = keys >= 0
        reach = counted.reach(keys[alive], self._longest)
        alive[alive] = raw_values(rows.column(_NUMBER), np.int64)[alive] >= reach
        return rows.filter(pa.array(alive))

    def size(self, section: str, counted: RowWindows | None, keys: int, sessions: Mapping[int, SessionFolds]) -> int:
        """Return an upper bound of the number of tuples that are needed."""
        if section == SESSIONS:
            return sessions[self._gap].size() if self._gap is not None and self._gap in sessions else 0
        if section == PANES:
            self._lasting = [entry for entry in self._lasting if entry[0] >= self._clock]
            return sum(count for _, count in self._lasting)
        longest = max((length + slide for slide, length in self._longest.items()), default=0)
        return min(counted.size(), keys * longest) if counted is not None else 0


class RestoredSections:
    """Merges the sections of several nodes that share their windows, by tuple."""

    def __init__(self, keys: int) -> None:
        self._width = keys
        self._batches: dict[str, list[pa.RecordBatch]] = {ROWS: [], PANES: [], SESSIONS: []}

    def add(self, section: str, rows: pa.RecordBatch) -> None:
        """Add tuples that a node has written."""
        needed = [f"key_{at}" for at in range(self._width)]
        needed += [_NUMBER] if section == ROWS else [TIME, OFFSET]
        if any(name not in rows.schema.names for name in needed):
            raise DamagedState(
                f'the state section "{section}" has the columns {", ".join(rows.schema.names)} '
                f"and not all of {', '.join(needed)}",
                "reset the stage",
            )
        if rows.num_rows:
            self._batches[section].append(rows)

    def take(
        self, section: str, liftings: Mapping[int, tuple[Lifting, tuple[str, ...]]], slots: Callable[..., np.ndarray]
    ) -> RestoredTuples | None:
        """Return all tuples of a section, each once, with their partials by lifting; None if there are none.

        A column that no node has written for a tuple is not needed by any window.
        """
        batches, self._batches[section] = self._batches[section], []
        if not batches:
            return None
        parts = _by_columns(batches)
        bounds = np.cumsum([0, *(part.num_rows for part in parts)])
        keys = np.concatenate([slots(part.columns[: self._width], part.num_rows) for part in parts])
        name = _NUMBER if section == ROWS else OFFSET
        numbers = np.concatenate([raw_values(part.column(name), np.int64) for part in parts])
        order = np.lexsort((numbers, keys))
        first = np.ones(len(order), np.bool_)
        first[1:] = (keys[order[1:]] != keys[order[:-1]]) | (numbers[order[1:]] != numbers[order[:-1]])
        place = np.empty(len(order), np.int64)  # the position of each row among the tuples
        place[order] = np.cumsum(first) - 1
        tuples = order[first]
        partials = [
            _filled(lifting, columns, parts, np.split(place, bounds[1:-1]), len(tuples))
            for lifting, columns in liftings.values()
        ]
        times = np.empty(0, np.int64)
        if section != ROWS:
            times = np.concatenate([raw_values(part.column(TIME), np.int64) for part in parts])[tuples]
        return RestoredTuples(keys[tuples], numbers[tuples], times, partials)


@dataclass(frozen=True, slots=True)
class RestoredTuples:
    """Restored tuples: the slots of their keys, their numbers or offsets, their times (time windows), and their partials."""

    slots: np.ndarray
    numbers: np.ndarray
    times: np.ndarray
    partials: Sequence[Partials]


def _filled(
    lifting: Lifting, columns: Sequence[str], parts: Sequence[pa.RecordBatch], places: Sequence[np.ndarray], count: int
) -> Partials:
    """Return the partials of tuples, from the parts that have the columns."""
    names = [f"of_{name}" for name in columns]
    words = [np.array(empty) for empty in lifting.empties(count).words]
    for part, place in zip(parts, places):
        if all(name in part.schema.names for name in names):
            lifted = lifting.lift([part.column(name) for name in names], _flags(part), rows=part.num_rows)
            for word, values in zip(words, lifted.words):
                word[place] = values
    return Partials(tuple(words))


def _by_columns(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Concatenate batches with equal columns."""
    by_names: dict[tuple[str, ...], list[pa.RecordBatch]] = {}
    for batch in batches:
        by_names.setdefault(tuple(batch.schema.names), []).append(batch)
    return [pa.Table.from_batches(group).combine_chunks().to_batches()[0] for group in by_names.values()]


def _flags(rows: pa.RecordBatch) -> np.ndarray | None:
    """Return which tuples of a section `where` has accepted; None for all."""
    if _PASSED not in rows.schema.names:
        return None
    return np.asarray(rows.column(_PASSED).to_numpy(zero_copy_only=False))
