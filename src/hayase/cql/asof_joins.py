"""ASOF joins: the condition of one, resolved into keys and the order in which the rows of the right side are tried."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from hayase.core.keys import is_atomic
from hayase.cql import logical, syntax
from hayase.cql.columns import column, column_name, quoted
from hayase.cql.equalities import node_join_keys
from hayase.cql.logical import Expression, OrderKey
from hayase.cql.query_expressions import ExpressionResolver, comparable_sides
from hayase.cql.row_order import tie_breakers
from hayase.cql.scopes import FromClause, Scope

__all__ = ["asof_join"]

_FORM = "write ON a.key = b.key AND a.time >= b.time, or USING (key, time)"
_FLIPPED = {">=": "<=", ">": "<", "<=": ">=", "<": ">"}

_Pair = tuple[Expression, Expression]


def asof_join(
    resolver: ExpressionResolver, join: syntax.Joined, left: FromClause, right: FromClause, scope: Scope, using: list[_Pair]
) -> logical.Asof | None:  # fmt: skip
    """Resolve an ASOF join over two resolved relations; `using` are the pairs of columns of USING. None if it has mistakes.

    Every row of the left side has the first row of the right one that it meets: the nearest in time, then by its other columns.
    """
    noted = len(resolver.mistakes)
    schema = pa.schema([*left.node.schema, *right.node.schema])
    equal: list[_Pair] = list(using[:-1])
    compared: list[tuple[str, _Pair]] = [(">=", using[-1])] if using else []
    for condition in join.on:
        if not isinstance(condition, syntax.Plain):
            continue
        resolved = resolver.condition(condition, scope, schema)
        if resolved is None:
            continue
        pair = node_join_keys(resolved, left.node, right.node)
        comparison = _comparison(resolver, condition, scope, left, right) if pair is None else None
        if pair is not None:
            equal.append(pair)
        elif comparison is not None:
            compared.append(comparison)
        else:
            hint = (
                "it takes equalities and one comparison between both sides; filter in WHERE or in a sub-query in FROM"
            )
            resolver.refuse(condition.part, "this condition of an ASOF JOIN is not supported", hint)
    if len(resolver.mistakes) > noted:
        return None
    if len(compared) != 1:
        message = f"an ASOF JOIN has one comparison with >=, >, <= or <, and this has {len(compared)}"
        resolver.refuse(join.part, message, _FORM)
        return None
    ((sign, (value, other)),) = compared
    assert join.kind in ("inner", "left")
    first = OrderKey(other, descending=sign in (">=", ">"))
    keys = {name for _, key in equal if (name := column_name(key)) is not None}
    shown = [sql for _, sql in right.scope.star()]
    fields = sorted(
        right.node.schema, key=lambda field: quoted(field.name) not in shown
    )  # columns that * contains first
    columns = [column(field.name, field.type) for field in fields if field.name not in keys]
    order = (first, *tie_breakers(columns, [first]))
    return logical.Asof(
        "inner" if join.kind == "inner" else "left",
        left.node,
        right.node,
        tuple(equal),
        value,
        order,
        sign in (">", "<"),
    )


def _comparison(
    resolver: ExpressionResolver, condition: syntax.Plain, scope: Scope, left: FromClause, right: FromClause
) -> tuple[str, _Pair] | None:
    """Return a comparison between the two sides, the left side first; None if the condition is not one."""
    if condition.comparison is None:
        return None
    sign, *written = condition.comparison
    schema = pa.schema([*left.node.schema, *right.node.schema])
    resolved = [resolver.expression(part, scope, schema) for part in written]
    if resolved[0] is None or resolved[1] is None:
        return None
    sides = comparable_sides(resolved[0], resolved[1])
    if sides is None or not is_atomic(sides[0].kind):
        return None
    names = set(left.node.schema.names), set(right.node.schema.names)
    for way, (one, other) in ((sign, sides), (_FLIPPED[sign], sides[::-1])):
        if one.columns and other.columns and one.columns <= names[0] and other.columns <= names[1]:
            return way, (replace(one, equality=None), replace(other, equality=None))
    return None
