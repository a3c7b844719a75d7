"""Plans all stages of a pipeline: those of jobs, queries and operations, each after the stages it reads, then those of tables.

Queries, jobs and operations may read each other in any order. The output of one is known once all of its inputs are, so
planning works in rounds: each round plans what reads streams that are known so far, until no more become known. What
remains has an input with a mistake, or is part of a cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from hayase.core.data_classes import dataclass
from hayase.core.declarations import FunctionDeclaration, PipelineDeclaration, StreamDeclaration
from hayase.core.errors import DeclarationError, Mistake
from hayase.core.stages import Lookup, Stage
from hayase.cql.macros import Macros
from hayase.cql.planner import plan as plan_queries
from hayase.cql.statement import parse
from hayase.cql.syntax import Part
from hayase.cql.user_functions import UserFunction

__all__ = ["Planned", "lookups_of", "plan"]

_Placed = tuple[str, str, Mistake]


@dataclass(frozen=True, slots=True)
class Planned:
    """The stages, each after those whose output it reads (except in loops of jobs), and the mistakes as (kind, name, mistake).

    The kind is one of a `PipelineFile`'s positions; it is empty if the mistake already has a position.
    """

    stages: tuple[Stage, ...] = ()
    mistakes: tuple[_Placed, ...] = ()


def plan(declaration: PipelineDeclaration, home: Path | None = None, unread: Collection[str] = ()) -> Planned:
    """Return the stages of a declaration. Without a home they can be inspected but not run: tables are empty and
    shipped code is missing.

    `unread` are names that a file declares but that could not be read: stages that read or write them are not planned, and
    that is not a mistake.
    """
    expected = {*_expected(declaration), *unread}
    known: dict[str, StreamDeclaration] = {}
    while True:
        round_ = _round(declaration, home, known, expected)
        if round_.streams == known:
            break
        known = round_.streams
    mistakes = sorted(round_.mistakes, key=lambda placed: ("operation", "job", "query").index(placed[0]))
    wrong = {name for _, name, _ in mistakes}
    mistakes += [circle for circle in _circles(declaration) if circle[1] not in wrong]
    mistakes[:0] = [("function", name, mistake) for name, mistake in Macros(declaration.functions).mistakes]
    stages = _in_order(round_.stages)
    if declaration.tables or declaration.rules:
        from hayase.tables.table_planner import plan_tables

        tables = plan_tables(declaration, _streams(declaration.streams, stages), round_.emitted, expected, unread)
        stages += tables.stages
        for name, mistake in tables.mistakes:
            mistakes.append(("column" if name and "." in name else "table" if name else "", name or "", mistake))
    return Planned(tuple(stages), tuple(mistakes))


@dataclass(slots=True)
class _Round:
    """What one round planned: stages, the streams they write, mistakes, and the streams that carry what jobs emit to tables."""

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
    """Plan everything that reads only declared streams and those `known` from the round before."""
    result = _Round()
    query_names = {query.name for query in declaration.queries}
    readable = (*declaration.streams, *(stream for name, stream in known.items() if name not in query_names))
    functions = located_functions(declaration.functions, home)
    queries = plan_queries(
        replace(declaration, streams=readable, jobs=(), operations=(), functions=functions),
        lookups_of(declaration, home),
        expected,
    )
    result.stages += queries.stages
    result.mistakes += [("query", name, mistake) for name, mistake in queries.mistakes]
    if declaration.jobs:
        from hayase.jobs.job_planner import plan_jobs
        from hayase.tables.job_tables import StoredTable

        outputs = _job_outputs(declaration)
        others = {name: stream for name, stream in known.items() if name not in outputs}
        stored = {table.name: StoredTable(table, _place(home, table.name)) for table in declaration.tables}
        before = _streams(declaration.streams, result.stages)
        jobs = plan_jobs(declaration, {**others, **before}, stored, expected)
        result.stages += jobs.stages
        result.mistakes += [("job", name, mistake) for name, mistake in jobs.mistakes]
        result.emitted = jobs.emitted
    if declaration.operations:
        from hayase.operations.operation_planner import plan_operations

        operations = plan_operations(declaration, _streams(declaration.streams, result.stages), home, expected)
        result.stages += operations.stages
        result.mistakes += [("operation", name, mistake) for name, mistake in operations.mistakes]
    result.streams = {stage.stream.name: stage.stream for stage in result.stages if not stage.name.startswith("_")}
    return result


# ---------------------------------------------------------------------------------------------------- names


def _job_outputs(declaration: PipelineDeclaration) -> dict[str, str]:
    """Return the streams of jobs that other stages can read, with the job that writes each."""
    if not declaration.jobs:
        return {}
    from hayase.jobs.job_planner import read_by, written_by

    tables = {table.name for table in declaration.tables}
    return {
        name: job.name for job in declaration.jobs for name in written_by(job) - (read_by(job) - {job.name}) - tables
    }


def _expected(declaration: PipelineDeclaration) -> set[str]:
    """Return the names of all streams that stages will write, whether or not they can be planned."""
    queries = {query.name for query in declaration.queries}
    operations = {operation.name for operation in declaration.operations}
    return {*queries, *operations, *_job_outputs(declaration)}


def _circles(declaration: PipelineDeclaration) -> list[_Placed]:
    """Return one mistake per cycle that goes through different kinds of declarations. The planners of queries and
    operations report cycles within their kind."""
    kinds, reads, places = _reads(declaration)
    mistakes: list[_Placed] = []
    reported: set[str] = set()
    for name in sorted(reads, key=lambda reader: ("operation", "job", "query").index(kinds[reader])):
        path = None if name in reported else _way_round(name, reads)
        if path is None or {kinds[member] for member in path} in ({"query"}, {"operation"}):
            continue
        reported |= {*path}
        kind = kinds[name]
        message = f'{kind} "{name}" reads, through others, what it writes: {" -> ".join(path)}'
        hint = "let one of them read something else"
        if kind == "query":
            mistakes.append((kind, name, places[name, path[1]].mistake(message, hint)))
        else:
            mistake = Mistake(message, hint, subject="reads") if kind == "operation" else Mistake(message, hint)
            mistakes.append((kind, name, mistake))
    return mistakes


def _reads(
    declaration: PipelineDeclaration,
) -> tuple[dict[str, str], dict[str, list[str]], dict[tuple[str, str], Part]]:
    """Return, for queries, jobs and operations: the kind, the writers of what each reads, and where a query names them."""
    writers = {name.lower(): name for name in _expected(declaration)}
    jobs = _job_outputs(declaration)
    kinds: dict[str, str] = {}
    reads: dict[str, list[str]] = {}
    places: dict[tuple[str, str], Part] = {}
    own_functions = frozenset(function.name.lower() for function in declaration.functions)
    for query in declaration.queries:
        kinds[query.name], reads[query.name] = "query", []
        try:
            sources = parse(query.text, own_functions).sources
        except DeclarationError:  # reported by the query planner
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
            names = [stream for stream in sorted(read_by_job(job)) if stream in writers.values()]
            reads[job.name] = [owner for owner in (jobs.get(stream, stream) for stream in names) if owner != job.name]
    if declaration.operations:
        from hayase.operations.operation_planner import read_by as read_by_operation

        for operation in declaration.operations:
            kinds[operation.name] = "operation"
            names = [stream for stream in read_by_operation(operation, writers.values()) if stream in writers.values()]
            reads[operation.name] = [jobs.get(stream, stream) for stream in names]
    return kinds, reads, places


def _way_round(name: str, reads: Mapping[str, Sequence[str]]) -> list[str] | None:
    """Return a shortest path from a name through what it reads back to itself; None if there is none."""
    paths, seen = [[name]], set[str]()
    while paths:
        path = paths.pop(0)
        for source in reads.get(path[-1], ()):
            if source == name:
                return [*path, name]
            if source not in seen:
                seen.add(source)
                paths.append([*path, source])
    return None


def lookups_of(declaration: PipelineDeclaration, home: Path | None = None) -> dict[str, Lookup]:
    """Return the tables as queries join with them; without a home they are empty."""
    if not declaration.tables:
        return {}
    from hayase.tables import TYPES
    from hayase.tables.lookups import TableLookup

    known = [table for table in declaration.tables if all(kind in TYPES for _, kind in table.columns)]
    return {table.name: TableLookup(table, _place(home, table.name)) for table in known}


def located_functions(functions: Sequence[FunctionDeclaration], home: Path | None) -> tuple[FunctionDeclaration, ...]:
    """Return the functions with the directory in which their code is: in the home once it is shipped.

    That code is checked and loaded: a worker that cannot load a function must not blame the records.
    """
    shipped = [function for function in functions if function.code is not None and home is not None]
    if not shipped:
        return tuple(functions)
    from hayase.operations.shipped_code import check_shipped

    located = []
    for function in functions:
        if function in shipped:
            directory = (home or Path()) / "definitions" / "code" / (function.code or "")
            check_shipped(directory)
            function = replace(function, directory=str(directory.absolute()))
            UserFunction(function).load()
        located.append(function)
    return tuple(located)


def _place(home: Path | None, table: str) -> Path:
    return (home or Path()) / "tables" / table


def _streams(declared: Sequence[StreamDeclaration], stages: Sequence[Stage]) -> dict[str, StreamDeclaration]:
    """Return streams by name: the declared ones and the outputs of stages."""
    return {stream.name: stream for stream in declared} | {stage.stream.name: stage.stream for stage in stages}


def _in_order(stages: Sequence[Stage]) -> list[Stage]:
    """Sort stages so that each comes after those whose output it reads, otherwise stably; a loop starts with its first
    stage."""
    remaining, ordered = list(stages), list[Stage]()
    while remaining:
        waiting = {stage.name for stage in remaining}
        free = [
            stage for stage in remaining if not any(input_.stream in waiting for input_ in stage.inputs)
        ] or remaining[:1]
        ordered += free
        remaining = [stage for stage in remaining if stage not in free]
    return ordered
