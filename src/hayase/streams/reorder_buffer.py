"""The reorder buffer: records that arrived before the clock has passed them, held until they can be released in order.

A kernel sees its input in (time, offset) order and only up to the clock. Held records are state like any other: `added`
of a batch goes into a state segment, and `catch_up` restores the buffer from these segments. Which records were
released follows from the clock alone, so a release writes nothing. A release of more than `row_buffer.MOST_BYTES` is a
table of several batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.schemas import empty_rows
from hayase.core.stages import OFFSET, TIME
from hayase.streams import row_buffer
from hayase.streams.row_buffer import RowBuffer, sort_order

__all__ = ["Ordered", "ReorderBuffer", "rows_at", "rows_between"]

Ordered: TypeAlias = pa.RecordBatch | pa.Table
"""Records in order: one batch or, if they exceed `row_buffer.MOST_BYTES`, a table of several."""


class ReorderBuffer:
    """The records of one input and bucket that are later than the clock."""

    def __init__(self, schema: pa.Schema):
        self._none = empty_rows(schema)
        self._rows = RowBuffer(schema, OFFSET)  # by time
        self._seen = -1  # the greatest offset seen: a state segment may repeat known records

    def __len__(self) -> int:
        return len(self._rows)

    def catch_up(self, segments: Sequence[pa.RecordBatch], left: int) -> None:
        """Take in the state segments that other workers wrote, and drop all records with times up to the clock `left`."""
        self._rows.take_up_to(left)
        known = self._seen
        for rows in segments:
            offsets = _offsets(rows)
            held = _in_order([rows.filter(pa.array((offsets > known) & (_times(rows) > left)))])
            self._rows.put(_times(held), held)
            self._seen = max(self._seen, int(offsets.max(initial=-1)))

    def enter(self, batches: Sequence[pa.RecordBatch], upto: int) -> tuple[Ordered, pa.RecordBatch]:
        """Add new records and release all with times up to `upto`; return the released records, and the new ones that
        are held."""
        new = _in_order([self._none, *batches])
        self._seen = max(self._seen, int(_offsets(new).max(initial=-1)))
        cut = int(np.searchsorted(_times(new), upto, side="right"))
        held = self._rows.take_up_to(upto)
        released = _all_in_order([*held, new.slice(0, cut)]) if held else new.slice(0, cut)
        added = new.slice(cut)
        self._rows.put(_times(added), added)
        return released, added


def rows_between(rows: Ordered, first: int, end: int) -> pa.RecordBatch:
    """Return consecutive records as one batch."""
    part = rows.slice(first, end - first)
    return part if isinstance(part, pa.RecordBatch) else _joined(part.to_batches(), part.schema)


def rows_at(rows: Ordered, positions: np.ndarray) -> pa.RecordBatch:
    """Return the records at these positions as one batch, in that order."""
    if isinstance(rows, pa.RecordBatch):
        return rows.take(pa.array(positions))
    batches = rows.to_batches()
    bounds = pairwise([0, *np.cumsum([batch.num_rows for batch in batches]).tolist()])
    order = np.argsort(positions, kind="stable")
    wanted = positions[order]
    positions_by_batch = [wanted[(wanted >= first) & (wanted < end)] - first for first, end in bounds]
    gathered = _joined(
        [batch.take(pa.array(own_positions)) for batch, own_positions in zip(batches, positions_by_batch)], rows.schema
    )
    return gathered.take(pa.array(np.argsort(order)))


def _joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    return pa.concat_batches([empty_rows(schema), *batches])


def _times(batch: pa.RecordBatch) -> np.ndarray:
    return batch.column(TIME).to_numpy()


def _offsets(batch: pa.RecordBatch) -> np.ndarray:
    return batch.column(OFFSET).to_numpy()


def _in_order(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return all rows in (time, offset) order; free if they are in order already."""
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return batches[0]
    joined = filled[0] if len(filled) == 1 else pa.concat_batches(filled)
    order = sort_order(_times(joined), _offsets(joined))
    return joined if order is None else joined.take(pa.array(order))


def _all_in_order(batches: list[pa.RecordBatch]) -> Ordered:
    """Like `_in_order`, but a table of several batches if one cannot hold all rows."""
    filled = [batch for batch in batches if batch.num_rows]
    if sum(batch.nbytes for batch in filled) <= row_buffer.MOST_BYTES:
        return _in_order(batches)
    run = np.repeat(np.arange(len(filled)), [batch.num_rows for batch in filled])
    place = np.concatenate([np.arange(batch.num_rows) for batch in filled])
    order = np.lexsort((np.concatenate([*map(_offsets, filled)]), np.concatenate([*map(_times, filled)])))
    number = np.cumsum(np.concatenate([*map(_sizes, filled)])[order]) // row_buffer.MOST_BYTES
    cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(order)]
    pieces = []
    for first, end in pairwise(cuts):
        wanted = order[first:end]
        by_run = np.argsort(run[wanted], kind="stable")
        taken = [
            batch.take(pa.array(place[wanted[by_run]][run[wanted[by_run]] == at])) for at, batch in enumerate(filled)
        ]
        pieces.append(pa.concat_batches(taken).take(pa.array(np.argsort(by_run))))
    return pa.Table.from_batches(pieces)


def _sizes(batch: pa.RecordBatch) -> np.ndarray:
    """Return the bytes of each row: exact for texts, average for everything else."""
    texts = [column for column in batch.columns if pa.types.is_string(column.type) or pa.types.is_binary(column.type)]
    lengths = [
        pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64) for column in texts
    ]
    text_bytes = sum(lengths, np.zeros(batch.num_rows, np.int64))
    return text_bytes + max(0, batch.nbytes - int(text_bytes.sum())) // max(batch.num_rows, 1) + 1
