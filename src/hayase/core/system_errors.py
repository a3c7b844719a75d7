"""Translates errors of the operating system: one line says what is wrong and where, the next what to do about it."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from hayase.core.errors import EnvironmentUnfit

__all__ = ["explained_error", "explained_errors", "remedy_of"]

_FULL = ("the disk is full", "free some space there, then try again: nothing is lost")
_DENIED = ("this user may not do that", "use the account that owns the home, or change its owner; nothing is lost")
_FILES = ("too many files are open", "allow more, for instance by `ulimit -n 65536`, then try again: nothing is lost")
_NO_FOLDER = ("a file is in the place of a folder", "name another home by --home DIR, or move that file away")

_KNOWN = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: ("the file system is read-only", "make it writable, or use a home elsewhere; nothing is lost"),
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.ENOTDIR: _NO_FOLDER,
    errno.EEXIST: _NO_FOLDER,
    errno.ENOMEM: (
        "there is not enough memory",
        "end other processes or give this one more, then try again: nothing is lost",
    ),
    errno.EIO: ("the disk fails", "look at the system's log for its state, and copy the home elsewhere"),
}


def explained_error(error: OSError) -> EnvironmentUnfit | None:
    """Translate an error of the operating system; return None if it is not about the state of the machine.

    >>> print(explained_error(OSError(errno.EROFS, "Read-only file system", "/data/shop/lock")))
    the file system is read-only: /data/shop/lock
    make it writable, or use a home elsewhere; nothing is lost
    """
    if error.errno not in _KNOWN:
        return None
    cause, remedy = _KNOWN[error.errno]
    place = f": {error.filename}" if error.filename is not None else f" ({error.strerror})"
    return EnvironmentUnfit(f"{cause}{place}\n{remedy}")


def remedy_of(error: OSError) -> str:
    """Return what to do about an error of the operating system."""
    return _KNOWN[error.errno][1] if error.errno in _KNOWN else "check the disk, then try again: nothing is lost"


@contextlib.contextmanager
def explained_errors() -> Iterator[None]:
    """Raise translated errors instead of those of the operating system."""
    try:
        yield
    except OSError as error:
        translated = explained_error(error)
        if translated is None:
            raise
        raise translated from error
