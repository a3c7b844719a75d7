"""The syntax of a query as frozen data: what is written, and where. Nothing is resolved yet.

Expressions remain text. Conditions are split at AND, which separates equalities and sub-queries from other conditions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hayase.core.errors import Mistake
from hayase.lifetimes.plans import JoinKind, WindowKind

__all__ = [
    "Combined", "Condition", "Item", "Joined", "Membership", "Named", "Nested", "Part", "Plain", "Query", "Relation",
    "Select", "WindowText", "named_relations", "normalize_token",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the query's text, and the line and column where it begins.

    For an expression, `inner` holds the start and end (within `text`) of its sub-expressions.
    """

    text: str
    line: int
    column: int
    inner: tuple[tuple[int, int], ...] = ()

    def mistake(self, message: str, hint: str | None = None) -> Mistake:
        """Return a mistake at this place."""
        return Mistake(message, hint, line=self.line, column=self.column)

    def piece(self, start: int, end: int) -> Part:
        """Return the piece between two offsets of the text, with its place."""
        line = self.text.count("\n", 0, start)
        column = start - self.text.rfind("\n", 0, start) if line else self.column + start
        return Part(self.text[start:end], self.line + line, column)


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of the select list. A star is `*`, or `relation.*` if `of` names the relation."""

    part: Part
    alias: str | None = None
    star: bool = False
    of: str | None = None


@dataclass(frozen=True, slots=True)
class Plain:
    """A condition; `sides` holds both sides if it looks like an equality."""

    part: Part
    sides: tuple[Part, Part] | None = None


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
    """

    part: Part
    kind: WindowKind
    length: int = 0
    slide: int | None = None
    partition: tuple[Part, ...] = ()
    several: tuple[tuple[int, int | str], ...] = ()


@dataclass(frozen=True, slots=True)
class Named:
    """A stream, table or query, by its name."""

    part: Part
    alias: str | None = None
    window: WindowText | None = None


@dataclass(frozen=True, slots=True)
class Nested:
    """A sub-query in FROM."""

    part: Part
    query: Query
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """A join of two relations. A comma and CROSS JOIN are inner joins without a condition."""

    part: Part
    kind: JoinKind
    left: Relation
    right: Relation
    on: tuple[Condition, ...] = ()
    using: tuple[Part, ...] = ()


Relation = Named | Nested | Joined


@dataclass(frozen=True, slots=True)
class Select:
    """`select [distinct] items from relation [where ...] [group by ...] [having ...]`."""

    part: Part
    items: tuple[Item, ...]
    source: Relation
    where: tuple[Condition, ...] = ()
    group: tuple[Part, ...] = ()
    having: tuple[Plain, ...] = ()
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Combined:
    """`left UNION | EXCEPT | INTERSECT [ALL] right`."""

    part: Part
    kind: Literal["union", "except", "intersect"]
    all: bool
    left: Query
    right: Query


Query = Select | Combined


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
        case Combined():
            yield from named_relations(node.left)
            yield from named_relations(node.right)
        case Membership():
            yield from named_relations(node.query)
        case Select():
            yield from named_relations(node.source)
            for condition in node.where:
                yield from named_relations(condition)


def normalize_token(token: str) -> str:
    """Return a token in lower case with single spaces; unchanged if it is quoted.

    >>> normalize_token("GROUP   BY"), normalize_token("'A'")
    ('group by', "'A'")
    """
    return token if any(mark in token for mark in "'\"$") else " ".join(token.lower().split())
