"""Which plans are streams: each of their rows is a record that appears at its event time and stays for ever.

A stream without a window is one, with filters, projections and table lookups above it, and with window functions in the order
of event time; and so is UNION ALL of such plans. The result of such a query is a stream of records, which others read through
windows.
"""

from __future__ import annotations

from hayase.cql import syntax
from hayase.cql.columns import column_name
from hayase.cql.logical import Filter, Node, Project, RunningOver, SetOperation, Source, TableJoin

__all__ = ["is_event_time", "is_one_stream", "is_stream", "reads_without_window"]


def is_one_stream(node: Node) -> bool:
    """Return whether a plan gives the records of one stream, in its order."""
    match node:
        case Source():
            stream = node.declaration
            return node.window.kind == "unbounded" and not stream.lifetimes and stream.changes is None
        case Filter() | Project() | TableJoin() | RunningOver():
            return is_one_stream(node.child)
        case _:
            return False


def is_stream(node: Node) -> bool:
    """Return whether a plan gives the records of streams, one or several."""
    match node:
        case SetOperation():
            return (node.kind, node.all) == ("union", True) and is_stream(node.left) and is_stream(node.right)
        case Filter() | Project():
            return is_stream(node.child)
        case _:
            return is_one_stream(node)


def reads_without_window(relation: syntax.Relation) -> bool:
    """Return whether a relation in FROM is a stream without a window: a name, or a plain sub-query over one."""
    if syntax.window_of(relation) is not None:
        return False
    if isinstance(relation, syntax.Nested) and relation.stream is None:
        return isinstance(relation.query, syntax.Select) and reads_without_window(relation.query.source)
    return isinstance(relation, syntax.Named | syntax.Nested)


def is_event_time(node: Node, name: str | None) -> bool:
    """Return whether a column of such a plan is the event time of its records."""
    match node:
        case Source():
            bare = (name or "").removeprefix(f"{node.alias}.")
            return name in node.schema.names and bare in (node.declaration.time, "event_time")
        case Project():
            below = next((column_name(output.value) for output in node.columns if output.name == name), None)
            return below is not None and is_event_time(node.child, below)
        case Filter() | TableJoin() | RunningOver():
            return name in node.child.schema.names and is_event_time(node.child, name)
        case _:
            return False
