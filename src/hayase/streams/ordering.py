"""The waiting room: records that came ahead of the clock, kept until every earlier one is there.

A kernel sees its input in (time, offset) order and only up to where it is final. What waits is state like any other:
`added` of a batch goes into a state segment, and the segments give the room back (`catch_up`). Which records have left
follows from the clock alone, so leaving writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hayase.core.stages import OFFSET, TIME

__all__ = ["WaitingRoom"]


class WaitingRoom:
    """Records of one input and bucket that are later than the clock."""

    def __init__(self, schema: pa.Schema):
        self._waiting = _empty(schema)

    def __len__(self) -> int:
        return self._waiting.num_rows

    def catch_up(self, segments: Sequence[pa.RecordBatch], left: int) -> None:
        """Take up what other workers wrote, and let go of everybody who left before the clock stood at `left`."""
        rows = _in_order([self._waiting, *segments])
        offsets = _offsets(rows)
        wanted = _times(rows) > left
        wanted[1:] &= offsets[1:] != offsets[:-1]  # a joined segment repeats what is here already
        self._waiting = rows.filter(pa.array(wanted))

    def enter(self, batches: Sequence[pa.RecordBatch], upto: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Let new records in and everybody out whose time is at most `upto`: those who leave, and those who newly wait."""
        new = _in_order(list(batches)) if batches else self._waiting.slice(0, 0)
        times = _times(new)
        cut = int(np.searchsorted(times, upto, side="right"))
        added = new.slice(cut)
        old_cut = int(np.searchsorted(_times(self._waiting), upto, side="right"))
        leaving = _in_order([self._waiting.slice(0, old_cut), new.slice(0, cut)])
        self._waiting = _in_order([self._waiting.slice(old_cut), added])
        return leaving, added


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
    later, same = times[1:] > times[:-1], times[1:] == times[:-1]
    if bool(np.all(later | (same & (offsets[1:] > offsets[:-1])))):
        return one
    return one.take(pa.array(np.lexsort((offsets, times))))
