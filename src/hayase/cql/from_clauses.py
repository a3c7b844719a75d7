"""Resolution of FROM clauses: streams with their windows, sub-queries, constant rows, joins and unnested lists.

A relation's columns are named `alias.column` in the plan; if an outer query uses the same alias, the inner one gets a number.
Mistakes go to the expression resolver, and methods return None for a part that has some.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import EVENT_TIME, LIFETIME_COLUMNS, StreamDeclaration
from hayase.core.errors import DeclarationError, suggestion
from hayase.core.expressions import common_type
from hayase.core.stages import Lookup
from hayase.core.times import duration_text
from hayase.cql import logical, syntax
from hayase.cql.asof_joins import asof_join
from hayase.cql.bounded_leaves import bounds_fields, misfit
from hayase.cql.columns import cast_to, column, conjunction, select_columns, with_names
from hayase.cql.equalities import node_join_keys
from hayase.cql.logical import Expression, Node
from hayase.cql.nested_streams import NestedStreams, as_stream
from hayase.cql.query_expressions import ExpressionResolver, comparable_sides
from hayase.cql.record_streams import is_stream
from hayase.cql.scopes import Context, FromClause, HiddenScope, MergedColumn, Relation, ResolvedName, Scope
from hayase.cql.subquery_expressions import is_list
from hayase.cql.syntax import Part, Plain, has_subquery
from hayase.cql.table_joins import TableJoins, has_duplicate_alias

__all__ = ["SEVERAL_WINDOWS_HINT", "FromClauses", "refuse_several_windows"]

SEVERAL_WINDOWS_HINT = (
    "write them after the only stream of a select with aggregates: select avg(x) from s [Rows 10, 100]"
)
_LATERAL = "correlated sub-queries in FROM are not supported"
_LATERAL_HINT = "select the column in the sub-query, and compare it in ON or WHERE"


class FromClauses:
    """Resolves FROM clauses over declared streams and tables; `query` resolves a sub-query, and `where` filters by a condition;
    `streams` declares the sub-queries that are streams of their own.

    `names_time` says whether the statement names `event_time`; `relations` are all that the statement reads.
    """

    def __init__(
        self,
        resolver: ExpressionResolver,
        sources: Mapping[str, StreamDeclaration],
        tables: Mapping[str, Lookup],
        query: Callable[[syntax.Query, Context, bool], Node | None],
        where: Callable[[syntax.Condition, Node, Scope], Node],
        names_time: bool,
        relations: Sequence[syntax.Named],
        streams: NestedStreams,
    ):
        self._resolver, self._sources, self._query, self._where = resolver, sources, query, where
        self._names_time, self._named_relations, self._streams = names_time, relations, streams
        self._tables = TableJoins(resolver, tables, self.relation)

    def resolve(
        self, source: syntax.Relation, where: Sequence[syntax.Condition], context: Context
    ) -> tuple[FromClause, Sequence[syntax.Condition]] | None:
        """Resolve a FROM clause. Return it with the conditions of WHERE, minus those that became keys of table lookups."""
        if self._tables.has_tables(source):
            return self._tables.join(source, where, context)
        clause = self.relation(source, context)
        return (clause, where) if clause else None

    def relation(self, relation: syntax.Relation, context: Context) -> FromClause | None:
        """Resolve one relation of a FROM clause, or a join of several."""
        match relation:
            case syntax.Named():
                return self._named(relation, context)
            case syntax.Nested():
                return self._nested(relation, context)
            case syntax.Joined():
                return self._joined(relation, context)
            case syntax.Constant():
                return self._constant(relation, context)
            case syntax.Unnested():
                hint = "write it behind the relation that has the list: from s, unnest(s.list) as u(x)"
                self._resolver.refuse(relation.part, "unnest of no relation is not supported", hint)
                return None

    def _named(self, relation: syntax.Named, context: Context) -> FromClause | None:
        part = relation.part
        declaration = self._sources.get(part.text.lower())
        if declaration is None:
            hint = suggestion(part.text, [stream.name for stream in self._sources.values()])
            self._resolver.refuse(part, f'unknown stream "{part.text}"', hint)
            return None
        if relation.window is None or not (declaration.lifetimes or declaration.changes):
            return self._source(relation, declaration, relation.alias or declaration.name, context)
        if not self._has_window_for_rows(relation):
            return None
        plain = replace(relation, window=None, columns=())
        clause = self._source(plain, declaration, declaration.name, Context())
        if clause is None:
            return None
        (names,) = clause.scope.relations
        rows = select_columns(clause.node, [names.flat(name) for name in names.columns])
        plan = as_stream(with_names(rows, names.columns, part))
        return self._inner_stream(replace(relation, alias=relation.alias or declaration.name), plan, context)

    def _has_window_for_rows(self, relation: syntax.Named | syntax.Nested) -> bool:
        """Refuse `[Unbounded]` behind a relation, whose rows have ends: it would keep them for ever."""
        if relation.window is None or relation.window.kind != "unbounded":
            return True
        hint = "leave it out, or write Istream(...) [Unbounded] for all rows that ever appeared"
        self._resolver.refuse(relation.window.part, "[Unbounded] behind a relation is not supported", hint)
        return False

    def _inner_stream(self, relation: syntax.Named | syntax.Nested, plan: Node, context: Context) -> FromClause | None:
        """Resolve a sub-query that is a stream of its own, which is read through the window behind it."""
        declaration = self._streams.declare(plan)
        if declaration is None:
            return None
        return self._source(relation, declaration, relation.alias, context, plan)

    def _source(
        self, relation: syntax.Named | syntax.Nested, declaration: StreamDeclaration, alias: str | None,
        context: Context, plan: Node | None = None,
    ) -> FromClause | None:  # fmt: skip
        """Resolve a stream with its window; `plan` is that of a stream inside of the query."""
        part = relation.part
        fields = _row_fields(declaration)
        names = tuple(field.name for field in fields)
        extra = [] if declaration.changes else _extra_time_fields(declaration, names, self._names_time)
        nameable = tuple(field.name for field in extra if field.name.lower() == EVENT_TIME)
        former = declaration.time if declaration.hides_time else None
        relation_names = Relation(alias, context.prefix(alias or "subquery"), names, nameable, former)
        window = self._window(relation.window, declaration, relation_names)
        if window is None:
            return None
        bounds = bounds_fields(window, declaration)
        fields += [*extra, *bounds]
        named = (*names, *(field.name for field in bounds))
        aliases = self._column_aliases(relation, named)
        if aliases is None:
            return None
        renamed = tuple((new, old) for new, old in zip(aliases, named) if new != old)
        relation_names = replace(relation_names, columns=aliases, renamed=renamed)
        schema = pa.schema([pa.field(f"{relation_names.prefix}.{field.name}", field.type) for field in fields])
        source = logical.Source(declaration, relation_names.prefix, window, schema, part.line, part.column, plan)
        return FromClause(source, context.scope((relation_names,)))

    def _window(
        self, window: syntax.WindowText | None, stream: StreamDeclaration, names_of: Relation
    ) -> logical.Window | None:
        if window is None:
            return logical.Window("unbounded")
        schema = stream.arrow_schema
        names = [field.name for field in _row_fields(stream)]
        spelled = {EVENT_TIME: stream.time} | {column.lower(): column for column in names}
        columns: list[str] = []
        for part in (*window.partition, *(part for part, _, _ in window.order)):
            name = part.text[1:-1].replace('""', '"') if part.text.startswith('"') else part.text
            if name.lower() not in spelled:
                message = f'unknown column "{name}" in "{stream.name}"'
                former = stream.time if stream.hides_time else None
                instead = Relation(stream.name, "", tuple(names), former=former).hint(name)
                self._resolver.refuse(part, message, instead)
            elif self._resolver.check_key(part, schema.field(spelled[name.lower()]).type):
                columns.append(spelled[name.lower()])
        count = len(window.partition)
        if len(columns) < count + len(window.order):
            return None
        order = tuple((name, down, first) for name, (_, down, first) in zip(columns[count:], window.order))
        partition = tuple(dict.fromkeys(columns[:count]))
        keys = [
            column(names_of.flat(name), schema.field(name).type, Part(name, window.part.line, window.part.column))
            for name in partition
        ]
        sessions = tuple(logical.Column(names_of.flat(name), key) for name, key in zip(partition, keys))
        resolved = logical.Window(
            window.kind, window.length, window.slide, partition, window.several, window.offset, window.keep, window.early,
            sessions if window.kind == "session" else (), order,
        )  # fmt: skip
        return resolved if not resolved.has_bounds or self._fits(window, resolved, stream, names) else None

    def _fits(
        self, written: syntax.WindowText, window: logical.Window, stream: StreamDeclaration, names: Sequence[str]
    ) -> bool:
        """Check that a stream can have a window with bounds: its units of time, its columns and the column that is named."""
        noted = len(self._resolver.mistakes)
        if (wrong := misfit(window, stream)) is not None:
            unit = duration_text(stream.time_scale)
            message = f'the times of "{stream.name}" are whole numbers of {unit}, and {wrong} is none'
            self._resolver.refuse(written.part, message, f"write durations that are multiples of {unit}")
        added = {field.name for field in bounds_fields(window, stream)}
        for name in names:
            if name.lower() in added:
                message = f'"{stream.name}" has a column "{name}", and this window adds one of that name'
                hint = f"read a query that names it differently: {name} as first_{name}"
                self._resolver.refuse(written.part, message, hint)
        time = written.time
        if time is not None and time.text.strip('"').lower() not in (stream.time.lower(), EVENT_TIME):
            own = EVENT_TIME if stream.hides_time else stream.time
            message = f'windows follow the event time of "{stream.name}", and "{time.text}" is not that'
            self._resolver.refuse(time, message, f"write DESCRIPTOR({own})")
        return len(self._resolver.mistakes) == noted

    def _nested(self, relation: syntax.Nested, context: Context) -> FromClause | None:
        hidden = HiddenScope(context.scope(context.beside), _LATERAL, _LATERAL_HINT)
        is_inner = relation.stream is not None or relation.window is not None
        node = self._query(relation.query, Context(hidden=hidden), is_inner)
        if node is None:
            return None
        if is_inner:
            if relation.stream is None and not is_stream(node) and not self._has_window_for_rows(relation):
                return None
            plan = logical.ToStream(relation.stream, node) if relation.stream else as_stream(node)
            return self._inner_stream(relation, plan, context)
        names = self._column_aliases(relation, node.schema.names)
        if names is None:
            return None
        relation_names = Relation(relation.alias, context.prefix(relation.alias or "subquery"), names)
        flat = [relation_names.flat(name) for name in names]
        return FromClause(with_names(node, flat, relation.part), context.scope((relation_names,)))

    def _constant(self, relation: syntax.Constant, context: Context) -> FromClause | None:
        """Resolve rows that are written in the query. They hold from the first event of the streams behind it on."""
        anchor = next((named for named in self._named_relations if named.part.text.lower() in self._sources), None)
        if anchor is None:
            hint = "nothing has a time without one: write select ... from ..."
            self._resolver.refuse(relation.part, "a query needs a stream", hint)
            return None
        source = self._named(replace(anchor, alias=f"__{anchor.part.text}", columns=()), Context())
        values = [[self._resolver.expression(part, Scope(), pa.schema([])) for part in row] for row in relation.rows]
        if source is None or any(value is None for row in values for value in row):
            return None
        nothing = Expression("CAST(NULL AS INTEGER)", pa.int32(), frozenset(), "NULL")
        row = logical.Aggregate(
            source.node, (), (logical.AggregateCall("__nothing", "max", nothing, False, pa.int32(), "max(NULL)"),)
        )
        names = self._column_aliases(relation, [f"col{at}" for at in range(len(relation.rows[0]))])
        if names is None:
            return None
        if not names:
            return FromClause(row, context.scope())
        relation_names = Relation(relation.alias, context.prefix(relation.alias or "values"), names)
        flat = [relation_names.flat(name) for name in names]
        plan: Node | None = None
        try:
            kinds = [reduce(common_type, (value.kind for value in column if value)) for column in zip(*values)]
        except DeclarationError as error:
            self._resolver.refuse(relation.part, error.mistakes[0].message, error.mistakes[0].hint)
            return None
        for listed in values:
            columns = (
                logical.Column(name, cast_to(value, kind)) for name, value, kind in zip(flat, listed, kinds) if value
            )
            side = logical.Project(row, tuple(columns))
            plan = side if plan is None else logical.SetOperation("union", True, plan, side)
        return FromClause(plan, context.scope((relation_names,))) if plan is not None else None

    def _column_aliases(
        self, relation: syntax.Named | syntax.Nested | syntax.Constant | syntax.Unnested, names: Sequence[str]
    ) -> tuple[str, ...] | None:
        """Return the names of a relation's columns with their aliases, `as t(a, b)`; None, with a mistake, if these do not fit."""
        aliases = relation.columns
        renamed = (*aliases, *names[len(aliases) :])
        if len(aliases) > len(names):
            message = f"{len(aliases)} column aliases for {len(names)} columns"
            self._resolver.refuse(relation.part, message, f"there are {', '.join(names)}")
        elif len({name.lower() for name in renamed}) < len(renamed):
            self._resolver.refuse(relation.part, "two columns get the same name", "use different aliases")
        else:
            return renamed
        return None

    def _joined(self, join: syntax.Joined, context: Context) -> FromClause | None:
        refuse_several_windows(self._resolver, join.left, join.right)
        _refuse_sessions_of_groups(self._resolver, join.left, join.right)
        if isinstance(join.right, syntax.Unnested):
            return self._unnested(join, join.right, context)
        left = self.relation(join.left, context)
        left_relations = context.beside + (left.scope.relations if left else ())
        right = self.relation(join.right, replace(context, beside=left_relations))
        if left is None or right is None:
            return None
        if has_duplicate_alias(self._resolver, join, context.scope(left_relations), right.scope):
            return None
        if join.natural:
            join = self._with_common_columns(join, left, right)
        merged = self._using(join, left, right)
        if len(merged.columns) < len(join.using):
            return None
        both = context.scope(left.scope.relations + right.scope.relations, left.scope.merged + right.scope.merged)
        if join.asof:
            met = asof_join(self._resolver, join, left, right, both, list(merged.equal))
            return FromClause(met, _with_merged(both, merged)) if met is not None else None
        schema = pa.schema([*left.node.schema, *right.node.schema])
        equal, rest = list(merged.equal), list[Expression]()
        for condition in join.on:
            if not isinstance(condition, Plain) or has_subquery(condition):
                continue
            resolved = self._resolver.condition(condition, both, schema)
            pair = node_join_keys(resolved, left.node, right.node) if resolved else None
            if pair is not None:
                equal.append(pair)
            elif resolved is not None and resolved.sql.lower() != "true":
                rest.append(resolved)
        node: Node = logical.Join(join.kind, left.node, right.node, tuple(equal), conjunction(rest))
        for condition in join.on:
            if has_subquery(condition):  # of an inner join: as in WHERE
                node = self._where(condition, node, both)
        if join.kind in ("semi", "anti"):
            return FromClause(node, left.scope)
        return FromClause(node, _with_merged(both, merged))

    def _unnested(self, join: syntax.Joined, relation: syntax.Unnested, context: Context) -> FromClause | None:
        """Resolve `relation, UNNEST(list) as alias(column)`: its rows, once for every element."""
        left = self.relation(join.left, context)
        value = self._resolver.expression(relation.value, left.scope, left.node.schema) if left else None
        if left is None or value is None or not is_list(self._resolver, relation.value, value):
            return None
        if join.kind != "inner" or join.on or join.using or join.natural:
            self._resolver.refuse(
                relation.part, "unnest with a condition is not supported", "write CROSS JOIN, or a comma"
            )
            return None
        names = self._column_aliases(relation, ["unnest"])
        if names is None:
            return None
        beside = replace(context, beside=context.beside + left.scope.relations)
        element = Relation(relation.alias, beside.prefix(relation.alias or "unnest"), names)
        node = logical.Unnest(left.node, value, element.flat(names[0]))
        return FromClause(node, replace(left.scope, relations=(*left.scope.relations, element)))

    def _with_common_columns(self, join: syntax.Joined, left: FromClause, right: FromClause) -> syntax.Joined:
        """Return a natural join as one that uses the columns with the same name on both sides."""
        known = {name.lower() for name, _ in right.scope.star()}
        common = tuple(replace(join.part, text=name) for name, _ in left.scope.star() if name.lower() in known)
        if not common:
            self._resolver.refuse(
                join.part, "NATURAL JOIN without a column of the same name on both sides", "write JOIN ... ON"
            )
        return replace(join, using=common)

    def _using(self, join: syntax.Joined, left: FromClause, right: FromClause) -> _UsingColumns:
        equal: list[tuple[Expression, Expression]] = []
        columns: list[MergedColumn] = []
        for part in join.using:
            pair = [self._using_column(part, side) for side in (left, right)]
            left_column, right_column = pair[0], pair[1]
            if left_column is None or right_column is None:
                continue
            sides = comparable_sides(left_column, right_column)
            if sides is None:
                message = f'the columns "{part.text}" of both sides cannot be compared'
                self._resolver.refuse(part, message, "write ON with a cast")
                continue
            equal.append(sides)
            values = {"right": right_column.sql, "full": f"coalesce({left_column.sql}, {right_column.sql})"}
            columns.append(
                MergedColumn(
                    left_column.text, values.get(join.kind, left_column.sql), left_column.columns | right_column.columns
                )
            )
        return _UsingColumns(tuple(equal), tuple(columns))

    def _using_column(self, part: Part, side: FromClause) -> Expression | None:
        """Resolve a column of USING on one side of the join."""
        name = replace(side.scope, outer=None).find((part.text,))
        if not isinstance(name, ResolvedName):
            self._resolver.refuse(part, name.message, name.hint)
            return None
        return self._resolver.bind(replace(part, text=name.name), name.sql, side.node.schema)


@dataclass(frozen=True, slots=True)
class _UsingColumns:
    equal: tuple[tuple[Expression, Expression], ...]
    columns: tuple[MergedColumn, ...]


def _with_merged(both: Scope, merged: _UsingColumns) -> Scope:
    """Return the scope of a join with the columns that USING has merged."""
    hidden = {flat for column in merged.columns for flat in column.hides}
    kept = tuple(column for column in both.merged if not column.hides & hidden)
    return replace(both, merged=kept + merged.columns)


def refuse_several_windows(resolver: ExpressionResolver, *relations: syntax.Relation) -> None:
    """Refuse relations with several windows: they cannot be joined."""
    for relation in relations:
        window = syntax.window_of(relation)
        if window is not None and window.several:
            resolver.refuse(window.part, "several windows in a join are not supported", SEVERAL_WINDOWS_HINT)


def _refuse_sessions_of_groups(resolver: ExpressionResolver, *relations: syntax.Relation) -> None:
    """Refuse sessions without Partition By in a join: it is not clear which records belong together."""
    for relation in relations:
        window = syntax.window_of(relation)
        if window is not None and window.kind == "session" and not window.partition:
            hint = "write the columns that a session is about: [Partition By user Session 30 minutes]"
            resolver.refuse(window.part, "a session in a join needs Partition By", hint)


def _row_fields(stream: StreamDeclaration) -> list[pa.Field]:
    """Return the columns of the rows themselves, without those that say when a row of a relation is valid."""
    hidden: set[str | None] = set()
    if stream.lifetimes:
        hidden |= set(LIFETIME_COLUMNS)
    elif stream.changes:
        hidden |= {stream.changes, stream.time, stream.id}
    elif stream.hides_time:
        hidden |= {stream.time}
    return [field for field in stream.arrow_schema if field.name not in hidden]


def _extra_time_fields(stream: StreamDeclaration, own: Sequence[str], named: bool) -> list[pa.Field]:
    """Return the event time of a stream as extra fields that a query can name although they are none of its columns.

    A hidden event time has its name in the log, which only plans use. If the query names `event_time`, that
    is a field too; for a row of a relation it is the time when the row appears.
    """
    schema = stream.arrow_schema
    fields = [schema.field(stream.time)] if stream.hides_time and not stream.lifetimes else []
    taken = {name.lower() for name in (*own, *(field.name for field in fields))}
    if named and EVENT_TIME not in taken:
        fields.append(schema.field("valid_from" if stream.lifetimes else stream.time).with_name(EVENT_TIME))
    return fields
