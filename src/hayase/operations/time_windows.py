"""Windows by time (see `record_windows`): all rows of windows that have not ended are held."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hayase.core.keys import KeyIndex
from hayase.core.schemas import empty_rows
from hayase.core.stages import OFFSET, TIME, Tuples
from hayase.core.times import BEGINNING
from hayase.operations.arrivals import column, distinct_records, groups_of, joined, merge_arrivals
from hayase.operations.record_windows import GONE, HELD, QUEUE, Complete, WindowSpec, held_schema

__all__ = ["TimeWindows"]


class TimeWindows:
    """Windows by time. What is held follows from the clock: all rows of windows that have not ended."""

    def __init__(self, spec: WindowSpec, schema: pa.Schema) -> None:
        self._spec, self._schema = spec, held_schema(schema)
        self._chunks: list[pa.RecordBatch] = []  # in time order
        self._restored: list[pa.RecordBatch] = []
        self._upto = BEGINNING  # the clock of the last step

    def __len__(self) -> int:
        return sum(int(chunk.num_rows) for chunk in (*self._chunks, *self._restored))

    def advance(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int) -> Complete:
        size, slide = self._spec.size, self._spec.slide
        self._catch_up(since)
        arrivals = merge_arrivals(inputs, self._schema)
        self._upto = clock
        first, last = (
            (since - size) // slide + 1,
            (clock - size) // slide,
        )  # numbers of the windows that end in this step
        times = column(arrivals.rows, TIME)
        new = int(np.searchsorted(times, (last + 1) * slide))
        state = []
        if new < len(arrivals):
            kept = arrivals.rows.slice(new)
            mark = pa.repeat(pa.scalar(False), kept.num_rows)
            schema = self._schema.append(pa.field(GONE, pa.bool_()))
            until = int(times[-1]) // slide * slide + size
            state = [Tuples(HELD, pa.RecordBatch.from_arrays([*kept.columns, mark], schema=schema), until)]
        if last < first:
            self._hold(arrivals.rows)
            return Complete(empty_rows(self._schema), *(np.empty(0, np.int64),) * 4, state)
        older, stop = sum(int(chunk.num_rows) for chunk in self._chunks), last * slide + size
        rows = joined([*self._chunks, arrivals.rows], self._schema)
        ends = column(rows, TIME)
        low, high = (int(bound) for bound in np.searchsorted(ends, [first * slide, stop]))
        positions = np.concatenate([np.full(older, -1), arrivals.at])[low:high]
        remaining = rows.slice(int(np.searchsorted(ends, (last + 1) * slide)))
        self._chunks = [remaining] if remaining.num_rows else []
        return self._complete(rows.slice(low, high - low), positions, first, last, state)

    def _complete(self, rows: pa.RecordBatch, at: np.ndarray, first: int, last: int, state: list[Tuples]) -> Complete:
        """Return the windows numbered `first` to `last` over rows in time order."""
        size, slide = self._spec.size, self._spec.slide
        if not rows.num_rows:
            return Complete(rows, *(np.empty(0, np.int64),) * 4, state)
        group = groups_of(self._spec, rows, KeyIndex())
        order = np.argsort(group, kind="stable")
        rows, group, at = rows.take(pa.array(order)), group[order], at[order]
        times = column(rows, TIME)
        newest = times // slide
        pairs = []
        for back in range(-(-size // slide)):
            number = newest - back
            fits = (number * slide + size > times) & (first <= number) & (number <= last)
            pairs.append(_different(group[fits], number[fits]))
        owner, number = pairs[0] if len(pairs) == 1 else np.unique(np.concatenate(pairs, axis=1), axis=1)
        instants = np.unique(times)
        span = len(instants) + 1
        line = group * span + np.searchsorted(instants, times)
        starts = np.searchsorted(line, owner * span + np.searchsorted(instants, number * slide))
        stops = np.searchsorted(line, owner * span + np.searchsorted(instants, number * slide + size))
        by_end = np.lexsort((order[starts], number))
        ends = number[by_end] * slide + size - 1
        return Complete(rows, starts[by_end], stops[by_end], ends, at, state)

    def restore(self, rows: pa.RecordBatch) -> None:
        self._restored.append(rows.select(self._schema.names))

    def _catch_up(self, since: int) -> None:
        """Take in restored state, and drop rows of windows that ended before `since`."""
        if self._restored:
            restored = joined(self._restored, self._schema)
            self._restored = []
            restored = restored.filter(pa.array(column(restored, TIME) >= self._upto))
            restored = restored.take(pa.array(distinct_records(restored)))
            order = np.lexsort((column(restored, OFFSET), column(restored, QUEUE), column(restored, TIME)))
            self._hold(restored.take(pa.array(order)))
        first = self._needed(since)
        while self._chunks and column(self._chunks[0], TIME)[0] < first:
            oldest = self._chunks[0]
            remaining = oldest.slice(int(np.searchsorted(column(oldest, TIME), first)))
            self._chunks[:1] = [remaining] if remaining.num_rows else []

    def _hold(self, rows: pa.RecordBatch) -> None:
        """Hold rows that are later than all held ones; chunks are merged, so that there are few."""
        if rows.num_rows:
            self._chunks.append(rows)
        while len(self._chunks) > 1 and self._chunks[-2].num_rows <= 2 * self._chunks[-1].num_rows:
            self._chunks[-2:] = [pa.concat_batches(self._chunks[-2:])]

    def _needed(self, clock: int) -> int:
        """Return the least time that belongs to a window which has not ended at the clock."""
        return ((clock - self._spec.size) // self._spec.slide + 1) * self._spec.slide

    def live(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.filter(pa.array(column(rows, TIME) >= self._needed(self._upto)))


def _different(group: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Return the distinct pairs of group and number, as two rows of an array; equal pairs must be adjacent."""
    first = np.ones(len(group), np.bool_)
    first[1:] = (group[1:] != group[:-1]) | (number[1:] != number[:-1])
    return np.stack([group[first], number[first]])
