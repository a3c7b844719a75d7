"""Sub-queries inside expressions: their values become columns, by joins below the expression (decorrelation).

- A scalar sub-query is an aggregate with one row, or with one row for each value of the columns by which it is correlated; the
  rows of the outer query are joined with it. One that gives no row is NULL. One that gives several rows is NULL too, and the
  row is reported: use an aggregate to say which is meant.
- EXISTS and IN are a column that is true for the rows of a semi join and false for those of an anti join; IN is NULL for a row
  that is in neither because of a comparison with NULL.

In the text of the expression, the name of the column takes the place of the sub-query. It is padded, so that places in the
text, which mistakes name, stay what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Protocol

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.cql import syntax
from hayase.cql.aggregation import Groups
from hayase.cql.columns import column, identity_columns, quoted, rename_columns
from hayase.cql.equalities import join_keys
from hayase.cql.logical import (
    Aggregate,
    AggregateCall,
    Column,
    Expression,
    Filter,
    Join,
    Node,
    Project,
    SetOperation,
    Unnest,
)
from hayase.cql.query_expressions import ExpressionResolver
from hayase.cql.scopes import SUBQUERY, Context, FromClause, HiddenScope, Relation, Scope
from hayase.cql.syntax import Part, Select, Subquery

__all__ = [
    "UNKNOWN_TOO",
    "GroupSubqueries",
    "Resolution",
    "SubqueryExpressions",
    "has_subqueries",
    "is_list",
    "without_subqueries",
]

UNKNOWN_TOO = "IS NOT FALSE"
"""NOT IN excludes a row also if a comparison with NULL is unknown."""
_ZERO_OVER_NOTHING = ("count", "approx_count_distinct", "count_if", "regr_count", "entropy")
"""The aggregates that are 0 over no rows, where others are NULL."""
_SEVERAL = "a scalar sub-query gives more than one row: aggregate them, with max(...) for example"
_UNCORRELATED = "a sub-query with GROUP BY, DISTINCT or set operations cannot name columns of the query around it"
_UNCORRELATED_HINT = "select what is to be compared, and join with the sub-query in FROM"
_IN_FROM = "put the grouped query into FROM, and the sub-query into the WHERE around it"


class Resolution(Protocol):
    """What sub-queries need of the resolution of their query (`hayase.cql.resolution`)."""

    resolver: ExpressionResolver

    def query(self, query: syntax.Query, context: Context, result: bool = False) -> Node | None: ...

    def from_clause(
        self, source: syntax.Relation, where: Sequence[syntax.Condition], context: Context
    ) -> tuple[FromClause, Sequence[syntax.Condition]] | None: ...

    def correlated_conditions(
        self, where: Sequence[syntax.Condition], source: FromClause, outer: Node
    ) -> tuple[Node, list[Expression]]: ...

    def membership(self, member: syntax.Membership, node: Node, scope: Scope, test: str = "") -> Node: ...

    def is_grouped(self, select: Select) -> bool: ...

    def inline(self, part: Part, node: Node, scope: Scope) -> tuple[Part, Node, Scope]: ...


@dataclass(frozen=True, slots=True)
class GroupSubqueries:
    """The scalar sub-queries of a grouped select list and HAVING: relations of one row each, with their columns."""

    relations: tuple[Node, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns of all relations."""
        return pa.schema([field for relation in self.relations for field in relation.schema])

    def join(self, groups: Node) -> Node:
        """Return the groups with the values of the sub-queries."""
        for relation in self.relations:
            groups = Join("left", groups, relation, (), None)
        return groups


class SubqueryExpressions:
    """Replaces the sub-queries of expressions by columns. Mistakes go to the resolver."""

    def __init__(self, resolution: Resolution) -> None:
        self._resolution, self._resolver = resolution, resolution.resolver
        self._numbers = count(1)

    def inline(self, part: Part, node: Node, scope: Scope) -> tuple[Part, Node, Scope]:
        """Return an expression without sub-queries, and the plan and scope that have their values as columns."""
        for subquery in reversed(part.subqueries):
            name = f"{SUBQUERY}{next(self._numbers)}"
            with_value = self._value(subquery, node, scope, f"{SUBQUERY}.{name}")
            if with_value is not None:
                node = with_value
                scope = _with_column(scope, name)
            part = _with_name(part, subquery, name)
        return replace(part, subqueries=()), node, scope

    def inline_items(self, select: Select, node: Node, scope: Scope) -> tuple[Select, Node, Scope]:
        """Replace the sub-queries of a select list."""
        items: list[syntax.Item] = []
        for item in select.items:
            part, node, scope = self.inline(item.part, node, scope)
            items.append(replace(item, part=part))
        return replace(select, items=tuple(items)), node, scope

    def inline_grouped(self, select: Select, node: Node, scope: Scope) -> tuple[Select, Node, Scope, GroupSubqueries]:
        """Replace the sub-queries of a grouped select list and HAVING: inside aggregates, below the groups; else, above."""
        relations: list[Node] = []
        parts: list[Part] = []
        for part in (*(item.part for item in select.items), *(having.part for having in select.having)):
            named = [(subquery, f"{SUBQUERY}{next(self._numbers)}") for subquery in reversed(part.subqueries)]
            for subquery, name in named:
                part = _with_name(part, subquery, name)
            for subquery, name in named:
                inside = self._is_inside_aggregate(part, name)
                if subquery.kind == "unnest" or (subquery.kind != "scalar" and not inside):
                    what = {"exists": "EXISTS", "unnest": "unnest"}.get(subquery.kind, "IN with a sub-query")
                    self._resolver.refuse(
                        subquery.part, f"{what} beside GROUP BY or an aggregate is not supported", _IN_FROM
                    )
                elif inside:
                    node = self._value(subquery, node, scope, f"{SUBQUERY}.{name}") or node
                    scope = _with_column(scope, name)
                elif (relation := self._one_row(subquery, scope, f"{SUBQUERY}.{name}")) is not None:
                    relations.append(relation)
            parts.append(replace(part, subqueries=()))
        items = tuple(replace(item, part=part) for item, part in zip(select.items, parts))
        having = tuple(replace(plain, part=part) for plain, part in zip(select.having, parts[len(items) :]))
        return replace(select, items=items, having=having), node, scope, GroupSubqueries(tuple(relations))

    def _is_inside_aggregate(self, part: Part, name: str) -> bool:
        parsed = self._resolver.try_parse(part)
        return parsed is not None and any(name in part.text[call.start : call.end] for call in parsed.calls)

    def _value(self, subquery: Subquery, node: Node, scope: Scope, name: str) -> Node | None:
        """Return the rows with the value of a sub-query as the column `name`."""
        if subquery.query is None:
            return self._elements(subquery, node, scope, name)
        return (self._scalar if subquery.kind == "scalar" else self._mark)(subquery, subquery.query, node, scope, name)

    def _elements(self, subquery: Subquery, node: Node, scope: Scope, name: str) -> Node | None:
        """Return the rows once for every element of a list."""
        if isinstance(node, Unnest):
            self._resolver.refuse(
                subquery.part, "a second unnest is not supported", "unnest one after the other, in FROM"
            )
            return None
        assert subquery.value is not None
        value = self._resolver.expression(subquery.value, scope, node.schema)
        if value is None or not is_list(self._resolver, subquery.value, value):
            return None
        return Unnest(node, value, name)

    # ------------------------------------------------------------------------------------------------ EXISTS and IN

    def _mark(self, subquery: Subquery, query: syntax.Query, node: Node, scope: Scope, name: str) -> Node | None:
        """Return the rows with a column that says whether the sub-query has a row for them, or a member."""
        noted = len(self._resolver.mistakes)
        member = syntax.Membership(subquery.part, False, subquery.value, query)
        absent = replace(member, negated=True)
        join = self._resolution.membership
        parts = [("true", join(member, node, scope)), ("false", join(absent, node, scope, UNKNOWN_TOO))]
        if subquery.kind == "in":
            parts.append(("CAST(NULL AS BOOLEAN)", join(absent, join(member, node, scope, "IS NULL"), scope)))
        if len(self._resolver.mistakes) > noted:
            return None
        marked: Node | None = None
        for sql, rows in parts:
            value = Expression(
                sql, pa.bool_(), frozenset(), subquery.part.text, subquery.part.line, subquery.part.column
            )
            side = Project(rows, (*identity_columns(rows.schema), Column(name, value)))
            marked = side if marked is None else SetOperation("union", True, marked, side)
        return marked

    # ------------------------------------------------------------------------------------------------ scalar sub-queries

    def _scalar(self, subquery: Subquery, query: syntax.Query, node: Node, scope: Scope, name: str) -> Node | None:
        """Return the rows with the value of a scalar sub-query."""
        noted = len(self._resolver.mistakes)
        if not isinstance(query, Select) or query.group or query.distinct:
            relation = self._one_row(subquery, scope, name)
            return Join("left", node, relation, (), None) if relation is not None else None
        groups = self._decorrelated(subquery, query, node, scope, name)
        if groups is None or len(self._resolver.mistakes) > noted:
            return None
        aggregate, value, keys = groups
        joined: Node = Join("left", node, aggregate, tuple(keys), None)
        if keys:
            names = {call.name for call in _calls(aggregate) if call.function in _ZERO_OVER_NOTHING}
            columns = [
                Column(field.name, replace(column(field.name, field.type), sql=f"coalesce({quoted(field.name)}, 0)"))
                if field.name in names
                else Column(field.name, column(field.name, field.type))
                for field in joined.schema
            ]
            joined = Project(joined, tuple(columns))
        return Project(joined, (*identity_columns(node.schema), Column(name, value)))

    def _one_row(self, subquery: Subquery, scope: Scope, name: str) -> Node | None:
        """Return a scalar sub-query that does not depend on the rows of the outer query, as a relation of one row."""
        query = subquery.query
        assert query is not None
        hidden = HiddenScope(scope, _UNCORRELATED, _UNCORRELATED_HINT)
        plan = self._resolution.query(query, Context(hidden=hidden))
        if plan is None or not self._has_one_column(subquery, len(plan.schema)):
            return None
        field = plan.schema.field(0)
        if isinstance(query, Select) and self._resolution.is_grouped(query) and not query.group and not query.having:
            return Project(plan, (Column(name, column(field.name, field.type, subquery.part)),))
        call = _single_value(column(field.name, field.type, subquery.part), name, subquery.part)
        return Aggregate(plan, (), (call,))

    def _decorrelated(
        self, subquery: Subquery, query: Select, node: Node, scope: Scope, name: str
    ) -> tuple[Node, Expression, list[tuple[Expression, Expression]]] | None:
        """Return the sub-query grouped by the columns that it compares with outer ones, its value, and these comparisons."""
        read = self._resolution.from_clause(query.source, query.where, Context(outer=scope))
        if read is None:
            return None
        source, where = read
        rows, conditions = self._resolution.correlated_conditions(where, source, node)
        keys: list[tuple[Expression, Column]] = []
        for condition in conditions:
            pair = join_keys(condition, set(node.schema.names), set(rows.schema.names))
            if pair is None:
                place = Part(condition.text, condition.line, condition.column)
                message = "a scalar sub-query is compared with the query around it by equality only"
                self._resolver.refuse(place, message, "write inner = outer, or join with the sub-query in FROM")
                return None
            keys.append((pair[0], Column(f"{name}.key{len(keys)}", pair[1])))
        if not self._has_one_column(subquery, len(query.items) if not any(item.star for item in query.items) else 2):
            return None
        groups = Groups(self._resolver, rows, source.scope, query.items)
        if self._resolution.is_grouped(query):
            value = groups.expression(query.items[0].part)
            having = [groups.condition(plain) for plain in query.having]
            calls = groups.node().calls
        else:
            plain = self._resolver.expression(query.items[0].part, source.scope, rows.schema)
            having = []
            calls = (_single_value(plain, "value", subquery.part),) if plain is not None else ()
            value = column("value", calls[0].kind, subquery.part) if calls else None
        if value is None or None in having:
            return None
        if having and keys:
            self._resolver.refuse(
                query.having[0].part, "HAVING in a correlated sub-query is not supported", _UNCORRELATED_HINT
            )
            return None
        names = {call.name: f"{name}.{call.name}" for call in calls}
        plan: Node = Aggregate(
            rows, tuple(key for _, key in keys), tuple(replace(call, name=names[call.name]) for call in calls)
        )
        for filtered in having:
            plan = Filter(plan, rename_columns(filtered, names)) if filtered else plan
        pairs = [(outer, column(key.name, key.value.kind, key.value)) for outer, key in keys]
        return plan, rename_columns(value, names), pairs

    def _has_one_column(self, subquery: Subquery, columns: int) -> bool:
        if columns != 1:
            self._resolver.refuse(subquery.part, "a scalar sub-query selects one column", "select one")
        return columns == 1


def _calls(node: Node) -> tuple[AggregateCall, ...]:
    while isinstance(node, Filter):
        node = node.child
    assert isinstance(node, Aggregate)
    return node.calls


def _single_value(value: Expression, name: str, part: Part) -> AggregateCall:
    """Return the call that gives the only value of a bag, NULL over none, and fails over several."""
    template = f"CASE WHEN count(*) > 1 THEN error('{_SEVERAL}') ELSE any_value({{0}}) END"
    return AggregateCall(
        name, "single_value", None, False, value.kind, part.text, None, None, part.line, part.column, template, (value,)
    )


def _with_column(scope: Scope, name: str) -> Scope:
    """Return the scope in which an expression can name the value of a sub-query."""
    return replace(scope, relations=(*scope.relations, Relation(None, SUBQUERY, (), (name,))))


def is_list(resolver: ExpressionResolver, part: Part, value: Expression) -> bool:
    """Return whether a value is a list; note a mistake if not."""
    if not pa.types.is_list(value.kind):
        hint = f"for an array in json write unnest({part.text}::json[])" if pa.types.is_string(value.kind) else None
        resolver.refuse(part, f"unnest takes a list, and this is a {value.kind}", hint)
    return bool(pa.types.is_list(value.kind))


def has_subqueries(select: Select) -> bool:
    """Return whether an expression of a select without groups has a sub-query."""
    written = (*select.where, *(condition for join in syntax.joins(select.source) for condition in join.on))
    conditions = (condition.part for condition in written if isinstance(condition, syntax.Plain))
    return any(part.subqueries for part in (*conditions, *(item.part for item in select.items)))


def without_subqueries(part: Part) -> Part:
    """Return an expression with names in the places of its sub-queries, so that it can be parsed."""
    for subquery in reversed(part.subqueries):
        part = _with_name(part, subquery, SUBQUERY)
    return replace(part, subqueries=())


def _with_name(part: Part, subquery: Subquery, name: str) -> Part:
    """Return the text with a name in the place of a sub-query; lines and columns of what follows stay."""
    written = part.text[subquery.start : subquery.end]
    words = f"NOT {quoted(name)}" if subquery.negated else quoted(name)
    blank = "".join(character if character == "\n" else " " for character in written[len(words) :])
    text = part.text[: subquery.start] + words + blank + part.text[subquery.end :]
    start, end = subquery.start, subquery.end
    kept = (span for span in part.inner if span[1] <= start or span[0] >= end or (span[0] <= start and end <= span[1]))
    inner = tuple(kept) if len(text) == len(part.text) else ()
    return replace(part, text=text, inner=inner)
