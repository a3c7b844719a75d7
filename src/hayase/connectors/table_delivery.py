"""Delivers the rows of a table to a sink that mirrors them by their key.

A target that has nothing gets all rows, in the order of their keys; then, after each batch, the rows of the keys that it changed,
as they are now. The position says which state of the table the target has: generation, batch, and, while all rows go out, the last
key. A row is written as it is at the time of the write, so a write may be ahead of its position, and never behind.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hayase.connectors.sink import HEADS, Changes, Position, Sink
from hayase.core.clock import now_us
from hayase.core.declarations import StreamDeclaration, TableDeclaration
from hayase.core.errors import DamagedState
from hayase.core.schemas import ddl
from hayase.core.stages import MAIN
from hayase.engine.definition.definitions import definition_of
from hayase.engine.home import Home
from hayase.engine.integrity.heads import head_of
from hayase.engine.results.output_positions import keep_position
from hayase.engine.results.table_cursor import TableCursor
from hayase.tables.changed_keys import TableState, changed_keys, state_of
from hayase.tables.entries import Key, key_from
from hayase.tables.export_rows import export_rows
from hayase.tables.stores import View
from hayase.tables.table import Row, Table, open_reader

__all__ = ["TableDelivery", "table_stream"]

MOST_ROWS = 20_000
"""Rows in one write."""


def table_stream(table: TableDeclaration) -> StreamDeclaration:
    """Return a stream with the columns of a table, behind its time, which no row has: sinks know by it what they write."""
    time = "time"
    while time in (*table.key, *table.column_names):
        time += "_"
    return StreamDeclaration(table.name, f"{time} timestamp, {ddl(export_rows(table, ()).schema)}", time)


class TableDelivery:
    """One output of a table: the table that it reads and the sink that it writes to."""

    def __init__(self, home: Home, output: str, table: TableDeclaration, sink: Sink):
        self._home, self._output, self._declaration, self._sink = home, output, table, sink
        self._position = sink.position()
        self._cursor = None if self._position is None else TableCursor.from_text(self._position.cursor)
        self._table: Table = open_reader(home.table(table.name), table)
        self._keys: list[bytes] = []
        """Changed keys that are not written yet, and with them `_until`."""
        self._until: TableCursor | None = None
        self._due = 0.0

    @property
    def position(self) -> Position | None:
        """How far the target got."""
        return self._position

    def step(self) -> int:
        """Write the next rows, or collect changed keys until a write is due; return their number."""
        if self._keys:
            return self._write_due()
        present = self._present()
        if present is None:
            return 0
        cursor = self._cursor
        if cursor is None or cursor.after is not None or not self._follows(cursor, present):
            return self._write_all(present)
        if cursor.state.marker == present.state.marker:
            return 0
        keys = self._table.store.read(lambda view: changed_keys(view, cursor.state.marker))
        if keys is None:
            return self._write_all(present)
        self._keys, self._until, self._due = keys, present, time.monotonic() + self._sink.every
        return self._write_due()

    def flush(self) -> None:
        """Write the rows of all keys that were collected."""
        while self._keys:
            self._write_changed()

    def lag(self) -> int:
        """Return how many changed keys wait; 1 if the table has more than the target, by how much is not known."""
        if self._keys:
            return len(self._keys)
        present, cursor = self._present(), self._cursor
        if present is None:
            return 0
        is_behind = cursor is None or cursor.after is not None or not self._follows(cursor, present)
        return int(is_behind or (cursor is not None and cursor.state.marker != present.state.marker))

    def close(self) -> None:
        """Close the sink and the table."""
        self._sink.close()
        self._table.close()

    # ------------------------------------------------------------------------------------------------------- positions

    def _present(self) -> TableCursor | None:
        """Return the state of the table now; None before the pipeline knows of the output, and names the keys that change."""
        self._table.refresh()
        state = self._table.store.read(_begun_state)
        definition = head_of(self._home, MAIN).definition  # after the state: no batch in it ran under a later one
        if state is None or not self._is_read_under(definition):
            return None
        return TableCursor(state, definition, len(self._declaration.columns))

    def _follows(self, cursor: TableCursor, present: TableCursor) -> bool:
        """Whether all that has happened since a cursor is in the keys that batches have changed."""
        same = (cursor.state.generation, cursor.state.loads, cursor.columns)
        if same != (present.state.generation, present.state.loads, present.columns):
            return False
        return all(self._is_read_under(version) for version in range(cursor.definition, present.definition + 1))

    def _is_read_under(self, version: int) -> bool:
        """Whether some output reads the table under a version of the definition, so that batches keep the keys they change."""
        try:
            outputs = definition_of(self._home, version).declaration.outputs if version else ()
        except DamagedState:
            return False
        return any(output.reads == self._declaration.name for output in outputs)

    # ---------------------------------------------------------------------------------------------------------- writes

    def _write_all(self, present: TableCursor) -> int:
        """Write the next of all rows. Where the table began anew, the first write removes what the target holds."""
        cursor, anew = self._cursor, False
        if cursor is None or cursor.after is None or not self._follows(cursor, present):
            anew = cursor is not None and cursor.state.generation != present.state.generation
            cursor = TableCursor(present.state, present.definition, present.columns, b"")
        page = self._table.scan(after=cursor.after or None, limit=self._sink.most or MOST_ROWS)
        until = TableCursor(cursor.state, cursor.definition, cursor.columns, page.next)
        if not page.rows and cursor.after == b"" and not anew:
            self._cursor = until  # nothing to write, and nothing that the target must remember
            return 0
        self._write(page.rows, until, anew)
        return len(page.rows) or int(anew)

    def _write_due(self) -> int:
        if time.monotonic() < self._due:
            return 0
        return self._write_changed()

    def _write_changed(self) -> int:
        """Write rows of keys that have changed. The position moves with the last of them: a row may be written twice."""
        assert self._until is not None
        assert self._cursor is not None
        most = self._sink.most or MOST_ROWS
        keys, self._keys = self._keys[:most], self._keys[most:]
        rows = [(key_from(key), row) for key, row in zip(keys, self._table.get_encoded(keys)) if row is not None]
        self._write(rows, self._cursor if self._keys else self._until, False)
        return len(keys)

    def _write(self, rows: Sequence[tuple[Key, Row]], until: TableCursor, anew: bool) -> None:
        number = 1 if self._position is None else self._position.number + 1
        position = Position(number, str(until))
        self._sink.write(Changes(_changes(self._declaration, rows), self._position, position, anew))
        self._position, self._cursor = position, until
        keep_position(self._home, self._output, position.cursor)


def _begun_state(view: View) -> TableState | None:
    state = state_of(view)
    return state if state.generation else None


def _changes(table: TableDeclaration, rows: Sequence[tuple[Key, Row]]) -> pa.Table:
    """Return rows as changes: each appears now, in place of what its key had."""
    count = len(rows)
    heads = [pa.array(np.full(count, now_us())), pa.array(np.ones(count, np.bool_)), pa.array(np.arange(count))]
    batch = export_rows(table, rows)
    return pa.table([*heads, *batch.columns], names=[*HEADS, *batch.schema.names])
