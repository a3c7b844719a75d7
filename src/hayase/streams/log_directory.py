"""The directory of one log: looked at by anybody without a lock, changed by one writer at a time.

Writers exclude each other with a lock on the file `lock`. In it stands who held it last, so that a writer who finds
itself there knows that nobody changed the log meanwhile, and need not list the directory to find its end.

Behind that stands the head: how far the log had come when it was last written, by which anybody sees that files at its end
are missing. It is written after what it tells of is durable, and not waited for: it may be old, or unknown after a loss of
power, but never ahead of the log. Whoever looks reads it before the files.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import xxhash

from hayase.core.errors import DamagedState, StreamError, UnknownName
from hayase.core.stages import MAIN, OPERATIONS, query_of
from hayase.core.times import BEGINNING
from hayase.streams import durable
from hayase.streams.log_index import Broken, Index, Listing, arrange, base_behind_gaps, extend, reaches
from hayase.streams.producers import Producers
from hayase.streams.schema_evolution import kept_in
from hayase.streams.stream_ends import is_output, known_end

__all__ = ["Head", "LogDirectory", "Tail"]

_TRIES = 64
"""Listings in a row that may look broken because files come and go meanwhile, before it is called damage."""
_SETTLED_NS = 50_000_000
"""A directory's time of change moves in steps of some milliseconds: a change right after a look may not show in it."""
_FRESH_NS = 1_000_000_000
"""After so long a listing is repeated whatever the directory's time of change says: clocks of shared disks differ."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a log, as its writer needs it; `clocks` are the files there that carry a clock only."""

    next: int
    running_max: int
    clock: int
    clocks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Head:
    """How far a log has come at least; nothing is said of one that is not known."""

    next: int = 0
    running_max: int = BEGINNING
    clock: int = BEGINNING

    def as_bytes(self) -> bytes:
        """With a checksum at the end."""
        body = _HEAD.pack(self.next, self.running_max, self.clock)
        return body + xxhash.xxh3_64_digest(body)

    @classmethod
    def from_bytes(cls, data: bytes) -> Head:
        """The inverse; what does not match its checksum is not known."""
        body = data[: _HEAD.size]
        known = len(data) == _HEAD_BYTES and xxhash.xxh3_64_digest(body) == data[_HEAD.size :]
        return cls(*_HEAD.unpack(body)) if known else cls()

    def missing_from(self, index: Index) -> str | None:
        """What an index lacks that the log has had; None if nothing."""
        if index.next < self.next:
            files = f"{index.next:020d}-*.seg and those behind it, up to record {self.next},"
            return f"the log ends before record {index.next}, and had {self.next}: {files} are missing"
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
    """Looks at a log's directory, and the turn of one writer in it. Threads may share one."""

    def __init__(self, path: Path, stream: str):
        self.path, self.stream = path, stream
        self.staging = path / "staging"
        self.producers = Producers(path, stream)
        self._looked: _Look | None = None
        self._tail: Tail | None = None
        self._producers_known = False
        self.segments = 0
        """About how many there are: as many as there were at the last look, and those that this writer has added."""
        self._turn = threading.Lock()
        self._owner = (os.getpid(), uuid.uuid4().bytes)
        self._held, self._lock_file = -1, -1
        self._headed: Head | None = None

    def index(self) -> Index:
        """The log as it is now; next to free when nothing has changed."""
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
        """The log as it is now, by listing the directory."""
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
            f'the log of stream "{self.stream}" in "{self.path}" is not whole: {reason}; put back the missing files '
            f"from a backup, under their own names, or {self._without_them()}",
        )

    def _without_them(self) -> str:
        """How to go on if missing files are lost for good."""
        try:
            kept = kept_in(self.path)
        except DamagedState:
            kept = None
        home = self.path.parent.parent
        if (kept is not None and kept.mark is not None) or is_output(home, self.stream, (MAIN, OPERATIONS)):
            return f"let the stage that writes it begin anew: `hayase reset {query_of(self.stream)} --from earliest`"
        return f"go on without them: `hayase home repair {home} --accept-loss {self.stream}`"

    def head(self) -> Head:
        """How far the log had come when its writer last said so, or a lane that reads or writes it."""
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
        """Let the head tell of an empty log, durably: of the one that there was it must not speak any more. While writing."""
        os.pwrite(self._held, Head(next_).as_bytes(), _OWNER_BYTES)
        durable.fsync_file(self._held)
        self._headed = None

    def set_head(self) -> None:
        """Let the head tell of the log as it is, whatever it told before; only while writing."""
        index = self.arranged()
        os.pwrite(self._held, Head(index.next, index.running_max, index.clock).as_bytes(), _OWNER_BYTES)
        durable.fsync_file(self._held)
        self._headed = None

    def arranged(self) -> Index:
        """The log that the files make up, whatever the head tells."""
        try:
            return arrange(os.listdir(self.path)).index
        except Broken as broken:
            raise StreamError(
                self.stream,
                f'the log of stream "{self.stream}" in "{self.path}" is not whole: {broken}',
            ) from broken

    def drop_gaps(self) -> int:
        """Let the log begin behind its last gap; returns how many offsets before it are given up, 0 if there is no gap.
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
        """This writer's turn: nobody else changes the log meanwhile. `tail` and `producers` are up to date."""
        with self._turn:
            descriptor = self._held = self._opened_lock()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if not self._was_last(descriptor):
                    self.forget()
                try:
                    yield
                except BaseException:
                    self.forget()  # how far it came is not known: look again next time
                    raise
                self._tell_head()
            finally:
                # Not left to `close`: a process forked meanwhile would hold the lock until it ends.
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
        """Look at the directory again before anything else is written."""
        self._tail, self._producers_known, self._headed = None, False, None

    def _tell_head(self) -> None:
        if self._tail is None:
            return
        head = Head(self._tail.next, self._tail.running_max, self._tail.clock)
        if head != self._headed:
            os.pwrite(self._held, head.as_bytes(), _OWNER_BYTES)
            self._headed = head

    def known_producers(self) -> Producers:
        """Who appended what, up to the end of the log; only while `writing`."""
        if not self._producers_known or self.producers.upto < self.tail.next:
            self.producers.refresh(self.listing())
            self._producers_known = True
        return self.producers

    def _opened_lock(self) -> int:
        try:
            return durable.opened(self.path / "lock", os.O_CREAT | os.O_RDWR)
        except FileNotFoundError as error:
            raise self._gone() from error

    def _was_last(self, descriptor: int) -> bool:
        if self._owner[0] != os.getpid():
            self._owner = (os.getpid(), uuid.uuid4().bytes)
        mine, which = self._owner[1], os.fstat(descriptor).st_ino
        same, self._lock_file = self._lock_file in (-1, which), which
        if not same:  # a copy of the log was put in its place
            self.producers, self._looked = Producers(self.path, self.stream), None
        if same and os.pread(descriptor, len(mine), 0) == mine:
            return True
        os.pwrite(descriptor, mine, 0)
        return False

    def _gone(self) -> UnknownName:
        known = [each.name for each in self.path.parent.glob("*/") if each.is_dir()]
        return UnknownName("stream", self.stream, known, f' in "{self.path.parent}"')
