"""Logical plans written by hand: two small streams, and short ways to say columns, conditions and aggregates."""

from __future__ import annotations

import pyarrow as pa

from hayase.core.declarations import StreamDeclaration
from hayase.cql.columns import column
from hayase.cql.logical import (
    Aggregate,
    AggregateCall,
    Column,
    Expression,
    Filter,
    Join,
    Node,
    Project,
    Source,
    Window,
    describe,
)

ORDERS = StreamDeclaration(
    "orders", "time timestamp, id bigint, user string, amount double, tags map<string, string>", "time"
)
USERS = StreamDeclaration("users", "time timestamp, user string, age bigint", "time")
STOCK = StreamDeclaration("stock", "time timestamp, op string, item string, n bigint", "time", changes="op")
TEN_SECONDS = Window("range", 10_000_000)


def source(stream: StreamDeclaration, alias: str, window: Window = TEN_SECONDS) -> Source:
    """A stream under an alias; of a stream of changes its own columns."""
    hidden = {stream.changes, stream.time} if stream.changes else set()
    fields = [pa.field(f"{alias}.{each.name}", each.type) for each in stream.arrow_schema if each.name not in hidden]
    return Source(stream, alias, window, pa.schema(fields))


def col(node: Node, name: str) -> Expression:
    """A column of a node."""
    return column(name, node.schema.field(name).type)


def equals(one: Expression, other: Expression) -> Expression:
    """`one = other`."""
    sql = f"{one.sql} = {other.sql}"
    return Expression(sql, pa.bool_(), one.columns | other.columns, sql, equality=(one, other))


def over(one: Expression, limit: int) -> Expression:
    """`one > limit`."""
    return Expression(f"{one.sql} > {limit}", pa.bool_(), one.columns, f"{one.text} > {limit}")


def below(one: Expression, other: Expression) -> Expression:
    """`one < other`."""
    sql = f"{one.sql} < {other.sql}"
    return Expression(sql, pa.bool_(), one.columns | other.columns, sql)


def doubled(one: Expression) -> Expression:
    """`one + one`."""
    return Expression(f"{one.sql} + {one.sql}", one.kind, one.columns, f"{one.text} + {one.text}")


def select(node: Node, **columns: Expression | str) -> Project:
    """A projection; a text names a column of the child."""
    values = {name: col(node, each) if isinstance(each, str) else each for name, each in columns.items()}
    return Project(node, tuple(Column(name, each) for name, each in values.items()))


def where(node: Node, *conditions: Expression) -> Node:
    """Filters, one upon the other."""
    for each in conditions:
        node = Filter(node, each)
    return node


def cross(*relations: Node) -> Node:
    """All pairs, from the left."""
    result, *others = relations
    for each in others:
        result = Join("inner", result, each, (), None)
    return result


def counted(node: Node, largest: str | None = None, **keys: str) -> Aggregate:
    """`count(*)` per group, and the maximum of a column."""
    calls = [AggregateCall("n", "count", None, False, pa.int64(), "count(*)")]
    if largest is not None:
        value = col(node, largest)
        calls.append(AggregateCall("largest", "max", value, False, value.kind, f"max({largest})"))
    return Aggregate(node, tuple(Column(name, col(node, each)) for name, each in keys.items()), tuple(calls))


def lines(node: Node) -> str:
    """A plan as text, as it stands in the tests: between two line ends."""
    return "\n" + "\n".join(describe(node)) + "\n"
