"""Blocks of a row window with a slide: the records of a group are held back until their block of `slide` records is full.

Such a window moves only when a block is full, and then its whole block appears at once. An operator that must see the records
of a window in the order in which they appear reads them through `RowBlocks`.

Order: (time, offset).   Per step: a sort of its records by group, and a scan of the groups of the records that are held back.
State: "held", the records of blocks that are not full, fewer than `slide` per group. The position of a record in its block
follows from their number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hayase.core.keys import KeyIndex, encode, hashes, raw_values
from hayase.core.stages import OFFSET, TIME, Tuples
from hayase.lifetimes.leaves import take_rows
from hayase.lifetimes.relations import OPEN, Span
from hayase.lifetimes.slot_columns import grown
from hayase.lifetimes.tuples import END, ID, START, TupleStore

__all__ = ["RowBlocks"]


class RowBlocks:
    """Holds records back until their block is full; a block has `slide` consecutive records with equal `keys`."""

    def __init__(self, keys: Sequence[str], columns: Sequence[str], slide: int) -> None:
        """`columns` are those that are passed on, with TIME and OFFSET; they include the keys."""
        self._keys, self._columns, self._slide = list(keys), list(columns), slide
        self._index = KeyIndex()
        self._counts = np.zeros(0, np.int64)  # the records that are held back, by group
        self._groups = np.zeros(0, np.int64)  # the groups of these records by slot of the store; -1 for a free slot
        self._held: TupleStore | None = None

    def advance(self, batch: pa.RecordBatch, span: Span) -> tuple[pa.RecordBatch, list[Tuples]]:
        """Return the records, of this step and earlier ones, whose block has become full, in (time, offset) order, and the
        change of the state."""
        rows = batch.select(self._columns)
        held = self._store(rows.schema)
        self._settle(held, span.since)
        time, offset = raw_values(batch.column(TIME), np.int64), raw_values(batch.column(OFFSET), np.int64)
        groups = self._numbered(rows)
        present = np.unique(groups)
        before = self._counts[present]
        total = before + np.bincount(groups, minlength=len(self._counts))[present]
        in_full = total // self._slide * self._slide
        self._counts[present] = total - in_full
        ready, limit = np.zeros(len(self._counts), np.bool_), np.zeros(len(self._counts), np.int64)
        ready[present], limit[present] = in_full > 0, in_full - before
        now = _ranks(groups) < limit[groups]
        fields = [*rows.schema, batch.schema.field(TIME), batch.schema.field(OFFSET)]
        earlier = self._release(held, np.flatnonzero(ready), span.clock, pa.schema(fields))
        self._hold(held, take_rows(rows, np.flatnonzero(~now)), time[~now], offset[~now], groups[~now])
        full = take_rows(batch.select(earlier.schema.names), np.flatnonzero(now))
        if earlier.num_rows:
            full = pa.concat_batches([earlier, full])
        return full, held.changes()

    def _store(self, schema: pa.Schema) -> TupleStore:
        """Return the store, which is created once the types of the columns are known."""
        if self._held is None:
            self._held = TupleStore(pa.schema([pa.field(field.name, field.type) for field in schema]), "held")
        return self._held

    def _settle(self, held: TupleStore, since: int) -> None:
        """Load restored records, and drop those that another worker has passed on."""
        added, removed = held.settle(since)
        if len(removed):
            np.subtract.at(self._counts, self._groups[removed], 1)
            self._place(removed, np.full(len(removed), -1))
            held.release(removed)
        if len(added):
            groups = self._numbered(held.take(added))
            np.add.at(self._counts, groups, 1)
            self._place(added, groups)

    def _numbered(self, rows: pa.RecordBatch) -> np.ndarray:
        """Return the group of each record; new groups get a number."""
        encoded = encode([rows.column(name) for name in self._keys], rows.num_rows)
        groups = self._index.slots(encoded, hashes(encoded))
        known = len(self._counts)
        if len(self._index) > known:
            self._counts = grown(self._counts, len(self._index))
            self._counts[known:] = 0
        return groups

    def _place(self, slots: np.ndarray, groups: np.ndarray) -> None:
        """Note the groups of slots of the store."""
        known, needed = len(self._groups), int(slots.max(initial=-1)) + 1
        if needed > known:
            self._groups = grown(self._groups, needed)
            self._groups[known:] = -1
        self._groups[slots] = groups

    def _release(self, held: TupleStore, ready: np.ndarray, clock: int, schema: pa.Schema) -> pa.RecordBatch:
        """Take all records of some groups out of the store, and return them in (time, offset) order."""
        chosen = np.zeros(len(self._counts) + 1, np.bool_)  # the last one is for free slots, whose group is -1
        chosen[ready] = True
        slots = np.flatnonzero(chosen[self._groups])
        slots = slots[np.lexsort((held.id[slots], held.start[slots]))]
        time, offset = held.start[slots], held.id[slots]
        times = [pa.array(array).cast(schema.field(name).type) for name, array in ((TIME, time), (OFFSET, offset))]
        rows = pa.RecordBatch.from_arrays([*held.take(slots).columns, *times], schema=schema)
        held.close(offset, np.full(len(slots), clock - 1))
        held.release(held.expire(clock))
        self._place(slots, np.full(len(slots), -1))
        return rows

    def _hold(
        self, held: TupleStore, rows: pa.RecordBatch, time: np.ndarray, offset: np.ndarray, groups: np.ndarray
    ) -> None:
        """Keep records whose block is not full."""
        if len(groups):
            self._place(held.add(rows, time, np.full(len(time), OPEN), offset), groups)

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Load records that are held back."""
        self._store(_without_lifetime(rows.schema)).restore(rows, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the rows of records that are still held back."""
        return self._store(_without_lifetime(rows.schema)).live(rows, version)

    def size(self, section: str) -> int:
        """Return the number of records that are held back."""
        return 0 if self._held is None else self._held.size()


def _without_lifetime(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name not in (START, END, ID)])


def _ranks(groups: np.ndarray) -> np.ndarray:
    """Return the position of each row among the rows of its group."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else ordered
    ranks = np.empty(len(groups), np.int64)
    ranks[order] = np.arange(len(groups)) - np.repeat(first, np.diff(np.append(first, len(groups))))
    return ranks
