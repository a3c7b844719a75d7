"""Which files of a followed directory are ready, and how a file is named to the stream: pure, so that it can be tested.

Whoever writes there writes under another name (`.part`, `.tmp`, a leading dot) or elsewhere on the same disk, and
renames the file into place when it is complete. As a second guard a file must look the same twice in a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Following", "Look", "look", "producer_of"]

UNFINISHED = (".part", ".tmp", ".temp", ".partial", ".crdownload", ".swp", "~")
"""How names of files end that somebody is still writing."""

Look = Mapping[str, tuple[int, int]]
"""Files by name, with size and time of the last change (ns): what a directory looked like once."""


def look(directory: Path) -> Look:
    """The files that are there now, without those whose names say that they are not complete."""
    found = {}
    for path in directory.iterdir():
        if path.name.startswith(".") or path.name.lower().endswith(UNFINISHED):
            continue
        try:
            status = path.stat()
        except FileNotFoundError:  # renamed or removed just now
            continue
        if path.is_file():
            found[path.name] = (status.st_size, status.st_mtime_ns)
    return found


@dataclass(frozen=True, slots=True)
class Following:
    """What was seen last, and which files are done with."""

    last: Look = field(default_factory=dict)
    done: frozenset[str] = frozenset()

    def ready(self, now: Look) -> list[str]:
        """Files to take, in the order of their names: new ones that have not changed since the last look.

        >>> Following({"a": (1, 1), "b": (1, 1)}).ready({"b": (2, 2), "a": (1, 1), "c": (1, 1)})
        ['a']
        """
        return sorted(name for name, state in now.items() if name not in self.done and self.last.get(name) == state)

    def after(self, now: Look, taken: Iterable[str]) -> Following:
        """The state for the next look; files that are gone are forgotten, the stream itself remembers them."""
        return Following(now, frozenset(name for name in (*self.done, *taken) if name in now))


def producer_of(producer: str, file: str) -> str:
    """The name under which the stream remembers how much of a file it has."""
    return f"{producer}/{file}"
