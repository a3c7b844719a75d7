"""Windows by count (see `record_windows`): one record per window, or a number of records per group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hayase.core.keys import KeyIndex
from hayase.core.stages import TIME, Tuples
from hayase.operations.arrivals import Arrivals, column, groups_of, joined, merge_arrivals
from hayase.operations.record_windows import GONE, HELD, QUEUE, Complete, WindowSpec, held_schema
from hayase.streams.row_buffer import RowBuffer

__all__ = ["CountWindows", "Singles"]

_ARRIVAL = "__arrival"
"""Column of held rows: increases from record to record, so that no two rows held at the same time share a value."""


class Singles:
    """Windows of one record; no state."""

    def __init__(self, spec: WindowSpec, schema: pa.Schema) -> None:
        self._spec, self._schema = spec, held_schema(schema)

    def advance(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int) -> Complete:
        arrived = merge_arrivals(inputs, self._schema, self._spec.by_arrival)
        at = np.arange(len(arrived))
        return Complete(arrived.rows, at, at + 1, column(arrived.rows, TIME), arrived.at)

    def restore(self, rows: pa.RecordBatch) -> None:
        """Do nothing: there is no state."""

    def live(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.slice(0, 0)

    def __len__(self) -> int:
        return 0


class CountWindows:
    """Windows by count. The first row that a group holds begins its next window, so no group needs a counter."""

    def __init__(self, spec: WindowSpec, schema: pa.Schema) -> None:
        self._spec, self._plain = spec, held_schema(schema)
        self._schema = self._plain.append(pa.field(_ARRIVAL, pa.int64()))
        self._next = 0
        self._index = KeyIndex()
        self._waiting = RowBuffer(self._schema, _ARRIVAL)
        self._held = np.zeros(0, np.int64)  # rows by group

    def __len__(self) -> int:
        return len(self._waiting)

    def advance(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int) -> Complete:
        arrivals = self._numbered(merge_arrivals(inputs, self._plain, self._spec.by_arrival))
        size, slide = self._spec.size, self._spec.slide
        group = self._grouped(arrivals.rows)
        order = np.argsort(group, kind="stable")
        touched, counts = np.unique(group, return_counts=True)
        total = self._held[touched] + counts
        completed = np.where(total < size, 0, (total - size) // slide + 1)
        full = completed > 0
        ready = np.repeat(full, counts)  # in group order
        ready_rows = order[ready]
        waiting_rows = order[~ready]
        held_group, held = self._waiting.take(touched[full])
        fresh = np.concatenate([np.zeros(len(held_group), np.bool_), np.ones(len(ready_rows), np.bool_)])
        number = np.concatenate([held_group, group[ready_rows]])
        sort = np.argsort(number, kind="stable")
        rows = joined([held, arrivals.rows.take(pa.array(ready_rows))], self._schema).take(pa.array(sort))
        number, fresh = number[sort], fresh[sort]
        arrival_position = np.concatenate([np.full(len(held_group), -1), ready_rows])[
            sort
        ]  # in this step's records; -1 for held rows

        lengths, windows = total[full], completed[full]
        begins = np.cumsum(lengths) - lengths
        nth = np.arange(windows.sum()) - np.repeat(np.cumsum(windows) - windows, windows)
        starts = np.repeat(begins, windows) + nth * slide
        by_last_record = np.argsort(arrival_position[starts + size - 1])
        starts = starts[by_last_record]

        held_back = np.arange(len(number)) - np.repeat(begins, lengths) >= np.repeat(windows * slide, lengths)
        self._waiting.put(number[held_back], rows.filter(pa.array(held_back)))
        self._waiting.put(group[waiting_rows], arrivals.rows.take(pa.array(waiting_rows)))
        written = np.sort(np.concatenate([waiting_rows, arrival_position[held_back & fresh]]))
        state = [
            *self._state(arrivals.rows.take(pa.array(written)), gone=False),
            *self._state(rows.filter(pa.array(~held_back & ~fresh)), gone=True),
        ]
        self._count(touched, total - completed * slide)
        instants = column(rows, TIME)[starts + size - 1] if len(starts) else np.empty(0, np.int64)
        at = np.where(arrival_position < 0, -1, arrivals.at[arrival_position]) if len(arrivals) else arrival_position
        return Complete(rows, starts, starts + size, instants, at, state)

    def restore(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        gone = rows.column(GONE).to_numpy(zero_copy_only=False)
        restored = rows.select(self._schema.names)
        group = self._grouped(restored)
        touched = np.unique(group)
        held_group, held = self._waiting.take(touched)
        rows_now = joined([held, restored], self._schema)
        number = np.concatenate([held_group, group])
        gone = np.concatenate([np.zeros(len(held_group), np.bool_), gone])
        arrival = column(rows_now, _ARRIVAL)
        self._next = max(self._next, int(arrival.max()) + 1)
        order = np.lexsort((gone, arrival, number))
        last = np.ones(len(order), np.bool_)
        last[:-1] = np.diff(arrival[order]) != 0
        kept = order[last & ~gone[order]]
        self._waiting.put(number[kept], rows_now.take(pa.array(kept)))
        self._count(touched, np.bincount(number[kept], minlength=len(self._held))[touched])

    def live(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        group = groups_of(self._spec, rows, self._index, insert=False)
        touched = np.unique(group[group >= 0])
        _, held = self._waiting.take(touched, keep=True)
        gone = rows.column(GONE).to_numpy(zero_copy_only=False)
        return rows.filter(pa.array(~gone & np.isin(column(rows, _ARRIVAL), column(held, _ARRIVAL))))

    def _numbered(self, arrived: Arrivals) -> Arrivals:
        first, self._next = self._next, self._next + len(arrived)
        arrival = pa.array(np.arange(first, self._next))
        return Arrivals(pa.RecordBatch.from_arrays([*arrived.rows.columns, arrival], schema=self._schema), arrived.at)

    def _grouped(self, rows: pa.RecordBatch) -> np.ndarray:
        group = groups_of(self._spec, rows, self._index)
        most = int(group.max(initial=-1)) + 1
        if most > len(self._held):
            self._held = np.concatenate(
                [self._held, np.zeros(max(most, 2 * len(self._held)) - len(self._held), np.int64)]
            )
        return group

    def _count(self, groups: np.ndarray, held: np.ndarray) -> None:
        """Set how many rows groups hold. A group that holds none is removed from the index."""
        self._held[groups] = held
        if self._spec.by:
            self._index.drop(groups[held == 0])

    def _state(self, rows: pa.RecordBatch, gone: bool) -> list[Tuples]:
        """Return rows as state; a tombstone keeps only queue, arrival and key, which identify the row."""
        if not rows.num_rows:
            return []
        kept = {QUEUE, _ARRIVAL, *self._spec.by}
        columns = [
            rows.column(field.name) if not gone or field.name in kept else pa.nulls(rows.num_rows, field.type)
            for field in self._schema
        ]
        schema = self._schema.append(pa.field(GONE, pa.bool_()))
        mark = pa.repeat(pa.scalar(gone), rows.num_rows)
        return [Tuples(HELD, pa.RecordBatch.from_arrays([*columns, mark], schema=schema))]
