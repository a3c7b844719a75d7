"""Plans the stages of jobs: maps run in the map side of the reduce or merge after them, groups are streams between stages.

A stage writes one stream. If its tuples are for several groups, its first column `group` names the group of each: "" for the next
step, the name of a table for its updates, whose value is {column: parameter}. Public streams are collected from these. All mistakes
are reported at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import orjson
import pyarrow as pa

from hayase.core.declarations import (
    JobDeclaration,
    PipelineDeclaration,
    StepDeclaration,
    StreamDeclaration,
)
from hayase.core.errors import DeclarationError, Mistake
from hayase.core.function_sources import FunctionSource
from hayase.core.schemas import ddl
from hayase.core.stages import Input, Kernel, Stage
from hayase.jobs.emitted_tuples import Target
from hayase.jobs.job_graph import NEXT, Run
from hayase.jobs.job_map_side import Combining, Ending, JobMapSide, Latest, MapStep, Passing, Reading, Writing
from hayase.jobs.job_outputs import Outlet
from hayase.jobs.merge_kernels import MergeKernel, MergeSpec
from hayase.jobs.reduce_kernels import AggregateKernel, ReduceKernel, ReduceSpec
from hayase.jobs.step_functions import Step
from hayase.jobs.stored_tuples import Stored
from hayase.jobs.tuple_shapes import Draft, JobShapes
from hayase.jobs.tuples import PLAIN, Shape
from hayase.jobs.window_kernels import AggregateWindowKernel, ReduceWindowKernel, SlidingWindow

__all__ = ["PlannedJobs", "plan_jobs", "read_by", "written_by"]

_MEANING = 1
"""Part of fingerprints; incremented when the meaning of jobs changes, so that existing state and results no longer match."""


class PlannedJobs(NamedTuple):
    """The stages, each after those whose output it reads, except in loops; the mistakes with the name of their job; and for each
    table the streams that contain its updates."""

    stages: tuple[Stage, ...] = ()
    mistakes: tuple[tuple[str, Mistake], ...] = ()
    emitted: Mapping[str, tuple[str, ...]] = MappingProxyType({})


def plan_jobs(
    declaration: PipelineDeclaration,
    streams: Mapping[str, StreamDeclaration],
    stored: Mapping[str, Stored],
    expected: Collection[str] = (),
) -> PlannedJobs:
    """Plan the stages of all jobs. `streams` are all other streams, `stored` the tables.

    `expected` are streams that other stages will write and whose columns are not known yet; a job that reads one is skipped.
    """
    tables = {table.name: table for table in declaration.tables}
    aggregates = {aggregate.name: aggregate for aggregate in declaration.aggregates}
    readings = {name: Reading(stream) for name, stream in streams.items()}
    stages: list[Stage] = []
    mistakes: list[tuple[str, Mistake]] = []
    emitted: dict[str, tuple[str, ...]] = {}
    broken = {name for name in expected if name not in streams}
    for job in _in_order(declaration.jobs):
        if (read_by(job) - written_by(job)) & (broken - readings.keys()):  # it reads an unknown stream
            broken |= written_by(job)
            continue
        shapes = JobShapes(job, readings, tables, stored, aggregates)
        shapes.check()
        builder = _StageBuilder(shapes)
        try:
            job_stages = builder.stages() if not shapes.mistakes else []
        except DeclarationError as error:
            shapes.mistakes += error.mistakes
        if shapes.mistakes:
            mistakes += [(job.name, mistake) for mistake in shapes.mistakes]
            broken |= written_by(job)
            continue
        stages += job_stages
        readings = readings | builder.public
        for table_name, stream_name in builder.emitted():
            emitted[table_name] = (*emitted.get(table_name, ()), stream_name)
    return PlannedJobs(tuple(stages), tuple(mistakes), emitted)


def _in_order(jobs: tuple[JobDeclaration, ...]) -> list[JobDeclaration]:
    """Return the jobs in such an order that each follows those whose streams it reads, as far as possible."""
    left, ordered = list(jobs), list[JobDeclaration]()
    while left:
        names = {name for job in left for name in written_by(job)}
        free = [job for job in left if not (read_by(job) & (names - written_by(job)))]
        ordered += free or left
        left = [job for job in left if job not in ordered]
    return ordered


def read_by(job: JobDeclaration) -> set[str]:
    """Return the streams that a job reads, including those between its own steps."""
    return {*job.reads, *(name for step in job.steps for name in step.reads)}


def written_by(job: JobDeclaration) -> set[str]:
    """Return the streams and tables that a job writes, including streams between its own steps."""
    return {job.name, *(name for step in job.steps for name in (step.writes, *step.also) if name is not None)}


class _StageBuilder:
    """Builds the stages of one job whose shapes are known."""

    def __init__(self, shapes: JobShapes) -> None:
        self.shapes, self.job, self.flow, self.drafts = shapes, shapes.job, shapes.flow, shapes.drafts
        self.known, self.tables, self.stored = shapes.known, shapes.tables, shapes.stored
        self.counts = shapes.counts
        self.public: dict[str, Reading] = {}

    def stages(self) -> list[Stage]:
        """Return the stages of the job."""
        for draft in self.drafts:
            self._define_output(draft)
        run_stages = [self._stage(draft) for draft in self.drafts]
        collected = [self._collecting_stage(name, runs) for name, runs in self.flow.public.items()]
        return [*run_stages, *(stage for stage in collected if stage is not None)]

    def emitted(self) -> Iterator[tuple[str, str]]:
        """Yield the tables that the job updates, with the streams that contain the updates."""
        for draft in self.drafts:
            yield from ((name, draft.name) for name in draft.run.targets if name in self.tables)

    def _define_output(self, draft: Draft) -> None:
        """Define the output stream of a run."""
        run = draft.run
        targets = tuple(
            Target(name, self.tables.get(name) if name not in self.flow.groups else None, name in run.back)
            for name in run.targets
        )
        updates = any(target.table is not None for target in targets)
        inner = draft.name.startswith("_")
        shape = PLAIN if updates else draft.output_shape
        exit = run.targets.index(self.job.name) if self.counts and run.back else None
        draft.outlet = Outlet(
            shape,
            targets,
            groups=len(targets) > 1 or updates,
            counts=self.counts and inner,
            rounds=self.job.rounds,
            exit=exit,
        )
        draft.stream = draft.outlet.stream(draft.name, *self._output_order(draft))

    def _output_order(self, draft: Draft) -> tuple[int, bool]:
        """Return the slack of a run's output, and whether the run sets its clock. Maps alone keep the order of their input."""
        read = draft.run.reads or ()
        if draft.last.kind == "map" and len(read) == 1 and read[0] in self.known:
            stream = self.known[read[0]].stream
            return stream.slack, stream.ordered
        return 0, True

    def _readings(self, draft: Draft) -> list[Reading]:
        """Return what a run reads, each stream once."""
        readings: dict[str, Reading] = {}
        for name in (NEXT,) if draft.run.reads is None else draft.run.reads:
            if name == NEXT:
                writers = [self.drafts[draft.run.number - 2]]
            elif name in self.flow.groups:
                writers = [self.drafts[run.number - 1] for run in self.flow.writers(name)]
            else:
                readings[name] = self.known[name]
                continue
            for writer in writers:
                before = readings.get(writer.name)
                readings[writer.name] = self._reading(writer, (*(before.groups or () if before else ()), name))
        return list(readings.values())

    def _reading(self, writer: Draft, groups: tuple[str, ...]) -> Reading:
        """Return the reading of what a run writes for some groups."""
        assert writer.stream is not None
        outlet = writer.outlet
        return Reading(writer.stream, outlet.shape, groups if outlet.groups else None, outlet.counts)

    def _stage(self, draft: Draft) -> Stage:
        assert draft.stream is not None
        maps = [
            MapStep(self._function(step, self.shapes.map_shape(step), draft), step.batches)
            for step in draft.steps
            if step.kind == "map"
        ]
        ending, kernel = self._ending(draft)
        key = draft.input_shape.key if draft.input_shape is not None else ()
        readings = self._readings(draft)
        inputs = [
            Input(reading.stream.name, JobMapSide(reading, tuple(maps), ending), ending.schema, key)
            for reading in readings
        ]
        if draft.last.side != "left":
            inputs += [
                Input(reading.stream.name, Latest(reading), pa.schema([]), broadcast=True) for reading in readings
            ]
        tables_read = (draft.last.table,) if draft.last.table is not None else ()
        every: int | None = None
        if draft.last.window is None:  # tuples of the same job were emitted at a firing, so they need not wait for one
            own = [name == NEXT or name in self.flow.groups for name in draft.run.reads or (NEXT,)]
            every = 0 if all(own) else self.job.every
        return Stage(
            draft.name,
            tuple(inputs),
            draft.stream,
            self._fingerprint(draft, readings),
            kernel,
            every=every,
            tables_read=tables_read,
        )

    def _function(self, step: StepDeclaration, shape: Shape, draft: Draft) -> Step:
        assert step.function is not None
        targets = draft.outlet.targets if step is draft.last else (Target(NEXT),)
        return Step(FunctionSource(step.function, step.directory), shape, targets, step.attempts)

    def _ending(self, draft: Draft) -> tuple[Ending, Callable[[int, int], Kernel] | None]:
        """Return the ending of a run's map side, and its kernel, if any."""
        step, outlet, taken, counts = draft.last, draft.outlet, draft.input_shape, self.counts
        if step.kind == "map":
            return Writing(outlet), None
        assert taken is not None
        window = None
        if step.window is not None and step.every is not None:
            window = SlidingWindow(step.window, step.every)
        if draft.aggregates is not None:
            if window is not None:
                passing = Passing(taken, counts, draft.aggregates)
                return passing, partial(AggregateWindowKernel, draft.aggregates, outlet, window)
            by_time = step.order == "time" and any(call.aggregate.ordered for call in draft.aggregates.calls)
            ending: Ending = (
                Passing(taken, counts, draft.aggregates) if by_time else Combining(draft.aggregates, counts)
            )
            return ending, partial(AggregateKernel, draft.aggregates, outlet, by_time)
        reducing = ReduceSpec(
            self._function(step, draft.output_shape, draft), taken, outlet, step.batches, by_time=step.order == "time"
        )
        passing = Passing(taken, counts)
        if window is not None:
            return passing, partial(ReduceWindowKernel, reducing, window)
        if step.kind == "merge":
            assert step.table is not None
            return passing, partial(
                MergeKernel, MergeSpec(reducing, self.stored[step.table], step.side, len(self._readings(draft)))
            )
        return passing, partial(ReduceKernel, reducing)

    def _collecting_stage(self, name: str, runs: tuple[Run, ...]) -> Stage | None:
        """Return the stage that collects a public stream; None if one run writes it directly."""
        drafts = [self.drafts[run.number - 1] for run in runs]
        shape = drafts[0].outlet.shape
        if len(drafts) == 1 and drafts[0].name == name:
            assert drafts[0].stream is not None
            self.public[name] = Reading(drafts[0].stream, shape)
            return None
        outlet = Outlet(shape, (Target(name),))
        readings = [self._reading(draft, (name,)) for draft in drafts]
        first = readings[0].stream
        stream = outlet.stream(name, *((first.slack, first.ordered) if len(readings) == 1 else (0, True)))
        self.public[name] = Reading(stream, shape)
        inputs = tuple(
            Input(reading.stream.name, JobMapSide(reading, (), Writing(outlet)), outlet.schema) for reading in readings
        )
        identity = [_MEANING, "collected", name, [_stream_facts(reading) for reading in readings], stream.schema]
        return Stage(name, inputs, stream, _digest(identity))

    def _fingerprint(self, draft: Draft, readings: list[Reading]) -> str:
        steps = []
        for step in draft.steps:
            text = FunctionSource(step.function, step.directory).text() if step.function is not None else ""
            table = self.tables.get(step.table or "")
            met = None if table is None else [table.name, table.key, table.columns, step.side]
            window = [step.window, step.every]
            steps.append([step.kind, text, step.batches, step.schema, window, step.order, step.attempts, met])
        assert draft.stream is not None
        identity = [
            _MEANING, draft.name, [_stream_facts(reading) for reading in readings], steps,
            draft.aggregates.text() if draft.aggregates is not None else "", draft.input_shape.key if draft.input_shape else [],
            draft.stream.schema, [[target.name, target.back] for target in draft.outlet.targets], self.job.rounds,
        ]  # fmt: skip
        return _digest(identity)


def _stream_facts(reading: Reading) -> list[object]:
    stream = reading.stream
    shape = None if reading.shape is None else [ddl(reading.shape.schema), reading.shape.plain]
    return [stream.name, stream.schema, stream.time, stream.time_unit, reading.groups, shape]


def _digest(known: list[object]) -> str:
    return hashlib.blake2b(orjson.dumps(known), digest_size=16).hexdigest()
