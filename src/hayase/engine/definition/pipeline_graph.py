"""The graph of a pipeline: sources, streams, stages, tables and outputs, and what reads what; and how each node is declared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

from hayase.core.data_classes import dataclass
from hayase.core.declarations import PipelineDeclaration, StreamDeclaration, TableDeclaration
from hayase.core.errors import DeclarationError, UnknownName
from hayase.core.pipeline_text import pipeline_text
from hayase.core.stages import Stage, is_build
from hayase.core.times import duration_text
from hayase.cql.explain import explain
from hayase.cql.statement import parse
from hayase.engine.definition.definitions import Definition, StageRecord, stages_of
from hayase.engine.definition.stage_comparison import records_after
from hayase.engine.definition.stage_graph import lookups_of

__all__ = ["Edge", "Graph", "Node", "NodeKind", "declaration_of", "declared_graph", "explanation_of", "graph_of"]

NodeKind = Literal["source", "stream", "query", "job", "operation", "table", "output"]


@dataclass(frozen=True, slots=True)
class Node:
    """A declared source, stream, table or output, or a stage with its results. Internal stages are parts of what was declared.

    A source and its stream have the same declared name, and an output may have that of a stage. So `name`, which no two nodes
    share, is `source:orders` or `output:totals` for these, and `connector` is the declared name.
    """

    name: str
    kind: NodeKind
    part_of: str | None = None
    lane: str | None = None
    shares: tuple[str, ...] = ()
    every: str | None = None
    connector: str | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """The target reads the records of the source, or looks rows up in it; or a connector moves them from one to the other."""

    source: str
    target: str
    kind: Literal["reads", "looks up", "moves"] = "reads"


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
    return _graph_from(definition.declaration, definition.records, stages_of(definition).values())


def declared_graph(declaration: PipelineDeclaration, stages: Sequence[Stage]) -> Graph:
    """Return the graph of a declaration that no definition was written from yet, with its stages. An operation that has no stage
    yet, since only a trial tells its schema, is a node too."""
    records = records_after(None, {stage.name: stage for stage in stages}, {}, 1)
    graph = _graph_from(declaration, records, stages)
    known = {node.name for node in graph.nodes}
    pending = [operation for operation in declaration.operations if operation.name not in known]
    nodes = (*graph.nodes, *(Node(operation.name, "operation") for operation in pending))
    names = [node.name for node in nodes]
    edges = [
        Edge(name, operation.name)
        for operation in pending
        for pattern in operation.reads
        for name in names
        if name != operation.name and fnmatchcase(name, pattern)
    ]
    return Graph(nodes, tuple(dict.fromkeys([*graph.edges, *edges])))


def _graph_from(declaration: PipelineDeclaration, records: Sequence[StageRecord], stages: Iterable[Stage]) -> Graph:
    kinds = _kinds(declaration)
    shares = _shares(stages)
    nodes = {f"source:{source.name}": _connector("source", source.name) for source in declaration.sources}
    nodes |= {stream.name: Node(stream.name, "stream") for stream in declaration.streams}
    for record in records:
        nodes[record.name] = Node(
            record.name,
            kinds.get(record.query) or ("table" if isinstance(record.output, TableDeclaration) else "query"),
            None if record.name == record.query else record.query,
            record.lane,
            shares.get(record.name, ()),
            None if not record.every else duration_text(record.every),
        )
    nodes |= {table.name: Node(table.name, "table") for table in declaration.tables if table.name not in nodes}
    nodes |= {f"output:{output.name}": _connector("output", output.name) for output in declaration.outputs}
    edges = dict.fromkeys(
        edge for edge in _edges(declaration, records) if edge.source in nodes and edge.target in nodes
    )
    return Graph(tuple(nodes.values()), tuple(edges))


def _connector(kind: Literal["source", "output"], name: str) -> Node:
    return Node(f"{kind}:{name}", kind, connector=name)


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


def _edges(declaration: PipelineDeclaration, records: Sequence[StageRecord]) -> Iterator[Edge]:
    tables = {table.name.lower(): table.name for table in declaration.tables}
    texts = {query.name: query.text for query in declaration.queries}
    for source in declaration.sources:
        yield Edge(f"source:{source.name}", source.stream, "moves")
    for record in records:
        for stream in record.inputs:
            yield Edge(stream, record.name)
        if record.output.name != record.name:
            yield Edge(record.name, record.output.name)
        for table in record.meets:
            yield Edge(table, record.name, "looks up")
        for table in _tables_named(texts.get(record.name), tables):
            yield Edge(table, record.name, "looks up")
    writers = {record.output.name: record.name for record in records}
    for output in declaration.outputs:
        yield Edge(writers.get(output.reads, output.reads), f"output:{output.name}", "moves")


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
    name, whole = node.connector or node.part_of or node.name, _declaration_behind(definition, node)
    if node.kind == "output":
        outputs = tuple(output for output in whole.outputs if output.name == name)
        return _without_head(PipelineDeclaration(whole.name, outputs=outputs))
    tables = tuple(table for table in whole.tables if table.name == name)
    part = PipelineDeclaration(
        whole.name,
        streams=tuple(stream for stream in whole.streams if stream.name == name),
        sources=tuple(source for source in whole.sources if source.name == name),
        queries=tuple(query for query in whole.queries if query.name == name),
        jobs=tuple(job for job in whole.jobs if job.name == name),
        operations=tuple(operation for operation in whole.operations if operation.name == name),
        tables=tables,
        rules=tuple(rules for rules in whole.rules if tables and name in rules.text),
    )
    return _without_head(part)


def _without_head(part: PipelineDeclaration) -> str:
    return pipeline_text(part).partition("\n")[2]  # without the line that names the pipeline


def explanation_of(definition: Definition, node: Node) -> str | None:
    """Return what `hayase explain` says about the query of a node; None if it is no query."""
    if node.kind != "query":
        return None
    whole = _declaration_behind(definition, node)
    queries = {query.name for query in whole.queries}
    outputs = [record.output for record in definition.records if _is_input(record, queries)]
    streams = (*whole.streams, *(output for output in outputs if isinstance(output, StreamDeclaration)))
    plain = replace(whole, streams=streams, jobs=(), operations=())  # their outputs are streams here
    return explain(plain, node.part_of or node.name, lookups_of(whole, definition.home.path))


def _declaration_behind(definition: Definition, node: Node) -> PipelineDeclaration:
    """Return the declaration to which a node belongs: that of the build, or the one that runs."""
    build = definition.build
    return build.declaration if build is not None and is_build(node.name) else definition.declaration


def _is_input(record: StageRecord, queries: set[str]) -> bool:
    return record.query not in queries and not record.name.startswith("_") and not is_build(record.name)
