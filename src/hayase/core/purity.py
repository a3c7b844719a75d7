"""What an expression may be: a pure function of one row. The rules, over DuckDB's own syntax tree (as JSON).

A batch that is run again must give the same rows, so what looks at a clock, a random source, other rows or other tables
is refused by name and place. Column names are resolved here too, without regard to case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hayase.core.errors import Mistake, nearest

__all__ = ["CLOCKS", "Scope", "mistakes", "place"]

CLOCKS = frozenset({"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"})
"""Clocks that are written like columns."""

_KINDS = {
    "SUBQUERY": "sub-queries are not supported in expressions",
    "WINDOW": "window functions are not supported",
    "PARAMETER": "parameters are not supported",
    "STAR": "* inside an expression is not supported",
    "POSITIONAL_REFERENCE": "references by position are not supported",
    "DEFAULT": "DEFAULT is not an expression here",
}
_AGAIN = "a batch that runs again must give the same rows; use the columns of the record"


@dataclass(frozen=True, slots=True)
class Scope:
    """Where an expression stands: its text, which begins at byte `opening` of a statement, and the names it may use.

    `columns` maps names in lower case to how the stream spells them; those that occur are added to `used`.
    """

    sql: str
    opening: int
    columns: Mapping[str, str]
    relation: str
    volatile: frozenset[str]
    aggregates: frozenset[str]
    used: set[str] = field(default_factory=set)
    parameters: frozenset[str] = frozenset()


def place(sql: str, inside: int) -> tuple[int, int]:
    """Line and column, from 1, of a byte of `sql`; the beginning, if it is none of them.

    >>> place("a +\\n  b", 6)
    (2, 3)
    """
    written = sql.encode()
    before = written[:inside].decode(errors="ignore") if 0 <= inside <= len(written) else ""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def mistakes(node: Any, scope: Scope) -> Iterator[Mistake]:
    """Everything in a tree that is refused before DuckDB binds it."""
    if isinstance(node, list):
        for each in node:
            yield from mistakes(each, scope)
    if not isinstance(node, dict):
        return
    kind = node.get("class")
    line, column = place(scope.sql, node.get("query_location", -1) - scope.opening)

    def mistake(message: str, hint: str | None = None) -> Mistake:
        return Mistake(message, hint, line=line, column=column)

    if kind in _KINDS:
        yield mistake(_KINDS[kind])
    elif kind == "COLUMN_REF":
        yield from _column(node["column_names"], scope, mistake)
    elif kind == "LAMBDA":
        inside = {each.lower() for each in _parameters(node["lhs"])}
        yield from mistakes(node["expr"], replace(scope, parameters=scope.parameters | inside))
    else:
        if kind == "FUNCTION":
            yield from _function(str(node["function_name"]).lower(), len(node["arguments"]), scope, mistake)
        for each in node.values():
            yield from mistakes(each, scope)


def _column(parts: Sequence[str], scope: Scope, mistake: Callable[..., Mistake]) -> Iterator[Mistake]:
    first = parts[0].lower()
    if first in scope.parameters:
        return
    qualified = len(parts) > 1 and first == scope.relation.lower() and parts[1].lower() in scope.columns
    name = parts[1].lower() if qualified else first
    if name in scope.columns:
        scope.used.add(scope.columns[name])
    elif name in CLOCKS:
        yield mistake(f"{name} is not supported", _AGAIN)
    else:
        written = parts[1] if len(parts) > 1 and first == scope.relation.lower() else ".".join(parts)
        hint = nearest(written, scope.columns.values()).removeprefix("; ")
        yield mistake(f'unknown column "{written}"', hint or None)


def _function(name: str, arguments: int, scope: Scope, mistake: Callable[..., Mistake]) -> Iterator[Mistake]:
    if name in scope.volatile or (name == "age" and arguments == 1):  # age(t) counts from today
        yield mistake(f"{name}() is not supported", _AGAIN)
    elif name in scope.aggregates:
        hint = "count(*), count(x) and sum(x) can stand by themselves in the select list"
        yield mistake(f"the aggregate {name} is not supported here", hint)
    elif name == "unnest":
        yield mistake("unnest is not supported", "a record gives at most one row")


def _parameters(node: Any) -> Iterator[str]:
    """The names of a lambda's parameters: one, or a row of them."""
    if node["class"] == "COLUMN_REF":
        yield str(node["column_names"][0])
    for each in node.get("arguments", ()):
        yield from _parameters(each["expression"])
