"""Determines and checks the shapes of a job's tuples: the columns and keys that each step takes and returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import (
    AggregateDeclaration,
    JobDeclaration,
    StepDeclaration,
    StreamDeclaration,
    TableDeclaration,
)
from hayase.core.errors import DeclarationError, Mistake, suggestion
from hayase.core.function_sources import FunctionSource
from hayase.core.keys import check_atomic_key
from hayase.core.schemas import arrow_schema
from hayase.jobs.emitted_tuples import Target
from hayase.jobs.job_graph import NEXT, JobGraph, Run, graph_of
from hayase.jobs.job_map_side import Reading
from hayase.jobs.job_outputs import Outlet
from hayase.jobs.reduce_aggregates import Aggregates, aggregates_of
from hayase.jobs.stored_tuples import Stored
from hayase.jobs.tuples import PLAIN, Shape

__all__ = ["Draft", "JobShapes"]


@dataclass(slots=True)
class Draft:
    """A run that becomes a stage: the name of its stream and, once they are known, its shapes and its outlet."""

    run: Run
    name: str
    steps: list[StepDeclaration]
    input_shape: Shape | None = None
    aggregates: Aggregates | None = None
    output_shape: Shape = PLAIN
    outlet: Outlet = field(default_factory=lambda: Outlet(PLAIN, (Target(NEXT),)))
    stream: StreamDeclaration | None = None
    done: bool = False

    @property
    def last(self) -> StepDeclaration:
        return self.steps[-1]


class JobShapes:
    """The shapes of one job's runs, and all mistakes in the job."""

    def __init__(
        self,
        job: JobDeclaration,
        known: Mapping[str, Reading],
        tables: Mapping[str, TableDeclaration],
        stored: Mapping[str, Stored],
        aggregates: Mapping[str, AggregateDeclaration],
    ) -> None:
        self.job, self.known, self.tables, self.stored, self.declared = job, known, tables, stored, aggregates
        self.mistakes: list[Mistake] = []
        flow, wrong = graph_of(job, known, tables)
        self.flow: JobGraph = flow
        self.mistakes += wrong
        self.counts = job.rounds is not None and flow.loops
        self.drafts = [Draft(run, self._name(run), [job.steps[at] for at in run.steps]) for run in flow.runs]

    def _name(self, run: Run) -> str:
        """Return the name of a run's stream: that of a public stream, if the run alone writes it and writes nothing else."""
        alone = len(run.targets) == 1 and self.flow.public.get(run.targets[0]) == (run,)
        return run.targets[0] if alone else f"_{self.job.name}_{run.number}"

    def wrong(self, step: StepDeclaration, message: str, hint: str | None = None) -> None:
        at = next(at for at, other in enumerate(self.job.steps) if other is step)
        self.mistakes.append(Mistake(f"step {at + 1} ({step.title}): {message}", hint, subject=f"steps.{at}"))

    def check(self) -> None:
        """Determine the shapes of all runs and collect the mistakes."""
        self._load()
        if self.mistakes:
            return
        for draft in self.drafts:
            self._shape(draft)
        if not self.mistakes:
            self._check_windows()
            self._check_tables()
            self._check_public()

    def _load(self) -> None:
        """Check that all functions can be loaded and all tables exist."""
        for step in self.job.steps:
            if step.function is not None:
                try:
                    FunctionSource(step.function, step.directory).load()
                except DeclarationError as error:
                    for mistake in error.mistakes:
                        self.wrong(step, mistake.message, mistake.hint)
            if step.kind == "merge" and step.table not in self.stored:
                hint = suggestion(step.table or "", self.stored)
                self.wrong(step, f'unknown table "{step.table}"', hint or "declare it with p.table")

    # ------------------------------------------------------------------------------------------ shapes

    def _shape(self, draft: Draft) -> Shape:
        """Determine what the reduce or merge of a run takes, and return the shape of what the run emits."""
        if draft.done:
            return draft.output_shape
        draft.done = True  # a loop comes back here before the shape is known
        shape: Shape | None = None
        for step in draft.steps[: -1 if draft.last.kind != "map" else None]:
            shape = self.map_shape(step)
        if draft.last.kind == "map":
            assert shape is not None
            draft.output_shape = shape
            return shape
        step = draft.last
        if step.schema is not None:
            draft.output_shape = Shape(arrow_schema(step.schema), ())
        if shape is None:
            shape = self._read_shape(draft)
        draft.input_shape = self._keyed(step, shape) if shape is not None else None
        if draft.input_shape is not None and step.aggregates:
            draft.aggregates, wrong = aggregates_of(step, draft.input_shape, self.declared)
            for mistake in wrong:
                self.wrong(step, mistake.message, mistake.hint)
            if draft.aggregates is not None:
                draft.output_shape = draft.aggregates.result
        elif draft.input_shape is not None and not draft.output_shape.plain:
            names = draft.output_shape.schema.names
            key = draft.input_shape.key if set(draft.input_shape.key) <= set(names) else ()
            draft.output_shape = replace(draft.output_shape, key=key)
        return draft.output_shape

    def map_shape(self, step: StepDeclaration) -> Shape:
        """Return the shape of what a map emits."""
        if step.schema is None:
            if step.key:
                self.wrong(step, "plain tuples are grouped by their keys", "leave key out, or give a schema")
            return PLAIN
        shape = Shape(arrow_schema(step.schema), step.key)
        for name in step.key:
            if name not in shape.schema.names:
                self.wrong(step, f'unknown key column "{name}"', suggestion(name, shape.schema.names))
        return shape

    def _read_shape(self, draft: Draft) -> Shape | None:
        """Return the shape that a reduce or merge reads if there is no map before it; None after a mistake."""
        step = draft.steps[0]
        shapes = []
        for reading in self._sources(draft):
            if isinstance(reading, Reading):
                schema = reading.stream.shown_schema
                shapes.append(
                    reading.shape or Shape(pa.schema([pa.field(field.name, field.type) for field in schema]), ())
                )
            elif not (reading.done and reading.last.aggregates and reading.aggregates is None):
                shapes.append(self._shape(reading))
        if not shapes:
            self.wrong(step, "it reads only its own output", "put a map with a schema between")
            return None
        if any(not shape.schema.equals(shapes[0].schema) or shape.plain != shapes[0].plain for shape in shapes):
            self.wrong(step, "it reads tuples of different shapes", "put a map before it that gives one shape")
            return None
        return shapes[0]

    def _keyed(self, step: StepDeclaration, shape: Shape) -> Shape | None:
        """Return the shape that a reduce or merge takes, with its key: its own or that of its input; None after a mistake."""
        if shape.plain:
            if step.key:
                self.wrong(step, "plain tuples are grouped by their keys", "leave key out, or type what it reads")
                return None
            return shape
        key = step.key or shape.key
        if not key:
            self.wrong(step, "it has no key to group by", f'add key="{shape.schema.names[0]}" or other columns')
            return None
        for name in key:
            if name not in shape.schema.names:
                self.wrong(step, f'unknown key column "{name}"', suggestion(name, shape.schema.names))
                return None
            try:
                check_atomic_key(shape.schema.field(name).type)
            except DeclarationError as error:
                self.wrong(step, f'column "{name}": {error.mistakes[0].message}', error.mistakes[0].hint)
                return None
        return replace(shape, key=key)

    def _sources(self, draft: Draft) -> Iterator[Reading | Draft]:
        """Yield what a run reads: streams, or other runs."""
        if draft.run.reads is None:
            yield self.drafts[draft.run.number - 2]
            return
        for name in draft.run.reads:
            if name in self.flow.groups:
                yield from (self.drafts[run.number - 1] for run in self.flow.writers(name))
            elif name in self.known:
                yield self.known[name]

    # ------------------------------------------------------------------------------------------ checks

    def _check_windows(self) -> None:
        for draft in self.drafts:
            step = draft.last
            if step.window is None:
                continue
            if step.also:
                self.wrong(
                    step, "a sliding reduce cannot emit to named groups", "leave also out, or emit from a map after it"
                )
            if (
                draft.aggregates is None
                and draft.input_shape is not None
                and draft.output_shape.plain != draft.input_shape.plain
            ):
                hint = "let both be plain, or give it a schema and typed tuples to read"
                self.wrong(step, "a sliding reduce must take the shape that it returns", hint)
            if self.counts:
                self.wrong(step, "rounds are not counted through a sliding reduce", "leave rounds out")
            calls = draft.aggregates.calls if draft.aggregates is not None and draft.aggregates.shape.plain else ()
            for call in calls:
                if ":" in call.function or call.constant not in (None, 0.5):
                    self.wrong(step, f"{call.text} over plain tuples cannot slide", "give them a schema")

    def _check_tables(self) -> None:
        for draft in self.drafts:
            step = draft.last
            tables = [self.tables[name] for name in draft.run.targets if name in self.tables]
            if step.aggregates and step.also:
                self.wrong(step, "aggregates cannot emit to named groups", "leave also out")
            if not tables:
                continue
            if step.schema is not None:
                hint = "leave schema out, and emit (key, {column: parameter})"
                self.wrong(step, f'typed tuples cannot go to table "{tables[0].name}"', hint)
            elif draft.aggregates is not None:
                self._check_update(step, draft.aggregates, tables[0])

    def _check_update(self, step: StepDeclaration, aggregates: Aggregates, table: TableDeclaration) -> None:
        if aggregates.shape.plain and aggregates.single:
            hint = f'name the column: job.reduce({table.column_names[0]}="{aggregates.calls[0].text}")'
            self.wrong(step, f'the column of table "{table.name}" to update is missing', hint)
            return
        for call in aggregates.calls:
            if call.name not in table.column_names:
                nearest = suggestion(call.name, table.column_names)
                self.wrong(step, f'table "{table.name}" has no column "{call.name}"', nearest)
        if not aggregates.shape.plain and len(aggregates.shape.key) != len(table.key):
            message = (
                f'it groups by {", ".join(aggregates.shape.key)}, and table "{table.name}" by {", ".join(table.key)}'
            )
            self.wrong(step, message, "group by as many columns")

    def _check_public(self) -> None:
        for name, runs in self.flow.public.items():
            shapes = [self.drafts[run.number - 1].output_shape for run in runs]
            if any(not shape.schema.equals(shapes[0].schema) or shape.plain != shapes[0].plain for shape in shapes):
                self.mistakes.append(
                    Mistake(
                        f'tuples of different shapes go to the stream "{name}"', "let some go elsewhere with writes="
                    )
                )
            if name != self.job.name and (name in self.known or name in self.tables):
                self.mistakes.append(Mistake(f'"{name}" is declared twice', "name the group differently"))
