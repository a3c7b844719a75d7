"""Nodes of the logical plan: what a query means, with names and types resolved, before it is decided where it runs.

The output columns of a node have unique names. The columns of a source are named `alias.column`. An expression is DuckDB SQL
over the (quoted) columns of the node's child or, for a join, of both children.
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.core.stages import Lookup
from hayase.core.times import END, duration_text
from hayase.lifetimes.plans import Frame, JoinKind, WindowKind

__all__ = [
    "Aggregate", "AggregateCall", "Asof", "Column", "Distinct", "Expression", "Filter", "Join", "Node", "OrderKey",
    "Over", "OverCall", "Project", "RunningCall", "RunningOver", "SetOperation", "Source", "TableJoin", "ToStream", "Top",
    "Unnest", "Window", "children", "describe", "frame_text", "options_text", "order_text", "window_text",
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
    its spelling; only with rows and with bounds. `several` holds the lengths of many windows, with the value of the column
    `window` for each. `order` are columns of the stream with their directions (descending, NULLs first): only with rows.

    For windows with bounds, `slide` is the duration after Every or By, `early` is as in `lifetimes.plans.Bounded`, and the last
    columns of the source are the bounds (`Source.bounds`). `sessions` are the keys of sessions: expressions over the columns of
    the source.
    """

    kind: WindowKind
    length: int = 0
    slide: int | None = None
    partition: tuple[str, ...] = ()
    several: tuple[tuple[int, int | str], ...] = ()
    offset: int = 0
    keep: int | None = None
    early: int | None = None
    sessions: tuple[Column, ...] = ()
    order: tuple[tuple[str, bool, bool], ...] = ()

    @property
    def has_bounds(self) -> bool:
        """Whether its rows have the columns `window_start` and `window_end`."""
        return self.kind in ("tumble", "hop", "cumulate", "session")

    @property
    def step(self) -> int:
        """The time between the ends of consecutive windows with bounds; for sessions, the gap."""
        return self.slide if self.slide is not None else self.length

    @property
    def kept(self) -> int:
        """How long the rows of a window with bounds stay after its end; END for ever."""
        return self.step if self.keep is None else self.keep


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
    query: Node | None = None
    """The plan of the stream, if it is one inside of the query (`cql.nested_streams`)."""

    @property
    def bounds(self) -> tuple[str, ...]:
        """The columns that the window adds to those of the stream."""
        count = (2 if self.window.early is None else 3) if self.window.has_bounds else 0
        return tuple(self.schema.names[len(self.schema) - count :])


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
class Asof:
    """An ASOF join: every row of the left child with the first row of the right one that it meets.

    Rows meet if the pairs of `equal` are equal, and if `value`, over the left child, comes before the first entry of `order` in the
    direction of this entry or, unless `strict`, is equal to it. `order` is that of the right rows, ties included.
    """

    kind: Literal["inner", "left"]
    left: Node
    right: Node
    equal: tuple[tuple[Expression, Expression], ...]
    value: Expression
    order: tuple[OrderKey, ...]
    strict: bool

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.left.schema, *self.right.schema])

    @property
    def sign(self) -> str:
        """The comparison as it is written between the left and the right side."""
        return (">" if self.order[0].descending else "<") + ("" if self.strict else "=")


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
    """A call of an aggregate. `function`, `second` and `constant` as in `lifetimes.plans.Call`; `argument` None is `count(*)`.

    A call that is recomputed from the rows of a group has a `template`, the SQL over its columns `more` (`hayase.core.bags`);
    with `folded`, that gives the arguments of `function` in order.
    """

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
    template: str | None = None
    more: tuple[Expression, ...] = ()
    folded: bool = False

    @property
    def arguments(self) -> tuple[Expression, ...]:
        """The argument expressions, without constants."""
        return tuple(argument for argument in (self.argument, self.second, *self.more) if argument is not None)


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
    """Every row once or, if `all`, every row as often as it is there, but as one tuple for as long as it stays."""

    child: Node
    all: bool = False

    @property
    def schema(self) -> pa.Schema:
        return self.child.schema


@dataclass(frozen=True, slots=True)
class Unnest:
    """Every row once for each element of a list, which is the column `name`; a row without elements is dropped."""

    child: Node
    value: Expression
    name: str

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.child.schema, pa.field(self.name, self.value.kind.value_type)])


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
class OrderKey:
    """An expression by which rows are ordered."""

    value: Expression
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class Top:
    """The first rows of each group of equal `keys`, or of all: `limit` rows after the first `offset`; fields as in `plans.Top`.

    If `local`, the rows of each bucket are ordered by themselves: what cannot be among the first rows of all is left out early.
    """

    child: Node
    keys: tuple[Expression, ...]
    order: tuple[OrderKey, ...]
    listed: int
    limit: int | None
    offset: int = 0
    ties: bool = False
    local: bool = False

    @property
    def schema(self) -> pa.Schema:
        return self.child.schema


@dataclass(frozen=True, slots=True)
class OverCall:
    """A call of a window function; `name` is its column in the result. `condition` is that of FILTER."""

    name: str
    function: str
    arguments: tuple[Expression, ...]
    frame: str
    condition: Expression | None
    distinct: bool
    ignores_nulls: bool
    kind: pa.DataType
    text: str


@dataclass(frozen=True, slots=True)
class Over:
    """Window functions over the rows of each partition of equal `keys`, in one order, at every instant.

    The first `listed` entries of `order` are those that the query lists; the others decide ties.
    """

    child: Node
    keys: tuple[Expression, ...]
    order: tuple[OrderKey, ...]
    listed: int
    calls: tuple[OverCall, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.child.schema, *(pa.field(call.name, call.kind) for call in self.calls)])

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All expressions over the child: keys, order, then arguments and conditions of the calls."""
        inside = [value for call in self.calls for value in (*call.arguments, call.condition) if value is not None]
        return (*self.keys, *(key.value for key in self.order), *inside)


@dataclass(frozen=True, slots=True)
class RunningCall:
    """A window function over a stream; fields as in `lifetimes.plans.RunningCall`, with expressions for columns."""

    name: str
    function: str
    arguments: tuple[Expression, ...]
    frame: Frame
    constant: int
    default: Expression | None
    ignores_nulls: bool
    kind: pa.DataType
    text: str


@dataclass(frozen=True, slots=True)
class RunningOver:
    """Window functions over a stream in the order of event time: one result for each record, which stays."""

    child: Node
    keys: tuple[Expression, ...]
    calls: tuple[RunningCall, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.child.schema, *(pa.field(call.name, call.kind) for call in self.calls)])

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All expressions over the child: keys, then arguments and defaults of the calls."""
        inside = [value for call in self.calls for value in (*call.arguments, call.default) if value is not None]
        return (*self.keys, *inside)


@dataclass(frozen=True, slots=True)
class ToStream:
    """The root of a query that yields a stream instead of a relation."""

    kind: Literal["istream", "dstream", "rstream"]
    child: Node

    @property
    def schema(self) -> pa.Schema:
        return self.child.schema


Node = (
    Source
    | Filter
    | Project
    | Join
    | Asof
    | TableJoin
    | Aggregate
    | Distinct
    | Unnest
    | SetOperation
    | Top
    | Over
    | RunningOver
    | ToStream
)


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes that a node reads."""
    match node:
        case Source():
            return ()
        case Join() | Asof() | SetOperation():
            return node.left, node.right
        case _:
            return (node.child,)


# ---------------------------------------------------------------------------------------------------- as text


def describe(node: Node) -> list[str]:
    """Return the plan as lines of text: every node, with its children indented below it."""
    below = children(node)
    if isinstance(node, Source) and node.query is not None:
        below = (node.query,)
    inner = [f"  {line}" for child in below for line in describe(child)]
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
        case Asof():
            equal = "".join(f"{_sql(left)} = {_sql(right)} and " for left, right in node.equal)
            ties = ", ".join(order_text(_sql(key.value), key.descending, key.nulls_first) for key in node.order[1:])
            on = f"{equal}{_sql(node.value)} {node.sign} {_sql(node.order[0].value)}"
            return f"Asof join {node.kind} on {on}" + (f", ties by {ties}" if ties else "")
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
            return "Coalesce" if node.all else "Distinct"
        case Unnest():
            return f"Unnest {node.name} of {_sql(node.value)}"
        case SetOperation():
            return f"{node.kind.capitalize()}{' all' if node.all else ''}"
        case Top():
            return _top(node)
        case Over():
            keys = f" by {', '.join(map(_sql, node.keys))}" if node.keys else ""
            listed = node.order[: node.listed]
            order = ", ".join(order_text(_sql(key.value), key.descending, key.nulls_first) for key in listed)
            calls = ", ".join(f"{call.name} = {' '.join(call.text.split())}" for call in node.calls)
            return f"Over{keys}" + (f" order by {order}" if order else "") + f": {calls}"
        case RunningOver():
            keys = f" by {', '.join(map(_sql, node.keys))}" if node.keys else ""
            calls = ", ".join(f"{call.name} = {' '.join(call.text.split())}" for call in node.calls)
            return f"Over{keys} in the order of event time: {calls}"
        case ToStream():
            return node.kind.capitalize()


def _top(node: Top) -> str:
    keys = f" of each {', '.join(map(_sql, node.keys))}" if node.keys else " of each bucket" if node.local else ""
    offset = f" after {node.offset}" if node.offset else ""
    ties = " with ties" if node.ties else ""
    order = ", ".join(order_text(_sql(key.value), key.descending, key.nulls_first) for key in node.order)
    return f"Top {'all' if node.limit is None else node.limit}{offset}{ties}{keys} by {order}"


def order_text(sql: str, descending: bool, nulls_first: bool) -> str:
    """Return an entry of ORDER BY as text.

    >>> order_text("x", True, False), order_text("y", False, True)
    ('x desc', 'y nulls first')
    """
    return sql + (" desc" if descending else "") + (" nulls first" if nulls_first else "")


def frame_text(frame: Frame) -> str:
    """Return what a frame over a stream contains.

    >>> frame_text(Frame("range", 600_000_000, True)), frame_text(Frame("rows", 2)), frame_text(Frame("unbounded"))
    ('the last 10 minutes', '2 rows before', 'all before')
    """
    if frame.kind == "rows":
        return f"{frame.length} rows before"
    return "all before" if frame.kind == "unbounded" else f"the last {duration_text(frame.length)}"


def _call(call: AggregateCall) -> str:
    if call.template is not None:
        sql = call.template.format(*map(_sql, call.more))
        return f"{call.function} of {sql}" if call.folded else sql
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
    size = str if window.kind == "rows" else duration_text
    sessions = [" ".join(key.value.text.split()) for key in window.sessions]
    columns = ", ".join(sessions or window.partition)
    partition = f"Partition By {columns} " if columns else ""
    lengths = ", ".join(size(length) for length, _ in window.several or ((window.length, 0),))
    word = {"hop": "Every", "cumulate": "By"}.get(window.kind, "Slide")
    step = f" {word} {size(window.slide)}" if window.slide is not None else ""
    order = f" Order By {', '.join(order_text(*entry) for entry in window.order)}" if window.order else ""
    options = options_text(window.offset, window.keep, window.early)
    return f"[{partition}{window.kind.capitalize()} {lengths}{step}{options}{order}]"


def options_text(offset: int, keep: int | None, early: int | None) -> str:
    """Return the options of a window as they are written in a query."""
    kept = [] if keep is None else [f" Keep {'Unbounded' if keep >= END else duration_text(keep)}"]
    offsets = [f" Offset {duration_text(offset)}"] if offset else []
    return "".join([*offsets, *kept, *([] if early is None else [f" Early {duration_text(early)}"])])
