"""Tuples that functions emit, with or without the name of their group, and the emissions of many calls as columns."""

from __future__ import annotations

from dataclasses import field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import TableDeclaration
from hayase.core.errors import nearest
from hayase.core.reasons import Reason
from hayase.jobs.tuples import is_atom
from hayase.streams.record_text import shown

__all__ = ["Emission", "Emitted", "Target", "is_pair", "kind_of", "to", "unfit_for_table", "why_no_tuple"]


class Emitted(NamedTuple):
    """A tuple for a named group: a key and a value, or a dict."""

    group: str
    given: Any


def to(group: str, *given: Any) -> Emitted:
    """Return a tuple for the group of that name: a key and a value, or a dict if the tuples are typed. For a table the value is
    {column: parameter}; the columns' default methods are used.

    >>> to("alerts", "10.0.0.1", 7).given
    ('10.0.0.1', 7)
    """
    return Emitted(group, given[0] if len(given) == 1 else given)


@dataclass(frozen=True, slots=True)
class Target:
    """Where tuples of a step may go: a group, by its name, or the table of that name. With `back` they begin a new round."""

    name: str
    table: TableDeclaration | None = None
    back: bool = False


@dataclass(frozen=True, slots=True)
class Emission:
    """The tuples of some calls: columns of the step's shape, for each row the number of its call and of its target; and the
    reasons of calls that failed."""

    columns: list[pa.Array]
    call: np.ndarray
    target: np.ndarray
    failed: dict[int, Reason] = field(default_factory=dict)

    def without_failed(self) -> Emission:
        """Return the emission without the tuples of calls that failed."""
        if not self.failed:
            return self
        kept = np.flatnonzero(~np.isin(self.call, list(self.failed)))
        if len(kept) == len(self.call):
            return self
        columns = [column.take(pa.array(kept)) for column in self.columns]
        return Emission(columns, self.call[kept], self.target[kept], self.failed)


def is_pair(item: Any) -> bool:
    """Whether an object is a plain tuple: a key and a value."""
    return isinstance(item, tuple) and len(item) == 2


def why_no_tuple(item: Any) -> str:
    """Return why an object is not a plain tuple."""
    if isinstance(item, tuple):
        return f"it gave a tuple of {len(item)} parts, {shown(item)}; give (key, value)"
    return f"it gave {kind_of(item)}; give a tuple (key, value), a list of such, or None"


def kind_of(value: Any) -> str:
    """Return a value with its type for a message."""
    return f"{shown(value)} (a {type(value).__name__})"


def unfit_for_table(item: Any, table: TableDeclaration | None) -> str | None:
    """Return why a tuple is not an update of a table; None if it is one."""
    assert table is not None
    if not is_pair(item):
        return why_no_tuple(item)
    key, value = item
    parts = key if isinstance(key, tuple | list) else (key,)
    if len(parts) != len(table.key) or not is_atom(parts):
        expected = " and ".join(table.key)
        return (
            f'the key {shown(key)} is none of table "{table.name}"; give {expected}, each a text, a number or a boolean'
        )
    if not isinstance(value, dict):
        return f'it gave {kind_of(value)} for table "{table.name}"; give {{column: parameter}}'
    unknown = [name for name in value if name not in table.column_names]
    if unknown:
        return f'table "{table.name}" has no column {shown(unknown[0])}{nearest(str(unknown[0]), table.column_names)}'
    return None
