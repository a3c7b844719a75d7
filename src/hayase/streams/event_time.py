"""The event times of records, as int64 microseconds, whatever the type and unit of the time column."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import SchemaMismatch
from hayase.core.times import BEGINNING, END

__all__ = ["event_times"]


def event_times(rows: Any, declaration: StreamDeclaration) -> npt.NDArray[np.int64]:
    """Return the event times of a record batch or table in microseconds; without a copy if the column holds
    microseconds already. SchemaMismatch for a null, or a time out of range.

    >>> stream = StreamDeclaration("s", "at bigint", time="at", time_unit="ms")
    >>> event_times(pa.record_batch({"at": pa.array([2, -1])}), stream).tolist()
    [2000, -1000]
    """
    column = rows.column(declaration.time)
    if column.null_count:
        raise SchemaMismatch(
            f'null in time column "{declaration.time}" of stream "{declaration.name}"; every record needs a time'
        )
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    times: npt.NDArray[np.int64] = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    scale = declaration.time_scale
    if scale == 1 or not len(times):
        return times
    if int(times.min()) * scale <= BEGINNING or int(times.max()) * scale >= END:
        raise SchemaMismatch(
            f'a time in column "{declaration.time}" of stream "{declaration.name}" lies beyond what microseconds in 64 '
            f"bits can say; refuse such records before the append"
        )
    return times * scale
