"""The kernels of sliding reduces (paper 5): at every interval, the reduce of a window of event time.

At every multiple B of the interval, each key that has tuples with `B - length < time <= B` emits the result of its window, with the
time B. Windows consist of sub-windows, whose length is the greatest common divisor of length and interval (15 and 6 minutes: 3);
each sub-window is reduced once.

Aggregates run on the kernels of `hayase.windows`. A user's function is called for each sub-window, and again for each window with
the values that it returned for the sub-windows: it must be able to take its own results, as a sum can. For an average it returns
sums and counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.data_classes import dataclass
from hayase.core.keys import raw_values
from hayase.core.reasons import Reason, ReasonKind
from hayase.core.schemas import empty_rows
from hayase.core.stages import OFFSET, TIME, FailedRows, Outcome, Refusals, Tuples
from hayase.jobs.emitted_tuples import Emission
from hayase.jobs.job_outputs import Outlet
from hayase.jobs.key_groups import Groups, grouped
from hayase.jobs.reduce_aggregates import Aggregates
from hayase.jobs.reduce_kernels import ReduceSpec, aggregate_outcome
from hayase.jobs.tuples import KEY, Shape
from hayase.lifetimes.kernel import KernelConfig, QueryKernel
from hayase.lifetimes.plans import Call, Shared, SharedWindow, ToStream
from hayase.windows.panes import pane_width

__all__ = ["AggregateWindowKernel", "ReduceWindowKernel", "SlidingWindow"]

MOST_TUPLES = 1 << 16
"""How many tuples of one record may reach a bucket, so that each has its own offset."""
_OPEN, _VALUES = "open", "values"
_PANE, _NUMBER = "__pane", "__number"
_PER_VERSION = 1 << 28


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """A window of `length`, evaluated at every multiple of `every`; both in microseconds."""

    length: int
    every: int

    @property
    def width(self) -> int:
        """The length of a sub-window."""
        return pane_width(self.length, self.every)

    def pane(self, time: np.ndarray) -> np.ndarray:
        """Return the number n of the sub-window of a time: `((n - 1) * width, n * width]`."""
        return -(-time // self.width)

    def first(self, pane: np.ndarray) -> np.ndarray:
        """Return the number of the first interval whose window contains a sub-window."""
        return -(-pane * self.width // self.every)

    def last(self, pane: np.ndarray) -> np.ndarray:
        """Return the number of the last interval whose window contains a sub-window."""
        return -(-(pane * self.width + self.length) // self.every) - 1


def _concat_by_time(inputs: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate the inputs in the order of time."""
    if len(inputs) == 1:
        return inputs[0]
    whole = pa.concat_batches(list(inputs))
    return whole.take(pa.array(np.argsort(raw_values(whole.column(TIME), np.int64), kind="stable")))


class AggregateWindowKernel:
    """The kernel of a sliding reduce by aggregates: shared windows, evaluated at every interval."""

    def __init__(
        self, aggregates: Aggregates, outlet: Outlet, window: SlidingWindow, bucket: int = 0, buckets: int = 1
    ) -> None:
        self._aggregates, self._outlet = aggregates, outlet
        shape = aggregates.shape
        results = [pa.field(call.name, lifting.result) for call, lifting in zip(aggregates.calls, aggregates.liftings)]
        schema = pa.schema([*(pa.field(name, shape.schema.field(name).type) for name in shape.key), *results])
        calls = []
        for call in aggregates.calls:
            function = (
                f"hayase.jobs.plain_aggregates:{call.function}" if shape.plain and call.columns else call.function
            )
            argument, second = (*call.columns, None, None)[:2]
            constant = None if shape.plain else call.constant
            calls.append(Call(function, argument, text=call.text, second=second, constant=constant))
        shared = Shared(0, (SharedWindow("range", window.length, window.every),), shape.key, tuple(calls), schema)
        output = schema.append(pa.field("changed_at", pa.int64()))
        plan = ToStream("rstream", shared, schema, window.every)
        self._inner = inner = QueryKernel(KernelConfig(plan, output), bucket, buckets)
        self.restore, self.live, self.size = inner.restore, inner.live, inner.size

    def process(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int, version: int) -> Outcome:
        """Add new tuples and emit the windows up to the clock."""
        numbered, refused = _with_own_offsets(inputs)
        inner = self._inner.process([_concat_by_time(numbered)], since, clock, version)
        width = len(self._aggregates.shape.key)
        columns = [*inner.rows.columns[:width], *self._aggregates.result_columns(inner.rows.columns[width:-1])]
        time = raw_values(inner.rows.columns[-1], np.int64)
        outcome = aggregate_outcome(self._aggregates, self._outlet, columns, {}, time, None)
        return replace(outcome, refused=refused, state=inner.state, spoiled=[*inner.spoiled, *outcome.spoiled])


def _with_own_offsets(inputs: Sequence[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], list[Refusals]]:
    """Give each tuple an offset of its own, made of its record's offset, its input, and its position among the record's tuples."""
    numbered, refused = [], []
    for number, batch in enumerate(inputs):
        offsets = raw_values(batch.column(OFFSET), np.int64)
        order = np.argsort(offsets, kind="stable")
        new = np.flatnonzero(np.diff(offsets[order], prepend=-1))
        counts = np.diff(np.append(new, len(offsets)))
        within = np.empty(len(offsets), np.int64)
        within[order] = np.arange(len(offsets)) - np.repeat(new, counts)
        too_many = np.flatnonzero(within >= MOST_TUPLES)
        own = (offsets * len(inputs) + number) * MOST_TUPLES + within
        rows = batch.set_column(batch.schema.get_field_index(OFFSET), OFFSET, pa.array(own))
        if len(too_many):
            rows = rows.take(pa.array(np.delete(np.arange(len(offsets)), too_many)))
        reason = Reason(ReasonKind.RESULT, f"the record brings more than {MOST_TUPLES:,} tuples to a window")
        refused.append(Refusals(too_many, [reason] * len(too_many)))
        numbered.append(rows)
    return numbered, refused if any(map(len, refused)) else []


class ReduceWindowKernel:
    """The kernel of a sliding reduce with a function.

    State: the tuples of sub-windows that have not ended, and the values of ended ones while a window needs them.
    """

    def __init__(self, reducing: ReduceSpec, window: SlidingWindow, bucket: int = 0, buckets: int = 1) -> None:
        self._reducing, self._window = reducing, window
        shape, result_shape = reducing.shape, reducing.step.shape
        self._tuples = pa.schema([*shape.nullable_fields, pa.field(TIME, pa.int64()), pa.field(_NUMBER, pa.int64())])
        self._key_names = [f"__key_{at}" for at in range(len(shape.key))]
        keys = [pa.field(new, shape.schema.field(old).type) for new, old in zip(self._key_names, shape.key)]
        self._kept = pa.schema(
            [*keys, *result_shape.nullable_fields, pa.field(_PANE, pa.int64()), pa.field(_NUMBER, pa.int64())]
        )
        self._open = [empty_rows(self._tuples)]
        self._values = [empty_rows(self._kept)]
        self._seen = {_OPEN: -1, _VALUES: -1}
        self._version, self._given = -1, 0

    def process(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int, version: int) -> Outcome:
        """Reduce the sub-windows that end before the clock, then the windows up to the clock."""
        window = self._window
        waiting, kept = self._retained(since)
        came = self._new_tuples(_concat_by_time(inputs), version)
        whole = pa.concat_batches([waiting, came])
        pane = window.pane(raw_values(whole.column(TIME), np.int64))
        over = pane * window.width < clock
        still = _filtered(whole, ~over)
        new_values, spoiled = self._sub_windows(_filtered(whole, over), pane[over], version)
        kept = pa.concat_batches([kept, new_values])
        rows, lost = self._windows(kept, since, clock)
        new = _filtered(came, ~over[waiting.num_rows :])
        state = [*self._state_of(_OPEN, new), *self._state_of(_VALUES, new_values)]
        alive = window.last(raw_values(kept.column(_PANE), np.int64)) * window.every >= clock
        self._open, self._values = [still], [_filtered(kept, alive)]
        return Outcome(rows, (), state, [*spoiled, *lost])

    def _new_tuples(self, batch: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the new tuples with their numbers."""
        columns = [batch.column(name) for name in (*self._reducing.shape.schema.names, TIME)]
        numbers = self._numbers(_OPEN, batch.num_rows, version)
        return pa.RecordBatch.from_arrays([*columns, pa.array(numbers)], schema=self._tuples)

    def _numbers(self, section: str, count: int, version: int) -> np.ndarray:
        """Return unused numbers; they grow with the version."""
        if version != self._version:
            self._version, self._given = version, 0
        first = version * _PER_VERSION + self._given
        self._given += count
        self._seen[section] = max(self._seen[section], first + count - 1)
        return np.arange(first, first + count)

    def _retained(self, since: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the retained tuples and values, minus those that earlier steps have already used up."""
        window = self._window
        waiting, kept = pa.concat_batches(self._open), pa.concat_batches(self._values)
        pane = window.pane(raw_values(waiting.column(TIME), np.int64))
        waiting = _filtered(waiting, pane * window.width >= since)
        last = window.last(raw_values(kept.column(_PANE), np.int64))
        return waiting, _filtered(kept, last * window.every >= since)

    def _sub_windows(
        self, rows: pa.RecordBatch, pane: np.ndarray, version: int
    ) -> tuple[pa.RecordBatch, list[FailedRows]]:
        """Reduce ended sub-windows by key; return their values, and the tuples of those on which the function failed."""
        reducing, shape = self._reducing, self._reducing.shape
        keys = [rows.column(name) for name in shape.key]
        groups = grouped([pa.array(pane), *keys], rows.num_rows)
        emission = reducing.emission(rows, groups, reducing.keys(rows, groups))
        emission = self._of_own_key(emission, rows, groups)
        first = pa.array(groups.firsts[emission.call])
        columns = [column.take(first) for column in keys]
        numbers = self._numbers(_VALUES, len(emission.call), version)
        sub_window_values = pa.RecordBatch.from_arrays(
            [*columns, *emission.columns, pa.array(pane).take(first), pa.array(numbers)], schema=self._kept
        )
        spoiled = []
        for group, reason in emission.failed.items():
            lost = rows.take(pa.array(groups.rows(group))).select(shape.schema.names)
            short = reason._replace(text=f"refused with its key and sub-window: {reason.first_line}")
            spoiled.append(FailedRows(lost, [reason, *[short] * (lost.num_rows - 1)]))
        return sub_window_values, spoiled

    def _of_own_key(self, emission: Emission, rows: pa.RecordBatch, groups: Groups) -> Emission:
        """Fail the calls for sub-windows that returned a tuple of another key."""
        result_shape, shape = self._reducing.step.shape, self._reducing.shape
        first = pa.array(groups.firsts[emission.call])
        wrong = np.zeros(len(emission.call), np.bool_)
        for name in (KEY,) if result_shape.plain else [part for part in shape.key if part in result_shape.schema.names]:
            emitted = emission.columns[result_shape.schema.get_field_index(name)]
            own = rows.column(name).take(first)
            if emitted.type == own.type:
                same = pc.fill_null(pc.equal(emitted, own), False)
                both_null = pc.and_(emitted.is_null(), own.is_null())
                wrong |= ~pc.or_(same, both_null).to_numpy(zero_copy_only=False)
        if not wrong.any():
            return emission
        attribute = self._reducing.step.source.attribute
        text = f"{attribute}: it gave a tuple of another key for a sub-window; a sliding reduce keeps its key"
        reason = Reason(ReasonKind.RESULT, text)
        failed = {**dict.fromkeys(emission.call[wrong].tolist(), reason), **emission.failed}
        left = np.flatnonzero(~np.isin(emission.call, list(failed)))
        columns = [column.take(pa.array(left)) for column in emission.columns]
        return Emission(columns, emission.call[left], emission.target[left], dict(sorted(failed.items())))

    def _windows(self, kept: pa.RecordBatch, since: int, clock: int) -> tuple[pa.RecordBatch, list[FailedRows]]:
        """Reduce the windows of the step; return their tuples in the order of time, and the keys of failed ones."""
        window, reducing = self._window, self._reducing
        pane = raw_values(kept.column(_PANE), np.int64)
        first = np.maximum(window.first(pane), -(-since // window.every))
        last = np.minimum(window.last(pane), -(-clock // window.every) - 1)
        counts = np.maximum(last - first + 1, 0)
        entry = np.repeat(np.arange(len(pane)), counts)
        number = np.arange(len(entry)) - np.repeat(np.cumsum(counts) - counts, counts) + first[entry]
        rows = kept.take(pa.array(entry))
        keys = [rows.column(name) for name in self._key_names]
        groups = grouped([pa.array(number), *keys], len(entry))
        again = replace(reducing, shape=self._value_shape())
        value_rows = self._as_values(rows)
        emission = again.emission(value_rows, groups, again.keys(value_rows, groups))
        ends = number[groups.firsts] * window.every
        written = reducing.outlet.in_time_order(emission.columns, emission.target, ends[emission.call])
        spoiled = []
        if emission.failed:
            lost = rows.take(pa.array(groups.firsts[list(emission.failed)])).select(self._key_names)
            named = lost.rename_columns(list(reducing.shape.key))
            spoiled.append(FailedRows(named, list(emission.failed.values())))
        return written, spoiled

    def _value_shape(self) -> Shape:
        """Return the shape of the function's results, with the key for which it was called."""
        result_shape, shape = self._reducing.step.shape, self._reducing.shape
        if result_shape.plain:
            return result_shape
        fields = [pa.field(name, shape.schema.field(name).type) for name in shape.key]
        fields += [field for field in result_shape.schema if field.name not in shape.key]
        return Shape(pa.schema(fields), shape.key)

    def _as_values(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        shape = self._value_shape()
        own = dict(zip(self._reducing.shape.key, self._key_names))
        columns = [rows.column(own.get(name, name)) for name in shape.schema.names]
        return pa.RecordBatch.from_arrays(columns, names=shape.schema.names)

    # ------------------------------------------------------------------------------------------ state

    def _state_of(self, section: str, rows: pa.RecordBatch) -> list[Tuples]:
        if not rows.num_rows:
            return []
        window = self._window
        if section == _OPEN:
            until = int(window.pane(raw_values(rows.column(TIME), np.int64)).max()) * window.width
        else:
            until = int(window.last(raw_values(rows.column(_PANE), np.int64)).max()) * window.every
        return [Tuples(section, rows, until)]

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Add tuples or values that are not known yet."""
        numbers = raw_values(rows.column(_NUMBER), np.int64)
        new = _filtered(rows, numbers > self._seen[section])
        (self._open if section == _OPEN else self._values).append(new)
        self._seen[section] = max(self._seen[section], int(numbers.max(initial=-1)))

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the rows that are still retained."""
        held = self._open if section == _OPEN else self._values
        retained = np.concatenate([raw_values(batch.column(_NUMBER), np.int64) for batch in held])
        return _filtered(rows, np.isin(raw_values(rows.column(_NUMBER), np.int64), retained))

    def size(self, section: str) -> int:
        """Return the number of retained rows."""
        return sum(batch.num_rows for batch in (self._open if section == _OPEN else self._values))


def _filtered(rows: pa.RecordBatch, which: np.ndarray) -> pa.RecordBatch:
    return rows if which.all() else rows.filter(pa.array(which))
