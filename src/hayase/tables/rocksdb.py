"""The store of a table in RocksDB. This is the only module that imports `rocksdict`.

There is no write-ahead log: a write is flushed to a file before it returns, and an ingested file is durable already. So each state
on disk is one that RocksDB's MANIFEST names, and a reader, which opens what the MANIFEST names, never sees half of an atomic
change.

A store is opened only after its seal was checked (`hayase.tables.seals`). Readers in other processes open it read-only. That fails
if any live file is missing or its index is damaged, and shows one fixed state; data blocks are checked as they are read. (A RocksDB
secondary follows a writer faster, but silently falls back to the last state whose files are complete.)

A read must see one state. Snapshots of `rocksdict` do not guarantee that: their iterators see later writes. But all changes go
through one object here, which counts them: a read during which the count did not change saw one state.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import rocksdict

from hayase.core.errors import DamagedState, EnvironmentUnfit, HayaseError, HomeInUse
from hayase.core.system_errors import remedy_of
from hayase.streams import durable
from hayase.tables import seals
from hayase.tables.stores import GENERATION, Result, View

__all__ = ["RocksReader", "RocksStore", "StagedRuns", "discard", "verify_files", "write_sorted"]

_ATTEMPTS = 5
_OPENINGS = 50
_CACHE_BYTES = 64 << 20
_FEW_ITEMS, _MOST_SKIPPED = 32, 64
_cache: rocksdict.Cache | None = None
_cache_lock = threading.Lock()


def _options() -> rocksdict.Options:
    """Return the options of RocksDB, for a machine with few cores that has other work to do.

    LZ4 halves the files at almost no cost; Zstandard would save another fifth, but takes half as long again to write a run, and
    reads are slower. Bloom filters (10 bits) skip most files when a key has no snapshot or an entry no mark. Ingested runs overlap,
    so they go to level 0. Compaction is "universal": it merges eight runs of similar size, so that a small batch does not rewrite a
    large table. Over 2,000,000 keys a batch of 10,000 took 34 ms of CPU including compaction, against 80 with levels, and a scan
    0.14 ms against 0.53. (Compaction as soon as a file is full of deletions, which each fold leaves, would double the work of
    compaction after folds, for reads that are a quarter faster.) Writes are slowed down at 64 files in level 0. All tables of a
    process share one block cache. RocksDB's own log is kept small.
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
    path: Path, heads: Sequence[tuple[bytes, bytes]], prefix: bytes, keys: Sequence[bytes], values: Sequence[bytes]
) -> None:
    """Write a file for ingestion: the heads, then the keys, all in order; the keys have the prefix in front."""
    with durable.temporary(path.parent, path.name) as (draft, descriptor), _translated(path):
        writer = rocksdict.SstFileWriter(_options())
        writer.open(str(draft))
        for key, value in heads:
            writer[key] = value
        for key, value in zip(keys, values, strict=True):
            writer[prefix + key] = value
        writer.finish()
        durable.fsync_file(descriptor)
        durable.rename(draft, path)


class _StateChanged(Exception):
    """The state changed during a read."""


class _ChangeCount:
    """Counts the beginnings and ends of changes of a store, so the count is odd during a change."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class _View:
    """A view of the present state; it raises `_StateChanged` once the state has changed."""

    __slots__ = ("_at", "_changes", "_database", "_path", "_scans")

    def __init__(self, database: rocksdict.Rdict, path: Path, changes: _ChangeCount, at: int):
        self._database, self._path, self._changes, self._at = database, path, changes, at
        self._scans: list[Generator[object]] = []

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._database.get(key)
        except Exception as error:
            raise error_of(error, self._path) from error
        if self._changes.count != self._at:
            raise _StateChanged
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if len(keys) < 2:
            return [self.get(key) for key in keys]
        try:
            values: list[bytes | None] = self._database.get(list(keys))  # type: ignore[assignment]
        except Exception as error:
            raise error_of(error, self._path) from error
        if self._changes.count != self._at:
            raise _StateChanged
        return values

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        if start >= stop:
            return iter(())
        bounds = rocksdict.ReadOptions()
        bounds.set_iterate_upper_bound(stop)
        items = self._items(self._iterator(bounds), bounds, start)
        self._scans.append(items)
        return items

    def scan_each(self, ranges: Sequence[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
        if len(ranges) < 2:
            return ([*self.scan(start, stop)] for start, stop in ranges)
        bounds = rocksdict.ReadOptions()
        bounds.set_iterate_upper_bound(ranges[-1][1])
        bounds.set_max_skippable_internal_keys(_MOST_SKIPPED)
        items = self._items_of_each(self._iterator(bounds), bounds, ranges)
        self._scans.append(items)
        return items

    def _iterator(self, bounds: rocksdict.ReadOptions) -> rocksdict.RdictIter:
        """Return an iterator, which sees the state of its creation."""
        try:
            iterator = self._database.iter(bounds)
        except Exception as error:
            raise error_of(error, self._path) from error
        if self._changes.count != self._at:
            raise _StateChanged
        return iterator

    def _items_of_each(
        self,
        iterator: rocksdict.RdictIter,
        bounds: rocksdict.ReadOptions,
        ranges: Sequence[tuple[bytes, bytes]],
    ) -> Generator[list[tuple[bytes, bytes]]]:
        """Yield the items of each range by one iterator. It gives up at damage, at its end, and where a great many keys were
        deleted; then a scan of the range decides. It only refers to the bounds, so they must live as long."""
        for start, stop in ranges:
            items: list[tuple[bytes, bytes]] = []
            key = start
            try:
                iterator.seek(start)
                while (valid := iterator.valid()) and (key := iterator.key()) < stop and len(items) < _FEW_ITEMS:
                    items.append((key, iterator.value()))
                    iterator.next()
            except Exception as error:
                raise error_of(error, self._path) from error
            if not valid:
                items = [*self.scan(start, stop)]
            elif key < stop:
                items += self.scan(key, stop)
            yield items

    def _items(
        self, iterator: rocksdict.RdictIter, bounds: rocksdict.ReadOptions, start: bytes
    ) -> Generator[tuple[bytes, bytes]]:
        """Yield the items of an iterator. It only refers to the bounds, so they must live as long.

        The other kind of iterator takes a third of the time for an item, but more to begin with, and ends in silence at a damaged
        block. So it takes over after a few items, and at its end the first one says whether there is more.
        """
        try:
            iterator.seek(start)
            for _ in range(_FEW_ITEMS):
                if not iterator.valid():
                    break
                yield iterator.key(), iterator.value()
                iterator.next()
            if iterator.valid():
                item = iterator.key(), b""
                others = self._database.items(from_key=item[0], read_opt=bounds)
                if self._changes.count != self._at:
                    raise _StateChanged
                for item in others:
                    yield item  # type: ignore[misc]
                iterator.seek(item[0])
                iterator.next()
                if iterator.valid():
                    raise DamagedState(f"{self._path} could not be read to its end")
            iterator.status()
        except _StateChanged:
            raise
        except Exception as error:
            raise error_of(error, self._path) from error

    def end(self) -> None:
        """Close all iterators: RocksDB cannot be closed while one exists."""
        for scan in self._scans:
            scan.close()


class _EmptyView:
    """A view of a store that does not exist yet."""

    def get(self, key: bytes) -> bytes | None:
        return None

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [None] * len(keys)

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(())

    def scan_each(self, ranges: Sequence[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
        return iter([[] for _ in ranges])


class RocksStore:
    """A store in a directory that this process writes."""

    def __init__(self, path: Path):
        self._path = path
        self._unlogged = rocksdict.WriteOptions()
        self._unlogged.disable_wal = True  # type: ignore[method-assign, assignment]
        self._writing = threading.Lock()
        self._changes = _ChangeCount()
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
            raise error_of(error, self._path) from error

    def _sealed(self, generation: str | None) -> None:
        """Seal the present state on disk. The change before is durable even if the seal cannot be written, such as on a full disk:
        the older seal remains valid, and the next one covers everything."""
        self._seal = seals.sealed_now(self._path, self._seal, generation)
        with suppress(OSError):
            seals.write_seal(self._path, self._seal)

    def read(self, work: Callable[[_View], Result]) -> Result:
        """Call `work` without a lock. If the state changes meanwhile, call it again; the last time while writes are locked out."""
        with self._reading:
            while self._paused:
                self._reading.wait()
            if self._closed:
                raise HayaseError(f"{self._path} is closed")
            self._readers += 1
        try:
            for _ in range(_ATTEMPTS):
                at = self._changes.count
                if at % 2 == 0:
                    with suppress(_StateChanged):
                        return self._call(work, at)
                else:
                    with self._writing:
                        pass
            with self._writing:
                return self._call(work, self._changes.count)
        finally:
            with self._reading:
                self._readers -= 1
                self._reading.notify_all()

    def _call(self, work: Callable[[_View], Result], at: int) -> Result:
        view = _View(self._database, self._path, self._changes, at)
        try:
            return work(view)
        finally:
            view.end()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        self._changes.count += 1
        try:
            yield
        finally:
            self._changes.count += 1

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
            with self._changing():
                self._database.write(batch, self._unlogged)
            self._database.flush(True)
            self._sealed(generation)

    def ingest(self, files: Sequence[Path]) -> None:
        options = rocksdict.IngestExternalFileOptions()
        options.set_move_files(True)
        with self._writing, _translated(self._path):
            with self._changing():
                self._database.ingest_external_file([str(file) for file in files], options)
            assert self._seal is not None
            self._sealed(self._seal.generation)
        for file in files:
            durable.remove(file)

    def clear(self) -> None:
        """Delete the store and create it anew, so that no deletions remain that a damaged file could undo."""
        with self._reading:
            self._paused = True
            while self._readers:
                self._reading.wait()
        try:
            with self._writing, self._changing():
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
            del self._database  # releases it, should closing have failed
            if self._path.exists():  # cover what compaction did since the last seal; optional
                with suppress(OSError, DamagedState):
                    self._sealed(self._seal.generation)


class RocksReader:
    """A store for reading while another process may write it. Its state is fixed until `refresh`."""

    def __init__(self, path: Path):
        self._path = path
        self._lock = threading.RLock()
        self._place: seals.Place | None = None
        self._database: rocksdict.Rdict | None = None
        self._open()

    def read(self, work: Callable[[View], Result]) -> Result:
        with self._lock:
            if self._database is None:
                return work(_EmptyView())
            view = _View(self._database, self._path, _ChangeCount(), 0)
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

    def size(self) -> int:
        return _size(self._path)

    def close(self) -> None:
        with self._lock:
            self._shut()

    def _open(self) -> None:
        """Open the store if it exists; try again if the writer has changed it meanwhile.

        RocksDB needs a directory for its own log, which nobody reads. It is removed as soon as the log is open, because a process
        that is killed could not remove it. `rocksdict` writes a file of its own beside those of the store, so a store that
        cannot be written is opened through links in that directory; RocksDB opens all files of the store at once.
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
                    place = self._path if os.access(self._path, os.W_OK) else _linked(self._path, Path(room) / "links")
                    self._database = rocksdict.Rdict(str(place), options, access_type=access)
                return
            except Exception as error:
                self._place = None
                if attempt == _OPENINGS - 1 or seals.place_of(self._path) == before:
                    raise error if isinstance(error, HayaseError) else error_of(error, self._path) from error

    def _shut(self) -> None:
        if self._database is not None:
            _close(self._database)
            self._database = None


class StagedRuns:
    """The entries of runs that no store has taken in yet, for reading: in a store of its own that lasts as long as this object. The
    files are copied and stay as they are."""

    def __init__(self, files: Sequence[Path]):
        self._room = tempfile.TemporaryDirectory(prefix="hayase-")
        self._path = Path(self._room.name)
        copied = rocksdict.IngestExternalFileOptions()
        copied.set_move_files(False)
        try:
            with _translated(files[0]):
                self._database = rocksdict.Rdict(str(self._path), _options())
                self._database.ingest_external_file([str(file) for file in files], copied)
        except BaseException:
            self._room.cleanup()
            raise

    def read(self, work: Callable[[View], Result]) -> Result:
        view = _View(self._database, self._path, _ChangeCount(), 0)
        try:
            return work(view)
        finally:
            view.end()

    def refresh(self) -> None:
        """Do nothing: staged files do not change."""

    def size(self) -> int:
        return _size(self._path)

    def close(self) -> None:
        _close(self._database)
        self._room.cleanup()


def _linked(path: Path, links: Path) -> Path:
    """Create a directory with links to the files of a store that RocksDB reads."""
    links.mkdir()
    for file in path.iterdir():
        if file.name == "CURRENT" or file.name.startswith("MANIFEST-") or file.suffix in (".sst", ".log"):
            (links / file.name).symlink_to(file.absolute())
    return links


def _close(database: rocksdict.Rdict) -> None:
    """Close a store. Reads and writes report a damaged file that compaction has met; closing ignores it."""
    with suppress(Exception):
        database.close()


def _size(path: Path) -> int:
    total = 0
    for file in path.glob("*"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:  # a compaction removed it
            continue
    return total


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Translate RocksDB's errors, which are plain exceptions with a text, into errors of Hayase."""
    try:
        yield
    except (HayaseError, OSError, MemoryError):
        raise
    except Exception as error:
        raise error_of(error, path) from error


_REFUSALS = {
    "Too many open files": errno.EMFILE,
    "Permission denied": errno.EACCES,
    "Read-only file system": errno.EROFS,
    "Input/output error": errno.EIO,
    "Cannot allocate memory": errno.ENOMEM,
}
"""Messages of the operating system that do not mean damage, with the error whose remedy is shown."""


def error_of(error: Exception, path: Path) -> Exception:
    text = str(error)
    if isinstance(error, HayaseError):
        return error
    if isinstance(error, rocksdict.DbClosedError):
        return HayaseError(f"{path} is closed")
    if "lock" in text.lower() and "LOCK" in text:
        return HomeInUse(f"another process has {path} open for writing")
    if "No space left" in text:
        return OSError(errno.ENOSPC, text, str(path))
    for message, number in _REFUSALS.items():
        if message in text:
            return EnvironmentUnfit(f'table "{path.name}" cannot be used: {text}\n{remedy_of(OSError(number, text))}')
    return seals.damage_error(path, _with_damaged_files(path, text))


def _with_damaged_files(path: Path, text: str) -> str:
    """Return RocksDB's text, with the names of damaged files. It names them itself unless a file's properties are damaged; then try
    each file."""
    message = text.split("  The file ")[0]
    if re.search(r"\d+\.sst", message) or "MANIFEST-" in message:
        return message
    culprits = [str(file) for file in sorted(path.glob("*.sst")) if not _is_table(file)]
    return f"{', '.join(culprits) or path} ({message})"


def _is_table(file: Path) -> bool:
    """Whether RocksDB can open a single file of a store. It ingests only files made for ingestion, but checks that last."""
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
    """Delete a store, its seal first: without a seal, a missing store is not damage."""
    gone = path.with_name(path.name + ".discarded")
    shutil.rmtree(gone, ignore_errors=True)
    seals.remove_seal(path)
    if path.exists():
        durable.rename(path, gone)
    shutil.rmtree(gone, ignore_errors=True)


def verify_files(path: Path) -> None:
    """Read every live file of a store, block by block; DamagedState for the first damage, since the remedy is the same for all."""
    with closing(RocksReader(path)) as store:
        store.read(_read_all)


def _read_all(view: View) -> None:
    for _ in view.scan(b"", b"\xff" * 8):
        pass
