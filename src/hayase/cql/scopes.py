"""Which columns an expression may name, and what their names stand for.

A relation in FROM shows its columns as `alias.column` and, where no other has one of that name, as `column`. Names are
found without regard to case. What stands around a sub-query can be seen from inside it, unless it is hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hayase.core.errors import suggestion
from hayase.core.purity import CLOCKS, NOT_REPEATABLE
from hayase.cql.columns import quoted
from hayase.cql.logical import Node

__all__ = [
    "Context",
    "FromClause",
    "HiddenScope",
    "MergedColumn",
    "Relation",
    "ResolvedName",
    "Scope",
    "UnresolvedName",
]


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation in FROM. `columns` are the names of its columns, `prefix` what the plan puts before them. What stands `aside`
    can be named, but is none of its columns: `*` leaves it out."""

    alias: str | None
    prefix: str
    columns: tuple[str, ...]
    extra: tuple[str, ...] = ()

    def flat(self, column: str) -> str:
        """The column's name in the plan."""
        return f"{self.prefix}.{column}"

    def spelled(self, name: str) -> str | None:
        """The column of a name, as the relation spells it."""
        return next((each for each in (*self.columns, *self.extra) if each.lower() == name.lower()), None)


@dataclass(frozen=True, slots=True)
class MergedColumn:
    """The one column that USING makes of two: what it is, and the columns of the plan that it stands for."""

    name: str
    sql: str
    hides: frozenset[str]


@dataclass(frozen=True, slots=True)
class ResolvedName:
    """What a name stands for, how many parts of the name were needed to say so, and how many queries further out."""

    sql: str
    name: str
    parts: int
    depth: int = 0


@dataclass(frozen=True, slots=True)
class UnresolvedName:
    """Why a name stands for nothing."""

    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class HiddenScope:
    """What stands around a sub-query that cannot look out, and why it cannot."""

    scope: Scope
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Scope:
    """The relations of a FROM clause, and what stands around the query."""

    relations: tuple[Relation, ...] = ()
    merged: tuple[MergedColumn, ...] = ()
    outer: Scope | None = None
    hidden: HiddenScope | None = None
    aliases: frozenset[str] = frozenset()
    """Names of the select list, in lower case: they stand for nothing here, but somebody may think so."""

    def find(self, parts: Sequence[str]) -> ResolvedName | UnresolvedName:
        """What the parts of a name stand for: `column`, `alias.column`, and fields of a struct behind them."""
        here = self._here(parts)
        if here is not None:
            return here
        if self.outer is not None:
            further = self.outer.find(parts)
            if isinstance(further, ResolvedName):
                return ResolvedName(further.sql, further.name, further.parts, further.depth + 1)
        if self.hidden is not None and isinstance(self.hidden.scope.find(parts), ResolvedName):
            return UnresolvedName(self.hidden.message, self.hidden.hint)
        return self._missing(parts)

    def _here(self, parts: Sequence[str]) -> ResolvedName | UnresolvedName | None:
        relation = self.relation(parts[0]) if len(parts) > 1 else None
        column = relation.spelled(parts[1]) if relation else None
        if relation is not None and column is not None:
            return ResolvedName(quoted(relation.flat(column)), column, 2)
        found = list(self._named(parts[0]))
        if len(found) == 1:
            return ResolvedName(found[0][1], found[0][0], 1)
        if found:
            names = " or ".join(f'"{each}"' for _, _, each in found)
            return UnresolvedName(f'the column "{parts[0]}" is ambiguous', f"say which: {names}")
        if relation is None:
            return None
        hint = suggestion(parts[1], relation.columns)
        return UnresolvedName(f'unknown column "{parts[1]}" in "{relation.alias}"', hint)

    def _named(self, name: str) -> Iterator[tuple[str, str, str]]:
        """The columns of a name: as it is spelled, its SQL, and how to say which."""
        merged = [each for each in self.merged if each.name.lower() == name.lower()]
        hides = frozenset[str]().union(*(each.hides for each in merged))
        for each in merged:
            yield each.name, each.sql, each.name
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
        reads = " or ".join(f'"{each.alias or each.prefix}"' for each in self.relations)
        known = {column for relation in self.relations for column in relation.columns}
        return UnresolvedName(f'unknown column "{parts[0]}" in {reads}', suggestion(parts[0], known))

    def unknown_relation(self, name: str) -> UnresolvedName:
        """That no relation here has a name."""
        names = [each.alias for each in self.relations if each.alias]
        return UnresolvedName(
            f'unknown stream "{name}"', f"this query reads {', '.join(quoted(each) for each in names)}"
        )

    def relation(self, alias: str) -> Relation | None:
        """The relation of that alias."""
        return next((each for each in self.relations if each.alias and each.alias.lower() == alias.lower()), None)

    def star(self) -> Iterator[tuple[str, str]]:
        """All columns with their SQL: those that USING merged are there once, where the first of them stands."""
        hides = {flat: each for each in self.merged for flat in each.hides}
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
    """What stands around a query or a relation: queries further out, and the relations to its left in FROM."""

    outer: Scope | None = None
    hidden: HiddenScope | None = None
    beside: tuple[Relation, ...] = ()

    def scope(self, relations: tuple[Relation, ...] = (), merged: tuple[MergedColumn, ...] = ()) -> Scope:
        """The names that these relations show there."""
        return Scope(relations, merged, self.outer, self.hidden)

    def prefix(self, alias: str) -> str:
        """What the plan puts before the columns of a relation: its alias, unless something around has it."""
        taken = {each.prefix.lower() for each in self.beside}
        scope = self.outer
        while scope is not None:
            taken |= {each.prefix.lower() for each in scope.relations}
            scope = scope.outer
        name, number = alias, 2
        while name.lower() in taken:
            name, number = f"{alias}_{number}", number + 1
        return name


@dataclass(frozen=True, slots=True)
class FromClause:
    """A relation of a FROM clause, and the names that it shows."""

    node: Node
    scope: Scope
