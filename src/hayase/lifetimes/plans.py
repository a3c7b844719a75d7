"""Physical plans: the operator tree of a query's reduce side, as frozen data.

`hayase.lifetimes.kernel` runs a plan; the negative-tuple baseline in `benchmarks/` runs the same plans. The rows of a node
have the columns of its `schema`, whose names are unique within the node. Expressions are DuckDB SQL over the quoted column
names of the child; the planner has checked them. A leaf reads an input of the stage by its number. A node that occurs in
several places of a plan (the same object) runs once. Class and field names are part of the stage's fingerprint.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

import pyarrow as pa

from hayase.core.data_classes import dataclass

__all__ = [
    "Aggregate", "Asof", "BagCall", "Bounded", "Call", "Changes", "Frame", "Instants", "Join", "JoinKind", "Lasting",
    "Lifetimes", "Limited", "Multiset", "Node", "Order", "Over", "OverCall", "Partition", "Range", "Recomputed", "Rows", "Rule",
    "RunningCall", "RunningOver", "Scalar", "Session", "Shared", "SharedWindow", "ToStream", "Top", "Unbounded",
    "UnionAll", "Unnest", "Window", "WindowKind", "Windowed", "children",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Range:
    """A time window: a tuple of time t is alive on `[t, t + length)`; all in microseconds.

    With a slide, both ends are rounded up to multiples of it, plus `offset`. `grain` is the resolution of the result's
    times; ends are rounded up to its multiples. `[Now]` is a range of one grain.
    """

    length: int
    slide: int | None = None
    grain: int = 1
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """A column by which rows are ordered."""

    column: str
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """A row window: a tuple is alive until the `count`-th later tuple of the stream; the window moves at every `slide`-th.

    `ticks` is the number of the input that carries the time and offset of every tuple to every bucket, and the columns of
    `order`, which decide between equal times before the offset does.
    """

    count: int
    ticks: int
    slide: int = 1
    order: tuple[Order, ...] = ()


@dataclass(frozen=True, slots=True)
class Partition:
    """A partitioned row window: a tuple is alive until the `count`-th later tuple with equal `keys`.

    All tuples of a partition come to the same bucket. The columns of `order` decide between equal times before the offset does.
    """

    keys: tuple[str, ...]
    count: int
    slide: int = 1
    order: tuple[Order, ...] = ()


@dataclass(frozen=True, slots=True)
class Unbounded:
    """A window in which every tuple stays for ever."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """Windows whose bounds do not depend on the records: a tuple of time t is in every window `[start, end)` that contains t.

    The windows of `tumble` and `hop` start at multiples of `step` plus `offset` and have the same length. Those of `cumulate`
    start at multiples of `length` plus `offset` and grow by `step` up to `length`. A tuple is alive for `keep` microseconds
    from the end of its window on (`times.END`: for ever). With `early` there is a second tuple for each, which is alive from
    the next multiple of `early` after t until the end of the window.

    `columns` are the names of the columns with the bounds, and with `early` of the one that is true for the former tuples:
    the last columns of the leaf's schema. The bounds are in units of `unit` microseconds.
    """

    kind: Literal["tumble", "hop", "cumulate"]
    length: int
    step: int
    offset: int
    keep: int
    early: int | None
    columns: tuple[str, ...]
    unit: int = 1


@dataclass(frozen=True, slots=True)
class Session:
    """Windows of activity: a tuple is in the session of the one before it with equal `keys` if that is less than `gap` older.

    A session starts with its first tuple and ends `gap` after its last one. Its tuples are alive for `keep` microseconds from
    its end on. With `early`, the tuples of a session so far are alive from each multiple of `early` inside it until the next;
    the end of the session is then that of the tuples before the multiple. `columns` and `unit` as for `Bounded`.
    """

    keys: tuple[str, ...]
    gap: int
    keep: int
    early: int | None
    columns: tuple[str, ...]
    unit: int = 1


Window = Range | Rows | Partition | Unbounded | Bounded | Session
WindowKind = Literal["range", "rows", "unbounded", "tumble", "hop", "cumulate", "session"]
"""The kind of a window, as it is written in a query."""


@dataclass(frozen=True, slots=True)
class Windowed:
    """A leaf: a stream through a window. The batches of the input also have the columns TIME and OFFSET.

    A `Partition` counts all tuples of the input, and all are in a `Session`. `where`, if set, names a boolean column of the
    input, which is not in `schema`; only tuples for which it is true are in the relation.
    """

    input: int
    window: Window
    schema: pa.Schema
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """A leaf: the output stream of another query, whose records carry `row_id`, `valid_from` and `valid_to`.

    The input has these as the columns ROW_ID, VALID_FROM and VALID_TO (microseconds; null while open). TIME is when the
    row appears or, in the second record of a row, when it ends.
    """

    input: int
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Changes:
    """A leaf: a relation declared as a stream of changes. The boolean column ADDED is true for `+`; `-` removes one equal row."""

    input: int
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Scalar:
    """Selection and projection: the rows of the child that satisfy `where`, as named expressions."""

    child: Node
    columns: tuple[tuple[str, str], ...]
    where: str | None
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Unnest:
    """The rows of the child, each once for every element of its column `list`; the last column of the schema is the element."""

    child: Node
    list: str
    schema: pa.Schema


JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True, slots=True)
class Join:
    """A join of rows with equal `keys` (NULL equals nothing) that satisfy `residual`, if any.

    `residual` is an expression over the columns of both children. The schema is the columns of the left child, then those
    of the right one; for `semi` and `anti` those of the left child only. Where an outer join finds no partner, the columns
    of the other side are NULL.
    """

    kind: JoinKind
    left: Node
    right: Node
    keys: tuple[tuple[str, str], ...]
    residual: str | None
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Asof:
    """Every row of the left child with the first row of the right one that it meets, if there is any; the schema is both.

    Rows meet that have equal `keys` (NULL equals nothing), and of which the left one's `column` is, in the order that the first
    entry of `order` gives, before the right one's value of that entry or, unless `strict`, equal to it. NULL meets nothing. The
    `order` is that of the right rows; its other entries decide ties. With `left`, a row that meets none has NULLs.
    """

    kind: Literal["inner", "left"]
    left: Node
    right: Node
    keys: tuple[tuple[str, str], ...]
    column: str
    order: tuple[Order, ...]
    strict: bool
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Limited:
    """The rows of a child that never end, each until `length` microseconds after its start, this instant included."""

    child: Node
    length: int
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Lasting:
    """The rows of the child, each from its start on, for ever."""

    child: Node
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class UnionAll:
    """All rows of all children, which have equal schemas."""

    children: tuple[Node, ...]
    schema: pa.Schema


Rule = Literal["distinct", "except", "except all", "intersect", "intersect all", "coalesce"]


@dataclass(frozen=True, slots=True)
class Multiset:
    """A set operation: the multiplicity of each row follows from its multiplicities in one or two children.

    NULL equals NULL. `distinct` and `coalesce` have one child. `distinct` keeps each row at most once; `coalesce` keeps
    all copies, but treats the end and the start of equal rows at one instant as no change.
    """

    rule: Rule
    children: tuple[Node, ...]
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Call:
    """An aggregate call; `function` is a name of `core.algebra`.

    `argument` is a column of the child, or None for `count(*)`. `text` is what the user wrote, for messages. `second` is
    the other column of an aggregate of two, such as arg_min; `constant` is the fraction of a quantile.
    """

    function: str
    argument: str | None
    distinct: bool = False
    text: str = ""
    second: str | None = None
    constant: float | None = None


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One row per group of equal `keys` (columns of the child; NULL is a group), with the value of each call.

    The schema is the keys, then one column per call. Without keys there is one row from `Span.began` on, even while the
    child is empty. A group without tuples has no row.
    """

    child: Node
    keys: tuple[str, ...]
    calls: tuple[Call, ...]
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class BagCall:
    """A function of the bag of a group's rows, as SQL over `columns` of the child; `name` is its column in the result.

    `text` is what the user wrote. If `fold` names an aggregate of `core.algebra`, the SQL gives the list of its arguments in
    order, and Python folds them. The SQL may name the id of a tuple (`tuples.ID`).
    """

    name: str
    sql: str
    columns: tuple[str, ...]
    text: str = ""
    fold: str | None = None
    constant: float | None = None


@dataclass(frozen=True, slots=True)
class Recomputed:
    """An `Aggregate` with functions of bags beside its calls: they are recomputed for a group when its rows change.

    The schema is the keys, then one column per call and function, in any order; `bags` name theirs.
    """

    child: Node
    keys: tuple[str, ...]
    calls: tuple[Call, ...]
    bags: tuple[BagCall, ...]
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Top:
    """The first rows of each group of equal `keys`: in the order of `order`, `limit` rows after the first `offset`.

    The first `listed` columns of `order` are those of the query; the others decide ties. With `ties`, the rows that equal the
    last one in the listed columns are included. Rows that are equal in all columns of `order` are interchangeable. `lasting` says
    that no row of the child ever ends.
    """

    child: Node
    keys: tuple[str, ...]
    order: tuple[Order, ...]
    listed: int
    limit: int | None
    offset: int
    ties: bool
    schema: pa.Schema
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class OverCall:
    """A window function: `name` is its column in the result, `sql` the call and `over` the order and frame, in DuckDB's SQL over
    the columns of the child; `text` is what EXPLAIN shows."""

    name: str
    sql: str
    over: str
    text: str


@dataclass(frozen=True, slots=True)
class Over:
    """Window functions over partitions of equal `keys`, at every instant: the columns of the child, then one for each call.

    `reads` are the columns of the child that the calls read; they may also read the column TUPLE_ID, to order equal rows.
    """

    child: Node
    keys: tuple[str, ...]
    reads: tuple[str, ...]
    calls: tuple[OverCall, ...]
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame of a window function over a stream, up to the record itself or, with `peers`, the last one of the same time.

    It begins with the first record of the partition, `length` rows before, or `length` microseconds before.
    """

    kind: Literal["unbounded", "rows", "range"]
    length: int = 0
    peers: bool = False


@dataclass(frozen=True, slots=True)
class RunningCall:
    """A window function over a stream: its name in the result, the function (row_number, rank, dense_rank, lag, first_value,
    last_value, nth_value, or an aggregate), and its arguments, which are columns of the child.

    `constant` is which value nth_value takes. The frame of `lag` is that many rows; `default` is the column that it gives if
    there is none. `text` is what the user wrote.
    """

    name: str
    function: str
    arguments: tuple[str, ...]
    frame: Frame
    constant: int = 0
    default: str | None = None
    ignores_nulls: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class RunningOver:
    """Window functions over the tuples of a stream with equal `keys`, in the order of their starts: the columns of the child,
    then one for each call. A tuple has its values for ever."""

    child: Node
    keys: tuple[str, ...]
    calls: tuple[RunningCall, ...]
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class SharedWindow:
    """One of several windows over a stream; `tag` is the value of its rows in the column that tells windows apart.

    For `rows`, the newest `length` tuples after every `slide`-th tuple. For `range`, the last `length` microseconds at
    every multiple of `slide` microseconds, plus `offset`. Windows with bounds are as `Bounded` (`hop` for `tumble`) and
    `Session` say: `slide` is the step, and `length` the gap of a session.
    """

    kind: Literal["rows", "range", "hop", "cumulate", "session"]
    length: int
    slide: int
    tag: int | str | None = None
    offset: int = 0
    keep: int = 0


@dataclass(frozen=True, slots=True)
class Shared:
    """A leaf: an input of the stage, aggregated over several windows in one pass (paper 2).

    For each window it has one row per group of equal `keys`, like an `Aggregate` over a `Windowed`. Row windows count per
    group. `where`, if set, names a boolean column of the input: rows for which it is not true are counted by row windows,
    but are in no aggregate. The schema is the column of tags (if windows have tags), the keys, then one column per call.
    `guard`, if set, has the keys and the arguments of the sums that refuse a record at which they overflow (`sum_guard`).

    Windows with bounds have one row for each window and group that is not empty, with a lifetime of its own; sessions are
    those of the groups. The two columns with the `bounds`, in units of `unit` microseconds, follow the keys in the schema.
    """

    input: int
    windows: tuple[SharedWindow, ...]
    keys: tuple[str, ...]
    calls: tuple[Call, ...]
    schema: pa.Schema
    where: str | None = None
    guard: pa.Schema | None = None
    bounds: tuple[str, ...] = ()
    unit: int = 1


@dataclass(frozen=True, slots=True)
class Instants:
    """A leaf: the instants at which the window of an input moves because of a record, whether WHERE accepts it or not.

    The rows have no columns. The keys of a partition must be columns of the input.
    """

    input: int
    window: Window
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))


@dataclass(frozen=True, slots=True)
class ToStream:
    """The root of a query whose result is a stream: rows as they appear (`istream`), as they disappear (`dstream`), or
    all rows at certain instants (`rstream`).

    The instants of a query are those of `instants`; those of a job are the multiples of `every` microseconds.
    """

    kind: Literal["istream", "dstream", "rstream"]
    child: Node
    schema: pa.Schema
    every: int | None = None
    instants: tuple[Instants, ...] = ()


Leaf = Windowed | Lifetimes | Changes | Shared | Instants
Node = (
    Leaf | Scalar | Join | Asof | Limited | Lasting | UnionAll | Multiset | Aggregate | Recomputed | Top | Over
    | RunningOver | Unnest | ToStream
)  # fmt: skip

TUPLE_ID = "__id"
ROW_ID, VALID_FROM, VALID_TO, ADDED = "__row_id", "__valid_from", "__valid_to", "__added"

LET_THROUGH, COMPUTABLE = "__let_through", "__computable"
"""The names of `where`: WHERE accepts the tuple, and its expressions can be computed; or the latter alone."""


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes that a node reads."""
    match node:
        case Windowed() | Lifetimes() | Changes() | Shared() | Instants():
            return ()
        case ToStream():
            return node.child, *node.instants
        case Join() | Asof():
            return node.left, node.right
        case UnionAll() | Multiset():
            return node.children
        case _:
            return (node.child,)
