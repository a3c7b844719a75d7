"""Decides which files of a followed directory are ready to be appended, and their producer names. Pure functions of its states.

Writers use another name (`.part`, `.tmp`, a leading dot) or another directory of the same disk, and rename a file into place
when it is complete. As a second guard, a file must have the same size and time in two consecutive states.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path

from hayase.core.data_classes import dataclass

__all__ = ["Following", "Listing", "is_being_written", "list_files", "producer_of"]

UNFINISHED = (".part", ".tmp", ".temp", ".partial", ".crdownload", ".swp", "~")
"""Suffixes of files that are still being written."""

Listing = Mapping[str, tuple[int, int]]
"""The state of a directory: its files by name, with size and time of the last change (ns)."""


def is_being_written(name: str) -> bool:
    """Return whether the name of a file says that it is not complete.

    >>> is_being_written(".orders.csv"), is_being_written("orders.csv.part"), is_being_written("orders.csv")
    (True, True, False)
    """
    return name.startswith(".") or name.lower().endswith(UNFINISHED)


def list_files(directory: Path) -> Listing:
    """Return the files in a directory now, without those whose suffix says that they are not complete."""
    files = {}
    for path in directory.iterdir():
        if is_being_written(path.name):
            continue
        try:
            status = path.stat()
        except FileNotFoundError:  # renamed or removed just now
            continue
        if path.is_file():
            files[path.name] = (status.st_size, status.st_mtime_ns)
    return files


@dataclass(frozen=True, slots=True)
class Following:
    """The last state of the directory, and the files that are already appended."""

    last: Listing = field(default_factory=dict)
    done: frozenset[str] = frozenset()

    def ready(self, now: Listing) -> list[str]:
        """Return the files to append, in the order of their names: new ones that have not changed since the last state.

        >>> Following({"a": (1, 1), "b": (1, 1)}).ready({"b": (2, 2), "a": (1, 1), "c": (1, 1)})
        ['a']
        """
        return sorted(name for name, state in now.items() if name not in self.done and self.last.get(name) == state)

    def after(self, now: Listing, taken: Iterable[str]) -> Following:
        """Return the next state; removed files are forgotten here, but the stream remembers them."""
        return Following(now, frozenset(name for name in (*self.done, *taken) if name in now))


def producer_of(producer: str, file: str) -> str:
    """Return the producer name under which the stream remembers how much of a file it has."""
    return f"{producer}/{file}"
