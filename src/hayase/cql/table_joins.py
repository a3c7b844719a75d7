"""Joins of a stream with tables: for every record, the row of the table with its key is looked up.

A table has only its current rows and no history for a window, so only a stream `[Now]` can be joined with one; windows and
aggregates over the result are another query. Every part of the table's key must be equal to an expression over the stream, or
over tables already looked up. These equalities are taken from ON, USING and WHERE; all other conditions remain conditions.
The parts of a key have no types of their own; they take those of the expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.stages import Lookup
from hayase.cql import logical, syntax
from hayase.cql.columns import column, conjunction, quoted
from hayase.cql.distribution import is_leaf, source_of
from hayase.cql.logical import Column, Expression, Node
from hayase.cql.query_expressions import ExpressionResolver, canonical
from hayase.cql.scopes import Context, FromClause, MergedColumn, Relation, ResolvedName, Scope
from hayase.cql.syntax import Part, Plain, has_subquery

__all__ = ["TableJoins", "has_duplicate_alias"]

_NO_STREAM = "join it with a stream [Now]; `hayase tables scan {0}` and GET /tables/{0} read it by itself"
_ONE_STREAM = "let a query of its own join one stream with the table, and join its result here"
_NOW = "write [Now] after the stream; for a window over the result, name this query and read it in another"
_INSIDE = "join a stream [Now] with the table inside of it"
_KIND_HINTS = {
    "semi": "write JOIN, and select only what is the stream's",
    "anti": "write LEFT JOIN, and in WHERE that the table's key IS NULL",
}
_FAMILIES = (
    pa.types.is_string, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean,
)  # fmt: skip
"""The types that a part of a table's key can have: strings, numbers, booleans."""


def has_duplicate_alias(resolver: ExpressionResolver, join: syntax.Joined, left: Scope, right: Scope) -> bool:
    """Return whether two relations of a join have the same alias, and note a mistake if so."""
    duplicates = [relation.alias for relation in right.relations if relation.alias and left.relation(relation.alias)]
    for alias in duplicates[:1]:
        message = f'two relations are called "{alias}"'
        resolver.refuse(join.right.part, message, "name one of them differently with AS")
    return bool(duplicates)


def _relations(relation: syntax.Relation) -> Iterator[syntax.Named | syntax.Nested | syntax.Constant | syntax.Unnested]:
    """Yield the relations of a FROM clause, in the order of the text."""
    if isinstance(relation, syntax.Joined):
        yield from _relations(relation.left)
        yield from _relations(relation.right)
    else:
        yield relation


@dataclass(frozen=True, slots=True)
class _Value:
    """One side of an equality: the columns of the plan that it reads, and the column that it is if it is nothing else.

    `columns` is None if some are unknown or belong to an outer query. `sql` is set if it is already known.
    """

    part: Part
    columns: frozenset[str] | None
    alone: str | None
    sql: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Condition:
    """A condition of ON, WHERE or USING (then `written` is None), with the scope of its names."""

    part: Part
    scope: Scope
    written: Plain | None
    columns: frozenset[str] | None
    sides: tuple[_Value, _Value] | None


@dataclass(slots=True, eq=False)
class _Table:
    """A table of a FROM clause; `only_if` are the conditions of its left join: where they fail, its columns are NULL."""

    written: syntax.Named
    lookup: Lookup
    shown: Relation
    is_left: bool = False
    only_if: list[_Condition] = field(default_factory=list)

    @property
    def key(self) -> list[str]:
        """The parts of the key, as columns of the plan."""
        return [self.shown.flat(part) for part in self.lookup.table.key]


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a join: its scope, whether it contains the stream, and the table if it is only a table."""

    scope: Scope
    has_stream: bool
    table: _Table | None = None


class TableJoins:
    """Resolves joins of a stream with tables. `relation` resolves other relations; mistakes go to the resolver."""

    def __init__(
        self,
        resolver: ExpressionResolver,
        tables: Mapping[str, Lookup],
        relation: Callable[[syntax.Relation, Context], FromClause | None],
    ):
        self.resolver, self.relation = resolver, relation
        self._tables = {name.lower(): lookup for name, lookup in tables.items()}

    def table(self, relation: syntax.Relation) -> Lookup | None:
        """Return the table that a relation names; None if it is not a table."""
        return self._tables.get(relation.part.text.lower()) if isinstance(relation, syntax.Named) else None

    def has_tables(self, source: syntax.Relation) -> bool:
        """Return whether a FROM clause has tables."""
        return any(self.table(relation) for relation in _relations(source))

    def join(
        self, source: syntax.Relation, where: Sequence[syntax.Condition], context: Context
    ) -> tuple[FromClause, list[syntax.Condition]] | None:
        """Resolve a FROM clause with tables. Return it with the conditions of WHERE that are not keys of a lookup."""
        read = list(_relations(source))
        streams = [relation for relation in read if self.table(relation) is None]
        tables = [relation for relation in read if self.table(relation) is not None]
        name = tables[0].part.text
        if not streams:
            message = f'the table "{name}" has no records of its own to read'
            self.resolver.refuse(tables[0].part, message, _NO_STREAM.format(name))
        elif len(streams) > 1:
            message = f'a join of several streams with the table "{name}" is not supported'
            self.resolver.refuse(tables[0].part, message, _ONE_STREAM)
        else:
            return _TableFrom(self, where).join(source, streams[0], context)
        return None


class _TableFrom:
    """Resolves one FROM clause: collects the stream, the tables and the conditions, then orders the lookups."""

    def __init__(self, joins: TableJoins, where: Sequence[syntax.Condition]):
        self._joins, self._resolver, self._written = joins, joins.resolver, list(where)
        self._tables: list[_Table] = []
        self._stream: Node | None = None
        self._inner: list[_Condition] = []
        self._where: list[_Condition] = []

    def join(
        self, source: syntax.Relation, stream: syntax.Relation, context: Context
    ) -> tuple[FromClause, list[syntax.Condition]] | None:
        whole = self._resolve_side(source, context)
        node = self._stream
        if whole is None or node is None:
            return None
        self._check_stream(stream, node)
        self._where = [
            self._condition(condition, whole.scope) for condition in self._written if isinstance(condition, Plain)
        ]
        where = list(self._where)
        waiting = list(self._tables)
        while waiting:
            known = set(node.schema.names)
            ready = next(((table, keys) for table in waiting if (keys := self._keys(table, known)) is not None), None)
            if ready is None:
                self._explain_unmatched(waiting)
                return None
            waiting.remove(ready[0])
            joined = self._look_up(node, *ready)
            if joined is None:
                return None
            node = joined
        for inner in self._inner:
            predicate = self._bound(inner, node.schema)
            if predicate is not None and predicate.sql.lower() != "true":
                node = logical.Filter(node, predicate)
        used = [key.written for key in where if key not in self._where]
        rest = [condition for condition in self._written if not any(condition is key for key in used)]
        return FromClause(node, whole.scope), rest

    def _check_stream(self, written: syntax.Relation, node: Node) -> None:
        """Refuse anything but a stream [Now] beside a table."""
        source = source_of(node) if is_leaf(node) else None
        if source is not None and not source.declaration.lifetimes and source.declaration.changes is None:
            window = source.window
            if window.kind == "range" and window.length == 0 and window.slide is None:
                return
        if not isinstance(written, syntax.Named):
            message = "a table can only be joined with a stream [Now], and this sub-query is not one"
            self._resolver.refuse(written.part, message, _INSIDE)
        elif source is not None and (source.declaration.lifetimes or source.declaration.changes is not None):
            message = f'a table can only be joined with a stream [Now], and "{written.part.text}" is a relation'
            self._resolver.refuse(written.part, message, "join the table with a stream [Now] instead")
        else:
            message = f'a table can only be joined with a stream [Now], and "{written.part.text}" has another window'
            self._resolver.refuse(written.window.part if written.window else written.part, message, _NOW)

    # ------------------------------------------------------------------------------------------------ joins

    def _resolve_side(self, relation: syntax.Relation, context: Context) -> _Side | None:
        lookup = self._joins.table(relation)
        if lookup is not None and isinstance(relation, syntax.Named):
            return self._table(relation, lookup, context)
        if isinstance(relation, syntax.Joined):
            return self._join(relation, context)
        clause = self._joins.relation(relation, context)
        if clause is None:
            return None
        self._stream = clause.node
        return _Side(clause.scope, has_stream=True)

    def _table(self, relation: syntax.Named, lookup: Lookup, context: Context) -> _Side:
        if relation.window is not None:
            message = f'a window after the table "{relation.part.text}" is not supported'
            self._resolver.refuse(
                relation.window.part, message, "a table has only its current rows; leave the window out"
            )
        alias = relation.alias or lookup.table.name
        shown = Relation(alias, context.prefix(alias), (*lookup.table.key, *lookup.schema.names))
        table = _Table(relation, lookup, shown)
        self._tables.append(table)
        return _Side(context.scope((shown,)), has_stream=False, table=table)

    def _join(self, join: syntax.Joined, context: Context) -> _Side | None:
        left = self._resolve_side(join.left, context)
        beside = context.beside + (left.scope.relations if left else ())
        right = self._resolve_side(join.right, replace(context, beside=beside))
        if (
            left is None
            or right is None
            or has_duplicate_alias(self._resolver, join, context.scope(beside), right.scope)
        ):
            return None
        if join.asof or join.natural:
            word, hint = ("ASOF", "a table has only its current rows") if join.asof else ("NATURAL", "name the columns")
            self._resolver.refuse(join.part, f"{word} JOIN of a table is not supported", f"{hint}: write JOIN ... ON")
            return None
        conditions = self._inner
        if join.kind == "left" and left.has_stream and right.table is not None:
            right.table.is_left, conditions = True, right.table.only_if
        elif join.kind != "inner":
            message = (
                f"{join.kind.upper()} JOIN is not supported here: of a table only rows that a record asks for are read"
            )
            hint = _KIND_HINTS.get(
                join.kind, "write JOIN or LEFT JOIN, with the stream on the left and one table on the right"
            )
            self._resolver.refuse(join.part, message, hint)
            return None
        merged = [*left.scope.merged, *right.scope.merged]
        for part in join.using:
            self._using(part, left.scope, right.scope, merged, conditions)
        scope = context.scope(left.scope.relations + right.scope.relations, tuple(merged))
        self._written += [
            condition for condition in join.on if has_subquery(condition)
        ]  # of an inner join: as in WHERE
        conditions += [
            self._condition(condition, scope)
            for condition in join.on
            if isinstance(condition, Plain) and not has_subquery(condition)
        ]
        return _Side(scope, left.has_stream or right.has_stream)

    def _using(self, part: Part, left: Scope, right: Scope, merged: list[MergedColumn], into: list[_Condition]) -> None:
        """Resolve a column of USING: it merges the columns of both sides and adds an equality."""
        pair = [replace(side, outer=None).find((part.text,)) for side in (left, right)]
        for name in pair:
            if not isinstance(name, ResolvedName):
                self._resolver.refuse(part, name.message, name.hint)
        both = [name for name in pair if isinstance(name, ResolvedName)]
        if len(both) < 2:
            return
        left_value, right_value = (
            _Value(part, frozenset((_unquoted(resolved.sql),)), _unquoted(resolved.sql), resolved.sql)
            for resolved in both
        )
        names = {_unquoted(resolved.sql) for resolved in both}
        if not any(names & set(table.key) for table in self._tables):
            message = f'"{part.text}" is not part of the key of a table here'
            self._resolver.refuse(part, message, "write ON, and compare it there")
        replaced = [column for column in merged if column.hides & names]
        merged[:] = [column for column in merged if column not in replaced]
        merged.append(
            MergedColumn(both[0].name, both[0].sql, frozenset(names).union(*(column.hides for column in replaced)))
        )
        into.append(_Condition(part, left, None, frozenset(names), (left_value, right_value)))

    # ------------------------------------------------------------------------------------------------ conditions

    def _condition(self, written: Plain, scope: Scope) -> _Condition:
        sides = (self._value(written.sides[0], scope), self._value(written.sides[1], scope)) if written.sides else None
        return _Condition(written.part, scope, written, self._value(written.part, scope).columns, sides)

    def _value(self, part: Part, scope: Scope) -> _Value:
        """Return the columns that an expression reads. Its mistakes are reported later, when it is bound."""
        parsed = self._resolver.try_parse(part)
        if parsed is None or parsed.calls:
            return _Value(part, None, None)
        columns: set[str] = set()
        for reference in parsed.columns:
            resolved = scope.find(reference.parts)
            if not isinstance(resolved, ResolvedName) or resolved.depth:
                return _Value(part, None, None)
            columns.add(_unquoted(resolved.sql))
            whole = part.text[reference.start : reference.end]
            if resolved.parts == len(reference.parts) and canonical(part.text, ()) == canonical(whole, ()):
                return _Value(part, frozenset(columns), _unquoted(resolved.sql))
        return _Value(part, frozenset(columns), None)

    def _bound(self, condition: _Condition, schema: pa.Schema) -> Expression | None:
        if condition.written is not None:
            return self._resolver.condition(condition.written, condition.scope, schema)
        left, right = (side.sql for side in condition.sides or ())
        return self._resolver.bind(condition.part, f"{left} = {right}", schema, boolean=True)

    # ------------------------------------------------------------------------------------------------ keys

    def _key_conditions(self, table: _Table) -> list[_Condition]:
        """Return the conditions from which the key of a table may be taken."""
        return table.only_if if table.is_left else [*self._inner, *self._where]

    def _keys(self, table: _Table, known: set[str]) -> list[tuple[_Condition, _Value]] | None:
        """Return for every part of a table's key the first equality with known columns; None if a part has none."""
        matches = [self._key_value(table, part, known) for part in table.key]
        keys = [key for key in matches if key is not None]
        if len(keys) < len(matches):
            return None
        used = [condition for condition, _ in keys]
        own = {table.shown.flat(name) for name in table.shown.columns}
        rest = (other.columns or frozenset() for other in table.only_if if other not in used)
        return keys if all(columns <= known | own for columns in rest) else None

    def _key_value(self, table: _Table, part: str, known: set[str]) -> tuple[_Condition, _Value] | None:
        for condition in self._key_conditions(table):
            for side, other in (condition.sides, condition.sides[::-1]) if condition.sides else ():
                if side.alone == part and other.columns is not None and other.columns <= known:
                    return condition, other
        return None

    def _look_up(self, node: Node, table: _Table, keys: Sequence[tuple[_Condition, _Value]]) -> Node | None:
        """Return the rows joined with a table, whose key has these values."""
        columns: list[Column] = []
        for name, (condition, value) in zip(table.key, keys):
            if value.sql is not None:
                value_expression = self._resolver.bind(value.part, value.sql, node.schema)
            else:
                value_expression = self._resolver.expression(value.part, condition.scope, node.schema)
            if value_expression is not None and self._check_key_type(value_expression, name):
                columns.append(Column(name, value_expression))
        if len(columns) < len(keys):
            return None
        for condition, _ in keys:
            for conditions in (self._inner, self._where, table.only_if):
                conditions[:] = [other for other in conditions if other is not condition]
        names = tuple(table.lookup.schema.names)
        kind: Literal["inner", "left"] = "left" if table.is_left else "inner"
        joined = logical.TableJoin(kind, node, table.lookup, table.shown.prefix, tuple(columns), names)
        bound = [self._bound(test, joined.schema) for test in table.only_if]
        predicates = [predicate for predicate in bound if predicate is not None]
        if len(predicates) < len(bound):
            return None
        only_if = conjunction([predicate for predicate in predicates if predicate.sql.lower() != "true"])
        return _null_unless(joined, only_if, table.written.part) if only_if else joined

    def _check_key_type(self, value: Expression, name: str) -> bool:
        if any(family(value.kind) for family in _FAMILIES):
            return True
        message = f'a {value.kind} cannot be "{name}": keys of tables are texts, numbers, true and false'
        place = Part(value.text, value.line, value.column)
        self._resolver.refuse(place, message, "cast it to what the key is made of, such as string")
        return False

    def _explain_unmatched(self, waiting: Sequence[_Table]) -> None:
        """Note why the remaining tables cannot be looked up: unknown names, or parts of keys without an equality."""
        noted = len(self._resolver.mistakes)
        for condition in (*self._inner, *self._where, *(only_if for table in waiting for only_if in table.only_if)):
            parsed = self._resolver.parse(condition.part) if condition.written is not None else None
            if parsed is not None:
                self._resolver.replacements(condition.part, parsed.columns, condition.scope, deep=_ANY_DEPTH)
        if len(self._resolver.mistakes) > noted:
            return
        for table in waiting:
            name, alias = table.lookup.table.name, table.shown.alias
            own = {table.shown.flat(own_name) for own_name in table.shown.columns}
            others = {
                name
                for other in self._tables
                if other is not table
                for name in map(other.shown.flat, other.shown.columns)
            }
            assert self._stream is not None
            known = (others | set(self._stream.schema.names)) - own
            missing = [
                part
                for part, flat in zip(table.lookup.table.key, table.key)
                if self._key_value(table, flat, known) is None
            ]
            if missing:
                parts = " and ".join(f'"{part_name}"' for part_name in missing)
                message = f'the key {parts} of the table "{name}" is not compared with anything'
                where = "ON" if table.is_left else "WHERE or ON"
                hint = f"write {alias}.{missing[0]} = ... in {where}, with columns of the stream on the other side"
            else:
                message = f'the table "{name}" has a key that depends on tables whose keys depend on it'
                hint = "compare its key with columns of the stream in WHERE or ON"
            self._resolver.refuse(table.written.part, message, hint)


_ANY_DEPTH = 1000


def _unquoted(sql: str) -> str:
    """Return the column of a quoted name."""
    return sql[1:-1].replace('""', '"')


def _null_unless(joined: logical.TableJoin, condition: Expression, part: Part) -> Node:
    """Return the join with the table's columns set to NULL where the condition does not hold."""
    own = set(joined.added.names)
    columns: list[Column] = []
    for output in joined.schema:
        value = column(output.name, output.type, part)
        if output.name in own:
            sql = f"CASE WHEN (\n{condition.sql}\n) THEN {quoted(output.name)} END"
            value = replace(
                condition, sql=sql, kind=output.type, columns=condition.columns | {output.name}, equality=None
            )
        columns.append(Column(output.name, value))
    return logical.Project(joined, tuple(columns))
