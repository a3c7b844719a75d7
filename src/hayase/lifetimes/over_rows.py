"""The operator for OVER in relation mode: window functions over the rows that are alive at each instant.

- At every instant at which a partition changes, the functions are computed anew for all its live tuples. All instants of a step
  are computed in one statement, in which each (partition, instant) is a partition of its own.
- Cost: the live tuples of a partition for each instant at which it changes. Memory is proportional to the live tuples.
- A tuple whose values stay the same is not split. Its end is open when it appears, because its values may change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from hayase.core.expressions import window_values
from hayase.core.keys import KeyIndex, encode, hashes
from hayase.core.reasons import Reason, ReasonKind
from hayase.core.stages import FailedRows
from hayase.lifetimes.copied_tuples import CopiedTuples, Copies
from hayase.lifetimes.plans import TUPLE_ID, Over
from hayase.lifetimes.relations import Delta, Span, Step
from hayase.lifetimes.slot_columns import grown
from hayase.lifetimes.state_registers import Registers
from hayase.lifetimes.tuples import Passage, TupleStore

__all__ = ["OverOperator"]

NONE = -1
PREVIOUS, NEXT, COPY, VALUE = range(4)
"""The words of a tuple: its place in the list of its partition, the copy that shows it, and the number of its values."""
OPENED, CLOSED = range(2)
MOST_ROWS = 1 << 19
"""The rows of snapshots that one statement computes; a single snapshot may have more."""
_FAILED, _NEXT = "__failed", "next"


class OverOperator(CopiedTuples):
    """The operator of `plans.Over` (`relations.Operator`)."""

    def __init__(self, node: Over) -> None:
        self.schema = node.schema
        self._node = node
        self._read = [name for name in node.child.schema.names if name in node.reads]
        self._added = pa.schema([*(node.schema.field(call.name) for call in node.calls), pa.field(_FAILED, pa.bool_())])
        """The values of the calls, and whether one of them does not fit its type: then the tuple is refused, not shown."""
        self._tuples = TupleStore(node.child.schema, "tuples")
        self._words = np.empty((0, 4), np.int64)
        self._group_of = self._firsts = np.empty(0, np.int64)
        self._groups = KeyIndex()
        self._copies = Copies(self._tuples, self._added)
        self._registers = Registers((_NEXT,), (0,))

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """Process a step and return the rows whose values appear, change and end."""
        (child,) = inputs
        self._settle(span.since)
        passed = self._tuples.advance(child.rows, child, span.clock)
        self._enter(passed.slots, child.rows)
        changes = _Changes(self._copies.store.capacity, self._added)
        for snapshots in self._snapshots(child, passed):
            self._compute(snapshots, changes)
        slots, start, end, values, ended, closed_end = changes.in_order()
        first = self._registers[_NEXT]
        self._registers[_NEXT] = first + len(slots)
        own = self._tuples.take(slots)
        rows = pa.RecordBatch.from_arrays([*own.columns, *values.columns[:-1]], schema=self.schema)
        delta = Delta(rows, start, end, np.arange(first, first + len(slots)), self._copies.store.id[ended], closed_end)
        self._copies.keep(delta, slots, self._words[:, COPY], span.clock, values.columns)
        lost, delta = self._refused(delta, own, slots, values)
        self._leave(passed.ended)
        state = [*self._tuples.changes(), *self._copies.store.changes(), *self._registers.changes(span.version)]
        return Step(delta, state, lost)

    def _refused(
        self, delta: Delta, own: pa.RecordBatch, slots: np.ndarray, values: pa.RecordBatch
    ) -> tuple[list[FailedRows], Delta]:
        """Return the tuples of which a value does not fit its type, and the delta without them."""
        failed = values.column(values.num_columns - 1).to_numpy(zero_copy_only=False)
        if not failed.any():
            return [], delta
        calls = ", ".join(call.text for call in self._node.calls)
        reason = Reason(ReasonKind.EXPRESSION, f'cannot compute "{calls}": a value is out of range')
        shown, places = np.flatnonzero(~failed), pa.array(np.flatnonzero(failed))
        lost = FailedRows(own.take(places), [reason] * len(places), self._tuples.id[slots[failed]])
        rows = delta.rows.take(pa.array(shown))
        return [lost], replace(delta, rows=rows, start=delta.start[shown], end=delta.end[shown], id=delta.id[shown])

    # ------------------------------------------------------------------------------------------------ snapshots

    def _snapshots(self, child: Delta, passed: Passage) -> Iterator[_Snapshots]:
        """Yield the snapshots of a step, by partition and time: the instants at which tuples of a partition start or end."""
        from hayase.lifetimes import over_rows_loops

        groups = np.concatenate((self._group_of[passed.slots], self._group_of[passed.ended]))
        if not len(groups):
            return
        times = np.concatenate((child.start, passed.ends))
        order = np.lexsort((times, groups))
        groups, times = groups[order], times[order]
        first = np.ones(len(groups), np.bool_)
        first[1:] = (groups[1:] != groups[:-1]) | (times[1:] != times[:-1])
        of_event = np.cumsum(first) - 1
        groups, times = groups[first], times[first]
        counts = np.empty(len(groups), np.int64)
        alive = self._words, self._firsts, self._tuples.start, self._tuples.end
        over_rows_loops.count_members(*alive, groups, times, counts)
        places = np.empty(len(order), np.int64)
        places[order] = of_event
        leaving = places[len(child.start) :]  # the snapshot of each tuple that ended
        by_snapshot = np.argsort(leaving, kind="stable")
        ended, leaving = passed.ended[by_snapshot], leaving[by_snapshot]
        borders = np.flatnonzero(np.diff(np.cumsum(counts) // MOST_ROWS, prepend=0, append=-1))
        for low, high in zip([0, *borders[:-1]], borders) if len(borders) > 1 else [(0, len(groups))]:
            if low == high:
                continue
            size = int(counts[low:high].sum())
            slots, numbers = np.empty(size, np.int64), np.empty(size, np.int64)
            over_rows_loops.list_members(*alive, groups[low:high], times[low:high], slots, numbers)
            bounds = np.searchsorted(leaving, np.arange(low, high + 1))
            yield _Snapshots(
                times[low:high], slots, numbers, np.cumsum(counts[low:high]),
                ended[bounds[0] : bounds[-1]], bounds[1:] - bounds[0],
            )  # fmt: skip

    def _compute(self, snapshots: _Snapshots, changes: _Changes) -> None:
        """Compute the functions at some snapshots, and note how the rows change."""
        from hayase.lifetimes import over_rows_loops

        rows = self._tuples.take(snapshots.slots).select(self._read)
        rows = rows.append_column(TUPLE_ID, pa.array(self._tuples.id[snapshots.slots]))
        values = window_values(rows, snapshots.numbers, self._node.calls, self._added)
        shown = np.unique(snapshots.slots)
        shown = shown[self._words[shown, COPY] != NONE]
        copies = self._words[shown, COPY]
        # Values of copies that this step has opened are numbered already, with the same index.
        earlier = copies < changes.earlier
        known = self._copies.store.take(copies[earlier]).select(self._added.names)
        self._words[shown[earlier], VALUE] = changes.numbers(known)
        opened, closed = changes.room(len(snapshots.slots), len(snapshots.slots) + len(snapshots.ended))
        over_rows_loops.compare(
            self._words, snapshots.times, snapshots.slots, changes.numbers(values), snapshots.member_ends,
            snapshots.ended, snapshots.ended_ends, np.arange(len(snapshots.slots)) + changes.count,
            changes.earlier, changes.state, opened, closed,
        )  # fmt: skip
        changes.take(values)

    # ------------------------------------------------------------------------------------------------ tuples

    def _settle(self, since: int) -> None:
        """Begin a step: index what was restored, and remove what ended meanwhile."""
        added, removed = self._tuples.settle(since)
        self._enter(added, self._tuples.take(added))
        self._copies.settle(since, self._words[:, COPY], self._shown_slots)
        self._leave(removed)

    def _shown_slots(self) -> np.ndarray:
        return np.flatnonzero(self._group_of[: self._tuples.capacity] != NONE)

    def _enter(self, slots: np.ndarray, rows: pa.RecordBatch) -> None:
        """Put tuples into their partitions."""
        from hayase.lifetimes import over_rows_loops

        if not len(slots):
            return
        known = len(self._group_of)
        self._words = grown(self._words, self._tuples.capacity)
        self._group_of = grown(self._group_of, self._tuples.capacity)
        self._group_of[known:] = NONE
        self._words[slots, COPY] = NONE
        if self._node.keys:
            encoded = encode([rows.column(name) for name in self._node.keys], rows.num_rows)
            groups = self._groups.slots(encoded, hashes(encoded))
        else:
            groups = np.zeros(len(slots), np.int64)
        partitions = len(self._firsts)
        self._firsts = grown(self._firsts, max(self._groups.capacity, 1))
        self._firsts[partitions:] = NONE
        self._group_of[slots] = groups
        over_rows_loops.link(self._words, self._firsts, groups, slots)

    def _leave(self, slots: np.ndarray) -> None:
        """Take tuples out of their partitions and free them, and partitions without tuples."""
        from hayase.lifetimes import over_rows_loops

        if not len(slots):
            return
        groups = self._group_of[slots]
        over_rows_loops.unlink(self._words, self._firsts, groups, slots)
        self._group_of[slots] = NONE
        if self._node.keys:
            groups = np.unique(groups)
            self._groups.drop(groups[self._firsts[groups] == NONE])
        self._tuples.release(slots)


class _Snapshots:
    """Snapshots of partitions: their instants, the slots of their tuples, and those of the tuples that end then.

    `numbers` has the snapshot of every tuple; `member_ends` and `ended_ends` are where the tuples of a snapshot end.
    """

    __slots__ = ("ended", "ended_ends", "member_ends", "numbers", "slots", "times")

    def __init__(self, times: np.ndarray, slots: np.ndarray, numbers: np.ndarray, member_ends: np.ndarray,
                 ended: np.ndarray, ended_ends: np.ndarray) -> None:  # fmt: skip
        self.times, self.slots, self.numbers, self.member_ends = times, slots, numbers, member_ends
        self.ended, self.ended_ends = ended, ended_ends


class _Changes:
    """The copies that a step opens and closes, and the values of those that it opens."""

    def __init__(self, earlier: int, schema: pa.Schema) -> None:
        self.earlier, self._schema = earlier, schema
        self.state = np.zeros(2, np.int64)
        self.count = 0
        """The number of rows of values so far."""
        self._opened, self._closed = np.empty((4, 0), np.int64), np.empty((2, 0), np.int64)
        self._values: list[pa.RecordBatch] = []
        self._index = KeyIndex()

    def numbers(self, values: pa.RecordBatch) -> np.ndarray:
        """Return a number for each row of values; equal rows have equal numbers."""
        encoded = encode(values.columns, values.num_rows)
        return self._index.slots(encoded, hashes(encoded))

    def room(self, opened: int, closed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the lines of copies, with room for some more."""
        self._opened, self._closed = (
            np.concatenate((lines[:, :used], np.empty((len(lines), more), np.int64)), axis=1)
            for lines, used, more in zip((self._opened, self._closed), self.state.tolist(), (opened, closed))
        )
        return self._opened, self._closed

    def take(self, values: pa.RecordBatch) -> None:
        """Keep the values of snapshots."""
        self._values.append(values)
        self.count += values.num_rows

    def in_order(
        self,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, pa.RecordBatch, np.ndarray, np.ndarray]:
        """Return slot, start, end and values of the copies opened, and the earlier copies closed with their ends, by time."""
        opened, closed = (lines[:, :used] for lines, used in zip((self._opened, self._closed), self.state.tolist()))
        by_start, by_end = (np.argsort(lines[1], kind="stable") for lines in (opened, closed))
        slots, start, end, places = (line[by_start] for line in opened)
        copies, closed_end = (line[by_end] for line in closed)
        batches = self._values or [pa.RecordBatch.from_pylist([], schema=self._schema)]
        values = pa.concat_batches(batches).take(pa.array(places))
        return slots, start, end, values, copies, closed_end
