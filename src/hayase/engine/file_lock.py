"""A held file that others can ask about without holding it.

`flock` can only be tried, and whoever tries it has it for a moment: a run that starts in that moment would be told that the home
is in use. So the holder of a `flock` also takes a lock of the kind that can be asked for (F_OFD_SETLK, F_OFD_GETLK): it belongs
to the open file like a `flock`, ends with it, and is seen by other containers on the machine and, over NFS, by other
machines. (/proc/locks shows neither of these; the process id in the file may be one of another machine.) Where the system has no
such locks, asking falls back to trying.
"""

from __future__ import annotations

import fcntl
import struct
import sys
from contextlib import suppress

__all__ = ["is_held", "show_held"]

_FLOCK = struct.Struct("hhqqi")  # of Linux with 64 bits: type, whence, start, length, process
_ASKABLE = sys.platform == "linux" and struct.calcsize("P") == 8


def show_held(descriptor: int) -> None:
    """Let others see that this open file is held. The caller has it to itself, by `flock`."""
    if _ASKABLE:
        with suppress(OSError):  # a file system without such locks: then nobody can ask
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, 0, 0, 0, 0))


def is_held(descriptor: int) -> bool:
    """Whether somebody holds the file that is open here."""
    if _ASKABLE:
        asked = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, 0, 0, 0, 0))
        return bool(_FLOCK.unpack(asked[: _FLOCK.size])[0] != fcntl.F_UNLCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
