"""What the windows of a node still need, as it is written down: tuples with their keys and the columns that are aggregated.

Every node writes what it needs itself, in columns and in reach, whoever shares its windows; those who share take up what
each of them has written, and put it together by the tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hayase.core.errors import DamagedState
from hayase.core.keys import values
from hayase.core.stages import OFFSET, TIME, Tuples
from hayase.lifetimes.leaves import chosen
from hayase.lifetimes.plans import Call, Shared
from hayase.windows.panes import epoch_end
from hayase.windows.partials import Lifting, Partials
from hayase.windows.row_windows import Counted

__all__ = ["PANES", "ROWS", "Gathered", "Taken", "Together", "WindowLog", "columns_of"]

ROWS, PANES = "rows", "panes"
"""Sections: of windows by count and of windows by time."""
_NUMBER, _PASSED = "__number", "__passed"


def columns_of(call: Call) -> tuple[str, ...]:
    """The columns that a call aggregates."""
    return tuple(name for name in (call.argument, call.second) if name is not None)


@dataclass(frozen=True, slots=True)
class Taken:
    """The tuples of a step, for those who count them and for those who go by time."""

    counted: pa.RecordBatch
    slots: np.ndarray
    numbers: np.ndarray | None
    passed: np.ndarray | None
    timed: pa.RecordBatch
    clock: int
    version: int


class WindowLog:
    """The sections "rows" and "panes" of a node."""

    def __init__(self, node: Shared) -> None:
        self._keys = node.keys
        self._columns = list(dict.fromkeys(name for call in node.calls for name in columns_of(call)))
        self._longest: dict[int, int] = {}
        for window in node.windows:
            if window.kind == "rows":
                self._longest[window.slide] = max(window.length, self._longest.get(window.slide, 0))
        self._ranges = [(each.length, each.slide) for each in node.windows if each.kind == "range"]
        self._lasting: list[tuple[int, int]] = []
        self._clock = 0
        self._version = -1
        self._fresh: list[tuple[pa.RecordBatch, np.ndarray]] = []

    def written(self, taken: Taken, counted: Counted | None) -> list[Tuples]:
        """The new tuples that the node's windows will need."""
        self._clock = taken.clock
        found: list[Tuples] = []
        if self._longest and counted is not None and taken.numbers is not None:
            found += self._counted(taken, taken.numbers, counted)
        if self._ranges and taken.timed.num_rows:
            time = taken.timed.column(TIME)
            until = self._until(values(time, np.int64))
            self._lasting.append((until, len(time)))
            columns = {**self._own(taken.timed), TIME: time, OFFSET: taken.timed.column(OFFSET)}
            found.append(Tuples(PANES, pa.RecordBatch.from_pydict(columns), until))
        return found

    def _counted(self, taken: Taken, numbers: np.ndarray, counted: Counted) -> list[Tuples]:
        """The tuples of the batch, of this step and of earlier ones, that a window by count will reach."""
        if taken.version != self._version:
            self._version, self._fresh = taken.version, []
        if not len(numbers):
            return []
        columns = {**self._own(taken.counted), _NUMBER: pa.array(numbers)}
        if taken.passed is not None:
            columns[_PASSED] = pa.array(taken.passed)
        alive = np.flatnonzero(counted.matters(taken.slots, numbers, self._longest))
        parts = [(chosen(pa.RecordBatch.from_pydict(columns), alive), taken.slots[alive])]
        for rows, slots in self._fresh:
            left = np.flatnonzero(values(rows.column(_NUMBER), np.int64) >= counted.reach(slots, self._longest))
            parts.insert(-1, (chosen(rows, left), slots[left]))
        self._fresh = [part for part in parts if len(part[1])]
        return [Tuples(ROWS, pa.concat_batches([rows for rows, _ in parts]), whole=True)]

    def _own(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        keys = {f"key_{at}": batch.column(name) for at, name in enumerate(self._keys)}
        return keys | {f"of_{name}": batch.column(name) for name in self._columns}

    def _until(self, time: np.ndarray) -> int:
        """When none of some tuples matters any more."""
        return max(int(epoch_end(time[-1:], length, slide)[0]) for length, slide in self._ranges)

    def restored(self, section: str, rows: pa.RecordBatch) -> None:
        """Note that tuples are taken up again."""
        if section == PANES and rows.num_rows and self._ranges:
            self._lasting.append((self._until(values(rows.column(TIME), np.int64)), rows.num_rows))

    def live(
        self, section: str, rows: pa.RecordBatch, counted: Counted | None, slots: Callable[..., np.ndarray]
    ) -> pa.RecordBatch:
        """Tuples that still matter."""
        if section == PANES:
            matter = self._ranges and self._until(values(rows.column(TIME), np.int64)) >= self._clock
            return rows if matter else rows.slice(0, 0)
        assert counted is not None, "who has written rows counts them"
        found = slots(rows.columns[: len(self._keys)], rows.num_rows, insert=False)
        alive = found >= 0
        reach = counted.reach(found[alive], self._longest)
        alive[alive] = values(rows.column(_NUMBER), np.int64)[alive] >= reach
        return rows.filter(pa.array(alive))

    def size(self, section: str, counted: Counted | None, keys: int) -> int:
        """How many tuples matter, at most."""
        if section == PANES:
            self._lasting = [each for each in self._lasting if each[0] >= self._clock]
            return sum(count for _, count in self._lasting)
        longest = max((length + slide for slide, length in self._longest.items()), default=0)
        return min(counted.size(), keys * longest) if counted is not None else 0


class Gathered:
    """Sections of several nodes that share their windows, put together by the tuple."""

    def __init__(self, keys: int) -> None:
        self._width = keys
        self._batches: dict[str, list[pa.RecordBatch]] = {ROWS: [], PANES: []}

    def add(self, section: str, rows: pa.RecordBatch) -> None:
        """Take up tuples that a node has written."""
        needed = [f"key_{at}" for at in range(self._width)]
        needed += [_NUMBER] if section == ROWS else [TIME, OFFSET]
        if any(name not in rows.schema.names for name in needed):
            raise DamagedState(
                f'the state section "{section}" has the columns {", ".join(rows.schema.names)} '
                f"and not all of {', '.join(needed)}; reset the stage"
            )
        if rows.num_rows:
            self._batches[section].append(rows)

    def take(
        self, section: str, liftings: Mapping[int, tuple[Lifting, tuple[str, ...]]], slots: Callable[..., np.ndarray]
    ) -> Together | None:
        """All tuples of a section, each once, and their partials by lifting; a column that nobody has written of a tuple
        is one that no window will ask for there."""
        batches, self._batches[section] = self._batches[section], []
        if not batches:
            return None
        parts = _by_columns(batches)
        bounds = np.cumsum([0, *(each.num_rows for each in parts)])
        keys = np.concatenate([slots(each.columns[: self._width], each.num_rows) for each in parts])
        name = _NUMBER if section == ROWS else OFFSET
        numbers = np.concatenate([values(each.column(name), np.int64) for each in parts])
        order = np.lexsort((numbers, keys))
        first = np.ones(len(order), np.bool_)
        first[1:] = (keys[order[1:]] != keys[order[:-1]]) | (numbers[order[1:]] != numbers[order[:-1]])
        place = np.empty(len(order), np.int64)  # of each row among the tuples
        place[order] = np.cumsum(first) - 1
        tuples = order[first]
        partials = [
            _filled(lifting, columns, parts, np.split(place, bounds[1:-1]), len(tuples))
            for lifting, columns in liftings.values()
        ]
        times = np.empty(0, np.int64)
        if section == PANES:
            times = np.concatenate([values(each.column(TIME), np.int64) for each in parts])[tuples]
        return Together(keys[tuples], numbers[tuples], times, partials)


@dataclass(frozen=True, slots=True)
class Together:
    """Tuples: the slots of their keys, their numbers or offsets, their times if they go by time, and their partials."""

    slots: np.ndarray
    numbers: np.ndarray
    times: np.ndarray
    partials: Sequence[Partials]


def _filled(
    lifting: Lifting, columns: Sequence[str], parts: Sequence[pa.RecordBatch], places: Sequence[np.ndarray], count: int
) -> Partials:
    """The partials of tuples, from the parts that have their columns."""
    names = [f"of_{name}" for name in columns]
    words = [np.array(each) for each in lifting.empties(count).words]
    for part, place in zip(parts, places):
        if all(name in part.schema.names for name in names):
            lifted = lifting.lift([part.column(name) for name in names], _flags(part), rows=part.num_rows)
            for word, given in zip(words, lifted.words):
                word[place] = given
    return Partials(tuple(words))


def _by_columns(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Batches of equal columns as one."""
    alike: dict[tuple[str, ...], list[pa.RecordBatch]] = {}
    for each in batches:
        alike.setdefault(tuple(each.schema.names), []).append(each)
    return [pa.Table.from_batches(each).combine_chunks().to_batches()[0] for each in alike.values()]


def _flags(rows: pa.RecordBatch) -> np.ndarray | None:
    """Which tuples of a section `where` has let through; None for all."""
    if _PASSED not in rows.schema.names:
        return None
    return np.asarray(rows.column(_PASSED).to_numpy(zero_copy_only=False))
