"""Says where in the text of a SQL statement a mistake is, and which name was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from hayase.core.errors import HayaseError, Mistake, UnknownName, nearest

__all__ = ["placed", "statement_mistake"]

_COLUMN = re.compile(r'Referenced column "(.+?)" not found|does not have a column named "(.+?)"')
_RELATION = re.compile(r'Referenced table "(.+?)" not found')
_NEAR = re.compile(r'at or near "(.+?)"')
_TOKEN = re.compile(r" but got <Token .*>")


def statement_mistake(error: HayaseError, sql: str, columns: Iterable[str] = ()) -> Mistake:
    """Return an error of a statement as a mistake, with line and column as far as they are known. `columns` are the columns of the
    relations that the statement reads.

    >>> from hayase.core.errors import HayaseError
    >>> error = HayaseError('Binder Error: Referenced column "prise" not found in FROM clause!')
    >>> print(statement_mistake(error, "select prise from trades", ["price", "time"]))
    1:8: unknown column "prise"; did you mean "price"?
    """
    position: int | None = getattr(error, "position", None)
    message, hint = _TOKEN.sub("", error.problem or str(error)), error.remedy
    if isinstance(error, UnknownName):
        position = position or _position(sql, error.name.rpartition(".")[2])
    elif column := _COLUMN.search(message):
        name = column[1] or column[2]
        message, hint = f'unknown column "{name}"', nearest(name, tuple(dict.fromkeys(columns))).lstrip("; ")
        position = position or _position(sql, name)
    elif relation := _RELATION.search(message):
        message, hint = f'"{relation[1]}" is not in the FROM clause', "name the relation there, or its alias here"
        position = position or _position(sql, relation[1])
    elif near := _NEAR.search(message):
        position = position or _position(sql, near[1])
    if position is None:
        return Mistake(message, hint or None)
    before = sql[: position - 1]
    return Mistake(message, hint or None, line=before.count("\n") + 1, column=position - (before.rfind("\n") + 1))


def _position(sql: str, name: str) -> int | None:
    """Return where a name stands in a statement, counted from 1; None if it is not there."""
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        tokens = sqlglot.tokenize(sql, read="duckdb")
    except SqlglotError:
        return None
    return next((token.start + 1 for token in tokens if token.text.lower() == name.lower()), None)


def placed(mistake: Mistake, text: str, start: int) -> Mistake:
    """Return a mistake of a statement that begins at `start` in a text, with its place in that text."""
    if mistake.line is None or mistake.column is None or not start:
        return mistake
    before = text[:start]
    column = mistake.column + (start - (before.rfind("\n") + 1) if mistake.line == 1 else 0)
    return replace(mistake, line=mistake.line + before.count("\n"), column=column)
