"""The positions of outputs, as the home knows them: retention removes nothing that an output has not delivered.

The truth is in the target of an output. Here is a cursor that the target has surely passed, written after each write at most once
a second, in `<home>/outputs/<output>/position.json`. An output without that file has delivered nothing.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

import orjson

from hayase.core.errors import CursorGone, HayaseError
from hayase.engine.home import Home, writing
from hayase.engine.results.live_results import Cursor, Live
from hayase.engine.results.snapshots import snapshot_before
from hayase.streams import StreamLog
from hayase.streams.durable import make_directory, open_file, write_atomic
from hayase.streams.sealed import read_sealed, seal

__all__ = [
    "IDENTITY",
    "IDENTITY_REMEDY",
    "KIND",
    "NOTES",
    "NOTES_REMEDY",
    "REMEDY",
    "REQUEST",
    "REQUEST_REMEDY",
    "delivered_marker",
    "identity_of",
    "keep_position",
    "needed_by_outputs",
    "position_path",
    "undelivered",
]

KIND = "position of an output"
REMEDY = "remove it: it is written again, and retention keeps everything until then"
IDENTITY = "identity"
IDENTITY_REMEDY = (
    "put back a copy from a backup, or remove it and empty the targets of all outputs: they are written anew"
)
REQUEST = "request of an output"
REQUEST_REMEDY = "remove it: then everything that is retained is sent again, with other keys"
"""The file `request.json` of an output that is a webhook: the last request, and the position behind it."""
NOTES = "notes of an output"
NOTES_REMEDY = "remove it: the target is asked instead"
"""The file `notes.json` of an output whose target only stores the number of a write: where the last writes end."""
EVERY = 1.0
"""Seconds between two writes of a position."""
_kept_at: dict[Path, float] = {}


def identity_of(home: Home) -> str:
    """Return a text that is the same for a home wherever it is moved to, and another for every other home. Targets know an
    output by it; it is written when the first output begins."""
    path = home.path / "outputs" / "identity"
    with writing(f"the identity {path}"):
        make_directory(path.parent)
        lock = open_file(path.with_name("lock"), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # outputs begin at the same time, in processes of their own
            if not path.exists():
                write_atomic(path, seal(IDENTITY, uuid.uuid4().hex.encode()))
        finally:
            os.close(lock)
    return read_sealed(path, IDENTITY, IDENTITY_REMEDY).decode()


def position_path(home: Home, output: str) -> Path:
    """Return the path of the file."""
    return home.path / "outputs" / output / "position.json"


def keep_position(home: Home, output: str, cursor: str) -> None:
    """Note that an output has delivered everything before a cursor, unless something was noted less than a second ago."""
    path, moment = position_path(home, output), time.monotonic()
    if moment < _kept_at.get(path, float("-inf")) + EVERY:
        return
    with writing(f"the position of output {output}"):
        make_directory(path.parent)
        write_atomic(path, seal(KIND, orjson.dumps({"cursor": cursor})))
    _kept_at[path] = moment


def needed_by_outputs(home: Home, outputs: Iterable[str], log: StreamLog) -> int | None:
    """Return the first offset of a stream that one of these outputs, which read it, may still need; None without outputs."""
    needed = [_needed(home, output, log) for output in outputs]
    return min(needed, default=None)


def delivered_marker(home: Home, output: str) -> bytes | None:
    """Return the marker of the batch of a table up to which an output has surely delivered; None if it has delivered nothing."""
    from hayase.engine.results.table_cursor import TableCursor  # not loaded by pipelines without tables

    try:
        cursor = orjson.loads(read_sealed(position_path(home, output), KIND, REMEDY))["cursor"]
        return TableCursor.from_text(cursor).state.marker
    except (FileNotFoundError, HayaseError, ValueError, KeyError, TypeError):
        return None


def undelivered(home: Home, output: str, log: StreamLog) -> int:
    """Return about how many final changes of a stream an output has not delivered, without asking its target."""
    live, cursor = Live(log), _kept_cursor(home, output)
    try:
        changes = live.changes_from_oldest() if cursor is None else live.changes_from(cursor)
    except CursorGone:
        changes = live.changes_from_oldest()
    return changes.waiting()


def _kept_cursor(home: Home, output: str) -> Cursor | None:
    try:
        return Cursor.from_text(orjson.loads(read_sealed(position_path(home, output), KIND, REMEDY))["cursor"])
    except (FileNotFoundError, HayaseError, ValueError, KeyError, TypeError):
        return None


def _needed(home: Home, output: str, log: StreamLog) -> int:
    index, cursor = log.index(), _kept_cursor(home, output)
    if cursor is None or not Live(log).is_current(cursor):
        return index.start
    if not log.declaration.lifetimes:
        return max(cursor.at, index.start)
    snapshot, _ = snapshot_before(log, index, cursor.at - 1)
    return index.start if snapshot is None else snapshot.offset
