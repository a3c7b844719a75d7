"""Results of queries for HTTP: snapshots in pages, and changes from a cursor on.

A cursor is text: a mark that changes when the query is reset, and the position of the reader. For a relation, the position is
an event time and the number of changes of that time already read; changes are read in the order of event time, once they are
final, "-" before "+", and at one time by row. For a stream, it is the offset of the next record in the log. A cursor does not
depend on batches, so it stays valid after restarts; after a reset of the query it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from hayase.core.errors import OffsetGone
from hayase.core.times import BEGINNING, END
from hayase.engine.results.lifespans import OPEN, VALID_FROM, VALID_TO, lifespans, own_columns
from hayase.engine.results.query_results import Results, Time
from hayase.engine.results.snapshots import rows_in, snapshot_before
from hayase.serving.problems import Problem
from hayase.streams import Index, event_times
from hayase.streams.repeats import first_pieces, first_rows
from hayase.streams.schema_evolution import stored_declaration

__all__ = ["Changes", "Cursor", "Live", "SnapshotPage"]

NOT_BEGUN = "0"
"""The mark of a query that no lane has begun."""
_RECORDS = 65_536
"""Records that are read at once."""


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
            raise Problem(422, "this is not a cursor; send one from an answer, unchanged") from None
        if len(text) > 200 or not (BEGINNING <= at <= END and 0 <= returned <= END):
            raise Problem(422, "this cursor is out of range; send one from an answer, unchanged")
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
            raise Problem(409, str(self._not_final(index, wanted)))
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
                raise self._invalid_cursor(f"record {first} is not there")
            return Changes(self, replace(cursor, at=first), first)
        snapshot, _ = snapshot_before(self.log, index, cursor.at - 1)
        if snapshot is None:
            if index.entries and index.entries[0].before > BEGINNING:
                raise self._invalid_cursor("changes of that time are no longer retained")
            return Changes(self, cursor, index.start)
        changes = Changes(self, cursor, snapshot.offset)
        changes.take(list(rows_in(self.log, snapshot)))
        return changes

    def _schema(self) -> pa.Schema:
        own = [self.log.declaration.arrow_schema.field(name) for name in own_columns(self.log.declaration)]
        heads = [pa.field("__time", pa.int64()), pa.field("__appears", pa.bool_()), pa.field("__row", pa.int64())]
        return pa.schema([*heads, *own])

    def _current(self, cursor: Cursor, mark: str) -> Cursor:
        """Return the cursor for the query as it is now; one from before the query began has missed nothing."""
        is_from_before = cursor.mark == NOT_BEGUN and cursor.at in (BEGINNING, 0) and not cursor.returned
        if cursor.mark != mark and not is_from_before:
            raise self._invalid_cursor("the query was reset")
        return replace(cursor, mark=mark)

    def _invalid_cursor(self, why: str) -> Problem:
        name = self.log.declaration.name
        return Problem(
            410,
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

        The result is empty if there are none yet; the next call may have some. A cursor that is no longer valid is a problem.
        """
        index = self._of._index()
        seen = index.start, index.next, index.running_max, index.clock
        if seen == self._seen:
            return [], self._of._schema().empty_table()
        try:
            self.cursor = self._of._current(self.cursor, self._of._mark())
            changes = self._final(limit) if self._of.log.declaration.lifetimes else self._records(limit)
            self._seen = () if changes[0] else seen
            return changes
        except OffsetGone:
            raise self._of._invalid_cursor("records that were not read yet were removed by retention") from None

    def times(self, changes: pa.Table) -> list[Any]:
        """Return the times of changes, in the type of the stream's time column."""
        return list(self._of._times(changes.column("__time").to_numpy()).to_pylist())

    def _records(self, limit: int) -> tuple[list[Cursor], pa.Table]:
        live, first = self._of, self.cursor.at
        end = min(live._index().next, first + limit)
        batches = list(first_rows(live.log, first, end)) if first < end else []
        rows = pa.Table.from_batches(batches, schema=live.log.declaration.arrow_schema)
        offsets = np.arange(first, end)
        heads = [event_times(rows, live.log.declaration), np.ones(len(offsets), np.bool_), offsets]
        self.cursor = replace(self.cursor, at=end)
        own = rows.select(own_columns(live.log.declaration))
        table = pa.table([*map(pa.array, heads), *own.columns], schema=live._schema())
        return [Cursor(self.cursor.mark, at + 1) for at in offsets.tolist()], table

    def _final(self, limit: int) -> tuple[list[Cursor], pa.Table]:
        while True:
            index = self._of._index()
            complete = self._offset >= index.next
            final = self._of._final_before(index) if complete else index.clock_at(self._offset)
            self._skip(final)
            time = self._pending.column("__time").to_numpy()
            ready = min(int(np.searchsorted(time, final)), limit)
            if ready or complete:
                break
            end = index.holding(
                min(self._offset + _RECORDS, index.next) - 1
            ).next  # the end of a segment, where a clock is known
            self.take(list(first_rows(self._of.log, self._offset, end)))
            self._offset = end
        changes, self._pending = self._pending.slice(0, ready), self._pending.slice(ready)
        cursors = []
        for instant in time[:ready].tolist():
            number = self.cursor.returned + 1 if instant == self.cursor.at else 1
            self.cursor = Cursor(self.cursor.mark, instant, number)
            cursors.append(self.cursor)
        return cursors, changes

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
