"""File locks whose state can be queried without taking the lock.

A `flock` can only be tested by taking it, and a run that starts in that moment would fail because the home is in use. So the
holder of a `flock` also takes an open file description lock (F_OFD_SETLK), which can be queried (F_OFD_GETLK). It belongs to the
open file like a `flock`, ends with it, and is visible to other containers on the machine and, over NFS, to other machines.
(/proc/locks shows neither of these; the process id in the file may be of another machine.) Where the system has no such locks,
a query takes the `flock` for a moment.
"""

from __future__ import annotations

import fcntl
import struct
import sys
from contextlib import suppress

__all__ = ["is_held", "show_held"]

_FLOCK = struct.Struct("hhqqi")  # `struct flock` of 64-bit Linux: type, whence, start, length, process
CAN_ASK = sys.platform == "linux" and struct.calcsize("P") == 8


def show_held(descriptor: int) -> None:
    """Make visible to `is_held` that this open file is locked. The caller holds its `flock`."""
    if CAN_ASK:
        with suppress(OSError):  # a file system without such locks: then the lock cannot be queried
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, 0, 0, 0, 0))


def is_held(descriptor: int) -> bool:
    """Whether another open file holds the lock of the file behind this descriptor."""
    if CAN_ASK:
        holder = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, 0, 0, 0, 0))
        return bool(_FLOCK.unpack(holder[: _FLOCK.size])[0] != fcntl.F_UNLCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
