"""From the declared queries of a pipeline to its stages, in an order in which each reads only what came before it.

`plan` never raises for what somebody wrote: it reports all mistakes of all queries, each with line and column within
its query's text. A query that reads one with mistakes is passed over: there is nothing yet to say about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter

from hayase.core.declarations import PipelineDeclaration
from hayase.core.errors import DeclarationError, Mistake, nearest
from hayase.core.stages import Stage
from hayase.cql.resolution import stage_of
from hayase.cql.statement import Statement, parse
from hayase.cql.views import through

__all__ = ["Planned", "plan"]


@dataclass(frozen=True, slots=True)
class Planned:
    """The stages, sources first, and what is wrong, by query."""

    stages: tuple[Stage, ...] = ()
    mistakes: tuple[tuple[str, Mistake], ...] = ()


def plan(declaration: PipelineDeclaration) -> Planned:
    """The stages of all queries of a pipeline.

    >>> from hayase.core.declarations import QueryDeclaration, StreamDeclaration
    >>> events = StreamDeclaration("events", "time timestamp, user_id string, amount double", time="time")
    >>> big = QueryDeclaration("big", "select user_id, amount * 1.1 as gross from events where amount > 100")
    >>> plan(PipelineDeclaration("shop", (events,), (big,))).stages[0].output.schema
    'user_id string, gross double, time timestamp'
    """
    found: dict[str, list[Mistake]] = {query.name: [] for query in declaration.queries}
    statements: dict[str, Statement] = {}
    for query in declaration.queries:
        try:
            statements[query.name] = parse(query.text)
        except DeclarationError as error:
            found[query.name] += error.mistakes
    streams = {each.name: each for each in declaration.streams}
    names = {name.lower(): name for name in (*streams, *found)}
    sources = {name: names.get(each.stream.text.lower()) for name, each in statements.items()}
    circles = _circles(sources)
    stages: list[Stage] = []
    for name in _in_order({name: source for name, source in sources.items() if name not in circles}):
        statement, source = statements[name], sources[name]
        if source is None:
            written = statement.stream.text
            hint = nearest(written, names.values()).removeprefix("; ") or None
            found[name].append(statement.stream.mistake(f'unknown stream "{written}"', hint))
        elif source in streams:
            try:
                stage = stage_of(name, statement, streams[source])
            except DeclarationError as error:
                found[name] += error.mistakes
            else:
                view = next((each for each in stages if each.name == source and each.kernel is None), None)
                stages.append(stage if view is None else through(view, stage))
                streams[name] = stage.output
    for name, circle in circles.items():
        message = f"queries read each other: {' -> '.join(circle)}"
        found[name].append(statements[name].stream.mistake(message, "let one of them read a declared stream"))
    return Planned(tuple(stages), tuple((name, each) for name, mistakes in found.items() for each in mistakes))


def _circles(sources: Mapping[str, str | None]) -> dict[str, list[str]]:
    """Of each query that comes to read itself, the way round."""
    circles: dict[str, list[str]] = {}
    for name in sources:
        way = [name]
        while (source := sources.get(way[-1])) is not None and source not in way:
            way.append(source)
        if source == name:
            circles[name] = [*way, name]
    return circles


def _in_order(sources: Mapping[str, str | None]) -> list[str]:
    graph = {name: [source] if source is not None and source in sources else [] for name, source in sources.items()}
    return list(TopologicalSorter(graph).static_order())
