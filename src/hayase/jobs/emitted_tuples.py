"""Tuples as functions give them: with or without the group that they are for; and what some calls gave, in columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from hayase.core.declarations import TableDeclaration
from hayase.core.errors import nearest
from hayase.jobs.tuples import is_atom
from hayase.streams.record_text import shown

__all__ = ["Emission", "Emitted", "Target", "is_pair", "kind_of", "no_tuple", "to", "unfit_for_table"]


class Emitted(NamedTuple):
    """A tuple for a group that is named: a key and a value, or a dict alone."""

    group: str
    given: Any


def to(group: str, *given: Any) -> Emitted:
    """A tuple for the group of that name: a key and a value, or a dict where tuples are typed. For a table the value is
    {column: parameter}, by the columns' default methods.

    >>> to("alerts", "10.0.0.1", 7).given
    ('10.0.0.1', 7)
    """
    return Emitted(group, given[0] if len(given) == 1 else given)


@dataclass(frozen=True, slots=True)
class Target:
    """Where tuples of a step may go: a group, by its name, or the table of that name. `back` if that begins a new round."""

    name: str
    table: TableDeclaration | None = None
    back: bool = False


@dataclass(frozen=True, slots=True)
class Emission:
    """What some calls gave: columns of the step's shape, for each row the call it is of and the number of its target, and
    for calls that failed the reason."""

    columns: list[pa.Array]
    call: np.ndarray
    target: np.ndarray
    failed: dict[int, str] = field(default_factory=dict)

    def without_failed(self) -> Emission:
        """Of calls that failed nothing stands."""
        if not self.failed:
            return self
        kept = np.flatnonzero(~np.isin(self.call, list(self.failed)))
        if len(kept) == len(self.call):
            return self
        columns = [each.take(pa.array(kept)) for each in self.columns]
        return Emission(columns, self.call[kept], self.target[kept], self.failed)


def is_pair(item: Any) -> bool:
    """Whether something is a plain tuple, a key and a value."""
    return isinstance(item, tuple) and len(item) == 2


def no_tuple(item: Any) -> str:
    """Why something is no plain tuple."""
    if isinstance(item, tuple):
        return f"it gave a tuple of {len(item)} parts, {shown(item)}; give (key, value)"
    return f"it gave {kind_of(item)}; give a tuple (key, value), a list of such, or None"


def kind_of(value: Any) -> str:
    """A value as a message shows it, with its type."""
    return f"{shown(value)} (a {type(value).__name__})"


def unfit_for_table(item: Any, table: TableDeclaration | None) -> str | None:
    """Why a tuple does not update a table."""
    assert table is not None
    if not is_pair(item):
        return no_tuple(item)
    key, value = item
    parts = key if isinstance(key, tuple | list) else (key,)
    if len(parts) != len(table.key) or not is_atom(parts):
        expected = " and ".join(table.key)
        return (
            f'the key {shown(key)} is none of table "{table.name}"; give {expected}, each a text, a number or a boolean'
        )
    if not isinstance(value, dict):
        return f'it gave {kind_of(value)} for table "{table.name}"; give {{column: parameter}}'
    strange = [each for each in value if each not in table.column_names]
    if strange:
        return f'table "{table.name}" has no column {shown(strange[0])}{nearest(str(strange[0]), table.column_names)}'
    return None
