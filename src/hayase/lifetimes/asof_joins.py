"""The operator for ASOF joins: every row of the left side with the first row of the right side that it meets, at every instant.

- Cost: logarithmic in the live tuples of the key per start and end, on average, plus the left rows whose match changes. Memory is
  proportional to the live tuples.
- All ends and starts of an instant are applied before matches are compared, so a row whose match stays is not split.
- The end of a row is open when it appears, because another match may come.

The order of the right side is total: rows that are equal in all its columns are ordered by their ids. So the matches follow from
the live tuples alone; the state has these, and the ids under which they are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from hayase.core.keys import KeyIndex, encode, hashes
from hayase.core.scratch import scratch
from hayase.lifetimes.copied_tuples import Copies
from hayase.lifetimes.order_keys import order_keys
from hayase.lifetimes.plans import Asof, Order
from hayase.lifetimes.relations import Delta, Span, Step
from hayase.lifetimes.slot_columns import Texts, grown
from hayase.lifetimes.state_registers import Registers
from hayase.lifetimes.treaps import HEAD, NONE, ROOT
from hayase.lifetimes.tuples import Passage, TupleStore, take_or_nulls

__all__ = ["AsofOperator"]

UNTOUCHED, GONE = -2, -3
MATCH, COPY = range(6, 8)
"""The words of a left tuple after those of a node of a treap: the right tuple that it shows (GONE: it is not alive itself), and the
copy that shows both."""
LEFT_STARTED, LEFT_ENDED, RIGHT_STARTED, RIGHT_ENDED, OPENED, CLOSED, NOW, CHAIN = range(8)
"""The positions of a sweep: in its six lists, its instant, and the first of the left tuples touched at that instant."""

_NEXT = "next"


class AsofOperator:
    """The operator of `plans.Asof` (`relations.Operator`)."""

    def __init__(self, node: Asof) -> None:
        self.schema = node.schema
        first = node.order[0]
        own_order = (Order(node.column, first.descending, first.nulls_first),)
        self._strict, self._shows_alone = node.strict, node.kind == "left"
        self._left = _Side(
            node.left.schema, "left", [name for name, _ in node.keys], own_order, keeps_all=node.kind == "left"
        )
        self._right = _Side(node.right.schema, "right", [name for _, name in node.keys], node.order, keeps_all=False)
        self._stores = {side.store.section: side.store for side in (self._left, self._right)}
        self._keys = KeyIndex()
        self._touched = np.empty(0, np.int64)
        self._copies = Copies(self._left.store)
        self._stores[self._copies.store.section] = self._copies.store
        self._registers = Registers((_NEXT,), (0,))

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """Process a step and return the pairs that appear and end."""
        from hayase.lifetimes import asof_joins_loops

        self._settle(span.since)
        left, came = self._add(self._left, inputs[0], span.clock)
        right, met = self._add(self._right, inputs[1], span.clock)
        state = _beginning()
        room = 2 * (len(left) + len(right) + len(came.ends) + len(met.ends)) + 1
        opened, closed = scratch(4, room), scratch(2, room)
        earlier = self._copies.store.capacity
        while not asof_joins_loops.sweep(
            *self._arrays(), self._strict, self._shows_alone, self._touched, state,
            left.start, came.slots, came.ends, came.ended, right.start, met.slots, met.ends, met.ended,
            earlier, opened, closed,
        ):  # fmt: skip
            opened, closed = _doubled(opened), _doubled(closed)
        slots, matches, start, end = opened[:, : state[OPENED]]
        ended, closed_end = closed[:, : state[CLOSED]]
        first = self._registers[_NEXT]
        self._registers[_NEXT] = first + len(slots)
        columns = [*self._left.store.take(slots).columns, *take_or_nulls(self._right.store, matches)]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        ids = np.arange(first, first + len(slots))
        delta = Delta(rows, start, end, ids, self._copies.store.id[ended], closed_end)
        self._copies.keep(delta, slots, self._left.nodes[:, COPY], span.clock)
        self._release(came.ended, met.ended)
        changes = [tuples for store in self._stores.values() for tuples in store.changes()]
        return Step(delta, [*changes, *self._registers.changes(span.version)])

    def _add(self, side: _Side, delta: Delta, clock: int) -> tuple[Delta, Passage]:
        """Add a delta to a side; return the part of it that can have results, and the tuples that come and leave."""
        whole = side.whole(delta.rows)
        if whole is not None and not side.keeps_all:
            rows = delta.rows.filter(pa.array(whole))
            delta = replace(delta, rows=rows, start=delta.start[whole], end=delta.end[whole], id=delta.id[whole])
        passed = side.store.advance(delta.rows, delta, clock)
        self._index(side, passed.slots, delta.rows)
        return delta, passed

    def _index(self, side: _Side, slots: np.ndarray, rows: pa.RecordBatch) -> None:
        """Note the groups and keys of tuples that are about to enter their treaps."""
        if not len(slots):
            return
        side.put(slots, rows)
        if side is self._left:
            known = len(self._touched)
            self._touched = grown(self._touched, side.store.capacity)
            self._touched[known:] = UNTOUCHED
        whole = side.whole(rows)
        groups = np.zeros(len(slots), np.int64)
        if side.keys:
            chosen = rows if whole is None else rows.filter(pa.array(whole))
            encoded = encode([chosen.column(name) for name in side.keys], chosen.num_rows)
            groups[slice(None) if whole is None else whole] = self._keys.slots(encoded, hashes(encoded))
        if whole is not None:
            groups[~whole] = NONE
        side.group_of[slots] = groups
        for own in (self._left, self._right):
            trees = len(own.trees)
            own.trees = grown(own.trees, max(self._keys.capacity, 1))
            own.trees[trees:] = NONE

    def _settle(self, since: int) -> None:
        """Begin a step: index what was restored, and remove what ended meanwhile."""
        from hayase.lifetimes import asof_joins_loops

        moved: list[np.ndarray] = []
        for side in (self._left, self._right):
            added, removed = side.store.settle(since)
            self._index(side, added, side.store.take(added))
            moved += [removed, added]
        if any(map(len, moved)):
            asof_joins_loops.place(*self._arrays(), self._strict, self._touched, _beginning(), *moved)
        self._copies.settle(since, self._left.nodes[:, COPY], self._shown_slots)
        self._release(moved[0], moved[2])

    def _shown_slots(self) -> np.ndarray:
        return np.flatnonzero(self._left.nodes[: self._left.store.capacity, MATCH] != GONE)

    def _release(self, left: np.ndarray, right: np.ndarray) -> None:
        """Free tuples that have left their treaps, and keys without tuples."""
        groups = np.unique(np.concatenate((self._left.group_of[left], self._right.group_of[right])))
        groups = groups[groups != NONE]
        if self._left.keys:
            is_empty = (self._left.trees[groups, ROOT] == NONE) & (self._right.trees[groups, ROOT] == NONE)
            self._keys.drop(groups[is_empty])
        for side, slots in ((self._left, left), (self._right, right)):
            if len(slots):
                side.texts.release(slots)
                side.store.release(slots)

    def _arrays(self) -> tuple[np.ndarray, ...]:
        """Return what the loops take of both sides."""
        return (*self._left.arrays(), *self._right.arrays())

    # ------------------------------------------------------------------------------------------------ state

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Load tuples, or what is shown of them; they are used from the next step on."""
        if section == self._registers.section:
            self._registers.restore(section, rows, version)
        else:
            self._stores[section].restore(rows, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the rows of live tuples."""
        if section == self._registers.section:
            return self._registers.live(section, rows, version)
        return self._stores[section].live(rows, version)

    def size(self, section: str) -> int:
        """Return the number of live tuples of a section."""
        if section == self._registers.section:
            return self._registers.size(section)
        return self._stores[section].size()


class _Side:
    """The tuples of one child: their store, and the treaps of their keys. The first column of `order` is the one compared."""

    def __init__(
        self, schema: pa.Schema, section: str, keys: Sequence[str], order: Sequence[Order], *, keeps_all: bool
    ) -> None:
        self.store = TupleStore(schema, section)
        self.keys, self.keeps_all = keys, keeps_all
        self.texts = Texts(pa.binary())
        self.nodes, self.trees = np.empty((0, 8), np.int64), np.empty((0, 2), np.int64)
        self.group_of = np.empty(0, np.int64)
        self._order = order

    def whole(self, rows: pa.RecordBatch) -> np.ndarray | None:
        """Return which rows have no NULL in their keys and in the column that is compared; None if all."""
        columns = [rows.column(name) for name in (*self.keys, self._order[0].column)]
        parts = [column.is_valid().to_numpy(zero_copy_only=False) for column in columns if column.null_count]
        return np.logical_and.reduce(parts) if parts else None

    def put(self, slots: np.ndarray, rows: pa.RecordBatch) -> None:
        """Store the order keys of tuples."""
        from hayase.lifetimes import treaps_loops

        known, capacity = len(self.group_of), self.store.capacity
        self.nodes, self.group_of = grown(self.nodes, capacity), grown(self.group_of, capacity)
        self.nodes[known:, MATCH] = GONE
        self.nodes[known:, COPY] = NONE
        keys = order_keys(rows, self._order, 1).keys
        self.texts.put(slots, keys, capacity)
        heads = np.empty(len(slots), np.int64)
        _, ends, letters = keys.buffers()
        treaps_loops.read_heads(np.frombuffer(ends, np.int32), np.frombuffer(letters, np.uint8), heads)
        self.nodes[slots, HEAD] = heads

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Return what the loops take of a side."""
        return self.nodes, self.trees, self.group_of, *self.texts.parts, self.store.id


def _beginning() -> np.ndarray:
    state = np.zeros(8, np.int64)
    state[CHAIN] = NONE
    return state


def _doubled(lines: np.ndarray) -> np.ndarray:
    larger = np.empty((lines.shape[0], 2 * lines.shape[1]), np.int64)
    larger[:, : lines.shape[1]] = lines
    return larger
