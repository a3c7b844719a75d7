"""Leaves that read a relation from a stream: the output of another query, or declared changes (`+` and `-`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.errors import DeclarationError, Mistake
from hayase.core.keys import KeyIndex, check_key_type, encode, hashes, raw_values, validity
from hayase.core.reasons import Reason, ReasonKind
from hayase.core.stages import OFFSET, TIME, FailedRows, Stateless
from hayase.lifetimes.expiry import end_order
from hayase.lifetimes.leaves import take_rows
from hayase.lifetimes.plans import ADDED, ROW_ID, VALID_FROM, VALID_TO, Changes, Lifetimes
from hayase.lifetimes.relations import OPEN, Delta, Span, Step
from hayase.lifetimes.slot_columns import grown
from hayase.lifetimes.tuples import OneStore, TupleStore

__all__ = ["DeclaredChanges", "DeclaredLifetimes"]

_FEW = 1024
"""Fewer keys without rows than this are not dropped."""


class DeclaredLifetimes(Stateless):
    """Reads the output stream of another query. A record has the end of its row, or a second one with the same id has it."""

    def __init__(self, node: Lifetimes) -> None:
        self.schema = node.schema
        self._input = node.input

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> Step:
        """Return the rows that appear, with their ends as far as the step has them, and the ends of earlier rows."""
        batch = batches[self._input]
        time, id = raw_values(batch.column(TIME), np.int64), raw_values(batch.column(ROW_ID), np.int64)
        first = raw_values(batch.column(VALID_FROM), np.int64) == time
        rows, ending = np.flatnonzero(first), np.flatnonzero(~first)
        end = raw_values(batch.column(VALID_TO), np.int64)[rows]
        known = validity(batch.column(VALID_TO))
        if len(known):
            end = np.where(known[rows], end, OPEN)
        start, ids, closed = time[rows], id[rows], id[ending]
        earlier = np.ones(len(ending), np.bool_)
        if len(ending) and len(rows):
            order = np.argsort(ids)
            at = order[np.minimum(np.searchsorted(ids, closed, sorter=order), len(ids) - 1)]
            earlier = ids[at] != closed
            end = end.copy()
            end[at[~earlier]] = time[ending[~earlier]]
        real = start < end
        if not real.all():
            rows, start, end, ids = rows[real], start[real], end[real], ids[real]
        appearing = take_rows(batch.select(self.schema.names), rows)
        return Step(Delta(appearing, start, end, ids, closed[earlier], time[ending[earlier]]))


class DeclaredChanges(OneStore):
    """Reads a stream of changes in log order: `+` adds a row, `-` ends the oldest equal row.

    State: the live rows. Each distinct row has a queue of them; empty queues are dropped when they are the majority.
    """

    def __init__(self, node: Changes) -> None:
        mistakes = []
        for field in node.schema:
            try:
                check_key_type(field.type)
            except DeclarationError:
                message = f'rows with the column "{field.name}", a {field.type}, cannot be compared and removed'
                mistakes.append(Mistake(message, "declare the relation without it"))
        if mistakes:
            raise DeclarationError(mistakes)
        self.schema = node.schema
        self._input = node.input
        self._store = TupleStore(node.schema)
        self._index = KeyIndex()
        self._queues = np.full((0, 2), -1, np.int64)
        self._following = np.empty(0, np.int64)
        self._filled = 0

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> Step:
        """Return the rows that appear, with their ends if the step has them, and the ends of earlier rows."""
        from hayase.lifetimes import leaves_loops

        self._settle(span.since)
        store, batch = self._store, batches[self._input]
        time, offset = raw_values(batch.column(TIME), np.int64), raw_values(batch.column(OFFSET), np.int64)
        rows = batch.select(self.schema.names)
        added = pc.fill_null(batch.column(ADDED), False).to_numpy(zero_copy_only=False)
        new = np.flatnonzero(added)
        added_rows, start, id = take_rows(rows, new), time[new], offset[new]
        slots = np.full(len(time), -1, np.int64)
        slots[new] = store.add(added_rows, start, np.full(len(new), OPEN), id)
        keys = self._keys(rows, len(time))
        taken = np.empty(len(time), np.int64)
        self._filled += leaves_loops.take_away(self._queues, self._following, keys, slots, taken)
        minus = np.flatnonzero(taken >= 0)
        ended = taken[minus]
        ids, earlier = store.id[ended], store.start[ended] < span.since
        store.close(ids, time[minus])
        end = store.end[slots[new]]
        store.release(store.expire(span.clock))
        real = np.flatnonzero(start < end)
        delta = Delta(take_rows(added_rows, real), start[real], end[real], id[real], ids[earlier], time[minus][earlier])
        state = store.changes()
        self._forget()
        return Step(delta, state, _without_partner(rows, offset, np.flatnonzero(taken == -1)))

    def _keys(self, rows: pa.RecordBatch, count: int) -> np.ndarray:
        """Return the key of every row; new keys get an empty queue."""
        encoded = encode(rows.columns, count)
        keys = self._index.slots(encoded, hashes(encoded))
        known = len(self._queues)
        if len(self._index) > known:
            self._queues = grown(self._queues, len(self._index))
            self._queues[known:] = -1
        self._following = grown(self._following, self._store.capacity)
        return keys

    def _settle(self, since: int) -> None:
        """Update the queues with restored rows. A row that ended meanwhile was the oldest of its queue."""
        from hayase.lifetimes import leaves_loops

        added, removed = self._store.settle(since)
        if len(removed):
            keys = self._keys(self._store.take(removed), len(removed))
            self._filled -= leaves_loops.drop_first(self._queues, self._following, keys)
            self._store.release(removed)
        if len(added):
            added = added[end_order(self._store.start[added], self._store.id[added])]
            keys = self._keys(self._store.take(added), len(added))
            self._filled += leaves_loops.join_queue(self._queues, self._following, keys, added)

    def _forget(self) -> None:
        """Drop keys without rows when they are the majority."""
        if len(self._index) > 2 * self._filled + _FEW:
            kept = np.flatnonzero(self._queues[: len(self._index), 0] >= 0)
            self._index.keep(kept)
            self._queues = self._queues[kept]


def _without_partner(rows: pa.RecordBatch, offset: np.ndarray, lost: np.ndarray) -> list[FailedRows]:
    """Return the changes that remove a row which does not exist."""
    if not len(lost):
        return []
    reason = Reason(ReasonKind.CHANGE, "there is no such row to remove")
    return [FailedRows(take_rows(rows, lost), [reason] * len(lost), offset[lost])]
