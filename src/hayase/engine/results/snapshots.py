"""Snapshots of results: the rows that are valid, kept beside their stream, so that to look back need not read it all.

    <home>/streams/<name>/snapshots/{offset}-{rows}-{running maximum}-{clock}-{mark}.rows

A snapshot stands for the records before its offset: it holds the rows they tell of that are valid at the instant before
its clock or later, ends included as far as they were known. So it answers for that instant and every later one, together
with the records from its offset on; and those are all at its clock or later. Each file is a segment of the stream.

One is written after as many new records as the one before has rows, but not too few: all of them together are no larger
than the stream, and between two there is no more to read than is valid, or `LEAST`. Where the stream was begun anew (the
mark tells one beginning from another), or retention has removed records behind its offset, it stands for nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import xxhash

from hayase.core.errors import DamagedSegment, DamagedState
from hayase.core.stages import query_of
from hayase.core.times import BEGINNING, END
from hayase.engine.results.lifespans import CHANGED_AT, VALID_FROM, VALID_TO, fold, from_micros, lifespans
from hayase.streams import Index, StreamLog
from hayase.streams.durable import make_directory, remove, remove_leftovers
from hayase.streams.schema_evolution import kept_in, under
from hayase.streams.segments import open_segment, stage, unwritten

__all__ = [
    "DIRECTORY",
    "LEAST",
    "LEAST_UNDER_RETENTION",
    "Snapshot",
    "before",
    "check",
    "is_trimmed",
    "keep",
    "marks",
    "rows_in",
    "snapshots",
]

LEAST = 100_000
"""Records between two snapshots, at least."""
LEAST_UNDER_RETENTION = 1_000
"""The same for a stream with a retention, of which nothing is removed that is not in a snapshot."""

DIRECTORY = "snapshots"
_BIAS = 2**63
_NAME = re.compile(r"(\d{20})-(\d{20})-([0-9a-f]{16})-([0-9a-f]{16})-([0-9a-f]{16})\.rows")


@dataclass(frozen=True, slots=True, order=True)
class Snapshot:
    """One snapshot, as its name tells of it."""

    offset: int
    rows: int
    running_max: int
    clock: int
    mark: str

    @property
    def name(self) -> str:
        """The name of its file."""
        times = f"{self.running_max + _BIAS:016x}-{self.clock + _BIAS:016x}"
        return f"{self.offset:020d}-{self.rows:020d}-{times}-{self.mark}.rows"


def snapshots(log: StreamLog, index: Index) -> list[Snapshot]:
    """The snapshots that stand for the log as the index shows it, oldest first."""
    mark = _mark(log)
    return sorted(each for each in _all(log) if _holds(each, index, mark))


def before(log: StreamLog, index: Index, time: int) -> tuple[Snapshot | None, int]:
    """The newest snapshot that answers for an instant, and up to which offset there are records that matter to it."""
    found, end = None, index.next
    for each in snapshots(log, index):
        if each.clock - 1 > time:
            end = each.offset
            break
        found = each
    clock = BEGINNING if found is None else found.clock
    first = index.start if found is None else found.offset
    for entry in index.entries[index.position(first) if first < index.next else len(index.entries) :]:
        if clock > time:  # what was written later is later
            end = min(end, entry.first)
            break
        clock = max(clock, entry.clock)
    return found, max(end, first)


def check(log: StreamLog, index: Index) -> None:
    """See that a log from which retention has removed records has a snapshot of what they left: nothing is removed without one."""
    if is_trimmed(index) and not snapshots(log, index):
        name = log.declaration.name
        raise DamagedState(
            f'the snapshot of stream "{name}" in {log.path / DIRECTORY} is missing, and the records before it are removed; put '
            f"back a copy from a backup, or let the stage begin anew: `hayase reset {query_of(name)} --from earliest`"
        )


def is_trimmed(index: Index) -> bool:
    """Whether retention has removed records; a log that was begun anew has none before its first.

    A log that ended without any knows how far it is known all the same.
    """
    if index.entries:
        return index.entries[0].before > BEGINNING
    return index.start > 0 and index.running_max > BEGINNING and not index.finished


def marks(log: StreamLog) -> frozenset[str]:
    """On which occasions the stream began, by the snapshots that are there, as they write it."""
    return frozenset(each.mark for each in _all(log))


def rows_in(log: StreamLog, snapshot: Snapshot) -> Iterator[pa.RecordBatch]:
    """The rows of a snapshot, in the order of the log."""
    path = log.path / DIRECTORY / snapshot.name
    try:
        segment = open_segment(path, log.declaration.name)
    except DamagedSegment as error:
        raise DamagedSegment(
            error.stream, f'the snapshot "{path}" is damaged; remove this file: an older one will do in its place'
        ) from error
    for number in range(len(segment.trailer.batches)):
        yield under(segment.batch(number), log.declaration.arrow_schema)


def keep(log: StreamLog, now: int) -> int:
    """Write the snapshots that are due and remove those that stand for nothing; returns up to where there is one.

    Only the process that holds the home may do this.
    """
    retention = log.declaration.retention
    least = LEAST if retention.age is None and retention.size is None else LEAST_UNDER_RETENTION
    mark = _mark(log)  # before the look at the log: if it is begun anew meanwhile, what is written here is void
    index = log.index()
    try:
        last = _tidied(log, index)
        while (due := _next(index, last, least, mark)) is not None:
            last = _write(log, index, last, due, now)
    except OSError as error:
        raise unwritten(log.declaration.name, error) from error
    return index.start if last is None else last.offset


def _all(log: StreamLog) -> list[Snapshot]:
    try:
        names = os.listdir(log.path / DIRECTORY)
    except FileNotFoundError:
        return []
    parts = [part.groups() for part in map(_NAME.fullmatch, names) if part]
    return [
        Snapshot(int(offset), int(rows), int(running_max, 16) - _BIAS, int(clock, 16) - _BIAS, mark)
        for offset, rows, running_max, clock, mark in parts
    ]


def _mark(log: StreamLog) -> str:
    """The occasion on which the stream began, as 16 digits."""
    kept = kept_in(log.path)
    return xxhash.xxh3_64_hexdigest(((kept.mark if kept else None) or "").encode())


def _holds(snapshot: Snapshot, index: Index, mark: str) -> bool:
    """Whether the records before the snapshot are those before its offset in this log.

    Offsets are not used twice, so a log that was emptied starts at or behind every snapshot there was; where it starts
    just there, its running maximum tells that nothing came before.
    """
    if snapshot.mark != mark:
        return False
    if snapshot.offset != index.start:
        return index.start < snapshot.offset <= index.next
    if index.entries:
        return snapshot.running_max == index.entries[0].before
    return snapshot.running_max <= index.running_max


def _tidied(log: StreamLog, index: Index) -> Snapshot | None:
    """The newest snapshot that stands; the others that do not are removed."""
    found = _all(log)
    standing = snapshots(log, index)
    for each in set(found) - set(standing):
        if each.offset <= index.start:
            remove(log.path / DIRECTORY / each.name)
    if found:
        remove_leftovers(log.path / DIRECTORY)
    return standing[-1] if standing else None


def _next(index: Index, last: Snapshot | None, least: int, mark: str) -> Snapshot | None:
    """The next snapshot that is due, how many rows it has left open; None if none is yet."""
    first = index.start if last is None else last.offset
    due = first + max(least, 0 if last is None else last.rows)
    clock = passed = BEGINNING if last is None else last.clock
    if due > index.next or (last is None and index.entries and index.entries[0].before > BEGINNING):
        return None  # too little, or what is valid since before the first record is not known
    for entry in index.entries:
        clock = max(clock, entry.clock)
        if entry.next == index.next:
            clock = max(clock, index.clock)
        if entry.next >= due and clock > passed:
            clock = clock if clock < END else entry.running_max + 1
            return Snapshot(entry.next, 0, entry.running_max, clock, mark)
    return None


def _write(log: StreamLog, index: Index, last: Snapshot | None, due: Snapshot, now: int) -> Snapshot:
    """Write the snapshot that is due, from the last one and the records since."""
    batches = [] if last is None else list(rows_in(log, last))
    batches += [piece.rows for piece in log.read(index.start if last is None else last.offset, due.offset)]
    schema = log.declaration.arrow_schema
    rows = pa.Table.from_batches(batches, schema=schema)
    at, end = fold(lifespans(rows, log.declaration))
    valid = end >= due.clock
    rows, end = rows.take(pa.array(at[valid])), end[valid]
    columns = {
        VALID_TO: from_micros(np.asarray(end), schema.field(VALID_TO).type, log.declaration.time_scale),
        CHANGED_AT: rows.column(VALID_FROM),
    }
    for name, column in columns.items():
        rows = rows.set_column(schema.get_field_index(name), schema.field(name), column)
    made = replace(due, rows=rows.num_rows)
    make_directory(log.path / DIRECTORY)
    stage(log.path / DIRECTORY, rows, log.declaration, made.name, written_at=now)
    return made
