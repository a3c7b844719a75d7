"""The lifetimes in the records of a query's output, as arrays of microseconds: which row is valid from when until when.

A row appears with a record whose `changed_at` equals its `valid_from`. If its end is not known yet, a second record with
the same `row_id` supplies it later. `fold` merges the two; every question about results is a filter over its output.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import LIFETIME_COLUMNS, StreamDeclaration
from hayase.core.times import END

__all__ = ["OPEN", "Integers", "Lifespans", "fold", "from_micros", "lifespans", "own_columns", "to_micros"]

Integers = npt.NDArray[np.int64]

OPEN = END
"""The end of a row whose end is not known yet."""

ROW_ID, VALID_FROM, VALID_TO, CHANGED_AT = LIFETIME_COLUMNS


@dataclass(frozen=True, slots=True)
class Lifespans:
    """The lifetime columns of records, as one array each."""

    row_id: Integers
    start: Integers
    end: Integers
    changed_at: Integers

    @property
    def appears(self) -> npt.NDArray[np.bool_]:
        """Which records announce a new row; the others supply the end of an earlier one."""
        return self.changed_at == self.start


def lifespans(rows: Any, declaration: StreamDeclaration) -> Lifespans:
    """Return the lifetimes in a record batch or a table, without a copy if it is one batch of microseconds."""
    scale = declaration.time_scale
    return Lifespans(
        _whole(rows.column(ROW_ID)).to_numpy(zero_copy_only=False).astype(np.int64, copy=False),
        *(to_micros(rows.column(name), scale) for name in (VALID_FROM, VALID_TO, CHANGED_AT)),
    )


def fold(told: Lifespans) -> tuple[Integers, Integers]:
    """Return one position for each row, in the order of the records, and the ends of these rows.

    A row whose first record was removed by retention is represented by its second record, which is complete.

    >>> records = Lifespans(np.array([1, 2, 1]), np.array([10, 11, 10]), np.array([OPEN, 15, 12]), np.array([10, 11, 12]))
    >>> positions, end = fold(records)
    >>> positions.tolist(), end.tolist()
    ([0, 1], [12, 15])
    """
    appears = told.appears
    closings = np.flatnonzero(~appears)
    if not len(closings):
        return np.arange(len(appears)), told.end
    opened = np.flatnonzero(appears & (told.end == OPEN))
    end = told.end.copy()
    kept = appears.copy()
    ids = told.row_id[opened]
    order = np.argsort(ids, kind="stable")
    matches = np.searchsorted(ids, told.row_id[closings], sorter=order)
    matches = order[np.minimum(matches, len(order) - 1)] if len(order) else matches
    is_known = ids[matches] == told.row_id[closings] if len(order) else np.zeros(len(closings), np.bool_)
    end[opened[matches[is_known]]] = told.end[closings[is_known]]
    kept[closings[~is_known]] = True
    positions = np.flatnonzero(kept)
    return positions, end[positions]


def own_columns(declaration: StreamDeclaration) -> list[str]:
    """Return the columns of the query itself, without the lifetime columns and a hidden event time."""
    names: list[str] = declaration.arrow_schema.names
    if declaration.lifetimes:
        return names[: -len(LIFETIME_COLUMNS)]
    return [name for name in names if name != declaration.time] if declaration.hides_time else names


def to_micros(column: Any, scale: int) -> Integers:
    """Convert a column of times to microseconds; null becomes OPEN."""
    whole = _whole(column)
    if pa.types.is_timestamp(whole.type):
        whole = whole.view(pa.int64())
    nulls = whole.is_null().to_numpy(zero_copy_only=False) if whole.null_count else None
    times: Integers = whole.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    if scale != 1:
        times = times * scale
    return times if nulls is None else np.where(nulls, OPEN, times)


def from_micros(times: Integers, kind: pa.DataType, scale: int) -> pa.Array:
    """Convert microseconds to a column of times of type `kind`; OPEN becomes null."""
    column = pa.array(times // scale if scale != 1 else times, pa.int64(), mask=times == OPEN)
    return column.view(kind) if pa.types.is_timestamp(kind) else column.cast(kind)


def _whole(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
