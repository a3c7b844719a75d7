"""The directory of one log: read by anybody without a lock, changed by one writer at a time.

Writers exclude each other with a lock on the file `lock`. The file holds the id of the last writer: a writer that finds
its own id knows that nobody else has changed the log, and need not list the directory to find its end.

After the id, the file holds the head: how far the log had come when it was last written. It shows that files at the end
are missing. It is written after what it describes is durable, and not synced: it may be old, or unknown after a power
failure, but is never ahead of the log. Readers read it before they list the files.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import xxhash

from hayase.core.data_classes import dataclass
from hayase.core.errors import DamagedState, HayaseError, StreamError, UnknownName
from hayase.core.stages import MAIN, OPERATIONS, query_of
from hayase.core.times import BEGINNING
from hayase.streams import durable
from hayase.streams.log_index import Broken, Index, Listing, arrange, base_behind_gaps, extend, reaches
from hayase.streams.producers import Producers
from hayase.streams.schema_evolution import stored_declaration
from hayase.streams.stream_ends import is_output, known_end

__all__ = ["Head", "LogDirectory", "Tail", "hold_logs"]

_TRIES = 64
"""How many listings in a row may look broken because files change meanwhile, before that counts as damage."""
_SETTLED_NS = 50_000_000
"""Resolution of a directory's modification time, which is some milliseconds, with a margin: a change right after a
listing may not show in it."""
_FRESH_NS = 1_000_000_000
"""Age after which a listing is repeated even if the modification time is unchanged: clocks of shared disks differ."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a log, as its writer needs it; `clocks` are the files there that carry only a clock."""

    next: int
    running_max: int
    clock: int
    clocks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Head:
    """A lower bound of how far a log has come; the default says nothing."""

    next: int = 0
    running_max: int = BEGINNING
    clock: int = BEGINNING

    def as_bytes(self) -> bytes:
        """Return the encoded head, with a checksum at the end."""
        body = _HEAD.pack(self.next, self.running_max, self.clock)
        return body + xxhash.xxh3_64_digest(body)

    @classmethod
    def from_bytes(cls, data: bytes) -> Head:
        """Decode a head; the default if the checksum does not match."""
        body = data[: _HEAD.size]
        known = len(data) == _HEAD_BYTES and xxhash.xxh3_64_digest(body) == data[_HEAD.size :]
        return cls(*_HEAD.unpack(body)) if known else cls()

    def missing_from(self, index: Index) -> str | None:
        """Return what the index lacks compared with this head, as text; None if nothing."""
        if index.next < self.next:
            files = f"{index.next:020d}-*.seg and those behind it, up to record {self.next},"
            ends = f"ends before record {index.next}" if index.next else "is empty"
            return f"the log {ends}, and had {self.next} records: {files} are missing"
        if index.clock < self.clock or index.running_max < self.running_max:
            return f"the file that told its clock, {index.next:020d}-{index.next:020d}-*.seg, is missing"
        return None


_OWNER_BYTES = 16
_HEAD = struct.Struct("<Qqq")
_HEAD_BYTES = _HEAD.size + 8


@dataclass(frozen=True, slots=True)
class _Look:
    names: frozenset[str]
    listing: Listing
    changed_ns: int
    settled: bool
    until_ns: int


class LogDirectory:
    """Cached listings of a log's directory, and the writers' lock. Threads may share an instance."""

    def __init__(self, path: Path, stream: str):
        self.path, self.stream = path, stream
        self.staging = path / "staging"
        self.producers = Producers(path, stream)
        self._looked: _Look | None = None
        self._tail: Tail | None = None
        self._producers_known = False
        self.settled = False
        """Whether no dead letters of an interrupted append can be pending (`StreamLog.settle_letters`)."""
        self.segments = 0
        """Approximate number of segments: those at the last listing, and those that this writer has added since."""
        self._turn = threading.Lock()
        self._owner = (os.getpid(), uuid.uuid4().bytes)
        self._held, self._lock_file = -1, -1
        self._headed: Head | None = None

    def index(self) -> Index:
        """Return the current index; almost free if nothing has changed."""
        look = self._looked
        if look is not None and look.settled and time.monotonic_ns() < look.until_ns:
            try:
                unchanged = self.path.stat().st_mtime_ns == look.changed_ns
            except FileNotFoundError as error:
                raise self._gone() from error
            if unchanged:
                return look.listing.index
        return self.listing().index

    def listing(self) -> Listing:
        """List the directory and return the log's files; StreamError if files are missing."""
        for _ in range(_TRIES):
            head = self.head()
            try:
                now_ns, monotonic_ns = time.time_ns(), time.monotonic_ns()
                changed_ns = self.path.stat().st_mtime_ns
                names = frozenset(os.listdir(self.path))
            except FileNotFoundError as error:
                raise self._gone() from error
            look = self._looked
            try:
                listing = extend(look.listing, names - look.names, look.names - names) if look is not None else None
                listing = listing or arrange(names)
            except Broken as broken:
                reason = str(broken)
                continue
            missing = head.missing_from(listing.index)
            if missing is not None:
                self._looked, reason = None, missing
                continue
            settled = now_ns - changed_ns > _SETTLED_NS
            self._looked = _Look(names, listing, changed_ns, settled, monotonic_ns + _FRESH_NS)
            return listing
        raise StreamError(
            self.stream,
            f'the log of stream "{self.stream}" in "{self.path}" is not whole: {reason}',
            f"put back the missing files from a backup, under their own names, or {self._without_them()}",
        )

    def _without_them(self) -> str:
        """Return the advice for files that are lost for good."""
        try:
            kept = stored_declaration(self.path)
        except DamagedState:
            kept = None
        home = self.path.parent.parent
        if (kept is not None and kept.mark is not None) or is_output(home, self.stream, (MAIN, OPERATIONS)):
            return f"let the stage that writes it begin anew: `hayase reset {query_of(self.stream)} --from earliest`"
        return f"go on without them: `hayase home repair {home} --accept-loss {self.stream}`"

    def head(self) -> Head:
        """Return how far the log had come, according to its last writer or to a lane that reads or writes it."""
        seen = known_end(self.path.parent.parent, self.stream, (MAIN, OPERATIONS))
        try:
            descriptor = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return Head(seen)
        try:
            head = Head.from_bytes(os.pread(descriptor, _HEAD_BYTES, _OWNER_BYTES))
        finally:
            os.close(descriptor)
        return head if seen <= head.next else replace(head, next=seen)

    def begin_head(self, next_: int) -> None:
        """Durably set the head to that of an empty log, so that it no longer describes removed records. Only while writing."""
        os.pwrite(self._held, Head(next_).as_bytes(), _OWNER_BYTES)
        durable.fsync_file(self._held)
        self._headed = None

    def set_head(self) -> None:
        """Durably set the head to the log's current files, whatever it was before; only while writing."""
        index = self.arranged()
        os.pwrite(self._held, Head(index.next, index.running_max, index.clock).as_bytes(), _OWNER_BYTES)
        durable.fsync_file(self._held)
        self._headed = None

    def arranged(self) -> Index:
        """Return the index of the files alone, ignoring the head."""
        try:
            return arrange(os.listdir(self.path)).index
        except Broken as broken:
            raise StreamError(
                self.stream,
                f'the log of stream "{self.stream}" in "{self.path}" is not whole: {broken}',
            ) from broken

    def drop_gaps(self) -> int:
        """Make the log start after its last gap; return how many offsets before it are given up, 0 if there is no gap.
        Only while writing."""
        names = os.listdir(self.path)
        with suppress(Broken):
            arrange(names)
            return 0
        base = base_behind_gaps(names)
        bases = [reaches(name) for name in names if name.endswith(".base")]
        durable.create_empty(self.path / base)
        self.forget()
        return reaches(base) - max(bases, default=0)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the writers' lock. Inside, `tail` and `producers` are up to date."""
        with self._turn:
            descriptor = self._held = self._opened_lock()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if not self._was_last(descriptor):
                    self.forget()
                try:
                    yield
                except BaseException:
                    self.forget()  # the state is unknown: list the directory again next time
                    raise
                self._update_head()
            finally:
                # Unlock explicitly: a process forked meanwhile shares the descriptor and would hold the lock until it ends.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                os.close(descriptor)

    @property
    def tail(self) -> Tail:
        """The end of the log; only while `writing`."""
        if self._tail is None:
            listing = self.listing()
            index = listing.index
            self._tail = Tail(index.next, index.running_max, index.clock, listing.clocks)
            self.segments = len(index.entries)
        return self._tail

    @tail.setter
    def tail(self, tail: Tail) -> None:
        self._tail = tail

    def forget(self) -> None:
        """Discard cached state, so that the directory is listed again before the next write."""
        self._tail, self._producers_known, self._headed, self.settled = None, False, None, False

    def _update_head(self) -> None:
        if self._tail is None:
            return
        head = Head(self._tail.next, self._tail.running_max, self._tail.clock)
        if head != self._headed:
            with suppress(OSError):  # what it describes is done, and an old head is right too
                os.pwrite(self._held, head.as_bytes(), _OWNER_BYTES)
                self._headed = head

    def known_producers(self) -> Producers:
        """Return the last append of each producer, up to the end of the log; only while `writing`."""
        if not self._producers_known or self.producers.upto < self.tail.next:
            self.producers.refresh(self.listing())
            self._producers_known = True
        return self.producers

    def _opened_lock(self) -> int:
        try:
            return durable.open_file(self.path / "lock", os.O_CREAT | os.O_RDWR)
        except FileNotFoundError as error:
            raise self._gone() from error

    def _was_last(self, descriptor: int) -> bool:
        if self._owner[0] != os.getpid():
            self._owner = (os.getpid(), uuid.uuid4().bytes)
        owner, inode = self._owner[1], os.fstat(descriptor).st_ino
        same, self._lock_file = self._lock_file in (-1, inode), inode
        if not same:  # the log was replaced by a copy
            self.producers, self._looked = Producers(self.path, self.stream), None
        if same and os.pread(descriptor, len(owner), 0) == owner:
            return True
        os.pwrite(descriptor, owner, 0)
        return False

    def _gone(self) -> HayaseError:
        """Return the error for a log whose directory does not exist: unknown, or lost if a lane has read records from it."""
        home, lanes = self.path.parent.parent, (MAIN, OPERATIONS)
        seen = known_end(home, self.stream, lanes)
        if seen and not is_output(home, self.stream, lanes):
            return StreamError(
                self.stream,
                f'the log of stream "{self.stream}" is missing: {self.path} had {seen} records; put the directory back from a '
                f"backup, or {self._without_them()}",
            )
        known = [path.name for path in self.path.parent.glob("*/") if path.is_dir()]
        return UnknownName("stream", self.stream, known, f' in "{self.path.parent}"')


@contextmanager
def hold_logs(directories: Iterable[Path], wait: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Keep writers out of several logs at once; nothing is written. A writer may hold the lock of one log while it waits for that
    of the dead letters, so the caller gives `_dead` last. A log without a lock file was never written to.

    StreamError if a writer does not release a log for ten seconds: it hangs, and others should not wait for it.
    """
    descriptors: list[int] = []
    try:
        for directory in directories:
            with suppress(FileNotFoundError):
                descriptors.append(os.open(directory / "lock", os.O_RDONLY | os.O_CLOEXEC))
                _lock_soon(descriptors[-1], directory.name, wait)
        yield
    finally:
        for descriptor in descriptors:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _lock_soon(descriptor: int, stream: str, wait: Callable[[float], None]) -> None:
    for _ in range(5_000):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            wait(0.002)
        else:
            return
    raise StreamError(
        stream, f'a process holds the log of stream "{stream}" and does not go on', "end that process, or try again"
    )
