"""Guarded sums of shared windows: a record at which such a sum would overflow its type is refused before it is aggregated.

Shared partials cannot remove a record again, so guarded sums are also computed over the window as a relation
(`AggregateOperator`), which refuses such a record. A row window still counts the record, but no aggregate includes it, as if
WHERE had dropped it. A record is checked when it arrives, in (time, offset) order, against the rows that are alive when it
appears. A row window with a slide is an exception: the instant at which a record appears, and so the rows that end at it, are
known only when the record's block is full. Until then the record is held back, also from the shared windows (`row_blocks`).
In a time window with a slide, a record appears at the next multiple of the slide; it is checked before, but refused only then, as
in the window over a relation: if the clock does not get there, it is not a dead letter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.keys import raw_values
from hayase.core.reasons import ReasonKind, reasons_of
from hayase.core.stages import OFFSET, TIME, FailedRows, Stateless, Tuples
from hayase.lifetimes.aggregates import AggregateOperator
from hayase.lifetimes.leaves import LeafOperator, round_up, take_rows
from hayase.lifetimes.partitions import PartitionWindow
from hayase.lifetimes.plans import Aggregate, Partition, Range, Shared, Windowed
from hayase.lifetimes.relations import OPEN, Delta, Operator, Span, Step
from hayase.lifetimes.row_blocks import RowBlocks
from hayase.lifetimes.shared_windows_log import columns_of
from hayase.lifetimes.tuples import OneStore, TupleStore

__all__ = ["ACCEPTED", "SumGuard"]

ACCEPTED = "__accepted"
"""The boolean column that is true for the records that aggregates include."""
_BLOCKS, _WINDOW, _SUMS, _REFUSED = "blocks", "window", "sums", "refused"
_REASON = "__reason"


class SumGuard:
    """The guarded sums of a `Shared` node with one window."""

    def __init__(self, node: Shared) -> None:
        (window,) = node.windows
        assert node.guard is not None
        self._input, self._where = node.input, node.where
        calls = tuple(call for call in node.calls if call.function == "sum" and call.argument in node.guard.names)
        results = [node.schema.field(len(node.schema) - len(node.calls) + node.calls.index(call)) for call in calls]
        rows = Partition(node.keys, window.length, window.slide)
        leaf = Windowed(node.input, rows, node.guard, node.where)
        schema = pa.schema([*(node.guard.field(name) for name in node.keys), *results])
        self._window: LeafOperator = (
            PartitionWindow(leaf, rows)
            if window.kind == "rows"
            else _ArrivalRange(replace(leaf, window=Range(window.length, window.slide)), window.length, window.slide)
        )
        self._sums = AggregateOperator(Aggregate(leaf, node.keys, calls, schema), endless=False)
        self._refused = _LaterRefusals(node.guard, window.slide) if window.kind == "range" else None
        self._blocks: RowBlocks | None = None
        if window.kind == "rows" and window.slide > 1:
            flag = () if node.where is None else (node.where,)
            columns = [*node.keys, *(name for call in node.calls for name in columns_of(call)), *flag]
            self._blocks = RowBlocks(node.keys, list(dict.fromkeys(columns)), window.slide)

    def advance(
        self, batches: Sequence[pa.RecordBatch], span: Span
    ) -> tuple[list[pa.RecordBatch], list[FailedRows], list[Tuples]]:
        """Mark the accepted records of a step. Return the inputs with the column ACCEPTED, the refused records, and the changes
        of the state. Records that are held back are not in the inputs until their block is full."""
        batches, state = list(batches), []
        if self._blocks is not None:
            batches[self._input], held = self._blocks.advance(batches[self._input], span)
            state += [replace(tuples, section=f"{_BLOCKS}.{tuples.section}") for tuples in held]
        alive = self._window.advance(batches, span)
        summed = self._sums.advance([alive.delta], span)
        refused = [spoiled for spoiled in summed.spoiled if spoiled.ids is not None]
        batch = batches[self._input]
        offsets = np.concatenate(
            [np.empty(0, np.int64), *(spoiled.ids for spoiled in refused if spoiled.ids is not None)]
        )
        accepted = ~np.isin(raw_values(batch.column(OFFSET), np.int64), offsets)
        if self._where is not None:
            accepted &= pc.fill_null(batch.column(self._where), False).to_numpy(zero_copy_only=False)
        batches[self._input] = batch.append_column(ACCEPTED, pa.array(accepted, pa.bool_()))
        state += [replace(tuples, section=f"{_WINDOW}.{tuples.section}") for tuples in alive.state]
        state += [replace(tuples, section=f"{_SUMS}.{tuples.section}") for tuples in summed.state]
        if self._refused is not None:
            refused, later = self._refused.advance(refused, batch, span)
            state += [replace(tuples, section=f"{_REFUSED}.{tuples.section}") for tuples in later]
        return batches, refused, state

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Load tuples of the blocks, of the window or of the sums."""
        owner, inner = self._owner(section)
        owner.restore(inner, rows, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the rows that are still needed."""
        owner, inner = self._owner(section)
        return owner.live(inner, rows, version)

    def size(self, section: str) -> int:
        """Return the number of live rows of a section."""
        owner, inner = self._owner(section)
        return owner.size(inner)

    def _owner(self, section: str) -> tuple[LeafOperator | Operator | RowBlocks | _LaterRefusals, str]:
        owner, inner = section.split(".", 1)
        if owner == _REFUSED:
            assert self._refused is not None, "only a time window refuses records later"
            return self._refused, inner
        if owner == _BLOCKS:
            assert self._blocks is not None, "only a row window with a slide holds records back"
            return self._blocks, inner
        return self._window if owner == _WINDOW else self._sums, inner


class _LaterRefusals(OneStore):
    """Holds refused records back until the multiple of the slide at which they would appear.

    State: "waiting", their columns of the guard and the reasons; the end of a tuple is when it would appear.
    """

    def __init__(self, guard: pa.Schema, slide: int) -> None:
        self._guard, self._slide = guard, slide
        self._store = TupleStore(pa.schema([*guard, pa.field(_REASON, pa.string())]), "waiting")

    def advance(
        self, refused: Sequence[FailedRows], batch: pa.RecordBatch, span: Span
    ) -> tuple[list[FailedRows], Sequence[Tuples]]:
        """Return the records, refused in this step or before, that appear in this step, and the change of the state."""
        waiting, guard = self._store, self._guard
        waiting.release(waiting.settle(span.since)[1])
        offsets, times = (raw_values(batch.column(name), np.int64) for name in (OFFSET, TIME))
        order = np.argsort(offsets)
        for failed in refused:
            assert failed.ids is not None
            time = times[order[np.searchsorted(offsets, failed.ids, sorter=order)]]
            columns = [
                *failed.rows.select(guard.names).columns,
                pa.array([reason.text for reason in failed.reasons], pa.string()),
            ]
            rows = pa.RecordBatch.from_arrays(columns, names=[*guard.names, _REASON])
            waiting.add(rows, time - 1, round_up(time, self._slide), failed.ids)  # a start is before its end
        due = waiting.expire(span.clock)
        rows, ids = waiting.take(due), waiting.id[due].copy()
        waiting.release(due)
        state = waiting.changes()
        if not len(due):
            return [], state
        reasons = reasons_of(ReasonKind.OVERFLOW, rows.column(_REASON).to_pylist())
        return [FailedRows(rows.select(guard.names), reasons, ids)], state


class _ArrivalRange(Stateless):
    """A time window with a slide, in which a tuple begins at its own time instead of the next multiple of the slide.

    The tuples that appear at a multiple have times after the previous multiple. So an end at a multiple is moved to the first
    microsecond after the previous one, which keeps the order of starts and ends of the window.
    """

    def __init__(self, node: Windowed, length: int, slide: int) -> None:
        self.schema = node.schema
        self._input, self._length, self._slide = node.input, length, slide

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> Step:
        """Return the tuples of the step; all ends are known."""
        batch = batches[self._input]
        time, offset = raw_values(batch.column(TIME), np.int64), raw_values(batch.column(OFFSET), np.int64)
        end = np.minimum(round_up(time + self._length, self._slide) - self._slide + 1, OPEN)
        real = np.flatnonzero(time < end)
        rows = take_rows(batch.select(self.schema.names), real)
        return Step(Delta(rows, time[real].copy(), end[real], offset[real].copy()))
