"""Compaction, retention and clearing of a log, concurrent with readers and writers.

Every function first publishes the files that replace the old ones and only then removes those. A reader therefore finds
each record in one file or the other, and an interruption leaves at most superfluous files, which the next call removes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pyarrow as pa

from hayase.core.declarations import Retention, StreamDeclaration
from hayase.core.times import BEGINNING
from hayase.streams import durable
from hayase.streams.log_directory import LogDirectory
from hayase.streams.log_index import Entry, Listing, base_name, is_clock, reaches, segment_name
from hayase.streams.producers import FOLDED, last_of_each
from hayase.streams.schema_evolution import under
from hayase.streams.segments import Segment, open_segment, read_trailer, write_error, write_segment

__all__ = ["TARGET_BYTES", "TARGET_ROWS", "clear", "compact", "trim"]

TARGET_BYTES = 64 * 1024 * 1024
"""A segment of this size is not merged any further."""
TARGET_ROWS = 1_000_000
"""A segment with this many records is not merged any further."""


def compact(
    directory: LogDirectory, declaration: StreamDeclaration, target_bytes: int, target_rows: int, at_least: int
) -> int:
    """Merge the first run of small segments that is worth it; return how many segments it had, 0 if there is none."""
    try:
        _sweep(directory)
        try:
            run = _run_to_merge(directory, target_bytes, target_rows, at_least)
            segments = [open_segment(directory.path / entry.name, declaration.name) for entry in run]
        except FileNotFoundError:  # another process is compacting the log
            return 0
        if not run:
            return 0
        rows = pa.Table.from_batches(
            [under(batch, declaration.arrow_schema) for segment in segments for batch in _all_batches(segment)],
            schema=declaration.arrow_schema,
        )
        first = run[0].first
        producers = last_of_each(
            produced.moved(entry.first - first)
            for entry, segment in zip(run, segments)
            for produced in segment.trailer.producers
        )
        written_at = max(segment.trailer.written_at for segment in segments)
        name = segment_name(first, run[-1].next, run[-1].running_max, max(entry.clock for entry in run))
        with durable.temporary(directory.staging, "merge") as (draft, descriptor):
            write_segment(descriptor, rows, declaration, written_at=written_at, producers=producers)
            with directory.writing():
                present = set(directory.listing().index.entries)
                if not present.issuperset(run):  # trimmed, cleared or merged meanwhile
                    return 0
                durable.rename(draft, directory.path / name)
        for entry in run:
            durable.remove(directory.path / entry.name)
    except OSError as error:
        raise write_error(declaration.name, error) from error
    return len(run)


def trim(directory: LogDirectory, retention: Retention, keep_from: int, now: int) -> int:
    """Remove the oldest segments that exceed the retention, up to `keep_from`; return how many records were removed."""
    if retention.age is None and retention.size is None:
        return 0
    try:
        with directory.writing():
            listing = directory.listing()
            expired = list(_too_old_or_too_much(directory, listing.index.entries, retention, keep_from, now))
            if expired:
                directory.producers.fold(expired, listing)
                # The clock of the whole log: clock-only files may be removed too, and their clock must survive.
                _rebase(directory, listing, expired[-1].next, expired[-1].running_max, listing.index.clock)
                directory.forget()
        _sweep(directory)
    except OSError as error:
        raise write_error(directory.stream, error) from error
    return sum(entry.next - entry.first for entry in expired)


def clear(directory: LogDirectory, first: int = 0) -> None:
    """Remove all records, running maximum, clock and producers; offsets continue, at least from `first` on. Only while writing.

    Repeat it if it is interrupted: clock and producers may be gone before the records are. It tolerates missing files,
    because it is used to repair the output of a stage.
    """
    names = os.listdir(directory.path)
    end = max([first, directory.head().next, *map(reaches, names)])
    directory.begin_head(end)
    placed = [file for file in names if reaches(file) == end]
    for name in placed:  # before the new base, whose clock they would overrule
        if is_clock(name):
            durable.remove(directory.path / name)
    base, bases = base_name(end, BEGINNING, BEGINNING), [file for file in placed if file.endswith(".base")]
    for name in bases:
        durable.rename(directory.path / name, directory.path / base)
    if not bases:
        durable.create_empty(directory.path / base)
    durable.remove(directory.path / FOLDED)
    _sweep(directory)
    durable.fsync_directory(directory.path)
    directory.forget()


def _rebase(directory: LogDirectory, listing: Listing, start: int, running_max: int, clock: int) -> None:
    """Make the log start at `start`, in one durable step."""
    name = base_name(start, running_max, clock)
    if name == listing.base:
        return
    if listing.base is not None and listing.index.start == start:
        durable.rename(directory.path / listing.base, directory.path / name)
    else:
        durable.create_empty(directory.path / name)


def _sweep(directory: LogDirectory) -> None:
    """Remove superfluous files: covered by others, before the base, or left by writers that ended."""
    obsolete = directory.listing().obsolete
    if obsolete:
        durable.fsync_directory(directory.path)  # the files that replace them must be durable first
    for name in obsolete:
        durable.remove(directory.path / name)
    durable.remove_leftovers(directory.staging)
    durable.remove_leftovers(directory.path)


def _all_batches(segment: Segment) -> Iterator[pa.RecordBatch]:
    return (segment.batch(number) for number in range(len(segment.trailer.batches)))


def _run_to_merge(directory: LogDirectory, target_bytes: int, target_rows: int, at_least: int) -> Sequence[Entry]:
    """Return the first run of adjacent segments that stays within the targets and is worth merging."""
    entries = directory.listing().index.entries
    if len(entries) < at_least:
        return ()
    sizes = [(directory.path / entry.name).stat().st_size for entry in entries]
    begin, size, rows = 0, 0, 0
    for end, entry in enumerate(entries):
        more = entry.next - entry.first
        if size + sizes[end] > target_bytes or rows + more > target_rows:
            if run := _worth_it(sizes, begin, end, at_least):
                return entries[run]
            begin, size, rows = end, 0, 0
        size, rows = size + sizes[end], rows + more
    run = _worth_it(sizes, begin, len(entries), at_least)
    return entries[run] if run else ()


def _worth_it(sizes: Sequence[int], begin: int, end: int, at_least: int) -> slice | None:
    """Return the part of a run that has enough files, none of which is larger than the others together; None if there is none.

    A file larger than all others stays out, so that a merged record is always in a segment at least twice as large as
    before: each record is copied a logarithmic number of times.

    >>> _worth_it([90, 5, 5, 5], 0, 4, 3), _worth_it([5, 5, 5, 90], 0, 4, 3), _worth_it([5, 90], 0, 2, 2)
    (slice(1, 4, None), slice(0, 3, None), None)
    """
    if end - begin < max(at_least, 2):
        return None
    largest = max(range(begin, end), key=sizes.__getitem__)
    if 2 * sizes[largest] <= sum(sizes[begin:end]):
        return slice(begin, end)
    return _worth_it(sizes, begin, largest, at_least) or _worth_it(sizes, largest + 1, end, at_least)


def _too_old_or_too_much(
    directory: LogDirectory, entries: Sequence[Entry], retention: Retention, keep_from: int, now: int
) -> Iterator[Entry]:
    excess = 0
    if retention.size is not None:
        excess = sum((directory.path / entry.name).stat().st_size for entry in entries) - retention.size
    for entry in entries:
        if entry.next > keep_from:
            return
        path = directory.path / entry.name
        too_much = retention.size is not None and excess > 0
        too_old = retention.age is not None and read_trailer(path, directory.stream).written_at < now - retention.age
        if not (too_much or too_old):
            return
        excess -= path.stat().st_size
        yield entry
