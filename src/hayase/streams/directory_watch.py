"""Waiting for new files in directories: by inotify on Linux, elsewhere by letting the time pass.

The kernel reports changes that programs on this machine make, not those that reach a network file system from elsewhere. So a wait
always has an end, after which the caller looks for itself.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["DirectoryWatch"]

_CREATE, _MOVED_TO = 0x100, 0x80


class DirectoryWatch:
    """Watches directories for files that are created in them or renamed into them; one instance per process."""

    def __init__(self) -> None:
        self._directories: set[Path] = set()
        self._libc, self._descriptor = None, -1
        if sys.platform == "linux":
            with suppress(OSError, AttributeError):
                self._libc = ctypes.CDLL(None, use_errno=True)
                self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)

    def watch(self, directories: Iterable[Path]) -> None:
        """Watch these directories too. One that does not exist yet is tried again by the next call."""
        if self._libc is None or self._descriptor < 0:
            return
        for directory in set(directories) - self._directories:
            if self._libc.inotify_add_watch(self._descriptor, os.fsencode(directory), _CREATE | _MOVED_TO) >= 0:
                self._directories.add(directory)

    def forget(self) -> None:
        """Forget the files that have come so far: the caller is about to look for itself."""
        if self._descriptor >= 0:
            with suppress(BlockingIOError):
                while os.read(self._descriptor, 65_536):
                    pass

    def wait(self, seconds: float) -> bool:
        """Wait until a file has come since the last `forget`, at most so long; return whether one has."""
        if self._descriptor < 0:
            time.sleep(seconds)
            return False
        return bool(select.select([self._descriptor], [], [], seconds)[0])
