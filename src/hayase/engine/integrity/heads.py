"""Heads: which manifest of a lane, and which definition, was the newest, told beside them in `<home>/heads/`.

Somebody who finds an older one, or none, knows by this that a file is missing, and does not go on from the past. A head is written
when what it tells of is durable, and not waited for: after a crash it may be old, after a loss of power unreadable, which both
mean "not known". It is never ahead, so whoever looks reads the head first.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import orjson

from hayase.core.errors import DamagedState
from hayase.streams.durable import make_directory, write_volatile
from hayase.streams.sealed import read_sealed, seal

if TYPE_CHECKING:
    from hayase.engine.home import Home

__all__ = ["BEGIN_ANEW", "DEFINITIONS", "Head", "head_of", "tell_head"]

DEFINITIONS = "definitions"
"""The head of the definitions; that of a lane is called like the lane."""
BEGIN_ANEW = "`hayase reset --all --from earliest`"
"""What brings a pipeline back to life whose newest manifest or definition is lost."""


@dataclass(frozen=True, slots=True)
class Head:
    """A version, and of a lane also the definition that it follows; zeros if nothing is known."""

    version: int = 0
    definition: int = 0


def head_of(home: Home, name: str) -> Head:
    """What was told last."""
    try:
        return Head(**orjson.loads(read_sealed(home.path / "heads" / name, "head", "")))
    except (FileNotFoundError, DamagedState, ValueError, TypeError):
        return Head()


def tell_head(home: Home, name: str, head: Head) -> None:
    """Tell which one is the newest now. A disk that refuses it stops nobody: the older head still holds."""
    with contextlib.suppress(OSError):
        make_directory(home.path / "heads")
        write_volatile(home.path / "heads" / name, seal("head", orjson.dumps(asdict(head))))
