"""The waiting room: records that came ahead of the clock, kept until every earlier one is there.

A kernel sees its input in (time, offset) order and only up to where it is final. What waits is state like any other:
`added` of a batch goes into a state segment, and the segments give the room back (`catch_up`). Which records have left
follows from the clock alone, so leaving writes nothing.

Arrow counts the bytes of a text column with 32 bits. So runs are joined only up to `MOST_BYTES`, and records that leave
together and have more come as a table of several batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.stages import OFFSET, TIME

__all__ = ["MOST_BYTES", "Ordered", "WaitingRoom", "rows_at", "rows_between"]

MOST_BYTES = 1 << 30
"""Of one batch of records."""
Ordered: TypeAlias = pa.RecordBatch | pa.Table
"""Records in order: one batch or, if they have more than `MOST_BYTES`, a table of several."""


class WaitingRoom:
    """Records of one input and bucket that are later than the clock.

    They are held in runs, each in order, whose sizes fall by half from one to the next: a record is moved a logarithmic
    number of times, and a batch costs what comes and leaves, not what waits.
    """

    def __init__(self, schema: pa.Schema):
        self._none = _empty(schema)
        self._runs: list[pa.RecordBatch] = []
        self._seen = -1  # the greatest offset that has come: a state segment may repeat what is known

    def __len__(self) -> int:
        return sum(int(run.num_rows) for run in self._runs)

    def catch_up(self, segments: Sequence[pa.RecordBatch], left: int) -> None:
        """Take up what other workers wrote, and let go of everybody who left before the clock stood at `left`."""
        self._leaving(left)
        known = self._seen
        for rows in segments:
            offsets = _offsets(rows)
            self._hold(_in_order([rows.filter(pa.array((offsets > known) & (_times(rows) > left)))]))
            self._seen = max(self._seen, int(offsets.max(initial=-1)))

    def enter(self, batches: Sequence[pa.RecordBatch], upto: int) -> tuple[Ordered, pa.RecordBatch]:
        """Let new records in and everybody out whose time is at most `upto`: those who leave, and those who newly wait."""
        new = _in_order([self._none, *batches])
        self._seen = max(self._seen, int(_offsets(new).max(initial=-1)))
        cut = int(np.searchsorted(_times(new), upto, side="right"))
        waited = self._leaving(upto)
        leaving = _all_in_order([*waited, new.slice(0, cut)]) if waited else new.slice(0, cut)
        added = new.slice(cut)
        self._hold(added)
        return leaving, added

    def _leaving(self, upto: int) -> list[pa.RecordBatch]:
        """Take out of every run what is at most `upto`."""
        cuts = [int(np.searchsorted(_times(run), upto, side="right")) for run in self._runs]
        gone = [run.slice(0, cut) for run, cut in zip(self._runs, cuts) if cut]
        self._runs = [run.slice(cut) for run, cut in zip(self._runs, cuts) if cut < run.num_rows]
        return gone

    def _hold(self, run: pa.RecordBatch) -> None:
        if run.num_rows:
            self._runs.append(run)
        while len(self._runs) > 1 and self._runs[-2].num_rows <= 2 * self._runs[-1].num_rows:
            if self._runs[-2].nbytes + self._runs[-1].nbytes > MOST_BYTES:
                break
            self._runs[-2:] = [_in_order(self._runs[-2:])]


def rows_between(rows: Ordered, first: int, end: int) -> pa.RecordBatch:
    """Some records that follow each other, as one batch."""
    part = rows.slice(first, end - first)
    return part if isinstance(part, pa.RecordBatch) else _joined(part.to_batches(), part.schema)


def rows_at(rows: Ordered, positions: np.ndarray) -> pa.RecordBatch:
    """Some records as one batch, in the order of the positions."""
    if isinstance(rows, pa.RecordBatch):
        return rows.take(pa.array(positions))
    batches = rows.to_batches()
    bounds = pairwise([0, *np.cumsum([each.num_rows for each in batches]).tolist()])
    order = np.argsort(positions, kind="stable")
    wanted = positions[order]
    mine = [wanted[(wanted >= first) & (wanted < end)] - first for first, end in bounds]
    found = _joined([each.take(pa.array(own)) for each, own in zip(batches, mine)], rows.schema)
    return found.take(pa.array(np.argsort(order)))


def _joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    return pa.concat_batches([_empty(schema), *batches])


def _times(batch: pa.RecordBatch) -> np.ndarray:
    return batch.column(TIME).to_numpy()


def _offsets(batch: pa.RecordBatch) -> np.ndarray:
    return batch.column(OFFSET).to_numpy()


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in schema], schema=schema)


def _in_order(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows in (time, offset) order; free when they are in order already."""
    filled = [each for each in batches if each.num_rows]
    if not filled:
        return batches[0]
    one = filled[0] if len(filled) == 1 else pa.concat_batches(filled)
    times, offsets = _times(one), _offsets(one)
    later = times[1:] > times[:-1]
    if later.all():
        return one
    same = times[1:] == times[:-1]
    if bool(np.all(later | (same & (offsets[1:] > offsets[:-1])))):
        return one
    return one.take(pa.array(np.lexsort((offsets, times))))


def _all_in_order(batches: list[pa.RecordBatch]) -> Ordered:
    """The same, as a table of several batches if one cannot hold all."""
    filled = [each for each in batches if each.num_rows]
    if sum(each.nbytes for each in filled) <= MOST_BYTES:
        return _in_order(batches)
    run = np.repeat(np.arange(len(filled)), [each.num_rows for each in filled])
    place = np.concatenate([np.arange(each.num_rows) for each in filled])
    order = np.lexsort((np.concatenate([*map(_offsets, filled)]), np.concatenate([*map(_times, filled)])))
    number = np.cumsum(np.concatenate([*map(_sizes, filled)])[order]) // MOST_BYTES
    cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(order)]
    pieces = []
    for first, end in pairwise(cuts):
        wanted = order[first:end]
        by_run = np.argsort(run[wanted], kind="stable")
        taken = [
            each.take(pa.array(place[wanted[by_run]][run[wanted[by_run]] == at])) for at, each in enumerate(filled)
        ]
        pieces.append(pa.concat_batches(taken).take(pa.array(np.argsort(by_run))))
    return pa.Table.from_batches(pieces)


def _sizes(batch: pa.RecordBatch) -> np.ndarray:
    """The bytes of each row: of texts as they are, of all else on average."""
    texts = [each for each in batch.columns if pa.types.is_string(each.type) or pa.types.is_binary(each.type)]
    lengths = [
        pc.fill_null(pc.binary_length(each), 0).to_numpy(zero_copy_only=False).astype(np.int64) for each in texts
    ]
    own = sum(lengths, np.zeros(batch.num_rows, np.int64))
    return own + max(0, batch.nbytes - int(own.sum())) // max(batch.num_rows, 1) + 1
