"""The map side of a job's stage: reads records or tuples of a stream, applies the maps in order, and passes on the tuples.

A record is refused as a whole: if any step fails on it or on one of its tuples, none of its tuples is passed on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.core.reasons import Reason
from hayase.core.stages import Mapped, Refusals
from hayase.jobs.emitted_tuples import Emission
from hayase.jobs.job_outputs import GROUP, ROUND, TIME_COLUMN, Outlet
from hayase.jobs.key_groups import grouped
from hayase.jobs.reduce_aggregates import Aggregates
from hayase.jobs.step_functions import Step
from hayase.jobs.tuples import Shape, dicts
from hayase.streams import event_times

__all__ = ["ROUNDS", "Combining", "Ending", "Flow", "JobMapSide", "Latest", "MapStep", "Passing", "Reading", "Writing"]

ROUNDS = "__round"
"""The column, in rows for the kernel of a loop, that counts the tuple's rounds."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a step reads from a stream: records, or the tuples of a job, of all groups or some."""

    stream: StreamDeclaration
    shape: Shape | None = None
    groups: tuple[str, ...] | None = None
    counts: bool = False

    def flow(self, batch: pa.RecordBatch) -> Flow:
        """Select the records or tuples of a batch."""
        input_rows = np.arange(batch.num_rows)
        if self.groups is not None:
            mine = pc.is_in(batch.column(GROUP), pa.array(self.groups, pa.string()))
            input_rows = np.flatnonzero(mine.to_numpy(zero_copy_only=False))
            batch = batch if len(input_rows) == batch.num_rows else batch.take(pa.array(input_rows))
        time = event_times(batch, self.stream)
        rounds = batch.column(ROUND).to_numpy() if self.counts and ROUND in batch.schema.names else None
        rows = self.stream.shown(batch) if self.shape is None else batch.select(self.shape.schema.names)
        return Flow(rows, self.shape, time, input_rows, rounds)


@dataclass(frozen=True, slots=True)
class Flow:
    """Tuples between two steps: their columns, times and targets, and the rows of the batch from which they came. `shape` is None
    while they are records."""

    rows: pa.RecordBatch
    shape: Shape | None
    time: np.ndarray
    input_rows: np.ndarray
    round: np.ndarray | None = None
    target: np.ndarray | None = None
    refused: Mapping[int, Reason] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.time)

    def seen(self) -> pa.RecordBatch:
        """Return the rows as a map sees them; tuples have their time as a column."""
        if self.shape is None or TIME_COLUMN in self.rows.schema.names:
            return self.rows
        return self.rows.append_column(TIME_COLUMN, pa.array(self.time).cast(pa.timestamp("us", tz="UTC")))

    def through(self, emission: Emission, shape: Shape) -> Flow:
        """Replace the tuples by those that a step emitted."""
        call = emission.call
        refused = dict(self.refused)
        for at, reason in emission.failed.items():
            refused.setdefault(int(self.input_rows[at]), reason)
        rows = pa.RecordBatch.from_arrays(emission.columns, schema=pa.schema(shape.nullable_fields))
        rounds = None if self.round is None else self.round[call]
        return Flow(rows, shape, self.time[call], self.input_rows[call], rounds, emission.target, refused)

    def without(self, lost: np.ndarray, reasons: Sequence[Reason]) -> Flow:
        """Refuse the records of some tuples; `clean` drops their other tuples."""
        refused = {int(self.input_rows[at]): reason for at, reason in zip(lost, reasons)} | dict(self.refused)
        return Flow(self.rows, self.shape, self.time, self.input_rows, self.round, self.target, refused)

    def clean(self) -> Flow:
        """Drop the tuples of refused records."""
        if not self.refused:
            return self
        kept = np.flatnonzero(~np.isin(self.input_rows, list(self.refused)))
        return self if len(kept) == len(self) else self.take(kept)

    def take(self, kept: np.ndarray) -> Flow:
        """Select tuples by position."""
        rounds = None if self.round is None else self.round[kept]
        target = None if self.target is None else self.target[kept]
        rows = self.rows.take(pa.array(kept))
        return Flow(rows, self.shape, self.time[kept], self.input_rows[kept], rounds, target, self.refused)


@dataclass(frozen=True, slots=True)
class MapStep:
    """A map step: a function on records or on Arrow batches."""

    step: Step
    batches: bool = False

    def __call__(self, flow: Flow) -> Flow:
        seen = flow.seen()
        if self.batches:
            emission = self.step.on_batch(seen)
        else:
            records = dicts(seen) if flow.shape is None else flow.shape.records(seen)
            emission = self.step.call_each(zip(records))
        return flow.through(emission, self.step.shape).clean()


class Ending(Protocol):
    """The last part of a map side: converts tuples into the rows that it returns."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""

    def __call__(self, flow: Flow) -> tuple[pa.RecordBatch, Flow]:
        """Return the rows, and the flow of the same length, with refusals added."""


@dataclass(frozen=True, slots=True)
class Passing:
    """Passes tuples to a kernel as they are; refuses values that the aggregates do not take."""

    shape: Shape
    counts: bool = False
    aggregates: Aggregates | None = None

    @property
    def schema(self) -> pa.Schema:
        fields = self.shape.nullable_fields
        return pa.schema([*fields, pa.field(ROUNDS, pa.int32())] if self.counts else fields)

    def __call__(self, flow: Flow) -> tuple[pa.RecordBatch, Flow]:
        flow = _fit(flow, self.aggregates)
        columns = [flow.rows.column(name) for name in self.shape.schema.names]
        if self.counts:
            columns.append(_rounds(flow))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), flow


@dataclass(frozen=True, slots=True)
class Combining:
    """Combines tuples of one key into one row of partial aggregates, with the time of the latest tuple."""

    aggregates: Aggregates
    counts: bool = False

    @property
    def schema(self) -> pa.Schema:
        partials = self.aggregates.partials
        return partials.append(pa.field(ROUNDS, pa.int32())) if self.counts else partials

    def __call__(self, flow: Flow) -> tuple[pa.RecordBatch, Flow]:
        flow = _fit(flow, self.aggregates)
        rounds = [_rounds(flow)] if self.counts else []
        groups = grouped([*(flow.rows.column(name) for name in self.aggregates.shape.key), *rounds], len(flow))
        rows = self.aggregates.combined(flow.rows, groups)
        columns = [*rows.columns, *(column.take(pa.array(groups.firsts)) for column in rounds)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), flow.take(groups.latest(flow.time))


@dataclass(frozen=True, slots=True)
class Writing:
    """Writes tuples to the output of a stage without a kernel."""

    outlet: Outlet

    @property
    def schema(self) -> pa.Schema:
        return self.outlet.schema

    def __call__(self, flow: Flow) -> tuple[pa.RecordBatch, Flow]:
        target = np.zeros(len(flow), np.int64) if flow.target is None else flow.target
        return self.outlet.rows(flow.rows.columns, target, flow.time, flow.round), flow


def _rounds(flow: Flow) -> pa.Array:
    return pa.array(np.zeros(len(flow), np.int32) if flow.round is None else flow.round, pa.int32())


def _fit(flow: Flow, aggregates: Aggregates | None) -> Flow:
    if aggregates is None:
        return flow
    lost, reasons = aggregates.unfit(flow.rows)
    return flow.without(lost, reasons).clean() if len(lost) else flow


@dataclass(frozen=True, slots=True)
class JobMapSide:
    """A `core.stages.MapSide`: a reading, maps, and an ending."""

    reading: Reading
    maps: tuple[MapStep, ...]
    ending: Ending

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        """Map a batch."""
        flow = self.reading.flow(batch)
        for step in self.maps:
            flow = step(flow)
        rows, flow = self.ending(flow)
        refused = sorted(flow.refused)
        return Mapped(
            rows, flow.input_rows, Refusals(np.array(refused, np.int64), [flow.refused[at] for at in refused])
        )


@dataclass(frozen=True, slots=True)
class Latest:
    """A map side that returns the latest record of a batch, without columns: every bucket learns of new input and its time."""

    reading: Reading

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        """Return the latest record of a batch."""
        flow = self.reading.flow(batch)
        rows = pa.RecordBatch.from_arrays([], schema=pa.schema([]))
        return Mapped(rows, flow.input_rows[[int(np.argmax(flow.time))]] if len(flow) else np.empty(0, np.int64))
