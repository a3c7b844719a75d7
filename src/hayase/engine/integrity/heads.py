"""Heads: files in `<home>/heads/` with the newest version of each lane's manifests and of the definitions.

A reader that finds only older files, or none, learns from the head that a file is missing, and does not resume from an older
state. A head is written once the file it names is durable, and is not synced: after a crash it may be old, after a power failure
unreadable; both mean "not known". It is never ahead of the files, provided that it is read before they are listed.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import TYPE_CHECKING

import orjson

from hayase.core.data_classes import dataclass
from hayase.core.errors import DamagedState
from hayase.streams.durable import make_directory, write_volatile
from hayase.streams.sealed import read_sealed, seal

if TYPE_CHECKING:
    from hayase.engine.home import Home

__all__ = ["BEGIN_ANEW", "DEFINITIONS", "Head", "head_of", "write_head"]

DEFINITIONS = "definitions"
"""The name of the head of the definitions; the head of a lane has the name of the lane."""
BEGIN_ANEW = "`hayase reset --all --from earliest`"
"""The command that lets a pipeline run again whose newest manifest or definition is lost."""


@dataclass(frozen=True, slots=True)
class Head:
    """The newest version and, for a lane, the definition of that manifest; zeros if not known."""

    version: int = 0
    definition: int = 0


def head_of(home: Home, name: str) -> Head:
    """Return the head that was written last; an empty one if it is missing or unreadable."""
    try:
        return Head(**orjson.loads(read_sealed(home.path / "heads" / name, "head", "")))
    except (FileNotFoundError, DamagedState, ValueError, TypeError):
        return Head()


def write_head(home: Home, name: str, head: Head) -> None:
    """Write a head. A failure of the disk is ignored: the older head remains valid."""
    with contextlib.suppress(OSError):
        make_directory(home.path / "heads")
        write_volatile(home.path / "heads" / name, seal("head", orjson.dumps(asdict(head))))
