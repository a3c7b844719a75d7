"""Checks that an expression is a pure function of one row, in DuckDB's syntax tree (as JSON).

A batch that runs again must give the same rows, so whatever reads a clock, a random source, other rows or other tables is
refused, with its place. The columns and aggregates of the expression are collected with their places, for the caller to judge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any

from hayase.core.comparisons import takes_lambda
from hayase.core.data_classes import dataclass
from hayase.core.errors import Mistake
from hayase.core.expression_limits import unbounded_growth

__all__ = ["CLOCKS", "NOT_REPEATABLE", "Call", "Reference", "Scope", "line_and_column", "survey"]

CLOCKS = frozenset({"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"})
"""Clock functions that are written like columns."""

_REFUSED = {
    "SUBQUERY": "sub-queries are not supported in expressions",
    "WINDOW": "window functions are not supported here",
    "PARAMETER": "parameters are not supported",
    "STAR": "* inside an expression is not supported",
    "POSITIONAL_REFERENCE": "references by position are not supported",
    "DEFAULT": "DEFAULT is not an expression here",
}
_HINTS = {
    "WINDOW": "OVER is allowed in the select list, in QUALIFY and in ORDER BY; elsewhere, compute it in a sub-query",
    "SUBQUERY": "put the sub-query into FROM and join with it",
}
NOT_REPEATABLE = "a batch that runs again must give the same rows; use the columns of the record"


@dataclass(frozen=True, slots=True)
class Reference:
    """A column reference as written, with `relation.column.field` as three parts, and its start and end in the text."""

    parts: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an aggregate, and its start and end in the text. Its arguments are not analyzed."""

    function: str
    arguments: int
    distinct: bool
    filtered: bool
    ordered: bool
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Scope:
    """An expression, which begins at byte `opening` of a statement, and what `survey` collects from it.

    `functions` are the names that are called, `lambdas` the parameters of all lambdas, both in lower case; `parameters` are
    those of the lambdas around the part that is being surveyed.
    """

    sql: str
    opening: int
    volatile: frozenset[str]
    aggregates: frozenset[str]
    columns: list[Reference] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)
    lambdas: set[str] = field(default_factory=set)
    parameters: frozenset[str] = frozenset()


def line_and_column(sql: str, offset: int) -> tuple[int, int]:
    """Return the line and column, from 1, of a byte offset in `sql`; those of the beginning if it is outside.

    >>> line_and_column("a +\\n  b", 6)
    (2, 3)
    """
    encoded = sql.encode()
    before = encoded[:offset].decode(errors="ignore") if 0 <= offset <= len(encoded) else ""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def survey(node: Any, scope: Scope) -> None:
    """Collect all columns, aggregates and mistakes of a tree, before DuckDB binds it."""
    if isinstance(node, list):
        for child in node:
            survey(child, scope)
    if not isinstance(node, dict):
        return
    kind = node.get("class")
    if kind == "SUBQUERY" and _unnests_list(node):
        _refuse(node, scope, "ANY with a list is not supported", "write list_contains(list, value)")
    elif kind in _REFUSED:
        _refuse(node, scope, _REFUSED[kind], _HINTS.get(kind))
    elif kind == "COLUMN_REF":
        parts = tuple(str(name) for name in node["column_names"])
        if parts[0].lower() not in scope.parameters:
            scope.columns.append(Reference(parts, *_extent(node, scope)))
    elif kind == "FUNCTION":
        _function(node, scope)
    else:
        for value in node.values():
            survey(value, scope)


def _unnests_list(node: dict[str, Any]) -> bool:
    """Return whether a sub-query is none that was written: DuckDB reads `x = ANY(list)` as a sub-query with UNNEST."""
    selected = node["subquery"]["node"].get("select_list") or [{}]
    return selected[0].get("function_name") == "unnest" and selected[0].get("query_location_length") == 0


def _function(node: dict[str, Any], scope: Scope) -> None:
    name, count = str(node["function_name"]).lower(), len(node["arguments"])
    scope.functions.add(name)
    if name in scope.aggregates:
        ordered, filtered = bool(node["order_bys"].get("orders")), node.get("filter") is not None
        call = Call(name, count, bool(node.get("distinct")), filtered, ordered, *_extent(node, scope))
        scope.calls.append(call)
        return
    if name in scope.volatile or (name == "age" and count == 1):  # age(t) counts from today
        _refuse(node, scope, f"{name}() is not supported", NOT_REPEATABLE)
    elif name == "unnest":
        _refuse(node, scope, "unnest is not supported", "a record gives at most one row")
    for place_of, message, hint in unbounded_growth(name, node, scope.parameters):
        _refuse(place_of, scope, message, hint)
    for key, child in node.items():
        if key == "arguments" and takes_lambda(name):
            for argument in child:
                _lambda(argument.get("expression", argument), scope)
        else:
            survey(child, scope)


def _lambda(node: dict[str, Any], scope: Scope) -> None:
    """Survey an argument of a function that takes a lambda. Elsewhere `->` reads a field of JSON."""
    if node["class"] == "LAMBDA":
        inside = {name.lower() for name in _parameters(node["lhs"])}
        scope.lambdas.update(inside)
        survey(node["expr"], replace(scope, parameters=scope.parameters | inside))
    else:
        survey(node, scope)


def _refuse(node: dict[str, Any], scope: Scope, message: str, hint: str | None) -> None:
    line, column = line_and_column(scope.sql, node.get("query_location", -1) - scope.opening)
    scope.mistakes.append(Mistake(message, hint, line=line, column=column))


def _extent(node: dict[str, Any], scope: Scope) -> tuple[int, int]:
    """Return the start and end of a node in characters; DuckDB counts bytes."""
    written = scope.sql.encode()
    first = node["query_location"] - scope.opening
    start = len(written[:first].decode(errors="ignore"))
    return start, start + len(written[first : first + node["query_location_length"]].decode(errors="ignore"))


def _parameters(node: Any) -> Iterator[str]:
    """Yield the names of a lambda's parameters: one, or a row of them."""
    if node["class"] == "COLUMN_REF":
        yield str(node["column_names"][0])
    for argument in node.get("arguments", ()):
        yield from _parameters(argument["expression"])
