"""Rule: drop columns that nothing reads, at the streams and in the inputs of joins, projections and aggregates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from hayase.cql.columns import select_columns
from hayase.cql.logical import (
    Aggregate,
    Asof,
    Distinct,
    Expression,
    Filter,
    Join,
    Node,
    Over,
    Project,
    RunningOver,
    SetOperation,
    Source,
    TableJoin,
    Top,
    ToStream,
    Unnest,
)

__all__ = ["prune_columns", "required_columns"]


def prune_columns(node: Node) -> Node:
    """Drop the columns that neither the result nor any node of the plan reads."""
    return _prune(node, frozenset(node.schema.names))


def _prune(node: Node, needed: frozenset[str]) -> Node:
    """Return the node with at least the columns `needed`."""
    match node:
        case Source():
            return _trim(node, needed)
        case Filter():
            return Filter(_prune(node.child, needed | node.predicate.columns), node.predicate)
        case Project():
            columns = tuple(column for column in node.columns if column.name in needed) or node.columns[:1]
            return Project(_prune(node.child, _columns_read(column.value for column in columns)), columns)
        case TableJoin():
            below = needed | _columns_read(key.value for key in node.keys)
            shown = tuple(name for name in node.columns if f"{node.alias}.{name}" in needed)
            return replace(node, child=_trim(_prune(node.child, below), below), columns=shown)
        case Aggregate():
            calls = tuple(call for call in node.calls if call.name in needed)
            if not node.keys and not calls:  # rows without columns cannot be counted
                calls = node.calls[:1]
            arguments = (argument for call in calls for argument in call.arguments)
            child = _prune(node.child, _columns_read([*(key.value for key in node.keys), *arguments]))
            return replace(node, child=child, calls=calls)
        case Unnest():
            below = frozenset(needed & set(node.child.schema.names)) | node.value.columns
            return replace(node, child=_trim(_prune(node.child, below), below))
        case SetOperation(kind="union", all=True):
            names = required_columns(node, needed)
            left, right = (select_columns(_prune(side, frozenset(names)), names) for side in (node.left, node.right))
            return SetOperation(node.kind, node.all, left, right)
        case SetOperation():
            names = node.schema.names
            left, right = (select_columns(_prune(side, frozenset(names)), names) for side in (node.left, node.right))
            return SetOperation(node.kind, node.all, left, right)
        case Distinct() | ToStream():
            names = node.schema.names
            return replace(node, child=select_columns(_prune(node.child, frozenset(names)), names))
        case Over():
            return _prune_over(
                node, replace(node, calls=tuple(call for call in node.calls if call.name in needed)), needed
            )
        case RunningOver():
            return _prune_over(
                node, replace(node, calls=tuple(call for call in node.calls if call.name in needed)), needed
            )
        case Top():
            read = needed | _columns_read([*node.keys, *(key.value for key in node.order)])
            return replace(node, child=_trim(_prune(node.child, read), read))
        case Join():
            read = needed | _columns_read(side for pair in node.equal for side in pair)
            read |= node.residual.columns if node.residual else frozenset()
            left, right = (_trim(_prune(side, read), read) for side in (node.left, node.right))
            return replace(node, left=left, right=right)
        case Asof():
            read = needed | _columns_read(side for pair in node.equal for side in pair)
            read |= _columns_read([node.value, *(key.value for key in node.order)])
            left, right = (_trim(_prune(side, read), read) for side in (node.left, node.right))
            return replace(node, left=left, right=right)


def _prune_over(node: Over | RunningOver, kept: Over | RunningOver, needed: frozenset[str]) -> Node:
    """Return window functions without the calls that nothing reads."""
    if not kept.calls:
        return _prune(node.child, needed)
    read = (needed - {call.name for call in node.calls}) | _columns_read(kept.expressions)
    return replace(kept, child=_trim(_prune(node.child, read), read))


def _columns_read(expressions: Iterable[Expression]) -> frozenset[str]:
    return frozenset(name for expression in expressions for name in expression.columns)


def _trim(node: Node, needed: frozenset[str]) -> Node:
    return select_columns(node, required_columns(node, needed))


def required_columns(node: Node, needed: frozenset[str]) -> list[str]:
    """Return the columns of a node that are needed. If none is, return a cheap one: rows without columns cannot be counted."""
    columns = [name for name in node.schema.names if name in needed]
    primitive = [field.name for field in node.schema if pa.types.is_primitive(field.type)]
    return columns or [*primitive, *node.schema.names][:1]
