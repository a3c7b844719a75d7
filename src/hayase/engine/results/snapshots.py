"""Snapshots of results: files with the rows valid at an instant, beside their stream, so that a read need not scan all of it.

    <home>/streams/<name>/snapshots/{offset}-{rows}-{running maximum}-{clock}-{mark}.rows

A snapshot replaces the records before its offset: it holds those of their rows that are valid at the instant before its
clock or later, with their ends as far as they were known. Together with the records from its offset on, which are all at its
clock or later, it answers for that instant and every later one. Each file has the format of a segment of the stream.

The next snapshot is due after as many records as the last one has rows, and at least `LEAST`: so all snapshots together are
no larger than the stream, and a read scans at most as many records as there are valid rows, or `LEAST`. A snapshot is void
once the stream is reset (the mark identifies each beginning) or retention has removed records after its offset.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import xxhash

from hayase.core.data_classes import dataclass
from hayase.core.errors import DamagedSegment, DamagedState
from hayase.core.stages import query_of
from hayase.core.times import BEGINNING, END
from hayase.engine.results.lifespans import CHANGED_AT, VALID_FROM, VALID_TO, fold, from_micros, lifespans
from hayase.streams import Index, StreamLog
from hayase.streams.durable import make_directory, remove, remove_leftovers
from hayase.streams.schema_evolution import stored_declaration, under
from hayase.streams.segments import open_segment, stage, write_error

__all__ = [
    "DIRECTORY",
    "LEAST",
    "LEAST_UNDER_RETENTION",
    "Snapshot",
    "check",
    "is_trimmed",
    "marks",
    "rows_in",
    "snapshot_before",
    "snapshots",
    "update_snapshots",
]

LEAST = 100_000
"""Least number of records between two snapshots."""
LEAST_UNDER_RETENTION = 1_000
"""The same for a stream with a retention, which removes only records that a snapshot covers."""

DIRECTORY = "snapshots"
_BIAS = 2**63
_NAME = re.compile(r"(\d{20})-(\d{20})-([0-9a-f]{16})-([0-9a-f]{16})-([0-9a-f]{16})\.rows")


@dataclass(frozen=True, slots=True, order=True)
class Snapshot:
    """A snapshot, as its file name describes it."""

    offset: int
    rows: int
    running_max: int
    clock: int
    mark: str

    @property
    def name(self) -> str:
        """The name of the file."""
        times = f"{self.running_max + _BIAS:016x}-{self.clock + _BIAS:016x}"
        return f"{self.offset:020d}-{self.rows:020d}-{times}-{self.mark}.rows"


def snapshots(log: StreamLog, index: Index) -> list[Snapshot]:
    """Return the snapshots that are valid for the log as the index shows it, oldest first."""
    mark = _mark(log)
    return sorted(snapshot for snapshot in _all(log) if _holds(snapshot, index, mark))


def snapshot_before(log: StreamLog, index: Index, time: int) -> tuple[Snapshot | None, int]:
    """Return the newest snapshot that answers for an instant, and the offset up to which records matter to the answer."""
    newest, end = None, index.next
    for snapshot in snapshots(log, index):
        if snapshot.clock - 1 > time:
            end = snapshot.offset
            break
        newest = snapshot
    clock = BEGINNING if newest is None else newest.clock
    first = index.start if newest is None else newest.offset
    for entry in index.entries[index.position(first) if first < index.next else len(index.entries) :]:
        if clock > time:  # all later records are after the instant
            end = min(end, entry.first)
            break
        clock = max(clock, entry.clock)
    return newest, max(end, first)


def check(log: StreamLog, index: Index) -> None:
    """Raise DamagedState if retention has removed records and no snapshot covers them; nothing is removed without one."""
    if is_trimmed(index) and not snapshots(log, index):
        name = log.declaration.name
        raise DamagedState(
            f'the snapshot of stream "{name}" in {log.path / DIRECTORY} is missing, and the records before it are removed',
            f"put back a copy from a backup, or let the stage begin anew: `hayase reset {query_of(name)} --from earliest`",
        )


def is_trimmed(index: Index) -> bool:
    """Whether retention has removed records. A log that was reset has no records before its first.

    An empty log that is finished has a running maximum too, without ever having had records.
    """
    if index.entries:
        return index.entries[0].before > BEGINNING
    return index.start > 0 and index.running_max > BEGINNING and not index.finished


def marks(log: StreamLog) -> frozenset[str]:
    """Return the (hashed) marks in the names of the existing snapshots: each stands for one beginning of the stream."""
    return frozenset(snapshot.mark for snapshot in _all(log))


def rows_in(log: StreamLog, snapshot: Snapshot) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a snapshot, in the order of the log."""
    path = log.path / DIRECTORY / snapshot.name
    try:
        segment = open_segment(path, log.declaration.name)
    except DamagedSegment as error:
        raise DamagedSegment(
            error.stream, f'the snapshot "{path}" is damaged', "remove this file: an older one will do in its place"
        ) from error
    for number in range(len(segment.trailer.batches)):
        yield under(segment.batch(number), log.declaration.arrow_schema)


def update_snapshots(log: StreamLog, now: int) -> int:
    """Write the snapshots that are due and remove void ones; return the offset up to which snapshots cover the log.

    Only the process that holds the home's lock may call this.
    """
    retention = log.declaration.retention
    least = LEAST if retention.age is None and retention.size is None else LEAST_UNDER_RETENTION
    mark = _mark(log)  # read before the index: if the stream is reset meanwhile, these snapshots are void
    index = log.index()
    try:
        last = _tidied(log, index)
        while (due := _next(index, last, least, mark)) is not None:
            last = _write(log, index, last, due, now)
    except OSError as error:
        raise write_error(log.declaration.name, error) from error
    return index.start if last is None else last.offset


def _all(log: StreamLog) -> list[Snapshot]:
    try:
        names = os.listdir(log.path / DIRECTORY)
    except FileNotFoundError:
        return []
    parts = [match.groups() for match in map(_NAME.fullmatch, names) if match]
    return [
        Snapshot(int(offset), int(rows), int(running_max, 16) - _BIAS, int(clock, 16) - _BIAS, mark)
        for offset, rows, running_max, clock, mark in parts
    ]


def _mark(log: StreamLog) -> str:
    """Return the mark of the stream's current beginning, hashed to 16 hexadecimal digits."""
    stored = stored_declaration(log.path)
    return xxhash.xxh3_64_hexdigest(((stored.mark if stored else None) or "").encode())


def _holds(snapshot: Snapshot, index: Index, mark: str) -> bool:
    """Whether the snapshot covers the records before its offset in this log.

    Offsets are never reused, so a log that was emptied starts at or after every earlier snapshot; if it starts exactly at
    one, its running maximum shows that it has no records before.
    """
    if snapshot.mark != mark:
        return False
    if snapshot.offset != index.start:
        return index.start < snapshot.offset <= index.next
    if index.entries:
        return snapshot.running_max == index.entries[0].before
    return snapshot.running_max <= index.running_max


def _tidied(log: StreamLog, index: Index) -> Snapshot | None:
    """Remove void snapshots; return the newest valid one, if any."""
    existing = _all(log)
    valid = snapshots(log, index)
    for snapshot in set(existing) - set(valid):
        if snapshot.offset <= index.start:
            remove(log.path / DIRECTORY / snapshot.name)
    if existing:
        remove_leftovers(log.path / DIRECTORY)
    return valid[-1] if valid else None


def _next(index: Index, last: Snapshot | None, least: int, mark: str) -> Snapshot | None:
    """Return the next snapshot that is due, with `rows` still 0; None if none is due."""
    first = index.start if last is None else last.offset
    due = first + max(least, 0 if last is None else last.rows)
    clock = last_clock = BEGINNING if last is None else last.clock
    if due > index.next or (last is None and index.entries and index.entries[0].before > BEGINNING):
        return None  # too few records, or rows from before the first record are not known
    for entry in index.entries:
        clock = max(clock, entry.clock)
        if entry.next == index.next:
            clock = max(clock, index.clock)
        if entry.next >= due and clock > last_clock:
            clock = clock if clock < END else entry.running_max + 1
            return Snapshot(entry.next, 0, entry.running_max, clock, mark)
    return None


def _write(log: StreamLog, index: Index, last: Snapshot | None, due: Snapshot, now: int) -> Snapshot:
    """Write the snapshot that is due, from the last one and the records since, and return it."""
    batches = [] if last is None else list(rows_in(log, last))
    batches += [piece.rows for piece in log.read(index.start if last is None else last.offset, due.offset)]
    schema = log.declaration.arrow_schema
    rows = pa.Table.from_batches(batches, schema=schema)
    positions, end = fold(lifespans(rows, log.declaration))
    valid = end >= due.clock
    rows, end = rows.take(pa.array(positions[valid])), end[valid]
    columns = {
        VALID_TO: from_micros(np.asarray(end), schema.field(VALID_TO).type, log.declaration.time_scale),
        CHANGED_AT: rows.column(VALID_FROM),
    }
    for name, column in columns.items():
        rows = rows.set_column(schema.get_field_index(name), schema.field(name), column)
    snapshot = replace(due, rows=rows.num_rows)
    make_directory(log.path / DIRECTORY)
    stage(log.path / DIRECTORY, rows, log.declaration, snapshot.name, written_at=now)
    return snapshot
