"""The records of a step as windows take them: all queues in one order, in groups, each record known by queue and offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hayase.core.keys import KeyIndex, encode, hashes, values
from hayase.core.stages import OFFSET, TIME
from hayase.operations.record_windows import QUEUE, WindowSpec
from hayase.operations.row_buffer import nothing

__all__ = ["Came", "came_in_order", "column", "groups_of", "joined", "told_once"]


@dataclass(frozen=True, slots=True)
class Came:
    """The records of a step in order."""

    rows: pa.RecordBatch
    at: np.ndarray

    def __len__(self) -> int:
        return int(self.rows.num_rows)


def came_in_order(inputs: Sequence[pa.RecordBatch], schema: pa.Schema, by_arrival: bool = False) -> Came:
    """The batches of all queues as one, in (time, queue, offset) order.

    By arrival each queue keeps its own order: a record is as late as the latest before it.
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
        return Came(parts[0], places[0])
    if not parts:
        return Came(nothing(schema), np.empty(0, np.int64))
    rows = pa.concat_batches(parts)
    if by_arrival:
        order = np.argsort(np.concatenate([np.maximum.accumulate(each) for each in times]), kind="stable")
    else:
        order = np.lexsort((column(rows, OFFSET), column(rows, QUEUE), np.concatenate(times)))
    return Came(rows.take(pa.array(order)), np.concatenate(places)[order])


def column(rows: pa.RecordBatch, name: str) -> np.ndarray:
    return values(rows.column(name), np.int32 if name == QUEUE else np.int64)


def groups_of(spec: WindowSpec, rows: pa.RecordBatch, index: KeyIndex, insert: bool = True) -> np.ndarray:
    """The number of every row's group, -1 if it is not known and not to be inserted."""
    if not spec.by:
        return column(rows, QUEUE).astype(np.int64) if spec.per_queue else np.zeros(rows.num_rows, np.int64)
    encoded = encode([rows.column(name) for name in ((QUEUE, *spec.by) if spec.per_queue else spec.by)])
    return index.slots(encoded, hashes(encoded), insert)


def joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    some = [each for each in batches if each.num_rows]
    return some[0] if len(some) == 1 else pa.concat_batches(some) if some else nothing(schema)


def told_once(rows: pa.RecordBatch) -> np.ndarray:
    """One of each record. A record that is given again comes at another time."""
    queue, offset, time = (column(rows, name) for name in (QUEUE, OFFSET, TIME))
    order = np.lexsort((time, offset, queue))
    new = np.ones(len(order), np.bool_)
    new[1:] = np.any([each[order][1:] != each[order][:-1] for each in (queue, offset, time)], axis=0)
    return order[new]
