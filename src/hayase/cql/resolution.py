"""Resolution of a parsed query into a logical plan: names are resolved, expressions typed, clauses become operators.

Set operations, select lists and groups are resolved here; FROM clauses, EXISTS and IN, and sub-queries in expressions in
`from_clauses`, `memberships` and `subquery_expressions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import EVENT_TIME, StreamDeclaration
from hayase.core.errors import DeclarationError, by_place
from hayase.core.expressions import cast, common_type
from hayase.core.keys import check_key_type, is_key_type
from hayase.core.stages import Lookup
from hayase.cql import logical, syntax
from hayase.cql.aggregation import Groups
from hayase.cql.bounded_leaves import with_session_keys
from hayase.cql.columns import column, quoted, with_names
from hayase.cql.from_clauses import SEVERAL_WINDOWS_HINT, FromClauses
from hayase.cql.function_calls import FunctionCalls
from hayase.cql.logical import Expression, Node
from hayase.cql.memberships import Memberships
from hayase.cql.nested_streams import NestedStreams, as_stream
from hayase.cql.over_calls import OverCalls
from hayase.cql.query_expressions import ExpressionResolver
from hayase.cql.record_streams import is_stream, reads_without_window
from hayase.cql.row_order import OrderedOutputs
from hayase.cql.running_calls import RunningCalls
from hayase.cql.scopes import Context, MergedColumn, Scope
from hayase.cql.select_lists import Output, SelectList
from hayase.cql.statement import Statement
from hayase.cql.subquery_expressions import (
    UNKNOWN_TOO,
    GroupSubqueries,
    SubqueryExpressions,
    has_subqueries,
    without_subqueries,
)
from hayase.cql.syntax import Part

__all__ = ["resolve"]

_TAG = "window"


def resolve(
    statement: Statement,
    sources: Mapping[str, StreamDeclaration],
    aggregates: Mapping[str, str] | None = None,
    tables: Mapping[str, Lookup] | None = None,
    calls: FunctionCalls | None = None,
    name: str = "query",
) -> Node:
    """Return the logical plan of a query over declared streams. Raise DeclarationError with all mistakes in it.

    `aggregates` maps the names of user-defined aggregates to "module:attribute"; `tables` are those that the query may join;
    `calls` has the user's functions. `name` is that of the query, from which streams inside of it have theirs.

    >>> from hayase.cql.statement import parse
    >>> events = StreamDeclaration("events", "time timestamp, user_id string, amount double", time="time")
    >>> text = "select user_id, sum(amount) from events [Rows 5] where amount > 0 group by user_id"
    >>> print("\\n".join(logical.describe(resolve(parse(text), {"events": events}))))
    Project user_id = "events.user_id", sum_amount = "sum_1"
      Aggregate by events.user_id = "events.user_id": sum_1 = sum("events.amount")
        Filter "events.amount" > 0
          Source events as events [Rows 5]
    """
    resolution = _Resolution(statement, sources, aggregates, tables, calls, name)
    node = resolution.query(statement.query, Context(), result=True)
    if node is None or resolution.mistakes:
        mistakes = dict.fromkeys(resolution.mistakes)
        raise DeclarationError(sorted(mistakes, key=by_place))
    if statement.stream is None and is_stream(node):
        return as_stream(node)
    return logical.ToStream(statement.stream, node) if statement.stream else node


class _Resolution:
    """Builds the plan of one query. Methods note mistakes and return None for a part that has some."""

    def __init__(
        self,
        statement: Statement,
        sources: Mapping[str, StreamDeclaration],
        aggregates: Mapping[str, str] | None,
        tables: Mapping[str, Lookup] | None,
        calls: FunctionCalls | None,
        name: str,
    ):
        self.sources = {name.lower(): stream for name, stream in sources.items()}
        self.resolver = ExpressionResolver(aggregates, calls)
        self.mistakes = self.resolver.mistakes
        names_time = EVENT_TIME in statement.canon.lower()
        relations = tuple(syntax.named_relations(statement.query))
        streams = NestedStreams(self.resolver, name)
        clauses = FromClauses(
            self.resolver, self.sources, tables or {}, self.query, self._where, names_time, relations, streams
        )
        memberships = Memberships(self)
        self._subqueries = SubqueryExpressions(self)
        self._select_lists = SelectList(self.resolver)
        self.from_clause, self.inline = clauses.resolve, self._subqueries.inline
        self.membership, self.correlated_conditions = memberships.join, memberships.correlated_conditions

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
        left, right = (with_names(side, left_schema.names, query.part, kinds) for side in (left, right))
        combined = logical.SetOperation(query.kind, query.all, left, right)
        outputs = [Output(name, query.part) for name in left_schema.names]
        ordered = OrderedOutputs(self.resolver, query.ordering, (), outputs, hidden=False)
        return ordered.limited(combined)

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
        window = syntax.window_of(select.source)
        if window is not None and window.several and not self.is_grouped(select):
            self.resolver.refuse(
                window.part, "several windows without an aggregate are not supported", SEVERAL_WINDOWS_HINT
            )
        if self.is_grouped(select, overs.arguments):
            plan = self._grouping_sets(_Groupable(select, outputs, node, scope, above, overs))
        else:
            computed = self._over(select, node, source.scope, overs, columns)
            if computed is None:
                return None
            node = computed
            for plain in select.qualify:
                node = self._where(plain, node, scope)
            plan = self._select_lists.project(outputs, node, scope)
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

    def _over(
        self, select: syntax.Select, node: Node, scope: Scope, overs: OverCalls, columns: Sequence[str]
    ) -> Node | None:
        """Return the plan of a select without groups with its window functions; `columns` are the SQL of its FROM's columns."""

        def express(part: Part) -> Expression | None:
            return self.resolver.expression(part, scope, node.schema)

        running = RunningCalls(self.resolver, list(zip(overs.names, overs.texts)), node, express)
        if reads_without_window(select.source) and running.applies:
            return running.above(node) if len(running.resolve()) == len(overs.names) else None
        if len(overs.resolve(express)) < len(overs.names):
            return None
        bound = [self.resolver.bind(select.part, sql, node.schema) for sql in columns if overs.names]
        return overs.above(node, [value for value in bound if value])

    def _where(self, condition: syntax.Condition, node: Node, scope: Scope) -> Node:
        if isinstance(condition, syntax.Membership):
            return self.membership(condition, node, scope, UNKNOWN_TOO if condition.negated else "")
        noted = len(self.mistakes)
        part, node, scope = self.inline(condition.part, node, scope)
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

    def _grouping_sets(self, source: _Groupable) -> Node | None:
        """Return the groups of a select: one aggregate for each grouping set."""
        select, overs = source.select, source.overs
        if select.group_all:
            parts = [output.part for output in source.outputs if output.sql is None]
            parsed = [self.resolver.try_parse(part) for part in parts]
            keys = tuple(part for part, known in zip(parts, parsed) if known is not None and not known.calls)
            select = replace(select, group=keys)
        if select.sets is not None and overs.texts:
            message = "a window function beside grouping sets is not supported"
            self.resolver.refuse(overs.texts[0].part, message, "put the grouped query into FROM")
            return None
        plan: Node | None = None
        for chosen in select.sets if select.sets is not None else (None,):
            side = self._aggregate(replace(source, select=select), chosen)
            if side is None:
                return None
            plan = side if plan is None else logical.SetOperation("union", True, plan, side)
        return plan

    def _aggregate(self, source: _Groupable, chosen: Sequence[int] | None) -> logical.Project | None:
        """Return the groups by the keys of GROUP BY, or by the `chosen` ones of them."""
        select, outputs, overs, above = source.select, source.outputs, source.overs, source.above
        tag = self._tag(select, outputs)
        groups = Groups(self.resolver, source.node, source.scope, select.items, tag, above and above.schema)
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
        window = syntax.window_of(select.source)
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
        window = syntax.window_of(select.source)
        if window is None or not window.several:
            return None
        for output in outputs:
            if output.name.lower() == _TAG:
                message = f'"{output.name}" is the column that names the window'
                self.resolver.refuse(output.part, message, "name this one differently with AS")
        return pa.field(_TAG, pa.int64() if window.kind == "rows" else pa.string())


@dataclass(frozen=True, slots=True)
class _Groupable:
    """A select with groups: its output columns, the plan and the names below the groups, its sub-queries and window functions."""

    select: syntax.Select
    outputs: Sequence[Output]
    node: Node
    scope: Scope
    above: GroupSubqueries | None
    overs: OverCalls


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
