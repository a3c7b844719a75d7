"""RocksDB as the store of a table. Nobody else imports `rocksdict`.

There is no log of writes: a write is put into memory and flushed to a file before it returns, and an ingested file is there
already. So each state on disk is one that RocksDB's manifest names, and a secondary, which follows that manifest, never sees
a half of what happened together. (With a log, it may miss the part of it that was flushed and removed while it looked.)

Reads must see one state. The snapshots of `rocksdict` do not do for that: their iterators see what is written later. But
all changes go through one object here, which counts them: a read during which the count did not move saw one state.
"""

from __future__ import annotations

import errno
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import rocksdict

from hayase.core.errors import DamagedState, HayaseError, HomeInUse
from hayase.streams import durable
from hayase.tables.stores import Result, View

__all__ = ["RocksSecondary", "RocksStore", "write_sorted"]

_ATTEMPTS = 5
_REFRESHES = 50_000
_CACHE_BYTES = 64 << 20
_cache: rocksdict.Cache | None = None
_cache_lock = threading.Lock()


def _options() -> rocksdict.Options:
    """How RocksDB keeps a table, on a machine of few cores that has other work to do.

    LZ4 halves the files for next to nothing; Zstandard would take another fifth off them, but for half as much time
    again to write a run, and slower reads. Bloom filters (10 bits) spare most files when a key is looked up that has no
    snapshot, or a mark that is not there. Ingested runs overlap one another, so they land in level 0. Runs are merged with
    others of about their size ("universal"), eight at once, so that a small batch does not move a large table: over
    2,000,000 keys a batch of 10,000 took 34 ms of CPU with all its merging, with levels 80, and a scan 0.14 ms instead of
    0.53. (To merge as soon as a file is full of deletions, as each fold leaves one, would double the work of merging after
    folds, to read a quarter faster.) Writes are slowed down at 64 files in level 0. The blocks of all tables of a process
    share one cache. RocksDB's own log is kept small.
    """
    global _cache
    with _cache_lock:
        if _cache is None:
            _cache = rocksdict.Cache(_CACHE_BYTES)
    blocks = rocksdict.BlockBasedOptions()
    blocks.set_block_cache(_cache)
    blocks.set_bloom_filter(10, False)
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    options.set_compaction_style(rocksdict.DBCompactionStyle.universal())
    options.set_level_zero_file_num_compaction_trigger(8)
    options.set_level_zero_slowdown_writes_trigger(64)
    options.set_level_zero_stop_writes_trigger(128)
    options.set_max_background_jobs(2)
    options.set_max_open_files(-1)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1 << 20)
    options.set_max_manifest_file_size(16 << 20)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def write_sorted(
    path: Path, head: tuple[bytes, bytes], prefix: bytes, keys: Sequence[bytes], values: Sequence[bytes]
) -> None:
    """Write a file to be ingested: first the head, then the keys, which are in order, each behind the prefix."""
    with durable.temporary(path.parent, path.name) as (draft, descriptor), _translated(path):
        writer = rocksdict.SstFileWriter(_options())
        writer.open(str(draft))
        writer[head[0]] = head[1]
        for key, value in zip(keys, values, strict=True):
            writer[prefix + key] = value
        writer.finish()
        durable.fsync_file(descriptor)
        durable.rename(draft, path)


class _Moved(Exception):
    """The state changed while it was read."""


class _Moves:
    """Counts the changes of a store: one when it begins, one when it has ended, so it is odd while one is being made."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class _View:
    """The present state, as long as nothing moves."""

    __slots__ = ("_at", "_database", "_moves", "_path", "_scans")

    def __init__(self, database: rocksdict.Rdict, path: Path, moves: _Moves, at: int):
        self._database, self._path, self._moves, self._at = database, path, moves, at
        self._scans: list[Generator[tuple[bytes, bytes]]] = []

    def get(self, key: bytes) -> bytes | None:
        try:
            found: bytes | None = self._database.get(key)
        except Exception as error:
            raise _error(error, self._path) from error
        if self._moves.count != self._at:
            raise _Moved
        return found

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if len(keys) < 2:
            return [self.get(key) for key in keys]
        try:
            found: list[bytes | None] = self._database.get(list(keys))  # type: ignore[assignment]
        except Exception as error:
            raise _error(error, self._path) from error
        if self._moves.count != self._at:
            raise _Moved
        return found

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        if start >= stop:
            return iter(())
        bounds = rocksdict.ReadOptions()
        bounds.set_iterate_upper_bound(stop)
        try:
            found = self._database.iter(bounds)  # what it sees stays as it is now
        except Exception as error:
            raise _error(error, self._path) from error
        if self._moves.count != self._at:
            raise _Moved
        items = _items(found, bounds, start, self._path)
        self._scans.append(items)
        return items

    def end(self) -> None:
        """Let go of all iterators: RocksDB cannot be closed while one lives."""
        for each in self._scans:
            each.close()


class _Nothing:
    """A view of a store that does not exist yet."""

    def get(self, key: bytes) -> bytes | None:
        return None

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [None] * len(keys)

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(())


def _items(
    found: rocksdict.RdictIter, bounds: rocksdict.ReadOptions, start: bytes, path: Path
) -> Generator[tuple[bytes, bytes]]:
    """What an iterator gives. The bounds must live as long as it does: it only refers to them."""
    try:
        found.seek(start)
        while found.valid():
            yield found.key(), found.value()
            found.next()
        found.status()
    except Exception as error:
        raise _error(error, path) from error


class RocksStore:
    """A store in a directory that this process writes."""

    def __init__(self, path: Path):
        self._path = path
        durable.make_directory(path)
        with _translated(path):
            self._database = rocksdict.Rdict(str(path), _options())
        self._unlogged = rocksdict.WriteOptions()
        self._unlogged.disable_wal = True  # type: ignore[method-assign, assignment]
        self._writing = threading.Lock()
        self._moves = _Moves()
        self._readers, self._closed = 0, False
        self._reading = threading.Condition(threading.Lock())

    def read(self, work: Callable[[_View], Result]) -> Result:
        """The work is done without a lock. If the state moves meanwhile, again, and at last while nobody may write."""
        with self._reading:
            if self._closed:
                raise HayaseError(f"{self._path} is closed")
            self._readers += 1
        try:
            for _ in range(_ATTEMPTS):
                at = self._moves.count
                if at % 2 == 0:
                    with suppress(_Moved):
                        return self._done(work, at)
                else:
                    with self._writing:
                        pass
            with self._writing:
                return self._done(work, self._moves.count)
        finally:
            with self._reading:
                self._readers -= 1
                self._reading.notify_all()

    def _done(self, work: Callable[[_View], Result], at: int) -> Result:
        view = _View(self._database, self._path, self._moves, at)
        try:
            return work(view)
        finally:
            view.end()

    @contextmanager
    def _moving(self) -> Iterator[None]:
        self._moves.count += 1
        try:
            yield
        finally:
            self._moves.count += 1

    def write(
        self,
        puts: Iterable[tuple[bytes, bytes]] = (),
        deletes: Iterable[bytes] = (),
        ranges: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for start, stop in ranges:
            batch.delete_range(start, stop)
        for key in deletes:
            batch.delete(key)
        for key, value in puts:
            batch.put(key, value)
        with self._writing, _translated(self._path):
            with self._moving():
                self._database.write(batch, self._unlogged)
            self._database.flush(True)

    def ingest(self, files: Sequence[Path]) -> None:
        options = rocksdict.IngestExternalFileOptions()
        options.set_move_files(True)
        with self._writing, _translated(self._path), self._moving():
            self._database.ingest_external_file([str(file) for file in files], options)
        for file in files:
            durable.remove(file)

    def refresh(self) -> None:
        """Nothing to do: it sees its own writes."""

    def size(self) -> int:
        return _size(self._path)

    def close(self) -> None:
        with self._reading:
            self._closed = True
            while self._readers:
                self._reading.wait()
        with self._writing:
            self._database.close()


class RocksSecondary:
    """A store that another process may be writing. It stands still but for `refresh`."""

    def __init__(self, path: Path):
        self._path = path
        self._lock = threading.RLock()
        self._refreshed = 0
        self._database: rocksdict.Rdict | None = None
        self._open()

    def read(self, work: Callable[[View], Result]) -> Result:
        """Should the one who writes it have removed a file before it was opened here, it is opened again."""
        with self._lock:
            for attempt in range(_ATTEMPTS):
                if self._database is None:
                    return work(_Nothing())
                view = _View(self._database, self._path, _Moves(), 0)
                try:
                    return work(view)
                except DamagedState as error:
                    if "No such file" not in str(error) or attempt == _ATTEMPTS - 1:
                        raise
                finally:
                    view.end()
                self._shut()
                self._open()
            raise AssertionError("the last attempt returns or raises")

    def refresh(self) -> None:
        with self._lock:
            if self._database is None:
                self._open()
                return
            self._refreshed += 1
            if self._refreshed < _REFRESHES:
                with suppress(Exception):  # a file that it had to look at may be gone by now
                    self._database.try_catch_up_with_primary()
                    return
            self._shut()
            self._open()

    def write(
        self,
        puts: Iterable[tuple[bytes, bytes]] = (),
        deletes: Iterable[bytes] = (),
        ranges: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        raise HayaseError(f"{self._path} is open for reading only")

    def ingest(self, files: Sequence[Path]) -> None:
        raise HayaseError(f"{self._path} is open for reading only")

    def size(self) -> int:
        return _size(self._path)

    def close(self) -> None:
        with self._lock:
            self._shut()

    def _open(self) -> None:
        """Open it if it exists; again if the one who writes it removed a file meanwhile that was to be opened.

        RocksDB wants a directory for its own log. Nobody reads that, and whoever is killed cannot tidy up: so the directory
        is removed as soon as the log is open, and the log is begun anew now and then.
        """
        options = _options()
        options.set_max_log_file_size(0)
        for attempt in range(_ATTEMPTS):
            if not (self._path / "CURRENT").exists():
                return
            try:
                with tempfile.TemporaryDirectory(prefix="hayase-") as room:
                    access = rocksdict.AccessType.secondary(room)
                    self._database = rocksdict.Rdict(str(self._path), options, access_type=access)
                    self._database.try_catch_up_with_primary()
            except Exception as error:
                self._shut()
                if attempt == _ATTEMPTS - 1:
                    raise _error(error, self._path) from error
            else:
                self._refreshed = 0
                return

    def _shut(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


def _size(path: Path) -> int:
    total = 0
    for each in path.glob("*"):
        try:
            total += each.stat().st_size
        except FileNotFoundError:  # a compaction removed it
            continue
    return total


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """RocksDB's errors, which are plain exceptions with a text, as errors of Hayase."""
    try:
        yield
    except (HayaseError, OSError, MemoryError):
        raise
    except Exception as error:
        raise _error(error, path) from error


def _error(error: Exception, path: Path) -> Exception:
    text = str(error)
    if "lock" in text.lower() and "LOCK" in text:
        return HomeInUse(f"another process has {path} open for writing")
    if "No space left" in text:
        return OSError(errno.ENOSPC, text, str(path))
    return DamagedState(f"the table in {path} cannot be used: {text}")
