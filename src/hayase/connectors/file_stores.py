"""Files of a directory or of an object store: listed by a pattern, opened, written by the verbs of `hayase.storage`.

A path is local, or an address such as `s3://bucket/logs/*.ndjson.gz`.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from hayase.core.errors import EndpointError
from hayase.core.followed_directory import is_being_written
from hayase.storage import DirectoryStore, ObjectStore, Status, Store, is_address
from hayase.storage.obstore_requests import ObstoreRequests
from hayase.storage.store_addresses import divide_address

__all__ = ["FileStore", "Found", "Pattern", "local_path", "open_store"]

_WILDCARDS = re.compile(r"[*?\[]")


class Found(NamedTuple):
    """A file: its full path or address, its size, and a text that changes with its content: the time of its last change in
    nanoseconds, or the ETag of an object."""

    path: str
    size: int
    version: str


class FileStore(Protocol):
    """Files below one place, as sources find them; `files` has the verbs by which outputs write them. Names are relative to the
    place, with "/" between their parts."""

    shows_only_whole: bool
    """Whether a file that is listed is complete."""

    @property
    def files(self) -> Store:
        """The files by their names."""

    def list(self, pattern: Pattern) -> Iterator[Found]:
        """Yield the files whose names match, in any order; those whose names say that they are not records are left out."""

    def look_at(self, path: str) -> Found | None:
        """Return the present state of a file that was found; None if there is none."""

    def open(self, path: str) -> Path | BinaryIO:
        """Return a file that was found, for `hayase.streams.file_formats`."""

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


def local_path(path: str, beside: Path | None) -> Path:
    """Return a local path; a relative one lies in `beside`."""
    return (beside or Path()) / Path(path).expanduser()


def open_store(path: str, beside: Path | None = None) -> tuple[FileStore, str]:
    """Return the store of a path and the pattern of its names; a relative path lies in `beside`. A path without a pattern is a
    directory, and stands for the files in it, or one file, if that is what is there."""
    if is_address(path):
        bucket, key = divide_address(path)
        base, pattern = _divided(key)
        return BucketFiles(bucket, base), pattern
    local = str(local_path(path, beside))
    base, pattern = _divided(local)
    if not pattern and Path(local).is_file():
        base, _, pattern = local.rpartition("/")
    return DirectoryFiles(Path(base or "/")), pattern or "*"


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


class DirectoryFiles:
    """A directory. A file that is being written may be seen."""

    shows_only_whole = False

    def __init__(self, directory: Path):
        self._directory = directory
        self.files = DirectoryStore(directory)

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

    def remove_drafts(self) -> None:
        self.files.remove_drafts()


def _check_name(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise EndpointError(f"the name of the file {path!r} is not UTF-8", "rename it") from error


class BucketFiles:
    """A bucket or container, below a prefix. Its objects are whole as soon as they are seen."""

    shows_only_whole = True

    def __init__(self, address: str, prefix: str):
        self._requests = ObstoreRequests(address, prefix)
        self._place = f"{address}/{prefix}/" if prefix else f"{address}/"
        self.files = ObjectStore(self._requests)

    def list(self, pattern: Pattern) -> Iterator[Found]:
        for status in self.files.list_after():
            if pattern.matches.fullmatch(status.name) and not _is_left_out(status.name):
                yield self._found(status)

    def look_at(self, path: str) -> Found | None:
        status = self.files.status(path.removeprefix(self._place))
        return None if status is None else self._found(status)

    def open(self, path: str) -> Path | BinaryIO:
        return self._requests.open(path.removeprefix(self._place))

    def remove_drafts(self) -> None:
        pass  # an object is there when it is whole

    def _found(self, status: Status) -> Found:
        return Found(f"{self._place}{status.name}", status.size, status.tag)
