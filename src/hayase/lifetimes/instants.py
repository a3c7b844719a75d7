"""The instants at which Rstream emits a snapshot: those at which the window of a stream moves because of a record.

For every record of the input these are its time and, for a time window, its end, both rounded up to the slide. It makes no
difference whether the record is in the window's relation (WHERE, an empty lifetime). A row window with a slide moves at
the time of every slide-th record of the stream or of each partition.

State: the instants beyond the clock, each once; for a slide by rows, the number of records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from hayase.core.keys import raw_values
from hayase.core.stages import TIME, Stateless, Tuples
from hayase.lifetimes.leaves import LeafOperator, round_up
from hayase.lifetimes.partitions import PartitionWindow
from hayase.lifetimes.plans import Instants, Partition, Range, Rows, Windowed
from hayase.lifetimes.relations import OPEN, Delta, Span, Step
from hayase.lifetimes.state_registers import Registers

__all__ = ["instants"]

_AT = "at"
_NOTHING = pa.schema([])


def instants(node: Instants) -> LeafOperator:
    """Return the operator of a node. Its tuples have no columns and start at the instants; several may start at one."""
    source: _Source
    match node.window:
        case Range() as window:
            source = _RangeInstants(node.input, window)
        case Rows(slide=slide) if slide > 1:
            source = _EveryNthRecord(node.input, slide)
        case Partition() as window if window.slide > 1:
            source = _PartitionInstants(node, window)
        case _:
            source = _RecordTimes(node.input)
    return _InstantsOperator(source)


class _Source(Protocol):
    """Computes the instants of a step in ascending order, with the change of its state."""

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> tuple[np.ndarray, Sequence[Tuples]]: ...
    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None: ...
    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch: ...
    def size(self, section: str) -> int: ...


class _InstantsOperator:
    """The operator of `plans.Instants` (`leaves.LeafOperator`)."""

    def __init__(self, source: _Source) -> None:
        self.schema = _NOTHING
        self._source = source
        self.restore, self.live, self.size = source.restore, source.live, source.size

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> Step:
        """Return the instants of the step, in ascending order."""
        times, state = self._source.advance(batches, span)
        none = pa.RecordBatch.from_arrays([], schema=_NOTHING)
        return Step(Delta(none, times, np.full(len(times), OPEN), times), state)


class _RecordTimes(Stateless):
    """The times of all records."""

    def __init__(self, input: int) -> None:
        self._input = input

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> tuple[np.ndarray, Sequence[Tuples]]:
        return np.unique(raw_values(batches[self._input].column(TIME), np.int64)), ()


class _RangeInstants:
    """The times and ends of all records, rounded up to the slide and the grain. Those beyond the clock are kept."""

    def __init__(self, input: int, window: Range) -> None:
        self._input, self._window = input, window
        self._ahead = np.empty(0, np.int64)
        self._clock = -OPEN

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> tuple[np.ndarray, Sequence[Tuples]]:
        times = np.unique(raw_values(batches[self._input].column(TIME), np.int64))
        length, slide, grain = self._window.length, self._window.slide or 1, self._window.grain
        offset = self._window.offset
        moved = [
            np.minimum(round_up(round_up(instants - offset, slide) + offset, grain), OPEN)
            for instants in (times, times + length)
        ]
        ahead = self._ahead[self._ahead >= span.since]
        new = np.setdiff1d(np.concatenate(moved), ahead)
        known = np.union1d(ahead, new)
        self._ahead, self._clock = known[known >= span.clock], span.clock
        kept = new[new >= span.clock]
        state = [Tuples(_AT, pa.record_batch({_AT: pa.array(kept)}), until=int(kept[-1]))] if len(kept) else []
        return known[known < span.clock], state

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        self._ahead = np.union1d(self._ahead, raw_values(rows.column(_AT), np.int64))

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        return rows.filter(pa.array(raw_values(rows.column(_AT), np.int64) >= self._clock))

    def size(self, section: str) -> int:
        return len(self._ahead)


class _EveryNthRecord:
    """The time of every n-th record of the stream."""

    def __init__(self, input: int, slide: int) -> None:
        self._input, self._slide = input, slide
        self._counter = Registers(("count",), (0,))
        self.restore, self.live, self.size = self._counter.restore, self._counter.live, self._counter.size

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> tuple[np.ndarray, Sequence[Tuples]]:
        times = raw_values(batches[self._input].column(TIME), np.int64)
        before = self._counter["count"]
        self._counter["count"] = before + len(times)
        due = times[self._slide - 1 - before % self._slide :: self._slide]
        return np.unique(due), self._counter.changes(span.version)


class _PartitionInstants:
    """The time of every n-th record of each partition: the starts of a window of one row that slides by n."""

    def __init__(self, node: Instants, window: Partition) -> None:
        self._window = PartitionWindow(Windowed(node.input, window, _NOTHING), Partition(window.keys, 1, window.slide))
        self.restore, self.live, self.size = self._window.restore, self._window.live, self._window.size

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> tuple[np.ndarray, Sequence[Tuples]]:
        step = self._window.advance(batches, span)
        return np.unique(step.delta.start), step.state
