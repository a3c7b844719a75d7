"""ORDER BY, LIMIT, OFFSET, FETCH FIRST and DISTINCT ON: the order of a query's rows, and the first of them.

Rows are ordered by the listed expressions, then by the other columns of the result from left to right, NULLs last. So it is
determined which rows are the first. An expression that is not selected is computed in a hidden column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from hayase.core.expressions import cast
from hayase.core.keys import is_atomic
from hayase.cql.columns import column, quoted, select_columns
from hayase.cql.logical import Expression, Node, OrderKey, Top
from hayase.cql.query_expressions import ExpressionResolver
from hayase.cql.select_lists import Output
from hayase.cql.syntax import Ordering, OrderItem, Part

__all__ = ["OrderedOutputs", "result_order", "tie_breakers"]


class OrderedOutputs:
    """The output columns of a query, with those that only its order needs (`outputs`), and the nodes that select by the order.

    `hidden`: whether the order may use expressions that are not selected.
    """

    def __init__(
        self,
        resolver: ExpressionResolver,
        ordering: Ordering | None,
        distinct_on: Sequence[Part],
        outputs: Sequence[Output],
        *,
        hidden: bool,
    ):
        self._resolver = resolver
        self._ordering, self._may_hide = ordering, hidden
        self._visible = [output.name for output in outputs]
        self.outputs = list(outputs)
        selects = bool(distinct_on) or (ordering is not None and ordering.selects)
        items = ordering.items if ordering is not None else ()
        # An order that selects nothing is checked too, but needs no columns.
        self._keys = [self._column(part, "DISTINCT ON") for part in distinct_on]
        self._items = [(item, self._column(item.part, "ORDER BY")) for item in items]
        if not selects:
            self._items = []

    def _column(self, part: Part, clause: str) -> str | None:
        """Return the output column of an entry: by position, by name, or a new hidden one. None if it is a mistake."""
        if part.text.isdecimal():
            place = int(part.text)
            if 1 <= place <= len(self._visible):
                return self._visible[place - 1]
            self._resolver.refuse(part, f"{clause} {part.text} is not an entry of the select list")
            return None
        name = part.text[1:-1].replace('""', '"') if part.text.startswith('"') else part.text
        known = next((own for own in self._visible if own.lower() == name.lower()), None)
        if known is not None:
            return known
        if not self._may_hide:
            hint = "name a column of the result, or order an outer query: select * from (...) order by ... limit ..."
            self._resolver.refuse(part, f"{clause} of this query can name only columns of its result", hint)
            return None
        hidden = f"__order{len(self.outputs) - len(self._visible) + 1}"
        self.outputs.append(Output(hidden, part))
        return hidden

    def limited(self, plan: Node) -> Node:
        """Return the plan of the query, which has all `outputs`, with the rows that its order selects."""
        names = plan.schema.names[
            : len(plan.schema) - len(self.outputs) + len(self._visible)
        ]  # several windows add one
        if self._keys:
            plan = self._top(plan, self._keys, names, 1)
        ordering = self._ordering
        if ordering is not None and ordering.selects:
            plan = self._top(plan, (), names, ordering.limit, ordering.offset, ordering.ties)
        return select_columns(plan, names)

    def _top(
        self, plan: Node, keys: Sequence[str | None], names: Sequence[str],
        limit: int | None, offset: int = 0, ties: bool = False,
    ) -> Node:  # fmt: skip
        values = [_value(plan.schema, key) for key in keys if key is not None]
        listed = [self._listed(item, _value(plan.schema, name)) for item, name in self._items if name is not None]
        for key in values:
            self._resolver.check_key(Part(key.text, key.line, key.column), key.kind)
        order = [*listed, *tie_breakers([_value(plan.schema, name) for name in names], listed)]
        return Top(plan, tuple(values), tuple(order), len(listed), limit, offset, ties)

    def _listed(self, item: OrderItem, value: Expression) -> OrderKey:
        self._resolver.check_order(item.part, value.kind)
        return OrderKey(replace(value, text=item.part.text), item.descending, item.nulls_first)


def result_order(ordering: Ordering | None, names: Sequence[str]) -> tuple[tuple[str, bool, bool], ...]:
    """Return the order in which a result with these columns is read: the entries of ORDER BY up to one that is not selected, then
    the other columns. Empty if there is no ORDER BY.

    >>> result_order(Ordering(Part("", 1, 1), (OrderItem(Part("2", 1, 1), True),)), ["a", "b"])
    (('b', True, False), ('a', False, False))
    """
    known = {name.lower(): name for name in names}
    order: dict[str, tuple[str, bool, bool]] = {}
    for item in ordering.items if ordering else ():
        text = item.part.text
        if text.isdecimal() and 1 <= int(text) <= len(names):
            name: str | None = names[int(text) - 1]
        else:
            name = known.get((text[1:-1].replace('""', '"') if text.startswith('"') else text).lower())
        if name is None:
            break
        order.setdefault(name, (name, item.descending, item.nulls_first))
    return (*order.values(), *((name, False, False) for name in names if name not in order)) if order else ()


def _value(schema: pa.Schema, name: str) -> Expression:
    return column(name, schema.field(name).type)


def tie_breakers(columns: Sequence[Expression], listed: Sequence[OrderKey]) -> list[OrderKey]:
    """Return the entries that complete an order: all columns that are not listed. Nested values are compared as text."""
    known = {key.value.sql for key in listed}
    keys: list[OrderKey] = []
    for value in columns:
        if value.sql in known:
            continue
        if not is_atomic(value.kind):
            value = replace(value, sql=cast(quoted(next(iter(value.columns))), pa.string()), kind=pa.string())
        keys.append(OrderKey(value))
    return keys
