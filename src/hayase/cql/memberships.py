"""EXISTS and IN with a sub-query: semi joins and, if they are negated, anti joins.

Conditions of the sub-query that name columns of the outer query become conditions of the join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from hayase.cql import logical, syntax
from hayase.cql.columns import column, conjunction, with_names
from hayase.cql.equalities import node_join_keys
from hayase.cql.from_clauses import refuse_several_windows
from hayase.cql.logical import Expression, Node
from hayase.cql.over_calls import has_overs
from hayase.cql.query_expressions import comparable_sides
from hayase.cql.scopes import Context, FromClause, HiddenScope, Scope
from hayase.cql.select_lists import SelectList
from hayase.cql.subquery_expressions import UNKNOWN_TOO, Resolution

__all__ = ["Memberships"]

_UNCORRELATED = (
    "a sub-query with GROUP BY, aggregates, set operations, OVER, LIMIT or DISTINCT ON "
    "cannot name columns of the query around it"
)
_UNCORRELATED_HINT = "select what is to be compared, and use IN, or join with the sub-query"

_MembershipJoin = tuple[Node, tuple[Expression, Expression] | None, list[Expression]]
"""The right side of a semi or anti join, the two values that IN compares, and the other join conditions."""


class Memberships:
    """Resolves EXISTS and IN. Mistakes go to the resolver of the expressions."""

    def __init__(self, resolution: Resolution):
        self._resolution, self._resolver = resolution, resolution.resolver
        self._select_lists = SelectList(resolution.resolver)

    def join(self, member: syntax.Membership, node: Node, scope: Scope, test: str = "") -> Node:
        """Resolve EXISTS or IN into a semi join or, if negated, an anti join.

        With a `test` (SQL behind a condition), IN selects members for which the test of the comparison holds.
        """
        query = member.query
        if isinstance(query, syntax.Select) and not self._resolution.is_grouped(query) and not _selects_rows(query):
            parts = self._correlated(member, query, node, scope)
        else:
            parts = self._uncorrelated(member, node, scope)
        if parts is None:
            return node
        right, compared, conditions = parts
        equal: list[tuple[Expression, Expression]] = []
        rest: list[Expression] = []
        for condition in conditions:
            pair = node_join_keys(condition, node, right)
            if pair is not None:
                equal.append(pair)
            else:
                rest.append(condition)
        if compared is not None:
            value, member_value = compared
            both = pa.schema([*node.schema, *right.schema])
            equality = self._resolver.bind(member.part, f"({value.sql}) = ({member_value.sql})", both, boolean=True)
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
        refuse_several_windows(self._resolver, query.source)
        read = self._resolution.from_clause(query.source, query.where, context)
        if read is None:
            return None
        source, where = read
        noted = len(self._resolver.mistakes)
        inner = source.scope
        right, conditions = self.correlated_conditions(where, source, node)
        outputs = self._select_lists.outputs(query.items, inner, result=False)
        projected = self._select_lists.project(outputs, right, inner)
        compared = None
        if member.value is not None and projected is not None and self._has_one_column(member, len(projected.columns)):
            value = self._resolver.expression(member.value, scope, node.schema)
            compared = (value, projected.columns[0].value) if value else None
        if len(self._resolver.mistakes) > noted:
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
                right = self.join(condition, right, scope, UNKNOWN_TOO if condition.negated else "")
                continue
            noted = len(self._resolver.mistakes)
            part, right, scope = self._resolution.inline(condition.part, right, scope)
            if len(self._resolver.mistakes) > noted:
                continue
            both = pa.schema([*outer.schema, *right.schema])
            resolved = self._resolver.condition(replace(condition, part=part), scope, both, deep=1)
            if resolved is not None and resolved.columns <= set(right.schema.names):
                right = logical.Filter(right, resolved)
            elif resolved is not None:
                conditions.append(resolved)
        return right, conditions

    def _uncorrelated(self, member: syntax.Membership, node: Node, scope: Scope) -> _MembershipJoin | None:
        """Resolve a sub-query that cannot depend on the rows of the outer query."""
        inner = self._resolution.query(
            member.query, Context(hidden=HiddenScope(scope, _UNCORRELATED, _UNCORRELATED_HINT))
        )
        value = self._resolver.expression(member.value, scope, node.schema) if member.value else None
        if inner is None or (member.value is not None and value is None):
            return None
        prefix = Context(outer=scope).prefix("subquery")
        right = with_names(inner, [f"{prefix}.{name}" for name in inner.schema.names], member.part)
        if value is None:
            return right, None, []
        if not self._has_one_column(member, len(right.schema)):
            return None
        field = right.schema.field(0)
        return right, (value, column(field.name, field.type, member.part)), []

    def _has_one_column(self, member: syntax.Membership, columns: int) -> bool:
        if columns != 1:
            self._resolver.refuse(
                member.query.part, f"IN compares with one column, and this is {columns}", "select one"
            )
        return columns == 1


def _selects_rows(query: syntax.Select) -> bool:
    """Return whether rows of a select depend on each other by their order."""
    return bool(query.distinct_on) or has_overs(query) or (query.ordering is not None and query.ordering.selects)
