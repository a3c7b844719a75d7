"""The format of a home: one number, in the file `format` at its root, written when the home is made.

| format | since | what changed |
|---|---|---|
| 1 | 0.1.0 before the number | no file `format`; small files without a checksum |
| 2 | 0.1.0 | `format`; checksums in all small files; heads; private files |

Whoever opens a home checks the number (`check_home`). A home of an older format is refused with the command that upgrades it, one
of a newer format with the advice to use a newer Hayase. How a change of a format is made: docs/design/0016-formats.md.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import orjson

from hayase.core.errors import DamagedState, FormatMismatch
from hayase.core.system_errors import explained
from hayase.streams import durable
from hayase.streams.sealed import read_sealed, seal

__all__ = ["FORMAT", "FORMAT_FILE", "PRIVATE", "begin_home", "check_home", "format_of", "write_format"]

FORMAT = 2
"""The format that this version of Hayase writes, and the only one that it runs on."""
FORMAT_FILE = "format"
PRIVATE = 0o700
"""The permissions of a home: nobody but its owner gets in."""

_TRACES = ("streams", "definitions", "commits", "tables", "state")
"""Directories of which a home has at least one as soon as something is in it."""
_checked: dict[Path, tuple[int, int]] = {}


def format_of(home: Path) -> int | None:
    """The format of a home; None where there is none yet. A home without the file is one of format 1, or has lost it."""
    for _ in range(2):  # it may be made between the two looks
        try:
            data = orjson.loads(read_sealed(home / FORMAT_FILE, "format", _restore(home)))
            return int(data["format"])
        except FileNotFoundError:
            if not any((home / each).is_dir() for each in _TRACES):
                return None
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedState(f"the format {home / FORMAT_FILE} cannot be read: {error}; {_restore(home)}") from error
    return 1


def check_home(home: Path) -> bool:
    """Whether there is a home of the format that this version writes; FormatMismatch if it is of another one."""
    try:
        status = os.stat(home / FORMAT_FILE)  # noqa: PTH116 (on the way of every append)
    except FileNotFoundError:
        pass
    except NotADirectoryError as error:
        raise explained(error) or error from error
    else:
        which = (status.st_mtime_ns, status.st_ino)
        if _checked.get(home) == which:
            return True
        _refuse_others(home, format_of(home))
        _checked[home] = which
        return True
    found = format_of(home)
    _refuse_others(home, found)
    return found is not None


def begin_home(home: Path) -> None:
    """Make a home, if there is none: private to its owner, unless its directory was shared on purpose (setgid)."""
    if check_home(home):
        return
    durable.make_directory(home.parent, 0o777)
    there = home.is_dir()
    durable.make_directory(home, PRIVATE)
    if there and not home.stat().st_mode & 0o2000:
        with suppress(PermissionError):  # a directory that somebody else has prepared
            home.chmod(PRIVATE)
    write_format(home, FORMAT)


def write_format(home: Path, number: int) -> None:
    """Say which format a home has, durably."""
    durable.write_atomic(home / FORMAT_FILE, seal("format", orjson.dumps({"format": number})))


def _refuse_others(home: Path, found: int | None) -> None:
    if found is None or found == FORMAT:
        return
    if found > FORMAT:
        raise FormatMismatch(
            f"the home {home} has format {found}, and this version of Hayase knows formats up to {FORMAT}; use the version "
            "that wrote it, or a newer one"
        )
    told = "has no format number, as before homes had one" if found == 1 else f"has format {found}"
    raise FormatMismatch(
        f"the home {home} {told}, and this version of Hayase runs on format {FORMAT}; bring it up to date with "
        f"`hayase home upgrade {home}`"
    )


def _restore(home: Path) -> str:
    return f"put back a copy from a backup, or remove it and run `hayase home upgrade {home}`"
