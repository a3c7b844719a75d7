"""Durable steps on a file system: what has returned survives a power failure, what was interrupted leaves no partial result.

Every change that Hayase makes to files it must not lose goes through this module, and calls `reached` just before and
just after it happens. Tests replace `reached` to stop a program at every such point.

Within `without_syncs` nothing waits for the disk: for files that are not needed after the program ends.

Files and directories get the permissions of the directory in which they are created: a home is private (0700), and so
is everything in it, whatever the umask; a home that its owner opened to a group stays open to that group.

A temporary file is locked (flock) by its writer for as long as it lives, so that `remove_leftovers` can tell abandoned
files from those in use, on any host that shares the file system.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import itertools
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

__all__ = [
    "Unsynced",
    "create_empty",
    "exchange",
    "fsync_directory",
    "fsync_file",
    "leftovers",
    "make_directory",
    "no_room",
    "open_file",
    "remove",
    "remove_leftovers",
    "remove_tree",
    "rename",
    "temporary",
    "without_syncs",
    "write",
    "write_atomic",
    "write_volatile",
]

TEMPORARY = ".tmp"
"""The suffix of files that are being written; only their writer and `remove_leftovers` may touch them."""

_HERE, _RENAME_EXCHANGE = -100, 2
"""AT_FDCWD and RENAME_EXCHANGE of Linux."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_numbers = itertools.count()


class Unsynced(OSError):
    """A rename, creation or removal that was made but that the disk did not confirm: a power failure may undo it."""


def _pass(step: str) -> None:
    """Do nothing: the value of `reached` outside tests."""


reached: Callable[[str], None] = _pass
"""Called as `reached("before rename")`, `reached("after rename")` and so on; the single point for fault injection."""


@contextmanager
def _step(name: str) -> Iterator[None]:
    reached(f"before {name}")
    yield
    reached(f"after {name}")


_lasting = True


@contextmanager
def without_syncs() -> Iterator[None]:
    """Skip all syncs inside: this process writes only what it removes before it ends."""
    global _lasting
    before, _lasting = _lasting, False
    try:
        yield
    finally:
        _lasting = before


def no_room(error: OSError) -> bool:
    """Return whether an error says that the disk, the quota or the largest allowed file is full."""
    return error.errno in _NO_ROOM


def write(descriptor: int, data: bytes | memoryview) -> int:
    """Write all bytes to an open file; they are durable after `fsync_file`."""
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


def _confirm(directory: Path) -> None:
    """Make a change to the names in a directory durable; Unsynced also if the directory cannot be opened for that."""
    try:
        fsync_directory(directory)
    except OSError as error:
        raise Unsynced(error.errno, error.strerror, str(directory)) from error


_synced: set[Path] = set()
"""Directories whose names this process knows to be durable."""


def make_directory(directory: Path, mode: int | None = None) -> None:
    """Create a directory and its parents durably. The name of an existing directory is made durable too, once per
    process, since its creator may have been interrupted. Without a mode it gets its parent's."""
    exists = directory.is_dir()
    if exists and (directory in _synced or not _lasting):
        return
    parent = directory.parent
    if parent != directory:
        make_directory(parent, mode)
    if not exists:
        with _step("make directory"):
            _make(directory, mode)
    if parent != directory:
        try:
            fsync_directory(parent)
        except OSError as error:
            unsynced = isinstance(error, Unsynced) and error.errno not in (errno.EROFS, errno.EINVAL)
            if unsynced or not exists:  # ignore an existing parent that is read-only or that we may not open
                raise
    if _lasting:
        _synced.add(directory)


def _make(directory: Path, mode: int | None) -> None:
    wanted = directory.parent.stat().st_mode & 0o777 if mode is None else mode
    directory.mkdir(wanted, exist_ok=True)
    if mode is None and wanted & 0o077:
        with suppress(PermissionError):  # another user created it at the same time
            directory.chmod(wanted | directory.stat().st_mode & 0o2000)


def open_file(path: Path, flags: int) -> int:
    """Open a file like `os.open`; a created file gets the permissions of its directory."""
    mode = os.stat(path.parent).st_mode & 0o666  # noqa: PTH116 (part of every append)
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    if mode & 0o077 and flags & os.O_CREAT:
        with suppress(PermissionError):  # a file of another user who shares the home
            os.fchmod(descriptor, mode)
    return descriptor


def create_empty(path: Path) -> None:
    """Create an empty file durably: its name is its content."""
    with _step("create"):
        os.close(open_file(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    _confirm(path.parent)


def rename(source: Path, target: Path, *, confirm: bool = True) -> None:
    """Rename a durable file to its final name, durably; without `confirm` the caller syncs the directory."""
    with _step("rename"):
        os.rename(source, target)  # noqa: PTH104 (half the time of Path.rename, inside the writers' lock)
    if confirm:
        _confirm(target.parent)


def exchange(one: Path, other: Path) -> bool:
    """Let two directories with the same parent change names, durably, in one step; return False, and change nothing, where the
    file system cannot do that."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    with _step("exchange"):
        if call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _RENAME_EXCHANGE):
            number = ctypes.get_errno()
            if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
                return False
            raise OSError(number, os.strerror(number), str(one), None, str(other))
    _confirm(other.parent)
    return True


def remove_tree(directory: Path) -> None:
    """Remove a directory with all that is in it, if it exists. Not durable by itself, like `remove`."""
    with _step("remove tree"):
        shutil.rmtree(directory, ignore_errors=True)


def remove(path: Path) -> None:
    """Remove a file if it exists. Not durable by itself: a power failure may undo a removal."""
    with _step("remove"):
        path.unlink(missing_ok=True)


@contextmanager
def temporary(directory: Path, label: str) -> Iterator[tuple[Path, int]]:
    """Create a file to write to, as (path, descriptor); it is removed at the end unless it was renamed."""
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
                descriptor = open_file(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
        except FileExistsError:  # same process id on another host, or of an earlier process
            continue
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return path, descriptor
        os.close(descriptor)  # removed as a leftover between its creation and its lock


def write_atomic(path: Path, data: bytes) -> None:
    """Replace the content of a file durably and atomically: readers see the old bytes or the new ones."""
    with temporary(path.parent, path.name) as (draft, descriptor):
        write(descriptor, data)
        fsync_file(descriptor)
        rename(draft, path)


def write_volatile(path: Path, data: bytes) -> None:
    """Replace the content of a file atomically but not durably: after a power failure it may have neither the old bytes
    nor the new ones."""
    draft = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}{TEMPORARY}")
    while True:
        descriptor = open_file(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                os.write(descriptor, data)
                os.replace(draft, path)  # noqa: PTH105 (quicker than Path.replace)
                return
        finally:
            os.close(descriptor)  # if there was no link: removed as a leftover between its creation and its lock


def leftovers(directory: Path) -> list[Path]:
    """Return the temporary files of writers that have ended."""
    return [
        path for path in sorted(directory.glob(f"*{TEMPORARY}")) if path.is_file() and _if_abandoned(path, lambda: None)
    ]


def remove_leftovers(directory: Path) -> int:
    """Remove the temporary files of writers that have ended; return how many there were."""
    return sum(_if_abandoned(path, partial(remove, path)) for path in sorted(directory.glob(f"*{TEMPORARY}")))


def _if_abandoned(path: Path, act: Callable[[], None]) -> bool:
    """Call `act` while holding the lock of a temporary file, unless its writer holds it; return whether it was called."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        act()
        return True
    finally:
        os.close(descriptor)
