"""The format of a home: one number, in the file `format` at its root, written when the home is created.

| format | since | what changed |
|---|---|---|
| 1 | 0.1.0 before the number | no file `format`; small files without a checksum |
| 2 | 0.1.0 | `format`; checksums in all small files; heads; private files |

Every process that opens a home checks the number (`check_home`). A home of an older format is refused with the command
that upgrades it, one of a newer format with the advice to use a newer Hayase. docs/design/0016-formats.md says how to
change the format.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import orjson

from hayase.core.errors import DamagedState, FormatMismatch
from hayase.core.system_errors import explained_error
from hayase.streams import durable
from hayase.streams.sealed import read_sealed, seal

__all__ = ["FORMAT", "FORMAT_FILE", "PRIVATE", "begin_home", "check_home", "format_of", "write_format"]

FORMAT = 2
"""The format that this version of Hayase writes, and the only one that it runs on."""
FORMAT_FILE = "format"
PRIVATE = 0o700
"""The permissions of a home: only its owner has access."""

_TRACES = ("streams", "definitions", "commits", "tables", "state")
"""A home that is not empty has at least one of these directories."""
_checked: dict[Path, tuple[int, int]] = {}


def format_of(home: Path) -> int | None:
    """Return the format of a home; None if there is no home yet. A home without the file has format 1, or has lost the file."""
    for _ in range(2):  # the home may be created between the two checks
        try:
            data = orjson.loads(read_sealed(home / FORMAT_FILE, "format", _restore(home)))
            return int(data["format"])
        except FileNotFoundError:
            if not any((home / name).is_dir() for name in _TRACES):
                return None
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedState(f"the format {home / FORMAT_FILE} cannot be read: {error}", _restore(home)) from error
    return 1


def check_home(home: Path) -> bool:
    """Return whether there is a home; FormatMismatch if it has another format than this version of Hayase writes."""
    try:
        status = os.stat(home / FORMAT_FILE)  # noqa: PTH116 (part of every append)
    except FileNotFoundError:
        pass
    except NotADirectoryError as error:
        file = next((path for path in (home, *home.parents) if path.is_file()), home)
        raise explained_error(OSError(error.errno, error.strerror, str(file))) or error from error
    else:
        version = (status.st_mtime_ns, status.st_ino)
        if _checked.get(home) == version:
            return True
        _refuse_others(home, format_of(home))
        _checked[home] = version
        return True
    number = format_of(home)
    _refuse_others(home, number)
    return number is not None


def begin_home(home: Path) -> None:
    """Create a home if there is none: private to its owner, unless its directory was shared on purpose (setgid)."""
    if check_home(home):
        return
    durable.make_directory(home.parent, 0o777)
    exists = home.is_dir()
    durable.make_directory(home, PRIVATE)
    if exists and not home.stat().st_mode & 0o2000:
        with suppress(PermissionError):  # a directory of another user
            home.chmod(PRIVATE)
    write_format(home, FORMAT)


def write_format(home: Path, number: int) -> None:
    """Write the format number of a home, durably."""
    durable.write_atomic(home / FORMAT_FILE, seal("format", orjson.dumps({"format": number})))


def _refuse_others(home: Path, found: int | None) -> None:
    if found is None or found == FORMAT:
        return
    if found > FORMAT:
        raise FormatMismatch(
            f"the home {home} has format {found}, and this version of Hayase knows formats up to {FORMAT}",
            "use the version that wrote it, or a newer one",
        )
    description = "has no format number, as before homes had one" if found == 1 else f"has format {found}"
    raise FormatMismatch(
        f"the home {home} {description}, and this version of Hayase runs on format {FORMAT}",
        f"bring it up to date with `hayase home upgrade {home}`",
    )


def _restore(home: Path) -> str:
    return f"put back a copy from a backup, or remove it and run `hayase home upgrade {home}`"
