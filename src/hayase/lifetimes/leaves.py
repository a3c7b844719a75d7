"""Leaves of a plan: operators that turn an input of the stage into an interval relation through a window.

A leaf reads one of the stage's inputs; the records of a step come in (time, offset) order. A tuple is emitted with its end
if that is known. A leaf keeps as little state as possible:

- a time window keeps nothing, or with a slide the tuples that have not appeared yet;
- a row window keeps a counter: the id of a tuple is its number, and the tuples that end in a step are a range of numbers,
  so that paper 1's expiry holder takes no space; with a slide also the tuples that have not appeared yet, and their offsets.

Partitioned row windows are in `partitions`, windows with bounds in `bounded_windows` and `session_windows`, relations read as
changes or lifetimes in `relation_leaves`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from hayase.core.keys import raw_values
from hayase.core.scratch import scratch
from hayase.core.stages import OFFSET, TIME, Stateless
from hayase.lifetimes.plans import Bounded, Changes, Lifetimes, Partition, Range, Rows, Session, Unbounded, Windowed
from hayase.lifetimes.relations import OPEN, Delta, Span, Step
from hayase.lifetimes.state_registers import Registers
from hayase.lifetimes.tuples import OneStore, TupleStore

__all__ = [
    "LeafOperator",
    "RangeWindow",
    "RowWindow",
    "SlidingRange",
    "UnboundedWindow",
    "leaf",
    "round_up",
    "take_rows",
]

_NONE = np.empty(0, np.int64)


class LeafOperator(Protocol):
    """Like `relations.Operator`, but reads the inputs of the stage."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> Step:
        """Process a step, given one batch per input of the stage, in (time, offset) order with `since <= time < clock`."""

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Load tuples written at `version` or, if files were merged, up to it. Loading them twice is harmless."""

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return those of the rows, written up to `version`, that are still needed. Called with the oldest rows first."""

    def size(self, section: str) -> int:
        """Return the number of live tuples of a section."""


def leaf(node: Windowed | Lifetimes | Changes) -> LeafOperator:
    """Return the operator of a leaf."""
    from hayase.lifetimes.bounded_windows import BoundedWindow
    from hayase.lifetimes.partitions import PartitionWindow
    from hayase.lifetimes.relation_leaves import DeclaredChanges, DeclaredLifetimes
    from hayase.lifetimes.session_windows import SessionWindow

    if isinstance(node, Lifetimes):
        return DeclaredLifetimes(node)
    if isinstance(node, Changes):
        return DeclaredChanges(node)
    match node.window:
        case Range() as window:
            return RangeWindow(node, window) if window.slide is None else SlidingRange(node, window, window.slide)
        case Rows() as window:
            return RowWindow(node, window)
        case Partition() as window:
            return PartitionWindow(node, window)
        case Bounded() as window:
            return BoundedWindow(node, window)
        case Session() as window:
            return SessionWindow(node, window)
        case Unbounded():
            return UnboundedWindow(node)


class UnboundedWindow(Stateless):
    """A window in which every tuple is alive from its time on, for ever."""

    def __init__(self, node: Windowed) -> None:
        self.schema = node.schema
        self._input = node.input

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> Step:
        """Return the tuples of the step; their ends stay open."""
        batch = batches[self._input]
        time, offset = raw_values(batch.column(TIME), np.int64), raw_values(batch.column(OFFSET), np.int64)
        return Step(Delta(batch.select(self.schema.names), time, np.full(len(time), OPEN), offset))


class RangeWindow(Stateless):
    """A time window: a tuple is alive for the window's length; its end is rounded up to the grain."""

    def __init__(self, node: Windowed, window: Range) -> None:
        self.schema = node.schema
        self._input = node.input
        self._length, self._grain = max(window.length, window.grain), window.grain

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> Step:
        """Return the tuples of the step; all ends are known."""
        batch = batches[self._input]
        time, offset = raw_values(batch.column(TIME), np.int64), raw_values(batch.column(OFFSET), np.int64)
        end = round_up(np.add(time, self._length, out=scratch(len(time))), self._grain)
        return Step(Delta(batch.select(self.schema.names), time, np.minimum(end, OPEN, out=end), offset))


class SlidingRange(OneStore):
    """A time window with a slide: both times of a tuple are rounded up to the slide plus offset, then to the grain.

    A tuple whose start lies beyond the clock is kept in the section "waiting", where its end is the start at which it
    appears.
    """

    def __init__(self, node: Windowed, window: Range, slide: int) -> None:
        self.schema = node.schema
        self._input, self._window, self._slide = node.input, window, slide
        self._store = TupleStore(node.schema, "waiting")

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> Step:
        """Return the waiting and new tuples that appear within the step."""
        batch, waiting = batches[self._input], self._store
        waiting.release(waiting.settle(span.since)[1])
        time, id = raw_values(batch.column(TIME), np.int64), raw_values(batch.column(OFFSET), np.int64)
        rows, (start, end) = batch.select(self.schema.names), self._bounds(time)
        later = np.flatnonzero((start < end) & (start >= span.clock))
        if len(later):
            waiting.add(take_rows(rows, later), time[later], start[later], id[later])
        now = np.flatnonzero((start < end) & (start < span.clock))
        rows, start, end, id, time = take_rows(rows, now), start[now], end[now], id[now], time[now]
        due = waiting.expire(span.clock)
        if len(due):
            rows = pa.concat_batches([waiting.take(due), rows])
            earlier = self._bounds(waiting.start[due])
            start, end = (np.concatenate(both) for both in zip(earlier, (start, end)))
            id, time = np.concatenate((waiting.id[due], id)), np.concatenate((waiting.start[due], time))
            waiting.release(due)
        order = np.lexsort((id, time, start))
        delta = Delta(take_rows(rows, order), start[order], end[order], id[order])
        return Step(delta, waiting.changes())

    def _bounds(self, time: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the starts and ends of tuples."""
        moved, window = time - self._window.offset, self._window
        start, end = (
            round_up(round_up(instant, self._slide) + window.offset, window.grain)
            for instant in (moved, moved + window.length)
        )
        return start, np.minimum(end, OPEN)


class RowWindow:
    """A row window: a tuple is alive until `count` later tuples of the stream have come; its id is its number in the stream.

    The window moves at every tuple whose number, counted from 1, is a multiple of the slide. Tuple n appears at the first
    such tuple that is not before it, and ends at the first one that is not before tuple n + count. Until tuple n appears, it is
    in the section "waiting" and its offset in the section "offsets".
    """

    def __init__(self, node: Windowed, window: Rows) -> None:
        self.schema = node.schema
        self._input, self._window = node.input, window
        self._counter = Registers(("next",), (0,))
        self._waiting = TupleStore(node.schema, "waiting")
        self._waiting_offsets = TupleStore(pa.schema([pa.field(OFFSET, pa.int64())]), "offsets")
        self._first, self._offsets = 0, _NONE
        self._waited: dict[
            int, int
        ] = {}  # offsets by number of the tuples that appeared in the last step, after waiting

    def offsets_of(self, ids: np.ndarray) -> np.ndarray:
        """Return the offsets of tuples that were numbered in the last step or appeared in it; -1 for others.

        A tuple whose waiting began in a version without the section "offsets" is one of the others.
        """
        places = ids - self._first
        known = (places >= 0) & (places < len(self._offsets))
        waited = np.array([self._waited.get(id, -1) for id in ids.tolist()], np.int64)
        return np.where(known, self._offsets[np.where(known, places, 0)] if len(self._offsets) else -1, waited)

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> Step:
        """Number the tuples of the step, and close those of earlier steps by number, even if they are in another bucket."""
        batch, every = self._in_order(batches[self._input], batches[self._window.ticks])
        ticks, waiting, first = raw_values(every.column(TIME), np.int64), self._waiting, self._counter["next"]
        self._first, self._offsets = first, raw_values(every.column(OFFSET), np.int64)
        self._waited = {}
        for store in (waiting, self._waiting_offsets):
            store.release(store.settle(span.since)[1])
        time = raw_values(batch.column(TIME), np.int64)
        stop = first + len(ticks)
        self._counter["next"] = stop
        if self._window.slide == 1 and len(time) == len(ticks):
            delta = self._whole(batch.select(self.schema.names), ticks, first, stop)
            return Step(delta, [*waiting.changes(), *self._counter.changes(span.version)])
        id = first + self._ranks(batch, every)
        closed = self._closed(first, stop)
        closed_end = ticks[self._leaving(closed) - first]
        rows = batch.select(self.schema.names)
        if self._window.slide > 1:
            offsets = batch.select([OFFSET])
            rows, id = self._appearing(rows, offsets, time, id, first, ticks, span.clock)
            start = ticks[self._entering(id) - first]
        else:
            start = time
        leaving = self._leaving(id)
        there = leaving < stop
        end = np.full(len(id), OPEN)
        end[there] = ticks[leaving[there] - first]
        delta = _without_ghosts(Delta(rows, start, end, id, closed, closed_end))
        state = [*waiting.changes(), *self._waiting_offsets.changes(), *self._counter.changes(span.version)]
        return Step(delta, state)

    def _in_order(self, batch: pa.RecordBatch, ticks: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the tuples of this bucket and those of all in the order of the window."""
        if not self._window.order or ticks.num_rows < 2:
            return batch, ticks
        from hayase.lifetimes.order_keys import places_in_order

        places = places_in_order(ticks, raw_values(ticks.column(TIME), np.int64), self._window.order)
        ticks = ticks.take(pa.array(places))
        offsets, own = (raw_values(rows.column(OFFSET), np.int64) for rows in (ticks, batch))
        by_offset = np.argsort(offsets)
        numbers = by_offset[np.searchsorted(offsets, own, sorter=by_offset)]
        return take_rows(batch, np.argsort(numbers)), ticks

    def _whole(self, rows: pa.RecordBatch, ticks: np.ndarray, first: int, stop: int) -> Delta:
        """Return the delta if this bucket has all tuples and the slide is 1: a tuple ends at the time of the tuple `count`
        places later."""
        count = self._window.count
        closed = self._closed(first, stop)
        end = scratch(len(ticks))
        known = max(len(ticks) - count, 0)
        end[:known], end[known:] = ticks[count:], OPEN
        late = int(closed[0]) + count - first if len(closed) else 0
        return _without_ghosts(Delta(rows, ticks, end, _numbers(first, stop), closed, ticks[late : late + len(closed)]))

    def _appearing(
        self,
        rows: pa.RecordBatch,
        offsets: pa.RecordBatch,
        time: np.ndarray,
        id: np.ndarray,
        first: int,
        ticks: np.ndarray,
        clock: int,
    ) -> tuple[pa.RecordBatch, np.ndarray]:
        """Return the rows and numbers of the tuples that appear in this step, and keep the others waiting.

        If the window moves, all waiting tuples appear, and those new ones that came before its last move.
        """
        waiting, moved = self._waiting, (first + len(ticks)) // self._window.slide * self._window.slide
        if moved > first:
            waited = np.arange(
                first // self._window.slide * self._window.slide, first
            )  # the numbers since the last move
            starts = ticks[self._entering(waited) - first]
            slots = waiting.close(waited, starts)
            earlier, numbers = waiting.take(slots), waiting.id[slots]
            waiting.release(waiting.expire(clock))
            self._take_offsets(waited, starts, clock)
        else:
            earlier, numbers = rows.slice(0, 0), _NONE
        later = np.flatnonzero((id >= moved) & (self._entering(id) < self._leaving(id)))
        if len(later):
            for store, columns in ((waiting, rows), (self._waiting_offsets, offsets)):
                store.add(take_rows(columns, later), time[later], np.full(len(later), OPEN), id[later])
        now = np.flatnonzero(id < moved)
        if len(numbers):
            return pa.concat_batches([earlier, take_rows(rows, now)]), np.concatenate((numbers, id[now]))
        return take_rows(rows, now), id[now]

    def _take_offsets(self, numbers: np.ndarray, starts: np.ndarray, clock: int) -> None:
        """Note the offsets of tuples that appear after waiting."""
        store = self._waiting_offsets
        slots = store.close(numbers, starts)
        offsets = store.take(slots).column(OFFSET)
        self._waited = dict(zip(store.id[slots].tolist(), raw_values(offsets, np.int64).tolist()))
        store.release(store.expire(clock))

    def _entering(self, id: np.ndarray) -> np.ndarray:
        """Return the number of the tuple at which a tuple appears."""
        return id // self._window.slide * self._window.slide + (self._window.slide - 1)

    def _leaving(self, id: np.ndarray) -> np.ndarray:
        """Return the number of the tuple at which a tuple ends."""
        return self._entering(id + self._window.count)

    def _closed(self, first: int, stop: int) -> np.ndarray:
        """Return the numbers of tuples that appeared in earlier steps and end in this one."""
        slide, count = self._window.slide, self._window.count
        low = max(0, first // slide * slide - count)
        high = min(first // slide * slide, stop // slide * slide - count)
        return _numbers(low, max(low, high))

    @staticmethod
    def _ranks(batch: pa.RecordBatch, ticks: pa.RecordBatch) -> np.ndarray:
        """Return the positions of the records among all records of the stream in this step."""
        from hayase.lifetimes import leaves_loops

        ranks = np.empty(batch.num_rows, np.int64)
        leaves_loops.ranks(
            raw_values(ticks.column(OFFSET), np.int64), raw_values(batch.column(OFFSET), np.int64), ranks
        )
        return ranks

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Load the counter, waiting tuples or their offsets."""
        if section == self._counter.section:
            self._counter.restore(section, rows, version)
        else:
            self._store(section).restore(rows, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the counter, or the rows of tuples that are still waiting."""
        if section == self._counter.section:
            return self._counter.live(section, rows, version)
        return self._store(section).live(rows, version)

    def size(self, section: str) -> int:
        """Return 1 for the counter, or the number of waiting tuples."""
        return self._counter.size(section) if section == self._counter.section else self._store(section).size()

    def _store(self, section: str) -> TupleStore:
        return self._waiting_offsets if section == self._waiting_offsets.section else self._waiting


def _numbers(first: int, stop: int) -> np.ndarray:
    from hayase.lifetimes import leaves_loops

    numbers = scratch(stop - first)
    leaves_loops.count_up(first, numbers)
    return numbers


def _without_ghosts(delta: Delta) -> Delta:
    """Drop tuples with an empty lifetime."""
    alive = delta.start < delta.end
    if alive.all():
        return delta
    kept = np.flatnonzero(alive)
    rows, start, end, id = take_rows(delta.rows, kept), delta.start[kept], delta.end[kept], delta.id[kept]
    return Delta(rows, start, end, id, delta.closed, delta.closed_end)


def take_rows(rows: pa.RecordBatch, positions: np.ndarray) -> pa.RecordBatch:
    """Return the rows at distinct positions; without a copy if these are all rows in order."""
    if len(positions) == rows.num_rows and bool(np.all(positions[1:] > positions[:-1])):
        return rows
    return rows.take(pa.array(positions))


def round_up(times: np.ndarray, multiple: int) -> np.ndarray:
    """Round times up to multiples of a number."""
    return times if multiple == 1 else -(-times // multiple) * multiple
