"""Files of a directory or of an object store: listed by a pattern, opened, written whole.

A path is local, or an address such as `s3://bucket/logs/*.ndjson.gz`. Object stores are reached through obstore, the client that
also knows conditional writes; endpoint and credentials come from the environment variables that its other programs use.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import xxhash

from hayase.core.errors import EndpointError, EnvironmentUnfit
from hayase.core.followed_directory import is_being_written
from hayase.streams import durable

__all__ = ["FileStore", "Found", "Pattern", "is_address", "local_path", "open_store"]

_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""The variables of the environment that name another server than the one of the cloud, by scheme."""
SCHEMES = tuple(_ENDPOINTS)
DRAFTS = "_hayase"
"""The directory of files that are being written: readers of directories leave out names that begin like this."""
_WILDCARDS = re.compile(r"[*?\[]")


class Found(NamedTuple):
    """A file: its full path or address, its size, and a text that changes with its content: the time of its last change in
    nanoseconds, or the ETag of an object."""

    path: str
    size: int
    version: str


class FileStore(Protocol):
    """Files below one place. Names are relative to it, with "/" between their parts."""

    shows_only_whole: bool
    """Whether a file that is listed is complete."""

    def list(self, pattern: Pattern) -> Iterator[Found]:
        """Yield the files whose names match, in any order; those whose names say that they are not records are left out."""

    def look_at(self, path: str) -> Found | None:
        """Return the present state of a file that was found; None if there is none."""

    def open(self, path: str) -> Path | BinaryIO:
        """Return a file that was found, for `hayase.streams.file_formats`."""

    def read(self, name: str) -> tuple[bytes, str] | None:
        """Return the content of a small file and its version; None if there is none."""

    def replace(self, name: str, data: bytes, version: str | None) -> str | None:
        """Write a file whole and durably, if its version is still this one (None: there is none); return its new version, None
        if another one has written it meanwhile."""

    def names(self, directory: str) -> Iterator[str]:
        """Yield the names of all files below a directory."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; those that are not there are left out."""

    def remove_drafts(self) -> None:
        """Remove what writers that have ended left half written, if others can see it."""


class Pattern(NamedTuple):
    """Names below a place: `deepest` is the number of directories that a name may have, None without a limit."""

    matches: re.Pattern[str]
    deepest: int | None

    @classmethod
    def from_text(cls, text: str) -> Pattern:
        """Parse a pattern: `*` and `?` stand for characters of a name, `**` for any directories, `[...]` for one of some.

        >>> bool(Pattern.from_text("**/*.csv").matches.fullmatch("2026/a.csv"))
        True
        >>> bool(Pattern.from_text("*.csv").matches.fullmatch("2026/a.csv"))
        False
        """
        expression, at = "", 0
        while at < len(text):
            if text.startswith("**/", at):
                expression, at = expression + "(?:.*/)?", at + 3
            elif text.startswith("**", at):
                expression, at = expression + ".*", at + 2
            elif text[at] in "*?":
                expression, at = expression + ("[^/]*" if text[at] == "*" else "[^/]"), at + 1
            elif text[at] == "[" and (end := text.find("]", at + 2)) > 0:
                inside = text[at + 1 : end].replace("\\", "\\\\")
                inside = f"^{inside[1:]}" if inside.startswith("!") else inside
                expression, at = f"{expression}[{inside}]", end + 1
            else:
                expression, at = expression + re.escape(text[at]), at + 1
        return cls(re.compile(expression), None if "**" in text else text.count("/"))


def is_address(path: str) -> bool:
    """Return whether a path is the address of an object store."""
    return path.partition("://")[0] in SCHEMES and "://" in path


def local_path(path: str, beside: Path | None) -> Path:
    """Return a local path; a relative one lies in `beside`."""
    return (beside or Path()) / Path(path).expanduser()


def open_store(path: str, beside: Path | None = None) -> tuple[FileStore, str]:
    """Return the store of a path and the pattern of its names; a relative path lies in `beside`. A path without a pattern is a
    directory, and stands for the files in it, or one file, if that is what is there."""
    if is_address(path):
        scheme, _, rest = path.partition("://")
        bucket, _, key = rest.partition("/")
        base, pattern = _divided(key)
        return ObjectStore(f"{scheme}://{bucket}", base), pattern
    local = str(local_path(path, beside))
    base, pattern = _divided(local)
    if not pattern and Path(local).is_file():
        base, _, pattern = local.rpartition("/")
    return LocalStore(Path(base or "/")), pattern or "*"


def _divided(path: str) -> tuple[str, str]:
    """Return the directories of a path before the first wildcard, and the rest.

    >>> _divided("/logs/2026-*/a.csv"), _divided("/logs/")
    (('/logs', '2026-*/a.csv'), ('/logs', ''))
    """
    wildcard = _WILDCARDS.search(path)
    if wildcard is None:
        return path.rstrip("/"), ""
    base, _, _ = path[: wildcard.start()].rpartition("/")
    return base, path[len(base) :].removeprefix("/")


def _is_left_out(name: str) -> bool:
    """Return whether a name is not that of records: of a file that is being written, or like `_SUCCESS`, `_delta_log/`."""
    return any(is_being_written(part) or part.startswith("_") for part in name.split("/"))


class LocalStore:
    """A directory. A file that is being written may be seen."""

    shows_only_whole = False

    def __init__(self, directory: Path):
        self._directory = directory

    def list(self, pattern: Pattern) -> Iterator[Found]:
        for name, entry in self._walk(str(self._directory), "", pattern.deepest):
            if pattern.matches.fullmatch(name) and not _is_left_out(name):
                with contextlib.suppress(FileNotFoundError):  # renamed or removed just now
                    status = entry.stat()
                    yield Found(entry.path, status.st_size, str(status.st_mtime_ns))

    def _walk(self, directory: str, before: str, deepest: int | None) -> Iterator[tuple[str, os.DirEntry[str]]]:
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    name = before + entry.name
                    if entry.is_dir():
                        if (deepest is None or deepest > 0) and not _is_left_out(entry.name):
                            yield from self._walk(entry.path, f"{name}/", None if deepest is None else deepest - 1)
                    elif entry.is_file():
                        _check_name(entry.path)
                        yield name, entry
        except FileNotFoundError as error:
            if not before:
                raise EndpointError(f'there is no directory "{directory}"', "create it, or check its name") from error
        except OSError as error:
            raise EndpointError(f'"{directory}" cannot be listed: {error}', "check its permissions") from error

    def look_at(self, path: str) -> Found | None:
        try:
            status = os.stat(path)  # noqa: PTH116 (a path as `list` gives it)
        except OSError:
            return None
        return Found(path, status.st_size, str(status.st_mtime_ns))

    def open(self, path: str) -> Path | BinaryIO:
        return Path(path)

    def read(self, name: str) -> tuple[bytes, str] | None:
        with _of_target(self._directory / name):
            try:
                data = (self._directory / name).read_bytes()
            except FileNotFoundError:
                return None
        return data, xxhash.xxh3_128_hexdigest(data)

    def replace(self, name: str, data: bytes, version: str | None) -> str | None:
        path = self._directory / name
        with _of_target(path):
            durable.make_directory(path.parent)
            lock = durable.open_file(self._directory / ".hayase.lock", os.O_CREAT | os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if path.exists() if version is None else (self.read(name) or (b"", ""))[1] != version:
                    return None
                self._write(path, data)
            finally:
                os.close(lock)
        return xxhash.xxh3_128_hexdigest(data)

    def _write(self, path: Path, data: bytes) -> None:
        drafts = self._directory / DRAFTS
        durable.make_directory(drafts)
        with durable.temporary(drafts, path.name) as (draft, descriptor):
            durable.write(descriptor, data)
            durable.fsync_file(descriptor)
            durable.rename(draft, path)

    def names(self, directory: str) -> Iterator[str]:
        base = self._directory / directory
        with _of_target(base):
            paths = [path for path in base.rglob("*") if path.is_file()] if base.is_dir() else []
        for path in paths:
            yield path.relative_to(self._directory).as_posix()

    def remove(self, names: Iterable[str]) -> None:
        parents = set()
        for name in names:
            path = self._directory / name
            with _of_target(path):
                durable.remove(path)
            parents.add(path.parent)
        for parent in parents:
            with _of_target(parent):
                durable.fsync_directory(parent)

    def remove_drafts(self) -> None:
        drafts = self._directory / DRAFTS
        with _of_target(drafts):
            durable.remove_leftovers(drafts)


def _check_name(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise EndpointError(f"the name of the file {path!r} is not UTF-8", "rename it") from error


@contextlib.contextmanager
def _of_target(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EndpointError(f'"{path}" cannot be used: {error}', "check the disk and the permissions") from error


class ObjectStore:
    """A bucket or container, below a prefix. Its objects are whole as soon as they are seen."""

    shows_only_whole = True

    def __init__(self, address: str, prefix: str):
        try:
            import obstore
            from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
            from obstore.store import from_url
        except ImportError as error:
            raise EnvironmentUnfit(
                f"{address} needs a client for object stores: {error}", 'install it: pip install "hayase[lake]"'
            ) from error
        self._client, self._error, self._taken = obstore, BaseError, (AlreadyExistsError, PreconditionError)
        self._address, self._prefix = address, f"{prefix}/" if prefix else ""
        self._condition = "version" if address.startswith("gs://") else "e_tag"
        """By what a write is conditional: Google Cloud Storage compares generations of objects, the others ETags."""
        endpoints = (os.environ.get(name) for name in _ENDPOINTS[address.partition("://")[0]])
        try:
            self._store: Any = from_url(
                address,
                client_options={
                    "allow_http": any(endpoint and endpoint.startswith("http://") for endpoint in endpoints),
                    "timeout": "30s",
                    "connect_timeout": "5s",
                },
                retry_config={"max_retries": 3, "retry_timeout": _seconds(20)},
            )
        except Exception as error:  # options from the environment that do not fit together
            raise EndpointError(
                f"{address} cannot be opened: {error}", "check the variables of the environment"
            ) from error

    def list(self, pattern: Pattern) -> Iterator[Found]:
        with self._explained():
            for portion in self._client.list(self._store, self._prefix or None, chunk_size=1000):
                for item in portion:
                    name = item["path"].removeprefix(self._prefix)
                    if pattern.matches.fullmatch(name) and not _is_left_out(name):
                        yield self._found(item)

    def look_at(self, path: str) -> Found | None:
        with self._explained():
            try:
                return self._found(self._client.head(self._store, self._key(path)))
            except FileNotFoundError:
                return None

    def open(self, path: str) -> Path | BinaryIO:
        with self._explained():
            reader = self._client.open_reader(self._store, self._key(path), buffer_size=4 << 20)
        opened: Any = _OpenObject(path, reader, self._explained)
        return opened

    def read(self, name: str) -> tuple[bytes, str] | None:
        with self._explained():
            try:
                answer = self._client.get(self._store, self._prefix + name)
                return bytes(answer.bytes()), str(answer.meta[self._condition])
            except FileNotFoundError:
                return None

    def replace(self, name: str, data: bytes, version: str | None) -> str | None:
        mode: Any = "create" if version is None else {self._condition: version}
        with self._explained():
            try:
                return str(self._client.put(self._store, self._prefix + name, data, mode=mode)[self._condition])
            except self._taken:
                there = self.read(name)  # our own write, if its answer was lost
                return there[1] if there is not None and there[0] == data else None

    def names(self, directory: str) -> Iterator[str]:
        with self._explained():
            for portion in self._client.list(self._store, self._prefix + directory, chunk_size=1000):
                yield from (item["path"].removeprefix(self._prefix) for item in portion)

    def remove(self, names: Iterable[str]) -> None:
        keys = [self._prefix + name for name in names]
        with self._explained(), contextlib.suppress(FileNotFoundError):
            if keys:
                self._client.delete(self._store, keys)

    def remove_drafts(self) -> None:
        pass  # an object is there when it is whole

    def _key(self, path: str) -> str:
        return path.removeprefix(f"{self._address}/")

    def _found(self, item: Any) -> Found:
        version = item["e_tag"] or str(item["last_modified"])
        if item["e_tag"] and '"' not in version:  # Azure lists ETags without the quotes that it has elsewhere
            version = f'"{version}"'
        return Found(f"{self._address}/{item['path']}", item["size"], version)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise what the client raises as EndpointError, but for a missing object."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (self._error, OSError, ValueError) as error:
            text = str(error).splitlines()[0][:300]
            raise EndpointError(f"{self._address} fails: {text}", "check its address and its credentials") from error


def _seconds(count: int) -> Any:
    from datetime import timedelta

    return timedelta(seconds=count)


class _OpenObject(io.RawIOBase):
    """An object as a file; what fails while it is read is an error of the endpoint, not of the file."""

    def __init__(self, name: str, reader: Any, explained: Any):
        self.name, self._reader, self._explained = name, reader, explained

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        with self._explained():
            if size is None or size < 0:
                return bytes(self._reader.read())
            return bytes(self._reader.read(size))

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return int(self._reader.seek(offset, whence))

    def tell(self) -> int:
        return int(self._reader.tell())
