"""Plans: the operator tree of a stage's reduce side, as plain data. `direct` and `negative` both build from it.

A node's rows have the columns of its `schema`, whose names are unique within the node. Expressions are DuckDB SQL over
the column names of the child (quoted); they were checked by the planner. A leaf reads an input of the stage by number.
A node may stand in several places of a plan (the same object): it runs once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

__all__ = [
    "Aggregate", "Call", "Changes", "Instants", "Join", "JoinKind", "Lifetimes", "Multiset", "Node", "Partition", "Range",
    "Rows", "Rule", "Scalar", "Shared", "SharedWindow", "ToStream", "Unbounded", "UnionAll", "Window", "WindowKind", "Windowed",
    "children",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Range:
    """`[t, t + length)`; with a slide both ends go up to its multiples. `[Now]` is a range of one `grain`.

    `grain` is the resolution of the result's times in microseconds; ends go up to its multiples.
    """

    length: int
    slide: int | None = None
    grain: int = 1


@dataclass(frozen=True, slots=True)
class Rows:
    """Alive until the `count`-th later tuple of the stream; with a slide the window moves at every `slide`-th tuple.

    `ticks` is the number of the input that brings the time and offset of every tuple to every bucket.
    """

    count: int
    ticks: int
    slide: int = 1


@dataclass(frozen=True, slots=True)
class Partition:
    """Alive until the `count`-th later tuple with the same `keys`, all of which come to this bucket."""

    keys: tuple[str, ...]
    count: int
    slide: int = 1


@dataclass(frozen=True, slots=True)
class Unbounded:
    """Alive for ever."""


Window = Range | Rows | Partition | Unbounded
WindowKind = Literal["range", "rows", "unbounded"]
"""What a window goes by, as it is written."""


@dataclass(frozen=True, slots=True)
class Windowed:
    """A leaf: a stream through a window. The input's batches also have the columns TIME and OFFSET.

    For a `Partition` the window's tuples are all those of the input: `where`, if there is one, names a boolean column
    of the input that says which of them are let through; it is not in `schema`.
    """

    input: int
    window: Window
    schema: pa.Schema
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """A leaf: the result stream of another query, whose rows carry `row_id`, `valid_from` and `valid_to`.

    Of these the input has the columns ROW_ID, VALID_FROM and VALID_TO (microseconds; null while open); TIME is when the
    row appears or, on its second row, when it ends.
    """

    input: int
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Changes:
    """A leaf: a relation declared as a stream of changes. The boolean column ADDED says `+`; `-` takes away one equal row."""

    input: int
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Scalar:
    """Selection and projection: rows of the child that satisfy `where`, as named expressions."""

    child: Node
    columns: tuple[tuple[str, str], ...]
    where: str | None
    schema: pa.Schema


JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True, slots=True)
class Join:
    """Rows of both children that meet: equal in `keys` (NULL is never equal) and satisfying `residual`, if any.

    `residual` is over the columns of both children. The schema is the left's columns, then the right's; for `semi` and
    `anti` the left's alone. Where an outer join finds no partner, the other side's columns are NULL.
    """

    kind: JoinKind
    left: Node
    right: Node
    keys: tuple[tuple[str, str], ...]
    residual: str | None
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class UnionAll:
    """All rows of all children, which agree in schema."""

    children: tuple[Node, ...]
    schema: pa.Schema


Rule = Literal["distinct", "except", "except all", "intersect", "intersect all", "coalesce"]


@dataclass(frozen=True, slots=True)
class Multiset:
    """How often each row is there, from how often it is in the one or two children. NULL equals NULL.

    `distinct` and `coalesce` have one child: at most once; as often as there, an end and a start of equal rows at one
    instant being no change.
    """

    rule: Rule
    children: tuple[Node, ...]
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Call:
    """An aggregate: `function` is one of `core.algebra`.

    `argument` is a column of the child; None for `count(*)`. `text` is what the user wrote, for messages. `second` is the
    other column of an aggregate of two, such as arg_min; `constant` the fraction of a quantile.
    """

    function: str
    argument: str | None
    distinct: bool = False
    text: str = ""
    second: str | None = None
    constant: float | None = None


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A row per group of equal `keys` (columns of the child; NULL is a group), with the value of each call.

    The schema is the keys, then one column per call. Without keys there is one row from `Span.began` on, also while the
    child is empty. A group that has become empty has no row.
    """

    child: Node
    keys: tuple[str, ...]
    calls: tuple[Call, ...]
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class SharedWindow:
    """One window of many over a stream. Rows: after every `slide`-th tuple the newest `length`; range: at every multiple
    of `slide` the last `length`, both in microseconds. `tag` is what its rows have in the column that tells windows apart."""

    kind: Literal["rows", "range"]
    length: int
    slide: int
    tag: int | str | None = None


@dataclass(frozen=True, slots=True)
class Shared:
    """A leaf: an input of the stage, aggregated over several windows in one pass (paper 2).

    For each window a row per group of equal `keys`, as an `Aggregate` over a `Windowed` gives it; rows are counted per
    group. `where`, if there is one, names a boolean column of the input: rows it refuses count, and are in no aggregate.
    The schema is the tag's column, if windows have tags, the keys, then one column per call.
    """

    input: int
    windows: tuple[SharedWindow, ...]
    keys: tuple[str, ...]
    calls: tuple[Call, ...]
    schema: pa.Schema
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Instants:
    """A leaf: the instants at which a window of an input moves because of a record, whether WHERE lets that through or not.

    The rows have no columns. The columns that a partition's keys are must be columns of the input.
    """

    input: int
    window: Window
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))


@dataclass(frozen=True, slots=True)
class ToStream:
    """The root of a query that yields a stream: rows as they appear, as they disappear, or (`rstream`) all of them at
    certain instants.

    These are those of `instants`, of a query, or the multiples of `every` microseconds, of a job.
    """

    kind: Literal["istream", "dstream", "rstream"]
    child: Node
    schema: pa.Schema
    every: int | None = None
    instants: tuple[Instants, ...] = ()


Leaf = Windowed | Lifetimes | Changes | Shared | Instants
Node = Leaf | Scalar | Join | UnionAll | Multiset | Aggregate | ToStream

ROW_ID, VALID_FROM, VALID_TO, ADDED = "__row_id", "__valid_from", "__valid_to", "__added"


def children(node: Node) -> tuple[Node, ...]:
    """The nodes that a node reads."""
    match node:
        case Windowed() | Lifetimes() | Changes() | Shared() | Instants():
            return ()
        case ToStream():
            return node.child, *node.instants
        case Join():
            return node.left, node.right
        case UnionAll() | Multiset():
            return node.children
        case _:
            return (node.child,)
