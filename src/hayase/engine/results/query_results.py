"""Results: what a query says, as intervals, as changes, or as the rows that are valid at an instant.

A relation's rows come and go; a row of a stream (a declared one, a filter's, that of Istream) is there from its event
time on. Results are *final* up to the stream's clock: nothing before it will change. Once all inputs are finished they
are final up to the largest event time. Times come back in the type of the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from hayase.core.declarations import EVENT_TIME
from hayase.core.errors import HayaseError, OffsetGone
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
from hayase.engine.results.snapshots import before, check, is_trimmed, rows_in, snapshots
from hayase.streams import Index, StreamLog, event_times

__all__ = ["Results", "Time"]

Time = datetime | str | int
"""A point in time: a datetime, ISO text, or an integer in the unit of the stream (microseconds for timestamps)."""

_TRIES = 64
"""Times that a stream may be begun anew or trimmed under a reader, in a row."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Intervals:
    """Rows in the order of their beginning, and when each is valid, in microseconds."""

    rows: pa.Table
    start: Integers
    end: Integers


@dataclass(frozen=True, slots=True)
class Results:
    """The records of a stream, be it declared or the output of a stage, and what they say."""

    log: StreamLog

    # -- records ------------------------------------------------------------------------------------------------------
    def table(self, first: int | None = None) -> pa.Table:
        """All records there are, as an Arrow table, in the order of the log; event time that no column of the query tells is
        `event_time`."""
        return self.log.declaration.shown(self._table(first))

    def _table(self, first: int | None = None) -> pa.Table:
        index = self._index()
        begin = index.start if first is None else first
        pieces = self.log.read(begin, index.next) if begin < index.next else ()
        return pa.Table.from_batches([each.rows for each in pieces], schema=self.log.declaration.arrow_schema)

    def rows(self) -> list[dict[str, Any]]:
        """All records there are, as dicts, in time order; records of one time in the order of the log."""
        table = self._table()
        order = np.argsort(event_times(table, self.log.declaration), kind="stable")
        return list(self.log.declaration.shown(table.take(pa.array(order))).to_pylist())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    # -- what they say --------------------------------------------------------------------------------------------------
    def final(self) -> Any:
        """The latest instant at which results are final; None as long as there is none."""
        final = self._latest(self._index())
        return None if final is None else self._times(np.array([final]))[0].as_py()

    def intervals(self) -> list[tuple[dict[str, Any], Any, Any]]:
        """Every row with the time from which and the time until which it is valid; None if it has no known end.

        In the order of their beginnings; rows that begin together in the order in which they came.
        """
        found = self._consistent(self._intervals)
        times = self._times(found.start).to_pylist(), self._times(found.end).to_pylist()
        return list(zip(found.rows.to_pylist(), *times))

    def intervals_table(self) -> pa.Table:
        """The same as an Arrow table: the columns of the rows, then `valid_from` and `valid_to`."""
        found = self._consistent(self._intervals)
        rows = found.rows
        for name, times in (("valid_from", found.start), ("valid_to", found.end)):
            rows = rows.append_column(_free(name, rows.column_names), self._times(times))
        return rows

    def changes(self) -> list[tuple[Any, str, dict[str, Any]]]:
        """What happened up to where results are final: (time, "+" or "-", row) in time order, "-" first at each time."""
        time, sign, rows = self._consistent(self._changes)
        return list(zip(self._times(time).to_pylist(), sign.to_pylist(), rows.to_pylist()))

    def changes_table(self) -> pa.Table:
        """The same as an Arrow table: `event_time`, `change`, then the columns of the rows."""
        time, sign, rows = self._consistent(self._changes)
        names = rows.column_names
        heads = {_free(EVENT_TIME, names): self._times(time), _free("change", names): sign}
        return pa.table([*heads.values(), *rows.columns], names=[*heads, *names])

    def at(self, time: Time | None = None) -> list[dict[str, Any]]:
        """The rows that are valid at an instant, the latest final one if none is given; an error beyond that.

        The cost follows what is valid then, not how much there was before.
        """
        return list(self.at_table(time).to_pylist())

    def at_table(self, time: Time | None = None) -> pa.Table:
        """The same as an Arrow table."""
        return self._consistent(lambda index: self._at(index, time))

    # -- how it is found ------------------------------------------------------------------------------------------------
    def _index(self) -> Index:
        """A look at the log; one that nobody has written to is empty."""
        return self.log.index() if self.log.path.exists() else Index((), 0, 0, BEGINNING, BEGINNING)

    def _consistent(self, look: Callable[[Index], _T]) -> _T:
        """The answer from one look at the log, repeated if files went away in between."""
        for _ in range(_TRIES):
            try:
                return look(self._index())
            except (OffsetGone, FileNotFoundError) as error:
                gone = error
        raise HayaseError(f'the results "{self.log.declaration.name}" change too fast to be read: {gone}; try again')

    def _final_before(self, index: Index) -> int:
        """The first instant that is not final."""
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
        batches = [each.rows for each in self.log.read(index.start, index.next)] if index.entries else []
        if not declaration.lifetimes:
            rows = pa.Table.from_batches(batches, schema=declaration.arrow_schema)
            start = event_times(rows, declaration)
            return self._ordered(rows, np.arange(len(start)), start, np.full(len(start), OPEN))
        check(self.log, index)
        kept = snapshots(self.log, index) if is_trimmed(index) else []
        if kept:  # rows that are valid since before the first record
            batches = [*rows_in(self.log, kept[0]), *batches]
        rows = pa.Table.from_batches(batches, schema=declaration.arrow_schema)
        told = lifespans(rows, declaration)
        final = np.flatnonzero(told.changed_at < self._final_before(index))
        told = Lifespans(told.row_id[final], told.start[final], told.end[final], told.changed_at[final])
        at, end = fold(told)
        if kept:  # the snapshot has rows that the log has, too
            _, once = np.unique(told.row_id[at], return_index=True)
            at, end = at[once], end[once]
        return self._ordered(rows, final[at], told.start[at], end)

    def _ordered(self, rows: pa.Table, at: Integers, start: Integers, end: Integers) -> _Intervals:
        order = np.lexsort((at, start))
        return _Intervals(self._own(rows).take(pa.array(at[order])), start[order], end[order])

    def _changes(self, index: Index) -> tuple[Integers, pa.Array, pa.Table]:
        found, final = self._intervals(index), self._final_before(index)
        begun, ended = np.flatnonzero(found.start < final), np.flatnonzero(found.end < final)
        row = np.concatenate([ended, begun])
        time = np.concatenate([found.end[ended], found.start[begun]])
        order = np.argsort(time, kind="stable")  # ends come first in it, and so at each instant
        sign = pa.DictionaryArray.from_arrays((order >= len(ended)).astype(np.int8), ["-", "+"]).cast(pa.string())
        return time[order], sign, found.rows.take(pa.array(row[order]))

    def _at(self, index: Index, time: Time | None) -> pa.Table:
        declaration = self.log.declaration
        wanted = self._latest(index) if time is None else self._instant(time)
        if wanted is None:
            empty = declaration.arrow_schema.empty_table()
            return self._own(empty) if declaration.lifetimes else declaration.shown(empty)
        final = self._final_before(index)
        if wanted >= final:
            raise self._not_final(index, wanted)
        if not declaration.lifetimes:
            pieces = self.log.read(index.start, index.next) if index.entries else ()
            early = [each.rows.filter(pa.array(event_times(each.rows, declaration) <= wanted)) for each in pieces]
            rows = pa.Table.from_batches(early, schema=declaration.arrow_schema)
            order = np.argsort(event_times(rows, declaration), kind="stable")
            return declaration.shown(rows.take(pa.array(order)))
        unit = wanted // self._scale * self._scale + self._scale - 1  # nothing happens within a unit of time
        return self._own(self._valid(index, min(unit, final - 1)))

    def _valid(self, index: Index, time: int) -> pa.Table:
        """The rows that are valid at an instant: those of a snapshot and of the records behind it, less those that ended."""
        declaration = self.log.declaration
        snapshot, end = before(self.log, index, time)
        if snapshot is None and is_trimmed(index):
            raise self._removed(index, time)
        batches = [] if snapshot is None else list(rows_in(self.log, snapshot))
        first = index.start if snapshot is None else snapshot.offset
        batches += [each.rows for each in self.log.read(first, end)] if first < end else []
        valid, ended = [], [np.empty(0, np.int64)]
        for batch in batches:
            told = lifespans(batch, declaration)
            known = told.changed_at <= time
            appears = told.appears
            ended.append(told.row_id[known & ~appears])
            valid.append(batch.filter(pa.array(known & appears & (told.end > time))))
        rows = pa.Table.from_batches(valid, schema=declaration.arrow_schema)
        left = lifespans(rows, declaration)
        at = np.flatnonzero(~np.isin(left.row_id, np.concatenate(ended)))
        return rows.take(pa.array(at[np.argsort(left.start[at], kind="stable")]))

    # -- times and errors -----------------------------------------------------------------------------------------------
    @property
    def _scale(self) -> int:
        return self.log.declaration.time_scale

    def _own(self, rows: pa.Table) -> pa.Table:
        return rows.select(own_columns(self.log.declaration))

    def _times(self, times: Integers) -> pa.Array:
        declaration = self.log.declaration
        kind = declaration.arrow_schema.field(VALID_FROM if declaration.lifetimes else declaration.time).type
        return from_micros(times, kind, self._scale)

    def _instant(self, time: Time) -> int:
        if self.log.declaration.time_unit is not None:
            if isinstance(time, str) and time.strip().lstrip("+-").isdigit():
                time = int(time)
            if isinstance(time, int):
                return time * self._scale
        return instant(time)

    def _told(self, time: int) -> str:
        return instant_text(time) if self.log.declaration.time_unit is None else str(time // self._scale)

    def _not_final(self, index: Index, time: int) -> HayaseError:
        name, latest = self.log.declaration.name, self._latest(index)
        if latest is None:
            return HayaseError(
                f'nothing of "{name}" is final yet; append records to what it reads and run the pipeline'
            )
        way = "the inputs end there" if index.finished else "append later records, or finish the streams that it reads"
        return HayaseError(f'"{name}" is final up to {self._told(latest)}, and {self._told(time)} is after that; {way}')

    def _removed(self, index: Index, time: int) -> HayaseError:
        kept = snapshots(self.log, index)
        since = f"; what is left begins at {self._told(kept[0].clock - 1)}" if kept else ""
        return HayaseError(
            f'what "{self.log.declaration.name}" was at {self._told(time)} was removed by its retention{since}'
        )


def _free(name: str, taken: list[str]) -> str:
    """The name, or a longer one if a column of the rows has it."""
    while name in taken:
        name += "_"
    return name
