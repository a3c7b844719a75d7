"""Durable steps on a file system: what has returned survives a loss of power, what was interrupted leaves no half.

Every change that Hayase makes to files it must not lose goes through this module, and each announces itself to
`reached` just before and just after it happens. Tests replace `reached` to stop a program at every such point.

Within `thrown_away` nothing waits for the disk: for files that nobody wants after the program.

Files and directories get the permissions of the directory that they are made in: a home is made private (0700), and all of
it stays so, whatever the umask; a home that its owner opened to a group stays open to that group.

A temporary file is locked (flock) by its writer for as long as it lives, so that `remove_leftovers` can tell the
files of the dead from those of the living, on any host that shares the file system.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = [
    "Unsynced",
    "create_empty",
    "fsync_directory",
    "fsync_file",
    "make_directory",
    "no_room",
    "opened",
    "remove",
    "remove_leftovers",
    "rename",
    "temporary",
    "thrown_away",
    "write",
    "write_atomic",
    "write_volatile",
]

TEMPORARY = ".tmp"
"""The suffix of files that are being written; nobody but their writer and `remove_leftovers` may touch them."""

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_numbers = itertools.count()


class Unsynced(OSError):
    """A change of names that was made, but that the disk did not confirm: after a loss of power it may be undone."""


def _pass(step: str) -> None:
    """Nothing to do at a step, outside of tests."""


reached: Callable[[str], None] = _pass
"""Called as `reached("before rename")`, `reached("after rename")` and so on; the one point for fault injection."""


@contextmanager
def _step(name: str) -> Iterator[None]:
    reached(f"before {name}")
    yield
    reached(f"after {name}")


_lasting = True


@contextmanager
def thrown_away() -> Iterator[None]:
    """Meanwhile this process writes only what will be removed before it ends, which need not outlive a loss of power."""
    global _lasting
    before, _lasting = _lasting, False
    try:
        yield
    finally:
        _lasting = before


def no_room(error: OSError) -> bool:
    """Whether an error says that the disk (or the quota, or the largest file allowed) is full."""
    return error.errno in _NO_ROOM


def write(descriptor: int, data: bytes | memoryview) -> int:
    """Write all the bytes to an open file; they are durable after `fsync_file`."""
    view = memoryview(data).cast("B")
    with _step("write"):
        done = 0
        while done < len(view):
            done += os.write(descriptor, view[done:])
    return done


def fsync_file(descriptor: int) -> None:
    """Make the bytes of an open file durable."""
    with _step("fsync file"):
        if _lasting:
            os.fsync(descriptor)


def fsync_directory(directory: Path) -> None:
    """Make the names in a directory durable: files created in it, renamed into it, removed from it."""
    with _step("fsync directory"):
        if not _lasting:
            return
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise Unsynced(error.errno, error.strerror, str(directory)) from error
        finally:
            os.close(descriptor)


_synced: set[Path] = set()
"""Directories whose names this process knows to be durable."""


def make_directory(directory: Path, mode: int | None = None) -> None:
    """Create a directory and its parents, durably; one that exists is fine, and its name is made durable too, once in each
    process: whoever made it may have been stopped before that. Without a mode it gets its parent's."""
    there = directory.is_dir()
    if there and (directory in _synced or not _lasting):
        return
    parent = directory.parent
    if parent != directory:
        make_directory(parent, mode)
    if not there:
        with _step("make directory"):
            _make(directory, mode)
    if parent != directory:
        try:
            fsync_directory(parent)
        except OSError as error:
            unsynced = isinstance(error, Unsynced) and error.errno not in (errno.EROFS, errno.EINVAL)
            if (
                unsynced or not there
            ):  # else a parent that was there before us, and that we may not open, or is read-only
                raise
    if _lasting:
        _synced.add(directory)


def _make(directory: Path, mode: int | None) -> None:
    wanted = directory.parent.stat().st_mode & 0o777 if mode is None else mode
    directory.mkdir(wanted, exist_ok=True)
    if mode is None and wanted & 0o077:
        with suppress(PermissionError):  # somebody else made it at the same time
            directory.chmod(wanted | directory.stat().st_mode & 0o2000)


def opened(path: Path, flags: int) -> int:
    """Open a file, as `os.open` does; one that is created gets the permissions of its directory."""
    mode = os.stat(path.parent).st_mode & 0o666  # noqa: PTH116 (on the way of every append)
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    if mode & 0o077 and flags & os.O_CREAT:
        with suppress(PermissionError):  # a file of somebody else, who shares the home
            os.fchmod(descriptor, mode)
    return descriptor


def create_empty(path: Path) -> None:
    """Create an empty file, durably: its name is all it says."""
    with _step("create"):
        os.close(opened(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    fsync_directory(path.parent)


def rename(source: Path, target: Path) -> None:
    """Give a durable file its final name, durably."""
    with _step("rename"):
        os.rename(source, target)  # noqa: PTH104 (half the time of Path.rename, inside the writers' lock)
    fsync_directory(target.parent)


def remove(path: Path) -> None:
    """Remove a file; one that is gone is fine. Not durable by itself: a removal may come undone by a loss of power."""
    with _step("remove"):
        path.unlink(missing_ok=True)


@contextmanager
def temporary(directory: Path, label: str) -> Iterator[tuple[Path, int]]:
    """A new file to write to, as (path, descriptor); unless it was renamed meanwhile, it is removed at the end."""
    path, descriptor = _create_locked(directory, label)
    try:
        yield path, descriptor
    finally:
        try:
            if path.exists():
                remove(path)
        finally:
            os.close(descriptor)


def _create_locked(directory: Path, label: str) -> tuple[Path, int]:
    while True:
        path = directory / f"{label}.{os.getpid()}-{next(_numbers)}{TEMPORARY}"
        try:
            with _step("create"):
                descriptor = opened(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
        except FileExistsError:  # the same process id on another host, or of a process long dead
            continue
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return path, descriptor
        os.close(descriptor)  # taken for a leftover between its creation and its lock


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file's content as a whole, durably: readers see the old bytes or the new ones."""
    with temporary(path.parent, path.name) as (draft, descriptor):
        write(descriptor, data)
        fsync_file(descriptor)
        rename(draft, path)


def write_volatile(path: Path, data: bytes) -> None:
    """Replace a file's content as a whole: readers see the old bytes or the new ones. After a loss of power, maybe neither."""
    draft = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}{TEMPORARY}")
    descriptor = opened(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
    os.replace(draft, path)  # noqa: PTH105 (quicker than Path.replace)


def remove_leftovers(directory: Path) -> int:
    """Remove the temporary files of writers that are gone; returns how many there were."""
    removed = 0
    for path in sorted(directory.glob(f"*{TEMPORARY}")):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            remove(path)
            removed += 1
        finally:
            os.close(descriptor)
    return removed
