"""The home directory of a pipeline: the paths of its files, and the lock that admits one running process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from hayase.core.data_classes import dataclass
from hayase.core.errors import EnvironmentUnfit, HomeInUse
from hayase.core.system_errors import explained_errors, remedy_of
from hayase.engine.file_lock import is_held, show_held
from hayase.streams import durable
from hayase.streams.home_format import begin_home

__all__ = ["Holder", "Home", "log_file", "open_log", "writing"]


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds the lock of a home: its id, of the machine on which it runs, and since when in microseconds."""

    process: str
    since: int


@dataclass(frozen=True, slots=True)
class Home:
    """Paths under `<home>`; see docs/design/walk.md."""

    path: Path

    @property
    def definitions(self) -> Path:
        return self.path / "definitions"

    def commits(self, lane: str) -> Path:
        return self.path / "commits" / lane

    def checkpoints(self, lane: str) -> Path:
        return self.path / "checkpoints" / lane

    def state(self, lane: str) -> Path:
        """State files, which the manifests name."""
        return self.path / "state" / lane

    def staged(self, lane: str) -> Path:
        """Staged files: durable output that no manifest names yet, on the same file system as the streams."""
        return self.path / "staged" / lane

    def exchange(self, lane: str) -> Path:
        """Large messages from the map side of the current batch to its reduce side."""
        return self.path / "exchange" / lane

    def code(self, name: str) -> Path:
        """Shipped code: the modules of an operation as they were when it was declared."""
        return self.definitions / "code" / name

    @property
    def tables(self) -> Path:
        """The stores of tables; only the process that holds the lock writes to them."""
        return self.path / "tables"

    def table(self, name: str) -> Path:
        return self.tables / name

    @property
    def spark_log(self) -> Path:
        """The log file of the JVM and the Python workers."""
        return self.path / "logs" / "spark.log"

    @property
    def connector_log(self) -> Path:
        """The log file of the processes of sources and outputs."""
        return self.path / "logs" / "connectors.log"

    def gate(self, lane: str) -> Path:
        return self.path / "gates" / f"{lane}.json"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the home's lock, creating the home if needed; HomeInUse names the process that holds it. The operating system
        releases the lock when the holder dies.

        While the lock is held, the umask follows the permissions of the home, also for RocksDB and Spark's processes.
        """
        with explained_errors():
            begin_home(self.path)
        with self.hold():
            yield

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock of an existing home of any format, as an upgrade does."""
        with explained_errors():
            descriptor = durable.open_file(self.path / "lock", os.O_RDWR | os.O_CREAT)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "unknown"
                raise HomeInUse(
                    f"the home {self.path} is in use by process {holder}; stop that one first, or use another home"
                ) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            show_held(descriptor)
            mask = os.umask(~self.path.stat().st_mode & 0o777)
            try:
                yield
            finally:
                os.umask(mask)
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def committing(self) -> Iterator[None]:
        """Held while a manifest is written and applied: whoever holds `still` sees a home between two commits."""
        with writing(f"the home {self.path}"):
            descriptor = durable.open_file(self._commit_lock, os.O_RDWR | os.O_CREAT)
        with _flocked(descriptor, fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Keep every lane from committing, in any process; hold it for as short a time as possible."""
        try:
            descriptor = durable.open_file(self._commit_lock, os.O_RDWR | os.O_CREAT)
        except OSError:  # somebody else's, or read-only
            try:
                descriptor = os.open(self._commit_lock, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # nothing was ever committed
                yield
                return
        with _flocked(descriptor, fcntl.LOCK_EX):
            yield

    @property
    def _commit_lock(self) -> Path:
        return self.path / "lock.commits"

    def is_locked(self) -> bool:
        """Whether a process holds the lock now. Does not take the lock, so a run that starts meanwhile is not disturbed."""
        return self.holder() is not None

    def holder(self) -> Holder | None:
        """Return the process that holds the lock now, or None; the lock is not taken."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            if not is_held(descriptor):
                return None
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            return Holder(holder or "unknown", os.fstat(descriptor).st_mtime_ns // 1000)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _flocked(descriptor: int, kind: int) -> Iterator[None]:
    """Hold a lock on an open file and close it. It is unlocked first: a process forked meanwhile shares the descriptor."""
    try:
        fcntl.flock(descriptor, kind)
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """Turn an OSError in the block into EnvironmentUnfit, with the name of what could not be written."""
    try:
        yield
    except OSError as error:
        raise EnvironmentUnfit(f"{what} cannot be written: {error}\n{remedy_of(error)}") from error


def log_file(home: Home) -> Path:
    """Create the log file of the JVM and the workers, if needed, and return its path."""
    os.close(open_log(home.spark_log))
    return home.spark_log


def open_log(path: Path) -> int:
    """Create a log file, if needed, and return a descriptor that writes at its end."""
    durable.make_directory(path.parent)
    return durable.open_file(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
