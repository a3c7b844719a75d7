"""The logical plan of a query: what it means, with names and types resolved, before anybody decides where it runs.

Every node's output columns have unique names. The columns of a source are named `alias.column`; an expression is DuckDB
SQL over the (quoted) column names of the node's child or, for a join, of both children.
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
    """SQL over the child's columns: its type, the columns it reads, and the text and place that the user wrote.

    `equality` are the two sides when it is `one = another`.
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
    """`kind` range, rows or unbounded. `length` is microseconds or a number of rows, and so is `slide`.

    `[Now]` is a range of length 0: as short as the result's times allow. `partition` are columns of the stream, as it
    spells them; only with rows. `several` are the lengths of many windows, with what the column `window` says of each.
    """

    kind: WindowKind
    length: int = 0
    slide: int | None = None
    partition: tuple[str, ...] = ()
    several: tuple[tuple[int, int | str], ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A stream through a window, or (unbounded) a relation: the result of another query, or a stream of changes."""

    declaration: StreamDeclaration
    alias: str
    window: Window
    schema: pa.Schema
    """`alias.column` of every column; of a relation, those that are its own."""
    line: int = 1
    column: int = 1


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows for which one condition holds; a conjunction is several filters, one upon the other."""

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
        return pa.schema([pa.field(each.name, each.value.kind) for each in self.columns])


@dataclass(frozen=True, slots=True)
class Join:
    """`equal` are pairs of expressions, each over one child, that must be equal; `residual` is over both."""

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
    """Every row with the row of a table that has its key; `left` gives nulls where there is none, `inner` nothing.

    `keys` are the parts of the table's key, called `alias.part`, each with what it is equal to; `columns` are those of the
    table that are read. Rows are records of this very instant, so that each meets the table once.
    """

    kind: Literal["inner", "left"]
    child: Node
    table: Lookup
    alias: str
    keys: tuple[Column, ...]
    columns: tuple[str, ...]

    @property
    def added(self) -> pa.Schema:
        """The columns that come to those of the child."""
        kinds = self.table.schema
        keys = [pa.field(each.name, each.value.kind) for each in self.keys]
        return pa.schema([*keys, *(pa.field(f"{self.alias}.{each}", kinds.field(each).type) for each in self.columns)])

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.child.schema, *self.added])


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """`function`, `second` and `constant` as in `lifetimes.plans.Call`; `argument` None is `count(*)`."""

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
        """The expressions that it reads."""
        return tuple(each for each in (self.argument, self.second) if each is not None)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The keys, then the calls. Without keys: one row, also over nothing.

    Over a source with several windows it is this for each of them; a first column, `tag`, tells which.
    """

    child: Node
    keys: tuple[Column, ...]
    calls: tuple[AggregateCall, ...]
    tag: pa.Field | None = None

    @property
    def schema(self) -> pa.Schema:
        keys = [pa.field(each.name, each.value.kind) for each in self.keys]
        calls = [pa.field(each.name, each.kind) for each in self.calls]
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
    """Both sides agree in names and types: the resolution has cast and renamed them."""

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
    """The nodes that a node reads."""
    match node:
        case Source():
            return ()
        case Join() | SetOperation():
            return node.left, node.right
        case _:
            return (node.child,)


# ---------------------------------------------------------------------------------------------------- as text


def describe(node: Node) -> list[str]:
    """The plan as lines, each node above what it reads, which stands further in."""
    inner = [f"  {line}" for child in children(node) for line in describe(child)]
    return [_line(node), *inner]


def _line(node: Node) -> str:
    match node:
        case Source():
            return f"Source {node.declaration.name} as {node.alias} {window_text(node.window)}"
        case Filter():
            return f"Filter {_sql(node.predicate)}"
        case Project():
            return f"Project {', '.join(f'{each.name} = {_sql(each.value)}' for each in node.columns)}"
        case Join():
            equal = " and ".join(f"{_sql(left)} = {_sql(right)}" for left, right in node.equal)
            residual = f" where {_sql(node.residual)}" if node.residual else ""
            return f"Join {node.kind}" + (f" on {equal}" if equal else "") + residual
        case TableJoin():
            table = node.table.table
            keys = " and ".join(f"{part} = {_sql(each.value)}" for part, each in zip(table.key, node.keys))
            return f"Table {table.name} as {node.alias} by {keys}" + (", or nulls" if node.kind == "left" else "")
        case Aggregate():
            keys = ", ".join(f"{each.name} = {_sql(each.value)}" for each in node.keys)
            calls = ", ".join(f"{each.name} = {_call(each)}" for each in node.calls)
            each = " for each window" if node.tag else ""
            return f"Aggregate{each}" + (f" by {keys}" if keys else "") + (f": {calls}" if calls else "")
        case Distinct():
            return "Distinct"
        case SetOperation():
            return f"{node.kind.capitalize()}{' all' if node.all else ''}"
        case ToStream():
            return node.kind.capitalize()


def _call(call: AggregateCall) -> str:
    arguments = [_sql(each) for each in call.arguments] or ["*"]
    constant = [f"{call.constant:g}"] if call.constant is not None else []
    return f"{call.function}({'distinct ' if call.distinct else ''}{', '.join([*arguments, *constant])})"


def _sql(expression: Expression) -> str:
    return " ".join(expression.sql.split())


def window_text(window: Window) -> str:
    """A window as it is written in a query.

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
    lengths = ", ".join(size(each) for each, _ in window.several or ((window.length, 0),))
    return f"[{partition}{window.kind.capitalize()} {lengths}{slide}]"
