"""Calls of aggregates that are recomputed from the rows of a group (`hayase.core.bags`): their templates and the order of rows.

Over a stream, rows are in the order of event time, then offset. Over any other relation they are ordered by the columns that
ORDER BY lists in the call, then by the columns of the relation from left to right, nulls last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from hayase.core.algebra import AGGREGATES
from hayase.core.algebra import Aggregate as Algebra
from hayase.core.bags import BAG_FUNCTIONS, BagCall, BagFunction, call_sql, fold_sql
from hayase.core.data_classes import dataclass
from hayase.core.declarations import EVENT_TIME
from hayase.core.expressions import aggregate_type
from hayase.cql.columns import column, column_name, quoted
from hayase.cql.logical import Aggregate, AggregateCall, Expression, Filter, Node, Source, TableJoin, children
from hayase.lifetimes import plans
from hayase.lifetimes.tuples import ID

__all__ = ["Ordering", "WrittenCall", "bag_call", "plan_bags", "recomputed_call"]


@dataclass(frozen=True, slots=True)
class Ordering:
    """One entry of ORDER BY in a call."""

    value: Expression
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """The resolved pieces of a call: columns, constants as SQL, the order that it states, and the condition of FILTER.

    `descending`: the column came from WITHIN GROUP (ORDER BY ... DESC).
    """

    arguments: tuple[Expression, ...]
    constants: tuple[str, ...] = ()
    distinct: bool = False
    order: tuple[Ordering, ...] = ()
    condition: Expression | None = None
    descending: bool = False


def bag_call(call: AggregateCall, function: BagFunction | Algebra, written: WrittenCall, child: Node) -> AggregateCall:
    """Return a call with its template and type. Raise DeclarationError if there is no such function of these types."""
    columns = list(written.arguments)

    def placed(value: Expression) -> str:
        at = next((at for at, other in enumerate(columns) if other.sql == value.sql), len(columns))
        if at == len(columns):
            columns.append(value)
        return f"{{{at}}}"

    folded = isinstance(function, Algebra)
    ordered = (
        not function.laws.commutative if isinstance(function, Algebra) else function.ordered and not written.distinct
    )
    order: list[str] = []
    if ordered:
        stated = [
            f"{placed(entry.value)}{' DESC' if entry.descending else ''} NULLS {'FIRST' if entry.nulls_first else 'LAST'}"
            for entry in written.order
        ]
        order = [*stated, *(_default_order(child, placed))]
    parts = BagCall(
        tuple(argument.kind for argument in written.arguments),
        tuple(constant.replace("{", "{{").replace("}", "}}") for constant in written.constants),
        written.distinct,
        ", ".join(order),
        written.descending or bool(written.distinct and written.order and written.order[0].descending),
        f"({placed(written.condition)})" if written.condition is not None else None,
    )
    template = fold_sql(parts) if isinstance(function, Algebra) else call_sql(function, parts)
    kind = _result_type(function, parts, template, columns, call.constant)
    return replace(call, kind=kind, argument=None, second=None, template=template, more=tuple(columns), folded=folded)


def _result_type(
    function: BagFunction | Algebra,
    parts: BagCall,
    template: str,
    columns: Sequence[Expression],
    constant: float | None,
) -> pa.DataType:
    if isinstance(function, Algebra):
        return function.at(constant).result(parts.kinds)
    if function.name in AGGREGATES and not parts.constants:
        return AGGREGATES[function.name].result(parts.kinds)
    names = [f"__{at}" for at in range(len(columns))]
    schema = pa.schema([*(pa.field(name, value.kind) for name, value in zip(names, columns)), (ID, pa.int64())])
    kind = aggregate_type(template.format(*map(quoted, names)), schema)
    return pa.map_(kind.key_type, pa.int64()) if pa.types.is_map(kind) else kind


def _default_order(child: Node, placed: Callable[[Expression], str]) -> Iterator[str]:
    """Yield the order of the rows of a relation that no ORDER BY states."""
    source = child
    while isinstance(source, Filter | TableJoin):
        source = source.child
    if isinstance(source, Source) and not source.declaration.lifetimes and source.declaration.changes is None:
        name = f"{source.alias}.{source.declaration.time}"
        yield placed(column(name, source.schema.field(name).type))
        yield quoted(ID)
        return
    hidden = set(_hidden_columns(child))
    for field in child.schema:
        if field.name not in hidden:
            yield f"{placed(column(field.name, field.type))} NULLS LAST"


def _hidden_columns(node: Node) -> Iterator[str]:
    """Yield the columns of sources that can be named but are none of their columns: event times."""
    if isinstance(node, Source):
        stream = node.declaration
        declared = stream.arrow_schema.names
        for name in node.schema.names:
            own = name.removeprefix(f"{node.alias}.")
            if (stream.hides_time and own == stream.time) or (own == EVENT_TIME and own not in declared):
                yield name
    for child in children(node):
        yield from _hidden_columns(child)


def recomputed_call(call: AggregateCall, child: Node) -> AggregateCall:
    """Return a call that only shared windows maintain as one that is recomputed from the rows of a group."""
    bag = BAG_FUNCTIONS.get(call.function)
    function = Algebra.from_name(call.function) if bag is None else bag
    return bag_call(call, function, WrittenCall(call.arguments), child)


def plan_bags(node: Aggregate) -> tuple[plans.BagCall, ...]:
    """Return the recomputed calls of an aggregate, whose columns have names."""
    bags: list[plans.BagCall] = []
    for call in node.calls:
        if call.template is not None:
            names = [column_name(value) or "" for value in call.more]
            sql = call.template.format(*map(quoted, names))
            fold = call.function if call.folded else None
            bags.append(plans.BagCall(call.name, sql, tuple(dict.fromkeys(names)), call.text, fold, call.constant))
    return tuple(bags)
