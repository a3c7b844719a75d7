"""What the records of a stream of lifetimes say: which row was valid from when to when, as arrays of microseconds.

A row appears with a record whose `changed_at` is its `valid_from`. If its end is not known then, a second record with
the same `row_id` tells it later. `fold` puts the two together; everything that is asked of results is a filter behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hayase.core.declarations import LIFETIME_COLUMNS, StreamDeclaration
from hayase.core.times import END

__all__ = ["OPEN", "Integers", "Lifespans", "fold", "from_micros", "lifespans", "own_columns", "to_micros"]

Integers = npt.NDArray[np.int64]

OPEN = END
"""The end of a row that is valid and whose end is not known."""

ROW_ID, VALID_FROM, VALID_TO, CHANGED_AT = LIFETIME_COLUMNS


@dataclass(frozen=True, slots=True)
class Lifespans:
    """The columns of lifetimes, each as one array."""

    row_id: Integers
    start: Integers
    end: Integers
    changed_at: Integers

    @property
    def appears(self) -> npt.NDArray[np.bool_]:
        """Where a record tells of a row that appears; the others tell of an end."""
        return self.changed_at == self.start


def lifespans(rows: Any, declaration: StreamDeclaration) -> Lifespans:
    """The lifetimes in a record batch or a table; no copy of what is one batch of microseconds."""
    scale = declaration.time_scale
    return Lifespans(
        _whole(rows.column(ROW_ID)).to_numpy(zero_copy_only=False).astype(np.int64, copy=False),
        *(to_micros(rows.column(name), scale) for name in (VALID_FROM, VALID_TO, CHANGED_AT)),
    )


def fold(told: Lifespans) -> tuple[Integers, Integers]:
    """One position for each row that is told of, in the order of the records, and the row's end.

    A row whose first record was removed by retention is taken from its second one, which tells all there is to know.

    >>> told = Lifespans(np.array([1, 2, 1]), np.array([10, 11, 10]), np.array([OPEN, 15, 12]), np.array([10, 11, 12]))
    >>> at, end = fold(told)
    >>> at.tolist(), end.tolist()
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
    place = np.searchsorted(ids, told.row_id[closings], sorter=order)
    place = order[np.minimum(place, len(order) - 1)] if len(order) else place
    known = ids[place] == told.row_id[closings] if len(order) else np.zeros(len(closings), np.bool_)
    end[opened[place[known]]] = told.end[closings[known]]
    kept[closings[~known]] = True
    at = np.flatnonzero(kept)
    return at, end[at]


def own_columns(declaration: StreamDeclaration) -> list[str]:
    """The columns of the rows themselves: those of the query, without what tells of lifetimes and of event time."""
    names: list[str] = declaration.arrow_schema.names
    if declaration.lifetimes:
        return names[: -len(LIFETIME_COLUMNS)]
    return [each for each in names if each != declaration.time] if declaration.hides_time else names


def to_micros(column: Any, scale: int) -> Integers:
    """A column of times as microseconds; a null is OPEN."""
    whole = _whole(column)
    if pa.types.is_timestamp(whole.type):
        whole = whole.view(pa.int64())
    nulls = whole.is_null().to_numpy(zero_copy_only=False) if whole.null_count else None
    times: Integers = whole.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    if scale != 1:
        times = times * scale
    return times if nulls is None else np.where(nulls, OPEN, times)


def from_micros(times: Integers, kind: pa.DataType, scale: int) -> pa.Array:
    """Microseconds as a column of times; OPEN is null."""
    column = pa.array(times // scale if scale != 1 else times, pa.int64(), mask=times == OPEN)
    return column.view(kind) if pa.types.is_timestamp(kind) else column.cast(kind)


def _whole(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
