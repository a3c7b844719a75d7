"""Lower bounds of the ends of streams, as lanes have seen them: `<home>/heads/LANE.ends`, apart from the streams themselves.

The head in a log's `lock` file shows that files at the end of the log are missing. When the whole directory of a stream
is replaced by an older copy, or the `lock` file is lost too, that head is older as well or unknown; these files still
record how many records the stream had. A lane replaces its file after each batch, when everything the file mentions is
durable, and does not sync it. A file that is missing or unreadable says nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from pathlib import Path

import orjson

from hayase.core.data_classes import dataclass
from hayase.core.errors import DamagedState
from hayase.streams.durable import make_directory, write_volatile
from hayase.streams.sealed import seal, unseal

__all__ = ["Ends", "ends_of", "forget_end", "is_output", "known_end", "write_ends"]

_KIND = "ends"
_SUFFIX = ".ends"


@dataclass(frozen=True, slots=True)
class Ends:
    """The end offsets of streams, and which of these streams the lane writes."""

    ends: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()


_read: dict[Path, tuple[tuple[int, int, int], Ends]] = {}
"""What was read last, with the version of the file: every listing of a log asks for it."""


def write_ends(home: Path, lane: str, ends: Ends) -> None:
    """Write the end offsets of streams that a lane reads or writes. If that fails, the previous file remains valid."""
    with contextlib.suppress(OSError):
        make_directory(home / "heads")
        write_volatile(_path(home, lane), seal(_KIND, orjson.dumps(asdict(ends))))


def ends_of(home: Path, lane: str) -> Ends:
    """Return the end offsets that a lane wrote last; empty if unknown."""
    path = _path(home, lane)
    try:
        status = path.stat()
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        cached = _read.get(path)
        if cached is None or cached[0] != version:
            body = unseal(path.read_bytes(), _KIND, path, "")
            data = orjson.loads(body)
            cached = _read[path] = (version, Ends(data["ends"], tuple(data["outputs"])))
    except (OSError, DamagedState, ValueError, TypeError, KeyError):
        return Ends()
    return cached[1]


def known_end(home: Path, stream: str, lanes: tuple[str, ...]) -> int:
    """Return the highest end offset that a lane wrote for a stream; 0 if unknown."""
    return max(ends_of(home, lane).ends.get(stream, 0) for lane in lanes)


def is_output(home: Path, stream: str, lanes: tuple[str, ...]) -> bool:
    """Return whether a lane writes a stream, as far as is known."""
    return any(stream in ends_of(home, lane).outputs for lane in lanes)


def forget_end(home: Path, stream: str, lanes: tuple[str, ...]) -> None:
    """Remove a stream whose lost records are given up from the files of all lanes."""
    for lane in lanes:
        known = ends_of(home, lane)
        if stream in known.ends:
            remaining = {name: end for name, end in known.ends.items() if name != stream}
            write_ends(home, lane, replace(known, ends=remaining))


def _path(home: Path, lane: str) -> Path:
    return home / "heads" / f"{lane}{_SUFFIX}"
