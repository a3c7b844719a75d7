"""Which sources have a backlog. The process of a source says so, and the lane that reads its stream then plans larger batches.

    <home>/sources/<stream>/backlog       an empty file, touched by the source at least once a second while it has a backlog

It is a hint: nothing but the size of batches follows from it. One that is not touched any more, of a process that was killed,
counts for nothing.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hayase.engine.home import Home
from hayase.streams import durable

__all__ = ["clear_backlog", "has_backlog", "note_backlog"]

FRESH = 3.0
"""Seconds for which the file counts."""


def note_backlog(home: Home, stream: str) -> None:
    """Say that the source of a stream has a backlog."""
    path = _path(home, stream)
    with suppress(OSError):  # without room on the disk batches stay as they are
        durable.make_directory(path.parent)
        durable.write_volatile(path, b"")


def clear_backlog(home: Home, stream: str) -> None:
    """Say that the source of a stream has no backlog."""
    with suppress(OSError):
        _path(home, stream).unlink(missing_ok=True)


def has_backlog(home: Home, stream: str, now: int) -> bool:
    """Return whether the source of a stream has said so lately; `now` is the wall clock in microseconds."""
    try:
        touched = _path(home, stream).stat().st_mtime
    except FileNotFoundError:
        return False
    return abs(now / 1e6 - touched) < FRESH


def _path(home: Home, stream: str) -> Path:
    return home.path / "sources" / stream / "backlog"
