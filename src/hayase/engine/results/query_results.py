"""Results of a query or stream: as intervals, as changes, or as the rows that are valid at an instant.

Rows of a relation appear and end; a row of a stream (a declared one, or the output of a filter or of Istream) is valid from
its event time on. Results are *final* up to the stream's clock (watermark): nothing before it changes any more. Once all
inputs are finished, they are final up to the greatest event time. Times are returned in the type of the stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.data_classes import dataclass
from hayase.core.data_frames import Frames
from hayase.core.declarations import EVENT_TIME
from hayase.core.errors import HayaseError, NotFinal, OffsetGone
from hayase.core.times import BEGINNING, END, instant, instant_text
from hayase.engine.results.lifespans import (
    OPEN,
    VALID_FROM,
    Integers,
    Lifespans,
    fold,
    from_micros,
    lifespans,
    own_columns,
)
from hayase.engine.results.snapshots import check, is_trimmed, rows_in, snapshot_before, snapshots
from hayase.streams import Index, StreamLog, event_times
from hayase.streams.json_columns import records
from hayase.streams.repeats import first_rows
from hayase.streams.schema_evolution import stored_declaration

__all__ = ["Change", "Results", "Time"]

Time = datetime | str | int
"""A point in time: a datetime, ISO text, or an integer in the unit of the stream (microseconds for timestamps)."""

Change = tuple[Any, str, dict[str, Any]]
"""A change of a relation: its event time, "+" or "-", and the row that appears or ends."""

_TRIES = 64
"""How often a read is repeated because the stream was reset or trimmed meanwhile."""
_PORTION = 1024
"""Rows that an iteration turns into dicts at once."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Intervals:
    """Rows in the order of their starts, with start and end of each in microseconds."""

    rows: pa.Table
    start: Integers
    end: Integers


@dataclass(frozen=True, slots=True)
class Results(Frames):
    """The records of a declared stream or of a stage's output, and the results that they represent.

    Iterating gives the rows of `to_arrow()` as dicts; `async for` gives the changes of `tail()`.
    """

    log: StreamLog

    # -- records ------------------------------------------------------------------------------------------------------
    def table(self, first: int | None = None) -> pa.Table:
        """Return all records (from offset `first` on) as an Arrow table, in the order of the log. A time that is not a column
        of the query is in the column `event_time`."""
        return self.log.declaration.shown(self._table(first))

    def _table(self, first: int | None = None) -> pa.Table:
        index = self._index()
        begin = index.start if first is None else first
        batches = first_rows(self.log, begin, index.next) if begin < index.next else ()
        return pa.Table.from_batches(batches, schema=self.log.declaration.arrow_schema)

    def rows(self) -> list[dict[str, Any]]:
        """Return all records as dicts, in event-time order; records with equal times are in the order of the log."""
        table = self._table()
        order = np.argsort(event_times(table, self.log.declaration), kind="stable")
        return records(self.log.declaration.shown(table.take(pa.array(order))))

    # -- frames and iteration ---------------------------------------------------------------------------------------
    def to_arrow(self, at: Time | None = None, *, history: bool = False) -> pa.Table:
        """Return the rows as an Arrow table: of a relation those that are valid `at` an instant, by default the latest final one;
        of a stream its records, up to that instant if one is given, else all. With `history`, every row of the past with
        `valid_from` and `valid_to`. `to_pandas`, `to_polars`, `to_duckdb` and `batches` take the same arguments."""
        return self.reader(at, history=history).read_all()

    def reader(self, at: Time | None = None, *, history: bool = False) -> pa.RecordBatchReader:
        """Return the rows of `to_arrow` as a reader of Arrow batches. A stream is read in bounded memory, batch by batch."""
        if history:
            if at is not None:
                raise HayaseError("the history has all instants; leave out `at`, or `history`")
            return self.intervals_table().to_reader()
        declaration = self.log.declaration
        if declaration.lifetimes or at is not None:
            return self.at_table(at).to_reader()
        index = self._index()
        batches = first_rows(self.log, index.start, index.next) if index.start < index.next else iter(())
        shown = (declaration.shown(batch) for batch in batches)
        return pa.RecordBatchReader.from_batches(declaration.shown_schema, shown)

    def schema(self, *, history: bool = False) -> pa.Schema:
        """Return the schema of `to_arrow`."""
        declaration = self.log.declaration
        if not history and not declaration.lifetimes:
            return declaration.shown_schema
        own = declaration.arrow_schema.empty_table().select(own_columns(declaration)).schema
        for name in ("valid_from", "valid_to") if history else ():
            own = own.append(pa.field(_free(name, own.names), self._times(np.empty(0, np.int64)).type))
        return own

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.reader():
            for first in range(0, batch.num_rows, _PORTION):
                yield from records(batch.slice(first, _PORTION))

    def tail(self, start: Literal["earliest", "now"] = "earliest", *, timeout: float | None = None) -> Iterator[Change]:
        """Yield changes as (time, "+" or "-", row) once they are final, and wait for more: from the earliest retained one, or
        those from now on. Records of a stream come as they are committed. It ends when the inputs are finished, or after
        `timeout` seconds without a change."""
        from hayase.engine.results.change_tail import ChangeTail

        return iter(ChangeTail(self.log, start, timeout))

    def __aiter__(self) -> AsyncIterator[Change]:
        from hayase.engine.results.change_tail import ChangeTail

        return aiter(ChangeTail(self.log))

    # -- looks ----------------------------------------------------------------------------------------------------------
    def __repr__(self) -> str:
        from hayase.engine.results.results_view import text_of

        return text_of(self)

    def _repr_html_(self) -> str:
        from hayase.engine.results.results_view import html_of

        return html_of(self)

    def plot(self, column: str | None = None, *, by: str | None = None, limit: int = 200, axes: Any = None) -> Any:
        """Draw the lifetimes of rows as bars over event time, or the values of a numeric `column`, with a line for each value of
        the column `by`; at most `limit` rows or lines, a sample of more. Needs matplotlib; returns its axes."""
        from hayase.engine.results.results_plot import plot

        return plot(self, column, by, limit, axes)

    # -- results --------------------------------------------------------------------------------------------------------
    def final(self) -> Any:
        """Return the latest instant at which results are final; None if there is none yet."""
        final = self._latest(self._index())
        return None if final is None else self._times(np.array([final]))[0].as_py()

    def intervals(self) -> list[tuple[dict[str, Any], Any, Any]]:
        """Return every row with its start and end time; the end is None if it is not known.

        Rows are in the order of their starts; rows with equal starts are in the order of the log.
        """
        intervals = self._consistent(self._intervals)
        times = self._times(intervals.start).to_pylist(), self._times(intervals.end).to_pylist()
        return list(zip(records(intervals.rows), *times))

    def intervals_table(self) -> pa.Table:
        """Return the intervals as an Arrow table: the columns of the rows, then `valid_from` and `valid_to`."""
        intervals = self._consistent(self._intervals)
        rows = intervals.rows
        for name, times in (("valid_from", intervals.start), ("valid_to", intervals.end)):
            rows = rows.append_column(_free(name, rows.column_names), self._times(times))
        return rows

    def changes(self) -> list[tuple[Any, str, dict[str, Any]]]:
        """Return all final changes as (time, "+" or "-", row), in time order, with "-" first at each time. Changes of one time and
        sign have no order of their own."""
        time, sign, rows = self._consistent(self._changes)
        return list(zip(self._times(time).to_pylist(), sign.to_pylist(), records(rows)))

    def changes_table(self) -> pa.Table:
        """Return the changes as an Arrow table: `event_time`, `change`, then the columns of the rows."""
        return self._change_table(*self._consistent(self._changes))

    def _change_table(self, time: Integers, sign: Any, rows: pa.Table) -> pa.Table:
        return self._headed(self._times(time), sign, rows)

    @staticmethod
    def _headed(times: Any, signs: Any, rows: pa.Table) -> pa.Table:
        names = rows.column_names
        heads = {_free(EVENT_TIME, names): times, _free("change", names): signs}
        return pa.table([*heads.values(), *rows.columns], names=[*heads, *names])

    def at(self, time: Time | None = None) -> list[dict[str, Any]]:
        """Return the rows that are valid at an instant, by default the latest final one; a later one is an error.

        The cost depends on the number of rows valid then, not on the length of the history.
        """
        return records(self.at_table(time))

    def at_table(self, time: Time | None = None) -> pa.Table:
        """Return the rows of `at` as an Arrow table."""
        return self._consistent(lambda index: self._at(index, time))

    # -- reading the log ------------------------------------------------------------------------------------------------
    def _index(self) -> Index:
        """Return the index of the log, an empty one if the log does not exist yet."""
        return self.log.index() if self.log.path.exists() else Index((), 0, 0, BEGINNING, BEGINNING)

    def _consistent(self, look: Callable[[Index], _T]) -> _T:
        """Return what `look` computes from one index of the log; repeat it if files were removed meanwhile."""
        for _ in range(_TRIES):
            try:
                found = look(self._index())
                self._check_columns()
                return found
            except (OffsetGone, FileNotFoundError) as error:
                last_error = error
        raise HayaseError(
            f'the results "{self.log.declaration.name}" change too fast to be read: {last_error}; try again'
        )

    def _check_columns(self) -> None:
        """Raise HayaseError if another version of the stage, with other columns, has replaced the one whose results these are."""
        stored = stored_declaration(self.log.path)
        if stored is not None and stored.mark is not None and stored.declaration.schema != self.log.declaration.schema:
            name = self.log.declaration.name
            raise HayaseError(
                f'"{name}" has the columns ({stored.declaration.schema}), and these results are of the version with '
                f"({self.log.declaration.schema}); ask for the results again, or wait until the new version is there"
            )

    def _final_before(self, index: Index) -> int:
        """Return the first instant that is not final."""
        declaration = self.log.declaration
        if declaration.lifetimes:
            return index.running_max + 1 if index.finished else index.clock
        if declaration.ordered or index.running_max == BEGINNING:
            return index.clock
        return max(index.clock, index.running_max - declaration.slack)

    def _latest(self, index: Index) -> int | None:
        final = self._final_before(index)
        if final >= END:
            final = index.running_max + 1
        return None if final <= BEGINNING + 1 else (final - 1) // self._scale * self._scale

    def _intervals(self, index: Index) -> _Intervals:
        declaration = self.log.declaration
        batches = list(first_rows(self.log, index.start, index.next)) if index.entries else []
        if not declaration.lifetimes:
            rows = pa.Table.from_batches(batches, schema=declaration.arrow_schema)
            start = event_times(rows, declaration)
            return self._ordered(rows, np.arange(len(start)), start, np.full(len(start), OPEN))
        check(self.log, index)
        existing = snapshots(self.log, index) if is_trimmed(index) else []
        if existing:  # adds rows that began before the first record
            batches = [*rows_in(self.log, existing[0]), *batches]
        rows = pa.Table.from_batches(batches, schema=declaration.arrow_schema)
        spans = lifespans(rows, declaration)
        final = np.flatnonzero(spans.changed_at < self._final_before(index))
        spans = Lifespans(spans.row_id[final], spans.start[final], spans.end[final], spans.changed_at[final])
        positions, end = fold(spans)
        if existing:  # a row may be both in the snapshot and in the log
            _, unique_rows = np.unique(spans.row_id[positions], return_index=True)
            positions, end = positions[unique_rows], end[unique_rows]
        return self._ordered(rows, final[positions], spans.start[positions], end)

    def _ordered(self, rows: pa.Table, at: Integers, start: Integers, end: Integers) -> _Intervals:
        order = np.lexsort((at, start))
        return _Intervals(self._own(rows).take(pa.array(at[order])), start[order], end[order])

    def _changes(self, index: Index) -> tuple[Integers, pa.Array, pa.Table]:
        intervals, final = self._intervals(index), self._final_before(index)
        starts, ends = np.flatnonzero(intervals.start < final), np.flatnonzero(intervals.end < final)
        positions = np.concatenate([ends, starts])
        time = np.concatenate([intervals.end[ends], intervals.start[starts]])
        order = np.argsort(time, kind="stable")  # stable: ends come before starts at each instant
        sign = pa.DictionaryArray.from_arrays((order >= len(ends)).astype(np.int8), ["-", "+"]).cast(pa.string())
        return time[order], sign, intervals.rows.take(pa.array(positions[order]))

    def _at(self, index: Index, time: Time | None) -> pa.Table:
        declaration = self.log.declaration
        time_us = self._latest(index) if time is None else self._instant(time)
        if time_us is None:
            empty = declaration.arrow_schema.empty_table()
            return self._own(empty) if declaration.lifetimes else declaration.shown(empty)
        final = self._final_before(index)
        if time_us >= final:
            raise self._not_final(index, time_us)
        if not declaration.lifetimes:
            batches = [
                rows.filter(pa.array(event_times(rows, declaration) <= time_us))
                for rows in (first_rows(self.log, index.start, index.next) if index.entries else ())
            ]
            rows = pa.Table.from_batches(batches, schema=declaration.arrow_schema)
            order = np.argsort(event_times(rows, declaration), kind="stable")
            return declaration.shown(rows.take(pa.array(order)))
        last_us = time_us // self._scale * self._scale + self._scale - 1  # nothing changes within a unit of time
        return self._own(self._valid(index, min(last_us, final - 1)))

    def _valid(self, index: Index, time: int) -> pa.Table:
        """Return the rows valid at an instant: those of a snapshot and of the records after it, minus those that have ended."""
        declaration = self.log.declaration
        snapshot, end = snapshot_before(self.log, index, time)
        if snapshot is None and is_trimmed(index):
            raise self._removed(index, time)
        batches = [] if snapshot is None else list(rows_in(self.log, snapshot))
        first = index.start if snapshot is None else snapshot.offset
        batches += list(first_rows(self.log, first, end)) if first < end else []
        valid, ended = [], [np.empty(0, np.int64)]
        for batch in batches:
            records = lifespans(batch, declaration)
            happened = records.changed_at <= time
            appears = records.appears
            ended.append(records.row_id[happened & ~appears])
            valid.append(batch.filter(pa.array(happened & appears & (records.end > time))))
        rows = pa.Table.from_batches(valid, schema=declaration.arrow_schema)
        remaining = lifespans(rows, declaration)
        positions = np.flatnonzero(~np.isin(remaining.row_id, np.concatenate(ended)))
        rows = rows.take(pa.array(positions[np.argsort(remaining.start[positions], kind="stable")]))
        return _sorted(rows, declaration.order) if declaration.order else rows

    # -- times and errors -----------------------------------------------------------------------------------------------
    @property
    def _scale(self) -> int:
        return self.log.declaration.time_scale

    def _own(self, rows: pa.Table) -> pa.Table:
        return rows.select(own_columns(self.log.declaration))

    @property
    def _time_type(self) -> pa.DataType:
        declaration = self.log.declaration
        return declaration.arrow_schema.field(VALID_FROM if declaration.lifetimes else declaration.time).type

    def _times(self, times: Integers) -> pa.Array:
        return from_micros(times, self._time_type, self._scale)

    def _instant(self, time: Time) -> int:
        if self.log.declaration.time_unit is not None:
            if isinstance(time, str) and time.strip().lstrip("+-").isdigit():
                time = int(time)
            if isinstance(time, int):
                return time * self._scale
        return instant(time)

    def _time_text(self, time: int) -> str:
        return instant_text(time) if self.log.declaration.time_unit is None else str(time // self._scale)

    def _not_final(self, index: Index, time: int) -> NotFinal:
        name, latest = self.log.declaration.name, self._latest(index)
        if latest is None:
            return NotFinal(f'nothing of "{name}" is final yet; append records to what it reads and run the pipeline')
        hint = "the inputs end there" if index.finished else "append later records, or finish the streams that it reads"
        return NotFinal(
            f'"{name}" is final up to {self._time_text(latest)}, and {self._time_text(time)} is after that; {hint}'
        )

    def _removed(self, index: Index, time: int) -> HayaseError:
        existing = snapshots(self.log, index)
        since = f"; what is left begins at {self._time_text(existing[0].clock - 1)}" if existing else ""
        return HayaseError(
            f'what "{self.log.declaration.name}" was at {self._time_text(time)} was removed by its retention{since}'
        )


def _sorted(rows: pa.Table, order: Sequence[tuple[str, bool, bool]]) -> pa.Table:
    """Return rows in the order of their query. NaN is greater than all other numbers; columns of nested types are left out."""
    keys: list[tuple[pa.ChunkedArray, str]] = []
    for name, descending, nulls_first in order:
        column = rows.column(name)
        if pa.types.is_nested(column.type):
            continue
        direction = "descending" if descending else "ascending"
        keys.append((column.is_null(), "descending" if nulls_first else "ascending"))
        if pa.types.is_floating(column.type):
            keys.append((pc.is_nan(column), direction))
        keys.append((column, direction))
    table = pa.table([column for column, _ in keys], [str(number) for number in range(len(keys))])
    return rows.take(pc.sort_indices(table, [(str(number), way) for number, (_, way) in enumerate(keys)]))


def _free(name: str, taken: list[str]) -> str:
    """Return the name, with underscores appended while it is taken."""
    while name in taken:
        name += "_"
    return name
