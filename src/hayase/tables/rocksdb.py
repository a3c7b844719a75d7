"""RocksDB as the store of a table. Nobody else imports `rocksdict`.

There is no log of writes: a write is put into memory and flushed to a file before it returns, and an ingested file is there
already. So each state on disk is one that RocksDB's manifest names, and a reader, which opens what that manifest names, never
sees a half of what happened together.

A store is opened only after its seal was checked (`hayase.tables.seals`). Readers in other processes open it read-only, which
fails if any live file is missing or its index is damaged, and sees one fixed state; blocks of data are checked as they are
read. (A RocksDB secondary is quicker to follow a writer, but falls back in silence to the last state whose files are whole.)

Reads must see one state. The snapshots of `rocksdict` do not do for that: their iterators see what is written later. But
all changes go through one object here, which counts them: a read during which the count did not move saw one state.
"""

from __future__ import annotations

import errno
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import rocksdict

from hayase.core.errors import DamagedState, EnvironmentUnfit, HayaseError, HomeInUse
from hayase.streams import durable
from hayase.tables import seals
from hayase.tables.stores import GENERATION, Finding, Result, View

__all__ = ["RocksReader", "RocksStore", "discard", "verify_files", "write_sorted"]

_ATTEMPTS = 5
_OPENINGS = 50
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
    options.set_paranoid_checks(True)
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
        self._unlogged = rocksdict.WriteOptions()
        self._unlogged.disable_wal = True  # type: ignore[method-assign, assignment]
        self._writing = threading.Lock()
        self._moves = _Moves()
        self._readers, self._paused, self._closed = 0, False, False
        self._reading = threading.Condition(threading.Lock())
        self._open()

    def _open(self) -> None:
        seals.check(self._path)
        durable.make_directory(self._path)
        with _translated(self._path):
            self._database = rocksdict.Rdict(str(self._path), _options())
        try:
            generation = self._database.get(GENERATION)
            self._seal: seals.Seal | None = None
            self._sealed(None if generation is None else generation.decode())
        except Exception as error:
            _close(self._database)
            raise _error(error, self._path) from error

    def _sealed(self, generation: str | None) -> None:
        """Seal what is on disk now. What was just changed is durable, whether or not there is room for the seal: an older one
        holds too, and the next covers all."""
        self._seal = seals.sealed_now(self._path, self._seal, generation)
        with suppress(OSError):
            seals.write_seal(self._path, self._seal)

    def read(self, work: Callable[[_View], Result]) -> Result:
        """The work is done without a lock. If the state moves meanwhile, again, and at last while nobody may write."""
        with self._reading:
            while self._paused:
                self._reading.wait()
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
        assert self._seal is not None
        generation = self._seal.generation
        batch = rocksdict.WriteBatch(raw_mode=True)
        for start, stop in ranges:
            batch.delete_range(start, stop)
        for key in deletes:
            batch.delete(key)
        for key, value in puts:
            batch.put(key, value)
            generation = value.decode() if key == GENERATION else generation
        with self._writing, _translated(self._path):
            with self._moving():
                self._database.write(batch, self._unlogged)
            self._database.flush(True)
            self._sealed(generation)

    def ingest(self, files: Sequence[Path]) -> None:
        options = rocksdict.IngestExternalFileOptions()
        options.set_move_files(True)
        with self._writing, _translated(self._path):
            with self._moving():
                self._database.ingest_external_file([str(file) for file in files], options)
            assert self._seal is not None
            self._sealed(self._seal.generation)
        for file in files:
            durable.remove(file)

    def clear(self) -> None:
        """The store is thrown away and created anew: no deletion is left behind that a damaged file could undo."""
        with self._reading:
            self._paused = True
            while self._readers:
                self._reading.wait()
        try:
            with self._writing, self._moving():
                _close(self._database)
                try:
                    discard(self._path)
                finally:
                    self._open()
        finally:
            with self._reading:
                self._paused = False
                self._reading.notify_all()

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
            assert self._seal is not None
            _close(self._database)
            del self._database  # which lets go of it, should it not have been closed
            if self._path.exists():  # what merging did since; it may be sealed later as well
                with suppress(OSError, DamagedState):
                    self._sealed(self._seal.generation)


class RocksReader:
    """A store that another process may be writing. It stands still but for `refresh`."""

    def __init__(self, path: Path):
        self._path = path
        self._lock = threading.RLock()
        self._place: seals.Place | None = None
        self._database: rocksdict.Rdict | None = None
        self._open()

    def read(self, work: Callable[[View], Result]) -> Result:
        with self._lock:
            if self._database is None:
                return work(_Nothing())
            view = _View(self._database, self._path, _Moves(), 0)
            try:
                return work(view)
            finally:
                view.end()

    def refresh(self) -> None:
        """Open the store again if its MANIFEST has changed."""
        with self._lock:
            if self._place is None or seals.place_of(self._path) != self._place:
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

    def clear(self) -> None:
        raise HayaseError(f"{self._path} is open for reading only")

    def size(self) -> int:
        return _size(self._path)

    def close(self) -> None:
        with self._lock:
            self._shut()

    def _open(self) -> None:
        """Open it if it exists; again if the one who writes it has changed it meanwhile.

        RocksDB wants a directory for its own log. Nobody reads that, and whoever is killed cannot tidy up: so the directory
        is removed as soon as the log is open.
        """
        options = _options()
        options.set_max_log_file_size(0)
        for attempt in range(_OPENINGS):
            before = seals.place_of(self._path)
            try:
                self._place = seals.check(self._path)
                if self._place is None:
                    return
                with tempfile.TemporaryDirectory(prefix="hayase-") as room:
                    options.set_db_log_dir(room)
                    access = rocksdict.AccessType.read_only(False)
                    self._database = rocksdict.Rdict(str(self._path), options, access_type=access)
                return
            except Exception as error:
                self._place = None
                if attempt == _OPENINGS - 1 or seals.place_of(self._path) == before:
                    raise error if isinstance(error, HayaseError) else _error(error, self._path) from error

    def _shut(self) -> None:
        if self._database is not None:
            _close(self._database)
            self._database = None


def _close(database: rocksdict.Rdict) -> None:
    """Let go of a store. That merging has met a damaged file is told to those who read or write, not to those who close."""
    with suppress(Exception):
        database.close()


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


_REFUSALS = {
    "Too many open files": "allow the process more of them, with `ulimit -n`",
    "Permission denied": "the files belong to somebody else",
    "Read-only file system": "the disk cannot be written",
    "Input/output error": "the disk does not answer as it should",
    "Cannot allocate memory": "give the process more of it",
}
"""What an operating system says that is no damage of a table."""


def _error(error: Exception, path: Path) -> Exception:
    text = str(error)
    if isinstance(error, HayaseError):
        return error
    if isinstance(error, rocksdict.DbClosedError):
        return HayaseError(f"{path} is closed")
    if "lock" in text.lower() and "LOCK" in text:
        return HomeInUse(f"another process has {path} open for writing")
    if "No space left" in text:
        return OSError(errno.ENOSPC, text, str(path))
    for told, remedy in _REFUSALS.items():
        if told in text:
            return EnvironmentUnfit(f'table "{path.name}" cannot be used: {text}; {remedy}')
    return seals.damaged(path, _blamed(path, text))


def _blamed(path: Path, text: str) -> str:
    """RocksDB's text, which says which file is damaged but for its properties; then each file is tried by itself."""
    told = text.split("  The file ")[0]
    if re.search(r"\d+\.sst", told) or "MANIFEST-" in told:
        return told
    culprits = [str(file) for file in sorted(path.glob("*.sst")) if not _is_table(file)]
    return f"{', '.join(culprits) or path} ({told})"


def _is_table(file: Path) -> bool:
    """Whether RocksDB can open a file of a store by itself. It only takes in those that it was given, and says so last."""
    with tempfile.TemporaryDirectory(prefix="hayase-") as room:
        database = rocksdict.Rdict(room, _options())
        try:
            database.ingest_external_file([str(file)], rocksdict.IngestExternalFileOptions())
        except Exception as error:
            return "External file version not found" in str(error)
        finally:
            database.close()
    return True


def discard(path: Path) -> None:
    """Throw a store away, its seal first: a store without one need not be there."""
    gone = path.with_name(path.name + ".discarded")
    shutil.rmtree(gone, ignore_errors=True)
    seals.remove_seal(path)
    if path.exists():
        durable.rename(path, gone)
    shutil.rmtree(gone, ignore_errors=True)


def verify_files(path: Path) -> list[Finding]:
    """Read every live file of a store, block by block. One finding is enough: the remedy is the same for all."""
    try:
        store = RocksReader(path)
        try:
            store.read(_read_all)
        finally:
            store.close()
    except DamagedState as error:
        return [Finding(path, str(error))]
    return []


def _read_all(view: View) -> None:
    for _ in view.scan(b"", b"\xff" * 8):
        pass
