"""The operator for shared windows (paper 2): one pass over an input computes any number of windows, of one query or many.

`SharedState` holds what the windows have in common: the keys, and per key the partials of tuples or panes from which every
window is folded (`hayase.windows`). A `SharedOperator` reads the values of its own node from it and turns them into an
interval relation. The result of a node depends bit for bit on its own windows and calls only, not on what else is shared.

Windows with bounds have one row for each window and group, whose lifetime is known when the window ends; they have no open rows.

State: "rows", "panes" and "sessions" hold the tuples that row windows, time windows and sessions still need
(`hayase.lifetimes.shared_windows_log`); the partials are rebuilt from them. "answers" and "registers" are the node's open rows
(`hayase.lifetimes.answers`), and sections that begin with "guard." are the state of guarded sums (`hayase.lifetimes.sum_guard`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.algebra import Aggregate
from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError
from hayase.core.keys import KeyIndex, check_key_type, decode, encode, hashes, raw_values
from hayase.core.reasons import ReasonKind, reasons_of
from hayase.core.stages import OFFSET, TIME, FailedRows, Tuples
from hayase.core.times import BEGINNING, duration_text
from hayase.lifetimes.answers import Answers, take_values
from hayase.lifetimes.expiry import end_order
from hayase.lifetimes.leaves import take_rows
from hayase.lifetimes.plans import Call, Shared, SharedWindow
from hayase.lifetimes.relations import OPEN, Delta, Span, Step, no_delta
from hayase.lifetimes.shared_windows_log import (
    PANES,
    ROWS,
    SESSIONS,
    RestoredSections,
    RestoredTuples,
    StepTuples,
    WindowLog,
    columns_of,
    window_shift,
)
from hayase.lifetimes.sum_guard import ACCEPTED, SumGuard
from hayase.windows.panes import Folding, Panes, Turns, WindowShape, pane_width
from hayase.windows.partials import Lifting, Partials
from hayase.windows.row_windows import RowWindows
from hayase.windows.session_folds import SessionFolds

__all__ = ["SharedOperator", "SharedState"]

_NONE = np.empty(0, np.int64)

Reading = tuple[str, float | None, tuple[str, ...]]
"""An aggregate of columns: its name, its constant and the columns."""


def _reading(call: Call) -> Reading:
    return call.function, call.constant, columns_of(call)


def key_types(node: Shared) -> list[pa.DataType]:
    """Return the types of a node's keys, which may have other names in its rows than in its input."""
    first = len(node.schema) - len(node.calls) - len(node.bounds) - len(node.keys)
    return list(node.schema.types[first : first + len(node.keys)])


class SharedState:
    """The state shared by nodes with equal input, keys and `where`; it processes each step once for all of them."""

    def __init__(self, nodes: Sequence[Shared]) -> None:
        node = nodes[0]
        assert all((other.input, other.keys, other.where) == (node.input, node.keys, node.where) for other in nodes)
        self._input, self._where = node.input, node.where
        self.keys = _Keys(key_types(node))
        self._key_names = node.keys
        calls = [call for other in nodes for call in other.calls]
        distinct = [call for call in calls if call.distinct and call.function not in ("min", "max")]
        if distinct:
            raise DeclarationError(f"{distinct[0].text} cannot share windows", "leave out distinct")
        windows = {_shape(window) for node in nodes for window in node.windows}
        self._row_windows = sorted(window[1:3] for window in windows if window[0] == "rows")
        self._time_windows = sorted(window for window in windows if window[0] not in ("rows", "session"))
        self._gaps = sorted(window[1] for window in windows if window[0] == "session")
        self.counts_passed = self._where is not None and bool((node.keys and self._row_windows) or self._gaps)
        """Whether a key may have tuples in a window of which `where` accepts none."""
        wanted = [_reading(call) for call in calls] + [_reading(PASSED)] * self.counts_passed
        self._readings = list(dict.fromkeys(wanted))
        self._engines: _Engines | None = None
        self._restored = RestoredSections(len(node.keys))
        self._touched: list[np.ndarray] = []
        self._clock = BEGINNING
        self._at: tuple[int, int, int] | None = None
        self._step: _SharedStep | None = None

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> _SharedStep:
        """Process a step, or return its result again if it was processed before."""
        at = span.since, span.clock, span.version
        if self._step is not None and self._at == at:
            return self._step
        batch = batches[self._input]
        engines = self._engines or self._create_engines(batch.schema)
        self._settle(engines, span.since)
        self._drop_keys(engines)
        passed = self._passed(batch)
        if passed is not None and not engines.counted and not engines.sessions:
            batch, passed = batch.filter(pa.array(passed)), None
        time, offset = raw_values(batch.column(TIME), np.int64), raw_values(batch.column(OFFSET), np.int64)
        slots = self.keys.slots([batch.column(name) for name in self._key_names], batch.num_rows)
        partials = engines.lifted(batch, passed)
        turns: dict[Shape, tuple[Folding, Turns]] = {}
        taken = StepTuples(batch, slots, None, passed, batch, span.clock, span.version)
        if engines.counted:
            numbers, turns_of = engines.counted.advance(slots, time, offset, partials)
            turns |= {("rows", *window, 0): turn for window, turn in zip(self._row_windows, turns_of)}
            taken = replace(taken, numbers=numbers)
        turns |= engines.move_sessions(slots, time, offset, partials, span.clock)
        if engines.panes:
            if passed is not None:
                accepted = np.flatnonzero(passed)
                batch, time, offset, slots = (
                    take_rows(batch, accepted),
                    time[accepted],
                    offset[accepted],
                    slots[accepted],
                )
                partials = [partial.take(accepted) for partial in partials]
                taken = replace(taken, timed=batch)
            turns |= engines.move_panes(slots, time, offset, partials, span.clock)
        self._clock = span.clock
        self._at, self._step = at, _SharedStep(engines, turns, taken)
        return self._step

    def _create_engines(self, schema: pa.Schema) -> _Engines:
        """Create the engines, once the types of the input's columns are known."""
        windows = self._row_windows, self._time_windows, self._gaps
        self._engines = _Engines(self._readings, schema, *windows, bool(self._key_names))
        return self._engines

    def _passed(self, batch: pa.RecordBatch) -> np.ndarray | None:
        """Return which tuples `where` accepts; None for all."""
        if self._where is None:
            return None
        return np.asarray(pc.fill_null(batch.column(self._where), False).to_numpy(zero_copy_only=False))

    def _drop_keys(self, engines: _Engines) -> None:
        """Drop keys without tuples. With row windows a key always has some."""
        timed: list[Panes | SessionFolds] = [*engines.panes.values(), *engines.sessions.values()]
        emptied = [engine.emptied() for engine in timed]
        slots = np.unique(np.concatenate([_NONE, *self._touched, *emptied]))
        self._touched = []
        if engines.counted or not self._key_names or not len(slots):
            return
        held = np.zeros(len(slots), np.bool_)
        for engine in timed:
            held |= engine.holds(slots)
        self.keys.drop(slots[~held])

    # ------------------------------------------------------------------------------------------ state

    @property
    def counted(self) -> RowWindows | None:
        """The row windows, if there are any and a step was processed."""
        return self._engines.counted if self._engines is not None else None

    @property
    def sessions(self) -> Mapping[int, SessionFolds]:
        """The sessions by gap, once a step was processed."""
        return self._engines.sessions if self._engines is not None else {}

    def restore(self, section: str, rows: pa.RecordBatch) -> None:
        """Load tuples; they are used from the next step on."""
        self._restored.add(section, rows)

    def restored_slots(self, keys: Sequence[pa.Array], rows: int) -> np.ndarray:
        """Return the numbers of the keys of a node's open rows. Keys without tuples are dropped again later."""
        slots = self.keys.slots(keys, rows)
        self._touched.append(slots)
        return slots

    def _settle(self, engines: _Engines, since: int) -> None:
        """Load what was restored, and advance to the start of the step without emitting: another worker has emitted these
        changes."""
        rows, panes, sessions = (
            self._restored.take(section, engines.sources, self.keys.slots) for section in (ROWS, PANES, SESSIONS)
        )
        if rows is not None and engines.counted:
            new = engines.counted.unknown(rows.slots, rows.numbers)
            engines.counted.load(rows.slots[new], rows.numbers[new], [partial.take(new) for partial in rows.partials])
        if engines.panes and (panes is not None or since > self._clock):
            engines.move_panes(*self._missed(engines, panes), since)
        if engines.sessions and (sessions is not None or since > self._clock):
            engines.move_sessions(*self._missed(engines, sessions), since)
        self._clock = max(self._clock, since)

    def _missed(
        self, engines: _Engines, rows: RestoredTuples | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, Sequence[Partials]]:
        """Return the restored tuples that came since the last step, in order."""
        slots = time = offset = _NONE
        partials: Sequence[Partials] = [lifting.empties(0) for lifting in engines.liftings]
        if rows is not None:
            new = np.flatnonzero(rows.times >= self._clock)
            new = new[end_order(rows.times[new], rows.numbers[new])]
            time, offset, slots = rows.times[new], rows.numbers[new], rows.slots[new]
            partials = [partial.take(new) for partial in rows.partials]
        return slots, time, offset, partials


Shape = tuple[str, int, int, int]
"""The kind, length, slide and offset of a window."""


def _shape(window: SharedWindow) -> Shape:
    """Return the shape of a window; windows on the same grid have equal ones."""
    step = window.length if window.kind == "cumulate" else window.slide
    return window.kind, window.length, window.slide, window.offset % step


PASSED = Call("count", None)
"""Counts the tuples that `where` accepts."""


class _Engines:
    """The liftings of all readings, and the structures that fold them: row windows, panes of each width, and sessions.

    Panes end at multiples of their width. The times of a window whose grid is elsewhere are shifted; those of windows with
    bounds, which do not contain their end, by one more.
    """

    def __init__(
        self,
        readings: Sequence[Reading],
        schema: pa.Schema,
        row_windows: Sequence[tuple[int, int]],
        time_windows: Sequence[Shape],
        gaps: Sequence[int],
        keyed: bool,
    ) -> None:
        self._lowering: dict[Reading, tuple[Lifting, int]] = {}
        self.liftings: list[Lifting] = []
        self._columns: list[tuple[str, ...]] = []
        numbers: dict[object, int] = {}
        for function, constant, columns in readings:
            aggregate = Aggregate.from_name(function).at(constant)
            lifting = Lifting(aggregate, [schema.field(name).type for name in columns])
            number = numbers.setdefault((lifting.partial, columns), len(numbers))
            if number == len(self.liftings):
                self.liftings.append(lifting)
                self._columns.append(columns)
            self._lowering[function, constant, columns] = lifting, number
        self.counted = RowWindows(self.liftings, row_windows, keyed=keyed) if row_windows else None
        self._windows: dict[tuple[int, int, int], list[Shape]] = {}
        for window in time_windows:
            self._windows.setdefault((pane_width(*window[1:3]), *window_shift(*window)), []).append(window)
        self.panes = {
            grid: Panes(
                grid[0], self.liftings, [(length, slide, _pane_shape(kind)) for kind, length, slide, _ in windows]
            )
            for grid, windows in self._windows.items()
        }
        self.sessions = {gap: SessionFolds(gap, self.liftings) for gap in gaps}

    def lowering(self, call: Call) -> tuple[Lifting, int]:
        """Return the lifting that lowers a call's values, and the number of the lifting whose partials it reads."""
        return self._lowering[_reading(call)]

    @property
    def sources(self) -> Mapping[int, tuple[Lifting, tuple[str, ...]]]:
        """The liftings by number, with the columns that each reads."""
        return dict(enumerate(zip(self.liftings, self._columns)))

    def lifted(self, rows: pa.RecordBatch, passed: np.ndarray | None) -> list[Partials]:
        """Return the partials of the input's tuples, by lifting."""
        return [
            lifting.lift([rows.column(name) for name in names], passed, rows=rows.num_rows)
            for lifting, names in zip(self.liftings, self._columns)
        ]

    def move_panes(
        self, slots: np.ndarray, time: np.ndarray, offset: np.ndarray, partials: Sequence[Partials], clock: int
    ) -> dict[Shape, tuple[Folding, Turns]]:
        """Add tuples and advance to the clock; return the turns of every time window."""
        turns: dict[Shape, tuple[Folding, Turns]] = {}
        for grid, panes in self.panes.items():
            _, shift, more = grid
            moved = time - (shift - more) if shift or more else time
            turns_of = panes.advance(slots, moved, offset, partials, clock - shift)
            for window, (folding, turn) in zip(self._windows[grid], turns_of):
                turns[window] = folding, replace(turn, time=turn.time + shift) if shift else turn
        return turns

    def move_sessions(
        self, slots: np.ndarray, time: np.ndarray, offset: np.ndarray, partials: Sequence[Partials], clock: int
    ) -> dict[Shape, tuple[Folding, Turns]]:
        """Add tuples and advance to the clock; return the sessions that end."""
        return {
            ("session", gap, gap, 0): sessions.advance(slots, time, offset, partials, clock)
            for gap, sessions in self.sessions.items()
        }


def _pane_shape(kind: str) -> WindowShape:
    return "hop" if kind == "hop" else "cumulate" if kind == "cumulate" else "range"


@dataclass(frozen=True, slots=True)
class _SharedStep:
    """The result of a step: the turns of every window with what folds them, and the tuples that were added."""

    engines: _Engines
    turns: Mapping[Shape, tuple[Folding, Turns]]
    taken: StepTuples


class SharedOperator:
    """The operator of `plans.Shared` (`leaves.LeafOperator`), with a state of its own unless one is passed."""

    def __init__(self, node: Shared, state: SharedState | None = None) -> None:
        self.schema = node.schema
        self._guard: SumGuard | None = None
        if node.guard is not None:
            assert state is None, "the records that a guard refuses depend on its node, so nothing can be shared"
            self._guard = SumGuard(node)
            node = replace(node, where=ACCEPTED)
        self._node = node
        for kind in key_types(node):
            check_key_type(kind)
        self._state = SharedState([node]) if state is None else state
        self._log = WindowLog(node)
        tagged = len(node.schema) > len(node.keys) + len(node.bounds) + len(node.calls)
        self._tags = pa.array([window.tag for window in node.windows], node.schema.field(0).type) if tagged else None
        fields = list(node.schema)[int(tagged) :]
        self._results = fields[len(node.keys) + len(node.bounds) :]
        self._answers = Answers(fields[: len(node.keys)], self._results, len(node.windows))

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> Step:
        """Process a step and return the rows that begin and end in it, and the records that the guard refuses."""
        refused: list[FailedRows] = []
        guard_state: list[Tuples] = []
        if self._guard is not None:
            batches, refused, guard_state = self._guard.advance(batches, span)
        moved = self._state.advance(batches, span)
        written = [*self._log.written(moved.taken, moved.engines.counted), *map(_in_guard_section, guard_state)]
        turns = self._asked(moved, span)
        if not len(turns.time):
            state = self._answers.registers.changes(span.version)
            return Step(no_delta(self.schema), [*written, *state], refused)
        there, columns, spoiled = self._answered(moved.engines, turns)
        if self._node.bounds:
            delta = self._bounded_rows(turns, there, columns)
            return Step(delta, [*written, *self._answers.registers.changes(span.version)], [*refused, *spoiled])
        keys = self._state.keys
        followed, state = self._answers.follow(
            turns.key, turns.window, turns.time, there, columns, span.version, keys.columns
        )
        rows = self._rows(turns, columns, followed.made)
        start = turns.time[followed.made]
        delta = Delta(rows, start, followed.end, followed.id, followed.closed, followed.closed_end)
        return Step(delta, [*written, *state], [*refused, *spoiled])

    def _bounded_rows(self, turns: _TurnsInOrder, there: np.ndarray, columns: Sequence[pa.Array]) -> Delta:
        """Return the rows of windows with bounds, each with its lifetime."""
        which = np.flatnonzero(there)
        keeps = np.array([min(window.keep, OPEN) for window in self._node.windows], np.int64)
        start = turns.time[which]
        end = np.minimum(start + keeps[turns.window[which]], OPEN)
        registers = self._answers.registers
        registers["next"] += len(which)
        ids = np.arange(registers["next"] - len(which), registers["next"])
        return Delta(self._rows(turns, columns, which), start, end, ids)

    def _bounds(self, turns: _TurnsInOrder, which: np.ndarray) -> list[pa.Array]:
        """Return the columns with the bounds of windows."""
        if not self._node.bounds:
            return []
        ends, number = turns.time[which], turns.window[which]
        length, offset = (
            np.array([getattr(window, name) for window in self._node.windows], np.int64)[number]
            for name in ("length", "offset")
        )
        kind = self._node.windows[0].kind
        starts = ends - length
        if kind == "session":
            starts = turns.begins[which]
        elif kind == "cumulate":
            starts = (ends - 1 - offset) // length * length + offset
        kinds = [self.schema.field(name).type for name in self._node.bounds]
        return [pa.array(times // self._node.unit).cast(of_type) for times, of_type in zip((starts, ends), kinds)]

    def _asked(self, moved: _SharedStep, span: Span) -> _TurnsInOrder:
        """Return all turns of all windows, in the order of time, tuple and window."""
        sources: dict[int, tuple[Folding, list[int], list[Turns]]] = {}
        for number, window in enumerate(self._node.windows):
            source, turns = moved.turns[_shape(window)]
            if len(turns):
                _, numbers, parts = sources.setdefault(id(source), (source, [], []))
                numbers.append(number)
                parts.append(turns)
        asked = [
            (source, np.repeat(numbers, [len(part) for part in parts]), _joined(parts))
            for source, numbers, parts in sources.values()
        ]
        return _TurnsInOrder([*asked, *self._births(asked, span)], len(self._node.windows))

    def _births(
        self, asked: Sequence[tuple[Folding, np.ndarray, Turns]], span: Span
    ) -> list[tuple[None, np.ndarray, Turns]]:
        """Return the turns that begin the rows of a node without keys, which exist from the first record on."""
        registers = self._answers.registers
        if (
            self._node.keys
            or self._node.bounds
            or registers["born"]
            or span.began == BEGINNING
            or span.began >= span.clock
        ):
            return []
        registers["born"] = 1
        begin = max(span.began, span.since)
        earlier = [numbers[turns.time <= begin] for _, numbers, turns in asked]
        late = np.setdiff1d(np.arange(len(self._node.windows)), np.concatenate([_NONE, *earlier]))
        zeros = np.zeros(len(late), np.int64)
        return [(None, late, Turns(np.full(len(late), begin), zeros, zeros - 1, zeros, zeros - 1))]

    def _answered(self, engines: _Engines, asked: _TurnsInOrder) -> tuple[np.ndarray, list[pa.Array], list[FailedRows]]:
        """Return at which turns there is a row, the values of the calls, and the rows in which a sum does not fit its type."""
        count = len(asked.time)
        there = asked.filled() if self._node.keys or self._node.bounds else np.ones(count, np.bool_)
        partials: dict[int, Partials] = {}
        if self._state.counts_passed:
            lifting, number = engines.lowering(PASSED)
            partials[number] = asked.folded(number, lifting)
            there &= raw_values(lifting.lower(partials[number])[0], np.int64) > 0
        columns: list[pa.Array] = []
        over: list[tuple[Call, np.ndarray]] = []
        for call, field in zip(self._node.calls, self._results):
            lifting, number = engines.lowering(call)
            if number not in partials:
                partials[number] = asked.folded(number, lifting)
            column, overflowed = lifting.lower(partials[number])
            columns.append(column if column.type == field.type else column.cast(field.type))
            if len(overflowed):
                over.append((call, overflowed[there[overflowed]]))
        spoiled = []
        for call, rows in over:
            name = call.text or call.function
            reasons = [f"{name} {self._windowed(window)} does not fit its type" for window in asked.window[rows]]
            if reasons:
                spoiled.append(FailedRows(self._rows(asked, columns, rows), reasons_of(ReasonKind.OVERFLOW, reasons)))
        if self._guard is None:  # a guarded sum overflows only when a row ends: then it is NULL meanwhile
            for _, rows in over:
                there[rows] = False
        return there, columns, spoiled

    def _windowed(self, number: int) -> str:
        """Describe a window for a message."""
        window: SharedWindow = self._node.windows[number]
        length = f"{window.length} rows" if window.kind == "rows" else duration_text(window.length)
        return f"over the last {length}"

    def _rows(self, asked: _TurnsInOrder, columns: Sequence[pa.Array], which: np.ndarray) -> pa.RecordBatch:
        """Return rows of the result."""
        keys = self._state.keys.columns(asked.key[which])
        tags = [] if self._tags is None else [self._tags.take(pa.array(asked.window[which]))]
        taken = [take_values(column, which) for column in columns]
        return pa.RecordBatch.from_arrays([*tags, *keys, *self._bounds(asked, which), *taken], schema=self.schema)

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Load tuples that windows need, the node's open rows, or the state of the guard."""
        if self._guard is not None and section.startswith(_GUARD):
            self._guard.restore(section.removeprefix(_GUARD), rows, version)
        elif self._answers.knows(section):
            keys = self._answers.key_columns(section, rows)
            slots = self._state.restored_slots(keys, rows.num_rows) if section != "registers" else _NONE
            self._answers.restore(section, rows, slots, version)
        else:
            self._state.restore(section, rows)
            self._log.restored(section, rows)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the rows that are still needed."""
        if self._guard is not None and section.startswith(_GUARD):
            return self._guard.live(section.removeprefix(_GUARD), rows, version)
        if self._answers.knows(section):
            keys = self._answers.key_columns(section, rows)
            slots = self._state.keys.slots(keys, rows.num_rows, insert=False)
            return self._answers.live(section, rows, slots, version)
        return self._log.live(section, rows, self._state.counted, self._state.keys.slots, self._state.sessions)

    def size(self, section: str) -> int:
        """Return the number of live rows of a section."""
        if self._guard is not None and section.startswith(_GUARD):
            return self._guard.size(section.removeprefix(_GUARD))
        if self._answers.knows(section):
            return self._answers.size(section)
        return self._log.size(section, self._state.counted, len(self._state.keys), self._state.sessions)


_GUARD = "guard."
"""The prefix of the sections of the guard's state."""


def _in_guard_section(tuples: Tuples) -> Tuples:
    return replace(tuples, section=_GUARD + tuples.section)


class _TurnsInOrder:
    """The turns of windows from several sources, in one order. A window without a source is empty."""

    def __init__(self, parts: Sequence[tuple[Folding | None, np.ndarray, Turns]], windows: int) -> None:
        self._parts = parts
        self._order: np.ndarray | None
        turns = _joined([part for _, _, part in parts])
        self.window = np.concatenate([_NONE, *(numbers for _, numbers, _ in parts)])
        self.time, self.key, self.begins, self._order = turns.time, turns.key, turns.last, None
        within = turns.cause * windows + self.window
        later = self.time[1:] > self.time[:-1]
        if not (later | ((self.time[1:] == self.time[:-1]) & (within[1:] > within[:-1]))).all():
            order = self._order = end_order(self.time, within)
            self.time, self.key, self.window = self.time[order], self.key[order], self.window[order]
            self.begins = self.begins[order]  # of sessions

    def folded(self, number: int, lifting: Lifting) -> Partials:
        """Return the partials of all turns."""
        parts = [
            lifting.empties(len(turns)) if source is None else source.fold(number, turns)
            for source, _, turns in self._parts
        ]
        whole = parts[0] if len(parts) == 1 else Partials.joined(parts)
        return whole if self._order is None else whole.take(self._order)

    def filled(self) -> np.ndarray:
        """Return at which turns the window is not empty."""
        whole = np.concatenate(
            [np.empty(0, np.bool_)]
            + [
                np.zeros(len(turns), np.bool_) if source is None else source.filled(turns)
                for source, _, turns in self._parts
            ]
        )
        return whole if self._order is None else whole[self._order]


class _Keys:
    """Keys and their numbers; without key columns there is one key, 0."""

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        self._kinds = list(kinds)
        self._index = KeyIndex()
        self._decoded: list[pa.Array] = []

    def slots(self, keys: Sequence[pa.Array], rows: int, *, insert: bool = True) -> np.ndarray:
        """Return the number of each row's key; a new key gets one, or -1 if `insert` is false."""
        if not self._kinds:
            return np.zeros(rows, np.int64)
        encoded = encode(keys, rows)
        return self._index.slots(encoded, hashes(encoded), insert)

    def __len__(self) -> int:
        return len(self._index) if self._kinds else 1

    def columns(self, slots: np.ndarray) -> list[pa.Array]:
        """Return the key columns of numbers. If there are as many numbers as keys, all keys are decoded once."""
        if not self._kinds:
            return []
        count = len(self._index)
        if len(slots) < count or count < self._index.capacity:
            return decode(self._index.encoded(slots), self._kinds)
        if not self._decoded or len(self._decoded[0]) < count:
            self._decoded = decode(self._index.encoded(np.arange(count)), self._kinds)
        taken = pa.array(slots)
        return [column.take(taken) for column in self._decoded]

    def drop(self, slots: np.ndarray) -> None:
        """Drop keys; their numbers are reused."""
        self._decoded = []
        self._index.drop(slots)


def _joined(parts: Sequence[Turns]) -> Turns:
    if len(parts) == 1:
        return parts[0]
    names = ("time", "key", "cause", "first", "last")
    return Turns(*(np.concatenate([_NONE, *(getattr(part, name) for part in parts)]) for name in names))
