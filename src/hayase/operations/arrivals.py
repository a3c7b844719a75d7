"""The records of a step as windows take them: all queues in one order, in groups, each record known by queue and offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hayase.core.keys import KeyIndex, encode, hashes, values
from hayase.core.stages import OFFSET, TIME
from hayase.operations.shelves import nothing
from hayase.operations.windows import QUEUE, WindowSpec

__all__ = ["Came", "came_in_order", "column", "groups_of", "joined", "names_of", "told_last"]


@dataclass(frozen=True, slots=True)
class Came:
    """The records of a step in order."""

    rows: pa.RecordBatch
    at: np.ndarray

    def __len__(self) -> int:
        return int(self.rows.num_rows)


def came_in_order(inputs: Sequence[pa.RecordBatch], schema: pa.Schema) -> Came:
    """The batches of all queues as one, in (time, queue, offset) order."""
    parts, places = [], []
    for number, batch in enumerate(inputs):
        if batch.num_rows:
            queue = pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)
            columns = [queue, *(batch.column(name) for name in schema.names[1:])]
            parts.append(pa.RecordBatch.from_arrays(columns, schema=schema))
            places.append(np.arange(batch.num_rows))
    if len(parts) == 1:
        return Came(parts[0], places[0])
    if not parts:
        return Came(nothing(schema), np.empty(0, np.int64))
    rows = pa.concat_batches(parts)
    order = np.lexsort((column(rows, OFFSET), column(rows, QUEUE), column(rows, TIME)))
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


_NAME = np.dtype([("queue", np.int64), ("offset", np.int64)])


def names_of(rows: pa.RecordBatch) -> np.ndarray:
    """What tells a record from all others."""
    made = np.empty(rows.num_rows, _NAME)
    made["queue"], made["offset"] = column(rows, QUEUE), column(rows, OFFSET)
    return made


def told_last(rows: pa.RecordBatch, gone: np.ndarray) -> np.ndarray:
    """One of each record that is nowhere said to be gone."""
    queue, offset = column(rows, QUEUE), column(rows, OFFSET)
    order = np.lexsort((gone, offset, queue))
    last = np.ones(len(order), np.bool_)
    last[:-1] = (queue[order][1:] != queue[order][:-1]) | (offset[order][1:] != offset[order][:-1])
    chosen = order[last]
    return chosen[~gone[chosen]]
