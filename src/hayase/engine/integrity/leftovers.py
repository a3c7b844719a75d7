"""Leftovers of a home: files that nothing names and that no start needs, left by runs that were killed and by changed definitions.

| kind | what |
|---|---|
| drafts | files that were being written by processes that have ended |
| pins | links that copies held which have ended |
| state, staged | files that the newest manifests do not name |
| exchange, checkpoints | of a run that has ended |
| segments | files of logs that a longer one covers |
| tables | stores that were being discarded |
| definitions | versions that are not the newest, that no newest manifest follows, and that are not in the history of an operation |
| code | shipped code that none of the other definitions names |

Streams and tables that no stage writes any more are not leftovers: they hold data.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from hayase.core.data_classes import dataclass
from hayase.core.stages import MAIN, OPERATIONS
from hayase.engine.commit.manifests import Commits
from hayase.engine.copies.pins import PINS, abandoned_pins, remove_pin
from hayase.engine.definition.definitions import latest, load, path_of, versions
from hayase.engine.definition.operation_changes import history_versions
from hayase.engine.definition.proposals import only_writer
from hayase.engine.home import Home, writing
from hayase.streams import durable
from hayase.streams.log_directory import LogDirectory

__all__ = ["Leftover", "clean", "leftovers_of"]


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file or directory that can go, and its size."""

    kind: str
    path: Path
    bytes: int


def clean(home: Home) -> list[Leftover]:
    """Remove all leftovers and return them; HomeInUse while a pipeline runs. Others may append and read meanwhile. If it is
    interrupted, what remains is found again."""
    with home.lock(), only_writer(home), writing(f"the home {home.path}"):
        found = leftovers_of(home)
        for directory in sorted({leftover.path.parent for leftover in found if leftover.kind == "segments"}):
            durable.fsync_directory(directory)  # the files that replace them must be durable first
        for leftover in found:
            if leftover.kind == "pins":
                remove_pin(leftover.path)
            elif leftover.path.is_dir():
                shutil.rmtree(leftover.path, ignore_errors=True)
            else:
                durable.remove(leftover.path)
    return found


def leftovers_of(home: Home) -> list[Leftover]:
    """Return what can go, in the order in which it does: definitions before the code that they name. While a pipeline runs, some of
    it is in use."""
    found = [
        *_drafts(home),
        *(("pins", path) for path in abandoned_pins(home.path)),
        *_of_lanes(home),
        *_segments(home),
    ]
    found += [("tables", path) for path in sorted(home.tables.glob("*.discarded"))]
    found += _definitions(home)
    return [Leftover(kind, path, _bytes(path)) for kind, path in found]


def _drafts(home: Home) -> Iterator[tuple[str, Path]]:
    for place, directories, _ in os.walk(home.path):
        if Path(place) == home.path:
            directories[:] = [name for name in directories if name not in (PINS, "exchange", "checkpoints")]
        for path in durable.leftovers(Path(place)):
            yield "drafts", path


def _of_lanes(home: Home) -> Iterator[tuple[str, Path]]:
    for lane in (MAIN, OPERATIONS):
        manifest = Commits(home, lane).latest()
        staged = {part.file for part in manifest.parts} | {run.file for run in manifest.runs}
        for kind, directory, named in (
            ("state", home.state(lane), manifest.files()),
            ("staged", home.staged(lane), staged),
        ):
            for path in sorted(directory.glob("*")):
                if path.name not in named and not path.name.endswith(durable.TEMPORARY):
                    yield kind, path
        for kind, directory in (("exchange", home.exchange(lane)), ("checkpoints", home.checkpoints(lane))):
            yield from ((kind, path) for path in sorted(directory.glob("*")))


def _segments(home: Home) -> Iterator[tuple[str, Path]]:
    for directory in sorted((home.path / "streams").glob("*/")):
        yield from (
            ("segments", directory / name) for name in LogDirectory(directory, directory.name).listing().obsolete
        )


def _definitions(home: Home) -> Iterator[tuple[str, Path]]:
    newest = latest(home)
    if newest is None:
        return
    followed = {Commits(home, lane).latest().offset.definition for lane in (MAIN, OPERATIONS)}
    needed = {newest.version} | followed | history_versions(home)
    unneeded = [version for version in versions(home) if version not in needed]
    yield from (("definitions", path_of(home, version)) for version in unneeded)
    code = set()
    for version in needed.intersection(versions(home)):
        declaration = load(home, version).declaration
        code |= {operation.code for operation in declaration.operations}
        code |= {function.code for function in declaration.functions}
    for path in sorted(home.code("").glob("*")):
        if path.name not in code:
            yield "code", path


def _bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else (path,)
    total = 0
    for file in files:
        try:
            total += file.lstat().st_size if file.is_file() else 0
        except FileNotFoundError:
            continue
    return total
