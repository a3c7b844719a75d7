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

    def enter(self, batches: Sequence[pa.RecordBatch], upto: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Let new records in and everybody out whose time is at most `upto`: those who leave, and those who newly wait."""
        new = _in_order([self._none, *batches])
        self._seen = max(self._seen, int(_offsets(new).max(initial=-1)))
        cut = int(np.searchsorted(_times(new), upto, side="right"))
        waited = self._leaving(upto)
        leaving = _in_order([*waited, new.slice(0, cut)]) if waited else new.slice(0, cut)
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
            self._runs[-2:] = [_in_order(self._runs[-2:])]


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
