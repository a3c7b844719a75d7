"""The input of a step for windows: the records of all queues in one order, their groups, and the removal of duplicates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.keys import KeyIndex, encode, hashes, raw_values
from hayase.core.schemas import empty_rows
from hayase.core.stages import OFFSET, TIME
from hayase.operations.record_windows import QUEUE, WindowSpec

__all__ = ["Arrivals", "column", "distinct_records", "groups_of", "joined", "merge_arrivals"]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The records of a step in order; `at[i]` is the position of record i in the batch of its queue."""

    rows: pa.RecordBatch
    at: np.ndarray

    def __len__(self) -> int:
        return int(self.rows.num_rows)


def merge_arrivals(inputs: Sequence[pa.RecordBatch], schema: pa.Schema, by_arrival: bool = False) -> Arrivals:
    """Merge the batches of all queues into one, in (time, queue, offset) order.

    With `by_arrival` each queue keeps its own order: a record counts as late as the latest record before it in its
    queue.
    """
    parts, places, times = [], [], []
    for number, batch in enumerate(inputs):
        if batch.num_rows:
            queue = pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)
            columns = [queue, *(batch.column(name) for name in schema.names[1:])]
            parts.append(pa.RecordBatch.from_arrays(columns, schema=schema))
            places.append(np.arange(batch.num_rows))
            times.append(column(parts[-1], TIME))
    if len(parts) == 1:
        return Arrivals(parts[0], places[0])
    if not parts:
        return Arrivals(empty_rows(schema), np.empty(0, np.int64))
    rows = pa.concat_batches(parts)
    if by_arrival:
        order = np.argsort(np.concatenate([np.maximum.accumulate(queue_times) for queue_times in times]), kind="stable")
    else:
        order = np.lexsort((column(rows, OFFSET), column(rows, QUEUE), np.concatenate(times)))
    return Arrivals(rows.take(pa.array(order)), np.concatenate(places)[order])


def column(rows: pa.RecordBatch, name: str) -> np.ndarray:
    return raw_values(rows.column(name), np.int32 if name == QUEUE else np.int64)


def groups_of(spec: WindowSpec, rows: pa.RecordBatch, index: KeyIndex, insert: bool = True) -> np.ndarray:
    """Return the group number of every row; -1 for an unknown group if `insert` is false."""
    if not spec.by:
        return column(rows, QUEUE).astype(np.int64) if spec.per_queue else np.zeros(rows.num_rows, np.int64)
    encoded = encode([rows.column(name) for name in ((QUEUE, *spec.by) if spec.per_queue else spec.by)])
    return index.slots(encoded, hashes(encoded), insert)


def joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    filled = [batch for batch in batches if batch.num_rows]
    return filled[0] if len(filled) == 1 else pa.concat_batches(filled) if filled else empty_rows(schema)


def distinct_records(rows: pa.RecordBatch) -> np.ndarray:
    """Return the positions of distinct records. A replayed record has another time and counts as another record."""
    queue, offset, time = (column(rows, name) for name in (QUEUE, OFFSET, TIME))
    order = np.lexsort((time, offset, queue))
    new = np.ones(len(order), np.bool_)
    new[1:] = np.any([values_[order][1:] != values_[order][:-1] for values_ in (queue, offset, time)], axis=0)
    return order[new]
