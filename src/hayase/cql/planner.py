"""Plans the queries of a pipeline: from their texts to stages, in an order in which every stage comes after its inputs.

`plan` does not raise for mistakes in queries. It returns all mistakes of all queries, with line and column within the text of
the query. A query that reads one with mistakes is skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from graphlib import TopologicalSorter
from types import MappingProxyType

from hayase.core.data_classes import dataclass
from hayase.core.declarations import EVENT_TIME, PipelineDeclaration, StreamDeclaration
from hayase.core.errors import DeclarationError, Mistake, by_place, suggestion
from hayase.core.stages import Lookup, Stage
from hayase.cql import logical
from hayase.cql.distribution import check_keys, cut, leaves, source_of
from hayase.cql.function_calls import FunctionCalls
from hayase.cql.macros import Expansion, Macros
from hayase.cql.nested_streams import nested_sources
from hayase.cql.outputs import intermediate_stream, output_stream, written_columns
from hayase.cql.projection import chooses_time, is_stateless, stateless_stage
from hayase.cql.resolution import resolve
from hayase.cql.rewrites import rewrite
from hayase.cql.row_order import result_order
from hayase.cql.shared_windows import recompute_calls, split_windows
from hayase.cql.snapshot_triggers import Triggers
from hayase.cql.stage_builder import QueryFacts, build_stage
from hayase.cql.stage_drafts import Draft
from hayase.cql.stateless_views import read_through_views
from hayase.cql.statement import Statement, parse

__all__ = ["Planned", "PlannedQuery", "plan"]


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A planned query: its logical plan, and the drafts of its stages. The last stage writes the result."""

    name: str
    text: str
    logical: logical.Node
    drafts: tuple[Draft, ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """The stages, sources first, and all mistakes, with the name of the query."""

    stages: tuple[Stage, ...] = ()
    mistakes: tuple[tuple[str, Mistake], ...] = ()
    queries: tuple[PlannedQuery, ...] = ()


def plan(
    declaration: PipelineDeclaration,
    lookups: Mapping[str, Lookup] = MappingProxyType({}),
    expected: Collection[str] = (),
) -> Planned:
    """Plan all queries of a pipeline. `lookups` are the tables that queries can join, by name.

    `expected` are streams of other stages whose columns are not known yet; a query that reads one is skipped.

    >>> from hayase.core.declarations import QueryDeclaration, StreamDeclaration
    >>> events = StreamDeclaration("events", "time timestamp, user_id string, amount double", time="time")
    >>> big = QueryDeclaration("big", "select user_id, amount * 1.1 as gross from events where amount > 100")
    >>> plan(PipelineDeclaration("shop", (events,), (big,))).stages[0].stream.schema
    'user_id string, gross double, time timestamp'
    """
    mistakes_by_query: dict[str, list[Mistake]] = {query.name: [] for query in declaration.queries}
    texts = {query.name: query.text for query in declaration.queries}
    pipeline = _QueryPlanner(declaration, lookups)
    statements: dict[str, Statement] = {}
    for name, text in texts.items():
        try:
            statements[name] = pipeline.parse(name, text)
        except DeclarationError as error:
            mistakes_by_query[name] += error.mistakes
    tables = [table.name for table in declaration.tables]
    names = {name.lower(): name for name in (*expected, *pipeline.streams, *mistakes_by_query, *tables)}
    sources = {
        name: tuple(names.get(part.text.lower()) for part in parsed.sources) for name, parsed in statements.items()
    }
    cycles = _cycles(sources)
    for name in _in_order({name: read for name, read in sources.items() if name not in cycles}):
        statement = statements[name]
        unknown = [part for part, source in zip(statement.sources, sources[name]) if source is None]
        for part in unknown:
            hint = suggestion(part.text, (known for known in names.values() if known != name))
            mistakes_by_query[name].append(part.mistake(f'unknown stream "{part.text}"', hint))
        for part, source in zip(statement.sources, sources[name]):
            if source in tables and source not in lookups:
                hint = "give `plan` a lookup for it"
                mistakes_by_query[name].append(part.mistake(f'the table "{part.text}" cannot be looked up here', hint))
        if not unknown and all(source in pipeline.known for source in sources[name]):
            try:
                pipeline.add(name, texts[name], statement, [source for source in sources[name] if source])
            except DeclarationError as error:
                mistakes_by_query[name] += error.mistakes
    for name, cycle in cycles.items():
        message = f"queries read each other: {' -> '.join(cycle)}"
        part = statements[name].sources[sources[name].index(cycle[1])]
        mistakes_by_query[name].append(part.mistake(message, "let one of them read a declared stream"))
    stages = tuple(draft.stage for query in pipeline.queries for draft in query.drafts)
    mistakes = tuple(
        (name, pipeline.placed(name, mistake)) for name, mistakes in mistakes_by_query.items() for mistake in mistakes
    )
    return Planned(stages, mistakes, tuple(pipeline.queries))


class _QueryPlanner:
    """Plans one query after the other, and keeps the streams, the declared streams behind each, and the views so far."""

    def __init__(self, declared: PipelineDeclaration, lookups: Mapping[str, Lookup]):
        for aggregate in declared.aggregates:
            aggregate.load()
        self._aggregates = {aggregate.name.lower(): aggregate.source for aggregate in declared.aggregates}
        self._calls = FunctionCalls(declared.functions)
        self._macros = Macros(declared.functions)
        self._expansions: dict[str, Expansion] = {}
        self.streams = {stream.name: stream for stream in declared.streams}
        self.queries: list[PlannedQuery] = []
        self._tables = {table.name: lookups[table.name] for table in declared.tables if table.name in lookups}
        self._bases: dict[str, tuple[StreamDeclaration, ...]] = {stream.name: (stream,) for stream in declared.streams}
        self._views: dict[str, Draft] = {}
        self._triggers = Triggers()

    @property
    def known(self) -> set[str]:
        """The names of the streams and tables that a query can read so far."""
        return {*self.streams, *self._tables}

    def parse(self, name: str, text: str) -> Statement:
        """Parse a query, with its calls of SQL functions replaced. Raise DeclarationError with all mistakes in its syntax."""
        self._expansions[name] = Expansion(text, text)  # for mistakes in the calls
        self._expansions[name] = self._macros.expand(text)
        statement = parse(self._expansions[name].text, self._calls.names)
        return replace(statement, canon=self._calls.with_versions(statement.canon))

    def placed(self, name: str, mistake: Mistake) -> Mistake:
        """Return a mistake in a parsed query at its place in the text as written."""
        return self._expansions[name].placed(mistake)

    def add(self, name: str, text: str, statement: Statement, sources: Sequence[str]) -> None:
        """Plan one more query. Raise DeclarationError with all its mistakes."""
        read = {source: self.streams[source] for source in sources if source in self.streams}
        tables = {source: self._tables[source] for source in sources if source in self._tables}
        calls = self._calls.inside(self._expansions[name])
        root = recompute_calls(resolve(statement, read, self._aggregates, tables, calls, name))
        inner = [
            (nested.declaration.name, recompute_calls(nested.query)) for nested in nested_sources(root) if nested.query
        ]
        mistakes = [mistake for _, plan in (*inner, (name, root)) for mistake in _plan_mistakes(plan)]
        if mistakes:
            raise DeclarationError(sorted(mistakes, key=by_place))
        order: tuple[tuple[str, bool, bool], ...] = ()
        if not isinstance(root, logical.ToStream):
            order = result_order(statement.query.ordering, root.schema.names)
        drafts: list[Draft] = []
        for stream, plan in inner:
            built = self._plan(stream, plan, statement.canon, name, len(drafts) + 1)
            drafts += built if stream not in self._views else []  # its readers read what is behind the view
        drafts += self._plan(name, root, statement.canon, name, len(drafts) + 1, order)
        self.queries.append(PlannedQuery(name, text, root, tuple(drafts)))

    def _plan(
        self, name: str, root: logical.Node, canon: str, query: str, first: int,
        order: tuple[tuple[str, bool, bool], ...] = (),
    ) -> list[Draft]:  # fmt: skip
        """Plan the query itself, or a stream inside of it, whose stages are numbered from `first` on."""
        stateless = is_stateless(root)
        behind = {base.name: base for leaf in leaves(root) for base in self._bases[source_of(leaf).declaration.name]}
        chosen = stateless and chooses_time(root)  # then its log must be read: only that has its event times
        if not chosen:
            self._triggers.add(name, root, is_view=stateless)
        built = (
            [stateless_stage(name, root, canon)] if stateless else self._stages(name, root, canon, query, first, order)
        )
        drafts = [read_through_views(self._views, draft) for draft in built]
        self._bases[name] = tuple(behind.values())
        self.streams[name] = drafts[-1].stage.stream
        if chosen:
            self._bases[name] = (self.streams[name],)
        elif stateless:
            self._views[name] = drafts[-1]
        return drafts

    def _stages(
        self,
        name: str,
        root: logical.Node,
        canon: str,
        query: str,
        first: int,
        order: tuple[tuple[str, bool, bool], ...],
    ) -> list[Draft]:
        bases: dict[str, Sequence[StreamDeclaration]] = dict(self._bases)
        facts = QueryFacts.of(root, canon, bases, self._triggers.of(name))
        drafts: list[Draft] = []
        plan = rewrite(split_windows(root))
        for fragment in cut(query, plan, partial(intermediate_stream, facts.times), name, first):
            sources = [source_of(leaf).declaration.name for leaf in leaves(fragment.root)]
            bases[fragment.name] = tuple({base.name: base for source in sources for base in bases[source]}.values())
            if fragment.name == name:
                output = replace(output_stream(facts.times, name, fragment.root), order=order)
            else:
                output = intermediate_stream(facts.times, fragment.name, fragment.root.schema)
            drafts.append(build_stage(fragment, facts, output))
        return drafts


def _plan_mistakes(root: logical.Node) -> list[Mistake]:
    """Return the mistakes in a plan that keep it from being a stage."""
    return [] if is_stateless(root) else [*check_keys(root), *_event_time_mistakes(root)]


def _event_time_mistakes(root: logical.Node) -> list[Mistake]:
    """Return a mistake for every column named `event_time` of a stateful query: its operators set the event time."""
    hint = (
        "name it differently with AS, and list the columns where * would give it; "
        "a query of its own that reads this one can choose: select ..., x as event_time from this"
    )
    message = "the event time of these results is when rows appear and end"
    times = [output.value for output in written_columns(root) if output.name.lower() == EVENT_TIME]
    return [Mistake(message, hint, None, value.line, value.column) for value in times]


def _cycles(sources: Mapping[str, Sequence[str | None]]) -> dict[str, list[str]]:
    """Return a shortest cycle for every query that reads itself, directly or through others."""
    cycles: dict[str, list[str]] = {}
    for name in sources:
        paths = [[name]]
        seen: set[str] = set()
        while paths and name not in cycles:
            path = paths.pop(0)
            for source in sources.get(path[-1], ()):
                if source == name:
                    cycles.setdefault(name, [*path, name])
                elif source is not None and source not in seen:
                    seen.add(source)
                    paths.append([*path, source])
    return cycles


def _in_order(sources: Mapping[str, Sequence[str | None]]) -> list[str]:
    graph = {
        name: [source for source in read if source is not None and source in sources] for name, read in sources.items()
    }
    return list(TopologicalSorter(graph).static_order())
