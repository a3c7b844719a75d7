"""Files as the records of a stream: each exactly once, in whatever order they appear, and never a half-written one.

There is one partition. A position counts the records of all files in the order in which they were read; `file_ledger` says which
file begins at which. Small files are taken together, as one append: they are read before the ledger names them, and their end is
known then. A file of several chunks is named first. After a crash the files of the last entry are read again, and what the
stream has of them is left out.
"""

from __future__ import annotations

import contextlib
import heapq
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain

import pyarrow as pa

from hayase.connectors.file_stores import Found, Pattern, open_store
from hayase.connectors.source import Portion, Source, SourceSetting
from hayase.core.data_classes import dataclass
from hayase.core.errors import EndpointError, HayaseError
from hayase.core.followed_directory import Following
from hayase.core.reasons import ReasonKind
from hayase.engine.file_ledger import Entry, FileLedger, ReadFile
from hayase.streams.file_formats import BLOCK_BYTES, CHUNK_RECORDS, Chunk, format_of, read_records
from hayase.streams.records import Conformed, Refused

__all__ = ["FileSource"]

PARTITION = "files"
MOST_FILES = 256
"""Files whose records are appended together."""
MOST_WAITING = 10_000
"""Files of one listing that are read before the next."""
SETTLE = 0.5
"""Seconds after which a new local file is looked at again: it must not have changed."""


class FileSource(Source):
    """The files of a pattern. The lag is the number of files that are not read."""

    def __init__(self, setting: SourceSetting):
        self._setting, self._options = setting, setting.options
        self._store, pattern = open_store(self._options["path"], setting.beside)
        self._pattern = Pattern.from_text(pattern or "*")
        self._ledger = None if setting.keep is None else FileLedger(setting.keep / "files")
        self.identity = f"files/{self._options['path']}"
        self._following = Following()
        self._ready: deque[Found] = deque()
        self._waiting = self._looks = 0
        self._look_at = float("-inf")
        self._at = 0
        self._portions: Generator[Portion | None, None, None] | None = None

    def starts(self) -> Mapping[str, int]:
        if self._ledger is not None:
            self.identity = f"files/{self._ledger.begin()}"
        return {PARTITION: 0}

    def ends(self) -> Mapping[str, int]:
        if not self._looks:
            self._look()
        return {PARTITION: self._at + self._waiting}

    def has_reached(self, positions: Mapping[str, int], ends: Mapping[str, int]) -> bool:
        return not self._ready and self._looks > (0 if self._store.shows_only_whole else 1)

    def read(self, positions: Mapping[str, int], patience: float) -> Sequence[Portion]:
        if self._portions is None:
            self._at = positions[PARTITION]
            self._portions = self._all_portions()
        elif positions[PARTITION] != self._at:
            raise EndpointError(f"the stream has read {positions[PARTITION]} records, not {self._at}")
        portion = next(self._portions)
        if portion is not None:
            self._at = portion.next
            return [portion]
        if not self._ready:
            time.sleep(min(patience, max(0.0, self._look_at - time.monotonic())))
        return []

    def close(self) -> None:
        if self._portions is not None:
            self._portions.close()

    # -- files that are not read ----------------------------------------------------------------------------------------
    def _next(self) -> Found | None:
        """Return a file that is complete and not read, of the last listing; None if there is none."""
        if not self._ready:
            return None
        self._waiting = max(0, self._waiting - 1)
        return self._ready.popleft()

    def _look(self) -> None:
        """List the files that are not read, the first ones by name."""
        self._waiting = 0
        new = {found.path: found for found in heapq.nsmallest(MOST_WAITING, self._unread())}
        if self._store.shows_only_whole:
            ready = sorted(new)
        else:
            listing = {path: (found.size, int(found.version)) for path, found in new.items()}
            ready = self._following.ready(listing)
            self._following = self._following.after(listing, ())
        self._ready = deque(new[path] for path in ready)
        self._looks += 1
        all_settled = len(ready) == len(new)
        pause = self._options["watch"] / 1e6
        if self._waiting > len(new):
            pause = 0.0
        elif not all_settled:
            pause = min(pause, SETTLE)
        self._look_at = time.monotonic() + pause

    def _unread(self) -> Iterator[Found]:
        for found in self._store.list(self._pattern):
            if self._ledger is None or not self._ledger.has(found.path, found.version):
                self._waiting += 1
                yield found

    # -- portions -------------------------------------------------------------------------------------------------------
    def _all_portions(self) -> Generator[Portion | None, None, None]:
        """Yield what to append next; None if there is nothing now. It goes on when a portion is durable in the stream."""
        if self._ledger is None:
            raise EndpointError("a source of files needs a home to read")
        ledger = self._ledger
        ledger.forget_behind(self._at)
        if ledger.last is not None and not ledger.last.is_complete(self._at):
            yield from self._again(ledger, ledger.last)
        while True:
            small, large = self._gathered(ledger)
            if small.files:
                ledger.add(Entry(self._at, self._at + small.count, tuple(small.files)))
            if small.count:
                yield small.portion(self._at)
            if large is not None:
                with contextlib.closing(large.chunks):
                    ledger.add(Entry(self._at, None, (ReadFile(*large.found),)))
                    yield from self._of_large(ledger, large, 0)
            if not small.count and large is None:
                yield None

    def _gathered(self, ledger: FileLedger) -> tuple[_Small, _Large | None]:
        """Read small files, until they are enough for an append or a large one follows."""
        if not self._ready and time.monotonic() >= self._look_at:
            self._look()
        small = _Small(self._setting)
        while not small.is_full and (found := self._next()) is not None:
            if ledger.has(found.path, found.version):
                continue
            if self._options["changed"] == "report" and ledger.has_another(found.path, found.version):
                small.add_letter(found, "it was changed after it was read, and what is new in it was not read")
                continue
            try:
                chunks = self._chunks(found)
                first, second = next(chunks, None), next(chunks, None)
            except EndpointError:
                raise
            except HayaseError as error:
                if self._store.look_at(found.path) != found:  # removed or changed since it was listed
                    continue
                if self._options["unreadable"] == "skip":
                    small.add_letter(found, str(error))
                    continue
                if not small.files:
                    raise self._unreadable(found.path, error) from error
                self._ready.appendleft(found)
                break
            if second is not None and first is not None:
                return small, _Large(found, chain([first, second], chunks), chunks)
            if self._store.look_at(found.path) == found:
                small.add(found, first)
        return small, None

    def _of_large(self, ledger: FileLedger, large: _Large, has: int) -> Iterator[Portion]:
        """Yield the chunks of a file of which the stream has so many records, and note its end."""
        passed, reason = 0, ""
        try:
            for chunk in large.all:
                count = _count(chunk.conformed)
                passed += count
                if passed - count < has < passed:
                    raise EndpointError(
                        f'"{large.found.path}" was read in other portions than now: the stream has {has} of its records',
                        "read it with the version of Hayase that began it",
                    )
                if passed > has:
                    yield Portion(PARTITION, _placed(chunk.conformed, large.found.path), self._at + count)
            if passed < has:
                raise HayaseError(f"it has {passed} records, and {has} of them were read: it was changed")
        except EndpointError:
            raise
        except HayaseError as error:
            if self._options["unreadable"] == "stop":
                raise self._unreadable(large.found.path, error) from error
            reason = f"behind its first {passed} records: {error}" if passed else str(error)
        if not reason:
            ledger.finish(self._at)
            return
        ledger.finish(self._at + 1, reason)
        yield Portion(PARTITION, _letter(large.found.path, reason, self._setting), self._at + 1)

    def _again(self, ledger: FileLedger, entry: Entry) -> Iterator[Portion]:
        """Yield what the stream does not have of the last entry, which an earlier process has written."""
        if entry.end is None:
            found = Found(*entry.files[0][:3])
            chunks = self._checked_chunks(found)
            with contextlib.closing(chunks):
                yield from self._of_large(ledger, _Large(found, chunks, chunks), self._at - entry.first)
            return
        small = _Small(self._setting)
        for file in entry.files:
            found = Found(*file[:3])
            if file.reason:
                small.add_letter(found, file.reason)
                continue
            try:
                with contextlib.closing(self._checked_chunks(found)) as chunks:
                    small.add(found, next(chunks, None))
            except EndpointError:
                raise
            except HayaseError as error:
                if self._options["unreadable"] == "stop":
                    raise self._unreadable(found.path, error) from error
                small.add_letter(found, str(error))
        yield Portion(PARTITION, small.conformed, entry.end)

    def _chunks(self, found: Found) -> Generator[Chunk, None, None]:
        form = format_of(found.path, self._options["format"])
        if form.name == "csv":
            form = replace(form, header=self._options["header"])
        opened = self._store.open(found.path)
        ahead = self._store.shows_only_whole
        with contextlib.closing(read_records(opened, form, self._setting.stream, self._setting.now, ahead)) as chunks:
            yield from (chunk for chunk in chunks if _count(chunk.conformed))

    def _checked_chunks(self, found: Found) -> Generator[Chunk, None, None]:
        """Yield the chunks of a file that the ledger names; an error if it is not what it was then."""
        if self._store.look_at(found.path) != found:
            raise HayaseError("it was removed or changed before it was read to its end")
        yield from self._chunks(found)

    def _unreadable(self, path: str, error: HayaseError) -> EndpointError:
        text = str(error) if path in str(error) else f'"{path}": {error}'
        return EndpointError(f"a file cannot be read: {text}", "correct or remove it, or go on with unreadable: skip")


@dataclass(slots=True)
class _Large:
    """A file of several chunks: `all` of them, and what yields the rest, which is closed."""

    found: Found
    all: Iterator[Chunk]
    chunks: Generator[Chunk, None, None]


@dataclass(slots=True)
class _Small:
    """Files that are read whole and appended together."""

    setting: SourceSetting
    files: list[ReadFile] = field(default_factory=list)
    parts: list[Conformed] = field(default_factory=list)
    count: int = 0
    size: int = 0

    @property
    def is_full(self) -> bool:
        return len(self.files) >= MOST_FILES or self.count >= CHUNK_RECORDS or self.size >= BLOCK_BYTES

    def add(self, found: Found, chunk: Chunk | None) -> None:
        """Add the records of a file; None if it has none."""
        self.files.append(ReadFile(*found))
        if chunk is not None:
            self._add(_placed(chunk.conformed, found.path))

    def add_letter(self, found: Found, reason: str) -> None:
        """Add a dead letter that names a file."""
        self.files.append(ReadFile(*found, reason))
        self._add(_letter(found.path, reason, self.setting))

    def _add(self, part: Conformed) -> None:
        self.parts.append(part)
        self.count += _count(part)
        self.size += part.rows.nbytes

    @property
    def conformed(self) -> Conformed:
        rows = pa.concat_tables([self.setting.stream.arrow_schema.empty_table(), *(part.rows for part in self.parts)])
        return Conformed(rows, tuple(chain.from_iterable(part.refused for part in self.parts)))

    def portion(self, at: int) -> Portion:
        return Portion(PARTITION, self.conformed, at + self.count)


def _count(conformed: Conformed) -> int:
    return conformed.rows.num_rows + len(conformed.refused)


def _placed(conformed: Conformed, path: str) -> Conformed:
    """Return records whose refusals name the file."""
    if not conformed.refused:
        return conformed
    refused = tuple(
        replace(refusal, reason=f'"{path}"{", " if refusal.reason.startswith("line ") else ": "}{refusal.reason}')
        for refusal in conformed.refused
    )
    return replace(conformed, refused=refused)


def _letter(path: str, reason: str, setting: SourceSetting) -> Conformed:
    """Return a dead letter that names a file instead of a record."""
    text = reason if path in reason else f'"{path}": {reason}'
    refusal = Refused(path, f"the file was not read, or not to its end: {text}", ReasonKind.UNREADABLE)
    return Conformed(setting.stream.arrow_schema.empty_table(), (refusal,))
