"""The ledger of a source of files: which files were read, and which records of the stream are theirs.

    <home>/sources/<stream>/files/00000001.json ...

An entry has some files and the positions [first, end) of their records in the source; it is durable before the first of these
records is appended. `end` is not known before a large file is read to its end. What the stream has decides which entries are
complete: the position of the source is the sequence of its last append.

Blocks are sealed files of about 64 KiB; only the newest is written again, and only if it is still the one that was read: of two
processes with the same ledger, one goes on. In memory a file takes 16 bytes, the hashes of its path and of its version.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson
import xxhash

from hayase.core.data_classes import dataclass
from hayase.core.errors import DamagedState, EndpointError
from hayase.engine.home import writing
from hayase.streams import durable
from hayase.streams.sealed import read_sealed, seal

__all__ = ["KIND", "REMEDY", "Entry", "FileLedger", "ReadFile", "read_block"]

KIND = "ledger of files"
REMEDY = "put back a copy from a backup, or remove its directory: then the source reads all files again"
BLOCK_BYTES = 64 << 10
"""Size from which on a block is full."""
RECENT = 65_536
"""Files that are kept apart from the sorted arrays."""


class ReadFile(NamedTuple):
    """A file of an entry. `reason` says why it has a dead letter instead of records, or instead of the rest of them."""

    path: str
    size: int
    version: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """Files whose records have the positions [first, end); `end` is None for one that is not read to its end."""

    first: int
    end: int | None
    files: tuple[ReadFile, ...]

    def is_complete(self, position: int) -> bool:
        """Return whether the stream has all of it, if it has everything before a position."""
        return self.end is not None and self.end <= position


class FileLedger:
    """The ledger in one directory. EndpointError if another process has written to it meanwhile."""

    def __init__(self, directory: Path):
        self._directory = directory
        self.identity: str | None = None
        """What tells this ledger from all others; None if it was not begun."""
        self._number = 0
        self._entries: list[Entry] = []
        """The entries of the newest block."""
        self._before: Entry | None = None
        """The last entry before the newest block."""
        self._stored = b""
        """The newest block as it is stored."""
        self._hashes = np.empty((0, 2), np.uint64)
        self._recent: dict[int, int] = {}
        self._read()

    def begin(self) -> str:
        """Return the identity; a ledger that is not there is begun. Drafts of writers that have ended are removed."""
        durable.remove_leftovers(self._directory)
        if self.identity is None:
            self._number, identity = 1, uuid.uuid4().hex[:16]
            self._write([], identity)
            self.identity = identity
        return self.identity

    @property
    def last(self) -> Entry | None:
        """The newest entry."""
        return self._entries[-1] if self._entries else self._before

    def has(self, path: str, version: str) -> bool:
        """Return whether this version of a file is in an entry."""
        return self._version(path) == _hash(version)

    def has_another(self, path: str, version: str) -> bool:
        """Return whether another version of a file is in an entry."""
        return self._version(path) not in (None, _hash(version))

    def add(self, entry: Entry) -> None:
        """Add an entry, durably."""
        if len(self._stored) < BLOCK_BYTES:
            self._write([*self._entries, entry])
        else:
            self._begin_block(entry)
        self._note(entry)

    def finish(self, end: int, reason: str = "") -> None:
        """Note, durably, where the records of the newest entry end, and why there are no more, if there should be."""
        entry = self._entries[-1]
        files = tuple(file._replace(reason=reason) for file in entry.files) if reason else entry.files
        self._write([*self._entries[:-1], replace(entry, end=end, files=files)])

    def forget_behind(self, position: int) -> None:
        """Remove entries that begin behind the last record that the stream has: it was put back to an older state, and their
        files are read again."""
        while (last := self.last) is not None and last.first > position:
            kept = [entry for entry in self._entries if entry.first <= position]
            if kept or self._number == 1:
                self._write(kept)
            else:
                with writing("the ledger of a source of files"), self._turn():
                    durable.remove(self._directory / _name(self._number))
                    durable.fsync_directory(self._directory)
            self._read()

    def _read(self) -> None:
        """Read what is stored."""
        self._number, self._entries, self._before, self._stored = 0, [], None, b""
        self._hashes, self._recent = np.empty((0, 2), np.uint64), {}
        for path in _blocks(self._directory):
            self._load(path)
        self._sort()

    def _load(self, path: Path) -> None:
        data = path.read_bytes()
        identity, entries = read_block(path)
        if self.identity not in (None, identity) or int(path.stem) != self._number + 1:
            raise DamagedState(f"the {KIND} {path} does not follow the block before it", REMEDY)
        self._before = self.last
        self.identity, self._number, self._entries, self._stored = identity, self._number + 1, entries, data
        for entry in entries:
            self._note(entry)

    def _note(self, entry: Entry) -> None:
        for file in entry.files:
            self._recent[_hash(file.path)] = _hash(file.version)
        if len(self._recent) > RECENT:
            self._sort()

    def _sort(self) -> None:
        """Move the hashes of recent files to the sorted arrays; of a path, the newest version stays."""
        recent = np.array(list(self._recent.items()), np.uint64).reshape(-1, 2)
        both = np.concatenate([recent, self._hashes])
        _, firsts = np.unique(both[:, 0], return_index=True)
        self._hashes, self._recent = both[firsts], {}

    def _version(self, path: str) -> int | None:
        key = _hash(path)
        if key in self._recent:
            return self._recent[key]
        at = int(np.searchsorted(self._hashes[:, 0], np.uint64(key)))
        if at < len(self._hashes) and int(self._hashes[at, 0]) == key:
            return int(self._hashes[at, 1])
        return None

    def _begin_block(self, entry: Entry) -> None:
        before, self._before = self._before, self.last
        entries, stored = self._entries, self._stored
        self._number, self._entries = self._number + 1, []
        try:
            self._write([entry])
        except BaseException:
            self._number, self._entries, self._stored, self._before = self._number - 1, entries, stored, before
            raise

    def _write(self, entries: list[Entry], identity: str | None = None) -> None:
        """Write the newest block, if the ledger is still what was read."""
        body = {
            "ledger": identity or self.identity,
            "entries": [[entry.first, entry.end, [list(file) for file in entry.files]] for entry in entries],
        }
        data = seal(KIND, orjson.dumps(body))
        with writing("the ledger of a source of files"):
            durable.make_directory(self._directory)
            with self._turn():
                durable.write_atomic(self._directory / _name(self._number), data)
        self._entries, self._stored = entries, data

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Take the lock of writers; EndpointError if another process has written since the ledger was read."""
        lock = durable.open_file(self._directory / "lock", os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            blocks = _blocks(self._directory)
            if (blocks[-1].read_bytes() if blocks else b"") != self._stored:
                raise EndpointError("another process reads the same files into this stream", "stop one of the two")
            yield
        finally:
            os.close(lock)


def read_block(path: Path) -> tuple[str, list[Entry]]:
    """Return the identity of a ledger and the entries of one of its blocks; DamagedState if it is not what was written."""
    data = orjson.loads(read_sealed(path, KIND, REMEDY))
    return data["ledger"], [
        Entry(first, end, tuple(ReadFile(*file) for file in files)) for first, end, files in data["entries"]
    ]


def _blocks(directory: Path) -> list[Path]:
    return sorted(directory.glob("[0-9]*.json"))


def _name(number: int) -> str:
    return f"{number:08d}.json"


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogateescape"))
