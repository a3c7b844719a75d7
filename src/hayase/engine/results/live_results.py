"""Results of queries as they grow: snapshots in pages, and changes from a cursor on.

A cursor is text: a mark that changes when the query is reset, and the position of the reader. For a relation, the position is
an event time and the number of changes of that time already read; changes are read in the order of event time, once they are
final, "-" before "+", and at one time by row. For a stream, it is the offset of the next record in the log. A cursor does not
depend on batches, so it stays valid after restarts; after a reset of the query it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.data_classes import dataclass
from hayase.core.errors import CursorGone, InvalidCursor, OffsetGone
from hayase.core.times import BEGINNING, END
from hayase.engine.results.lifespans import OPEN, VALID_FROM, VALID_TO, Integers, lifespans, own_columns
from hayase.engine.results.query_results import Results, Time
from hayase.engine.results.snapshots import is_trimmed, rows_in, snapshot_before, snapshots
from hayase.streams import Index, event_times
from hayase.streams.repeats import first_pieces, first_rows
from hayase.streams.schema_evolution import stored_declaration

__all__ = ["Changes", "Cursor", "Live", "SnapshotPage"]

NOT_BEGUN = "0"
"""The mark of a query that no lane has begun."""
_RECORDS = 65_536
"""Records that are read at once."""
LAST = 1_000
"""How many of the last records are looked at first to find the time of one of them."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position of a reader: `at` is an event time or an offset, `returned` the number of changes of that time already read."""

    mark: str
    at: int
    returned: int = 0

    def __str__(self) -> str:
        return f"{self.mark}.{self.at}.{self.returned}"

    @classmethod
    def from_text(cls, text: str) -> Cursor:
        """Parse the text that `str` gives.

        >>> Cursor.from_text(str(Cursor("3", -5, 1)))
        Cursor(mark='3', at=-5, returned=1)
        """
        mark, *numbers = text.rsplit(".", 2)
        try:
            at, returned = map(int, numbers)
        except ValueError:
            raise InvalidCursor("this is not a cursor; send one from an answer, unchanged") from None
        if len(text) > 200 or not (BEGINNING <= at <= END and 0 <= returned <= END):
            raise InvalidCursor("this cursor is out of range; send one from an answer, unchanged")
        return cls(mark, at, returned)


@dataclass(frozen=True, slots=True)
class SnapshotPage:
    """Rows valid at the time `at`, which has the type of the stream's time column. `next` is the cursor of the next page,
    `changes` that of the changes after the snapshot."""

    at: Any
    rows: pa.Table
    next: Cursor | None
    changes: Cursor


@dataclass(frozen=True, slots=True)
class Live(Results):
    """The results of a query, read in pages and from cursors."""

    def page(
        self, time: Time | None, *, after: Cursor | None = None, limit: int, with_lifetimes: bool = False
    ) -> SnapshotPage:
        """Return a page of the snapshot at an instant; all pages of a snapshot show the same instant."""
        return self._consistent(lambda index: self._page(index, time, after, limit, with_lifetimes))

    def _page(
        self, index: Index, time: Time | None, after: Cursor | None, limit: int, with_lifetimes: bool
    ) -> SnapshotPage:
        mark = self._mark()
        wanted = self._snapshot_instant(index, time, after, mark)
        first = 0 if after is None else after.returned
        if wanted is None:
            page, behind = self.log.declaration.arrow_schema.empty_table(), None
        elif self.log.declaration.lifetimes:
            rows = self._valid(index, wanted)
            page = rows.slice(first, limit)
            behind = first + limit if first + limit < rows.num_rows else None
        else:
            page, behind = self._records(index, wanted, first, limit)
        declaration = self.log.declaration
        own = self._own(page) if declaration.lifetimes else declaration.shown(page)
        if with_lifetimes:
            for name, column in self._lifetimes(page):
                while name in own.column_names:
                    name += "_"
                own = own.append_column(name, column)
        return SnapshotPage(
            at=None if wanted is None else self._times(np.array([wanted // self._scale * self._scale]))[0].as_py(),
            rows=own,
            next=None if behind is None or wanted is None else Cursor(mark, wanted, behind),
            changes=self._cursor_after(index, wanted, mark),
        )

    def appearing(self, page: SnapshotPage) -> pa.Table:
        """Return the rows of a page as changes like those of `changes_table`: each appears at the time of the snapshot."""
        count = page.rows.num_rows
        times = pa.array([page.at] * count, self._time_type)
        return self._headed(times, pa.array(["+"] * count, pa.string()), page.rows)

    def _records(self, index: Index, wanted: int, first: int, limit: int) -> tuple[pa.Table, int | None]:
        """Return records from offset `first` on that are not after `wanted`, in log order, and the offset of the next page.

        A stream contains all its records at every later instant, so only as many are read as the page needs.
        """
        batches: list[pa.RecordBatch] = []
        count, schema = 0, self.log.declaration.arrow_schema
        for piece in (
            first_pieces(self.log, max(first, index.start), index.next) if index.next > max(first, index.start) else ()
        ):
            early = np.flatnonzero(event_times(piece.rows, self.log.declaration) <= wanted)
            if count + len(early) > limit:
                early = early[: limit - count + 1]
                batches.append(piece.rows.take(pa.array(early[:-1])))
                return pa.Table.from_batches(batches, schema=schema), piece.first + int(early[-1])
            batches.append(piece.rows.take(pa.array(early)))
            count += len(early)
        return pa.Table.from_batches(batches, schema=schema), None

    def _snapshot_instant(self, index: Index, time: Time | None, after: Cursor | None, mark: str) -> int | None:
        """Return the last final microsecond of the requested unit of time; None if no time is requested and nothing is final."""
        final = self._final_before(index)
        if after is not None:
            wanted = self._current(after, mark).at
        elif time is not None:
            wanted = self._instant(time) // self._scale * self._scale
        else:
            latest = self._latest(index)
            if latest is None:
                return None
            wanted = latest
        if wanted >= final:
            raise self._not_final(index, wanted)
        return min(wanted // self._scale * self._scale + self._scale - 1, final - 1)

    def _lifetimes(self, page: pa.Table) -> Iterator[tuple[str, Any]]:
        declaration = self.log.declaration
        if declaration.lifetimes:
            yield "valid_from", page.column(VALID_FROM)
            yield "valid_to", page.column(VALID_TO)
        else:
            kind = declaration.arrow_schema.field(declaration.time).type
            yield "valid_from", page.column(declaration.time)
            yield "valid_to", pa.nulls(page.num_rows, kind)

    def _cursor_after(self, index: Index, wanted: int | None, mark: str) -> Cursor:
        """Return the cursor of the changes after a snapshot; for a stream, that of the first record not in it."""
        if self.log.declaration.lifetimes:
            return Cursor(mark, BEGINNING if wanted is None else wanted + 1)
        for entry in index.entries:
            if wanted is not None and entry.running_max <= wanted:
                continue
            for piece in first_pieces(self.log, entry.first, entry.next):
                later = event_times(piece.rows, self.log.declaration) > (BEGINNING if wanted is None else wanted)
                if later.any():
                    return Cursor(mark, piece.first + int(later.argmax()))
        return Cursor(mark, index.next)

    # -- changes --------------------------------------------------------------------------------------------------------
    def changes_from(self, cursor: Cursor | None) -> Changes:
        """Return the changes after a cursor; without one, those that become final from now on."""
        return self._consistent(lambda index: self._changes_from(index, cursor))

    def changes_from_start(self) -> Changes:
        """Return all retained changes."""
        return self.changes_from(Cursor(NOT_BEGUN, BEGINNING))

    def _changes_from(self, index: Index, cursor: Cursor | None) -> Changes:
        mark = self._mark()
        relation = self.log.declaration.lifetimes
        if cursor is None:
            cursor = Cursor(mark, self._final_before(index) if relation else index.next)
        cursor = self._current(cursor, mark)
        if not relation:
            first = index.start if cursor.at == BEGINNING else cursor.at
            if not index.start <= first <= index.next:
                raise self._cursor_gone(f"record {first} is not there")
            return Changes(self, replace(cursor, at=first), first)
        snapshot, _ = snapshot_before(self.log, index, cursor.at - 1)
        if snapshot is None:
            if index.entries and index.entries[0].before > BEGINNING:
                raise self._cursor_gone("changes of that time are no longer retained")
            return Changes(self, cursor, index.start)
        changes = Changes(self, cursor, snapshot.offset)
        changes.take(list(rows_in(self.log, snapshot)))
        return changes

    def changes_of_last(self, count: int) -> Changes:
        """Return the changes from some time on: at least the last `count` changes that are final, if there are as many."""
        return self._consistent(lambda index: self._changes_of_last(index, count))

    def _changes_of_last(self, index: Index, count: int) -> Changes:
        if count == 0:
            return self._changes_from(index, None)
        if not self.log.declaration.lifetimes:
            return self._changes_from(index, Cursor(self._mark(), max(index.start, index.next - count)))
        final, size = self._final_before(index), max(count, LAST)
        while True:
            first = max(index.start, index.next - size)
            times = [
                lifespans(rows, self.log.declaration).changed_at
                for rows in (first_rows(self.log, first, index.next) if first < index.next else ())
            ]
            changed_at = np.sort(np.concatenate([np.empty(0, np.int64), *times]))
            changed_at = changed_at[
                : np.searchsorted(changed_at, final)
            ]  # each of these records is a change at its time
            if len(changed_at) >= count:
                try:
                    return self._changes_from(index, Cursor(self._mark(), int(changed_at[-count])))
                except CursorGone:  # no snapshot is old enough
                    return self._changes_from_oldest(index)
            if first == index.start:
                return self._changes_from_oldest(index)
            size *= 8

    def changes_from_oldest(self) -> Changes:
        """Return all changes that are retained; rows from before appear at their own times, if they have not ended since."""
        return self._consistent(self._changes_from_oldest)

    def _changes_from_oldest(self, index: Index) -> Changes:
        existing = snapshots(self.log, index) if self.log.declaration.lifetimes and is_trimmed(index) else []
        if not existing:
            return self._changes_from(index, Cursor(NOT_BEGUN, BEGINNING))
        changes = Changes(self, Cursor(self._mark(), BEGINNING), existing[0].offset)
        changes.take(list(rows_in(self.log, existing[0])))
        return changes

    def _schema(self) -> pa.Schema:
        own = [self.log.declaration.arrow_schema.field(name) for name in own_columns(self.log.declaration)]
        heads = [pa.field("__time", pa.int64()), pa.field("__appears", pa.bool_()), pa.field("__row", pa.int64())]
        return pa.schema([*heads, *own])

    def is_current(self, cursor: Cursor) -> bool:
        """Return whether a cursor is one of the query as it is now, and not of one before a reset."""
        return cursor.mark == self._mark()

    def _current(self, cursor: Cursor, mark: str) -> Cursor:
        """Return the cursor for the query as it is now; one from before the query began has missed nothing."""
        is_from_before = cursor.mark == NOT_BEGUN and cursor.at in (BEGINNING, 0) and not cursor.returned
        if cursor.mark != mark and not is_from_before:
            raise self._cursor_gone("the query was reset")
        return replace(cursor, mark=mark)

    def _cursor_gone(self, why: str) -> CursorGone:
        name = self.log.declaration.name
        return CursorGone(
            f"this cursor is no longer valid: {why}; take a new snapshot, GET /queries/{name}, and continue from its cursor",
        )

    def _mark(self) -> str:
        kept = stored_declaration(self.log.path)
        return (kept.mark if kept else None) or NOT_BEGUN


class Changes:
    """A reader of changes. Changes that it has read from the log and not yet returned are pending; `cursor` is the position
    after the last returned change."""

    def __init__(self, of: Live, cursor: Cursor, offset: int):
        self._of, self.cursor, self._offset = of, cursor, offset
        self._pending = of._schema().empty_table()
        self._known = cursor.returned
        """Changes at the cursor's time that were returned before this reader began."""
        self._seen: tuple[int, ...] = ()
        """The state of the log when there was nothing to return; while it is the same, nothing is read."""

    def read(self, limit: int) -> tuple[list[Cursor], pa.Table]:
        """Return up to `limit` final changes: the cursor after each, and a table with `__time`, `__appears` and the row.

        The result is empty if there are none yet; the next call may have some. CursorGone if the cursor is no longer valid.
        """
        before = self.cursor
        changes = self._read(lambda: self._take_final(limit, 1), limit)
        if not self._of.log.declaration.lifetimes:
            last = self.cursor
            return [replace(last, at=at + 1) for at in changes.column("__row").to_pylist()], changes
        cursors = []
        for instant in changes.column("__time").to_pylist():
            before = Cursor(self.cursor.mark, instant, before.returned + 1 if instant == before.at else 1)
            cursors.append(before)
        return cursors, changes

    def read_instants(self, limit: int, most: int) -> pa.Table:
        """Return about `limit` final changes, all of an instant together unless there are more than `most` of it; `cursor` is then
        the one behind them. Otherwise like `read`, and quicker if there are many."""
        return self._read(lambda: self._take_final(limit, limit, most), limit)

    def waiting(self) -> int:
        """Return about how many changes are not returned yet: records of the log that are not read, and final changes."""
        index = self._of._index()
        if not self._of.log.declaration.lifetimes:
            return max(0, index.next - max(self.cursor.at, index.start))
        final = self._of._final_before(index)
        return max(0, index.next - self._offset) + int((self._pending.column("__time").to_numpy() < final).sum())

    def table(self, changes: pa.Table) -> pa.Table:
        """Return changes that were read as a table like `Results.changes_table`: `event_time`, `change`, then the row."""
        sign = pc.if_else(changes.column("__appears"), "+", "-")
        return self._of._change_table(
            changes.column("__time").to_numpy(), sign, changes.select(changes.column_names[3:])
        )

    @property
    def is_finished(self) -> bool:
        """Whether everything was returned, and nothing more will come, because all inputs are finished."""
        return self._of._index().finished and not self.waiting()

    def times(self, changes: pa.Table) -> list[Any]:
        """Return the times of changes, in the type of the stream's time column."""
        return list(self._of._times(changes.column("__time").to_numpy()).to_pylist())

    def _read(self, take_final: Callable[[], pa.Table], limit: int) -> pa.Table:
        """Return changes, unless nothing has happened since there were none."""
        index = self._of._index()
        seen = index.start, index.next, index.running_max, index.clock
        if seen == self._seen:
            return self._of._schema().empty_table()
        try:
            self.cursor = self._of._current(self.cursor, self._of._mark())
            changes = take_final() if self._of.log.declaration.lifetimes else self._records(limit)
            is_stream = not self._of.log.declaration.lifetimes  # in which a portion may consist of repeats
            self._seen = () if changes.num_rows or (is_stream and self.cursor.at < index.next) else seen
            return changes
        except OffsetGone:
            raise self._of._cursor_gone("records that were not read yet were removed by retention") from None

    def _records(self, limit: int) -> pa.Table:
        live, first = self._of, self.cursor.at
        end = min(live._index().next, first + limit)
        pieces = list(first_pieces(live.log, first, end)) if first < end else []
        rows = pa.Table.from_batches([piece.rows for piece in pieces], schema=live.log.declaration.arrow_schema)
        offsets = np.concatenate(
            [np.arange(piece.first, piece.first + piece.rows.num_rows) for piece in pieces] or [np.empty(0, np.int64)]
        )
        heads = [event_times(rows, live.log.declaration), np.ones(len(offsets), np.bool_), offsets]
        self.cursor = replace(self.cursor, at=end)
        own = rows.select(own_columns(live.log.declaration))
        return pa.table([*map(pa.array, heads), *own.columns], schema=live._schema())

    def _take_final(self, limit: int, enough: int, most: int | None = None) -> pa.Table:
        """Take final changes out of the pending ones, at most `limit`; records are read until there are `enough`. With `most`,
        changes of one instant stay together."""
        while True:
            index = self._of._index()
            complete = self._offset >= index.next
            final = self._of._final_before(index) if complete else index.clock_at(self._offset)
            self._skip(final)
            time = self._pending.column("__time").to_numpy()
            ready = int(np.searchsorted(time, final))
            if ready >= enough or complete:
                break
            end = index.holding(
                min(self._offset + _RECORDS, index.next) - 1
            ).next  # the end of a segment, where a clock is known
            self.take(list(first_rows(self._of.log, self._offset, end)))
            self._offset = end
        if ready > limit:
            ready = limit if most is None else _whole_instants(time[:ready], limit, most)
        changes, self._pending = self._pending.slice(0, ready), self._pending.slice(ready)
        if ready:
            last = int(time[ready - 1])
            count = ready - int(np.searchsorted(time[:ready], last))
            returned = self.cursor.returned + count if last == self.cursor.at else count
            self.cursor = Cursor(self.cursor.mark, last, returned)
        return changes

    def _skip(self, final: int) -> None:
        """Drop the changes returned earlier, once all changes of that time, and so their order, are known."""
        if self._known and self.cursor.at < final:
            self._pending = self._pending.slice(self._known)
            self._known = 0

    def take(self, batches: list[pa.RecordBatch]) -> None:
        """Add records to the pending changes: each says that a row appears, that one ends, or both."""
        declaration = self._of.log.declaration
        rows = pa.Table.from_batches(batches, schema=declaration.arrow_schema).combine_chunks()
        spans = lifespans(rows, declaration)
        begun, ended = np.flatnonzero(spans.appears), np.flatnonzero(spans.end != OPEN)
        row = np.concatenate([ended, begun])
        time = np.concatenate([spans.end[ended], spans.start[begun]])
        appears = np.arange(len(row)) >= len(ended)
        later = time >= self.cursor.at
        row, time, appears = row[later], time[later], appears[later]
        own = rows.select(own_columns(declaration)).take(pa.array(row))
        heads = [pa.array(time), pa.array(appears), pa.array(spans.row_id[row])]
        new = pa.table([*heads, *own.columns], schema=self._of._schema())
        order = [("__time", "ascending"), ("__appears", "ascending"), ("__row", "ascending")]
        self._pending = pa.concat_tables([self._pending, new]).combine_chunks().sort_by(order)


def _whole_instants(time: Integers, limit: int, most: int) -> int:
    """Return how many changes, of times in this order, to take: all of each instant, about `limit`, and of the first one at most
    `most`.

    >>> _whole_instants(np.array([1, 1, 2, 2, 3]), 3, 10), _whole_instants(np.array([1, 1, 1]), 1, 2)
    (2, 2)
    """
    instant = time[limit - 1]
    before = int(np.searchsorted(time, instant))
    if limit == len(time) or time[limit] != instant:
        return limit
    return before or min(int(np.searchsorted(time, instant, side="right")), most)
