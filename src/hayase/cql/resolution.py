"""Resolution of a parsed query into a logical plan: names are resolved, expressions typed, clauses become operators.

EXISTS and IN with a sub-query become semi and anti joins. A sub-query's columns are named `alias.column`, like those of a
stream; if an outer query uses the same alias, the inner one gets a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa

from hayase.core.declarations import EVENT_TIME, LIFETIME_COLUMNS, StreamDeclaration
from hayase.core.errors import DeclarationError, by_place, suggestion
from hayase.core.expressions import cast, common_type
from hayase.core.keys import check_key_type, is_key_type
from hayase.core.stages import Lookup
from hayase.core.times import duration_text
from hayase.cql import logical, syntax
from hayase.cql.aggregation import Groups
from hayase.cql.bounded_leaves import bounds_fields, misfit, with_session_keys
from hayase.cql.columns import column, column_name, conjunction, quoted
from hayase.cql.equalities import join_keys
from hayase.cql.logical import Expression, Node
from hayase.cql.over_calls import OverCalls, has_overs
from hayase.cql.query_expressions import ExpressionResolver, cast_to, comparable_sides
from hayase.cql.row_order import OrderedOutputs
from hayase.cql.scopes import Context, FromClause, HiddenScope, MergedColumn, Relation, ResolvedName, Scope
from hayase.cql.select_lists import Output, SelectList
from hayase.cql.statement import Statement
from hayase.cql.subquery_expressions import (
    UNKNOWN_TOO,
    GroupSubqueries,
    SubqueryExpressions,
    has_subqueries,
    without_subqueries,
)
from hayase.cql.syntax import Part, Plain
from hayase.cql.table_joins import TableJoins, has_duplicate_alias

__all__ = ["resolve"]

_LATERAL = "correlated sub-queries in FROM are not supported"
_LATERAL_HINT = "select the column in the sub-query, and compare it in ON or WHERE"
_UNCORRELATED = (
    "a sub-query with GROUP BY, aggregates, set operations, OVER, LIMIT or DISTINCT ON "
    "cannot name columns of the query around it"
)
_TAG = "window"
_SEVERAL_WINDOWS_HINT = (
    "write them after the only stream of a select with aggregates: select avg(x) from s [Rows 10, 100]"
)
_UNCORRELATED_HINT = "select what is to be compared, and use IN, or join with the sub-query"


def resolve(
    statement: Statement,
    sources: Mapping[str, StreamDeclaration],
    aggregates: Mapping[str, str] | None = None,
    tables: Mapping[str, Lookup] | None = None,
) -> Node:
    """Return the logical plan of a query over declared streams. Raise DeclarationError with all mistakes in it.

    `aggregates` maps the names of user-defined aggregates to "module:attribute"; `tables` are those that the query may join.

    >>> from hayase.cql.statement import parse
    >>> events = StreamDeclaration("events", "time timestamp, user_id string, amount double", time="time")
    >>> text = "select user_id, sum(amount) from events [Rows 5] where amount > 0 group by user_id"
    >>> print("\\n".join(logical.describe(resolve(parse(text), {"events": events}))))
    Project user_id = "events.user_id", sum_amount = "sum_1"
      Aggregate by events.user_id = "events.user_id": sum_1 = sum("events.amount")
        Filter "events.amount" > 0
          Source events as events [Rows 5]
    """
    resolution = _Resolution(
        sources,
        aggregates,
        tables,
        EVENT_TIME in statement.canon.lower(),
        tuple(syntax.named_relations(statement.query)),
    )
    node = resolution.query(statement.query, Context(), result=True)
    if node is None or resolution.mistakes:
        mistakes = dict.fromkeys(resolution.mistakes)
        raise DeclarationError(sorted(mistakes, key=by_place))
    return logical.ToStream(statement.stream, node) if statement.stream else node


class _Resolution:
    """Builds the plan of one query. Methods note mistakes and return None for a part that has some."""

    def __init__(
        self,
        sources: Mapping[str, StreamDeclaration],
        aggregates: Mapping[str, str] | None,
        tables: Mapping[str, Lookup] | None,
        names_time: bool,
        named_relations: Sequence[syntax.Named],
    ):
        self._names_time, self._named_relations = names_time, named_relations
        self.sources = {name.lower(): stream for name, stream in sources.items()}
        self.resolver = ExpressionResolver(aggregates)
        self.mistakes = self.resolver.mistakes
        self._select_lists = SelectList(self.resolver)
        self._tables = TableJoins(self.resolver, tables or {}, self._relation)
        self._subqueries = SubqueryExpressions(self)

    def query(self, query: syntax.Query, context: Context, result: bool = False) -> Node | None:
        """Return the plan of a query. If it is the `result` of the statement, some column names are reserved."""
        if isinstance(query, syntax.Select):
            return self._select(query, context, result)
        return self._set_operation(query, context, result)

    # ------------------------------------------------------------------------------------------------ set operations

    def _set_operation(self, query: syntax.Combined, context: Context, result: bool) -> Node | None:
        left, right = self.query(query.left, context, result), self.query(query.right, context)
        if left is None or right is None:
            return None
        if query.by_name:
            left, right = _matched_by_name(left, right, query.part)
        left_schema, right_schema = left.schema, right.schema
        if len(left_schema) != len(right_schema):
            message = f"{query.kind.upper()} of {len(left_schema)} and {len(right_schema)} columns"
            self.resolver.refuse(query.part, message, "select as many on both sides; columns are matched by position")
            return None
        kinds: list[pa.DataType] = []
        for left_field, right_field in zip(left_schema, right_schema):
            try:
                kinds.append(common_type(left_field.type, right_field.type))
                if (query.kind, query.all) != ("union", True):
                    check_key_type(kinds[-1])
            except DeclarationError as error:
                hint = error.mistakes[0].hint
                self.resolver.refuse(query.part, f'column "{left_field.name}": {error.mistakes[0].message}', hint)
        if len(kinds) != len(left_schema):
            return None
        left, right = (_rename(side, left_schema.names, query.part, kinds) for side in (left, right))
        combined = logical.SetOperation(query.kind, query.all, left, right)
        outputs = [Output(name, query.part) for name in left_schema.names]
        ordered = OrderedOutputs(self.resolver, query.ordering, (), outputs, hidden=False)
        return ordered.limited(combined)

    # ------------------------------------------------------------------------------------------------ relations

    def from_clause(
        self, source: syntax.Relation, where: Sequence[syntax.Condition], context: Context
    ) -> tuple[FromClause, Sequence[syntax.Condition]] | None:
        """Resolve a FROM clause. Return it with the conditions of WHERE, minus those that became keys of table lookups."""
        if self._tables.has_tables(source):
            return self._tables.join(source, where, context)
        clause = self._relation(source, context)
        return (clause, where) if clause else None

    def _relation(self, relation: syntax.Relation, context: Context) -> FromClause | None:
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
                self.resolver.refuse(relation.part, "unnest of no relation is not supported", hint)
                return None

    def _named(self, relation: syntax.Named, context: Context) -> FromClause | None:
        part = relation.part
        declaration = self.sources.get(part.text.lower())
        if declaration is None:
            hint = suggestion(part.text, [stream.name for stream in self.sources.values()])
            self.resolver.refuse(part, f'unknown stream "{part.text}"', hint)
            return None
        alias = relation.alias or declaration.name
        fields = _row_fields(declaration)
        names = tuple(field.name for field in fields)
        extra = [] if declaration.changes else _extra_time_fields(declaration, names, self._names_time)
        nameable = tuple(field.name for field in extra if field.name.lower() == EVENT_TIME)
        former = declaration.time if declaration.hides_time else None
        relation_names = Relation(alias, context.prefix(alias), names, nameable, former)
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
        source = logical.Source(declaration, relation_names.prefix, window, schema, part.line, part.column)
        return FromClause(source, context.scope((relation_names,)))

    def _window(
        self, window: syntax.WindowText | None, stream: StreamDeclaration, names_of: Relation
    ) -> logical.Window | None:
        if window is None:
            return logical.Window("unbounded")
        if stream.lifetimes or stream.changes:
            hint = "its rows have lifetimes of their own; only a stream has a window"
            self.resolver.refuse(window.part, f'a window after the relation "{stream.name}" is not supported', hint)
            return None
        schema = stream.arrow_schema
        names = [field.name for field in _row_fields(stream)]
        spelled = {EVENT_TIME: stream.time} | {column.lower(): column for column in names}
        columns: list[str] = []
        for part in window.partition:
            name = part.text[1:-1].replace('""', '"') if part.text.startswith('"') else part.text
            if name.lower() not in spelled:
                message = f'unknown column "{name}" in "{stream.name}"'
                former = stream.time if stream.hides_time else None
                instead = Relation(stream.name, "", tuple(names), former=former).hint(name)
                self.resolver.refuse(part, message, instead)
            elif self.resolver.check_key(part, schema.field(spelled[name.lower()]).type):
                columns.append(spelled[name.lower()])
        if len(columns) < len(window.partition):
            return None
        partition = tuple(dict.fromkeys(columns))
        keys = [
            column(names_of.flat(name), schema.field(name).type, Part(name, window.part.line, window.part.column))
            for name in partition
        ]
        sessions = tuple(logical.Column(names_of.flat(name), key) for name, key in zip(partition, keys))
        resolved = logical.Window(
            window.kind, window.length, window.slide, partition, window.several, window.offset, window.keep, window.early,
            sessions if window.kind == "session" else (),
        )  # fmt: skip
        return resolved if not resolved.has_bounds or self._fits(window, resolved, stream, names) else None

    def _fits(
        self, written: syntax.WindowText, window: logical.Window, stream: StreamDeclaration, names: Sequence[str]
    ) -> bool:
        """Check that a stream can have a window with bounds: its units of time, its columns and the column that is named."""
        noted = len(self.mistakes)
        if (wrong := misfit(window, stream)) is not None:
            unit = duration_text(stream.time_scale)
            message = f'the times of "{stream.name}" are whole numbers of {unit}, and {wrong} is none'
            self.resolver.refuse(written.part, message, f"write durations that are multiples of {unit}")
        added = {field.name for field in bounds_fields(window, stream)}
        for name in names:
            if name.lower() in added:
                message = f'"{stream.name}" has a column "{name}", and this window adds one of that name'
                hint = f"read a query that names it differently: {name} as first_{name}"
                self.resolver.refuse(written.part, message, hint)
        time = written.time
        if time is not None and time.text.strip('"').lower() not in (stream.time.lower(), EVENT_TIME):
            own = EVENT_TIME if stream.hides_time else stream.time
            message = f'windows follow the event time of "{stream.name}", and "{time.text}" is not that'
            self.resolver.refuse(time, message, f"write DESCRIPTOR({own})")
        return len(self.mistakes) == noted

    def _nested(self, relation: syntax.Nested, context: Context) -> FromClause | None:
        hidden = HiddenScope(context.scope(context.beside), _LATERAL, _LATERAL_HINT)
        node = self.query(relation.query, Context(hidden=hidden))
        if node is None:
            return None
        names = self._column_aliases(relation, node.schema.names)
        if names is None:
            return None
        relation_names = Relation(relation.alias, context.prefix(relation.alias or "subquery"), names)
        flat = [relation_names.flat(name) for name in names]
        return FromClause(_rename(node, flat, relation.part), context.scope((relation_names,)))

    def _constant(self, relation: syntax.Constant, context: Context) -> FromClause | None:
        """Resolve rows that are written in the query. They hold from the first event of the streams behind it on."""
        anchor = next((named for named in self._named_relations if named.part.text.lower() in self.sources), None)
        if anchor is None:
            hint = "nothing has a time without one: write select ... from ..."
            self.resolver.refuse(relation.part, "a query needs a stream", hint)
            return None
        source = self._named(replace(anchor, alias=f"__{anchor.part.text}", columns=()), Context())
        values = [[self.resolver.expression(part, Scope(), pa.schema([])) for part in row] for row in relation.rows]
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
            self.resolver.refuse(relation.part, error.mistakes[0].message, error.mistakes[0].hint)
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
            self.resolver.refuse(relation.part, message, f"there are {', '.join(names)}")
        elif len({name.lower() for name in renamed}) < len(renamed):
            self.resolver.refuse(relation.part, "two columns get the same name", "use different aliases")
        else:
            return renamed
        return None

    def _joined(self, join: syntax.Joined, context: Context) -> FromClause | None:
        self._refuse_several_windows(join.left, join.right)
        self._refuse_sessions_of_groups(join.left, join.right)
        if isinstance(join.right, syntax.Unnested):
            return self._unnested(join, join.right, context)
        left = self._relation(join.left, context)
        left_relations = context.beside + (left.scope.relations if left else ())
        right = self._relation(join.right, replace(context, beside=left_relations))
        if left is None or right is None:
            return None
        if has_duplicate_alias(self.resolver, join, context.scope(left_relations), right.scope):
            return None
        if join.natural:
            join = self._with_common_columns(join, left, right)
        merged = self._using(join, left, right)
        if len(merged.columns) < len(join.using):
            return None
        both = context.scope(left.scope.relations + right.scope.relations, left.scope.merged + right.scope.merged)
        schema = pa.schema([*left.node.schema, *right.node.schema])
        equal, rest = list(merged.equal), list[Expression]()
        for condition in join.on:
            resolved = self.resolver.condition(condition, both, schema) if isinstance(condition, Plain) else None
            pair = _join_keys(resolved, left.node, right.node) if resolved else None
            if pair is not None:
                equal.append(pair)
            elif resolved is not None and resolved.sql.lower() != "true":
                rest.append(resolved)
        node = logical.Join(join.kind, left.node, right.node, tuple(equal), conjunction(rest))
        if join.kind in ("semi", "anti"):
            return FromClause(node, left.scope)
        hidden = {flat for column in merged.columns for flat in column.hides}
        kept = tuple(column for column in both.merged if not column.hides & hidden)
        return FromClause(node, replace(both, merged=kept + merged.columns))

    def _unnested(self, join: syntax.Joined, relation: syntax.Unnested, context: Context) -> FromClause | None:
        """Resolve `relation, UNNEST(list) as alias(column)`: its rows, once for every element."""
        left = self._relation(join.left, context)
        value = self.resolver.expression(relation.value, left.scope, left.node.schema) if left else None
        if left is None or value is None or not self._subqueries.check_list(relation.value, value):
            return None
        if join.kind != "inner" or join.on or join.using or join.natural:
            self.resolver.refuse(
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
            self.resolver.refuse(
                join.part, "NATURAL JOIN without a column of the same name on both sides", "write JOIN ... ON"
            )
        return replace(join, using=common)

    def _refuse_several_windows(self, *relations: syntax.Relation) -> None:
        """Refuse relations with several windows: they cannot be joined."""
        for relation in relations:
            if isinstance(relation, syntax.Named) and relation.window and relation.window.several:
                self.resolver.refuse(
                    relation.window.part, "several windows in a join are not supported", _SEVERAL_WINDOWS_HINT
                )

    def _refuse_sessions_of_groups(self, *relations: syntax.Relation) -> None:
        """Refuse sessions without Partition By in a join: it is not clear which records belong together."""
        for relation in relations:
            window = relation.window if isinstance(relation, syntax.Named) else None
            if window is not None and window.kind == "session" and not window.partition:
                hint = "write the columns that a session is about: [Partition By user Session 30 minutes]"
                self.resolver.refuse(window.part, "a session in a join needs Partition By", hint)

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
                self.resolver.refuse(part, message, "write ON with a cast")
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
            self.resolver.refuse(part, name.message, name.hint)
            return None
        return self.resolver.bind(replace(part, text=name.name), name.sql, side.node.schema)

    # ------------------------------------------------------------------------------------------------ select

    def _select(self, select: syntax.Select, context: Context, result: bool) -> Node | None:
        overs = OverCalls(self.resolver, select)
        select = overs.select
        read = self.from_clause(select.source, select.where, context)
        if read is None:
            return None
        source, where = read
        noted = len(self.mistakes)
        node = source.node
        scope = replace(source.scope, aliases=frozenset(item.alias.lower() for item in select.items if item.alias))
        for condition in where:
            node = self._where(condition, node, scope)
        above, before, written = None, len(self.mistakes), select
        if self.is_grouped(select, overs.arguments):
            select, node, scope, above = self._subqueries.inline_grouped(select, node, scope)
        else:
            select, node, scope = self._subqueries.inline_items(select, node, scope)
        if len(self.mistakes) > before:
            return None
        columns = [sql for _, sql in scope.star()]
        scope = replace(
            scope, merged=(*scope.merged, *(MergedColumn(name, quoted(name), frozenset()) for name in overs.names))
        )
        outputs = self._select_lists.outputs(select.items, scope, result)
        ordered = OrderedOutputs(
            self.resolver, select.ordering, select.distinct_on, outputs, hidden=not select.distinct
        )
        outputs = ordered.outputs
        window = select.source.window if isinstance(select.source, syntax.Named) else None
        if window is not None and window.several and not self.is_grouped(select):
            self.resolver.refuse(
                window.part, "several windows without an aggregate are not supported", _SEVERAL_WINDOWS_HINT
            )
        if self.is_grouped(select, overs.arguments):
            plan = self._grouping_sets(select, outputs, node, scope, above, overs)
        else:
            below = node
            self._refuse_stream_mode(select, source, overs)
            known = overs.resolve(lambda part: self.resolver.expression(part, source.scope, below.schema))
            if len(known) < len(overs.names):
                return None
            bound = [self.resolver.bind(select.part, sql, node.schema) for sql in columns if overs.names]
            node = overs.above(node, [value for value in bound if value])
            for plain in select.qualify:
                node = self._where(plain, node, scope)
            plan = self._project(outputs, node, scope)
        if plan is None or len(self.mistakes) > noted:
            return None
        if select.distinct:
            for output in outputs:
                self.resolver.check_key(output.part, plan.schema.field(output.name).type)
            return ordered.limited(logical.Distinct(plan))
        if has_subqueries(written) and all(is_key_type(kind) for kind in plan.schema.types):
            # a row that stays is one row, whatever the sub-queries give meanwhile
            return ordered.limited(logical.Distinct(plan, all=True))
        return ordered.limited(plan)

    def _refuse_stream_mode(self, select: syntax.Select, source: FromClause, overs: OverCalls) -> None:
        """Refuse OVER (... ORDER BY event time) over a stream without a window: that is one result for each record."""
        if not isinstance(select.source, syntax.Named) or select.source.window is not None:
            return
        declaration = self.sources[select.source.part.text.lower()]
        if declaration.lifetimes or declaration.changes is not None:
            return
        times = {source.scope.relations[0].flat(name) for name in (declaration.time, EVENT_TIME)}
        for text in overs.texts:
            item = text.order[0] if text.order else None
            if item is None or item.descending:
                continue
            value = self.resolver.expression(item.part, source.scope, source.node.schema)
            if value is not None and column_name(value) in times:
                hint = (
                    "write a window after the stream, such as [Unbounded] or [Range 1 hour], or order by another column"
                )
                message = "OVER by event time over a stream without a window is not supported"
                self.resolver.refuse(text.part, message, hint)

    def _where(self, condition: syntax.Condition, node: Node, scope: Scope) -> Node:
        if isinstance(condition, syntax.Membership):
            return self.membership(condition, node, scope, UNKNOWN_TOO if condition.negated else "")
        noted = len(self.mistakes)
        part, node, scope = self._subqueries.inline(condition.part, node, scope)
        if len(self.mistakes) > noted:
            return node
        predicate = self.resolver.condition(replace(condition, part=part), scope, node.schema)
        return logical.Filter(node, predicate) if predicate else node

    def is_grouped(self, select: syntax.Select, inside: Sequence[Part] = ()) -> bool:
        """Return whether a select has groups. Expressions that cannot be parsed are reported later, not here.

        `inside` are the expressions inside of its window functions.
        """
        if select.group or select.having or select.group_all or select.sets is not None:
            return True
        parts = [*(item.part for item in select.items if not item.star), *inside]
        expressions = [self.resolver.try_parse(without_subqueries(part)) for part in parts]
        return any(expression is not None and expression.calls for expression in expressions)

    def _project(self, outputs: Sequence[Output], node: Node, scope: Scope) -> logical.Project | None:
        columns: list[logical.Column] = []
        for output in outputs:
            if output.sql is not None:
                value = self.resolver.bind(output.part, output.sql, node.schema)
            else:
                value = self.resolver.expression(output.part, scope, node.schema)
            columns += [logical.Column(output.name, value)] if value else []
        return logical.Project(node, tuple(columns)) if len(columns) == len(outputs) else None

    def _grouping_sets(
        self,
        select: syntax.Select,
        outputs: Sequence[Output],
        node: Node,
        scope: Scope,
        above: GroupSubqueries | None,
        overs: OverCalls,
    ) -> Node | None:
        """Return the groups of a select: one aggregate for each grouping set."""
        if select.group_all:
            parts = [output.part for output in outputs if output.sql is None]
            parsed = [self.resolver.try_parse(part) for part in parts]
            keys = tuple(part for part, known in zip(parts, parsed) if known is not None and not known.calls)
            select = replace(select, group=keys)
        if select.sets is not None and overs.texts:
            message = "a window function beside grouping sets is not supported"
            self.resolver.refuse(overs.texts[0].part, message, "put the grouped query into FROM")
            return None
        plan: Node | None = None
        for chosen in select.sets if select.sets is not None else (None,):
            side = self._aggregate(select, outputs, node, scope, above, overs, chosen)
            if side is None:
                return None
            plan = side if plan is None else logical.SetOperation("union", True, plan, side)
        return plan

    def _aggregate(
        self,
        select: syntax.Select,
        outputs: Sequence[Output],
        node: Node,
        scope: Scope,
        above: GroupSubqueries | None,
        overs: OverCalls,
        chosen: Sequence[int] | None = None,
    ) -> logical.Project | None:
        groups = Groups(self.resolver, node, scope, select.items, self._tag(select, outputs), above and above.schema)
        for part in select.group:
            groups.key(part)
        if chosen is not None:
            groups.choose([select.group[place] for place in chosen])
        groups.child = self._with_sessions(select, groups)
        groups.added = overs.resolve(groups.expression)
        if len(groups.added) < len(overs.names):
            return None
        values: list[Expression | None] = []
        for output in outputs:
            if output.sql is None:
                values.append(groups.expression(output.part))
            else:
                values.append(groups.column(output.part, output.name, output.sql))
        conditions = [groups.condition(having) for having in select.having]
        qualified = [groups.condition(plain) for plain in select.qualify]
        aggregate = groups.node()
        if not select.group and select.sets is None and not aggregate.calls and select.having and not self.mistakes:
            message = "HAVING without GROUP BY or an aggregate is not supported"
            self.resolver.refuse(select.having[0].part, message, "use WHERE")
        if any(resolved is None for resolved in (*values, *conditions, *qualified)):
            return None
        top: Node = above.join(aggregate) if above else aggregate
        for condition in conditions:
            top = logical.Filter(top, condition) if condition else top
        top = overs.above(top, [column(field.name, field.type, select.part) for field in aggregate.schema])
        for condition in qualified:
            top = logical.Filter(top, condition) if condition else top
        columns = [logical.Column(output.name, value) for output, value in zip(outputs, values) if value]
        if groups.tag is not None:
            columns.insert(0, logical.Column(groups.tag.name, column(groups.tag.name, groups.tag.type, select.part)))
        return logical.Project(top, tuple(columns))

    def _with_sessions(self, select: syntax.Select, groups: Groups) -> Node:
        """Return the plan below an aggregate. Sessions without Partition By are those of the groups, without the bounds."""
        window = select.source.window if isinstance(select.source, syntax.Named) else None
        if window is None or window.kind != "session" or window.partition:
            return groups.child
        node = groups.child
        while not isinstance(node, logical.Source):
            node = logical.children(node)[0]
        bounds = set(node.bounds)
        for key in groups.keys.values():
            if key.value.columns & bounds and not key.value.columns <= bounds:
                hint = "write the columns that a session is about: [Partition By user Session 30 minutes]"
                self.resolver.refuse(
                    Part(key.value.text, key.value.line, key.value.column),
                    "a group that mixes columns with the bounds of a session needs Partition By", hint,
                )  # fmt: skip
        keys = [key.value for key in groups.keys.values() if not key.value.columns & bounds]
        return with_session_keys(groups.child, keys)

    def _tag(self, select: syntax.Select, outputs: Sequence[Output]) -> pa.Field | None:
        """Return the column that names the window, if there are several windows."""
        window = select.source.window if isinstance(select.source, syntax.Named) else None
        if window is None or not window.several:
            return None
        for output in outputs:
            if output.name.lower() == _TAG:
                message = f'"{output.name}" is the column that names the window'
                self.resolver.refuse(output.part, message, "name this one differently with AS")
        return pa.field(_TAG, pa.int64() if window.kind == "rows" else pa.string())

    # ------------------------------------------------------------------------------------------------ sub-queries

    def membership(self, member: syntax.Membership, node: Node, scope: Scope, test: str = "") -> Node:
        """Resolve EXISTS or IN into a semi join or, if negated, an anti join.

        With a `test` (SQL behind a condition), IN selects members for which the test of the comparison holds.
        """
        query = member.query
        if isinstance(query, syntax.Select) and not self.is_grouped(query) and not _selects_rows(query):
            parts = self._correlated(member, query, node, scope)
        else:
            parts = self._uncorrelated(member, node, scope)
        if parts is None:
            return node
        right, compared, conditions = parts
        equal: list[tuple[Expression, Expression]] = []
        rest: list[Expression] = []
        for condition in conditions:
            pair = _join_keys(condition, node, right)
            if pair is not None:
                equal.append(pair)
            else:
                rest.append(condition)
        if compared is not None:
            value, member_value = compared
            both = pa.schema([*node.schema, *right.schema])
            equality = self.resolver.bind(member.part, f"({value.sql}) = ({member_value.sql})", both, boolean=True)
            if equality is None:
                return node
            sides = comparable_sides(value, member_value) if not test else None
            if sides is not None and sides[0].columns and sides[1].columns:
                equal.append(sides)
            elif test:
                rest.append(replace(equality, sql=f"(({value.sql}) = ({member_value.sql})) {test}"))
            else:
                rest.append(equality)
        return logical.Join("anti" if member.negated else "semi", node, right, tuple(equal), conjunction(rest))

    def _correlated(
        self, member: syntax.Membership, query: syntax.Select, node: Node, scope: Scope
    ) -> _MembershipJoin | None:
        """Resolve a plain sub-query. Conditions of its WHERE that name columns of the outer query become join conditions."""
        context = Context(outer=scope)
        self._refuse_several_windows(query.source)
        read = self.from_clause(query.source, query.where, context)
        if read is None:
            return None
        source, where = read
        noted = len(self.mistakes)
        inner = source.scope
        right, conditions = self.correlated_conditions(where, source, node)
        outputs = self._select_lists.outputs(query.items, inner, result=False)
        projected = self._project(outputs, right, inner)
        compared = None
        if member.value is not None and projected is not None and self._has_one_column(member, len(projected.columns)):
            value = self.resolver.expression(member.value, scope, node.schema)
            compared = (value, projected.columns[0].value) if value else None
        if len(self.mistakes) > noted:
            return None
        return right, compared, conditions

    def correlated_conditions(
        self, where: Sequence[syntax.Condition], source: FromClause, outer: Node
    ) -> tuple[Node, list[Expression]]:
        """Filter the rows of a sub-query by the conditions that name only its own columns; return them and the others."""
        right, scope = source.node, source.scope
        conditions: list[Expression] = []
        for condition in where:
            if isinstance(condition, syntax.Membership):
                right = self.membership(condition, right, scope, UNKNOWN_TOO if condition.negated else "")
                continue
            noted = len(self.mistakes)
            part, right, scope = self._subqueries.inline(condition.part, right, scope)
            if len(self.mistakes) > noted:
                continue
            both = pa.schema([*outer.schema, *right.schema])
            resolved = self.resolver.condition(replace(condition, part=part), scope, both, deep=1)
            if resolved is not None and resolved.columns <= set(right.schema.names):
                right = logical.Filter(right, resolved)
            elif resolved is not None:
                conditions.append(resolved)
        return right, conditions

    def _uncorrelated(self, member: syntax.Membership, node: Node, scope: Scope) -> _MembershipJoin | None:
        """Resolve a sub-query that cannot depend on the rows of the outer query."""
        inner = self.query(member.query, Context(hidden=HiddenScope(scope, _UNCORRELATED, _UNCORRELATED_HINT)))
        value = self.resolver.expression(member.value, scope, node.schema) if member.value else None
        if inner is None or (member.value is not None and value is None):
            return None
        prefix = Context(outer=scope).prefix("subquery")
        right = _rename(inner, [f"{prefix}.{name}" for name in inner.schema.names], member.part)
        if value is None:
            return right, None, []
        if not self._has_one_column(member, len(right.schema)):
            return None
        field = right.schema.field(0)
        return right, (value, column(field.name, field.type, member.part)), []

    def _has_one_column(self, member: syntax.Membership, columns: int) -> bool:
        if columns != 1:
            self.resolver.refuse(member.query.part, f"IN compares with one column, and this is {columns}", "select one")
        return columns == 1


_MembershipJoin = tuple[Node, tuple[Expression, Expression] | None, list[Expression]]
"""The right side of a semi or anti join, the two values that IN compares, and the other join conditions."""


@dataclass(frozen=True, slots=True)
class _UsingColumns:
    equal: tuple[tuple[Expression, Expression], ...]
    columns: tuple[MergedColumn, ...]


def _selects_rows(query: syntax.Select) -> bool:
    """Return whether rows of a select depend on each other by their order."""
    return bool(query.distinct_on) or has_overs(query) or (query.ordering is not None and query.ordering.selects)


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


def _join_keys(condition: Expression, left: Node, right: Node) -> tuple[Expression, Expression] | None:
    return join_keys(condition, set(left.schema.names), set(right.schema.names))


def _matched_by_name(left: Node, right: Node, part: Part) -> tuple[Node, Node]:
    """Return both sides with the columns of both, in the same order; a column that a side does not have is NULL there."""
    fields = {field.name.lower(): field for side in (right, left) for field in side.schema}
    order = dict.fromkeys(name.lower() for side in (left, right) for name in side.schema.names)
    sides: list[Node] = []
    for node in (left, right):
        own = {field.name.lower(): field for field in node.schema}
        columns: list[logical.Column] = []
        for name in order:
            kind = fields[name].type
            value = Expression(cast("NULL", kind), kind, frozenset(), "NULL", part.line, part.column)
            if name in own:
                value = column(own[name].name, own[name].type, part)
            columns.append(logical.Column(fields[name].name, value))
        sides.append(logical.Project(node, tuple(columns)))
    return sides[0], sides[1]


def _rename(node: Node, names: Sequence[str], part: Part, kinds: Sequence[pa.DataType] | None = None) -> Node:
    """Return the node with these names for its columns, and cast to these types if they are given."""
    types = list(kinds) if kinds is not None else node.schema.types
    if list(names) == node.schema.names and types == node.schema.types:
        return node
    if isinstance(node, logical.Project):
        values, child = [output.value for output in node.columns], node.child
    else:
        values, child = [column(field.name, field.type, part) for field in node.schema], node
    columns = [logical.Column(name, cast_to(value, kind)) for name, value, kind in zip(names, values, types)]
    return logical.Project(child, tuple(columns))
