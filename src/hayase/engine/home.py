"""The home directory of a pipeline: where everything lies, and the lock that keeps a second runner out."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hayase.core.errors import EnvironmentUnfit, HomeInUse
from hayase.core.system_errors import explaining, remedy_of
from hayase.engine.file_lock import is_held, show_held
from hayase.streams import durable
from hayase.streams.home_format import begin_home

__all__ = ["Home", "log_file", "writing"]


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
        """State segments, in files named by the manifests."""
        return self.path / "state" / lane

    def staged(self, lane: str) -> Path:
        """Durable output that waits for its manifest, on the same file system as the streams."""
        return self.path / "staged" / lane

    def exchange(self, lane: str) -> Path:
        """What the map side of the batch at hand gives to its reduce side."""
        return self.path / "exchange" / lane

    def code(self, name: str) -> Path:
        """Where the modules of an operation lie, as they were when it was declared."""
        return self.definitions / "code" / name

    @property
    def tables(self) -> Path:
        """The stores of tables, to which only the process that holds the lock writes."""
        return self.path / "tables"

    def table(self, name: str) -> Path:
        return self.tables / name

    @property
    def spark_log(self) -> Path:
        """What the JVM and the workers write."""
        return self.path / "logs" / "spark.log"

    def gate(self, lane: str) -> Path:
        return self.path / "gates" / f"{lane}.json"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the home; `HomeInUse` names the process that has it. The kernel lets go when the holder dies, however it dies.

        Meanwhile the process makes files with the permissions of the home, also through RocksDB and in Spark's processes.
        """
        with explaining():
            begin_home(self.path)
        with self.hold():
            yield

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """The same for a home that is there, whatever its format: for who upgrades it."""
        with explaining():
            descriptor = durable.opened(self.path / "lock", os.O_RDWR | os.O_CREAT)
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

    def is_locked(self) -> bool:
        """Whether some process runs a pipeline here now. Asks only: a run that starts meanwhile is not disturbed."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return is_held(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """Name what could not be written, if the disk refuses it."""
    try:
        yield
    except OSError as error:
        raise EnvironmentUnfit(f"{what} cannot be written: {error}\n{remedy_of(error)}") from error


def log_file(home: Home) -> Path:
    """Where the JVM and the workers write, in a folder that is there."""
    durable.make_directory(home.spark_log.parent)
    os.close(durable.opened(home.spark_log, os.O_CREAT | os.O_APPEND | os.O_WRONLY))
    return home.spark_log
