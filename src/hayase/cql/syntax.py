"""The syntax of a query as frozen data: what is written, and where. Nothing is resolved yet.

Expressions remain text. Conditions are split at AND, which separates equalities and sub-queries from other conditions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from hayase.core.data_classes import dataclass
from hayase.core.errors import Mistake
from hayase.lifetimes.plans import JoinKind, WindowKind

__all__ = [
    "Combined", "Condition", "Constant", "Item", "Joined", "Membership", "Named", "Nested", "OrderItem", "Ordering", "OverText",
    "Part", "Plain", "Query", "Relation", "Select", "Subquery", "Unnested", "WindowText", "named_relations", "normalize_token",
    "window_of",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the query's text, and the line and column where it begins.

    For an expression, `inner` holds the start and end (within `text`) of its sub-expressions, and `subqueries` its sub-queries.
    """

    text: str
    line: int
    column: int
    inner: tuple[tuple[int, int], ...] = ()
    subqueries: tuple[Subquery, ...] = ()
    overs: tuple[OverText, ...] = ()
    """The window functions in an expression."""

    def mistake(self, message: str, hint: str | None = None) -> Mistake:
        """Return a mistake at this place."""
        return Mistake(message, hint, line=self.line, column=self.column)

    def piece(self, start: int, end: int) -> Part:
        """Return the piece between two offsets of the text, with its place."""
        line = self.text.count("\n", 0, start)
        column = start - self.text.rfind("\n", 0, start) if line else self.column + start
        return Part(self.text[start:end], self.line + line, column)


@dataclass(frozen=True, slots=True)
class Subquery:
    """A sub-query inside an expression, and its start and end there: scalar, `EXISTS (query)` or `value [NOT] IN (query)`.

    `unnest(value)` is treated like one: it has no query, but a value from elsewhere for every row.
    """

    kind: Literal["scalar", "exists", "in", "unnest"]
    start: int
    end: int
    part: Part
    query: Query | None
    value: Part | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class OverText:
    """`function(arguments) [filter (where ...)] [ignore nulls] over ([partition by ...] [order by ...] [frame])`.

    `start` and `end` are its place in the expression; `part` is the call with all that belongs to it.
    """

    start: int
    end: int
    part: Part
    function: str
    arguments: tuple[Part, ...]
    partition: tuple[Part, ...]
    order: tuple[OrderItem, ...]
    frame: str = ""
    condition: Part | None = None
    distinct: bool = False
    ignores_nulls: bool = False


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of the select list. A star is `*`, or `relation.*` if `of` names the relation."""

    part: Part
    alias: str | None = None
    star: bool = False
    of: str | None = None
    changes: tuple[StarChange, ...] = ()


@dataclass(frozen=True, slots=True)
class StarChange:
    """What `* EXCLUDE (column)`, `* REPLACE (value AS column)` or `* RENAME (column AS new)` does with one column of a star."""

    column: Part
    value: Part | None = None
    new: str | None = None


@dataclass(frozen=True, slots=True)
class Plain:
    """A condition; `sides` holds both sides if it looks like an equality, and `comparison` the sign and both sides if it looks like
    a comparison with `>=`, `>`, `<=` or `<`."""

    part: Part
    sides: tuple[Part, Part] | None = None
    comparison: tuple[str, Part, Part] | None = None


@dataclass(frozen=True, slots=True)
class Membership:
    """`[NOT] EXISTS (query)` or, with a value, `value [NOT] IN (query)`."""

    part: Part
    negated: bool
    value: Part | None
    query: Query


Condition = Plain | Membership


@dataclass(frozen=True, slots=True)
class WindowText:
    """A window in brackets (`part`), parsed except for the names of columns.

    `length` and `slide` are microseconds or rows; a range of length 0 is `[Now]`. If there is more than one length, `several`
    holds them all with the value of the column `window`: the number of rows, or the duration as written.

    `order` are the columns after Order By, each with whether it is descending and whether NULLs come first.

    For a window with bounds, `slide` is the duration after Every or By, `keep` is END for Keep Unbounded, and `time` is the
    column that a table function names.
    """

    part: Part
    kind: WindowKind
    length: int = 0
    slide: int | None = None
    partition: tuple[Part, ...] = ()
    several: tuple[tuple[int, int | str], ...] = ()
    offset: int = 0
    keep: int | None = None
    early: int | None = None
    time: Part | None = None
    order: tuple[tuple[Part, bool, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class Named:
    """A stream, table or query, by its name; `columns` are aliases of its first columns."""

    part: Part
    alias: str | None = None
    window: WindowText | None = None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Nested:
    """A sub-query in FROM; `columns` are aliases of its first columns. `stream` is the operator around it, such as Istream."""

    part: Part
    query: Query
    alias: str | None = None
    columns: tuple[str, ...] = ()
    window: WindowText | None = None
    stream: Literal["istream", "dstream", "rstream"] | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """A join of two relations. A comma and CROSS JOIN are inner joins without a condition.

    A `natural` join is one by all columns that have the same names on both sides. An `asof` join meets at most one row.
    """

    part: Part
    kind: JoinKind
    left: Relation
    right: Relation
    on: tuple[Condition, ...] = ()
    using: tuple[Part, ...] = ()
    natural: bool = False
    asof: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """Rows that are written in the query, `VALUES (1, 'a'), ...`; without columns, the one row of a SELECT without FROM."""

    part: Part
    rows: tuple[tuple[Part, ...], ...] = ((),)
    alias: str | None = None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unnested:
    """`UNNEST(list)` in FROM, beside the relation whose rows have the list."""

    part: Part
    value: Part
    alias: str | None = None
    columns: tuple[str, ...] = ()


Relation = Named | Nested | Joined | Constant | Unnested


@dataclass(frozen=True, slots=True)
class OrderItem:
    """An entry of ORDER BY: an expression, a position in the select list, or a name of it."""

    part: Part
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class Ordering:
    """`order by items [limit n] [offset m]`, or `fetch first n rows [with ties]`. Without a limit or offset it is only the order
    in which results are read."""

    part: Part
    items: tuple[OrderItem, ...]
    limit: int | None = None
    offset: int = 0
    ties: bool = False

    @property
    def selects(self) -> bool:
        """Whether it leaves out rows."""
        return self.limit is not None or self.offset > 0


@dataclass(frozen=True, slots=True)
class Select:
    """`select [distinct [on (keys)]] items from relation [where ...] [group by ...] [having ...] [qualify ...] [order by ...]
    [limit ...]`.

    `sets` are the grouping sets, as places in `group`; None if there is one set of all. `group_all`: GROUP BY ALL.
    """

    part: Part
    items: tuple[Item, ...]
    source: Relation
    where: tuple[Condition, ...] = ()
    group: tuple[Part, ...] = ()
    having: tuple[Plain, ...] = ()
    distinct: bool = False
    distinct_on: tuple[Part, ...] = ()
    qualify: tuple[Plain, ...] = ()
    ordering: Ordering | None = None
    sets: tuple[tuple[int, ...], ...] | None = None
    group_all: bool = False


@dataclass(frozen=True, slots=True)
class Combined:
    """`left UNION | EXCEPT | INTERSECT [ALL] [BY NAME] right [order by ...] [limit ...]`."""

    part: Part
    kind: Literal["union", "except", "intersect"]
    all: bool
    left: Query
    right: Query
    ordering: Ordering | None = None
    by_name: bool = False


Query = Select | Combined


def has_subquery(condition: Condition) -> bool:
    """Return whether a condition is or contains a sub-query."""
    return isinstance(condition, Membership) or bool(condition.part.subqueries)


def joins(relation: Relation) -> Iterator[Joined]:
    """Yield the joins of a FROM clause, without those of sub-queries."""
    if isinstance(relation, Joined):
        yield relation
        yield from joins(relation.left)
        yield from joins(relation.right)


def window_of(relation: Relation) -> WindowText | None:
    """Return the window behind a relation, if it has one."""
    return relation.window if isinstance(relation, Named | Nested) else None


def named_relations(node: Query | Relation | Condition) -> Iterator[Named]:
    """Yield every stream, table or query that is read, in the order of the text."""
    match node:
        case Named():
            yield node
        case Nested():
            yield from named_relations(node.query)
        case Joined():
            yield from named_relations(node.left)
            yield from named_relations(node.right)
            for condition in node.on:
                yield from named_relations(condition)
        case Combined():
            yield from named_relations(node.left)
            yield from named_relations(node.right)
        case Membership():
            yield from named_relations(node.query)
        case Plain():
            yield from _in_expression(node.part)
        case Select():
            yield from named_relations(node.source)
            for condition in (*node.where, *node.having):
                yield from named_relations(condition)
            for item in node.items:
                yield from _in_expression(item.part)


def _in_expression(part: Part) -> Iterator[Named]:
    for subquery in part.subqueries:
        if subquery.query is not None:
            yield from named_relations(subquery.query)


def normalize_token(token: str) -> str:
    """Return a token in lower case with single spaces; unchanged if it is quoted.

    >>> normalize_token("GROUP   BY"), normalize_token("'A'")
    ('group by', "'A'")
    """
    return token if any(mark in token for mark in "'\"$") else " ".join(token.lower().split())
