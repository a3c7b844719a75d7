"""Column names inside expressions: quoting them, knowing an expression that is nothing but a column, renaming them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from hayase.cql.logical import Column, Expression, Node, Project
from hayase.cql.syntax import Part

__all__ = ["column", "column_name", "conjunction", "passed_columns", "quoted", "rename_columns", "select_columns"]

_QUOTED = re.compile(
    r"""(?P<skip>--[^\n]*|/\*.*?\*/|[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)"""
    r"""|(?P<dot>\.\s*)?"(?P<name>(?:[^"]|"")*)"(?P<key>\s*:(?!:))?""",
    re.DOTALL,
)
"""What a quoted name can be mistaken for: a comment, a text, a field behind a dot, a key before a colon."""


def quoted(name: str) -> str:
    """A name as SQL reads it whatever it is."""
    return '"' + name.replace('"', '""') + '"'


def column(name: str, kind: pa.DataType, like: Expression | Part | None = None) -> Expression:
    """The expression that is that column; where it stands in the query is where `like` does."""
    line, place = (like.line, like.column) if like else (1, 1)
    return Expression(quoted(name), kind, frozenset((name,)), like.text if like else name, line, place)


def column_name(expression: Expression) -> str | None:
    """The column that an expression is, if it is nothing else.

    >>> column_name(column("e.user", pa.string())), column_name(Expression('"n" + 1', pa.int64(), frozenset("n"), "n + 1"))
    ('e.user', None)
    """
    if len(expression.columns) != 1:
        return None
    (name,) = expression.columns
    sql = expression.sql.strip()
    while sql.startswith("(") and sql.endswith(")"):
        sql = sql[1:-1].strip()
    return name if sql == quoted(name) else None


def passed_columns(columns: Iterable[Column]) -> dict[str, str]:
    """Of output columns, those that only repeat a column of the child, and which."""
    found = ((each.name, column_name(each.value)) for each in columns)
    return {name: source for name, source in found if source is not None}


def rename_columns(expression: Expression, names: Mapping[str, str]) -> Expression:
    """The same expression where its columns have other names.

    >>> rename_columns(Expression('''"n" = '"n"' ''', pa.bool_(), frozenset("n"), "n = '\\"n\\"'"), {"n": "e.n"}).sql
    '"e.n" = \\'"n"\\' '
    """

    def name(match: re.Match[str]) -> str:
        found = match["name"]
        if found is None or match["dot"] is not None or match["key"] is not None:
            return match[0]
        return quoted(names.get(found.replace('""', '"'), found.replace('""', '"')))

    sides = expression.equality
    return replace(
        expression,
        sql=_QUOTED.sub(name, expression.sql),
        columns=frozenset(names.get(each, each) for each in expression.columns),
        equality=(rename_columns(sides[0], names), rename_columns(sides[1], names)) if sides else None,
    )


def conjunction(conditions: Sequence[Expression]) -> Expression | None:
    """The conjunction of some conditions; None of none."""
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return Expression(
        " AND ".join(f"({each.sql})" for each in conditions),
        pa.bool_(),
        frozenset().union(*(each.columns for each in conditions)),
        " and ".join(each.text for each in conditions),
        conditions[0].line,
        conditions[0].column,
    )


def select_columns(child: Node, names: Iterable[str]) -> Node:
    """The child with these columns, in this order, and no others."""
    wanted = list(names)
    if wanted == child.schema.names:
        return child
    return Project(child, tuple(Column(name, column(name, child.schema.field(name).type)) for name in wanted))
