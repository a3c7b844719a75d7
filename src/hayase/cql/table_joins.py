"""Tables in FROM: each record of a stream meets the row of a table that has its key.

A table is met as it is, and has no past that a window could reach; so only the records of this very instant, `[Now]`,
meet one, and what else is wanted of them is a query over the result. Every part of the table's key must be equal to
something that is known of the record: of the stream, or of tables that it has met before. The conditions that say so
are found in ON, USING and WHERE; all others stay what they are. The parts of a key have no types of their own, but
those of what they are equal to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from hayase.core.stages import Lookup
from hayase.cql import logical, syntax
from hayase.cql.columns import column, conjunction, quoted
from hayase.cql.distribution import is_leaf, source_of
from hayase.cql.logical import Column, Expression, Node
from hayase.cql.query_expressions import ExpressionResolver, canonical
from hayase.cql.scopes import Context, FromClause, MergedColumn, Relation, ResolvedName, Scope
from hayase.cql.syntax import Part, Plain

__all__ = ["TableJoins", "has_duplicate_alias"]

_NO_STREAM = "join it with a stream [Now]; `hayase tables scan {0}` and GET /tables/{0} read it by itself"
_ONE_STREAM = "let a query of its own join one stream with the table, and join its result here"
_NOW = "write [Now] behind the stream; for a window over the result, name this query and read it in another"
_INSIDE = "join a stream [Now] with the table inside of it"
_KIND_HINTS = {
    "semi": "write JOIN, and select only what is the stream's",
    "anti": "write LEFT JOIN, and in WHERE that the table's key IS NULL",
}
_FAMILIES = (
    pa.types.is_string, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean,
)  # fmt: skip
"""What keys of tables can be: texts, numbers, true and false."""


def has_duplicate_alias(resolver: ExpressionResolver, join: syntax.Joined, left: Scope, right: Scope) -> bool:
    """Whether two relations of a join have one name, which is a mistake."""
    twice = [each.alias for each in right.relations if each.alias and left.relation(each.alias)]
    for alias in twice[:1]:
        message = f'two relations are called "{alias}"'
        resolver.refuse(join.right.part, message, "name one of them differently with AS")
    return bool(twice)


def _relations(relation: syntax.Relation) -> Iterator[syntax.Named | syntax.Nested]:
    """What a FROM clause joins, in the order of the text."""
    if isinstance(relation, syntax.Joined):
        yield from _relations(relation.left)
        yield from _relations(relation.right)
    else:
        yield relation


@dataclass(frozen=True, slots=True)
class _Value:
    """One side of an equality: its columns in the plan (None if some are unknown, or of a query around), and the column
    that it is, if it is nothing else. The SQL, if it is known already."""

    part: Part
    columns: frozenset[str] | None
    alone: str | None
    sql: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Condition:
    """A condition of ON, WHERE or (without a text) USING, with the names that it may use."""

    part: Part
    scope: Scope
    written: Plain | None
    columns: frozenset[str] | None
    sides: tuple[_Value, _Value] | None


@dataclass(slots=True, eq=False)
class _Table:
    """A table of a FROM clause; `only_if` are the conditions of a left join, which pads a record that they do not hold for."""

    written: syntax.Named
    lookup: Lookup
    shown: Relation
    is_left: bool = False
    only_if: list[_Condition] = field(default_factory=list)

    @property
    def key(self) -> list[str]:
        """The parts of the key, as columns of the plan."""
        return [self.shown.flat(each) for each in self.lookup.table.key]


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a join: its names, whether the stream is on it, and the table that it is, if it is one."""

    scope: Scope
    has_stream: bool
    table: _Table | None = None


class TableJoins:
    """Joins of a stream with tables. `relation` resolves what is no table; mistakes go to the phrases."""

    def __init__(
        self,
        resolver: ExpressionResolver,
        tables: Mapping[str, Lookup],
        relation: Callable[[syntax.Relation, Context], FromClause | None],
    ):
        self.resolver, self.relation = resolver, relation
        self._tables = {name.lower(): each for name, each in tables.items()}

    def table(self, relation: syntax.Relation) -> Lookup | None:
        """The table that a relation is."""
        return self._tables.get(relation.part.text.lower()) if isinstance(relation, syntax.Named) else None

    def has_tables(self, source: syntax.Relation) -> bool:
        """Whether a FROM clause has tables."""
        return any(self.table(each) for each in _relations(source))

    def join(
        self, source: syntax.Relation, where: Sequence[syntax.Condition], context: Context
    ) -> tuple[FromClause, list[syntax.Condition]] | None:
        """The stream of a FROM clause with its tables, and the conditions of WHERE that are left."""
        read = list(_relations(source))
        streams = [each for each in read if self.table(each) is None]
        tables = [each for each in read if self.table(each) is not None]
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
    """One FROM clause on its way: the stream, its tables, and the conditions that any of them may be found by."""

    def __init__(self, joins: TableJoins, where: Sequence[syntax.Condition]):
        self._joins, self._resolver, self._written = joins, joins.resolver, where
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
        self._where = [self._condition(each, whole.scope) for each in self._written if isinstance(each, Plain)]
        given = list(self._where)
        waiting = list(self._tables)
        while waiting:
            ready = [(each, keys) for each in waiting if (keys := self._keys(each, set(node.schema.names))) is not None]
            if not ready:
                self._explain_unmatched(waiting)
                return None
            table, keys = ready[0]
            waiting.remove(table)
            met = self._look_up(node, table, keys)
            if met is None:
                return None
            node = met
        for each in self._inner:
            held = self._bound(each, node.schema)
            node = logical.Filter(node, held) if held is not None and held.sql.lower() != "true" else node
        used = [each.written for each in given if each not in self._where]
        return FromClause(node, whole.scope), [each for each in self._written if not any(each is one for one in used)]

    def _check_stream(self, written: syntax.Relation, node: Node) -> None:
        """Only single records meet a table."""
        source = source_of(node) if is_leaf(node) else None
        if source is not None and not source.declaration.lifetimes and source.declaration.changes is None:
            window = source.window
            if window.kind == "range" and window.length == 0 and window.slide is None:
                return
        if not isinstance(written, syntax.Named):
            message = "only records of this very instant meet a table, and this sub-query gives others"
            self._resolver.refuse(written.part, message, _INSIDE)
        elif source is not None and (source.declaration.lifetimes or source.declaration.changes is not None):
            message = f'only records of this very instant meet a table, and "{written.part.text}" is a relation'
            self._resolver.refuse(written.part, message, "join the table with a stream [Now] instead")
        else:
            message = f'only records of this very instant meet a table, and those of "{written.part.text}" stay'
            self._resolver.refuse(written.window.part if written.window else written.part, message, _NOW)

    # ------------------------------------------------------------------------------------------------ joins

    def _resolve_side(self, relation: syntax.Relation, context: Context) -> _Side | None:
        lookup = self._joins.table(relation)
        if lookup is not None and isinstance(relation, syntax.Named):
            return self._table(relation, lookup, context)
        if isinstance(relation, syntax.Joined):
            return self._join(relation, context)
        found = self._joins.relation(relation, context)
        if found is None:
            return None
        self._stream = found.node
        return _Side(found.scope, has_stream=True)

    def _table(self, relation: syntax.Named, lookup: Lookup, context: Context) -> _Side:
        if relation.window is not None:
            message = f'a window behind the table "{relation.part.text}" is not supported'
            self._resolver.refuse(relation.window.part, message, "a table is met as it is; leave the window out")
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
        into = self._inner
        if join.kind == "left" and left.has_stream and right.table is not None:
            right.table.is_left, into = True, right.table.only_if
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
            self._using(part, left.scope, right.scope, merged, into)
        scope = context.scope(left.scope.relations + right.scope.relations, tuple(merged))
        into += [self._condition(each, scope) for each in join.on if isinstance(each, Plain)]
        return _Side(scope, left.has_stream or right.has_stream)

    def _using(self, part: Part, left: Scope, right: Scope, merged: list[MergedColumn], into: list[_Condition]) -> None:
        """A column that both sides have: one name for the two, and a condition."""
        pair = [replace(each, outer=None).find((part.text,)) for each in (left, right)]
        for each in pair:
            if not isinstance(each, ResolvedName):
                self._resolver.refuse(part, each.message, each.hint)
        found = [each for each in pair if isinstance(each, ResolvedName)]
        if len(found) < 2:
            return
        one, other = (_Value(part, frozenset((_unquoted(each.sql),)), _unquoted(each.sql), each.sql) for each in found)
        names = {_unquoted(each.sql) for each in found}
        if not any(names & set(table.key) for table in self._tables):
            message = f'"{part.text}" is no part of the key of a table here'
            self._resolver.refuse(part, message, "write ON, and compare it there")
        before = [each for each in merged if each.hides & names]
        merged[:] = [each for each in merged if each not in before]
        merged.append(
            MergedColumn(found[0].name, found[0].sql, frozenset(names).union(*(each.hides for each in before)))
        )
        into.append(_Condition(part, left, None, frozenset(names), (one, other)))

    # ------------------------------------------------------------------------------------------------ conditions

    def _condition(self, written: Plain, scope: Scope) -> _Condition:
        sides = (self._value(written.sides[0], scope), self._value(written.sides[1], scope)) if written.sides else None
        return _Condition(written.part, scope, written, self._value(written.part, scope).columns, sides)

    def _value(self, part: Part, scope: Scope) -> _Value:
        """What an expression reads; mistakes in it are told when it is bound."""
        noted = len(self._resolver.mistakes)
        read = self._resolver.parse(part)
        del self._resolver.mistakes[noted:]
        if read is None or read.calls:
            return _Value(part, None, None)
        columns: set[str] = set()
        for reference in read.columns:
            found = scope.find(reference.parts)
            if not isinstance(found, ResolvedName) or found.depth:
                return _Value(part, None, None)
            columns.add(_unquoted(found.sql))
            whole = part.text[reference.start : reference.end]
            if found.parts == len(reference.parts) and canonical(part.text, ()) == canonical(whole, ()):
                return _Value(part, frozenset(columns), _unquoted(found.sql))
        return _Value(part, frozenset(columns), None)

    def _bound(self, condition: _Condition, schema: pa.Schema) -> Expression | None:
        if condition.written is not None:
            return self._resolver.condition(condition.written, condition.scope, schema)
        one, other = (each.sql for each in condition.sides or ())
        return self._resolver.bind(condition.part, f"{one} = {other}", schema, boolean=True)

    # ------------------------------------------------------------------------------------------------ keys

    def _key_conditions(self, table: _Table) -> list[_Condition]:
        """The conditions by which a table may be found."""
        return table.only_if if table.is_left else [*self._inner, *self._where]

    def _keys(self, table: _Table, known: set[str]) -> list[tuple[_Condition, _Value]] | None:
        """For each part of a table's key the first condition that says what it is, if all are said by known columns."""
        found = [self._key_value(table, part, known) for part in table.key]
        keys = [each for each in found if each is not None]
        if len(keys) < len(found):
            return None
        used = [condition for condition, _ in keys]
        own = {table.shown.flat(each) for each in table.shown.columns}
        rest = (each.columns or frozenset() for each in table.only_if if each not in used)
        return keys if all(each <= known | own for each in rest) else None

    def _key_value(self, table: _Table, part: str, known: set[str]) -> tuple[_Condition, _Value] | None:
        for each in self._key_conditions(table):
            for side, other in (each.sides, each.sides[::-1]) if each.sides else ():
                if side.alone == part and other.columns is not None and other.columns <= known:
                    return each, other
        return None

    def _look_up(self, node: Node, table: _Table, keys: Sequence[tuple[_Condition, _Value]]) -> Node | None:
        """The rows with those of a table, found by these values."""
        columns: list[Column] = []
        for name, (condition, value) in zip(table.key, keys):
            if value.sql is not None:
                found = self._resolver.bind(value.part, value.sql, node.schema)
            else:
                found = self._resolver.expression(value.part, condition.scope, node.schema)
            if found is not None and self._check_key_type(found, name):
                columns.append(Column(name, found))
        if len(columns) < len(keys):
            return None
        for condition, _ in keys:
            for given in (self._inner, self._where, table.only_if):
                given[:] = [each for each in given if each is not condition]
        names = tuple(table.lookup.schema.names)
        kind: Literal["inner", "left"] = "left" if table.is_left else "inner"
        joined = logical.TableJoin(kind, node, table.lookup, table.shown.prefix, tuple(columns), names)
        held = [self._bound(each, joined.schema) for each in table.only_if]
        kept = [each for each in held if each is not None]
        if len(kept) < len(held):
            return None
        wanted = conjunction([each for each in kept if each.sql.lower() != "true"])
        return _null_unless(joined, wanted, table.written.part) if wanted else joined

    def _check_key_type(self, value: Expression, name: str) -> bool:
        if any(family(value.kind) for family in _FAMILIES):
            return True
        message = f'a {value.kind} cannot be "{name}": keys of tables are texts, numbers, true and false'
        place = Part(value.text, value.line, value.column)
        self._resolver.refuse(place, message, "cast it to what the key is made of, such as string")
        return False

    def _explain_unmatched(self, waiting: Sequence[_Table]) -> None:
        """Say why the tables that are left cannot be found: names that are wrong, or else parts of keys that nothing equals."""
        noted = len(self._resolver.mistakes)
        for condition in (*self._inner, *self._where, *(each for table in waiting for each in table.only_if)):
            read = self._resolver.parse(condition.part) if condition.written is not None else None
            if read is not None:
                self._resolver.replacements(condition.part, read.columns, condition.scope, deep=_ANY_DEPTH)
        if len(self._resolver.mistakes) > noted:
            return
        for table in waiting:
            name, alias = table.lookup.table.name, table.shown.alias
            own = {table.shown.flat(each) for each in table.shown.columns}
            others = {
                name for each in self._tables if each is not table for name in map(each.shown.flat, each.shown.columns)
            }
            assert self._stream is not None
            known = (others | set(self._stream.schema.names)) - own
            missing = [
                part
                for part, flat in zip(table.lookup.table.key, table.key)
                if self._key_value(table, flat, known) is None
            ]
            if missing:
                parts = " and ".join(f'"{each}"' for each in missing)
                message = f'nothing says which row of the table "{name}" a record meets: its key {parts} equals nothing'
                where = "ON" if table.is_left else "WHERE or ON"
                hint = f"write {alias}.{missing[0]} = ... in {where}, with columns of the stream on the other side"
            else:
                message = f'the table "{name}" is found by columns of tables that are found by its own'
                hint = "say in WHERE or ON what its key is by columns of the stream"
            self._resolver.refuse(table.written.part, message, hint)


_ANY_DEPTH = 1000


def _unquoted(sql: str) -> str:
    """The column that a quoted name is."""
    return sql[1:-1].replace('""', '"')


def _null_unless(joined: logical.TableJoin, condition: Expression, part: Part) -> Node:
    """The same where the table's columns are null unless a condition holds."""
    own = set(joined.added.names)
    columns: list[Column] = []
    for each in joined.schema:
        value = column(each.name, each.type, part)
        if each.name in own:
            sql = f"CASE WHEN (\n{condition.sql}\n) THEN {quoted(each.name)} END"
            value = replace(condition, sql=sql, kind=each.type, columns=condition.columns | {each.name}, equality=None)
        columns.append(Column(each.name, value))
    return logical.Project(joined, tuple(columns))
