"""The map side of a job's stage: what it reads of a stream, its maps one after the other, and what becomes of the tuples.

A record is refused as a whole: if any step fails on it, or on one of its tuples, nothing of it goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.declarations import StreamDeclaration
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
"""Column of what travels to a kernel, in a loop: how often the tuple has gone round."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a step reads of a stream: records, or the tuples of a job, of all groups or of some."""

    stream: StreamDeclaration
    shape: Shape | None = None
    groups: tuple[str, ...] | None = None
    counts: bool = False

    def flow(self, batch: pa.RecordBatch) -> Flow:
        """The records or tuples of a batch."""
        origin = np.arange(batch.num_rows)
        if self.groups is not None:
            mine = pc.is_in(batch.column(GROUP), pa.array(self.groups, pa.string()))
            origin = np.flatnonzero(mine.to_numpy(zero_copy_only=False))
            batch = batch if len(origin) == batch.num_rows else batch.take(pa.array(origin))
        time = event_times(batch, self.stream)
        rounds = batch.column(ROUND).to_numpy() if self.counts and ROUND in batch.schema.names else None
        rows = self.stream.shown(batch) if self.shape is None else batch.select(self.shape.schema.names)
        return Flow(rows, self.shape, time, origin, rounds)


@dataclass(frozen=True, slots=True)
class Flow:
    """Tuples on their way: their columns, times and targets, and the rows of the batch that they came from. `shape` is
    None while they are records."""

    rows: pa.RecordBatch
    shape: Shape | None
    time: np.ndarray
    origin: np.ndarray
    round: np.ndarray | None = None
    target: np.ndarray | None = None
    refused: Mapping[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.time)

    def seen(self) -> pa.RecordBatch:
        """The rows as a map sees them: those of tuples with their time."""
        if self.shape is None or TIME_COLUMN in self.rows.schema.names:
            return self.rows
        return self.rows.append_column(TIME_COLUMN, pa.array(self.time).cast(pa.timestamp("us", tz="UTC")))

    def through(self, emission: Emission, shape: Shape) -> Flow:
        """What a step made of it."""
        call = emission.call
        refused = dict(self.refused)
        for at, reason in emission.failed.items():
            refused.setdefault(int(self.origin[at]), reason)
        rows = pa.RecordBatch.from_arrays(emission.columns, schema=_nullable(shape.schema))
        rounds = None if self.round is None else self.round[call]
        return Flow(rows, shape, self.time[call], self.origin[call], rounds, emission.target, refused)

    def without(self, lost: np.ndarray, reasons: list[str]) -> Flow:
        """Without some tuples, and the records that they came from."""
        refused = {int(self.origin[at]): reason for at, reason in zip(lost, reasons)} | dict(self.refused)
        return Flow(self.rows, self.shape, self.time, self.origin, self.round, self.target, refused)

    def clean(self) -> Flow:
        """Without what came from records that were refused."""
        if not self.refused:
            return self
        kept = np.flatnonzero(~np.isin(self.origin, list(self.refused)))
        return self if len(kept) == len(self) else self.take(kept)

    def take(self, kept: np.ndarray) -> Flow:
        """Some of it."""
        rounds = None if self.round is None else self.round[kept]
        target = None if self.target is None else self.target[kept]
        rows = self.rows.take(pa.array(kept))
        return Flow(rows, self.shape, self.time[kept], self.origin[kept], rounds, target, self.refused)


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(each.name, each.type) for each in schema])


@dataclass(frozen=True, slots=True)
class MapStep:
    """A map: its function, on records or on whole batches."""

    step: Step
    batches: bool = False

    def __call__(self, flow: Flow) -> Flow:
        seen = flow.seen()
        if self.batches:
            emission = self.step.on_batch(seen)
        else:
            records = dicts(seen) if flow.shape is None else flow.shape.records(seen)
            emission = self.step.each(zip(records))
        return flow.through(emission, self.step.shape).clean()


class Ending(Protocol):
    """What becomes of the tuples at the end of a map side."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that it gives."""

    def __call__(self, flow: Flow) -> tuple[pa.RecordBatch, Flow]:
        """Those columns, and the flow, as long as they are, with what was refused here."""


@dataclass(frozen=True, slots=True)
class Passing:
    """Tuples go to a kernel as they are; those that aggregates do not take are refused."""

    shape: Shape
    counts: bool = False
    aggregates: Aggregates | None = None

    @property
    def schema(self) -> pa.Schema:
        fields = [pa.field(each.name, each.type) for each in self.shape.schema]
        return pa.schema([*fields, pa.field(ROUNDS, pa.int32())] if self.counts else fields)

    def __call__(self, flow: Flow) -> tuple[pa.RecordBatch, Flow]:
        flow = _fit(flow, self.aggregates)
        columns = [flow.rows.column(name) for name in self.shape.schema.names]
        if self.counts:
            columns.append(_rounds(flow))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), flow


@dataclass(frozen=True, slots=True)
class Combining:
    """Tuples with one key go to the kernel as one row of partial aggregates; it stands for the latest of them."""

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
        columns = [*rows.columns, *(each.take(pa.array(groups.firsts)) for each in rounds)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), flow.take(groups.latest(flow.time))


@dataclass(frozen=True, slots=True)
class Writing:
    """Tuples are what the stage writes."""

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
    """`core.stages.MapSide`: a reading, maps, an ending."""

    reading: Reading
    maps: tuple[MapStep, ...]
    ending: Ending

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        """Map a batch."""
        flow = self.reading.flow(batch)
        for each in self.maps:
            flow = each(flow)
        rows, flow = self.ending(flow)
        refused = sorted(flow.refused)
        return Mapped(rows, flow.origin, Refusals(np.array(refused, np.int64), [flow.refused[at] for at in refused]))


@dataclass(frozen=True, slots=True)
class Latest:
    """Of a batch its latest record alone, without columns: every bucket is told that something came, and when."""

    reading: Reading

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        """Find it."""
        flow = self.reading.flow(batch)
        rows = pa.RecordBatch.from_arrays([], schema=pa.schema([]))
        return Mapped(rows, flow.origin[[int(np.argmax(flow.time))]] if len(flow) else np.empty(0, np.int64))
