"""The tuple store: the live tuples of an interval relation by slot, with their ends, and the log of its state.

A slot is a number that a tuple keeps while it is in the store and that is reused afterwards. Slots are dense, so that an
operator can keep arrays of its own by slot. Results must not depend on slots: after a restore a tuple may have another.

A tuple with a known end is in an expiry queue; one with an open end is found by its id when it is closed (the id is paper
1's expiry holder). The log has a tuple once, written at the end of the step in which it came if it is still alive then.
When an open tuple ends, a tombstone follows. A tuple with a known end needs none: the clock removes it.

A step of an operator with a store:

    added, removed = store.settle(span.since)      # after a restore: index `added`; unindex and release `removed`
    slots = store.add(delta.rows, delta.start, delta.end, delta.id)
    store.close(delta.closed, delta.closed_end)
    gone = store.expire(span.clock)                # in the order of (end, id); still readable
    store.release(gone)
    return Step(..., store.changes())

`advance` is add, close and expire in one; tuples that end within their own step do not go through the queue.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.data_classes import dataclass
from hayase.core.keys import raw_values
from hayase.core.scratch import scratch
from hayase.core.stages import Tuples
from hayase.core.times import BEGINNING
from hayase.lifetimes.expiry import ExpiryQueue, end_order
from hayase.lifetimes.relations import OPEN, Delta
from hayase.lifetimes.slot_columns import grown, slotted_column
from hayase.lifetimes.state_registers import check_section

__all__ = ["END", "ID", "START", "IdMap", "OneStore", "Passage", "TupleStore", "take_or_nulls"]

START, END, ID = "__start", "__end", "__id"
"""int64 columns of a store's section, after those of its schema. In a tombstone the start equals the end."""

_NONE = np.empty(0, np.int64)
_SPARSE = 16
"""If ids are farther apart than this on average, they are hashed."""


class IdMap:
    """A map from ids to slots, both int64; slots are not negative.

    Dense ids, such as the numbers of a row window, are in a ring addressed by their low bits: about 16 bytes per id and no
    search. Sparse ids are in a hash table at about 32 bytes each; a map that has switched to hashing keeps to it.
    """

    __slots__ = ("_count", "_high", "_low", "_ring", "_table")

    def __init__(self) -> None:
        self._ring: np.ndarray | None = np.zeros(64, np.int64)
        self._low = self._high = 0  # ids in the ring are in [low, high)
        self._table = np.zeros((64, 2), np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def enter(self, ids: np.ndarray, slots: np.ndarray) -> None:
        """Add ids; an id that is in the map gets the new slot."""
        if not len(ids):
            return
        ring = self._roomy(int(ids.min()), int(ids.max()) + 1, len(ids))
        if ring is None:
            self._hash(ids, slots)
            return
        from hayase.lifetimes import tuples_loops

        self._count += tuples_loops.ring_enter(ring, ids, slots)

    def look_up(self, ids: np.ndarray) -> np.ndarray:
        """Return the slots of ids; -1 for unknown ids."""
        if not self._count or not len(ids):
            return np.full(len(ids), -1, np.int64)
        if self._ring is not None:
            return np.where((ids >= self._low) & (ids < self._high), self._ring[ids & (len(self._ring) - 1)] - 1, -1)
        from hayase.lifetimes import tuples_loops

        slots = np.empty(len(ids), np.int64)
        tuples_loops.look_up(self._table, ids, slots)
        return slots

    def take_out(self, ids: np.ndarray) -> np.ndarray:
        """Remove distinct ids and return their slots; -1 for unknown ids."""
        if not self._count or not len(ids):
            return np.full(len(ids), -1, np.int64)
        from hayase.lifetimes import tuples_loops

        slots = np.empty(len(ids), np.int64)
        if self._ring is not None:
            self._count -= tuples_loops.ring_take_out(self._ring, self._low, self._high, ids, slots)
        else:
            self._count -= tuples_loops.take_out(self._table, ids, slots)
        return slots

    def _roomy(self, low: int, high: int, more: int) -> np.ndarray | None:
        """Return the ring, with room for ids in `[low, high)`; None if ids are too sparse for a ring."""
        if self._ring is None:
            return None
        if self._count:
            high = max(high, self._high)
            fits = high - min(low, self._low) <= len(self._ring)
            low = min(low, self._low if fits else self._lowest())
        if high - low > len(self._ring):
            held = self._held()
            slots = self._ring[held & (len(self._ring) - 1)] - 1
            if high - low > _SPARSE * (self._count + more):
                self._ring, self._count = None, 0
                self._hash(held, slots)
                return None
            self._ring = np.zeros(1 << (2 * (high - low) - 1).bit_length(), np.int64)
            self._ring[held & (len(self._ring) - 1)] = slots + 1
        self._low, self._high = low, high
        return self._ring

    def _lowest(self) -> int:
        """Return the least id in the ring, which must not be empty; ids at its low end may have been removed."""
        from hayase.lifetimes import tuples_loops

        return int(tuples_loops.ring_lowest(self._ring, self._low, self._high))

    def _held(self) -> np.ndarray:
        """Return the ids in the ring in ascending order."""
        assert self._ring is not None
        if not self._count:
            return _NONE
        ids = np.arange(self._low, self._high)
        return ids[self._ring[ids & (len(self._ring) - 1)] != 0]

    def _hash(self, ids: np.ndarray, slots: np.ndarray) -> None:
        """Add ids to the hash table."""
        if not len(ids):
            return
        from hayase.lifetimes import tuples_loops

        wanted = 2 * (self._count + len(ids))
        if wanted > len(self._table):
            held = self._table[self._table[:, 1] != 0]
            self._table = np.zeros((1 << (wanted - 1).bit_length(), 2), np.int64)
            tuples_loops.enter(self._table, held[:, 0].copy(), held[:, 1] - 1)
        self._count += tuples_loops.enter(self._table, ids, slots)


Ended = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Ends, ids and slots of tuples."""


@dataclass(frozen=True, slots=True)
class Passage:
    """The effect of a step on a store.

    `slots` are those of the new tuples. `ended` and `ends` are the slots and ends of the tuples that ended, in the order of
    (end, id); they are no longer alive, but can be read until they are released.
    """

    slots: np.ndarray
    ended: np.ndarray
    ends: np.ndarray


def ended_in_order(parts: Sequence[Ended]) -> Ended:
    """Concatenate tuples in the order of (end, id). The parts are nearly always ordered and follow each other."""
    from hayase.lifetimes import tuples_loops

    filled = sorted((part for part in parts if len(part[0])), key=lambda part: (int(part[0][0]), int(part[1][0])))
    if not filled:
        return _NONE, _NONE, _NONE
    end, id, slot = filled[0] if len(filled) == 1 else (np.concatenate(arrays) for arrays in zip(*filled))
    if tuples_loops.in_order(end, id):
        return end, id, slot
    order = end_order(end, id)
    return end[order], id[order], slot[order]


class TupleStore:
    """Live tuples of one relation in one bucket.

    Order: none needed.   Per tuple: O(1), and a logarithmic number of merges if ends come in no order.
    Space: 24 bytes and the values; 24 more for a known end, about 32 for an open one.
    """

    def __init__(self, schema: pa.Schema, section: str = "tuples", *, with_values: bool = True) -> None:
        """Without values, rows are written to the log but not kept: `take` works only for what `settle` has just added."""
        self.schema = schema
        self.section = section
        clash = [name for name in (START, END, ID) if name in schema.names]
        assert not clash, f"{clash} are the store's own"
        self._written = pa.schema(
            [*(pa.field(field.name, field.type) for field in schema)]
            + [pa.field(name, pa.int64()) for name in (START, END, ID)]
        )
        self._columns = [slotted_column(field.type) for field in schema] if with_values else []
        self._settled = pa.RecordBatch.from_pylist([], schema=schema)
        self._start = np.empty(0, np.int64)
        self._end = np.empty(0, np.int64)
        self._id = np.empty(0, np.int64)
        self._logged = np.empty(0, np.bool_)
        self._free = np.empty(0, np.int64)
        self._free_count = 0
        self._top = 0
        self._count = 0
        self._open = IdMap()
        self._queue = ExpiryQueue()
        self._clock = BEGINNING
        self._fresh: list[tuple[pa.RecordBatch, np.ndarray, np.ndarray]] = []
        self._tombs: list[tuple[np.ndarray, np.ndarray]] = []
        self._restored: list[pa.RecordBatch] = []

    def __len__(self) -> int:
        """Return the number of live tuples: added, and neither expired nor removed by `settle`."""
        return self._count

    @property
    def capacity(self) -> int:
        """The upper bound of all slots."""
        return self._top

    @property
    def start(self) -> np.ndarray:
        """Starts by slot; valid until the next `add` or `settle`."""
        return self._start[: self._top]

    @property
    def end(self) -> np.ndarray:
        """Ends by slot, OPEN where unknown; valid until the next `add` or `settle`."""
        return self._end[: self._top]

    @property
    def id(self) -> np.ndarray:
        """Ids by slot; valid until the next `add` or `settle`."""
        return self._id[: self._top]

    def add(self, rows: pa.RecordBatch, start: np.ndarray, end: np.ndarray, id: np.ndarray) -> np.ndarray:
        """Add the new tuples of a step and return their slots. If the schema has no columns, `rows` is ignored."""
        slots, _ = self._placed(rows, start, end, id, logged=False)
        if len(slots):
            self._fresh.append((rows, slots, id))
        return slots

    def close(self, ids: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Set the ends of open tuples, so that `expire` returns them, and return their slots. Unknown ids are ignored."""
        ends, ids, slots = self._closed(ids, ends)
        self._queue.push(ends, ids, slots)
        return slots

    def advance(self, rows: pa.RecordBatch, delta: Delta, clock: int) -> Passage:
        """Do `add` (with `rows` in place of the delta's), `close` and `expire` of a step at once."""
        closed = self._closed(delta.closed, delta.closed_end)
        slots, brief = self._placed(rows, delta.start, delta.end, delta.id, logged=False, clock=clock)
        if len(slots):
            self._fresh.append((rows, slots, delta.id))
        gone = self.expire(clock)
        self._count -= len(closed[2]) + brief.shape[1]
        ended = ended_in_order([(self._end[gone], self._id[gone], gone), closed, tuple(brief)])
        return Passage(slots, ended[2], ended[0])

    def expire(self, clock: int) -> np.ndarray:
        """Return the slots of all tuples that end before the clock, in the order of (end, id).

        They are no longer alive, but can be read until they are released.
        """
        slots = self._queue.pop(clock)
        self._count -= len(slots)
        self._clock = max(self._clock, clock)
        return slots

    def release(self, slots: np.ndarray) -> None:
        """Free slots that `expire` or `settle` has returned."""
        if not len(slots):
            return
        for column in self._columns:
            column.release(slots)
        self._free = grown(self._free, self._free_count + len(slots))
        self._free[self._free_count : self._free_count + len(slots)] = slots
        self._free_count += len(slots)

    def take(self, slots: np.ndarray) -> pa.RecordBatch:
        """Return the values of slots, in any order and with repetitions."""
        if not self._columns and len(self.schema):
            assert len(slots) == self._settled.num_rows, "there are no values but of what was settled"
            return self._settled
        return pa.RecordBatch.from_arrays([column.take(slots) for column in self._columns], schema=self.schema)

    def restore(self, rows: pa.RecordBatch, version: int) -> None:
        """Load tuples of the log; they are in the store after the next `settle`."""
        check_section(self.section, rows, self._written)
        if rows.num_rows:
            self._restored.append(rows)

    def settle(self, since: int) -> tuple[np.ndarray, np.ndarray]:
        """Begin a step, and return the slots that `restore` has added and removed.

        The caller indexes the added tuples, and unindexes and releases the removed ones, which ended while another worker
        ran the stage. Both are empty if nothing was restored.
        """
        removed = [self._queue.pop(since)] if since > self._clock else []
        self._clock = max(self._clock, since)
        added = _NONE
        if self._restored:
            rows = pa.Table.from_batches(self._restored).combine_chunks().to_batches()[0]
            self._restored = []
            start, end, id = (raw_values(rows.column(name), np.int64) for name in (START, END, ID))
            latest = len(id) - 1 - np.unique(id[::-1], return_index=True)[1]
            ended = latest[start[latest] == end[latest]]
            buried = self._open.take_out(id[ended])
            removed.append(buried[buried >= 0])
            latest = np.sort(latest[(start[latest] < end[latest]) & (end[latest] >= since)])
            known = end[latest] != OPEN
            there = np.empty(len(latest), np.bool_)
            there[~known] = self._open.look_up(id[latest[~known]]) >= 0
            there[known] = self._queue.has(end[latest[known]], id[latest[known]])
            new = latest[~there]
            own = rows.select(self.schema.names)
            own = own if len(new) == rows.num_rows else own.take(pa.array(new))
            added, _ = self._placed(own, start[new], end[new], id[new], logged=True)
            self._settled = own
        gone = np.concatenate(removed) if removed else _NONE
        self._count -= len(gone)
        return added, gone

    def changes(self) -> list[Tuples]:
        """Return the change of the state; to be called once, at the end of a step.

        Tuples with known ends are separate from open ones and tombstones, because the clock removes the former.
        """
        known: list[pa.RecordBatch] = []
        opened: list[pa.RecordBatch] = []
        for rows, slots, id in self._fresh:
            alive = (self._end[slots] >= self._clock) & (self._id[slots] == id)
            is_open = self._end[slots] == OPEN
            self._logged[slots[alive]] = True
            for chosen, parts in ((alive & ~is_open, known), (alive & is_open, opened)):
                if chosen.any():
                    parts.append(self._as_written(rows, slots, chosen))
        self._fresh = []
        for ids, ends in self._tombs:
            nothing = [pa.nulls(len(ids), field.type) for field in self.schema]
            arrays = [*nothing, pa.array(ends), pa.array(ends), pa.array(ids)]
            opened.append(pa.RecordBatch.from_arrays(arrays, schema=self._written))
        self._tombs = []
        result = []
        if known:
            rows = _joined(known)
            until = int(pc.max(rows.column(END)).as_py())
            result.append(Tuples(self.section, rows, until))
        if opened:
            result.append(Tuples(self.section, _joined(opened)))
        return result

    def skip_changes(self) -> list[Tuples]:
        """Call this instead of `changes` where state is never restored; nothing is written."""
        self._fresh, self._tombs = [], []
        return []

    def live(self, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the log rows of live tuples. Called with the oldest rows first, so that tombstones can be dropped."""
        start, end, id = (raw_values(rows.column(name), np.int64) for name in (START, END, ID))
        alive = (start < end) & (end >= self._clock)
        is_open = alive & (end == OPEN)
        alive[is_open] = self._open.look_up(id[is_open]) >= 0
        return rows.filter(pa.array(alive))

    def size(self) -> int:
        """Return the number of live tuples."""
        return self._count

    def _closed(self, ids: np.ndarray, ends: np.ndarray) -> Ended:
        """Set the ends of open tuples and forget their ids; return the ends, ids and slots of those that are known."""
        slots = self._open.take_out(ids)
        if len(slots) and slots.min() < 0:
            there = slots >= 0
            ids, ends, slots = ids[there], ends[there], slots[there]
        self._end[slots] = ends
        logged = self._logged[slots]
        if logged.any():
            self._tombs.append((ids[logged], ends[logged]))
        return ends, ids, slots

    def _placed(
        self,
        rows: pa.RecordBatch,
        start: np.ndarray,
        end: np.ndarray,
        id: np.ndarray,
        *,
        logged: bool,
        clock: int = BEGINNING,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Store tuples; return their slots, and lines of (end, id, slot) of those that end before the clock.

        The latter are not in the expiry queue.
        """
        from hayase.lifetimes import tuples_loops

        count = len(id)
        slots = self._allocated(count)
        if not count:
            return slots, np.empty((3, 0), np.int64)
        brief, known, opened = scratch(3, count), scratch(3, count), scratch(2, count)
        ending, knowing, opening = tuples_loops.place(
            start, end, id, slots, clock, logged, self._start, self._end, self._id, self._logged, brief, known, opened
        )
        for column, new_values in zip(self._columns, rows.columns):
            column.put(slots, new_values, self._top)
        self._queue.push(*known[:, :knowing])
        self._open.enter(*opened[:, :opening])
        self._count += count
        return slots, brief[:, :ending]

    def _allocated(self, count: int) -> np.ndarray:
        """Return free slots, then new ones."""
        reused = min(count, self._free_count)
        self._free_count -= reused
        slots = self._free[self._free_count : self._free_count + reused].copy()
        if reused < count:
            slots = np.concatenate((slots, np.arange(self._top, self._top + count - reused)))
            self._top += count - reused
            for name in ("_start", "_end", "_id", "_logged"):
                setattr(self, name, grown(getattr(self, name), self._top))
        return slots

    def _as_written(self, rows: pa.RecordBatch, slots: np.ndarray, chosen: np.ndarray) -> pa.RecordBatch:
        """Return the log rows of some of the tuples that an `add` has stored."""
        columns = rows.columns if len(self.schema) else []
        if not chosen.all():
            slots = slots[chosen]
            mask = pa.array(chosen)
            columns = [column.filter(mask) for column in columns]
        times = [pa.array(array[slots]) for array in (self._start, self._end, self._id)]
        return pa.RecordBatch.from_arrays([*columns, *times], schema=self._written)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def take_or_nulls(store: TupleStore, slots: np.ndarray) -> Sequence[pa.Array]:
    """Return the columns of tuples; NULL where the slot is negative."""
    there = slots >= 0
    if there.all():
        return store.take(slots).columns
    if not there.any():
        return [pa.nulls(len(slots), field.type) for field in store.schema]
    places = pa.array(np.cumsum(there) - 1, mask=~there)
    return store.take(slots[there]).take(places).columns


class OneStore:
    """The state methods of an operator that keeps all of its state in one store."""

    _store: TupleStore

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Load tuples of the store."""
        self._store.restore(rows, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the rows of tuples that are still in the store."""
        return self._store.live(rows, version)

    def size(self, section: str) -> int:
        """Return the number of tuples in the store."""
        return self._store.size()
