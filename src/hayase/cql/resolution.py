"""A query against the streams that it reads: names resolved, expressions typed, clauses as operators.

EXISTS and IN with a sub-query become semi and anti joins. A sub-query's columns are called `alias.column`, like those of
a stream; where an alias occurs again further out, the inner one gets a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from hayase.core.declarations import EVENT_TIME, LIFETIME_COLUMNS, StreamDeclaration
from hayase.core.errors import DeclarationError, suggestion
from hayase.core.expressions import common_type
from hayase.core.keys import check_key_type
from hayase.core.stages import Lookup
from hayase.cql import logical, syntax
from hayase.cql.aggregation import Groups
from hayase.cql.columns import column, conjunction
from hayase.cql.equalities import join_keys
from hayase.cql.logical import Expression, Node
from hayase.cql.query_expressions import ExpressionResolver, cast_to, comparable_sides
from hayase.cql.scopes import Context, FromClause, HiddenScope, MergedColumn, Relation, ResolvedName, Scope
from hayase.cql.select_lists import Output, SelectList
from hayase.cql.statement import Statement
from hayase.cql.syntax import Part, Plain
from hayase.cql.table_joins import TableJoins, has_duplicate_alias

__all__ = ["resolve"]

_LATERAL = "correlated sub-queries in FROM are not supported"
_LATERAL_HINT = "select the column in the sub-query, and compare it in ON or WHERE"
_UNCORRELATED = "a sub-query with GROUP BY, aggregates or set operations cannot name columns of the query around it"
_TAG = "window"
_SEVERAL_WINDOWS_HINT = (
    "write them behind the only stream of a select with aggregates: select avg(x) from s [Rows 10, 100]"
)
_UNCORRELATED_HINT = "select what is to be compared, and use IN, or join with the sub-query"


def resolve(
    statement: Statement,
    sources: Mapping[str, StreamDeclaration],
    aggregates: Mapping[str, str] | None = None,
    tables: Mapping[str, Lookup] | None = None,
) -> Node:
    """The logical plan of a query over declared streams, or DeclarationError with everything that is wrong.

    `aggregates` are a user's own, by name: "module:attribute"; `tables` are those that it may join with.

    >>> from hayase.cql.statement import parse
    >>> events = StreamDeclaration("events", "time timestamp, user_id string, amount double", time="time")
    >>> text = "select user_id, sum(amount) from events [Rows 5] where amount > 0 group by user_id"
    >>> print("\\n".join(logical.describe(resolve(parse(text), {"events": events}))))
    Project user_id = "events.user_id", sum_amount = "sum_1"
      Aggregate by events.user_id = "events.user_id": sum_1 = sum("events.amount")
        Filter "events.amount" > 0
          Source events as events [Rows 5]
    """
    resolution = _Resolution(sources, aggregates, tables, EVENT_TIME in statement.canon.lower())
    node = resolution.query(statement.query, Context(), result=True)
    if node is None or resolution.mistakes:
        found = dict.fromkeys(resolution.mistakes)
        raise DeclarationError(sorted(found, key=lambda each: (each.line or 0, each.column or 0)))
    return logical.ToStream(statement.stream, node) if statement.stream else node


class _Resolution:
    """A query on its way to a plan; None stands for what has mistakes."""

    def __init__(
        self,
        sources: Mapping[str, StreamDeclaration],
        aggregates: Mapping[str, str] | None,
        tables: Mapping[str, Lookup] | None,
        names_time: bool,
    ):
        self._names_time = names_time
        self.sources = {name.lower(): each for name, each in sources.items()}
        self.resolver = ExpressionResolver(aggregates)
        self.mistakes = self.resolver.mistakes
        self._select_lists = SelectList(self.resolver)
        self._tables = TableJoins(self.resolver, tables or {}, self._relation)

    def query(self, query: syntax.Query, context: Context, result: bool = False) -> Node | None:
        """The plan of a query; of the `result` itself some names are reserved."""
        if isinstance(query, syntax.Select):
            return self._select(query, context, result)
        return self._set_operation(query, context, result)

    # ------------------------------------------------------------------------------------------------ set operations

    def _set_operation(self, query: syntax.Combined, context: Context, result: bool) -> Node | None:
        left, right = self.query(query.left, context, result), self.query(query.right, context)
        if left is None or right is None:
            return None
        one, other = left.schema, right.schema
        if len(one) != len(other):
            message = f"{query.kind.upper()} of {len(one)} and {len(other)} columns"
            self.resolver.refuse(query.part, message, "select as many on both sides; columns are matched by position")
            return None
        kinds: list[pa.DataType] = []
        for first, second in zip(one, other):
            try:
                kinds.append(common_type(first.type, second.type))
                if (query.kind, query.all) != ("union", True):
                    check_key_type(kinds[-1])
            except DeclarationError as error:
                hint = error.mistakes[0].hint
                self.resolver.refuse(query.part, f'column "{first.name}": {error.mistakes[0].message}', hint)
        if len(kinds) != len(one):
            return None
        left, right = (_rename(each, one.names, query.part, kinds) for each in (left, right))
        return logical.SetOperation(query.kind, query.all, left, right)

    # ------------------------------------------------------------------------------------------------ relations

    def _from_clause(
        self, source: syntax.Relation, where: Sequence[syntax.Condition], context: Context
    ) -> tuple[FromClause, Sequence[syntax.Condition]] | None:
        """A FROM clause, and the conditions of WHERE that say more than which rows of tables are meant."""
        if self._tables.has_tables(source):
            return self._tables.join(source, where, context)
        found = self._relation(source, context)
        return (found, where) if found else None

    def _relation(self, relation: syntax.Relation, context: Context) -> FromClause | None:
        match relation:
            case syntax.Named():
                return self._named(relation, context)
            case syntax.Nested():
                return self._nested(relation, context)
            case syntax.Joined():
                return self._joined(relation, context)

    def _named(self, relation: syntax.Named, context: Context) -> FromClause | None:
        part = relation.part
        declaration = self.sources.get(part.text.lower())
        if declaration is None:
            hint = suggestion(part.text, [each.name for each in self.sources.values()])
            self.resolver.refuse(part, f'unknown stream "{part.text}"', hint)
            return None
        alias = relation.alias or declaration.name
        fields = _row_fields(declaration)
        names = tuple(each.name for each in fields)
        aside = [] if declaration.changes else _extra_time_fields(declaration, names, self._names_time)
        shown = Relation(alias, context.prefix(alias), names, tuple(each.name for each in aside))
        fields += aside
        window = self._window(relation.window, declaration)
        schema = pa.schema([pa.field(shown.flat(each.name), each.type) for each in fields])
        if window is None:
            return None
        source = logical.Source(declaration, shown.prefix, window, schema, part.line, part.column)
        return FromClause(source, context.scope((shown,)))

    def _window(self, window: syntax.WindowText | None, stream: StreamDeclaration) -> logical.Window | None:
        if window is None:
            return logical.Window("unbounded")
        if stream.lifetimes or stream.changes:
            hint = "its rows say themselves how long they are there; a window stands behind a stream"
            self.resolver.refuse(window.part, f'a window behind the relation "{stream.name}" is not supported', hint)
            return None
        schema = stream.arrow_schema
        spelled = {each.lower(): each for each in schema.names}
        columns: list[str] = []
        for part in window.partition:
            name = part.text[1:-1].replace('""', '"') if part.text.startswith('"') else part.text
            if name.lower() not in spelled:
                message = f'unknown column "{name}" in "{stream.name}"'
                self.resolver.refuse(part, message, suggestion(name, schema.names))
            elif self.resolver.check_key(part, schema.field(spelled[name.lower()]).type):
                columns.append(spelled[name.lower()])
        if len(columns) < len(window.partition):
            return None
        partition = tuple(dict.fromkeys(columns))
        return logical.Window(window.kind, window.length, window.slide, partition, window.several)

    def _nested(self, relation: syntax.Nested, context: Context) -> FromClause | None:
        hidden = HiddenScope(context.scope(context.beside), _LATERAL, _LATERAL_HINT)
        node = self.query(relation.query, Context(hidden=hidden))
        if node is None:
            return None
        names = tuple(node.schema.names)
        shown = Relation(relation.alias, context.prefix(relation.alias or "subquery"), names)
        flat = [shown.flat(each) for each in names]
        return FromClause(_rename(node, flat, relation.part), context.scope((shown,)))

    def _joined(self, join: syntax.Joined, context: Context) -> FromClause | None:
        self._refuse_several_windows(join.left, join.right)
        left = self._relation(join.left, context)
        beside = context.beside + (left.scope.relations if left else ())
        right = self._relation(join.right, replace(context, beside=beside))
        if left is None or right is None:
            return None
        if has_duplicate_alias(self.resolver, join, context.scope(beside), right.scope):
            return None
        merged = self._using(join, left, right)
        if len(merged.columns) < len(join.using):
            return None
        both = context.scope(left.scope.relations + right.scope.relations, left.scope.merged + right.scope.merged)
        schema = pa.schema([*left.node.schema, *right.node.schema])
        equal, rest = list(merged.equal), list[Expression]()
        for condition in join.on:
            found = self.resolver.condition(condition, both, schema) if isinstance(condition, Plain) else None
            pair = _join_keys(found, left.node, right.node) if found else None
            if pair is not None:
                equal.append(pair)
            elif found is not None and found.sql.lower() != "true":
                rest.append(found)
        node = logical.Join(join.kind, left.node, right.node, tuple(equal), conjunction(rest))
        if join.kind in ("semi", "anti"):
            return FromClause(node, left.scope)
        hidden = {flat for each in merged.columns for flat in each.hides}
        kept = tuple(each for each in both.merged if not each.hides & hidden)
        return FromClause(node, replace(both, merged=kept + merged.columns))

    def _refuse_several_windows(self, *relations: syntax.Relation) -> None:
        """Of these, none may have several windows."""
        for each in relations:
            if isinstance(each, syntax.Named) and each.window and each.window.several:
                self.resolver.refuse(
                    each.window.part, "several windows in a join are not supported", _SEVERAL_WINDOWS_HINT
                )

    def _using(self, join: syntax.Joined, left: FromClause, right: FromClause) -> _UsingColumns:
        equal: list[tuple[Expression, Expression]] = []
        columns: list[MergedColumn] = []
        for part in join.using:
            pair = [self._using_column(part, each) for each in (left, right)]
            one, other = pair[0], pair[1]
            if one is None or other is None:
                continue
            sides = comparable_sides(one, other)
            if sides is None:
                message = f'the columns "{part.text}" of both sides cannot be compared'
                self.resolver.refuse(part, message, "write ON with a cast")
                continue
            equal.append(sides)
            values = {"right": other.sql, "full": f"coalesce({one.sql}, {other.sql})"}
            columns.append(MergedColumn(one.text, values.get(join.kind, one.sql), one.columns | other.columns))
        return _UsingColumns(tuple(equal), tuple(columns))

    def _using_column(self, part: Part, side: FromClause) -> Expression | None:
        """A column of USING on one side."""
        found = replace(side.scope, outer=None).find((part.text,))
        if not isinstance(found, ResolvedName):
            self.resolver.refuse(part, found.message, found.hint)
            return None
        return self.resolver.bind(replace(part, text=found.name), found.sql, side.node.schema)

    # ------------------------------------------------------------------------------------------------ select

    def _select(self, select: syntax.Select, context: Context, result: bool) -> Node | None:
        read = self._from_clause(select.source, select.where, context)
        if read is None:
            return None
        source, where = read
        noted = len(self.mistakes)
        node = source.node
        scope = replace(source.scope, aliases=frozenset(each.alias.lower() for each in select.items if each.alias))
        for condition in where:
            node = self._where(condition, node, scope)
        outputs = self._select_lists.outputs(select.items, scope, result)
        several = select.source.window if isinstance(select.source, syntax.Named) else None
        if several is not None and several.several and not self._is_grouped(select):
            self.resolver.refuse(
                several.part, "several windows without an aggregate are not supported", _SEVERAL_WINDOWS_HINT
            )
        if self._is_grouped(select):
            found = self._aggregate(select, outputs, node, scope)
        else:
            found = self._project(outputs, node, scope)
        if found is None or len(self.mistakes) > noted:
            return None
        if select.distinct:
            for output, each in zip(outputs, found.columns):
                self.resolver.check_key(output.part, each.value.kind)
            return logical.Distinct(found)
        return found

    def _where(self, condition: syntax.Condition, node: Node, scope: Scope) -> Node:
        if isinstance(condition, syntax.Membership):
            return self._membership(condition, node, scope)
        found = self.resolver.condition(condition, scope, node.schema)
        return logical.Filter(node, found) if found else node

    def _is_grouped(self, select: syntax.Select) -> bool:
        """Whether a select has groups; what cannot be read is told later."""
        if select.group or select.having:
            return True
        noted = len(self.mistakes)
        found = [self.resolver.parse(each.part) for each in select.items if not each.star]
        del self.mistakes[noted:]
        return any(each is not None and each.calls for each in found)

    def _project(self, outputs: Sequence[Output], node: Node, scope: Scope) -> logical.Project | None:
        columns: list[logical.Column] = []
        for each in outputs:
            if each.sql is not None:
                value = self.resolver.bind(each.part, each.sql, node.schema)
            else:
                value = self.resolver.expression(each.part, scope, node.schema)
            columns += [logical.Column(each.name, value)] if value else []
        return logical.Project(node, tuple(columns)) if len(columns) == len(outputs) else None

    def _aggregate(
        self, select: syntax.Select, outputs: Sequence[Output], node: Node, scope: Scope
    ) -> logical.Project | None:
        groups = Groups(self.resolver, node, scope, select.items, self._tag(select, outputs))
        for part in select.group:
            groups.key(part)
        values: list[Expression | None] = []
        for each in outputs:
            if each.sql is None:
                values.append(groups.expression(each.part))
            else:
                values.append(groups.column(each.part, each.name, each.sql))
        conditions = [groups.condition(each) for each in select.having]
        aggregate = groups.node()
        if not select.group and not aggregate.calls and select.having and not self.mistakes:
            message = "HAVING without GROUP BY or an aggregate is not supported"
            self.resolver.refuse(select.having[0].part, message, "use WHERE")
        if any(each is None for each in (*values, *conditions)):
            return None
        top: Node = aggregate
        for condition in conditions:
            top = logical.Filter(top, condition) if condition else top
        columns = [logical.Column(each.name, value) for each, value in zip(outputs, values) if value]
        if groups.tag is not None:
            columns.insert(0, logical.Column(groups.tag.name, column(groups.tag.name, groups.tag.type, select.part)))
        return logical.Project(top, tuple(columns))

    def _tag(self, select: syntax.Select, outputs: Sequence[Output]) -> pa.Field | None:
        """The column that tells windows apart, if there are several."""
        window = select.source.window if isinstance(select.source, syntax.Named) else None
        if window is None or not window.several:
            return None
        for each in outputs:
            if each.name.lower() == _TAG:
                message = f'"{each.name}" is the column that tells the windows apart'
                self.resolver.refuse(each.part, message, "name this one differently with AS")
        return pa.field(_TAG, pa.int64() if window.kind == "rows" else pa.string())

    # ------------------------------------------------------------------------------------------------ sub-queries

    def _membership(self, member: syntax.Membership, node: Node, scope: Scope) -> Node:
        """EXISTS and IN are joins: semi joins or, negated, anti joins."""
        query = member.query
        if isinstance(query, syntax.Select) and not self._is_grouped(query):
            found = self._correlated(member, query, node, scope)
        else:
            found = self._uncorrelated(member, node, scope)
        if found is None:
            return node
        right, compared, conditions = found
        equal: list[tuple[Expression, Expression]] = []
        rest: list[Expression] = []
        for each in conditions:
            pair = _join_keys(each, node, right)
            if pair is not None:
                equal.append(pair)
            else:
                rest.append(each)
        if compared is not None:
            value, other = compared
            both = pa.schema([*node.schema, *right.schema])
            same = self.resolver.bind(member.part, f"({value.sql}) = ({other.sql})", both, boolean=True)
            if same is None:
                return node
            sides = comparable_sides(value, other) if not member.negated else None
            if sides is not None and sides[0].columns and sides[1].columns:
                equal.append(sides)
            elif member.negated:  # an unknown answer, because of a NULL, is as good as an equal value
                rest.append(replace(same, sql=f"(({value.sql}) = ({other.sql})) IS NOT FALSE"))
            else:
                rest.append(same)
        return logical.Join("anti" if member.negated else "semi", node, right, tuple(equal), conjunction(rest))

    def _correlated(
        self, member: syntax.Membership, query: syntax.Select, node: Node, scope: Scope
    ) -> _MembershipJoin | None:
        """A plain sub-query: conditions of its WHERE that name columns around it become conditions of the join."""
        context = Context(outer=scope)
        self._refuse_several_windows(query.source)
        read = self._from_clause(query.source, query.where, context)
        if read is None:
            return None
        source, where = read
        noted = len(self.mistakes)
        right, inner = source.node, source.scope
        conditions: list[Expression] = []
        for each in where:
            if isinstance(each, syntax.Membership):
                right = self._membership(each, right, inner)
                continue
            both = pa.schema([*node.schema, *right.schema])
            found = self.resolver.condition(each, inner, both, deep=1)
            if found is not None and found.columns <= set(right.schema.names):
                right = logical.Filter(right, found)
            elif found is not None:
                conditions.append(found)
        outputs = self._select_lists.outputs(query.items, inner, result=False)
        projected = self._project(outputs, right, inner)
        compared = None
        if member.value is not None and projected is not None and self._has_one_column(member, len(projected.columns)):
            value = self.resolver.expression(member.value, scope, node.schema)
            compared = (value, projected.columns[0].value) if value else None
        if len(self.mistakes) > noted:
            return None
        return right, compared, conditions

    def _uncorrelated(self, member: syntax.Membership, node: Node, scope: Scope) -> _MembershipJoin | None:
        """A sub-query that is computed for itself, whatever the rows around it."""
        inner = self.query(member.query, Context(hidden=HiddenScope(scope, _UNCORRELATED, _UNCORRELATED_HINT)))
        value = self.resolver.expression(member.value, scope, node.schema) if member.value else None
        if inner is None or (member.value is not None and value is None):
            return None
        prefix = Context(outer=scope).prefix("subquery")
        right = _rename(inner, [f"{prefix}.{each}" for each in inner.schema.names], member.part)
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
"""The right side of a semi or anti join, the two values that IN compares, and the other conditions."""


@dataclass(frozen=True, slots=True)
class _UsingColumns:
    equal: tuple[tuple[Expression, Expression], ...]
    columns: tuple[MergedColumn, ...]


def _row_fields(stream: StreamDeclaration) -> list[pa.Field]:
    """The columns of the rows themselves, without those that tell when a row of a relation is there."""
    told: set[str | None] = set()
    if stream.lifetimes:
        told |= set(LIFETIME_COLUMNS)
    elif stream.changes:
        told |= {stream.changes, stream.time, stream.id}
    elif stream.hides_time:
        told |= {stream.time}
    return [each for each in stream.arrow_schema if each.name not in told]


def _extra_time_fields(stream: StreamDeclaration, own: Sequence[str], named: bool) -> list[pa.Field]:
    """The event time of a stream, where it is none of its own columns: under the name that the log has for it, which plans
    and older queries use, and as `event_time` if the query names that. A row of a relation has the time when it appears."""
    schema = stream.arrow_schema
    found = [schema.field(stream.time)] if stream.hides_time and not stream.lifetimes else []
    taken = {each.lower() for each in (*own, *(each.name for each in found))}
    if named and EVENT_TIME not in taken:
        found.append(schema.field("valid_from" if stream.lifetimes else stream.time).with_name(EVENT_TIME))
    return found


def _join_keys(condition: Expression, left: Node, right: Node) -> tuple[Expression, Expression] | None:
    return join_keys(condition, set(left.schema.names), set(right.schema.names))


def _rename(node: Node, names: Sequence[str], part: Part, kinds: Sequence[pa.DataType] | None = None) -> Node:
    """The node with other names for its columns, and other types if they are given."""
    wanted = list(kinds) if kinds is not None else node.schema.types
    if list(names) == node.schema.names and wanted == node.schema.types:
        return node
    if isinstance(node, logical.Project):
        values, child = [each.value for each in node.columns], node.child
    else:
        values, child = [column(each.name, each.type, part) for each in node.schema], node
    columns = [logical.Column(name, cast_to(value, kind)) for name, value, kind in zip(names, values, wanted)]
    return logical.Project(child, tuple(columns))
