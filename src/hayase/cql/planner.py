"""From the declared queries of a pipeline to its stages, in an order in which each reads only what came before it.

`plan` never raises for what somebody wrote: it reports all mistakes of all queries, each with line and column within
its query's text. A query that reads one with mistakes is passed over: there is nothing yet to say about it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from graphlib import TopologicalSorter
from types import MappingProxyType

from hayase.core.declarations import EVENT_TIME, PipelineDeclaration, StreamDeclaration
from hayase.core.errors import DeclarationError, Mistake, suggestion
from hayase.core.stages import Lookup, Stage
from hayase.cql import logical
from hayase.cql.distribution import check_keys, cut, leaves, source_of
from hayase.cql.outputs import intermediate_stream, output_stream, written_columns
from hayase.cql.projection import chooses_time, is_stateless, stateless_stage
from hayase.cql.resolution import resolve
from hayase.cql.rewrites import rewrite
from hayase.cql.shared_windows import check_windows, split_windows
from hayase.cql.snapshot_triggers import Triggers
from hayase.cql.stage_builder import QueryFacts, build_stage
from hayase.cql.stage_drafts import Draft
from hayase.cql.stateless_views import read_through_views
from hayase.cql.statement import Statement, parse

__all__ = ["Planned", "PlannedQuery", "plan"]


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query on its way to its stages: what it means, and what was made of it. The last stage is the query's own."""

    name: str
    text: str
    logical: logical.Node
    drafts: tuple[Draft, ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """The stages, sources first, and what is wrong, by query."""

    stages: tuple[Stage, ...] = ()
    mistakes: tuple[tuple[str, Mistake], ...] = ()
    queries: tuple[PlannedQuery, ...] = ()


def plan(
    declaration: PipelineDeclaration,
    lookups: Mapping[str, Lookup] = MappingProxyType({}),
    expected: Collection[str] = (),
) -> Planned:
    """The stages of all queries of a pipeline. `lookups` are its tables, by name, as queries meet them.

    `expected` are streams that others will write and whose columns are not known yet: a query that reads one is passed over.

    >>> from hayase.core.declarations import QueryDeclaration, StreamDeclaration
    >>> events = StreamDeclaration("events", "time timestamp, user_id string, amount double", time="time")
    >>> big = QueryDeclaration("big", "select user_id, amount * 1.1 as gross from events where amount > 100")
    >>> plan(PipelineDeclaration("shop", (events,), (big,))).stages[0].stream.schema
    'user_id string, gross double, time timestamp'
    """
    found: dict[str, list[Mistake]] = {query.name: [] for query in declaration.queries}
    texts = {query.name: query.text for query in declaration.queries}
    statements: dict[str, Statement] = {}
    for name, text in texts.items():
        try:
            statements[name] = parse(text)
        except DeclarationError as error:
            found[name] += error.mistakes
    pipeline = _QueryPlanner(declaration, lookups)
    tables = [each.name for each in declaration.tables]
    names = {name.lower(): name for name in (*expected, *pipeline.streams, *found, *tables)}
    sources = {name: tuple(names.get(part.text.lower()) for part in each.sources) for name, each in statements.items()}
    circles = _cycles(sources)
    for name in _in_order({name: each for name, each in sources.items() if name not in circles}):
        statement = statements[name]
        unknown = [part for part, source in zip(statement.sources, sources[name]) if source is None]
        for part in unknown:
            hint = suggestion(part.text, names.values())
            found[name].append(part.mistake(f'unknown stream "{part.text}"', hint))
        unread = [source in tables and source not in lookups for source in sources[name]]
        for part, is_unread in zip(statement.sources, unread):
            if is_unread:
                hint = "give `plan` a lookup for it"
                found[name].append(part.mistake(f'the table "{part.text}" cannot be looked up here', hint))
        if not unknown and all(source in pipeline.known for source in sources[name]):
            try:
                pipeline.add(name, texts[name], statement, [source for source in sources[name] if source])
            except DeclarationError as error:
                found[name] += error.mistakes
    for name, circle in circles.items():
        message = f"queries read each other: {' -> '.join(circle)}"
        part = statements[name].sources[sources[name].index(circle[1])]
        found[name].append(part.mistake(message, "let one of them read a declared stream"))
    stages = tuple(draft.stage for query in pipeline.queries for draft in query.drafts)
    mistakes = tuple((name, each) for name, mistakes in found.items() for each in mistakes)
    return Planned(stages, mistakes, tuple(pipeline.queries))


class _QueryPlanner:
    """What is planned so far: the streams there are, the declared ones behind each, and the queries that are views."""

    def __init__(self, declared: PipelineDeclaration, lookups: Mapping[str, Lookup]):
        for each in declared.aggregates:
            each.load()
        self._aggregates = {each.name.lower(): each.source for each in declared.aggregates}
        self.streams = {each.name: each for each in declared.streams}
        self.queries: list[PlannedQuery] = []
        self._tables = {each.name: lookups[each.name] for each in declared.tables if each.name in lookups}
        self._bases: dict[str, tuple[StreamDeclaration, ...]] = {each.name: (each,) for each in declared.streams}
        self._views: dict[str, Draft] = {}
        self._triggers = Triggers()

    @property
    def known(self) -> set[str]:
        """What a query may read by now."""
        return {*self.streams, *self._tables}

    def add(self, name: str, text: str, statement: Statement, sources: Sequence[str]) -> None:
        """Plan one more query, or raise DeclarationError with everything that is wrong with it."""
        read = {source: self.streams[source] for source in sources if source in self.streams}
        tables = {source: self._tables[source] for source in sources if source in self._tables}
        root = resolve(statement, read, self._aggregates, tables)
        stateless = is_stateless(root)
        mistakes = [*([] if stateless else [*check_keys(root), *_event_time_mistakes(root)]), *check_windows(root)]
        if mistakes:
            raise DeclarationError(sorted(mistakes, key=lambda each: (each.line or 0, each.column or 0)))
        behind = {base.name: base for source in read for base in self._bases[source]}
        chosen = stateless and chooses_time(
            root
        )  # who reads it must read its event times, which stand in its log alone
        if not chosen:
            self._triggers.add(name, root, is_view=stateless)
        made = (
            [stateless_stage(name, root, statement.canon)]
            if stateless
            else self._build_stages(name, root, statement.canon)
        )
        drafts = tuple(read_through_views(self._views, draft) for draft in made)
        self._bases[name] = tuple(behind.values())
        self.streams[name] = drafts[-1].stage.stream
        if chosen:
            self._bases[name] = (self.streams[name],)
        elif stateless:
            self._views[name] = drafts[-1]
        self.queries.append(PlannedQuery(name, text, root, drafts))

    def _build_stages(self, name: str, root: logical.Node, canon: str) -> list[Draft]:
        bases: dict[str, Sequence[StreamDeclaration]] = dict(self._bases)
        facts = QueryFacts.of(root, canon, bases, self._triggers.of(name))
        drafts: list[Draft] = []
        for each in cut(name, rewrite(split_windows(root)), partial(intermediate_stream, facts.times)):
            sources = [source_of(leaf).declaration.name for leaf in leaves(each.root)]
            bases[each.name] = tuple({one.name: one for source in sources for one in bases[source]}.values())
            if each.name == name:
                output = output_stream(facts.times, name, each.root)
            else:
                output = intermediate_stream(facts.times, each.name, each.root.schema)
            drafts.append(build_stage(each, facts, output))
        return drafts


def _event_time_mistakes(root: logical.Node) -> list[Mistake]:
    """Columns called `event_time` of a query whose operators decide themselves when a row appears."""
    hint = "name it differently with AS; a query of its own that reads this one can choose: select ..., x as event_time from this"
    message = "the event time of these results is when they come and go"
    found = [each.value for each in written_columns(root) if each.name.lower() == EVENT_TIME]
    return [Mistake(message, hint, None, each.line, each.column) for each in found]


def _cycles(sources: Mapping[str, Sequence[str | None]]) -> dict[str, list[str]]:
    """Of each query that comes to read itself, a shortest way round."""
    circles: dict[str, list[str]] = {}
    for name in sources:
        ways = [[name]]
        seen: set[str] = set()
        while ways and name not in circles:
            way = ways.pop(0)
            for source in sources.get(way[-1], ()):
                if source == name:
                    circles.setdefault(name, [*way, name])
                elif source is not None and source not in seen:
                    seen.add(source)
                    ways.append([*way, source])
    return circles


def _in_order(sources: Mapping[str, Sequence[str | None]]) -> list[str]:
    graph = {name: [each for each in read if each is not None and each in sources] for name, read in sources.items()}
    return list(TopologicalSorter(graph).static_order())
