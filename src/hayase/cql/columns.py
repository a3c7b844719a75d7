"""Columns in expressions and plans: quoting, renaming and casting them, and recognizing expressions that are only a column."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from hayase.core.expressions import cast
from hayase.cql.logical import Column, Expression, Node, Project
from hayase.cql.syntax import Part

__all__ = [
    "cast_to", "column", "column_name", "conjunction", "identity_columns", "passed_columns", "quoted", "rename_columns",
    "select_columns", "with_names",
]  # fmt: skip

_QUOTED = re.compile(
    r"""(?P<skip>--[^\n]*|/\*.*?\*/|[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)"""
    r"""|(?P<dot>\.\s*)?"(?P<name>(?:[^"]|"")*)"(?P<key>\s*:(?!:))?""",
    re.DOTALL,
)
"""A quoted name, and what looks like one: in a comment or a string, a field after a dot, a key before a colon."""


def quoted(name: str) -> str:
    """Return a name in double quotes, as SQL reads it."""
    return '"' + name.replace('"', '""') + '"'


def column(name: str, kind: pa.DataType, like: Expression | Part | None = None) -> Expression:
    """Return the expression that is only that column; its text and place in the query are those of `like`."""
    line, place = (like.line, like.column) if like else (1, 1)
    return Expression(quoted(name), kind, frozenset((name,)), like.text if like else name, line, place)


def identity_columns(schema: pa.Schema) -> tuple[Column, ...]:
    """Return the columns of a projection that passes on all columns."""
    return tuple(Column(field.name, column(field.name, field.type)) for field in schema)


def column_name(expression: Expression) -> str | None:
    """Return the column that an expression only repeats; None if it computes something.

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
    """Map the output columns that only repeat a column of the child to that column."""
    pairs = ((output.name, column_name(output.value)) for output in columns)
    return {name: source for name, source in pairs if source is not None}


def rename_columns(expression: Expression, names: Mapping[str, str]) -> Expression:
    """Return the expression with its columns renamed.

    >>> rename_columns(Expression('''"n" = '"n"' ''', pa.bool_(), frozenset("n"), "n = '\\"n\\"'"), {"n": "e.n"}).sql
    '"e.n" = \\'"n"\\' '
    """

    def name(match: re.Match[str]) -> str:
        quoted_name = match["name"]
        if quoted_name is None or match["dot"] is not None or match["key"] is not None:
            return match[0]
        return quoted(names.get(quoted_name.replace('""', '"'), quoted_name.replace('""', '"')))

    sides = expression.equality
    return replace(
        expression,
        sql=_QUOTED.sub(name, expression.sql),
        columns=frozenset(names.get(column, column) for column in expression.columns),
        equality=(rename_columns(sides[0], names), rename_columns(sides[1], names)) if sides else None,
    )


def conjunction(conditions: Sequence[Expression]) -> Expression | None:
    """Return the conjunction of these conditions; None if there are none."""
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return Expression(
        " AND ".join(f"({condition.sql})" for condition in conditions),
        pa.bool_(),
        frozenset().union(*(condition.columns for condition in conditions)),
        " and ".join(condition.text for condition in conditions),
        conditions[0].line,
        conditions[0].column,
    )


def select_columns(child: Node, names: Iterable[str]) -> Node:
    """Return the child with exactly these columns, in this order."""
    columns = list(names)
    if columns == child.schema.names:
        return child
    return Project(child, tuple(Column(name, column(name, child.schema.field(name).type)) for name in columns))


def cast_to(expression: Expression, kind: pa.DataType) -> Expression:
    """Return the expression cast to a type."""
    if expression.kind == kind:
        return expression
    return replace(expression, sql=cast(expression.sql, kind), kind=kind, equality=None)


def with_names(node: Node, names: Sequence[str], part: Part, kinds: Sequence[pa.DataType] | None = None) -> Node:
    """Return the node with these names for its columns, and cast to these types if they are given."""
    types = list(kinds) if kinds is not None else node.schema.types
    if list(names) == node.schema.names and types == node.schema.types:
        return node
    if isinstance(node, Project):
        values, child = [output.value for output in node.columns], node.child
    else:
        values, child = [column(field.name, field.type, part) for field in node.schema], node
    columns = [Column(name, cast_to(value, kind)) for name, value, kind in zip(names, values, types)]
    return Project(child, tuple(columns))
