"""Conditions in the WHERE of a statement that tell which rows of a relation it needs.

A condition is taken if it compares a column with a constant or a parameter, stands alone or between ANDs, and the relations of its
FROM are joined in a way that does not depend on rows which the condition leaves out (not ASOF or POSITIONAL). The statement itself
still applies it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from hayase.core.data_classes import dataclass
from hayase.relations.bounds import Bounds, Value

__all__ = ["Condition", "Parameter", "Parameters", "bounds_of", "conditions_by_table", "constant", "parts_of"]

Parameters = Sequence[Value | None]
_SIDES = {"", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "OUTER"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that comes with each run of a statement; the first one has the number 1."""

    number: int

    def value(self, parameters: Parameters) -> Value | None:
        """Return the value; None if it is NULL or missing."""
        return parameters[self.number - 1] if 0 < self.number <= len(parameters) else None


@dataclass(frozen=True, slots=True)
class Condition:
    """A column, by its name in lower case, has one of these values, or is at least, or at most, the first of them."""

    column: str
    bound: Literal["among", "least", "most"]
    values: tuple[Value | Parameter, ...]


def bounds_of(conditions: Sequence[Condition], parameters: Parameters) -> Bounds:
    """Return what conditions say with these parameters. One with NULL says nothing.

    >>> bounds_of([Condition("a", "among", (Parameter(1), 2)), Condition("b", "least", (Parameter(2),))], [1, None]).among
    {'a': (1, 2)}
    """
    among: dict[str, tuple[Value, ...]] = {}
    least: dict[str, Value] = {}
    most: dict[str, Value] = {}
    for condition in conditions:
        values = [value.value(parameters) if isinstance(value, Parameter) else value for value in condition.values]
        known = tuple(value for value in values if value is not None)
        if len(known) < len(values):
            continue
        if condition.bound == "among":
            among.setdefault(condition.column, known)
        else:
            (least if condition.bound == "least" else most).setdefault(condition.column, known[0])
    return Bounds(among, least, most)


def conditions_by_table(scopes: Sequence[Scope]) -> dict[int, tuple[Condition, ...]]:
    """Return the conditions on each relation, by the id of its node."""
    found: dict[int, tuple[Condition, ...]] = {}
    for scope in scopes:
        select = scope.expression
        if not isinstance(select, exp.Select) or not select.args.get("where") or not _joins_plainly(select):
            continue
        parts = list(parts_of(select.args["where"].this))
        for name, source in scope.sources.items():
            if isinstance(source, exp.Table) and not _is_altered(source):
                found[id(source)] = tuple(_conditions(parts, name, is_only=len(scope.sources) == 1))
    return found


def _joins_plainly(select: exp.Select) -> bool:
    return all(
        not join.method and join.side.upper() in _SIDES and join.kind.upper() in _SIDES
        for join in select.args.get("joins") or ()
    ) and not select.args.get("laterals")


def _is_altered(table: exp.Table) -> bool:
    """Whether the columns of a relation are renamed, or only some of its rows are drawn."""
    alias = table.args.get("alias")
    return bool((alias and alias.columns) or table.args.get("sample") or table.args.get("pivots"))


def parts_of(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions between the ANDs of a condition."""
    if isinstance(condition, exp.And):
        yield from parts_of(condition.left)
        yield from parts_of(condition.right)
    elif isinstance(condition, exp.Paren):
        yield from parts_of(condition.this)
    else:
        yield condition


def _conditions(parts: Sequence[exp.Expr], name: str, is_only: bool) -> Iterator[Condition]:
    """Yield what the parts of a WHERE say about the relation that is known by a name."""

    def column(node: exp.Expr | None) -> str | None:
        if not isinstance(node, exp.Column):
            return None
        is_own = node.table.lower() == name.lower() if node.table else is_only
        return node.name.lower() if is_own else None

    for part in parts:
        if isinstance(part, exp.In) and (of := column(part.this)) and not part.args.get("query"):
            values = [constant(each) for each in part.expressions]
            known = tuple(value for value in values if value is not None)
            if known and len(known) == len(values):
                yield Condition(of, "among", known)
        elif isinstance(part, exp.Between) and (of := column(part.this)) and not part.args.get("symmetric"):
            low, high = constant(part.args["low"]), constant(part.args["high"])
            if low is not None and high is not None:
                yield Condition(of, "least", (low,))
                yield Condition(of, "most", (high,))
        elif isinstance(part, exp.EQ | exp.GT | exp.GTE | exp.LT | exp.LTE):
            left, right = part.left, part.right
            of, is_swapped = column(left), False
            if of is None:
                of, is_swapped = column(right), True
            value = constant(left if is_swapped else right)
            if of is None or value is None:
                continue
            if isinstance(part, exp.EQ):
                yield Condition(of, "among", (value,))
            else:
                yield Condition(of, "least" if isinstance(part, exp.GT | exp.GTE) != is_swapped else "most", (value,))


def constant(node: exp.Expr | None) -> Value | Parameter | None:
    """Return a constant or a parameter; None if it is something else, or NULL."""
    if isinstance(node, exp.Cast) and node.to.is_type(*exp.DataType.TEMPORAL_TYPES, *exp.DataType.INTEGER_TYPES):
        node = node.this
    if isinstance(node, exp.Neg):
        value = constant(node.this)
        return -value if isinstance(value, int | float) else None
    if isinstance(node, exp.Literal):
        if node.is_string:
            return str(node.this)
        text = str(node.this)
        return int(text) if text.isdigit() else None
    if isinstance(node, exp.Parameter | exp.Placeholder) and str(node.name).isdigit():
        return Parameter(int(node.name))
    return None
