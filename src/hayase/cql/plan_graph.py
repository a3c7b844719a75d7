"""The plan of a query as a graph, for a picture: what it reads, the map sides and operators of its stages, and its result.

It has the same content as the stages of `explain`, whose texts it uses. Edges go from what is read to what reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from typing import Literal

from hayase.core.data_classes import dataclass
from hayase.core.declarations import LIFETIME_COLUMNS
from hayase.core.scalar_functions import shown
from hayase.cql.explain import input_lines, operator_text, placement
from hayase.cql.planner import PlannedQuery
from hayase.cql.stage_drafts import Draft, LookupStep
from hayase.lifetimes import plans

__all__ = ["PlanGraph", "PlanNode", "kept_state", "plan_graph"]

PlanNodeKind = Literal["stream", "table", "map side", "operator", "result"]


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node: `name` is unique in the graph, `title` a word or two, `lines` the details. Sources belong to no stage."""

    name: str
    kind: PlanNodeKind
    title: str
    lines: tuple[str, ...] = ()
    stage: str | None = None


@dataclass(slots=True)
class PlanGraph:
    """Nodes, sources first, and edges as (source, target) of their names."""

    nodes: list[PlanNode] = field(default_factory=list)
    edges: list[tuple[str, str]] = field(default_factory=list)

    def add(self, node: PlanNode) -> str:
        """Add a node, unless it is there already, and return its name."""
        if node not in self.nodes:
            self.nodes.append(node)
        return node.name


def plan_graph(query: PlannedQuery) -> PlanGraph:
    """Return the graph of a planned query.

    >>> from hayase.core.declarations import PipelineDeclaration, QueryDeclaration, StreamDeclaration
    >>> from hayase.cql.planner import plan
    >>> events = StreamDeclaration("events", "time timestamp, user_id string, amount double", time="time")
    >>> big = QueryDeclaration("big", "select user_id from events where amount > 100")
    >>> graph = plan_graph(plan(PipelineDeclaration("shop", (events,), (big,))).queries[0])
    >>> [(node.kind, node.title) for node in graph.nodes], graph.edges[0]
    ([('stream', 'events'), ('map side', 'Record by record'), ('result', 'big')], ('stream events', 'big input 0'))
    """
    graph = PlanGraph()
    written: dict[str, str] = {}
    """The node that writes a stream within the query, by the name of the stream."""
    for draft in query.drafts:
        inputs = [_add_input(graph, draft, number, written) for number in range(len(draft.stage.inputs))]
        last = inputs
        if draft.plan is not None:
            read: set[int] = set()
            root = _add_operator(graph, draft, draft.plan, inputs, read)
            graph.edges += [(name, root) for number, name in enumerate(inputs) if number not in read]
            last = [root]
        output = draft.stage.stream
        is_result = draft is query.drafts[-1]
        kind = "relation" if output.lifetimes else "stream"
        names = output.arrow_schema.names[: -len(LIFETIME_COLUMNS)] if output.lifetimes else output.arrow_schema.names
        shown_names = [name for name in names if not (output.hides_time and name == output.time)]
        lines = (f"a {kind} of {', '.join(shown_names)}", placement(draft))
        title = output.name if is_result else "Intermediate result"
        result = graph.add(
            PlanNode(
                f"{draft.stage.name} result", "result" if is_result else "operator", title, lines, draft.stage.name
            )
        )
        written[output.name] = result
        graph.edges += [(name, result) for name in last]
    return graph


def _add_input(graph: PlanGraph, draft: Draft, number: int, written: dict[str, str]) -> str:
    """Add the map side of an input with what it reads; return its name."""
    stage_input, draft_input = draft.stage.inputs[number], draft.draft_inputs[number]
    is_whole = draft.stage.kernel is None
    lines = [shown(line) for line in input_lines(stage_input, draft_input, is_whole)]
    if draft_input.views:
        lines.insert(0, f"through {', '.join(reversed(draft_input.views))}")
    title = "Record by record" if is_whole else {"rows": "Map side", "clock": "Clock"}.get(draft_input.role, "Times")
    stage = draft.stage.name
    stream = stage_input.stream
    sources = [written.get(stream) or graph.add(PlanNode(f"stream {stream}", "stream", stream))]
    tables = [step.join.table.table.name for step in draft_input.steps if isinstance(step, LookupStep)]
    sources += [graph.add(PlanNode(f"table {table}", "table", table)) for table in tables]
    name = graph.add(PlanNode(f"{stage} input {number}", "map side", title, tuple(lines), stage))
    graph.edges += [(source, name) for source in sources]
    return name


def _add_operator(graph: PlanGraph, draft: Draft, node: plans.Node, inputs: list[str], read: set[int]) -> str:
    """Add an operator after those that it reads; return its name. `read` receives the numbers of the inputs that are read."""
    sources = [_add_operator(graph, draft, child, inputs, read) for child in plans.children(node)]
    for number in _inputs_of(node):
        read.add(number)
        sources.append(inputs[number])
    title, details = _title_and_details(shown(operator_text(node)))
    stage = draft.stage.name
    place = sum(other.stage == stage and other.kind == "operator" for other in graph.nodes)
    name = graph.add(PlanNode(f"{stage} operator {place}", "operator", title, details, stage))
    graph.edges += [(source, name) for source in dict.fromkeys(sources)]
    return name


def _inputs_of(node: plans.Node) -> Iterator[int]:
    match node:
        case plans.Windowed():
            yield node.input
            if isinstance(node.window, plans.Rows):
                yield node.window.ticks
        case plans.Lifetimes() | plans.Changes() | plans.Shared() | plans.Instants():
            yield node.input


def _title_and_details(text: str) -> tuple[str, tuple[str, ...]]:
    """Divide a line about an operator into its first word and the rest."""
    match = re.match(r"(Shared windows|Union all|Asof join|\w+)[:,]? ?(.*)", text, re.DOTALL)
    return (match[1], (match[2],) if match[2] else ()) if match else (text, ())


def kept_state(draft: Draft) -> list[str]:
    """Return what a stage keeps from batch to batch: a line for every operator with state; empty if it keeps nothing."""
    return [] if draft.plan is None else [shown(line) for line in _kept(draft.plan)]


def _kept(node: plans.Node) -> Iterator[str]:
    if not isinstance(node, (plans.Scalar, plans.UnionAll, plans.Unnest, plans.Instants, plans.ToStream)):
        yield operator_text(node)
    for child in plans.children(node):
        yield from _kept(child)
