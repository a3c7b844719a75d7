"""Streams inside of a query: sub-queries in FROM that are read through a window, such as `Istream(select ...) [Range 1 minute]`.

Such a sub-query is a stage of its own, whose output is a stream that no other query sees. Without Istream, Dstream or Rstream
around it, a sub-query that is a stream stays one, and of a relation the window takes the rows as they appear (Istream).
"""

from __future__ import annotations

from collections.abc import Iterator

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DeclarationError
from hayase.cql.distribution import is_leaf, leaves, source_of
from hayase.cql.logical import Node, Source, ToStream, children
from hayase.cql.outputs import Times, output_stream
from hayase.cql.projection import is_stateless, stateless_stage
from hayase.cql.query_expressions import ExpressionResolver
from hayase.cql.record_streams import is_stream

__all__ = ["NestedStreams", "as_stream", "nested_sources"]


def as_stream(node: Node) -> Node:
    """Return the plan of a query whose result is a stream: of a relation, the rows as they appear."""
    return node if is_leaf(node) and is_stream(node) else ToStream("istream", node)


class NestedStreams:
    """Declares the streams inside of the query `name`: `_name_s1`, `_name_s2`, ..."""

    def __init__(self, resolver: ExpressionResolver, name: str):
        self._resolver, self._name, self._count = resolver, name, 0

    def declare(self, plan: Node) -> StreamDeclaration | None:
        """Declare the stream of a plan; None, with a mistake, if it cannot be one."""
        self._count += 1
        name = f"_{self._name}_s{self._count}"
        try:
            if is_stateless(plan):
                return stateless_stage(name, plan, "").stage.stream
        except DeclarationError as error:
            self._resolver.mistakes += error.mistakes
            return None
        return output_stream(Times.of(source_of(leaf).declaration for leaf in leaves(plan)), name, plan)


def nested_sources(node: Node) -> Iterator[Source]:
    """Yield the sources of a plan that are streams inside of the query, each after those that it reads, and each once."""
    known: set[str] = set()

    def visit(node: Node) -> Iterator[Source]:
        if isinstance(node, Source) and node.query is not None and node.declaration.name not in known:
            known.add(node.declaration.name)
            yield from visit(node.query)
            yield node
        for child in children(node):
            yield from visit(child)

    return visit(node)
