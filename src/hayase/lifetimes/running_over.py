"""OVER in stream mode: window functions over the records of a stream in the order of event time, one result for each record.

A frame ends with its record or, by time, with the last record of the same time; so a result is final when the clock has passed
the record, and never changes. Every function is a fold over a range of the numbers that records have in their partition:

- from the first record on: a running total for each partition (`windows.running_totals`);
- from n rows or a time before: `windows.folds`, of which any range can be folded without an inverse. `lag`, `first_value` and
  `nth_value` are folds of the aggregate `first`, over one number or many.

Order: (time, place in the delta, which is that of the log).   Per record: a few combines, O(log n) in the length of the frame.
State: section "rows" has the records that a frame may still contain; section "keys" a line for each partition, with its count
and totals. If all frames are by time, there is only the former, and a partition without records in its frames is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.algebra import Aggregate
from hayase.core.data_classes import dataclass
from hayase.core.keys import raw_values
from hayase.core.reasons import Reason, ReasonKind
from hayase.core.stages import TIME, FailedRows, Tuples
from hayase.core.times import BEGINNING
from hayase.lifetimes.leaves import take_rows
from hayase.lifetimes.plans import RunningCall, RunningOver
from hayase.lifetimes.relations import Delta, Span, Step
from hayase.lifetimes.running_partitions import COUNT, GROUPS, SEQUENCE, VERSION, Placed, RunningPartitions
from hayase.lifetimes.state_registers import check_section
from hayase.windows.folds import Folds
from hayase.windows.partials import Lifting, Partials, valid_rows
from hayase.windows.running_totals import RunningTotals

__all__ = ["RunningOverOperator"]

_ROWS, _KEYS = "rows", "keys"
_NUMBER = "__number"
_OF_FIRST = ("lag", "first_value", "nth_value")
_COUNTERS = ("row_number", "rank", "dense_rank")


@dataclass(frozen=True, slots=True)
class _Series:
    """The partials of some columns, which several calls may share; `skips_nulls` and, of the first records, `left_out`."""

    lifting: Lifting
    columns: tuple[str, ...]
    skips_nulls: bool
    left_out: int

    def lift(self, rows: pa.RecordBatch, numbers: np.ndarray) -> Partials:
        columns = [rows.column(name) for name in self.columns]
        present = valid_rows(columns[0]) if self.skips_nulls else None
        if self.left_out:
            later = numbers >= self.left_out
            present = later if present is None else present & later
        return self.lifting.lift(columns, present, rows.num_rows)


def _series(call: RunningCall, schema: pa.Schema) -> _Series:
    function = "first" if call.function in _OF_FIRST else "last" if call.function == "last_value" else call.function
    lifting = Lifting(Aggregate.from_name(function), [schema.field(name).type for name in call.arguments])
    left_out = call.constant - 1 if call.function == "nth_value" and call.frame.kind == "unbounded" else 0
    return _Series(lifting, call.arguments, call.ignores_nulls, left_out)


class RunningOverOperator:
    """The operator of `plans.RunningOver` (`relations.Operator`). Its child is a stream: tuples never end."""

    def __init__(self, node: RunningOver) -> None:
        self.schema = node.schema
        self._node = node
        own = node.child.schema
        framed = [call for call in node.calls if call.function not in _COUNTERS]
        ranges = sorted({call.frame.length for call in framed if call.frame.kind == "range"})
        reaches = [call.frame.length for call in framed if call.frame.kind == "rows"]
        counted = bool(reaches) or len(framed) < len(node.calls) or any(c.frame.kind == "unbounded" for c in framed)
        reach = max(1, *reaches) if reaches else None  # the newest record has the number from which the others count
        self._partitions = RunningPartitions(ranges, reach, counted)
        self._places = {length: at for at, length in enumerate(ranges)}
        self._of: dict[str, tuple[_Series, Folds | RunningTotals]] = {}
        self._folds: list[tuple[_Series, Folds]] = []
        self._totals: list[tuple[_Series, RunningTotals]] = []
        for call in framed:
            self._of[call.name] = self._shared(_series(call, own), call.frame.kind == "unbounded")
        names = dict.fromkeys(name for series, _ in self._folds for name in series.columns)
        keys = [pa.field(f"key_{at}", own.field(name).type) for at, name in enumerate(node.keys)]
        kept = [pa.field(f"value_{at}", own.field(name).type) for at, name in enumerate(names)]
        numbers = [pa.field(name, pa.int64()) for name in (TIME, _NUMBER)]
        self._kept, self._row_schema = tuple(names), pa.schema([*keys, *kept, *numbers])
        stored = [kind for series, _ in self._totals for kind in series.lifting.stored_types]
        counts = [pa.field(name, pa.int64()) for name in ("count", "groups")]
        totals = [pa.field(f"total_{at}", kind) for at, kind in enumerate(stored)]
        self._key_schema = pa.schema([*keys, *counts, *totals])
        self._restored: list[pa.RecordBatch] = []
        self._restored_keys: list[tuple[int, pa.RecordBatch]] = []
        self._known = BEGINNING
        """The clock of the last step: records before it are known."""
        self._version = 0

    def _shared(self, series: _Series, unbounded: bool) -> tuple[_Series, Folds | RunningTotals]:
        """Return the partials of a call; those of another call if they are the same."""
        known: Sequence[tuple[_Series, Folds | RunningTotals]] = self._totals if unbounded else self._folds
        facts = (series.lifting.partial, series.columns, series.skips_nulls, series.left_out)
        for other, kept in known:
            if (other.lifting.partial, other.columns, other.skips_nulls, other.left_out) == facts:
                return series, kept
        if unbounded:
            self._totals.append((series, RunningTotals(series.lifting)))
            return self._totals[-1]
        self._folds.append((series, Folds(series.lifting)))
        return self._folds[-1]

    # ------------------------------------------------------------------------------------------------ steps

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """Return the records of a step with the values of all calls."""
        self._take_up()
        (delta,), partitions = inputs, self._partitions
        self._known, self._version = span.clock, span.version
        rows, key_columns = delta.rows, [delta.rows.column(name) for name in self._node.keys]
        keys = partitions.slots(key_columns, len(delta))
        placed = partitions.place(keys, np.ascontiguousarray(delta.start))
        appended: dict[int, Partials] = {}
        for series, totals in self._totals:
            appended[id(totals)] = totals.append(keys, series.lift(rows, placed.numbers))
        for series, folds in self._folds:
            folds.append(placed.of, series.lift(rows, placed.numbers))
        columns, spoiled = [], np.zeros(len(delta), np.bool_)
        reasons: dict[int, str] = {}
        for call in self._node.calls:
            values, overflowed = self._values(call, placed, rows, appended)
            columns.append(values)
            spoiled[overflowed] = True
            reasons |= dict.fromkeys(overflowed.tolist(), f"{' '.join(call.text.split())} does not fit its type")
        touched = np.unique(keys)
        state = self._written(rows, key_columns, placed, delta.start, touched, span)
        self._trim(touched)
        if partitions.forget(span.clock):
            self._drop()
        whole = pa.RecordBatch.from_arrays([*rows.columns, *columns], schema=self.schema)
        good, bad = np.flatnonzero(~spoiled), np.flatnonzero(spoiled)
        result = Delta(take_rows(whole, good), delta.start[good], delta.end[good], delta.id[good])
        if not len(bad):
            return Step(result, state)
        texts = [Reason(ReasonKind.OVERFLOW, reasons[row]) for row in bad.tolist()]
        return Step(result, state, [FailedRows(take_rows(rows, bad), texts, delta.id[bad])])

    def _values(
        self, call: RunningCall, placed: Placed, rows: pa.RecordBatch, running: dict[int, Partials]
    ) -> tuple[pa.Array, np.ndarray]:
        """Return the values of a call, and the rows whose value does not fit its type."""
        if call.function == "row_number":
            return pa.array(placed.numbers + 1), np.empty(0, np.int64)
        if call.function in _COUNTERS:
            return pa.array(placed.firsts + 1 if call.function == "rank" else placed.groups), np.empty(0, np.int64)
        series, kept = self._of[call.name]
        if isinstance(kept, RunningTotals):
            partials = running[id(kept)]
            return series.lifting.lower(partials.take(placed.last) if call.frame.peers else partials)
        first, last = self._frame(call, placed)
        values, overflowed = series.lifting.lower(kept.fold(placed.of, first, last))
        if call.default is not None:
            values = pc.if_else(pa.array(last < 0), rows.column(call.default), values)
        return values, overflowed

    def _frame(self, call: RunningCall, placed: Placed) -> tuple[np.ndarray, np.ndarray]:
        """Return the first and last number that a call folds, for each record."""
        frame, numbers = call.frame, placed.numbers
        if call.function == "lag":
            return numbers - frame.length, numbers - frame.length
        last = numbers[placed.last] if frame.peers else numbers
        first = placed.lows[self._places[frame.length]] if frame.kind == "range" else numbers - frame.length
        first = np.maximum(first, 0)
        if call.function == "nth_value":
            chosen = first + (call.constant - 1)
            return chosen, np.where(chosen <= last, chosen, chosen - 1)
        return first, last

    def _trim(self, touched: np.ndarray) -> None:
        """Let the folds drop what no frame contains any more."""
        keep, sequences = self._partitions.keep(touched), self._partitions.table[touched, SEQUENCE]
        for _, folds in self._folds:
            folds.trim(sequences, keep)
        self._drop()

    def _drop(self) -> None:
        for _, folds in self._folds:
            folds.drop(self._partitions.dropped)
        self._partitions.recycle()

    # ------------------------------------------------------------------------------------------------ state

    def _written(
        self, rows: pa.RecordBatch, key_columns: Sequence[pa.Array], placed: Placed, times: np.ndarray,
        touched: np.ndarray, span: Span,
    ) -> list[Tuples]:  # fmt: skip
        """Return the rows of the state for a step: the records that later frames may contain, and the changed partitions."""
        partitions, state = self._partitions, list[Tuples]()
        table, keys = partitions.table, placed.keys
        if self._folds:
            low = np.zeros(len(table), np.int64)
            low[touched] = partitions.keep(touched)
            needed = np.flatnonzero((placed.numbers >= low[keys]) & (placed.of == table[keys, SEQUENCE]))
            if len(needed):
                kept = [*key_columns, *(rows.column(name) for name in self._kept)]
                batch = pa.RecordBatch.from_arrays(
                    [*kept, pa.array(times), pa.array(placed.numbers)], schema=self._row_schema
                )
                until = None if partitions.counted else int(times[needed].max()) + partitions.longest + 1
                state.append(Tuples(_ROWS, take_rows(batch, needed), until))
        if partitions.counted and len(touched):
            table[touched, VERSION] = span.version
            newest = np.empty(len(table), np.int64)
            newest[keys] = np.arange(len(keys))
            at = pa.array(newest[touched])
            state.append(Tuples(_KEYS, self._lines([column.take(at) for column in key_columns], touched)))
        return state

    def _lines(self, key_columns: Sequence[pa.Array], keys: np.ndarray) -> pa.RecordBatch:
        """Return the lines of partitions."""
        counts = [pa.array(self._partitions.table[keys, word]) for word in (COUNT, GROUPS)]
        totals = [column for _, totals in self._totals for column in totals.stored(keys)]
        return pa.RecordBatch.from_arrays([*key_columns, *counts, *totals], schema=self._key_schema)

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Load records or lines of partitions."""
        check_section(section, rows, self._key_schema if section == _KEYS else self._row_schema)
        if section == _KEYS:
            self._restored_keys.append((version, rows))
        elif rows.num_rows:
            self._restored.append(rows)

    def _take_up(self) -> None:
        """Add what was restored: records that are not known yet, in order, then the lines of partitions."""
        if self._restored:
            rows = pa.Table.from_batches(self._restored).combine_chunks().to_batches()[0]
            self._restored = []
            rows = rows.filter(pc.greater_equal(rows.column(TIME), self._known))
            times, numbers = (raw_values(rows.column(name), np.int64) for name in (TIME, _NUMBER))
            keys = self._partitions.slots(rows.columns[: len(self._node.keys)], rows.num_rows)
            order = np.lexsort((numbers, keys, times))
            times, numbers, keys = times[order], numbers[order], keys[order]
            fresh = np.ones(len(order), np.bool_)
            fresh[1:] = (np.diff(times) != 0) | (np.diff(keys) != 0) | (np.diff(numbers) != 0)
            times, numbers, keys = (column[fresh] for column in (times, numbers, keys))
            self._load(rows.take(pa.array(order[fresh])), keys, times, numbers)
        restored, self._restored_keys = self._restored_keys, []
        for version, lines in restored:
            self._load_lines(lines, version)

    def _load(self, rows: pa.RecordBatch, keys: np.ndarray, times: np.ndarray, numbers: np.ndarray) -> None:
        placed = self._partitions.place(keys, times, numbers)
        here = rows.rename_columns([*rows.schema.names[: len(self._node.keys)], *self._kept, TIME, _NUMBER])
        current = np.flatnonzero(placed.of == self._partitions.table[keys, SEQUENCE])
        self._drop()
        for series, folds in self._folds:
            folds.load(placed.of[current], numbers[current], series.lift(here, numbers).take(current))

    def _load_lines(self, lines: pa.RecordBatch, version: int) -> None:
        table_keys = self._partitions.slots(lines.columns[: len(self._node.keys)], lines.num_rows)
        table = self._partitions.table
        _, newest = np.unique(table_keys[::-1], return_index=True)
        at = lines.num_rows - 1 - newest
        at = at[table[table_keys[at], VERSION] <= version]
        keys, chosen = table_keys[at], lines.take(pa.array(at))
        place = len(self._node.keys)
        for word in (COUNT, GROUPS):
            table[keys, word] = raw_values(chosen.column(place), np.int64)
            place += 1
        table[keys, VERSION] = version
        for series, totals in self._totals:
            width = len(series.lifting.stored_types)
            totals.load(keys, chosen.columns[place : place + width])
            place += width

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the records that a frame may still contain, or the lines of partitions that were not written since."""
        self._take_up()
        partitions, count = self._partitions, len(self._node.keys)
        keys = partitions.slots(rows.columns[:count], rows.num_rows, insert=False)
        known = np.flatnonzero(keys >= 0)
        if section == _KEYS:
            _, first = np.unique(keys[known], return_index=True)
            at = known[first]
            at = at[partitions.table[keys[at], VERSION] <= version]
            partitions.table[keys[at], VERSION] = self._version
            return self._lines([column.take(pa.array(at)) for column in rows.columns[:count]], keys[at])
        numbers, times = (raw_values(rows.column(name), np.int64)[known] for name in (_NUMBER, TIME))
        keys = keys[known]
        if partitions.counted:
            needed = numbers >= partitions.keep(keys)
        else:
            needed = times >= partitions.latest(keys) - partitions.longest
        return rows.take(pa.array(known[needed]))

    def size(self, section: str) -> int:
        """Return the number of records, or of partitions."""
        self._take_up()
        return len(self._partitions) if section == _KEYS else self._partitions.held
