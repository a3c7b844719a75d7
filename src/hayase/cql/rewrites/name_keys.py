"""Rule: make the keys of joins and aggregates, and the arguments of aggregates, named columns of their child."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from hayase.core.expressions import cast
from hayase.cql.columns import column, column_name, identity_columns, quoted, select_columns
from hayase.cql.equalities import are_same_family
from hayase.cql.logical import (
    Aggregate,
    Asof,
    Column,
    Expression,
    Join,
    Node,
    Over,
    Project,
    RunningOver,
    SetOperation,
    Source,
    Top,
    Unnest,
)
from hayase.cql.rewrites.prune_columns import required_columns

__all__ = ["name_keys"]


def name_keys(node: Node) -> Node:
    """Compute keys and arguments below the join or aggregate that uses them, each as a column with a name."""
    return _KeyNames().name(node)


class _KeyNames:
    """Names computed keys and arguments `__value1`, `__value2`, ... throughout one plan."""

    def __init__(self) -> None:
        self._count = 0

    def _next_name(self) -> str:
        self._count += 1
        return f"__value{self._count}"

    def name(self, node: Node) -> Node:
        match node:
            case Source():
                return node
            case Join():
                left, right = self.name(node.left), self.name(node.right)
                left, lefts = self._with_columns(left, [_without_widening(one, left.schema) for one, _ in node.equal])
                right, rights = self._with_columns(
                    right, [_without_widening(other, right.schema) for _, other in node.equal]
                )
                return replace(node, left=left, right=right, equal=tuple(zip(lefts, rights)))
            case Asof():
                return self._name_asof(replace(node, left=self.name(node.left), right=self.name(node.right)))
            case SetOperation():
                return replace(node, left=self.name(node.left), right=self.name(node.right))
            case Unnest():
                child, (value,) = self._with_columns(self.name(node.child), [node.value])
                return replace(node, child=child, value=value)
            case Aggregate():
                return self._name_aggregate(replace(node, child=self.name(node.child)))
            case Over():
                return self._name_over(replace(node, child=self.name(node.child)))
            case RunningOver():
                return self._name_running(replace(node, child=self.name(node.child)))
            case Top():
                return self._name_top(replace(node, child=self.name(node.child)))
            case _:
                return replace(node, child=self.name(node.child))

    def _name_asof(self, node: Asof) -> Node:
        left, (value, *lefts) = self._with_columns(
            node.left, [node.value, *(_without_widening(one, node.left.schema) for one, _ in node.equal)]
        )
        rights = [_without_widening(other, node.right.schema) for _, other in node.equal]
        right, named = self._with_columns(node.right, [*(key.value for key in node.order), *rights])
        order = tuple(replace(key, value=own) for key, own in zip(node.order, named))
        equal = tuple(zip(lefts, named[len(order) :]))
        return replace(node, left=left, right=right, equal=equal, value=value, order=order)

    def _name_over(self, node: Over) -> Node:
        child, named = self._with_columns(node.child, node.expressions)
        columns = {value.sql: own for value, own in zip(node.expressions, named)}

        def own(value: Expression) -> Expression:
            return columns[value.sql]

        calls = tuple(
            replace(
                call,
                arguments=tuple(map(own, call.arguments)),
                condition=own(call.condition) if call.condition else None,
            )
            for call in node.calls
        )
        order = tuple(replace(key, value=own(key.value)) for key in node.order)
        over = Over(child, tuple(map(own, node.keys)), order, node.listed, calls)
        return select_columns(over, node.schema.names)

    def _name_running(self, node: RunningOver) -> Node:
        child, named = self._with_columns(node.child, node.expressions)
        own = {value.sql: known for value, known in zip(node.expressions, named)}
        calls = tuple(
            replace(
                call,
                arguments=tuple(own[value.sql] for value in call.arguments),
                default=own[call.default.sql] if call.default else None,
            )
            for call in node.calls
        )
        over = RunningOver(child, tuple(own[key.sql] for key in node.keys), calls)
        return select_columns(over, node.schema.names)

    def _name_top(self, node: Top) -> Node:
        child, named = self._with_columns(node.child, [*node.keys, *(key.value for key in node.order)])
        order = tuple(replace(key, value=value) for key, value in zip(node.order, named[len(node.keys) :]))
        top = replace(node, child=child, keys=tuple(named[: len(node.keys)]), order=order)
        return select_columns(top, node.schema.names)

    def _with_columns(self, child: Node, expressions: Sequence[Expression]) -> tuple[Node, list[Expression]]:
        """Return the child with a column for each of these expressions over it, and these columns."""
        columns = [*identity_columns(child.schema)]
        named: list[Expression] = []
        for expression in expressions:
            name = column_name(expression)
            if name is None:
                same = (known.name for known in columns if known.value.sql == expression.sql)
                name = next(same, None) or self._next_name()
                if all(known.name != name for known in columns):
                    columns.append(Column(name, expression))
            named.append(column(name, expression.kind, expression))
        return (child if len(columns) == len(child.schema) else Project(child, tuple(columns))), named

    def _name_aggregate(self, node: Aggregate) -> Aggregate:
        """Let the child give the keys under their names, and every argument once."""
        by_sql = {key.value.sql: key for key in reversed(node.keys)}
        columns = list(node.keys)

        def named(argument: Expression) -> Expression:
            known = by_sql.get(argument.sql)
            if known is None:
                name = column_name(argument)
                is_taken = name is None or any(other.name.lower() == name.lower() for other in columns)
                known = Column(self._next_name() if name is None or is_taken else name, argument)
                by_sql[argument.sql] = known
                columns.append(known)
            return column(known.name, argument.kind, argument)

        calls = tuple(
            replace(
                call,
                argument=call.argument and named(call.argument),
                second=call.second and named(call.second),
                more=tuple(map(named, call.more)),
            )
            for call in node.calls
        )
        keys = tuple(Column(key.name, column(key.name, key.value.kind, key.value)) for key in node.keys)
        child = node.child
        if not columns:
            child = select_columns(child, required_columns(child, frozenset()))
        elif all(column_name(each.value) == each.name for each in columns):
            child = select_columns(child, [each.name for each in columns])
        else:
            child = Project(child, tuple(columns))
        return replace(node, child=child, keys=keys, calls=calls)


def _without_widening(key: Expression, schema: pa.Schema) -> Expression:
    """Return the bare column if a key only casts it to a wider type of its family.

    The column has the same keys, and unlike a computed one it can be traced to the stream.
    """
    if len(key.columns) != 1:
        return key
    (name,) = key.columns
    kind = schema.field(name).type
    is_wider = are_same_family(kind, key.kind) and kind.bit_width <= key.kind.bit_width
    return column(name, kind, key) if is_wider and key.sql == cast(quoted(name), key.kind) else key
