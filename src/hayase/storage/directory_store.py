"""A directory as a store: files are written beside their place, synced and renamed under a lock that all writers of it take.

A version is the checksum of the content. Drafts are in the directory `_hayase`, which readers of data directories leave out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import xxhash

from hayase.core.errors import EndpointError
from hayase.storage import request_counts
from hayase.storage.verbs import Status, Stored
from hayase.streams import durable

__all__ = ["DRAFTS", "LOCK", "DirectoryStore"]

DRAFTS = "_hayase"
LOCK = ".hayase.lock"
_PORTION = 4 << 20


class DirectoryStore:
    """The files below a directory, which is created with the first of them."""

    def __init__(self, directory: Path):
        self.directory = directory

    def create(self, name: str, data: bytes) -> str | None:
        request_counts.count("create")
        path = self.directory / name
        with self._writing(path):
            if path.exists():
                return None
            self._write(path, data)
        return _version(data)

    def replace(self, name: str, data: bytes, version: str) -> str | None:
        request_counts.count("replace")
        path = self.directory / name
        with self._writing(path):
            try:
                if _version(path.read_bytes()) != version:
                    return None
            except FileNotFoundError:
                return None
            self._write(path, data)
        return _version(data)

    def put(self, name: str, source: bytes | Path) -> None:
        request_counts.count("put")
        path = self.directory / name
        with self._writing(path):
            self._write(path, source)

    def read(self, name: str) -> Stored | None:
        request_counts.count("read")
        with self._explained(self.directory / name):
            try:
                data = (self.directory / name).read_bytes()
            except FileNotFoundError:
                return None
        return Stored(data, _version(data))

    def read_range(self, name: str, start: int, stop: int) -> bytes | None:
        request_counts.count("read")
        with self._explained(self.directory / name):
            try:
                with (self.directory / name).open("rb") as file:
                    file.seek(start)
                    return file.read(max(stop - start, 0))
            except FileNotFoundError:
                return None

    def status(self, name: str) -> Status | None:
        request_counts.count("status")
        with self._explained(self.directory / name):
            try:
                status = (self.directory / name).stat()
            except FileNotFoundError:
                return None
        return Status(name, status.st_size, str(status.st_mtime_ns))

    def list_after(self, directory: str = "", after: str = "") -> Iterator[Status]:
        request_counts.count("list")
        base = self.directory / directory
        with self._explained(base):
            names = sorted(path.relative_to(self.directory).as_posix() for path in base.rglob("*") if path.is_file())
        for name in names:
            if name > after and name != LOCK and not name.endswith(durable.TEMPORARY):
                status = self.status(name)
                if status is not None:
                    yield status

    def delete(self, names: Iterable[str]) -> None:
        request_counts.count("delete")
        parents = set()
        for name in names:
            path = self.directory / name
            with self._explained(path):
                durable.remove(path)
            parents.add(path.parent)
        for parent in parents:
            with self._explained(parent):
                if parent.is_dir():
                    durable.fsync_directory(parent)

    def remove_drafts(self) -> None:
        """Remove what writers that have ended left half written."""
        with self._explained(self.directory / DRAFTS):
            durable.remove_leftovers(self.directory / DRAFTS)

    @contextlib.contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        """Hold the lock of all writers to the directory."""
        with self._explained(path):
            durable.make_directory(self.directory / DRAFTS)
            durable.make_directory(path.parent)
            lock = durable.open_file(self.directory / LOCK, os.O_CREAT | os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
            finally:
                os.close(lock)

    def _write(self, path: Path, source: bytes | Path) -> None:
        with durable.temporary(self.directory / DRAFTS, path.name) as (draft, descriptor):
            if isinstance(source, bytes):
                durable.write(descriptor, source)
            else:
                with source.open("rb") as file, os.fdopen(os.dup(descriptor), "wb") as target:
                    shutil.copyfileobj(file, target, _PORTION)
            durable.fsync_file(descriptor)
            durable.rename(draft, path)

    @contextlib.contextmanager
    def _explained(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise EndpointError(f'"{path}" cannot be used: {error}', "check the disk and the permissions") from error


def _version(data: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)
