"""The log of one stream: durable appends with dense offsets, and reads that lock nobody.

What `append`, `publish`, `advance` or `finish` has returned from survives a crash. An interrupted one left nothing, or
everything: in doubt, an append with a producer and a sequence can be repeated and is recognised. Segments are written
and synced outside of the writers' lock; inside, they only get their name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DamagedState, OffsetGone, StreamError, StreamFinished, UnknownName
from hayase.core.times import BEGINNING, END
from hayase.streams import durable, log_compaction
from hayase.streams.event_time import event_times
from hayase.streams.home_format import begin_home, check_home
from hayase.streams.log_directory import LogDirectory, Tail
from hayase.streams.log_index import Entry, Index, segment_name
from hayase.streams.schema_evolution import DECLARATION, Kept, kept_in, reconcile, under
from hayase.streams.segments import (
    Produced,
    Segment,
    Trailer,
    damaged,
    one_append,
    open_segment,
    read_trailer,
    stage,
    unwritten,
    write_segment,
)

__all__ = ["UNKNOWN", "Appended", "Piece", "StreamLog"]

UNKNOWN = -1
"""The offsets of a repeated append that is recognised, but not the last one of its producer."""
_SIZES_KEPT = 10_000
_MANY = 256
"""Segments at which an appender joins the small ones among them."""
_TRIES = 64
"""Times that a file may vanish between a look at the log and its opening, in a row, before it is called damage."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Records from offset `first` on; `running_max_before` is over the event times of all records before them."""

    rows: pa.RecordBatch
    first: int
    running_max_before: int


@dataclass(frozen=True, slots=True)
class Appended:
    """Where records went: [first, next). If `repeated` they were there before (both UNKNOWN if that is long ago)."""

    first: int
    next: int
    repeated: bool = False


class StreamLog:
    """The log of one stream. Threads may share one; processes open their own."""

    def __init__(self, home: Path, declaration: StreamDeclaration):
        self.declaration = declaration
        self.path = _path(home, declaration.name)
        self._directory = LogDirectory(self.path, declaration.name)
        self._last_written: tuple[str, int] | None = None
        self._sizes: dict[str, int] = {}

    @classmethod
    def open(cls, home: Path, name: str) -> StreamLog:
        """The log of a stream that exists; UnknownName otherwise."""
        check_home(home)
        kept = kept_in(_path(home, name))
        if kept is None:
            known = [each.parent.name for each in (home / "streams").glob("*/stream.json")]
            raise UnknownName("stream", name, known, f' in "{home}"')
        return cls(home, kept.declaration)

    @classmethod
    def ensure(cls, home: Path, declaration: StreamDeclaration) -> StreamLog:
        """The log of a declared stream, created or brought up to its declaration; SchemaMismatch if that cannot be."""
        check_home(home)
        log = cls(home, declaration)
        kept = kept_in(log.path)
        if kept is not None and kept.declaration == declaration:
            return log
        try:
            begin_home(home)
            durable.make_directory(log._directory.staging)
            with log._directory.writing():
                kept = kept_in(log.path) or Kept(declaration)
                reconcile(kept.declaration, declaration)
                durable.write_atomic(log.path / DECLARATION, replace(kept, declaration=declaration).as_bytes())
        except OSError as error:
            raise unwritten(declaration.name, error) from error
        return log

    @classmethod
    def anew(cls, home: Path, declaration: StreamDeclaration, mark: str | None = None) -> StreamLog:
        """The log of a stream without records, whatever it was before; offsets go on where they were.

        With a mark, only the first call does that: for a caller that may be stopped and come here again, after records
        were appended that must stay.
        """
        log = cls(home, declaration)
        try:
            begin_home(home)
            durable.make_directory(log._directory.staging)
            with log._directory.writing():
                try:
                    kept = kept_in(log.path)
                except DamagedState:  # it is written anew
                    kept = None
                if kept is None or mark is None or kept.mark != mark:
                    log_compaction.clear(log._directory)
                    durable.write_atomic(log.path / DECLARATION, Kept(declaration, mark).as_bytes())
        except OSError as error:
            raise unwritten(declaration.name, error) from error
        return log

    def is_declared(self) -> bool:
        """Whether the directory of the log says what this one was declared like."""
        kept = kept_in(self.path)
        return kept is not None and kept.declaration == self.declaration

    def index(self) -> Index:
        """The log as it is now; cheap enough to be asked every few milliseconds."""
        return self._directory.index()

    def look(self) -> Index:
        """The log as it is now, by a look at its directory, whatever was seen before."""
        return self._directory.listing().index

    def append(
        self,
        rows: pa.Table,
        *,
        now: int,
        producer: str | None = None,
        sequence: int | None = None,
        before: Callable[[], object] = lambda: None,
    ) -> Appended:
        """Append records, durably. A producer's sequences grow: one not above the last is a repeat, and ignored.

        `before` is called once the records are on the disk, if the stream takes them, right before they get their place: for
        what must be durable before they are, and must not be if they cannot be appended.
        """
        produced = one_append(producer, sequence, rows.num_rows)
        if not rows.num_rows:
            end = self.index().next
            return Appended(end, end)
        try:
            with durable.temporary(self._directory.staging, "append") as (draft, descriptor):
                trailer = write_segment(descriptor, rows, self.declaration, written_at=now, producers=produced)
                with self._directory.writing():
                    if self._repeated(trailer) is None:
                        self._check_open()
                    before()
                    done = self._place(draft, trailer, BEGINNING)
        except OSError as error:
            raise unwritten(self.declaration.name, error) from error
        self._compact_when_many()
        return done

    def _compact_when_many(self) -> None:
        """Join small segments when there are so many that every look at the log takes long: in a home without a running
        pipeline nobody else does. What is appended is durable by now, so a disk without room for this is no failure."""
        if self._directory.segments >= _MANY:
            with contextlib.suppress(StreamError):
                while self.compact():
                    pass
                # those that are left are large; look again when as many have come
                self._directory.segments = 0

    def stage(
        self,
        directory: Path,
        name: str,
        rows: pa.Table,
        *,
        now: int,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Path:
        """Write records as the durable file `directory/name` on the log's file system, to be published later."""
        return stage(directory, rows, self.declaration, name, written_at=now, producer=producer, sequence=sequence)

    def publish(self, staged: Path, clock: int | None = None, *, again: bool = False) -> Appended:
        """Move a staged segment to the end of the log, and say with it how far its writer's clock is.

        `again` is for a caller that may have come this far before it was stopped: a staged file that is gone has then
        been published. A staged file with a producer and a sequence is recognised like a repeated append.
        """
        said = BEGINNING if clock is None else clock
        try:
            with self._directory.writing():
                try:
                    trailer = read_trailer(staged, self.declaration.name)
                except FileNotFoundError:
                    if not again:
                        name = self.declaration.name
                        raise StreamError(
                            name, f'there is no staged segment "{staged}" for stream "{name}"; was it published before?'
                        ) from None
                    durable.fsync_directory(self.path)  # whoever renamed it may have been stopped before this
                    self._advance(said)
                    return Appended(UNKNOWN, UNKNOWN, repeated=True)
                if trailer.rows:
                    answer = self._place(staged, trailer, said)
                else:
                    answer = Appended(self._directory.tail.next, self._directory.tail.next)
                if answer.repeated or not trailer.rows:
                    self._advance(said)
                    durable.remove(staged)
                return answer
        except OSError as error:
            raise unwritten(self.declaration.name, error) from error

    def advance(self, clock: int, known: int = BEGINNING) -> None:
        """Say that no record before `clock` will follow, durably; nothing happens if that was said already."""
        try:
            with self._directory.writing():
                self._advance(clock, known)
        except OSError as error:
            raise unwritten(self.declaration.name, error) from error

    def finish(self, known: int = BEGINNING) -> None:
        """Say that no record will follow at all; later appends raise StreamFinished.

        A stage's output is `known` up to the greatest event time of what the stage read, which may lie behind its own.
        """
        self.advance(END, known)

    def reopen(self, clock: int) -> None:
        """Take back that the stream is finished: records from `clock` on may follow. Nothing happens to one that is not."""
        try:
            with self._directory.writing():
                tail = self._directory.tail
                if tail.clock < END:
                    return
                if not tail.clocks:  # a segment says so with its records: their greatest event time is known
                    raise StreamError(self.declaration.name, f'stream "{self.declaration.name}" cannot be continued')
                name = segment_name(tail.next, tail.next, tail.running_max, clock)
                durable.create_empty(self.path / name)
                self._directory.tail = Tail(tail.next, tail.running_max, clock, (*tail.clocks, name))
                self._drop_clocks(tail.clocks)
        except OSError as error:
            raise unwritten(self.declaration.name, error) from error

    def read(self, first: int, next: int) -> Iterator[Piece]:
        """The records [first, next), mapped, not copied, in pieces of at most one batch of a segment."""
        at, vanished = first, 0
        index = self._reaching(first, next)
        while at < next:
            entry = index.holding(at)
            try:
                segment = self._opened(entry)
            except FileNotFoundError as error:  # compacted or removed since the index was made
                vanished += 1
                if vanished == _TRIES:
                    raise damaged(self.path / entry.name, self.declaration.name, "it cannot be opened") from error
                self._directory.listing()
                index = self._reaching(at, next)
                continue
            vanished = 0
            yield from self._pieces(entry, segment, at, min(next, entry.next))
            at = min(next, entry.next)

    def running_max_at(self, offset: int) -> int:
        """The running maximum of event time over all records of the stream before an offset in [start, next]."""
        index = self._reaching(offset, offset)
        if offset == index.next:
            return index.running_max
        entry = index.holding(offset)
        return entry.before if offset == entry.first else next(self.read(offset, offset + 1)).running_max_before

    def within(self, first: int, rows: int, size: int) -> int:
        """How far a read from `first` goes with at most so many records and, about, bytes; one record at least."""
        index = self.index()
        end = min(index.next, first + rows)
        if end <= first or first < index.start:
            return end
        at, left = first, float(size)
        for entry in index.entries[index.position(first) :]:
            if at >= end:
                break
            count = min(entry.next, end) - at
            each = self._bytes(entry) / (entry.next - entry.first)
            if count * each > left:
                return max(at + int(left / each), first + 1)
            at, left = at + count, left - count * each
        return end

    def _bytes(self, entry: Entry) -> int:
        """The size of a segment's file; nothing if it was compacted meanwhile, and is looked for in vain."""
        size = self._sizes.get(entry.name)
        if size is None:
            try:
                size = (self.path / entry.name).stat().st_size
            except FileNotFoundError:
                return 0
            if len(self._sizes) > _SIZES_KEPT:
                self._sizes.clear()
            self._sizes[entry.name] = size
        return size

    def last_written(self) -> int | None:
        """When the newest record was appended, by its writer's clock; None in an empty log."""
        entries = self.index().entries
        if not entries:
            return None
        if self._last_written is None or self._last_written[0] != entries[-1].name:
            try:
                written = read_trailer(self.path / entries[-1].name, self.declaration.name).written_at
            except FileNotFoundError:  # compacted since the index was made
                written = read_trailer(
                    self.path / self._directory.listing().index.entries[-1].name, self.declaration.name
                ).written_at
            self._last_written = (entries[-1].name, written)
        return self._last_written[1]

    def written_at(self, offset: int) -> int:
        """When a record that is there was appended, about: small segments that were joined have one time."""
        entry = self.index().holding(offset)
        try:
            return read_trailer(self.path / entry.name, self.declaration.name).written_at
        except FileNotFoundError:  # compacted since the index was made
            entry = self._directory.listing().index.holding(offset)
            return read_trailer(self.path / entry.name, self.declaration.name).written_at

    def compact(
        self,
        *,
        target_bytes: int = log_compaction.TARGET_BYTES,
        target_rows: int = log_compaction.TARGET_ROWS,
        at_least: int = 8,
    ) -> int:
        """Merge one run of small segments, if one is worth it, and return how many it had; call until it returns 0."""
        return log_compaction.compact(self._directory, self.declaration, target_bytes, target_rows, at_least)

    def trim(self, keep_from: int, now: int) -> int:
        """Remove what retention lets go, but nothing from offset `keep_from` on; returns how many records went."""
        return log_compaction.trim(self._directory, self.declaration.retention, keep_from, now)

    def clear(self) -> None:
        """Remove all records, with running maximum, clock and producers. Offsets go on. If interrupted, repeat it."""
        try:
            with self._directory.writing():
                log_compaction.clear(self._directory)
        except OSError as error:
            raise unwritten(self.declaration.name, error) from error

    def _place(self, draft: Path, trailer: Trailer, clock: int) -> Appended:
        """Give a durable segment its place at the end, unless it is a repeat; only while writing."""
        directory, tail = self._directory, self._directory.tail
        repeated = self._repeated(trailer)
        if repeated is not None:
            durable.fsync_directory(self.path)  # the first one may have been stopped just before this
            return repeated
        self._check_open()
        first, end = tail.next, tail.next + trailer.rows
        running_max = max(tail.running_max, trailer.latest)
        durable.rename(draft, self.path / segment_name(first, end, running_max, clock))
        directory.segments += 1
        directory.producers.add([each.moved(first) for each in trailer.producers], first, end)
        directory.tail = Tail(end, running_max, max(tail.clock, clock), tail.clocks)
        if tail.clocks and clock >= tail.clock:
            self._drop_clocks(tail.clocks)
        return Appended(first, end)

    def _repeated(self, trailer: Trailer) -> Appended | None:
        """Where a segment's records are, if its producer has appended them before; only while writing."""
        for each in trailer.producers:
            last = self._directory.known_producers().last(each.producer)
            if last is not None and each.sequence <= last.sequence:
                same = each.sequence == last.sequence
                return Appended(last.first if same else UNKNOWN, last.next if same else UNKNOWN, repeated=True)
        return None

    def _check_open(self) -> None:
        """Refuse records of a finished stream; only while writing."""
        if self._directory.tail.clock >= END:
            raise StreamFinished(
                self.declaration.name,
                f'stream "{self.declaration.name}" is finished and takes no more records; append to another stream',
            )

    def last_of(self, producer: str) -> Produced | None:
        """The last append of a producer, with its place in the stream."""
        with self._directory.writing():
            return self._directory.known_producers().last(producer)

    def _advance(self, clock: int, known: int = BEGINNING) -> None:
        tail = self._directory.tail
        if clock <= tail.clock:
            return
        running_max = max(tail.running_max, known)
        name = segment_name(tail.next, tail.next, running_max, clock)
        durable.create_empty(self.path / name)
        self._directory.tail = Tail(tail.next, running_max, clock, (*tail.clocks, name))
        self._drop_clocks(tail.clocks)

    def _drop_clocks(self, names: tuple[str, ...]) -> None:
        """Remove files whose only word, a clock, is overtaken."""
        for name in names:
            durable.remove(self.path / name)
        tail = self._directory.tail
        left = tuple(name for name in tail.clocks if name not in names)
        self._directory.tail = Tail(tail.next, tail.running_max, tail.clock, left)

    def _reaching(self, first: int, next_: int) -> Index:
        """An index that holds [first, next_), or the error that says why there is none."""
        name, index = self.declaration.name, self.index()
        if next_ > index.next or first > next_:
            index = self._directory.listing().index
            if next_ > index.next or first > next_:
                raise StreamError(
                    name, f'stream "{name}" has no records {first} to {next_ - 1}: it ends before {index.next}'
                )
        if first < index.start:
            raise OffsetGone(
                name,
                f'records {first} to {min(next_, index.start) - 1} of stream "{name}" were removed by retention; the '
                f"first one left is {index.start}: read from there, or keep more",
            )
        return index

    def _opened(self, entry: Entry) -> Segment:
        path = self.path / entry.name
        segment = open_segment(path, self.declaration.name)
        if segment.trailer.rows != entry.next - entry.first:
            raise damaged(path, self.declaration.name, f"it has {segment.trailer.rows} records, not what its name says")
        return segment

    def _pieces(self, entry: Entry, segment: Segment, first: int, next_: int) -> Iterator[Piece]:
        schema = self.declaration.arrow_schema
        at, before = entry.first, entry.before
        for number, (rows, latest) in enumerate(segment.trailer.batches):
            if at < next_ and first < at + rows:
                batch = segment.batch(number)
                skipped = max(first - at, 0)
                running_max = before
                if skipped:
                    running_max = max(before, int(event_times(batch.slice(0, skipped), self.declaration).max()))
                wanted = batch.slice(skipped, min(next_ - at, rows) - skipped)
                yield Piece(under(wanted, schema), at + skipped, running_max)
            at, before = at + rows, max(before, latest)


def _path(home: Path, name: str) -> Path:
    return Path(home) / "streams" / name
