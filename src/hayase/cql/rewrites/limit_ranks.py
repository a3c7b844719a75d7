"""Rule: where only the first ranks of a window function are kept, keep only the first rows of each partition.

`row_number() over (partition by k order by x) <= n` holds for the first n rows of a partition, and `rank() ... <= n` for these and
their ties. `Top` keeps them at a cost that is logarithmic in the partition; the ranks, if they are selected, are computed of these
rows alone.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import ParseError, exp, parse_one

from hayase.cql.logical import Asof, Expression, Filter, Join, Node, Over, SetOperation, Source, Top

__all__ = ["limit_ranks"]

_RANKS = ("row_number", "rank")
_OF_FIRST_ROWS = (*_RANKS, "dense_rank")
"""Functions whose values for the first rows of a partition do not depend on the other rows."""


def limit_ranks(node: Node) -> Node:
    """Take the first rows of partitions below the ranks that a filter bounds."""
    match node:
        case Source():
            return node
        case Join() | Asof() | SetOperation():
            return replace(node, left=limit_ranks(node.left), right=limit_ranks(node.right))
        case Filter():
            conditions: list[Expression] = []
            inner: Node = node
            while isinstance(inner, Filter):
                conditions.append(inner.predicate)
                inner = inner.child
            if isinstance(inner, Over):
                return _limit(inner, conditions)
            return replace(node, child=limit_ranks(node.child))
        case _:
            return replace(node, child=limit_ranks(node.child))


def _limit(node: Over, conditions: list[Expression]) -> Node:
    """Return window functions with these conditions, the outermost first, above them."""
    overs: list[Over] = []
    base: Node = node
    while isinstance(base, Over):
        overs.append(base)
        base = base.child
    base = limit_ranks(base)
    bounds = {
        (over, call): bound
        for over in overs
        for call in over.calls
        if call.function in _RANKS
        for condition in conditions
        if (bound := _bound(condition, call.name)) is not None
    }
    if not bounds:
        return _filtered(_stacked(base, overs), conditions)
    (ranking, ranked), (limit, is_whole) = min(bounds.items(), key=lambda item: item[1][0])
    others = tuple(call for call in ranking.calls if call.function not in _OF_FIRST_ROWS)
    below = [over for over in overs if over is not ranking]
    below += [replace(ranking, calls=others)] if others else []
    top = Top(
        _stacked(base, below), ranking.keys, ranking.order, ranking.listed, limit, ties=ranked.function == "rank"
    )  # fmt: skip
    ranks = replace(ranking, child=top, calls=tuple(call for call in ranking.calls if call not in others))
    remaining = [
        condition
        for condition in conditions
        if not (is_whole and _bound(condition, ranked.name) == (limit, True))  # every row of `Top` satisfies it
    ]
    return _filtered(ranks, remaining)


def _stacked(base: Node, overs: list[Over]) -> Node:
    for over in reversed(overs):
        base = replace(over, child=base)
    return base


def _filtered(node: Node, conditions: list[Expression]) -> Node:
    for condition in reversed(conditions):
        node = Filter(node, condition)
    return node


def _bound(condition: Expression, name: str) -> tuple[int, bool] | None:
    """Return the greatest rank for which a condition can hold, and whether it holds for all up to that; None if there is none."""
    if condition.columns != {name}:
        return None
    try:
        tree = parse_one(condition.sql, dialect="duckdb").unnest()
    except ParseError:
        return None
    if isinstance(tree, exp.Between):
        low, high = _number(tree.args["low"]), _number(tree.args["high"])
        return (high, low <= 1) if _is_column(tree.this) and low is not None and high is not None and high > 0 else None
    if not isinstance(tree, exp.LTE | exp.LT | exp.EQ | exp.GTE | exp.GT):
        return None
    left, right = tree.this, tree.expression
    if isinstance(tree, exp.GTE | exp.GT) or (isinstance(tree, exp.EQ) and not _is_column(left)):
        left, right = right, left
    number = _number(right)
    if number is None or not _is_column(left):
        return None
    number -= isinstance(tree, exp.LT | exp.GT)
    return (number, not isinstance(tree, exp.EQ) or number == 1) if number > 0 else None


def _number(node: exp.Expr) -> int | None:
    node = node.unnest()
    return int(node.this) if isinstance(node, exp.Literal) and not node.is_string and node.this.isdecimal() else None


def _is_column(node: exp.Expr) -> bool:
    return isinstance(node.unnest(), exp.Column)
