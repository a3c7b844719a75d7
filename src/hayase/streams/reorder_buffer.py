"""The reorder buffer: records that arrived before the clock has passed them, held until they can be released in order.

A kernel sees its input in (time, offset) order and only up to the clock. Held records are state like any other: `added`
of a batch goes into a state segment, and `catch_up` restores the buffer from these segments. Which records were
released follows from the clock alone, so a release writes nothing.

Arrow counts the bytes of a text column with 32 bits. Therefore runs are joined only up to `MOST_BYTES`, and a larger
release is a table of several batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.stages import OFFSET, TIME

__all__ = ["MOST_BYTES", "Ordered", "ReorderBuffer", "rows_at", "rows_between"]

MOST_BYTES = 1 << 30
"""Maximal size of one batch of records."""
Ordered: TypeAlias = pa.RecordBatch | pa.Table
"""Records in order: one batch or, if they exceed `MOST_BYTES`, a table of several."""


class ReorderBuffer:
    """The records of one input and bucket that are later than the clock.

    They are held in sorted runs whose sizes halve from one to the next: a record is moved a logarithmic number of
    times, and a batch costs what arrives and is released, not what is held.
    """

    def __init__(self, schema: pa.Schema):
        self._none = _empty(schema)
        self._runs: list[pa.RecordBatch] = []
        self._seen = -1  # the greatest offset seen: a state segment may repeat known records

    def __len__(self) -> int:
        return sum(int(run.num_rows) for run in self._runs)

    def catch_up(self, segments: Sequence[pa.RecordBatch], left: int) -> None:
        """Take in the state segments that other workers wrote, and drop all records with times up to the clock `left`."""
        self._leaving(left)
        known = self._seen
        for rows in segments:
            offsets = _offsets(rows)
            self._hold(_in_order([rows.filter(pa.array((offsets > known) & (_times(rows) > left)))]))
            self._seen = max(self._seen, int(offsets.max(initial=-1)))

    def enter(self, batches: Sequence[pa.RecordBatch], upto: int) -> tuple[Ordered, pa.RecordBatch]:
        """Add new records and release all with times up to `upto`; return the released records, and the new ones that
        are held."""
        new = _in_order([self._none, *batches])
        self._seen = max(self._seen, int(_offsets(new).max(initial=-1)))
        cut = int(np.searchsorted(_times(new), upto, side="right"))
        held = self._leaving(upto)
        released = _all_in_order([*held, new.slice(0, cut)]) if held else new.slice(0, cut)
        added = new.slice(cut)
        self._hold(added)
        return released, added

    def _leaving(self, upto: int) -> list[pa.RecordBatch]:
        """Remove the records with times up to `upto` from every run and return them."""
        cuts = [int(np.searchsorted(_times(run), upto, side="right")) for run in self._runs]
        released = [run.slice(0, cut) for run, cut in zip(self._runs, cuts) if cut]
        self._runs = [run.slice(cut) for run, cut in zip(self._runs, cuts) if cut < run.num_rows]
        return released

    def _hold(self, run: pa.RecordBatch) -> None:
        if run.num_rows:
            self._runs.append(run)
        while len(self._runs) > 1 and self._runs[-2].num_rows <= 2 * self._runs[-1].num_rows:
            if self._runs[-2].nbytes + self._runs[-1].nbytes > MOST_BYTES:
                break
            self._runs[-2:] = [_in_order(self._runs[-2:])]


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
    return pa.concat_batches([_empty(schema), *batches])


def _times(batch: pa.RecordBatch) -> np.ndarray:
    return batch.column(TIME).to_numpy()


def _offsets(batch: pa.RecordBatch) -> np.ndarray:
    return batch.column(OFFSET).to_numpy()


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _in_order(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return all rows in (time, offset) order; free if they are in order already."""
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return batches[0]
    joined = filled[0] if len(filled) == 1 else pa.concat_batches(filled)
    times, offsets = _times(joined), _offsets(joined)
    later = times[1:] > times[:-1]
    if later.all():
        return joined
    same = times[1:] == times[:-1]
    if bool(np.all(later | (same & (offsets[1:] > offsets[:-1])))):
        return joined
    return joined.take(pa.array(np.lexsort((offsets, times))))


def _all_in_order(batches: list[pa.RecordBatch]) -> Ordered:
    """Like `_in_order`, but a table of several batches if one cannot hold all rows."""
    filled = [batch for batch in batches if batch.num_rows]
    if sum(batch.nbytes for batch in filled) <= MOST_BYTES:
        return _in_order(batches)
    run = np.repeat(np.arange(len(filled)), [batch.num_rows for batch in filled])
    place = np.concatenate([np.arange(batch.num_rows) for batch in filled])
    order = np.lexsort((np.concatenate([*map(_offsets, filled)]), np.concatenate([*map(_times, filled)])))
    number = np.cumsum(np.concatenate([*map(_sizes, filled)])[order]) // MOST_BYTES
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
