"""Rule: evaluate every filter as close to the streams as possible, and turn equalities into join keys.

A window is computed over all tuples of its stream, whatever is filtered, so a filter may move below it; the stage builder
keeps windows by partition correct. A filter never moves below the side of an outer join that is padded with NULLs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hayase.cql.columns import column_name, conjunction, passed_columns, rename_columns
from hayase.cql.equalities import can_be_keys, equality, join_keys
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
    children,
)
from hayase.cql.rewrites.join_order import order_inner_joins

__all__ = ["push_down_filters"]


def push_down_filters(node: Node) -> Node:
    """Move every condition as close to the streams as it may stand."""
    return _push(node, ())


def _push(node: Node, conditions: Sequence[Expression]) -> Node:
    """Return the node with these conditions, which are over its columns, applied as far below it as possible."""
    match node:
        case Source():
            return _filter(node, conditions)
        case Filter():
            return _push(node.child, [node.predicate, *conditions])
        case Project():
            return _push_through(node, conditions, passed_columns(node.columns))
        case TableJoin():
            names = {name: name for name in node.child.schema.names}
            names |= passed_columns(node.keys) if node.kind == "inner" else {}
            return _push_through(node, conditions, names)
        case Aggregate():
            bounds = _bounds(node.child)
            keys = {name: below for name, below in passed_columns(node.keys).items() if below not in bounds}
            return _push_through(node, conditions, keys)
        case Top() | Over() | RunningOver():
            return _push_through(node, conditions, {name: name for key in node.keys if (name := column_name(key))})
        case Unnest():
            return _push_through(node, conditions, {name: name for name in node.child.schema.names})
        case Distinct():
            return replace(node, child=_push(node.child, conditions))
        case SetOperation():
            return SetOperation(node.kind, node.all, _push(node.left, conditions), _push(node.right, conditions))
        case Join(kind="inner"):
            joined, above = order_inner_joins(node, conditions, _push)
            return _filter(joined, above)
        case Join():
            return _push_into_outer_join(node, conditions)
        case Asof():
            below, above = _split(conditions, node.left.schema.names)
            return _filter(replace(node, left=_push(node.left, below), right=_push(node.right, ())), above)
        case ToStream():
            return ToStream(node.kind, _push(node.child, ()))


def _push_through(
    node: Project | TableJoin | Aggregate | Top | Over | RunningOver | Unnest,
    conditions: Sequence[Expression],
    names: dict[str, str],
) -> Node:
    """Push conditions below a node whose columns `names` only repeat columns of its child."""
    below, above = _split(conditions, names)
    child = _push(node.child, [rename_columns(condition, names) for condition in below])
    return _filter(replace(node, child=child), above)


def _bounds(node: Node) -> set[str]:
    """Return the columns with the bounds of windows below a node. A condition on these is cheaper above an aggregate: without
    one, the aggregate is computed from panes (`cql.shared_windows`)."""
    own = set(node.bounds) if isinstance(node, Source) else set[str]()
    return own.union(*(_bounds(child) for child in children(node)))


def _filter(node: Node, conditions: Iterable[Expression]) -> Node:
    for condition in conditions:
        node = Filter(node, condition)
    return node


def _split(conditions: Iterable[Expression], names: Iterable[str]) -> tuple[list[Expression], list[Expression]]:
    """Split conditions into those over these columns alone, and the others. One without any column is among the others."""
    known = set(names)
    inside: list[Expression] = []
    outside: list[Expression] = []
    for condition in conditions:
        (inside if condition.columns and condition.columns <= known else outside).append(condition)
    return inside, outside


_PADDED = {"left": ("right",), "right": ("left",), "full": ("left", "right"), "semi": (), "anti": ()}
"""The sides padded with NULLs where there is no match: conditions above the join may not move below them."""
_PRESELECTED = {"left": ("right",), "right": ("left",), "full": (), "semi": ("left", "right"), "anti": ("right",)}
"""The sides on which a condition in ON only selects candidates for a match, so that it can be a filter on that side."""


def _push_into_outer_join(node: Join, conditions: Sequence[Expression]) -> Node:
    below: dict[str, list[Expression]] = {"left": [], "right": []}
    sides = {"left": node.left.schema.names, "right": node.right.schema.names}
    above = list(conditions)
    for side, names in sides.items():
        if side not in _PADDED[node.kind]:
            below[side], above = _split(above, names)
    equal = list(node.equal)
    residual: list[Expression] = []
    if node.residual:
        pair = join_keys(node.residual, set(sides["left"]), set(sides["right"]))
        own_side = [side for side in _PRESELECTED[node.kind] if _split([node.residual], sides[side])[0]]
        if pair:
            equal.append(pair)
        elif own_side:
            below[own_side[0]].append(node.residual)
        else:
            residual.append(node.residual)
    usable = [pair for pair in equal if can_be_keys(*pair)]
    residual += [equality(*pair) for pair in equal if pair not in usable]
    left, right = _push(node.left, below["left"]), _push(node.right, below["right"])
    return _filter(Join(node.kind, left, right, tuple(usable), conjunction(residual)), above)
