"""Messages with keys as changes of a relation: a value is the new row of its key, a message without a value is its end.

A message with a value becomes the `-` of the last row of its key, if there is one, and the `+` of the new row; one without a value
(a tombstone) becomes the `-` alone, and nothing if the key has no row. The event time is that of the message, but never before the
last change of the key, and never late: what comes too late for the stream's slack changes the relation at the earliest instant
that is still open. So the relation is what the topic says, whatever the order in which partitions are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from hayase.connectors.last_rows import LastRows, Row, logged_changes
from hayase.core.declarations import StreamDeclaration
from hayase.streams.log import StreamLog
from hayase.streams.records import Conformed

__all__ = ["Upsert", "Upserts"]

_FEW = 10_000
"""So many times of keys are kept without asking whether they are still needed."""
_HINT = "remove the retention, and read the topic into a stream of another name"


class Upsert(NamedTuple):
    """A message: its key, its time in microseconds, and the place of its row among the decoded ones; None for a tombstone."""

    key: str
    time: int
    place: int | None


class Upserts:
    """The last row of each key of a topic, and what messages change in them."""

    def __init__(self, stream: StreamDeclaration, log: StreamLog, key_column: str):
        assert stream.changes is not None, "the check of the pipeline sees to that"
        self._stream, self._log = stream, log
        self._names = [name for name in stream.arrow_schema.names if name not in (stream.time, stream.changes)]
        self._key = self._names.index(key_column)
        self._rows: LastRows[str] = LastRows()
        self._times: dict[str, int] = {}
        """When a key changed last, for those of which a message could come with an earlier time."""
        self._latest = log.index().running_max

    def load(self) -> None:
        """Read from the stream which rows it has; afterwards nobody else may append to it."""
        self._rows, self._times = LastRows(), {}
        for change in logged_changes(self._log, 0, self._values, _HINT):
            key = change.row[self._key]
            self._rows.apply(key, change.added, change.row)
            self._times[key] = change.time
        self._forget(self._earliest())

    def changes(self, upserts: Sequence[Upsert], decoded: Conformed) -> Conformed:
        """Return the changes that messages of one partition make, in their order; refused records stay as they are."""
        values, earliest = self._values(decoded.rows), self._earliest()
        rows: list[Row] = []
        signs: list[str] = []
        times: list[int] = []
        for key, time, place in upserts:
            earliest = max(earliest, self._latest - self._stream.slack)
            moment = max(time, self._times.get(key, earliest), earliest)
            old = self._rows.pop(key, None)
            if old is not None:
                rows.append(old)
                signs.append("-")
                times.append(moment)
            if place is not None:
                rows.append(values[place])
                signs.append("+")
                times.append(moment)
                self._rows[key] = values[place]
            if old is not None or place is not None:
                self._times[key] = moment
                self._latest = max(self._latest, moment)
        self._forget(earliest)
        return Conformed(self._table(rows, signs, times), decoded.refused)

    def _earliest(self) -> int:
        """Return the event time before which a record is late."""
        index = self._log.index()
        self._latest = max(self._latest, index.running_max)
        return max(index.clock, self._latest - self._stream.slack)

    def _forget(self, earliest: int) -> None:
        """Drop times that no longer say more than the stream's clock does."""
        if len(self._times) > _FEW:
            self._times = {key: time for key, time in self._times.items() if time > earliest}

    def _values(self, rows: pa.Table | pa.RecordBatch) -> list[Row]:
        return list(zip(*(_plain(rows.column(name)) for name in self._names)))

    def _table(self, rows: list[Row], signs: list[str], times: list[int]) -> pa.Table:
        stream, schema = self._stream, self._stream.arrow_schema
        columns: dict[str, Any] = dict(zip(self._names, zip(*rows) if rows else ((),) * len(self._names)))
        columns[str(stream.changes)] = signs
        columns[stream.time] = [time // stream.time_scale for time in times]
        return pa.table([_array(columns[field.name], field.type) for field in schema], schema=schema)


def _plain(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Return values for `_array`; times are numbers, since Python's end with the year 9999."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).view(kind)
    return pa.array(values, kind)
