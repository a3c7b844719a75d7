"""How much space a home takes, by kind of file and by name. A file that has several links counts once."""

from __future__ import annotations

import os
from pathlib import Path

from hayase.core.data_classes import dataclass
from hayase.engine.home import Home

__all__ = ["Size", "sizes_of"]

_NAMED = ("streams", "tables", "state", "commits", "staged", "exchange", "checkpoints", "sources", "outputs")
"""The directories whose entries have names: of streams, tables, lanes, sources, outputs."""


@dataclass(frozen=True, slots=True)
class Size:
    """The files of one kind and name: `streams` of "orders"; kinds without names have an empty one."""

    kind: str
    name: str
    files: int
    bytes: int


def sizes_of(home: Home) -> list[Size]:
    """Return the sizes of everything in a home, largest first. A pipeline may run: files that go meanwhile are not counted."""
    counted: dict[tuple[str, str], tuple[int, int]] = {}
    seen: set[tuple[int, int]] = set()
    for place, directories, files in os.walk(home.path):
        directories.sort(
            key=lambda name: (name == "pins", name)
        )  # links to other files: they count where they are named
        for name in files:
            path = Path(place) / name
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            place_of = _kind(path.relative_to(home.path).parts)
            count, size = counted.get(place_of, (0, 0))
            counted[place_of] = (count + 1, size + status.st_size)
    sizes = [Size(kind, name, count, size) for (kind, name), (count, size) in counted.items()]
    return sorted(sizes, key=lambda size: (-size.bytes, size.kind, size.name))


def _kind(parts: tuple[str, ...]) -> tuple[str, str]:
    """Return the kind and the name of a file.

    >>> _kind(("streams", "orders", "stream.json")), _kind(("tables", "users.seal")), _kind(("definitions", "code", "1f", "a.py"))
    (('streams', 'orders'), ('tables', 'users'), ('code', '1f'))
    """
    if len(parts) == 1:
        return "home", ""
    if parts[0] == "definitions" and parts[1] == "code" and len(parts) > 3:
        return "code", parts[2]
    if parts[0] == "tables":
        return "tables", parts[1].removesuffix(".seal")
    if parts[0] in _NAMED and len(parts) > 2:
        return parts[0], parts[1]
    return parts[0], ""
