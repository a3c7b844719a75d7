"""Delivers the results of a stage to a sink, each change exactly once as far as the target can store a position.

Changes are read from the durable log of the stage's output, in the order of event time, once they are final. A cursor in them does
not depend on batches, so what was written can be told from what was not, however often either side is killed.
"""

from __future__ import annotations

import time

import pyarrow as pa

from hayase.connectors.sink import Changes, Position, Sink
from hayase.core.errors import CursorGone
from hayase.engine.home import Home
from hayase.engine.results.live_results import Changes as Reader
from hayase.engine.results.live_results import Cursor, Live
from hayase.engine.results.output_positions import keep_position
from hayase.streams import StreamLog

__all__ = ["Delivery"]

MOST_CHANGES = 20_000
"""Changes in one write, unless more of them have the same time."""
MOST_OF_ONE_TIME = 1_000_000
"""Changes of one event time that are written together; more are written in several steps."""
MOST_COLLECTED, MOST_BYTES = 500_000, 128 << 20
"""Changes, and their size, that are collected for a sink that writes at intervals; with more of them it writes earlier."""


class Delivery:
    """One output: the results that it reads and the sink that it writes to."""

    def __init__(self, home: Home, output: str, log: StreamLog, sink: Sink):
        self._home, self._output, self._sink = home, output, sink
        self._live = Live(log)
        self._position = sink.position()
        self._anew = False
        self._changes = self._reader()
        self._collected: list[pa.Table] = []
        self._due = 0.0

    @property
    def position(self) -> Position | None:
        """How far the target got."""
        return self._position

    def step(self) -> int:
        """Write the next changes that are final, or collect them until a write is due; return their number."""
        sink = self._sink
        try:
            rows = self._changes.read_instants(sink.most or MOST_CHANGES, sink.most or MOST_OF_ONE_TIME)
        except CursorGone:
            self._anew, self._collected = True, []
            self._changes = self._live.changes_from_oldest()
            return 0
        if rows.num_rows:
            if not self._collected:
                self._due = time.monotonic() + sink.every
            self._collected.append(rows)
        if self._collected and (time.monotonic() >= self._due or self._has_enough()):
            self.flush()
        return rows.num_rows

    def flush(self) -> None:
        """Write the changes that were collected."""
        if not self._collected:
            return
        number = 1 if self._position is None else self._position.number + 1
        until = Position(number, str(self._changes.cursor))
        self._sink.write(Changes(pa.concat_tables(self._collected), self._position, until, self._anew))
        self._position, self._anew, self._collected = until, False, []
        keep_position(self._home, self._output, until.cursor)

    def _has_enough(self) -> bool:
        rows = sum(table.num_rows for table in self._collected)
        return rows >= MOST_COLLECTED or sum(table.nbytes for table in self._collected) >= MOST_BYTES

    def lag(self) -> int:
        """Return about how many changes the target does not have yet."""
        return self._changes.waiting() + sum(table.num_rows for table in self._collected)

    def close(self) -> None:
        """Close the sink."""
        self._sink.close()

    def _reader(self) -> Reader:
        """Return the changes that the target does not have."""
        if self._position is None:
            return self._live.changes_from_oldest()
        try:
            return self._live.changes_from(Cursor.from_text(self._position.cursor))
        except CursorGone:
            self._anew = True
            return self._live.changes_from_oldest()
