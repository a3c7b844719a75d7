"""Pins: links to files of a home, so that they stay while somebody reads them, whatever the pipeline removes meanwhile.

A pin is a directory `<home>/pins/NAME` with links under the files' own names. Its file `lock` is locked by its holder; a pin whose
holder has ended is removed by the next one, and by `hayase home clean`. Where links are not possible (files of another user, a
read-only home), files are read where they are, and may vanish.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from hayase.streams import durable

__all__ = ["PINS", "Pin", "abandoned_pins", "pinning", "remove_pin"]

PINS = "pins"
_LOCK = "lock"


class Pin:
    """Files of a home that are held, and others that were written for the reader alone."""

    def __init__(self, home: Path, room: Path, links: bool):
        self._home, self._room, self._links = home, room, links
        self._prefix = f"{home}/"
        self._held: dict[str, tuple[Path, os.stat_result]] = {}

    def hold(self, name: str) -> tuple[Path, os.stat_result]:
        """Return the path at which a file is read from now on, and its status; FileNotFoundError if it is not there any more. A
        file that is held already is only looked at."""
        status = os.stat(f"{self._prefix}{name}")  # noqa: PTH116 (all files of a home, while its writers wait)
        held = self._held.get(name)
        if held is None or held[1].st_ino != status.st_ino or held[1].st_mtime_ns != status.st_mtime_ns:
            path = self._linked(name)
            held = self._held[name] = (path, path.stat())
        return held

    def _linked(self, name: str) -> Path:
        source, target = self._home / name, self._room / name
        if not self._links:
            return source
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(source, target)
            except FileExistsError:
                if not source.samefile(target):  # replaced since it was linked
                    target.unlink()
                    os.link(source, target)
        except FileNotFoundError:
            raise
        except OSError:  # this file cannot be linked
            return source
        return target

    def keep(self, name: str, data: bytes) -> Path:
        """Return the path of a file with this content."""
        target = self._room / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.write_bytes(data)
        return target


@contextlib.contextmanager
def pinning(home: Path) -> Iterator[Pin]:
    """Yield a pin, and remove it at the end; also those that others have left."""
    for path in abandoned_pins(home):
        remove_pin(path)
    try:
        room = home / PINS / uuid.uuid4().hex
        room.parent.mkdir(exist_ok=True)
        room.mkdir(0o700)
        descriptor = durable.open_file(room / _LOCK, os.O_CREAT | os.O_RDWR)
    except OSError:  # a home that this process may only read
        with tempfile.TemporaryDirectory(prefix="hayase-") as elsewhere:
            yield Pin(home, Path(elsewhere), links=False)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield Pin(home, room, links=True)
    finally:
        remove_pin(room)
        os.close(descriptor)


def abandoned_pins(home: Path) -> list[Path]:
    """Return the pins whose holders have ended."""
    return [path for path in sorted((home / PINS).glob("*")) if _is_abandoned(path)]


def _is_abandoned(path: Path) -> bool:
    try:
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # about to be locked, or about to be gone; its links do no harm until the next time
        return not any(path.iterdir()) if path.is_dir() else False
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def remove_pin(path: Path) -> None:
    """Remove a pin; the files that it linked stay under their own names, if they have them still. Its lock goes last, so that one
    whose removal is interrupted is found again."""
    for entry in path.iterdir() if path.is_dir() else ():
        if entry.name != _LOCK:
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()  # the last one
