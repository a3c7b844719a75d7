"""Queries that are not part of a pipeline yet: checked against it, planned, and added while it runs.

An added query is a new version of the definition, which lanes adopt between two batches. Like a change of an operation, it stays
when the pipeline's file is applied again, until the file declares something of its name (`proposals`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from hayase.core.data_classes import dataclass
from hayase.core.declarations import PipelineDeclaration, QueryDeclaration, StreamDeclaration
from hayase.core.errors import DeclarationError, Mistake, UnknownName
from hayase.core.pipeline_text import pipeline_text
from hayase.core.stages import Lookup, Stage
from hayase.cql.explain import explain
from hayase.cql.macros import Macros
from hayase.cql.plan_graph import kept_state
from hayase.cql.planner import PlannedQuery
from hayase.cql.planner import plan as plan_queries
from hayase.cql.statement import parse
from hayase.engine.definition.definitions import Definition, Start, planned
from hayase.engine.definition.proposals import Prepared, amend
from hayase.engine.definition.stage_graph import located_functions, lookups_of
from hayase.engine.home import Home

__all__ = [
    "AddedStage",
    "Addition",
    "add_query",
    "addition",
    "explain_query",
    "free_name",
    "part_with",
    "plan_query",
    "remove_query",
]


def free_name(declaration: PipelineDeclaration) -> str:
    """Return a name that nothing in the pipeline has, for a query without one."""
    name, taken = "result", _names(declaration)
    while name in taken:
        name += "_"
    return name


def _names(declaration: PipelineDeclaration) -> dict[str, str]:
    """Return the kind of everything that is declared, by its name in lower case."""
    names = {
        "stream": [stream.name for stream in declaration.streams],
        "query": [query.name for query in declaration.queries],
        "table": [table.name for table in declaration.tables],
        "job": [job.name for job in declaration.jobs],
        "operation": [operation.name for operation in declaration.operations],
    }
    return {name.lower(): kind for kind, listed in names.items() for name in listed}


# ---------------------------------------------------------------------------------------------------- planning


def part_with(definition: Definition, query: QueryDeclaration) -> PipelineDeclaration:
    """Return what a new query needs of a pipeline: itself, the queries that it reads, directly or through others, all streams
    and tables. The outputs of jobs and operations are streams in it, and nothing fills its tables."""
    whole = definition.declaration
    known = {other.name.lower(): other for other in whole.queries}
    wanted, functions = {query.name.lower(): query}, [function.name.lower() for function in whole.functions]
    remaining = [query]
    while remaining:
        for source in _sources(remaining.pop(), functions):
            other = known.get(source)
            if other is not None and source not in wanted:
                wanted[source] = other
                remaining.append(other)
    queries = {other.name for other in whole.queries}
    outputs = [
        record.output
        for record in definition.without_build().records
        if record.query not in queries and not record.name.startswith("_")
    ]
    streams = (*whole.streams, *(output for output in outputs if isinstance(output, StreamDeclaration)))
    order = [other for other in whole.queries if wanted.get(other.name.lower()) is other]
    return replace(whole, streams=streams, queries=(*order, query), jobs=(), operations=(), rules=(), governor=None)


def _sources(query: QueryDeclaration, functions: Iterable[str]) -> Iterator[str]:
    """Yield the names that a query reads, in lower case; none if its text has mistakes, which the planner reports."""
    try:
        for part in parse(query.text, frozenset(functions)).sources:
            yield part.text.lower()
    except DeclarationError:
        return


def plan_query(definition: Definition, name: str, text: str) -> PlannedQuery:
    """Return the plan of a new query. DeclarationError lists its mistakes, with line and column in the text."""
    taken = _names(definition.declaration).get(name.lower())
    if taken is not None:
        raise DeclarationError(f'"{name}" is a {taken} of this pipeline', "give the query another name")
    part, lookups = _located_part(definition, name, text)
    result = plan_queries(part, lookups)
    mistakes = [mistake for query_name, mistake in result.mistakes if query_name == name]
    mistakes += [mistake for _, mistake in Macros(part.functions).mistakes]
    for planned_query in result.queries:
        if planned_query.name == name and not mistakes:
            return replace(planned_query, text=text)
    others = [
        Mistake(f'it reads "{query_name}", which has mistakes: {mistake.message}', mistake.hint)
        for query_name, mistake in result.mistakes
    ]
    raise DeclarationError(mistakes or others)


def explain_query(definition: Definition, name: str, text: str) -> str:
    """Return the text that explains how a new query would run. DeclarationError if it has mistakes."""
    part, lookups = _located_part(definition, name, text)
    return explain(part, name, lookups)


def _located_part(definition: Definition, name: str, text: str) -> tuple[PipelineDeclaration, Mapping[str, Lookup]]:
    """Return what a query needs, with its functions as they are in the home, and its tables."""
    part, home = part_with(definition, QueryDeclaration(name, text)), definition.home.path
    return replace(part, functions=located_functions(part.functions, home)), lookups_of(part, home)


# ---------------------------------------------------------------------------------------------------- additions


@dataclass(frozen=True, slots=True)
class AddedStage:
    """A stage that a new query would add: what it reads, the stages that share its pass over that, where it runs, and what it
    keeps from batch to batch."""

    name: str
    lane: str
    reads: tuple[str, ...]
    shares: tuple[str, ...]
    keeps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Addition:
    """What adding a query would do: the stages, the stages of other queries that are planned differently because of it, and the
    lines that declare it in a pipeline file."""

    version: int
    stages: tuple[AddedStage, ...]
    changed: tuple[str, ...]
    declaration: str

    def as_json(self) -> dict[str, Any]:
        """Return plain data for a JSON writer."""
        stages = [
            {"name": stage.name, "lane": stage.lane, "reads": stage.reads, "shares": stage.shares, "keeps": stage.keeps}
            for stage in self.stages
        ]
        changed, declaration = list(self.changed), self.declaration
        return {"version": self.version, "stages": stages, "changed": changed, "declaration": declaration}


def addition(current: Definition, name: str, text: str) -> Addition:
    """Return what adding a query to a definition would do; nothing is written. DeclarationError lists its mistakes."""
    query = plan_query(current, name, text)
    declaration = _with_query(current, name, text)
    before, after = planned(current.declaration, current.home), planned(declaration, current.home)
    state = {draft.stage.name: tuple(kept_state(draft)) for draft in query.drafts}
    stages = tuple(
        AddedStage(
            stage.name,
            stage.lane,
            tuple(dict.fromkeys(stage_input.stream for stage_input in stage.inputs)),
            _shared_with(stage, after),
            state.get(stage.name, ()),
        )
        for stage in after.values()
        if stage.name not in before
    )
    changed = tuple(
        other for other, stage in before.items() if other in after and after[other].fingerprint != stage.fingerprint
    )
    part = PipelineDeclaration(declaration.name, queries=(QueryDeclaration(name, text),))
    return Addition(current.version, stages, changed, pipeline_text(part).partition("\n")[2])


def _shared_with(stage: Stage, stages: Mapping[str, Stage]) -> tuple[str, ...]:
    if stage.shared_scan is None:
        return ()
    group = stage.shared_scan.group
    return tuple(
        other.name
        for other in stages.values()
        if other.shared_scan is not None and other.shared_scan.group == group and other.name != stage.name
    )


def _with_query(current: Definition, name: str, text: str) -> PipelineDeclaration:
    declaration = current.declaration
    return replace(declaration, queries=(*declaration.queries, QueryDeclaration(name, text)))


def add_query(home: Home, name: str, text: str, start: Start = "earliest") -> Definition:
    """Add a query to the newest definition; it starts at the earliest retained record, or with records from `now` on."""

    def edit(current: Definition) -> Prepared:
        plan_query(current, name, text)
        declaration = _with_query(current, name, text)
        return replace(Prepared.of(current), declaration=declaration, added=(*current.added, name))

    return amend(home, edit, {name: start})


def remove_query(home: Home, name: str) -> Definition:
    """Remove a query that was added by command; its output stays. Refused if the file declares it, or while others read it."""

    def edit(current: Definition) -> Prepared:
        queries = current.declaration.queries
        if name not in {query.name for query in queries}:
            raise UnknownName("query", name, current.added)
        if name not in current.added:
            raise DeclarationError(
                f'query "{name}" is declared by the file of the pipeline', "remove it there, and apply the file"
            )
        own = {record.name for record in current.records if record.query == name}
        readers = {record.query for record in current.records if record.query != name and own & {*record.inputs}}
        if readers:
            listed = ", ".join(f'"{reader}"' for reader in sorted(readers))
            raise DeclarationError(f'query "{name}" is read by {listed}', "change or remove what reads it first")
        kept = tuple(query for query in queries if query.name != name)
        added = tuple(query for query in current.added if query != name)
        return replace(Prepared.of(current), declaration=replace(current.declaration, queries=kept), added=added)

    return amend(home, edit)
