"""The partitioned row window: a tuple is alive until N later tuples with equal keys have come.

Order: (time, columns of Order By, offset).   Per tuple: O(1), one pass over the step.   State: the keys, id and number within
its partition of each tuple that is alive or has not appeared yet; the newest tuples of a partition are always alive, so its
count follows from them. Values are kept only while a slide delays a tuple. Space: about 64 bytes and the keys per partition,
32 bytes per live tuple; it does not depend on the size of the window.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.keys import KeyIndex, check_key_type, encode, hashes, raw_values
from hayase.core.stages import OFFSET, TIME, Tuples
from hayase.lifetimes.leaves import take_rows
from hayase.lifetimes.plans import Partition, Windowed
from hayase.lifetimes.relations import OPEN, Delta, Span, Step
from hayase.lifetimes.slot_columns import grown
from hayase.lifetimes.tuples import ID, TupleStore

__all__ = ["PartitionWindow"]

_MEMBERS, _NUMBER = "members", "__number"


class PartitionWindow:
    """The operator of `Partition By ... Rows N Slide S`. Ids are offsets; a tuple that WHERE rejects has a negative id."""

    def __init__(self, node: Windowed, window: Partition) -> None:
        self.schema = node.schema
        for name in window.keys:
            if name in node.schema.names:
                check_key_type(node.schema.field(name).type)
        self._node, self._window = node, window
        self._index = KeyIndex()
        self._keys = np.zeros((0, 4), np.int64)
        self._members = np.empty((0, 4), np.int64)
        self._free = -1
        self._held = 0
        self._rows_before = self._places_before = 0
        self._restored: list[pa.RecordBatch] = []
        self._waiting = TupleStore(node.schema, "waiting")

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> Step:
        """Process a step: every tuple enters its partition and ends the oldest one."""
        from hayase.lifetimes import leaves_loops

        self._take_up()
        self._waiting.release(self._waiting.settle(span.since)[1])
        batch, window = batches[self._node.input], self._window
        count = batch.num_rows
        if window.order and count > 1:
            from hayase.lifetimes.order_keys import places_in_order

            batch = take_rows(batch, places_in_order(batch, raw_values(batch.column(TIME), np.int64), window.order))
        time, ids = raw_values(batch.column(TIME), np.int64), self._ids(batch)
        keys = [batch.column(name) for name in window.keys]
        slots = self._slots(keys, count)
        self._make_room(count)
        most = min(self._held + count, count * window.slide)
        numbers, settled = np.empty(count, np.int64), np.zeros(count, np.uint8)
        appeared, closed, withdrawn = (np.empty((most, width), np.int64) for width in (4, 2, 1))
        appearing, closing, withdrawing, self._free, self._held = leaves_loops.move_partitions(
            self._keys, self._members, self._free, self._held, self._rows_before, self._places_before,
            window.count, window.slide, slots, time, ids, numbers, appeared, closed, withdrawn[:, 0], settled,
        )  # fmt: skip
        self._rows_before += count
        self._places_before += appearing
        appeared, closed = appeared[:appearing], closed[:closing]
        rows, positions = batch.select(self.schema.names), appeared[:, 0]
        if window.slide > 1:
            still = np.flatnonzero((settled == 0) & (ids >= 0))
            rows, positions = self._with_waiting(rows, appeared, withdrawn[:withdrawing, 0], span)
            self._hold_back(batch, time, ids, still)
        real = np.flatnonzero(appeared[:, 2] < appeared[:, 3])
        id, start, end = (appeared[real, at] for at in (1, 2, 3))
        delta = Delta(take_rows(rows, positions[real]), start, end, id, closed[:, 0].copy(), closed[:, 1].copy())
        alive = np.flatnonzero(numbers >= self._keys[slots, 0] - self._keys[slots, 1])
        return Step(delta, [*_written(keys, ids, numbers, alive), *self._waiting.changes()])

    def _with_waiting(
        self, rows: pa.RecordBatch, appeared: np.ndarray, withdrawn: np.ndarray, span: Span
    ) -> tuple[pa.RecordBatch, np.ndarray]:
        """Return the delayed rows that appear now followed by the step's rows, and the position there of each row that
        appears. Delayed rows that will never appear are dropped."""
        waiting, waited = self._waiting, np.flatnonzero(appeared[:, 0] < 0)
        slots = waiting.close(appeared[waited, 1], appeared[waited, 2])
        rows = pa.concat_batches([waiting.take(slots), rows])
        positions = appeared[:, 0] + len(slots)
        positions[waited] = np.arange(len(slots))
        waiting.close(withdrawn.copy(), np.full(len(withdrawn), span.since))
        waiting.release(waiting.expire(span.clock))
        return rows, positions

    def _hold_back(self, batch: pa.RecordBatch, time: np.ndarray, ids: np.ndarray, rows: np.ndarray) -> None:
        """Keep the values of tuples that have not appeared yet."""
        if len(rows):
            delayed = take_rows(batch.select(self.schema.names), rows)
            self._waiting.add(delayed, time[rows], np.full(len(rows), OPEN), ids[rows])

    def _ids(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return the ids of tuples: offsets, or -1 - offset for tuples that are counted but rejected by WHERE."""
        offset = raw_values(batch.column(OFFSET), np.int64)
        if self._node.where is None:
            return offset
        through = pc.fill_null(batch.column(self._node.where), False).to_numpy(zero_copy_only=False)
        return np.where(through, offset, -1 - offset)

    def _slots(self, keys: Sequence[pa.Array], count: int) -> np.ndarray:
        """Return the partition of every row; new partitions get a line in `_keys`."""
        encoded = encode(keys, count)
        slots = self._index.slots(encoded, hashes(encoded))
        known = len(self._keys)
        if len(self._index) > known:
            self._keys = grown(self._keys, len(self._index))
            self._keys[known:] = 0
        return slots

    def _make_room(self, count: int) -> None:
        """Make room for `count` more members."""
        known = len(self._members)
        if self._held + count > known:
            self._members = grown(self._members, self._held + count)
            self._members[known:, 1] = np.arange(known + 1, len(self._members) + 1)
            self._members[-1, 1] = self._free
            self._free = known

    def _take_up(self) -> None:
        """Add restored tuples that are not known to their partitions, in order."""
        if not self._restored:
            return
        from hayase.lifetimes import leaves_loops

        rows = pa.Table.from_batches(self._restored).combine_chunks().to_batches()[0]
        self._restored = []
        slots = self._slots(rows.columns[:-2], rows.num_rows)
        ids, numbers = (raw_values(rows.column(name), np.int64) for name in (ID, _NUMBER))
        order = np.lexsort((numbers, slots))
        self._make_room(len(order))
        self._free, self._held = leaves_loops.put_back(
            self._keys, self._members, self._free, self._held, self._window.count, self._window.slide,
            slots[order], ids[order], numbers[order],
        )  # fmt: skip

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Load members of partitions, or delayed tuples."""
        if section == self._waiting.section:
            self._waiting.restore(rows, version)
        elif rows.num_rows:
            self._restored.append(rows)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the rows of live members, or of tuples that are still delayed."""
        if section == self._waiting.section:
            return self._waiting.live(rows, version)
        self._take_up()
        slots = self._slots(rows.columns[:-2], rows.num_rows)
        numbers = raw_values(rows.column(_NUMBER), np.int64)
        return rows.filter(pa.array(numbers >= self._keys[slots, 0] - self._keys[slots, 1]))

    def size(self, section: str) -> int:
        """Return the number of members or of delayed tuples."""
        return self._waiting.size() if section == self._waiting.section else self._held


def _written(keys: Sequence[pa.Array], ids: np.ndarray, numbers: np.ndarray, alive: np.ndarray) -> list[Tuples]:
    """Return the log rows of new members that are alive at the end of the step."""
    if not len(alive):
        return []
    named = {f"key_{at}": column for at, column in enumerate(keys)}
    return [Tuples(_MEMBERS, take_rows(pa.record_batch(named | {ID: ids, _NUMBER: numbers}), alive))]
