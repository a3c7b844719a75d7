"""Rows of a query whose lifetimes touch a range of event time, for a timeline: all of them, or a sample of millions.

Of more rows than are asked for, one half are the longest in the range, which are most of what can be seen; the others are chosen
by a hash of their ids, so that short ones are shown where they are. Records of a stream are instants and are all chosen by hash.
The density counts all rows. Only the lifetimes of a record are looked at before it is chosen; they are mapped from the log's
files, not copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.times import BEGINNING
from hayase.engine.results.lifespans import OPEN, Integers, Lifespans, fold, lifespans
from hayase.engine.results.query_results import Results
from hayase.streams import Index, event_times
from hayase.streams.repeats import first_pieces, first_rows

__all__ = ["LifetimeSample", "Timeline"]

LOOKED_AT = 20_000_000
"""Records that are looked at for one answer: the newest ones of the range."""
_ODD = np.uint64(0x9E3779B97F4A7C15)
_FIELDS = ("row_id", "start", "end", "changed_at")

_Piece = tuple[Lifespans, pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class LifetimeSample:
    """Rows with start and end in microseconds, OPEN for an end that is not in the range, in the order of their starts.
    `matching` counts all rows of the range, `density` those at the begin of each bin, or the records in each bin of a stream."""

    rows: pa.Table
    starts: Integers
    ends: Integers
    matching: int
    complete: bool
    density: Integers


@dataclass(frozen=True, slots=True)
class Timeline(Results):
    """The results of a query as bars over event time."""

    def bounds(self) -> tuple[int, int] | None:
        """Return the earliest instant of a record, and the first instant that is not final; None if nothing is final."""
        return self._consistent(self._bounds)

    def _bounds(self, index: Index) -> tuple[int, int] | None:
        final = self._latest(index)
        if final is None or not index.entries:
            return None
        first = next(self._pieces(index.start, min(index.start + 1000, index.next)), None)
        begin = final if first is None else int(first[0].changed_at.min(initial=final))
        return min(begin, final), final + 1

    def sample(self, start: int, end: int, limit: int, bins: int) -> LifetimeSample:
        """Return at most `limit` of the rows that are valid at some instant of [start, end)."""
        return self._consistent(lambda index: self._sample(index, start, end, limit, bins))

    def times(self, instants: Integers) -> list[Any]:
        """Return instants in the type of the query's times; OPEN becomes None."""
        return list(self._times(instants).to_pylist())

    def _sample(self, index: Index, start: int, end: int, limit: int, bins: int) -> LifetimeSample:
        first, next_, complete = _offsets(index, start, end)
        pieces = [*self._valid_before(index, start), *self._pieces(max(first, index.start), next_)]
        happened, spans = _before(_joined(pieces), end)
        if self.log.declaration.lifetimes:
            places, ends = fold(spans)
            _, unique = np.unique(
                spans.row_id[places], return_index=True
            )  # a row may be valid before and in the log too
            places, ends = places[unique], ends[unique]
            touching = (ends > start) & (ends > spans.start[places])
        else:
            places, ends = np.arange(len(happened)), spans.end
            touching = spans.start >= start
        places, ends = places[touching], ends[touching]
        starts = spans.start[places]
        seen = np.minimum(ends, end) - np.maximum(starts, start)
        longest = limit // 2 if self.log.declaration.lifetimes else 0
        chosen = _chosen(spans.row_id[places], seen, longest, limit)
        chosen = chosen[np.argsort(starts[chosen], kind="stable")]
        edges = start + (np.arange(bins + 1) * (end - start)) // bins
        return LifetimeSample(
            rows=self._rows(pieces, happened[places[chosen]]),
            starts=starts[chosen],
            ends=ends[chosen],
            matching=len(places),
            complete=complete,
            density=_density(starts, ends, edges) if self.log.declaration.lifetimes else np.histogram(starts, edges)[0],
        )

    def _valid_before(self, index: Index, start: int) -> list[_Piece]:
        """Return the rows of a relation that are valid just before the range. Records of the range supply their ends."""
        if not self.log.declaration.lifetimes or start <= BEGINNING + 1:
            return []
        batches = self._valid(index, start - 1).to_batches()
        return [(lifespans(batch, self.log.declaration), batch) for batch in batches]

    def _pieces(self, first: int, next_: int) -> Iterator[_Piece]:
        declaration = self.log.declaration
        if first >= next_:
            return
        if declaration.lifetimes:
            for batch in first_rows(self.log, first, next_):
                yield lifespans(batch, declaration), batch
            return
        for piece in first_pieces(
            self.log, first, next_
        ):  # a record of a stream is known by its offset, and never ends
            times = event_times(piece.rows, declaration)
            offsets = np.arange(piece.first, piece.first + len(times))
            yield Lifespans(offsets, times, np.full(len(times), OPEN), times), piece.rows

    def _rows(self, pieces: list[_Piece], places: Integers) -> pa.Table:
        """Return the columns of the query for rows by their places among all pieces."""
        begins = np.cumsum([0, *(len(spans.row_id) for spans, _ in pieces)])
        order = np.argsort(places, kind="stable")
        ordered = places[order]
        cuts = np.searchsorted(ordered, begins)
        batches = [
            batch.take(pa.array(ordered[cut:stop] - begin))
            for (_, batch), cut, stop, begin in zip(pieces, cuts, cuts[1:], begins)
            if cut < stop
        ]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        rows = pa.Table.from_batches(batches, schema=self.log.declaration.arrow_schema).take(pa.array(back))
        return self._own(rows) if self.log.declaration.lifetimes else self.log.declaration.shown(rows)


def _offsets(index: Index, start: int, end: int) -> tuple[int, int, bool]:
    """Return the offsets of the records that can have happened in the range, and whether these are all of them."""
    first, next_, clock = index.next, index.start, BEGINNING
    for entry in index.entries:
        if clock >= end:  # all later records are after the range
            break
        if entry.running_max >= start:
            first = min(first, entry.first)
        next_ = entry.next
        clock = max(clock, entry.clock)
    first = min(first, next_)
    return max(first, next_ - LOOKED_AT), next_, next_ - first <= LOOKED_AT


def _joined(pieces: list[_Piece]) -> Lifespans:
    arrays = ([getattr(spans, name) for spans, _ in pieces] for name in _FIELDS)
    return Lifespans(*(np.concatenate(parts) if parts else np.empty(0, np.int64) for parts in arrays))


def _before(spans: Lifespans, end: int) -> tuple[Integers, Lifespans]:
    """Return the places of the records that happened before `end`, and these records."""
    happened = np.flatnonzero(spans.changed_at < end)
    return happened, Lifespans(*(getattr(spans, name)[happened] for name in _FIELDS))


def _chosen(ids: Integers, lengths: Integers, longest: int, limit: int) -> Integers:
    """Return the positions of `limit` rows: the `longest`, and of the others those whose ids have the least hashes."""
    if len(ids) <= limit:
        return np.arange(len(ids))
    hashes = ids.astype(np.uint64) * _ODD
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _ODD
    by_length = np.argpartition(-lengths, longest)
    others = by_length[longest:]
    by_hash = np.argsort(hashes[others], kind="stable")[: limit - longest]
    return np.concatenate([by_length[:longest], others[by_hash]])


def _density(starts: Integers, ends: Integers, edges: Integers) -> Integers:
    """Return how many rows are valid at each edge but the last."""
    begun = np.searchsorted(np.sort(starts), edges[:-1], side="right")
    return begun - np.searchsorted(np.sort(ends), edges[:-1], side="right")
