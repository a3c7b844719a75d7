"""All stages of a pipeline: those of its jobs, queries and operations, each behind what it reads, then those of its tables.

Queries, jobs and operations may read each other. What an operation writes is known from its declaration and the time column
of what it reads, so it is given to the planners of the others as if it were declared; where that time column comes from a
query or a job, these are planned once more with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hayase.core.declarations import FieldMistake, PipelineDeclaration, StreamDeclaration
from hayase.core.errors import Mistake
from hayase.core.stages import Lookup, Stage
from hayase.cql.planner import plan as plan_queries

__all__ = ["Planned", "lookups_of", "plan"]


@dataclass(frozen=True, slots=True)
class Planned:
    """The stages, each behind those whose output it reads but for the loops of jobs, and what is wrong: (kind, name, mistake).

    The kind is that of a `PipelineFile`'s places; it is empty where the mistake knows its place already.
    """

    stages: tuple[Stage, ...] = ()
    mistakes: tuple[tuple[str, str, Mistake], ...] = ()


def plan(declaration: PipelineDeclaration, home: Path | None = None) -> Planned:
    """The stages of a declaration; without a home they can be looked at, but find nothing in tables, nor shipped code."""
    made = _Made()
    stages: list[Stage] = []
    mistakes: list[tuple[str, str, Mistake]] = []
    if not declaration.operations:
        made = _queries_and_jobs(declaration, home)
        stages += made.stages
    else:
        from hayase.operations.planning import operation_streams, plan_operations

        streams = {each.name: each for each in declaration.streams}
        outputs = operation_streams(declaration, streams)
        while True:
            given = replace(declaration, streams=(*declaration.streams, *outputs.values()), operations=())
            made = _queries_and_jobs(given, home)
            streams = _streams(declaration.streams, made.stages)
            more = {**operation_streams(declaration, streams), **outputs}
            if more == outputs:
                break
            outputs = more
        operations = plan_operations(declaration, streams, home)
        unknown = {each.name for each in declaration.operations} - {*outputs}
        mistakes += [("operation", name, each) for name, each in operations.mistakes]
        made.mistakes = [each for each in made.mistakes if not _speaks_of(each[2], unknown)]
        stages += [*made.stages, *operations.stages]
        if not mistakes and not made.mistakes:
            mistakes += _loops(declaration, stages, operations.waiting)
    mistakes += made.mistakes
    stages = _in_order(stages)
    if declaration.tables or declaration.rules:
        from hayase.tables.planning import plan_tables

        unknown = {each.name for each in declaration.operations} - {each.name for each in stages}
        tables = plan_tables(declaration, _streams(declaration.streams, stages), made.emitted)
        stages += tables.stages
        for name, mistake in tables.mistakes:
            if not _speaks_of(mistake, unknown):
                mistakes.append(("column" if name and "." in name else "table" if name else "", name or "", mistake))
    return Planned(tuple(stages), tuple(mistakes))


@dataclass(slots=True)
class _Made:
    """The stages of queries and jobs, what is wrong with them, and which streams hold what jobs emit to tables."""

    stages: list[Stage] = field(default_factory=list)
    mistakes: list[tuple[str, str, Mistake]] = field(default_factory=list)
    emitted: Mapping[str, Sequence[str]] = field(default_factory=dict)


def _queries_and_jobs(declaration: PipelineDeclaration, home: Path | None) -> _Made:
    """Queries may read what jobs write, and jobs what queries write that read no jobs."""
    lookups = lookups_of(declaration, home)
    made = _Made()
    asked = declaration
    if declaration.jobs:
        from hayase.jobs.planning import plan_jobs
        from hayase.tables.stored import StoredTable

        before = _streams(declaration.streams, plan_queries(declaration, lookups).stages)
        stored = {each.name: StoredTable(each, _place(home, each.name)) for each in declaration.tables}
        jobs = plan_jobs(declaration, before, stored)
        made.mistakes += [("job", name, each) for name, each in jobs.mistakes]
        made.stages += jobs.stages
        made.emitted = jobs.emitted
        public = tuple(each.stream for each in jobs.stages if not each.name.startswith("_"))
        asked = replace(declaration, streams=(*declaration.streams, *public), jobs=())
    queries = plan_queries(asked, lookups)
    if not made.mistakes:  # what a job with mistakes would write is not known
        made.mistakes += [("query", name, each) for name, each in queries.mistakes]
    made.stages = [*queries.stages, *made.stages]
    return made


def _speaks_of(mistake: Mistake, operations: Iterable[str]) -> bool:
    """Whether it is that an operation cannot be read, of which it is told already why."""
    return any(f'"{name}"'.lower() in mistake.message.lower() for name in operations)


def _loops(
    declaration: PipelineDeclaration, stages: Sequence[Stage], waiting: Sequence[str]
) -> list[tuple[str, str, Mistake]]:
    """Operations that read, through queries or jobs, what they write. Those that wait for something without a mistake do."""
    reads = {each.name: {one.stream for one in each.inputs} for each in stages}
    found: list[tuple[str, str, Mistake]] = []
    for operation in declaration.operations:
        behind, more = set[str](), set(reads.get(operation.name, ()))
        while more != behind:
            behind = set(more)
            more |= {source for name in behind for source in reads.get(name, ())}
        if operation.name in behind or operation.name in waiting:
            message = f'operation "{operation.name}" reads, through others, what it writes'
            mistake = FieldMistake(message, "let one of them read something else", field="reads")
            found.append(("operation", operation.name, mistake))
    return found


def lookups_of(declaration: PipelineDeclaration, home: Path | None = None) -> dict[str, Lookup]:
    """The tables as queries meet them; without a home they are empty."""
    if not declaration.tables:
        return {}
    from hayase.tables import TYPES
    from hayase.tables.lookups import TableLookup

    known = [each for each in declaration.tables if all(kind in TYPES for _, kind in each.columns)]
    return {each.name: TableLookup(each, _place(home, each.name)) for each in known}


def _place(home: Path | None, table: str) -> Path:
    return (home or Path()) / "tables" / table


def _streams(declared: Sequence[StreamDeclaration], stages: Sequence[Stage]) -> dict[str, StreamDeclaration]:
    """Streams by name: the declared ones and what stages write."""
    return {each.name: each for each in declared} | {each.stream.name: each.stream for each in stages}


def _in_order(stages: Sequence[Stage]) -> list[Stage]:
    """Stages behind those whose output they read, otherwise as they stand; in a loop the first of it comes first."""
    left, found = list(stages), list[Stage]()
    while left:
        waiting = {each.name for each in left}
        free = [each for each in left if not any(one.stream in waiting for one in each.inputs)] or left[:1]
        found += free
        left = [each for each in left if each not in free]
    return found
