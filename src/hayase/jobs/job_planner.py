"""From declared jobs to stages: maps run in the map side of the reduce or merge behind them, groups are streams between.

A stage writes one stream. If its tuples are for several groups, a first column `group` names them: the next step's are
"", a table's have the name of the table, and their key and value are the key and {column: parameter}. Streams that
others see are collected from these. All that is wrong is told at once.
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
from hayase.jobs.merge_kernels import MergeKernel, Merging
from hayase.jobs.reduce_kernels import AggregateKernel, ReduceKernel, Reducing
from hayase.jobs.step_functions import Step
from hayase.jobs.stored_tuples import Stored
from hayase.jobs.tuple_shapes import Draft, Shaping
from hayase.jobs.tuples import PLAIN, Shape
from hayase.jobs.window_kernels import AggregateWindowKernel, ReduceWindowKernel, SlidingWindow

__all__ = ["PlannedJobs", "plan_jobs", "read_by", "written_by"]

_MEANING = 1
"""Raised when the same job comes to mean something else, so that older state and results no longer fit it."""


class PlannedJobs(NamedTuple):
    """The stages, each behind those whose output it reads but for loops; what is wrong, with the name of the job; and for
    tables the streams that hold what is emitted to them."""

    stages: tuple[Stage, ...] = ()
    mistakes: tuple[tuple[str, Mistake], ...] = ()
    emitted: Mapping[str, tuple[str, ...]] = MappingProxyType({})


def plan_jobs(
    declaration: PipelineDeclaration,
    streams: Mapping[str, StreamDeclaration],
    stored: Mapping[str, Stored],
    expected: Collection[str] = (),
) -> PlannedJobs:
    """The stages of all jobs that can be planned; `streams` are all others there are, `stored` the tables.

    `expected` are streams that others will write and whose columns are not known yet: a job that reads one is passed over.
    """
    tables = {each.name: each for each in declaration.tables}
    aggregates = {each.name: each for each in declaration.aggregates}
    known = {name: Reading(each) for name, each in streams.items()}
    stages: list[Stage] = []
    mistakes: list[tuple[str, Mistake]] = []
    emitted: dict[str, tuple[str, ...]] = {}
    broken = {name for name in expected if name not in streams}
    for job in _in_order(declaration.jobs):
        if (read_by(job) - written_by(job)) & (broken - known.keys()):  # what it reads is not known
            broken |= written_by(job)
            continue
        shaping = Shaping(job, known, tables, stored, aggregates)
        shaping.check()
        staging = _Staging(shaping)
        try:
            made = staging.stages() if not shaping.mistakes else []
        except DeclarationError as error:
            shaping.mistakes += error.mistakes
        if shaping.mistakes:
            mistakes += [(job.name, each) for each in shaping.mistakes]
            broken |= written_by(job)
            continue
        stages += made
        known = known | staging.public
        for table, stream in staging.emitted():
            emitted[table] = (*emitted.get(table, ()), stream)
    return PlannedJobs(tuple(stages), tuple(mistakes), emitted)


def _in_order(jobs: tuple[JobDeclaration, ...]) -> list[JobDeclaration]:
    """Jobs behind those whose streams they read, as far as there is such an order."""
    left, found = list(jobs), list[JobDeclaration]()
    while left:
        names = {name for each in left for name in written_by(each)}
        free = [each for each in left if not (read_by(each) & (names - written_by(each)))]
        found += free or left
        left = [each for each in left if each not in found]
    return found


def read_by(job: JobDeclaration) -> set[str]:
    """The streams that a job reads, also those between its own steps."""
    return {*job.reads, *(name for step in job.steps for name in step.reads)}


def written_by(job: JobDeclaration) -> set[str]:
    """The streams that a job writes, also those between its own steps; tables to which it emits are among them."""
    return {job.name, *(name for step in job.steps for name in (step.writes, *step.also) if name is not None)}


class _Staging:
    """One job on its way to stages, once its shapes are known."""

    def __init__(self, shaping: Shaping) -> None:
        self.shaping, self.job, self.flow, self.drafts = shaping, shaping.job, shaping.flow, shaping.drafts
        self.known, self.tables, self.stored = shaping.known, shaping.tables, shaping.stored
        self.counts = shaping.counts
        self.public: dict[str, Reading] = {}

    def stages(self) -> list[Stage]:
        """The stages of the job."""
        for draft in self.drafts:
            self._lay_out(draft)
        made = [self._stage(draft) for draft in self.drafts]
        collected = [self._collected(name, runs) for name, runs in self.flow.public.items()]
        return [*made, *(each for each in collected if each is not None)]

    def emitted(self) -> Iterator[tuple[str, str]]:
        """Tables, with the streams that hold what is emitted to them."""
        for draft in self.drafts:
            yield from ((name, draft.name) for name in draft.run.targets if name in self.tables)

    def _lay_out(self, draft: Draft) -> None:
        """What a run writes, as a stream."""
        run = draft.run
        targets = tuple(
            Target(name, self.tables.get(name) if name not in self.flow.groups else None, name in run.back)
            for name in run.targets
        )
        updates = any(each.table is not None for each in targets)
        inner = draft.name.startswith("_")
        shape = PLAIN if updates else draft.given
        exit = run.targets.index(self.job.name) if self.counts and run.back else None
        draft.outlet = Outlet(
            shape,
            targets,
            groups=len(targets) > 1 or updates,
            counts=self.counts and inner,
            rounds=self.job.rounds,
            exit=exit,
        )
        draft.stream = draft.outlet.stream(draft.name, *self._disorder(draft))

    def _disorder(self, draft: Draft) -> tuple[int, bool]:
        """The slack of what a run writes, and whether it says itself how far it is. Maps alone keep the order of the log."""
        read = draft.run.reads or ()
        if draft.last.kind == "map" and len(read) == 1 and read[0] in self.known:
            stream = self.known[read[0]].stream
            return stream.slack, stream.ordered
        return 0, True

    def _readings(self, draft: Draft) -> list[Reading]:
        """What a run reads, each stream once."""
        found: dict[str, Reading] = {}
        for name in (NEXT,) if draft.run.reads is None else draft.run.reads:
            if name == NEXT:
                writers = [self.drafts[draft.run.number - 2]]
            elif name in self.flow.groups:
                writers = [self.drafts[run.number - 1] for run in self.flow.writers(name)]
            else:
                found[name] = self.known[name]
                continue
            for each in writers:
                before = found.get(each.name)
                found[each.name] = self._reading(each, (*(before.groups or () if before else ()), name))
        return list(found.values())

    def _reading(self, writer: Draft, groups: tuple[str, ...]) -> Reading:
        """What a run has written for some groups."""
        assert writer.stream is not None
        outlet = writer.outlet
        return Reading(writer.stream, outlet.shape, groups if outlet.groups else None, outlet.counts)

    def _stage(self, draft: Draft) -> Stage:
        assert draft.stream is not None
        maps = [
            MapStep(self._function(step, self.shaping.map_shape(step), draft), step.batches)
            for step in draft.steps
            if step.kind == "map"
        ]
        ending, kernel = self._ending(draft)
        key = draft.taken.key if draft.taken is not None else ()
        readings = self._readings(draft)
        inputs = [
            Input(each.stream.name, JobMapSide(each, tuple(maps), ending), ending.schema, key) for each in readings
        ]
        if draft.last.side != "left":
            inputs += [Input(each.stream.name, Latest(each), pa.schema([]), broadcast=True) for each in readings]
        meets = (draft.last.table,) if draft.last.table is not None else ()
        every: int | None = None
        if draft.last.window is None:  # what reads its own job's tuples need not wait: they came at a firing
            own = [name == NEXT or name in self.flow.groups for name in draft.run.reads or (NEXT,)]
            every = 0 if all(own) else self.job.every
        return Stage(
            draft.name,
            tuple(inputs),
            draft.stream,
            self._fingerprint(draft, readings),
            kernel,
            every=every,
            meets=meets,
        )

    def _function(self, step: StepDeclaration, shape: Shape, draft: Draft) -> Step:
        assert step.function is not None
        targets = draft.outlet.targets if step is draft.last else (Target(NEXT),)
        return Step(FunctionSource(step.function, step.directory), shape, targets, step.attempts)

    def _ending(self, draft: Draft) -> tuple[Ending, Callable[[int, int], Kernel] | None]:
        """What becomes of the tuples behind the maps, and the kernel that takes them."""
        step, outlet, taken, counts = draft.last, draft.outlet, draft.taken, self.counts
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
        reducing = Reducing(
            self._function(step, draft.given, draft), taken, outlet, step.batches, by_time=step.order == "time"
        )
        passing = Passing(taken, counts)
        if window is not None:
            return passing, partial(ReduceWindowKernel, reducing, window)
        if step.kind == "merge":
            assert step.table is not None
            return passing, partial(
                MergeKernel, Merging(reducing, self.stored[step.table], step.side, len(self._readings(draft)))
            )
        return passing, partial(ReduceKernel, reducing)

    def _collected(self, name: str, runs: tuple[Run, ...]) -> Stage | None:
        """A stream that others see, put together from those that hold its tuples."""
        drafts = [self.drafts[run.number - 1] for run in runs]
        shape = drafts[0].outlet.shape
        if len(drafts) == 1 and drafts[0].name == name:
            assert drafts[0].stream is not None
            self.public[name] = Reading(drafts[0].stream, shape)
            return None
        outlet = Outlet(shape, (Target(name),))
        readings = [self._reading(each, (name,)) for each in drafts]
        first = readings[0].stream
        stream = outlet.stream(name, *((first.slack, first.ordered) if len(readings) == 1 else (0, True)))
        self.public[name] = Reading(stream, shape)
        inputs = tuple(
            Input(each.stream.name, JobMapSide(each, (), Writing(outlet)), outlet.schema) for each in readings
        )
        known = [_MEANING, "collected", name, [_stream_facts(each) for each in readings], stream.schema]
        return Stage(name, inputs, stream, _digest(known))

    def _fingerprint(self, draft: Draft, readings: list[Reading]) -> str:
        steps = []
        for step in draft.steps:
            text = FunctionSource(step.function, step.directory).text() if step.function is not None else ""
            table = self.tables.get(step.table or "")
            met = None if table is None else [table.name, table.key, table.columns, step.side]
            window = [step.window, step.every]
            steps.append([step.kind, text, step.batches, step.schema, window, step.order, step.attempts, met])
        assert draft.stream is not None
        known = [
            _MEANING, draft.name, [_stream_facts(each) for each in readings], steps,
            draft.aggregates.text() if draft.aggregates is not None else "", draft.taken.key if draft.taken else [],
            draft.stream.schema, [[each.name, each.back] for each in draft.outlet.targets], self.job.rounds,
        ]  # fmt: skip
        return _digest(known)


def _stream_facts(reading: Reading) -> list[object]:
    stream = reading.stream
    shape = None if reading.shape is None else [ddl(reading.shape.schema), reading.shape.plain]
    return [stream.name, stream.schema, stream.time, stream.time_unit, reading.groups, shape]


def _digest(known: list[object]) -> str:
    return hashlib.blake2b(orjson.dumps(known), digest_size=16).hexdigest()
