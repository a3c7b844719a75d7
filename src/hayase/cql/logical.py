"""Nodes of the logical plan: what a query means, with names and types resolved, before it is decided where it runs.

The output columns of a node have unique names. The columns of a source are named `alias.column`. An expression is DuckDB SQL
over the (quoted) columns of the node's child or, for a join, of both children.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from hayase.core.declarations import StreamDeclaration
from hayase.core.stages import Lookup
from hayase.core.times import duration_text
from hayase.lifetimes.plans import JoinKind, WindowKind

__all__ = [
    "Aggregate", "AggregateCall", "Column", "Distinct", "Expression", "Filter", "Join", "Node", "Project", "SetOperation",
    "Source", "TableJoin", "ToStream", "Window", "children", "describe", "window_text",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Expression:
    """SQL over the child's columns: its type, the columns it reads, and the text and place in the user's query.

    `equality` holds both sides if it is an equality.
    """

    sql: str
    kind: pa.DataType
    columns: frozenset[str]
    text: str
    line: int = 1
    column: int = 1
    equality: tuple[Expression, Expression] | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A named output of a projection or a key of an aggregate."""

    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Window:
    """A window over a stream. `length` and `slide` are microseconds for a range, and numbers of rows for rows.

    `[Now]` is a range of length 0: as short as the unit of the result's times allows. `partition` are columns of the stream, in
    its spelling; only with rows. `several` holds the lengths of many windows, with the value of the column `window` for each.
    """

    kind: WindowKind
    length: int = 0
    slide: int | None = None
    partition: tuple[str, ...] = ()
    several: tuple[tuple[int, int | str], ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A stream through a window, or an (unbounded) relation: the result of another query, or a stream of changes."""

    declaration: StreamDeclaration
    alias: str
    window: Window
    schema: pa.Schema
    """`alias.column` for every column; for a relation, without the columns that hold its lifetimes or changes."""
    line: int = 1
    column: int = 1


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows for which a condition holds. A conjunction is several filters, one above the other."""

    child: Node
    predicate: Expression

    @property
    def schema(self) -> pa.Schema:
        return self.child.schema


@dataclass(frozen=True, slots=True)
class Project:
    """Computed columns."""

    child: Node
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(column.name, column.value.kind) for column in self.columns])


@dataclass(frozen=True, slots=True)
class Join:
    """A join. `equal` holds pairs of expressions, over the left and right child, that must be equal; `residual` is over both."""

    kind: JoinKind
    left: Node
    right: Node
    equal: tuple[tuple[Expression, Expression], ...]
    residual: Expression | None

    @property
    def schema(self) -> pa.Schema:
        if self.kind in ("semi", "anti"):
            return self.left.schema
        return pa.schema([*self.left.schema, *self.right.schema])


@dataclass(frozen=True, slots=True)
class TableJoin:
    """A lookup of a table: every row with the table's row of its key. Without one, `left` gives NULLs and `inner` drops the row.

    `keys` are the parts of the table's key, named `alias.part`, with the expressions that they equal; `columns` are the columns
    of the table that are read. The rows are records of a stream `[Now]`, so every record is looked up once.
    """

    kind: Literal["inner", "left"]
    child: Node
    table: Lookup
    alias: str
    keys: tuple[Column, ...]
    columns: tuple[str, ...]

    @property
    def added(self) -> pa.Schema:
        """The columns that the lookup adds to those of the child."""
        kinds = self.table.schema
        keys = [pa.field(key.name, key.value.kind) for key in self.keys]
        return pa.schema([*keys, *(pa.field(f"{self.alias}.{name}", kinds.field(name).type) for name in self.columns)])

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.child.schema, *self.added])


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """A call of an aggregate. `function`, `second` and `constant` as in `lifetimes.plans.Call`; `argument` None is `count(*)`."""

    name: str
    function: str
    argument: Expression | None
    distinct: bool
    kind: pa.DataType
    text: str
    second: Expression | None = None
    constant: float | None = None
    line: int = 1
    column: int = 1

    @property
    def arguments(self) -> tuple[Expression, ...]:
        """The argument expressions, without constants."""
        return tuple(argument for argument in (self.argument, self.second) if argument is not None)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Groups: the keys, then the results of the calls. Without keys there is one row, also over an empty input.

    Over a source with several windows there is one aggregate for each, and the first column, `tag`, names the window.
    """

    child: Node
    keys: tuple[Column, ...]
    calls: tuple[AggregateCall, ...]
    tag: pa.Field | None = None

    @property
    def schema(self) -> pa.Schema:
        keys = [pa.field(key.name, key.value.kind) for key in self.keys]
        calls = [pa.field(call.name, call.kind) for call in self.calls]
        return pa.schema([*([self.tag] if self.tag else []), *keys, *calls])


@dataclass(frozen=True, slots=True)
class Distinct:
    """Every row once."""

    child: Node

    @property
    def schema(self) -> pa.Schema:
        return self.child.schema


@dataclass(frozen=True, slots=True)
class SetOperation:
    """UNION, EXCEPT or INTERSECT. Both sides have the same names and types: `resolution` has renamed and cast them."""

    kind: Literal["union", "except", "intersect"]
    all: bool
    left: Node
    right: Node

    @property
    def schema(self) -> pa.Schema:
        return self.left.schema


@dataclass(frozen=True, slots=True)
class ToStream:
    """The root of a query that yields a stream instead of a relation."""

    kind: Literal["istream", "dstream", "rstream"]
    child: Node

    @property
    def schema(self) -> pa.Schema:
        return self.child.schema


Node = Source | Filter | Project | Join | TableJoin | Aggregate | Distinct | SetOperation | ToStream


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes that a node reads."""
    match node:
        case Source():
            return ()
        case Join() | SetOperation():
            return node.left, node.right
        case _:
            return (node.child,)


# ---------------------------------------------------------------------------------------------------- as text


def describe(node: Node) -> list[str]:
    """Return the plan as lines of text: every node, with its children indented below it."""
    inner = [f"  {line}" for child in children(node) for line in describe(child)]
    return [_line(node), *inner]


def _line(node: Node) -> str:
    match node:
        case Source():
            return f"Source {node.declaration.name} as {node.alias} {window_text(node.window)}"
        case Filter():
            return f"Filter {_sql(node.predicate)}"
        case Project():
            return f"Project {', '.join(f'{output.name} = {_sql(output.value)}' for output in node.columns)}"
        case Join():
            equal = " and ".join(f"{_sql(left)} = {_sql(right)}" for left, right in node.equal)
            residual = f" where {_sql(node.residual)}" if node.residual else ""
            return f"Join {node.kind}" + (f" on {equal}" if equal else "") + residual
        case TableJoin():
            table = node.table.table
            keys = " and ".join(f"{part} = {_sql(key.value)}" for part, key in zip(table.key, node.keys))
            return f"Table {table.name} as {node.alias} by {keys}" + (", or nulls" if node.kind == "left" else "")
        case Aggregate():
            keys = ", ".join(f"{group.name} = {_sql(group.value)}" for group in node.keys)
            calls = ", ".join(f"{call.name} = {_call(call)}" for call in node.calls)
            scope = " for each window" if node.tag else ""
            return f"Aggregate{scope}" + (f" by {keys}" if keys else "") + (f": {calls}" if calls else "")
        case Distinct():
            return "Distinct"
        case SetOperation():
            return f"{node.kind.capitalize()}{' all' if node.all else ''}"
        case ToStream():
            return node.kind.capitalize()


def _call(call: AggregateCall) -> str:
    arguments = [_sql(argument) for argument in call.arguments] or ["*"]
    constant = [f"{call.constant:g}"] if call.constant is not None else []
    return f"{call.function}({'distinct ' if call.distinct else ''}{', '.join([*arguments, *constant])})"


def _sql(expression: Expression) -> str:
    return " ".join(expression.sql.split())


def window_text(window: Window) -> str:
    """Return a window as it is written in a query.

    >>> window_text(Window("range", 10_000_000, slide=2_000_000)), window_text(Window("rows", 5, partition=("k",)))
    ('[Range 10 s Slide 2 s]', '[Partition By k Rows 5]')
    """
    if window.kind == "unbounded":
        return "[Unbounded]"
    if window.kind == "range" and window.length == 0:
        return "[Now]"
    size = duration_text if window.kind == "range" else str
    partition = f"Partition By {', '.join(window.partition)} " if window.partition else ""
    slide = f" Slide {size(window.slide)}" if window.slide is not None else ""
    lengths = ", ".join(size(length) for length, _ in window.several or ((window.length, 0),))
    return f"[{partition}{window.kind.capitalize()} {lengths}{slide}]"
