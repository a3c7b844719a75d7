"""Stages of jobs, driven by hand: map sides over chunks, rows split by key into buckets, kernels that take turns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from hayase.core import keys
from hayase.core.declarations import JobDeclaration, PipelineDeclaration, StreamDeclaration, TableDeclaration
from hayase.core.stages import OFFSET, TIME, Kernel, Stage
from hayase.core.times import BEGINNING
from hayase.jobs.job_planner import plan_jobs
from hayase.jobs.stored_tuples import Stored
from hayase.streams import event_times

MAPPED = [pa.field(TIME, pa.int64()), pa.field(OFFSET, pa.int64())]


@dataclass
class RowBuffer:
    """A table in memory, that counts which keys were asked for."""

    table: TableDeclaration
    rows: dict[tuple[Any, ...], dict[str, Any]]
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    def find(self, sought: Sequence[tuple[Any, ...]]) -> list[dict[str, Any] | None]:
        self.asked += sought
        return [self.rows.get(key) for key in sought]

    def all(self) -> Iterable[tuple[tuple[Any, ...], dict[str, Any]]]:
        return iter(self.rows.items())


@dataclass
class _Held:
    """The kernels of a bucket, one of each of two workers, with the version that it knows; what they have written, and the
    rows that wait for the clock."""

    waiting: list[pa.RecordBatch]
    kernels: list[tuple[Kernel, int]]
    written: list[tuple[Any, int]] = field(default_factory=list)
    clock: int = BEGINNING
    version: int = 0

    def kernel(self, worker: int, version: int) -> Kernel:
        """A worker's kernel, once it has caught up; it may be told again what it knows."""
        kernel, known = self.kernels[worker]
        if known < self.version:
            for tuples, written in self.written:
                kernel.restore(tuples.section, tuples.rows, written)
        self.kernels[worker] = kernel, version
        self.version = version
        return kernel


class Runner:
    """Runs jobs over streams that are appended to. `chunk` is how many records a map side gets at once; `changes` says whether
    the second worker takes the next step."""

    def __init__(
        self,
        jobs: Sequence[JobDeclaration],
        streams: Sequence[StreamDeclaration],
        tables: Sequence[RowBuffer] = (),
        buckets: int = 2,
        chunk: int = 1000,
        changes: Callable[[], bool] = lambda: False,
    ) -> None:
        declaration = PipelineDeclaration(
            "p", tuple(streams), jobs=tuple(jobs), tables=tuple(each.table for each in tables)
        )
        assert PipelineDeclaration.from_json(json.loads(json.dumps(declaration.as_json()))) == declaration
        stored: dict[str, Stored] = {each.table.name: each for each in tables}  # type: ignore[misc]
        self.stages, mistakes, self.emitted = plan_jobs(declaration, {each.name: each for each in streams}, stored)
        assert not mistakes, mistakes
        self.declared = {each.name: each for each in streams} | {each.name: each.stream for each in self.stages}
        self.logs: dict[str, list[pa.RecordBatch]] = {name: [] for name in self.declared}
        self.buckets, self.chunk, self.changes = buckets, chunk, changes
        self.at = {(stage.name, each.stream): 0 for stage in self.stages for each in stage.inputs}
        self.held: dict[tuple[str, int], _Held] = {}
        self.version = 0
        self.dead: list[tuple[str, dict[str, Any], str]] = []

    def append(self, stream: str, rows: Iterable[Mapping[str, Any]]) -> None:
        schema = self.declared[stream].arrow_schema
        made = pa.RecordBatch.from_pylist([dict(each) for each in rows], schema=schema)
        if made.num_rows:
            self.logs[stream].append(made)

    def whole(self, stream: str) -> pa.RecordBatch:
        schema = self.declared[stream].arrow_schema
        return pa.Table.from_batches(self.logs[stream], schema).combine_chunks().to_batches()[0] if self.logs[stream] else (
            pa.RecordBatch.from_pylist([], schema=schema)
        )  # fmt: skip

    def rows(self, stream: str) -> list[dict[str, Any]]:
        return self.whole(stream).to_pylist()

    def tuples(self, stream: str) -> list[tuple[Any, Any]]:
        """Plain tuples of a stream."""
        return [(json.loads(each["key"]), json.loads(each["value"])) for each in self.rows(stream)]

    def fire(self, clock: int = BEGINNING) -> bool:
        """Every stage once, over all that is there; stages by event time up to the clock. Whether anything was read."""
        self.version += 1
        moved = [self._run(stage, clock) for stage in self.stages]
        return any(moved)

    def until_idle(self, clock: int = BEGINNING, most: int = 100) -> None:
        for _ in range(most):
            if not self.fire(clock):
                return
        raise AssertionError("it does not come to an end")

    def _run(self, stage: Stage, clock: int) -> bool:
        came: list[list[list[pa.RecordBatch]]] = [[[] for _ in stage.inputs] for _ in range(self.buckets)]
        ends = {each.stream: self.whole(each.stream).num_rows for each in stage.inputs}
        moved = False
        for number, source in enumerate(stage.inputs):
            log = self.whole(source.stream)
            start, stop = self.at[stage.name, source.stream], ends[source.stream]
            moved |= start < stop
            for first in range(start, stop, self.chunk):
                chunk = log.slice(first, min(self.chunk, stop - first))
                mapped = source.map_side(chunk)
                assert mapped.rows.schema.equals(source.schema)
                assert not set(mapped.refused.rows.tolist()) & set(mapped.input_rows.tolist())
                records = chunk.to_pylist()
                self.dead += [
                    (stage.name, records[at], why.text) for at, why in zip(mapped.refused.rows, mapped.refused.reasons)
                ]
                if stage.kernel is None:
                    self._write(stage, mapped.rows)
                    continue
                times = event_times(chunk, self.declared[source.stream])[mapped.input_rows]
                whole = pa.RecordBatch.from_arrays(
                    [*mapped.rows.columns, pa.array(times), pa.array(mapped.input_rows + first)],
                    schema=pa.schema([*source.schema, *MAPPED]),
                )
                sent = (
                    [(b, whole) for b in range(self.buckets)]
                    if source.broadcast
                    else keys.split(whole, source.key, self.buckets)
                )
                for bucket, part in sent:
                    came[bucket][number].append(part)
        for source in stage.inputs:
            self.at[stage.name, source.stream] = ends[source.stream]
        if stage.kernel is not None:
            for bucket in range(self.buckets):
                self._reduce(stage, bucket, came[bucket], clock)
        return moved

    def _reduce(self, stage: Stage, bucket: int, came: list[list[pa.RecordBatch]], clock: int) -> None:
        assert stage.kernel is not None
        empty = [pa.RecordBatch.from_pylist([], pa.schema([*each.schema, *MAPPED])) for each in stage.inputs]
        given = [pa.concat_batches([none, *parts]) for none, parts in zip(empty, came)]
        if (stage.name, bucket) not in self.held:
            workers = [(stage.kernel(bucket, self.buckets), 0) for _ in range(2)]
            self.held[stage.name, bucket] = _Held(empty, workers)
        held = self.held[stage.name, bucket]
        if stage.every is not None:
            if not any(each.num_rows for each in given):
                return
            given = [each.take(pa.array(np.argsort(each.column(OFFSET).to_numpy(), kind="stable"))) for each in given]
            outcome = held.kernel(0, self.version).process(given, held.clock, clock, self.version)
        else:
            clock = max(clock, held.clock)
            joined = [pa.concat_batches([old, new]) for old, new in zip(held.waiting, given)]
            ready = []
            for at, each in enumerate(joined):
                time, offset = each.column(TIME).to_numpy(), each.column(OFFSET).to_numpy()
                assert (time >= held.clock).all(), "late"
                order = np.lexsort((offset, time))
                ready.append(each.take(pa.array(order[time[order] < clock])))
                held.waiting[at] = each.filter(pa.array(time >= clock))
            kernel = held.kernel(int(self.changes()), self.version)
            outcome = kernel.process(ready, held.clock, clock, self.version)
            given, held.clock = ready, clock
            held.written = [
                (each, version) for each, version in held.written if each.until is None or each.until >= clock
            ]
            held.written += [(each, self.version) for each in outcome.state]
        for batch, refused in zip(given, outcome.refused):
            lost = batch.take(pa.array(refused.rows)).to_pylist()
            self.dead += [(stage.name, row, reason.text) for row, reason in zip(lost, refused.reasons)]
        for spoiled in outcome.spoiled:
            self.dead += [
                (stage.name, row, reason.text) for row, reason in zip(spoiled.rows.to_pylist(), spoiled.reasons)
            ]
        self._write(stage, outcome.rows)

    def _write(self, stage: Stage, rows: pa.RecordBatch) -> None:
        assert rows.schema.equals(stage.stream.arrow_schema), (rows.schema, stage.stream.schema)
        if rows.num_rows:
            self.logs[stage.name].append(rows)
