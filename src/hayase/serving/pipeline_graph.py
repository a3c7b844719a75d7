"""The graph of a pipeline: streams, stages with their outputs, tables, and what reads what; and how each node is declared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from hayase.core.declarations import PipelineDeclaration, StreamDeclaration, TableDeclaration
from hayase.core.errors import DeclarationError, UnknownName
from hayase.core.pipeline_text import pipeline_text
from hayase.core.stages import Stage
from hayase.core.times import duration_text
from hayase.cql.explain import explain
from hayase.cql.statement import parse
from hayase.engine.definition.definitions import Definition, StageRecord, stages_of
from hayase.engine.definition.stage_graph import lookups_of

__all__ = ["Edge", "Graph", "Node", "declaration_of", "explanation_of", "graph_of"]

NodeKind = Literal["stream", "query", "job", "operation", "table"]


@dataclass(frozen=True, slots=True)
class Node:
    """A declared stream, a stage with its output, or a table. Internal stages are parts of what was declared."""

    name: str
    kind: NodeKind
    part_of: str | None = None
    lane: str | None = None
    shares: tuple[str, ...] = ()
    every: str | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """The target reads the records of the source, or looks rows up in it."""

    source: str
    target: str
    kind: Literal["reads", "looks up"] = "reads"


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in the order of the declaration, each once, and edges between them."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def node(self, name: str) -> Node:
        """Return the node of that name."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise UnknownName("node", name, [node.name for node in self.nodes], " of the pipeline")


def graph_of(definition: Definition) -> Graph:
    """Return the graph of a definition; it is built once for each."""
    return _graph(definition)


@lru_cache(maxsize=4)
def _graph(definition: Definition) -> Graph:
    declaration = definition.declaration
    kinds = _kinds(declaration)
    shares = _shares(stages_of(definition).values())
    nodes = {stream.name: Node(stream.name, "stream") for stream in declaration.streams}
    for record in definition.records:
        nodes[record.name] = Node(
            record.name,
            kinds.get(record.query) or ("table" if isinstance(record.output, TableDeclaration) else "query"),
            None if record.name == record.query else record.query,
            record.lane,
            shares.get(record.name, ()),
            None if not record.every else duration_text(record.every),
        )
    nodes |= {table.name: Node(table.name, "table") for table in declaration.tables if table.name not in nodes}
    edges = dict.fromkeys(edge for edge in _edges(definition) if edge.source in nodes and edge.target in nodes)
    return Graph(tuple(nodes.values()), tuple(edges))


def _kinds(declaration: PipelineDeclaration) -> dict[str, NodeKind]:
    kinds: dict[str, NodeKind] = {table.name: "table" for table in declaration.tables}
    kinds |= {operation.name: "operation" for operation in declaration.operations}
    kinds |= {job.name: "job" for job in declaration.jobs}
    return kinds | {query.name: "query" for query in declaration.queries}


def _shares(stages: Iterable[Stage]) -> Mapping[str, tuple[str, ...]]:
    """Return, for each stage that can share a scan, the other stages of its group."""
    groups: dict[str, list[str]] = {}
    for stage in stages:
        if stage.shared_scan is not None:
            groups.setdefault(stage.shared_scan.group, []).append(stage.name)
    return {
        name: tuple(other for other in members if other != name)
        for members in groups.values()
        if len(members) > 1
        for name in members
    }


def _edges(definition: Definition) -> Iterator[Edge]:
    tables = {table.name.lower(): table.name for table in definition.declaration.tables}
    texts = {query.name: query.text for query in definition.declaration.queries}
    for record in definition.records:
        for stream in record.inputs:
            yield Edge(stream, record.name)
        if record.output.name != record.name:
            yield Edge(record.name, record.output.name)
        for table in record.meets:
            yield Edge(table, record.name, "looks up")
        for table in _tables_named(texts.get(record.name), tables):
            yield Edge(table, record.name, "looks up")


def _tables_named(text: str | None, tables: Mapping[str, str]) -> Iterator[str]:
    if text is None or not tables:
        return
    try:
        sources = parse(text).sources
    except DeclarationError:  # a definition is not written with such a query
        return
    for part in sources:
        if part.text.lower() in tables:
            yield tables[part.text.lower()]


# ---------------------------------------------------------------------------------------------------- declarations


def declaration_of(definition: Definition, node: Node) -> str:
    """Return the part of the pipeline file that declares a node, as YAML."""
    name, whole = node.part_of or node.name, definition.declaration
    tables = tuple(table for table in whole.tables if table.name == name)
    part = PipelineDeclaration(
        whole.name,
        streams=tuple(stream for stream in whole.streams if stream.name == name),
        queries=tuple(query for query in whole.queries if query.name == name),
        jobs=tuple(job for job in whole.jobs if job.name == name),
        operations=tuple(operation for operation in whole.operations if operation.name == name),
        tables=tables,
        rules=tuple(rules for rules in whole.rules if tables and name in rules.text),
    )
    return pipeline_text(part).partition("\n")[2]  # without the line that names the pipeline


def explanation_of(definition: Definition, node: Node) -> str | None:
    """Return what `hayase explain` says about the query of a node; None if it is no query."""
    if node.kind != "query":
        return None
    whole = definition.declaration
    queries = {query.name for query in whole.queries}
    outputs = [record.output for record in definition.records if _is_input(record, queries)]
    streams = (*whole.streams, *(output for output in outputs if isinstance(output, StreamDeclaration)))
    plain = replace(whole, streams=streams, jobs=(), operations=())  # their outputs are streams here
    return explain(plain, node.part_of or node.name, lookups_of(whole, definition.home.path))


def _is_input(record: StageRecord, queries: set[str]) -> bool:
    return record.query not in queries and not record.name.startswith("_")
