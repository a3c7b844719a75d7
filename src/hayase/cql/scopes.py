"""Name resolution: which columns an expression may name, and which columns of the plan these are.

A column of a relation in FROM is named `alias.column` or, if no other relation has one of that name, `column`. Case does not
matter. A sub-query can name columns of the outer query, unless these are hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hayase.core.data_classes import dataclass
from hayase.core.declarations import EVENT_TIME
from hayase.core.errors import suggestion
from hayase.core.purity import CLOCKS, NOT_REPEATABLE
from hayase.cql.columns import quoted
from hayase.cql.logical import Node

__all__ = [
    "SUBQUERY",
    "Context",
    "FromClause",
    "HiddenScope",
    "MergedColumn",
    "Relation",
    "ResolvedName",
    "Scope",
    "UnresolvedName",
]


SUBQUERY = "__subquery"
"""With what the names of columns begin that hold the values of sub-queries in expressions."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation in FROM: the names of its columns, and the `prefix` that they have in the plan.

    Columns in `extra` can be named, but `*` leaves them out. `former` is the name of a hidden event time in the log: it cannot
    be named, and the error message says what to write instead.
    """

    alias: str | None
    prefix: str
    columns: tuple[str, ...]
    extra: tuple[str, ...] = ()
    former: str | None = None
    renamed: tuple[tuple[str, str], ...] = ()
    """Aliases of columns, with the names that they have in the plan."""

    def flat(self, column: str) -> str:
        """Return the column's name in the plan."""
        return f"{self.prefix}.{dict(self.renamed).get(column, column)}"

    def spelled(self, name: str) -> str | None:
        """Return the column of that name in the relation's own spelling; None if there is none."""
        return next((column for column in (*self.columns, *self.extra) if column.lower() == name.lower()), None)

    def hint(self, name: str) -> str | None:
        """Return what to write instead of a name that is none of its columns."""
        if self.former is not None and name.lower() == self.former.lower():
            return f'the event time of "{self.alias or self.prefix}" is {EVENT_TIME}'
        return suggestion(name, self.columns)


@dataclass(frozen=True, slots=True)
class MergedColumn:
    """The column into which USING merges two: its SQL, and the columns of the plan that it hides."""

    name: str
    sql: str
    hides: frozenset[str]


@dataclass(frozen=True, slots=True)
class ResolvedName:
    """The column that a name refers to: its SQL, how many parts of the name it takes up, and how many queries further out it is."""

    sql: str
    name: str
    parts: int
    depth: int = 0


@dataclass(frozen=True, slots=True)
class UnresolvedName:
    """Why a name refers to no column."""

    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class HiddenScope:
    """The scope around a sub-query that cannot name its columns, and the message to give if it does."""

    scope: Scope
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Scope:
    """The relations of a FROM clause, and the scopes of the queries around it."""

    relations: tuple[Relation, ...] = ()
    merged: tuple[MergedColumn, ...] = ()
    outer: Scope | None = None
    hidden: HiddenScope | None = None
    aliases: frozenset[str] = frozenset()
    """Aliases of the select list, in lower case. They cannot be used here; they are known for the error message."""

    def find(self, parts: Sequence[str]) -> ResolvedName | UnresolvedName:
        """Resolve the parts of a name: `column` or `alias.column`, and fields of a struct after it."""
        own = self._here(parts)
        if own is not None:
            return own
        if self.outer is not None:
            outer = self.outer.find(parts)
            if isinstance(outer, ResolvedName):
                return ResolvedName(outer.sql, outer.name, outer.parts, outer.depth + 1)
        if self.hidden is not None and isinstance(self.hidden.scope.find(parts), ResolvedName):
            return UnresolvedName(self.hidden.message, self.hidden.hint)
        return self._missing(parts)

    def _here(self, parts: Sequence[str]) -> ResolvedName | UnresolvedName | None:
        relation = self.relation(parts[0]) if len(parts) > 1 else None
        column = relation.spelled(parts[1]) if relation else None
        if relation is not None and column is not None:
            return ResolvedName(quoted(relation.flat(column)), column, 2)
        columns = list(self._named(parts[0]))
        if len(columns) == 1:
            return ResolvedName(columns[0][1], columns[0][0], 1)
        if columns:
            names = " or ".join(f'"{qualified}"' for _, _, qualified in columns)
            return UnresolvedName(f'the column "{parts[0]}" is ambiguous', f"say which: {names}")
        if relation is None:
            return None
        return UnresolvedName(f'unknown column "{parts[1]}" in "{relation.alias}"', relation.hint(parts[1]))

    def _named(self, name: str) -> Iterator[tuple[str, str, str]]:
        """Yield all columns of that name: the spelling, the SQL, and the qualified name."""
        merged = [item for item in self.merged if item.name.lower() == name.lower()]
        hides = frozenset[str]().union(*(item.hides for item in merged))
        for item in merged:
            yield item.name, item.sql, item.name
        for relation in self.relations:
            column = relation.spelled(name)
            if column is not None and relation.flat(column) not in hides:
                yield column, quoted(relation.flat(column)), f"{relation.alias or relation.prefix}.{column}"

    def _missing(self, parts: Sequence[str]) -> UnresolvedName:
        if parts[0].lower() in CLOCKS and len(parts) == 1:
            return UnresolvedName(f"{parts[0].lower()} is not supported", NOT_REPEATABLE)
        if len(parts) > 1:
            return self.unknown_relation(parts[0])
        if parts[0].lower() in self.aliases:
            hint = "it is a name of the select list; write its expression here"
            return UnresolvedName(f'unknown column "{parts[0]}"', hint)
        reads = " or ".join(f'"{source.alias or source.prefix}"' for source in self.relations if source.columns)
        for source in self.relations:
            if source.former is not None and source.former.lower() == parts[0].lower():
                return UnresolvedName(f'unknown column "{parts[0]}" in {reads}', source.hint(parts[0]))
        known = {column for relation in self.relations for column in relation.columns}
        return UnresolvedName(f'unknown column "{parts[0]}" in {reads}', suggestion(parts[0], known))

    def unknown_relation(self, name: str) -> UnresolvedName:
        """Return the error for a relation that is not in this FROM clause."""
        names = [relation.alias for relation in self.relations if relation.alias]
        return UnresolvedName(
            f'unknown stream "{name}"', f"this query reads {', '.join(quoted(name) for name in names)}"
        )

    def relation(self, alias: str) -> Relation | None:
        """Return the relation with that alias; None if there is none."""
        return next(
            (relation for relation in self.relations if relation.alias and relation.alias.lower() == alias.lower()),
            None,
        )

    def star(self) -> Iterator[tuple[str, str]]:
        """Yield the columns of `*` with their SQL. Columns merged by USING occur once, at the place of the first."""
        hides = {flat: item for item in self.merged for flat in item.hides}
        shown: set[str] = set()
        for relation in self.relations:
            for column in relation.columns:
                merged = hides.get(relation.flat(column))
                sql = merged.sql if merged else quoted(relation.flat(column))
                if sql not in shown:
                    shown.add(sql)
                    yield merged.name if merged else column, sql


@dataclass(frozen=True, slots=True)
class Context:
    """What surrounds a query or a relation: the scope of the outer query, and the relations to its left in FROM."""

    outer: Scope | None = None
    hidden: HiddenScope | None = None
    beside: tuple[Relation, ...] = ()

    def scope(self, relations: tuple[Relation, ...] = (), merged: tuple[MergedColumn, ...] = ()) -> Scope:
        """Return the scope of a FROM clause with these relations."""
        return Scope(relations, merged, self.outer, self.hidden)

    def prefix(self, alias: str) -> str:
        """Return the prefix of a relation's columns in the plan: its alias, with a number if the alias is in use around it."""
        taken = {relation.prefix.lower() for relation in self.beside}
        scope = self.outer
        while scope is not None:
            taken |= {relation.prefix.lower() for relation in scope.relations}
            scope = scope.outer
        name, number = alias, 2
        while name.lower() in taken:
            name, number = f"{alias}_{number}", number + 1
        return name


@dataclass(frozen=True, slots=True)
class FromClause:
    """The plan of a FROM clause, and the scope of its names."""

    node: Node
    scope: Scope
