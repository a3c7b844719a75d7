"""Declaration of tables in Python: columns are given as types, such as `Counter()`, and stored by the names of the types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from hayase.core.declarations import TableDeclaration
from hayase.core.errors import DeclarationError, Mistake, suggestion
from hayase.tables import TYPES, ColumnType

__all__ = ["Column", "declared_table"]

Column: TypeAlias = ColumnType[Any] | type[ColumnType[Any]] | str
"""A column type: an instance, the class, or its name."""


def declared_table(
    name: str, key: str | Sequence[str] | None, columns: Mapping[str, Column], fold_after: int, horizon: int
) -> TableDeclaration:
    """Return the declaration of a table; DeclarationError has all mistakes.

    >>> from hayase.tables import Counter
    >>> declared_table("purchases", ["country", "user_id"], {"total": Counter()}, 0, 0).columns
    (('total', 'Counter'),)
    """
    mistakes: list[Mistake] = []
    types: list[tuple[str, str]] = []
    for column, column_type in columns.items():
        kind = _type_name(column_type)
        if kind not in TYPES:
            message = f'column "{column}" of table "{name}" has {_shown(column_type)}, which is not a column type'
            hint = suggestion(kind, TYPES) if kind else "give one like hy.Counter()"
            mistakes.append(Mistake(message, hint))
        types.append((column, kind))
    parts = () if key is None else (key,) if isinstance(key, str) else tuple(key)
    try:
        declared = TableDeclaration(name, parts, tuple(types), fold_after, horizon)
    except DeclarationError as error:
        raise DeclarationError([*mistakes, *error.mistakes]) from error
    if mistakes:
        raise DeclarationError(mistakes)
    return declared


def _type_name(column_type: object) -> str:
    """Return the name of a column type; for an object that is none, an empty text."""
    if isinstance(column_type, str):
        return column_type
    kind = column_type if isinstance(column_type, type) else type(column_type)
    return kind.__name__ if TYPES.get(kind.__name__) is kind else ""


def _shown(column_type: object) -> str:
    if isinstance(column_type, ColumnType):
        return f"an object of another {type(column_type).__name__}"
    text = column_type.__name__ if isinstance(column_type, type) else repr(column_type)
    return text if len(text) <= 60 else text[:57] + "..."
