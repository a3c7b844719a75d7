"""All stages of a pipeline: those of its jobs, queries and operations, each behind what it reads, then those of its tables.

Queries, jobs and operations may read each other in any order. What one of them writes is known once everything that it reads
is, so planning goes in rounds: each round plans what reads streams that are known by now, until no more become known. What is
left then reads something with a mistake, or reads in a circle what it writes itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hayase.core.declarations import FieldMistake, PipelineDeclaration, StreamDeclaration
from hayase.core.errors import DeclarationError, Mistake
from hayase.core.stages import Lookup, Stage
from hayase.cql.planner import plan as plan_queries
from hayase.cql.statement import parse
from hayase.cql.syntax import Part

__all__ = ["Planned", "lookups_of", "plan"]

_Placed = tuple[str, str, Mistake]


@dataclass(frozen=True, slots=True)
class Planned:
    """The stages, each behind those whose output it reads but for the loops of jobs, and what is wrong: (kind, name, mistake).

    The kind is that of a `PipelineFile`'s places; it is empty where the mistake knows its place already.
    """

    stages: tuple[Stage, ...] = ()
    mistakes: tuple[_Placed, ...] = ()


def plan(declaration: PipelineDeclaration, home: Path | None = None) -> Planned:
    """The stages of a declaration; without a home they can be looked at, but find nothing in tables, nor shipped code."""
    expected = _expected(declaration)
    known: dict[str, StreamDeclaration] = {}
    while True:
        found = _round(declaration, home, known, expected)
        if found.streams == known:
            break
        known = found.streams
    mistakes = sorted(found.mistakes, key=lambda each: ("operation", "job", "query").index(each[0]))
    wrong = {name for _, name, _ in mistakes}
    mistakes += [each for each in _circles(declaration) if each[1] not in wrong]
    stages = _in_order(found.stages)
    if declaration.tables or declaration.rules:
        from hayase.tables.table_planner import plan_tables

        tables = plan_tables(declaration, _streams(declaration.streams, stages), found.emitted, expected)
        stages += tables.stages
        for name, mistake in tables.mistakes:
            mistakes.append(("column" if name and "." in name else "table" if name else "", name or "", mistake))
    return Planned(tuple(stages), tuple(mistakes))


@dataclass(slots=True)
class _Round:
    """The stages that could be planned, the streams they write, what is wrong, and which streams hold what jobs emit to
    tables."""

    stages: list[Stage] = field(default_factory=list)
    streams: dict[str, StreamDeclaration] = field(default_factory=dict)
    mistakes: list[_Placed] = field(default_factory=list)
    emitted: Mapping[str, Sequence[str]] = field(default_factory=dict)


def _round(
    declaration: PipelineDeclaration,
    home: Path | None,
    known: Mapping[str, StreamDeclaration],
    expected: Collection[str],
) -> _Round:
    """Plan everything that reads only declared streams and those that are `known` from the round before."""
    made = _Round()
    own = {each.name for each in declaration.queries}
    given = (*declaration.streams, *(each for name, each in known.items() if name not in own))
    queries = plan_queries(
        replace(declaration, streams=given, jobs=(), operations=()), lookups_of(declaration, home), expected
    )
    made.stages += queries.stages
    made.mistakes += [("query", name, each) for name, each in queries.mistakes]
    if declaration.jobs:
        from hayase.jobs.job_planner import plan_jobs
        from hayase.tables.job_tables import StoredTable

        outputs = _job_outputs(declaration)
        others = {name: each for name, each in known.items() if name not in outputs}
        stored = {each.name: StoredTable(each, _place(home, each.name)) for each in declaration.tables}
        before = _streams(declaration.streams, made.stages)
        jobs = plan_jobs(declaration, {**others, **before}, stored, expected)
        made.stages += jobs.stages
        made.mistakes += [("job", name, each) for name, each in jobs.mistakes]
        made.emitted = jobs.emitted
    if declaration.operations:
        from hayase.operations.operation_planner import plan_operations

        operations = plan_operations(declaration, _streams(declaration.streams, made.stages), home)
        made.stages += operations.stages
        made.mistakes += [("operation", name, each) for name, each in operations.mistakes]
    made.streams = {each.stream.name: each.stream for each in made.stages if not each.name.startswith("_")}
    return made


# ---------------------------------------------------------------------------------------------------- names


def _job_outputs(declaration: PipelineDeclaration) -> dict[str, str]:
    """The streams of jobs that others can read, and which job writes each."""
    if not declaration.jobs:
        return {}
    from hayase.jobs.job_planner import read_by, written_by

    tables = {each.name for each in declaration.tables}
    return {
        name: job.name for job in declaration.jobs for name in written_by(job) - (read_by(job) - {job.name}) - tables
    }


def _expected(declaration: PipelineDeclaration) -> set[str]:
    """The names of all streams that stages will write, whether or not they can be planned."""
    queries = {each.name for each in declaration.queries}
    operations = {each.name for each in declaration.operations}
    return {*queries, *operations, *_job_outputs(declaration)}


def _circles(declaration: PipelineDeclaration) -> list[_Placed]:
    """What reads, through things of another kind, what it writes: each circle once. Circles of queries alone, and of
    operations alone, are found where those are planned."""
    kinds, reads, places = _reads(declaration)
    found: list[_Placed] = []
    told: set[str] = set()
    for name in sorted(reads, key=lambda each: ("operation", "job", "query").index(kinds[each])):
        way = None if name in told else _way_round(name, reads)
        if way is None or {kinds[each] for each in way} in ({"query"}, {"operation"}):
            continue
        told |= {*way}
        kind = kinds[name]
        message = f'{kind} "{name}" reads, through others, what it writes: {" -> ".join(way)}'
        hint = "let one of them read something else"
        if kind == "query":
            found.append((kind, name, places[name, way[1]].mistake(message, hint)))
        else:
            mistake = FieldMistake(message, hint, field="reads") if kind == "operation" else Mistake(message, hint)
            found.append((kind, name, mistake))
    return found


def _reads(
    declaration: PipelineDeclaration,
) -> tuple[dict[str, str], dict[str, list[str]], dict[tuple[str, str], Part]]:
    """Of queries, jobs and operations the kind, whose output each reads, and where in a query that is named."""
    writers = {name.lower(): name for name in _expected(declaration)}
    jobs = _job_outputs(declaration)
    kinds: dict[str, str] = {}
    reads: dict[str, list[str]] = {}
    places: dict[tuple[str, str], Part] = {}
    for query in declaration.queries:
        kinds[query.name], reads[query.name] = "query", []
        try:
            sources = parse(query.text).sources
        except DeclarationError:  # told where queries are planned
            continue
        for part in sources:
            source = writers.get(part.text.lower())
            if source is not None:
                source = jobs.get(source, source)
                reads[query.name].append(source)
                places.setdefault((query.name, source), part)
    if declaration.jobs:
        from hayase.jobs.job_planner import read_by as read_by_job

        for job in declaration.jobs:
            kinds[job.name] = "job"
            names = [each for each in sorted(read_by_job(job)) if each in writers.values()]
            reads[job.name] = [owner for owner in (jobs.get(each, each) for each in names) if owner != job.name]
    if declaration.operations:
        from hayase.operations.operation_planner import read_by as read_by_operation

        for operation in declaration.operations:
            kinds[operation.name] = "operation"
            names = [each for each in read_by_operation(operation, writers.values()) if each in writers.values()]
            reads[operation.name] = [jobs.get(each, each) for each in names]
    return kinds, reads, places


def _way_round(name: str, reads: Mapping[str, Sequence[str]]) -> list[str] | None:
    """A shortest way from a name over what it reads back to it."""
    ways, seen = [[name]], set[str]()
    while ways:
        way = ways.pop(0)
        for source in reads.get(way[-1], ()):
            if source == name:
                return [*way, name]
            if source not in seen:
                seen.add(source)
                ways.append([*way, source])
    return None


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
