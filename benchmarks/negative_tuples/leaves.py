"""Leaves of the negative-tuple method: a window emits a plus when a tuple appears and a minus, with the same values and
tag, when it ends.

In time, row and unbounded windows tuples end in the order in which they came: a queue of Arrow slices with two cursors, one
merge by time and one gather per step. The others are simple and slow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.negative_tuples.signed import Signed, gathered, row_bytes
from hayase.core.keys import encode, raw_values, validity
from hayase.core.stages import OFFSET, TIME
from hayase.lifetimes.instants import instants
from hayase.lifetimes.leaves import round_up
from hayase.lifetimes.plans import (
    ADDED,
    ROW_ID,
    VALID_FROM,
    VALID_TO,
    Changes,
    Instants,
    Lifetimes,
    Partition,
    Range,
    Rows,
    Windowed,
)
from hayase.lifetimes.relations import Span

__all__ = ["SignedLeaf", "signed_leaf"]


class SignedLeaf(ABC):
    """Reads an input of the stage."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    @abstractmethod
    def read(self, inputs: Sequence[pa.RecordBatch], span: Span) -> Signed:
        """Return the tuples that appear and end in a step."""


def signed_leaf(node: Windowed | Lifetimes | Changes | Instants) -> SignedLeaf:
    """Return the leaf of a node."""
    match node:
        case Lifetimes():
            return _Lifetimes(node)
        case Instants():
            return _Instants(node)
        case Changes():
            return _Changes(node)
        case Windowed(window=Range() as window):
            return _Range(node, window)
        case Windowed(window=Rows() as window):
            return _Rows(node, window)
        case Windowed(window=Partition() as window):
            return _Partition(node, window)
        case _:
            return _Unbounded(node)


class _Instants(SignedLeaf):
    """The instants of snapshots, computed by the direct method: pluses that never end."""

    def __init__(self, node: Instants) -> None:
        super().__init__(node.schema)
        self._instants = instants(node)

    def read(self, inputs: Sequence[pa.RecordBatch], span: Span) -> Signed:
        """Return the instants of the step."""
        delta = self._instants.advance(inputs, span).delta
        return Signed(delta.rows, delta.start, np.ones(len(delta), np.bool_), delta.id)


# ---------------------------------------------------------------------------------------------------- first in, first out


@dataclass(frozen=True, slots=True)
class _Piece:
    """Tuples in order of arrival, with tags from `first` on, and the ascending keys at which each appears and ends."""

    rows: pa.RecordBatch
    first: int
    appears: np.ndarray
    goes: np.ndarray


class _Queue:
    """Tuples that have not ended yet."""

    def __init__(self) -> None:
        self._next = 0
        self._waiting: deque[tuple[_Piece, int]] = deque()
        self._alive: deque[tuple[_Piece, int]] = deque()

    def add(self, rows: pa.RecordBatch, appears: np.ndarray, goes: np.ndarray) -> None:
        """Add tuples, whose keys must not be below those of earlier ones. A tuple with an empty lifetime is dropped."""
        alive = appears < goes
        if not alive.all():
            rows, appears, goes = rows.filter(pa.array(alive)), appears[alive], goes[alive]
        if rows.num_rows:
            piece = _Piece(rows, self._next, appears, goes)
            self._next += rows.num_rows
            self._waiting.append((piece, 0))
            self._alive.append((piece, 0))

    def until(self, schema: pa.Schema, bound: int) -> Signed:
        """Return the events at keys below `bound`, with keys instead of times."""
        from benchmarks.negative_tuples import loops

        gone, came = _below(self._alive, bound, going=True), _below(self._waiting, bound, going=False)
        keys = [np.concatenate([key for _, key, _ in part] or [np.empty(0, np.int64)]) for part in (gone, came)]
        order = np.empty(len(keys[0]) + len(keys[1]), np.int64)
        loops.merge(keys[0], keys[1], order)
        tags = np.concatenate([np.empty(0, np.int64), *(tag for _, _, tag in gone + came)])
        rows = gathered([rows for rows, _, _ in gone + came], schema, order if len(keys[0]) and len(keys[1]) else None)
        return Signed(rows, np.concatenate(keys)[order], order >= len(keys[0]), tags[order])


def _below(
    queue: deque[tuple[_Piece, int]], bound: int, going: bool
) -> list[tuple[pa.RecordBatch, np.ndarray, np.ndarray]]:
    """Remove from a queue, and return, the rows, keys and tags with a key below the bound."""
    parts = []
    while queue:
        piece, at = queue[0]
        keys = piece.goes if going else piece.appears
        stop = at + int(np.searchsorted(keys[at:], bound))
        if stop > at:
            parts.append(
                (piece.rows.slice(at, stop - at), keys[at:stop], np.arange(piece.first + at, piece.first + stop))
            )
        if stop < len(keys):
            queue[0] = (piece, stop)
            break
        queue.popleft()
    return parts


class _Range(SignedLeaf):
    def __init__(self, node: Windowed, window: Range) -> None:
        super().__init__(node.schema)
        self._input, self._window, self._queue = node.input, window, _Queue()

    def read(self, inputs: Sequence[pa.RecordBatch], span: Span) -> Signed:
        batch = inputs[self._input]
        time = raw_values(batch.column(TIME), np.int64)
        slide, grain = self._window.slide, self._window.grain
        if slide is None:
            start, end = time, round_up(time + max(self._window.length, grain), grain)
        else:
            start, end = (round_up(round_up(times, slide), grain) for times in (time, time + self._window.length))
        self._queue.add(batch.select(self.schema.names), start, end)
        return self._queue.until(self.schema, span.clock)


class _Rows(SignedLeaf):
    """Keys are ranks: the number of tuples of the stream before the one at which a tuple appears or ends."""

    def __init__(self, node: Windowed, window: Rows) -> None:
        super().__init__(node.schema)
        self._input, self._window, self._queue = node.input, window, _Queue()
        self._seen = 0

    def read(self, inputs: Sequence[pa.RecordBatch], span: Span) -> Signed:
        batch, ticks = inputs[self._input], inputs[self._window.ticks]
        times = raw_values(ticks.column(TIME), np.int64)
        rank = self._seen + _ranks(batch, ticks)
        count, slide = self._window.count, self._window.slide
        appears, goes = rank, rank + count
        if slide > 1:
            appears, goes = (rank // slide + 1) * slide - 1, ((rank + count) // slide + 1) * slide - 1
        self._queue.add(batch.select(self.schema.names), appears, goes)
        events = self._queue.until(self.schema, self._seen + len(times))
        signed = Signed(events.rows, times[events.time - self._seen], events.plus, events.tag)
        self._seen += len(times)
        return signed


def _ranks(batch: pa.RecordBatch, ticks: pa.RecordBatch) -> np.ndarray:
    """Return the positions of a bucket's records among those of the whole stream, both in (time, offset) order."""
    if batch.num_rows == ticks.num_rows:
        return np.arange(batch.num_rows)
    order = np.argsort(raw_values(ticks.column(OFFSET), np.int64))
    offsets = raw_values(ticks.column(OFFSET), np.int64)[order]
    return order[np.searchsorted(offsets, raw_values(batch.column(OFFSET), np.int64))]


class _Unbounded(SignedLeaf):
    def __init__(self, node: Windowed) -> None:
        super().__init__(node.schema)
        self._input, self._next = node.input, 0

    def read(self, inputs: Sequence[pa.RecordBatch], span: Span) -> Signed:
        batch = inputs[self._input]
        tags = np.arange(self._next, self._next + batch.num_rows)
        self._next += batch.num_rows
        plus = np.ones(batch.num_rows, np.bool_)
        return Signed(batch.select(self.schema.names), raw_values(batch.column(TIME), np.int64), plus, tags)


# ---------------------------------------------------------------------------------------------------- simple and slow


class _Partition(SignedLeaf):
    """A list of tuples per key."""

    def __init__(self, node: Windowed, window: Partition) -> None:
        super().__init__(node.schema)
        self._node, self._window = node, window
        self._next = 0
        self._rows = pa.RecordBatch.from_pylist([], schema=node.schema)
        self._tags: list[int] = []
        self._came: defaultdict[bytes, int] = defaultdict(int)
        self._members: defaultdict[bytes, deque[tuple[int, int, bool]]] = defaultdict(deque)

    def read(self, inputs: Sequence[pa.RecordBatch], span: Span) -> Signed:
        batch = inputs[self._node.input]
        times = raw_values(batch.column(TIME), np.int64).tolist()
        keys = row_bytes(encode([batch.column(name) for name in self._window.keys], batch.num_rows))
        through = [True] * batch.num_rows if self._node.where is None else batch.column(self._node.where).to_pylist()
        rows = pa.concat_batches([self._rows, batch.select(self.schema.names)])
        self._tags += range(self._next, self._next + batch.num_rows)
        self._next += batch.num_rows
        position = {tag: at for at, tag in enumerate(self._tags)}
        events: list[tuple[int, int, bool]] = []
        for row, (time, key) in enumerate(zip(times, keys)):
            members, rank = self._members[key], self._came[key]
            self._came[key] += 1
            members.append((rank, self._next - batch.num_rows + row, bool(through[row])))
            if (rank + 1) % self._window.slide:
                continue
            while members[0][0] <= rank - self._window.count:
                old, tag, lets = members.popleft()
                if lets and old <= rank - self._window.slide:  # it has appeared
                    events.append((tag, time, False))
            events += [(tag, time, True) for old, tag, lets in members if lets and old > rank - self._window.slide]
        tags = np.array([tag for tag, _, _ in events], np.int64)
        signed = Signed(
            rows.take(pa.array([position[tag] for tag in tags.tolist()], pa.int64())),
            np.array([time for _, time, _ in events], np.int64),
            np.array([plus for _, _, plus in events], np.bool_),
            tags,
        )
        alive = sorted(tag for members in self._members.values() for _, tag, _ in members)
        self._rows = rows.take(pa.array([position[tag] for tag in alive], pa.int64()))
        self._tags = alive
        return signed


class _Lifetimes(SignedLeaf):
    """The first record of a row is its plus; the minus comes with its second record, or at the known end."""

    def __init__(self, node: Lifetimes) -> None:
        super().__init__(node.schema)
        self._input = node.input
        self._ending = Signed.none(node.schema)

    def read(self, inputs: Sequence[pa.RecordBatch], span: Span) -> Signed:
        batch = inputs[self._input]
        rows, time = batch.select(self.schema.names), raw_values(batch.column(TIME), np.int64)
        tag = raw_values(batch.column(ROW_ID), np.int64)
        end, known = raw_values(batch.column(VALID_TO), np.int64), validity(batch.column(VALID_TO))
        first = raw_values(batch.column(VALID_FROM), np.int64) == time
        ahead = first & (known if len(known) else True)
        events = Signed(rows, time, first, tag)
        ending = Signed(rows, end, np.zeros(len(first), np.bool_), tag).where(ahead)
        ending = self._ending.then(ending).sorted()
        self._ending = ending.where(ending.time >= span.clock)
        return ending.where(ending.time < span.clock).merged(events)


class _Changes(SignedLeaf):
    """A minus gets the tag of the oldest equal row; it is ignored if there is none."""

    def __init__(self, node: Changes) -> None:
        super().__init__(node.schema)
        self._input, self._next = node.input, 0
        self._there: defaultdict[bytes, deque[int]] = defaultdict(deque)

    def read(self, inputs: Sequence[pa.RecordBatch], span: Span) -> Signed:
        batch = inputs[self._input]
        rows = batch.select(self.schema.names)
        added = batch.column(ADDED).to_pylist()
        tags = np.full(batch.num_rows, -1)
        for row, key in enumerate(row_bytes(encode(rows.columns, rows.num_rows))):
            if added[row]:
                tags[row] = self._next
                self._there[key].append(self._next)
                self._next += 1
            elif self._there[key]:
                tags[row] = self._there[key].popleft()
        time = raw_values(batch.column(TIME), np.int64)
        return Signed(rows, time, np.array(added, np.bool_), tags).where(tags >= 0)
