"""The log of one stream: durable appends with dense offsets, and reads without locks.

When `append`, `publish`, `advance` or `finish` returns, its effect survives a crash. An interrupted call has either no
effect or its whole effect; an append with a producer and a sequence can be repeated, and the repeat is recognised.
Segments are written and synced outside the writers' lock; under the lock they are only renamed.

Dead letters that belong to an append are staged first, under a name with the offsets that the records are about to get.
The rename of the records commits both; then the letters are published. If that is interrupted, the next writer of the log
publishes them, or removes them if the log does not have the records.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import (
    DamagedSegment,
    DamagedState,
    OffsetGone,
    OutOfTurn,
    StreamError,
    StreamFinished,
    UnknownName,
)
from hayase.core.times import BEGINNING, END
from hayase.streams import durable, log_compaction
from hayase.streams.dead_letters import DEAD
from hayase.streams.event_time import event_times
from hayase.streams.home_format import begin_home, check_home
from hayase.streams.log_directory import LogDirectory, Tail
from hayase.streams.log_index import Entry, Index, segment_name
from hayase.streams.schema_evolution import DECLARATION, StoredDeclaration, reconcile, stored_declaration, under
from hayase.streams.segments import (
    Produced,
    Segment,
    Trailer,
    damage_error,
    one_append,
    open_segment,
    read_trailer,
    stage,
    write_error,
    write_segment,
)

__all__ = ["FIRST", "UNKNOWN", "Appended", "Letters", "Piece", "StreamLog", "check_letters", "pending_letters"]

_log = logging.getLogger(__name__)
UNKNOWN = -1
"""The offsets of a recognised repeat that is not its producer's last append."""
FIRST = -1
"""What a producer's first append comes after."""
_SIZES_KEPT = 10_000
MANY_SEGMENTS = 256
"""Number of segments at which an append also compacts small ones."""
_TRIES = 64
"""How often in a row a file may vanish between listing the log and opening it, before that counts as damage."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive records from offset `first` on; `running_max_before` is the greatest event time of all records before
    them."""

    rows: pa.RecordBatch
    first: int
    running_max_before: int


@dataclass(frozen=True, slots=True)
class Appended:
    """The offsets [first, next) of appended records. If `repeated`, they were in the log before; both offsets are
    UNKNOWN if that append was not the producer's last."""

    first: int
    next: int
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Letters:
    """The dead letters of records that an append refuses, and the log that takes them."""

    log: StreamLog
    rows: pa.Table


class StreamLog:
    """The log of one stream. Threads may share an instance; each process opens its own."""

    def __init__(self, home: Path, declaration: StreamDeclaration):
        self.declaration = declaration
        self.path = _path(home, declaration.name)
        self._directory = LogDirectory(self.path, declaration.name)
        self._last_written: tuple[str, int] | None = None
        self._sizes: dict[str, int] = {}

    @classmethod
    def open(cls, home: Path, name: str) -> StreamLog:
        """Open the log of an existing stream; UnknownName if there is none."""
        check_home(home)
        kept = stored_declaration(_path(home, name))
        if kept is None:
            known = [path.parent.name for path in (home / "streams").glob("*/stream.json")]
            raise UnknownName("stream", name, known, f' in "{home}"')
        return cls(home, kept.declaration)

    @classmethod
    def ensure(cls, home: Path, declaration: StreamDeclaration) -> StreamLog:
        """Open the log of a declared stream, creating it or evolving its schema; SchemaMismatch if that is impossible."""
        check_home(home)
        log = cls(home, declaration)
        kept = stored_declaration(log.path)
        if kept is not None and kept.declaration == declaration:
            return log
        try:
            begin_home(home)
            durable.make_directory(log._directory.staging)
            with log._directory.writing():
                kept = stored_declaration(log.path) or StoredDeclaration(declaration)
                reconcile(kept.declaration, declaration)
                durable.write_atomic(log.path / DECLARATION, replace(kept, declaration=declaration).as_bytes())
        except OSError as error:
            raise write_error(declaration.name, error) from error
        return log

    @classmethod
    def open_emptied(
        cls, home: Path, declaration: StreamDeclaration, mark: str | None = None, first: int = 0
    ) -> StreamLog:
        """Open the log of a stream and remove all its records; offsets continue where they were, at least from `first` on.

        With a mark, only the first call with that mark removes records: a caller that is interrupted can repeat the
        call after records were appended that must stay.
        """
        log = cls(home, declaration)
        try:
            begin_home(home)
            durable.make_directory(log._directory.staging)
            with log._directory.writing():
                try:
                    kept = stored_declaration(log.path)
                except DamagedState:  # the declaration is rewritten below
                    kept = None
                if kept is None or mark is None or kept.mark != mark:
                    log_compaction.clear(log._directory, first)
                    durable.write_atomic(log.path / DECLARATION, StoredDeclaration(declaration, mark).as_bytes())
        except OSError as error:
            raise write_error(declaration.name, error) from error
        return log

    @classmethod
    def open_replaced(cls, home: Path, declaration: StreamDeclaration, other: str, mark: str) -> StreamLog:
        """Put the log of the stream `other`, which has this mark, in the place of a stream's log, and open it there. Then the other
        name has what was there before. Repeating the call has no effect."""
        log, path = cls(home, declaration), _path(home, other)
        stored = StoredDeclaration(declaration, mark)
        try:
            kept = stored_declaration(log.path)
            if kept is not None and kept.mark == mark:
                return log
            durable.write_atomic(path / DECLARATION, stored.as_bytes())
            if not log.path.exists():
                durable.rename(path, log.path)
            else:
                with log._directory.writing():
                    if not durable.exchange(path, log.path):  # in two steps, between which the stream is missing
                        durable.rename(log.path, path.with_name(f"{path.name}.aside"), confirm=False)
                        durable.rename(path, log.path)
        except OSError as error:
            raise write_error(declaration.name, error) from error
        return cls(home, declaration)

    def is_declared(self) -> bool:
        """Return whether the stored declaration equals that of this instance."""
        kept = stored_declaration(self.path)
        return kept is not None and kept.declaration == self.declaration

    def index(self) -> Index:
        """Return the current index of the log; cheap enough to call every few milliseconds."""
        return self._directory.index()

    def current_index(self) -> Index:
        """Return the current index of the log by listing its directory, without using the cache."""
        return self._directory.listing().index

    def append(
        self,
        rows: pa.Table,
        *,
        now: int,
        producer: str | None = None,
        sequence: int | None = None,
        letters: Letters | None = None,
        after: int | None = None,
    ) -> Appended:
        """Append records durably. A producer's sequences increase: one that is not above the last is a repeat and adds nothing.

        With `letters`, either both the records and the dead letters are appended, or neither. With `after`, a sequence or
        `FIRST`, OutOfTurn if that is not the producer's last append: of two processes that append as the same producer, each
        unaware of the other, only one goes on.
        """
        produced = one_append(producer, sequence, rows.num_rows)
        if not rows.num_rows:
            return self._append_letters(letters, now, producer, sequence, after)
        staging = self._directory.staging
        try:
            with durable.temporary(staging, "append") as (draft, descriptor), contextlib.ExitStack() as stack:
                trailer = write_segment(descriptor, rows, self.declaration, written_at=now, producers=produced)
                letters_draft = None
                if letters is not None:
                    letters_draft, descriptor = stack.enter_context(durable.temporary(staging, "letters"))
                    sent = one_append(self._sender(producer), sequence, letters.rows.num_rows)
                    write_segment(descriptor, letters.rows, DEAD, written_at=now, producers=sent)
                with self._directory.writing():
                    appended = self._place(draft, trailer, BEGINNING, letters, letters_draft, after=after)
        except OSError as error:
            raise write_error(self.declaration.name, error) from error
        self._compact_when_many()
        return appended

    def _append_letters(
        self, letters: Letters | None, now: int, producer: str | None, sequence: int | None, after: int | None
    ) -> Appended:
        """Append dead letters alone, if the stream accepts records or has accepted the same append before."""
        if letters is None:
            end = self.index().next
            return Appended(end, end)
        sender = self._sender(producer)
        with self._directory.writing():
            last = None if sender is None else letters.log.last_of(sender)
            if last is None or sequence is None or last.sequence < sequence:
                self._check_open()
                self._check_turn(producer, after, letters)
            appended = letters.log.append(letters.rows, now=now, producer=sender, sequence=sequence)
            end = self._directory.tail.next
            return Appended(end, end, appended.repeated)

    def _sender(self, producer: str | None) -> str | None:
        """Return the producer of dead letters, by the producer of the append that refused the records."""
        return None if producer is None else f"{self.declaration.name}/{producer}"

    def settle_letters(self) -> None:
        """Publish or remove dead letters of appends to this stream that were interrupted."""
        if pending_letters(self.path):
            try:
                with self._directory.writing():
                    self._settle_letters()
            except OSError as error:
                raise write_error(self.declaration.name, error) from error

    def _settle_letters(self) -> None:
        """Publish pending dead letters whose records are in the log, and remove the others; only while writing, and before
        anything else gets the offsets in their names."""
        if self._directory.settled:
            return
        for path in pending_letters(self.path):
            if int(path.name.split("-")[1]) < self._directory.tail.next:
                check_letters(path, self.declaration.name)
                StreamLog.ensure(self.path.parent.parent, DEAD).publish(path)
            else:
                self._discard_letters(path)
        self._directory.settled = True

    def _discard_letters(self, path: Path) -> None:
        durable.remove(path)
        durable.fsync_directory(path.parent)  # it must not come back once other records have its offsets

    def _compact_when_many(self) -> None:
        """Compact small segments if there are so many that listing the log is slow: in a home without a running
        pipeline nobody else does. The append is durable by now, so a full disk is ignored here."""
        if self._directory.segments >= MANY_SEGMENTS:
            with contextlib.suppress(StreamError):
                while self.compact():
                    pass
                # the remaining segments are large; check again after as many appends
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
        """Write records to the durable file `directory/name`, on the log's file system, to be published later."""
        return stage(directory, rows, self.declaration, name, written_at=now, producer=producer, sequence=sequence)

    def publish(self, staged: Path, clock: int | None = None, *, again: bool = False) -> Appended:
        """Move a staged segment to the end of the log and advance the log's clock to `clock`.

        `again` is for a caller that may have been interrupted after this step: a missing staged file then counts as
        published. A staged file with a producer and a sequence is recognised like a repeated append.
        """
        return self.publish_all([staged], clock, again=again)[0]

    def publish_all(self, staged: Sequence[Path], clock: int | None = None, *, again: bool = False) -> list[Appended]:
        """Publish staged segments in this order, as `publish` does each; the last of them advances the clock. The directory is
        synced once, at the end, before the head of the log tells of them."""
        new_clock = BEGINNING if clock is None else clock
        try:
            with self._directory.writing():
                appended = [self._publish(path, BEGINNING, again, confirm=False) for path in staged[:-1]]
                return [*appended, self._publish(staged[-1], new_clock, again, confirm=True)]
        except OSError as error:
            raise write_error(self.declaration.name, error) from error

    def _publish(self, staged: Path, clock: int, again: bool, confirm: bool) -> Appended:
        """Publish one staged segment; only while writing. With `confirm` the names of the log are durable when it returns."""
        try:
            trailer = read_trailer(staged, self.declaration.name)
        except FileNotFoundError:
            if not again:
                name = self.declaration.name
                raise StreamError(
                    name, f'there is no staged segment "{staged}" for stream "{name}"', "was it published before?"
                ) from None
            appended = Appended(UNKNOWN, UNKNOWN, repeated=True)
        else:
            if trailer.rows:
                appended = self._place(staged, trailer, clock, confirm=confirm)
                if not appended.repeated:
                    return appended
            else:
                appended = Appended(self._directory.tail.next, self._directory.tail.next)
        if confirm:  # this process or an earlier one may have renamed files into the log without this
            durable.fsync_directory(self.path)
        self._advance(clock)
        durable.remove(staged)
        return appended

    def advance(self, clock: int, known: int = BEGINNING) -> None:
        """Declare durably that no record before `clock` will follow; no effect if the log's clock is not behind."""
        try:
            with self._directory.writing():
                self._advance(clock, known)
        except OSError as error:
            raise write_error(self.declaration.name, error) from error

    def finish(self, known: int = BEGINNING) -> None:
        """Declare that no more records will follow; later appends raise StreamFinished.

        `known` is the greatest event time that the writing stage has read; it may be greater than that of its output.
        """
        self.advance(END, known)

    def reopen(self, clock: int) -> None:
        """Undo `finish`: records from `clock` on may follow. No effect on a stream that is not finished."""
        try:
            with self._directory.writing():
                tail = self._directory.tail
                if tail.clock < END:
                    return
                if not tail.clocks:  # the clock is in a segment's name, and cannot be taken back
                    raise StreamError(self.declaration.name, f'stream "{self.declaration.name}" cannot be continued')
                name = segment_name(tail.next, tail.next, tail.running_max, clock)
                durable.create_empty(self.path / name)
                self._directory.tail = Tail(tail.next, tail.running_max, clock, (*tail.clocks, name))
                self._drop_clocks(tail.clocks)
        except OSError as error:
            raise write_error(self.declaration.name, error) from error

    def read(self, first: int, next: int) -> Iterator[Piece]:
        """Yield the records [first, next), memory-mapped, in pieces of at most one batch of a segment."""
        at, vanished = first, 0
        index = self._reaching(first, next)
        while at < next:
            entry = index.holding(at)
            try:
                segment = self._opened(entry)
            except FileNotFoundError as error:  # compacted or removed since the index was read
                vanished += 1
                if vanished == _TRIES:
                    raise damage_error(self.path / entry.name, self.declaration.name, "it cannot be opened") from error
                self._directory.listing()
                index = self._reaching(at, next)
                continue
            vanished = 0
            yield from self._pieces(entry, segment, at, min(next, entry.next))
            at = min(next, entry.next)

    def running_max_at(self, offset: int) -> int:
        """Return the greatest event time of all records before an offset in [start, next]."""
        index = self._reaching(offset, offset)
        if offset == index.next:
            return index.running_max
        entry = index.holding(offset)
        return entry.before if offset == entry.first else next(self.read(offset, offset + 1)).running_max_before

    def within(self, first: int, rows: int, size: int) -> int:
        """Return where a read from `first` must stop to have at most `rows` records and about `size` bytes, but at
        least one record."""
        index = self.index()
        end = min(index.next, first + rows)
        if end <= first or first < index.start:
            return end
        at, remaining = first, float(size)
        for entry in index.entries[index.position(first) :]:
            if at >= end:
                break
            count = min(entry.next, end) - at
            record_bytes = self._bytes(entry) / (entry.next - entry.first)
            if count * record_bytes > remaining:
                return max(at + int(remaining / record_bytes), first + 1)
            at, remaining = at + count, remaining - count * record_bytes
        return end

    def _bytes(self, entry: Entry) -> int:
        """Return the size of a segment's file; 0 if it was compacted meanwhile."""
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
        """Return when the newest record was appended, by its writer's clock; None for an empty log."""
        entries = self.index().entries
        if not entries:
            return None
        if self._last_written is None or self._last_written[0] != entries[-1].name:
            try:
                written = read_trailer(self.path / entries[-1].name, self.declaration.name).written_at
            except FileNotFoundError:  # compacted since the index was read
                written = read_trailer(
                    self.path / self._directory.listing().index.entries[-1].name, self.declaration.name
                ).written_at
            self._last_written = (entries[-1].name, written)
        return self._last_written[1]

    def written_at(self, offset: int) -> int:
        """Return about when a record was appended: a compacted segment has one time for all its records."""
        entry = self.index().holding(offset)
        try:
            return read_trailer(self.path / entry.name, self.declaration.name).written_at
        except FileNotFoundError:  # compacted since the index was read
            entry = self._directory.listing().index.holding(offset)
            return read_trailer(self.path / entry.name, self.declaration.name).written_at

    def compact(
        self,
        *,
        target_bytes: int = log_compaction.TARGET_BYTES,
        target_rows: int = log_compaction.TARGET_ROWS,
        at_least: int = 8,
    ) -> int:
        """Merge one run of small segments if it is worth it, and return how many it had; call until it returns 0."""
        return log_compaction.compact(self._directory, self.declaration, target_bytes, target_rows, at_least)

    def trim(self, keep_from: int, now: int) -> int:
        """Remove records as retention allows, but none from offset `keep_from` on; return how many were removed."""
        return log_compaction.trim(self._directory, self.declaration.retention, keep_from, now)

    def clear(self) -> None:
        """Remove all records, with running maximum, clock and producers; offsets continue. Repeat it if it is interrupted."""
        try:
            with self._directory.writing():
                log_compaction.clear(self._directory)
        except OSError as error:
            raise write_error(self.declaration.name, error) from error

    def _place(
        self,
        draft: Path,
        trailer: Trailer,
        clock: int,
        letters: Letters | None = None,
        letters_draft: Path | None = None,
        confirm: bool = True,
        after: int | None = None,
    ) -> Appended:
        """Rename a durable segment to its place at the end of the log, unless it is a repeat; only while writing."""
        self._settle_letters()
        directory, tail = self._directory, self._directory.tail
        repeated = self._repeated(trailer)
        if repeated is not None:
            durable.fsync_directory(self.path)  # the first attempt may have been interrupted just before this
            return repeated
        self._check_open()
        for produced in trailer.producers:
            self._check_turn(produced.producer, after, letters)
        first, end = tail.next, tail.next + trailer.rows
        running_max = max(tail.running_max, trailer.latest)
        pending = None if letters_draft is None else directory.staging / f"letters-{first:020d}-{end:020d}.seg"
        target = self.path / segment_name(first, end, running_max, clock)
        if letters_draft is None or pending is None:
            durable.rename(draft, target, confirm=confirm)
        else:
            self._rename(draft, target, letters_draft, pending)
        directory.segments += 1
        directory.producers.add([produced.moved(first) for produced in trailer.producers], first, end)
        directory.tail = Tail(end, running_max, max(tail.clock, clock), tail.clocks)
        if tail.clocks and clock >= tail.clock:
            with contextlib.suppress(OSError):  # the records are in the log, and the file is only superfluous
                self._drop_clocks(tail.clocks)
        if letters is not None and pending is not None:
            try:
                letters.log.publish(pending)
            except StreamError as error:  # the append is durable, with its letters
                _log.warning("%s: dead letters are published by the next append: %s", self.declaration.name, error)
                directory.settled = False
        return Appended(first, end)

    def _rename(self, draft: Path, target: Path, letters_draft: Path, pending: Path) -> None:
        """Give the records of an append their place, after its dead letters a name that says it; on an error neither."""
        try:
            durable.rename(letters_draft, pending)
            durable.rename(draft, target)
        except OSError as error:
            if target.exists():  # the disk did not confirm it: the next writer sees whether it lasted
                raise
            with contextlib.suppress(OSError):
                self._discard_letters(pending)
            raise OSError(error.errno, error.strerror) from error

    def _repeated(self, trailer: Trailer) -> Appended | None:
        """Return the offsets of a segment's records if its producer has appended them before, else None; only while writing."""
        for produced in trailer.producers:
            last = self._directory.known_producers().last(produced.producer)
            if last is not None and produced.sequence <= last.sequence:
                same = produced.sequence == last.sequence
                return Appended(last.first if same else UNKNOWN, last.next if same else UNKNOWN, repeated=True)
        return None

    def _check_open(self) -> None:
        """Raise StreamFinished if the stream is finished; only while writing."""
        if self._directory.tail.clock >= END:
            raise StreamFinished(
                self.declaration.name,
                f'stream "{self.declaration.name}" is finished and takes no more records; append to another stream',
            )

    def _check_turn(self, producer: str | None, after: int | None, letters: Letters | None) -> None:
        """Raise OutOfTurn if `after` is given and is not the last append of the producer, which may have been of dead letters
        only; only while writing."""
        if producer is None or after is None:
            return
        append = self._directory.known_producers().last(producer)
        last = FIRST if append is None else append.sequence
        if last != after or letters is not None:
            dead = StreamLog.ensure(self.path.parent.parent, DEAD) if letters is None else letters.log
            of_letters = dead.last_of(f"{self.declaration.name}/{producer}")
            last = max(last, FIRST if of_letters is None else of_letters.sequence)
        if last != after:
            name = self.declaration.name
            raise OutOfTurn(
                name,
                f'producer "{producer}" has appended {last} to stream "{name}", and this append comes after {after}: '
                "another process appends in its place",
                "stop one of the two",
            )

    def last_of(self, producer: str) -> Produced | None:
        """Return the last append of a producer, with its offsets."""
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
        """Remove clock-only files that a newer clock has superseded."""
        for name in names:
            durable.remove(self.path / name)
        tail = self._directory.tail
        remaining = tuple(name for name in tail.clocks if name not in names)
        self._directory.tail = Tail(tail.next, tail.running_max, tail.clock, remaining)

    def _reaching(self, first: int, next_: int) -> Index:
        """Return an index that contains [first, next_), or raise the error that says why there is none."""
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
            raise damage_error(
                path, self.declaration.name, f"it has {segment.trailer.rows} records, not what its name says"
            )
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


def pending_letters(directory: Path) -> list[Path]:
    """Return the dead letters of appends to the log in a directory that are not published yet."""
    return sorted((directory / "staging").glob("letters-*.seg"))


def check_letters(path: Path, stream: str) -> None:
    """Read pending dead letters; DamagedSegment if they are damaged."""
    try:
        open_segment(path, DEAD.name)
    except DamagedSegment as error:
        raise DamagedSegment(
            stream,
            f'the dead letters "{path}" of an append to stream "{stream}" are damaged',
            "put back an intact copy of this file from a backup, "
            "or remove it: then the dead letters lack the records that this append refused",
        ) from error


def _path(home: Path, name: str) -> Path:
    return Path(home) / "streams" / name
