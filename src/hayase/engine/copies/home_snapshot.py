"""A home as it is at one instant: the files that a process which was killed then would have left, and that a start needs.

The lanes are kept from committing and the writers of all logs from writing while names are listed and files pinned, which takes
milliseconds: nearly all of them were pinned before. So a snapshot is a set of manifests with exactly the state, outputs, tables and
dead letters that belong to them, and the records of all streams up to that instant.

Left out: what only one run needs (`checkpoints/`, `exchange/`, `logs/`, drafts, locks, figures), older manifests, state and staged
files that the newest manifests do not name, and files of logs that others cover.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from hayase.core.data_classes import dataclass
from hayase.core.errors import DamagedState, HayaseError
from hayase.core.stages import MAIN, OPERATIONS
from hayase.engine.commit.manifests import Commits
from hayase.engine.copies.pins import PINS, Pin, pinning
from hayase.engine.home import Home
from hayase.streams.dead_letters import DEAD
from hayase.streams.durable import TEMPORARY
from hayase.streams.home_format import check_home
from hayase.streams.log_directory import LogDirectory, hold_logs

__all__ = ["INDEX", "HeldFile", "home_snapshot", "is_of_one_run"]

INDEX = "copy.json"
"""The file at the root of a copy that names all its files."""
_OF_ONE_RUN = ("checkpoints", "exchange", "logs", PINS)
_LISTED_APART = ("heads", "commits", "state", "staged", "streams", "tables")
_CODE = "definitions/code/"
"""Below it are a user's own files, of any names."""
_TRIES = 64
"""How often files may change while they are listed, before that is an error."""


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file of a snapshot: its name in the home, where it is read, its size, and a text that another file of the same name would
    not have."""

    name: str
    path: Path
    size: int
    mark: str
    modified: int


@contextlib.contextmanager
def home_snapshot(home: Home) -> Iterator[tuple[HeldFile, ...]]:
    """Yield the files of a home at one instant, in the order of their names; they stay until the end of the block."""
    if not check_home(home.path):
        raise HayaseError(f'there is no home in "{home.path}"', "name the directory of a pipeline")
    with pinning(home.path) as pin:
        with contextlib.suppress(FileNotFoundError, HayaseError):  # whatever goes meanwhile is left to the next round
            _pinned(home, pin)
        with home.still(), hold_logs(_logs(home)):
            held = _pinned(home, pin)
        yield held


def _logs(home: Home) -> list[Path]:
    """Return the directories of all logs, in the order in which they may be locked."""
    return sorted((home.path / "streams").glob("*/"), key=lambda path: (path.name == DEAD.name, path.name))


def _pinned(home: Home, pin: Pin) -> tuple[HeldFile, ...]:
    held = {}
    for name in _names(home):
        with contextlib.suppress(FileNotFoundError) if not _is_needed(name) else contextlib.nullcontext():
            held[name] = _held(name, *pin.hold(name))
    for table in sorted(home.tables.glob("*/")):
        if (table / "CURRENT").exists():
            held.update((file.name, file) for file in _table(home, table, pin))
    return tuple(held[name] for name in sorted(held))


def _held(name: str, path: Path, status: os.stat_result) -> HeldFile:
    return HeldFile(name, path, status.st_size, f"{status.st_mtime_ns}-{status.st_ino}", status.st_mtime_ns)


def _is_needed(name: str) -> bool:
    """Return whether a file that was listed cannot go while lanes and logs are held."""
    return name.startswith(("commits/", "state/", "streams/")) and "/staging/" not in name


def _names(home: Home) -> Iterator[str]:
    """Yield the names of all files but those of tables; heads first, because a head is never ahead of the files listed after it."""
    yield from _below(home.path, "heads")
    for lane in (MAIN, OPERATIONS):
        yield from _lane(home, lane)
    for directory in sorted((home.path / "streams").glob("*/")):
        yield from _log(home.path, directory.name)
    for entry in sorted(os.scandir(home.path), key=lambda entry: entry.name):
        if entry.is_file() and not is_of_one_run(entry.name) and entry.name != INDEX:
            yield entry.name
        elif entry.is_dir() and entry.name not in (*_OF_ONE_RUN, *_LISTED_APART):
            yield from _below(home.path, entry.name)


def _lane(home: Home, lane: str) -> Iterator[str]:
    """Yield the newest manifest of a lane and the files that it names. A staged file that is gone has been published."""
    commits = Commits(home, lane)
    manifest = commits.latest()
    if not manifest.version:
        return
    if manifest.version not in commits.versions():
        raise DamagedState(f"the newest manifest of lane {lane} is missing", "`hayase home verify` tells what to do")
    yield f"commits/{lane}/{commits.path_of(manifest.version).name}"
    yield from (f"state/{lane}/{file}" for file in sorted(manifest.files()))
    for file in (*(part.file for part in manifest.parts), *(run.file for run in manifest.runs)):
        if (home.staged(lane) / file).exists():
            yield f"staged/{lane}/{file}"


def _log(home: Path, stream: str) -> Iterator[str]:
    """Yield the files of a log that count; StreamError if some are missing: such a copy must not replace a whole one."""
    obsolete = {
        f"streams/{stream}/{name}" for name in LogDirectory(home / "streams" / stream, stream).listing().obsolete
    }
    yield from (name for name in _below(home, f"streams/{stream}") if name not in obsolete)


def _below(home: Path, directory: str) -> Iterator[str]:
    """Yield the names of files below a directory, those of a directory before those of its own directories."""
    for place, directories, files in os.walk(home / directory):
        directories.sort()
        relative = Path(place).relative_to(home).as_posix()
        yield from (name for file in sorted(files) if not is_of_one_run(name := f"{relative}/{file}"))


def is_of_one_run(name: str) -> bool:
    """Return whether a file of a home is not needed after the run that wrote it.

    >>> is_of_one_run("streams/orders/lock"), is_of_one_run("streams/orders/stream.json")
    (True, False)
    >>> is_of_one_run("definitions/code/1f/status.json"), is_of_one_run("definitions/code/1f.tmp/a.py")
    (False, True)
    """
    if name.startswith(_CODE):
        return f"{TEMPORARY}/" in name
    top, _, _ = name.partition("/")
    last = name.rpartition("/")[2]
    return (
        top in _OF_ONE_RUN
        or last.endswith((TEMPORARY, ".lock", ".told.json", ".seen.json"))
        or last in ("lock", "lock.commits", "status.json")
        or f"{TEMPORARY}/" in name
    )


def _table(home: Home, table: Path, pin: Pin) -> Iterator[HeldFile]:
    """Yield a checkpoint of a table's store: its files are never changed but for the MANIFEST, of which the present bytes are kept.
    If these are the same after the files were pinned, all files that they name are."""
    from hayase.tables.seals import read_seal, seal_bytes, seal_of, seal_path

    name = table.relative_to(home.path).as_posix()
    for _ in range(_TRIES):
        try:
            current = (table / "CURRENT").read_bytes()
            manifest = current[:-1].decode()
            data = (table / manifest).read_bytes()
            held = [
                _held(f"{name}/{file.name}", *pin.hold(f"{name}/{file.name}"))
                for file in sorted(table.iterdir())
                if file.suffix == ".sst" or file.name.startswith("OPTIONS-") or file.name in _STORE_FILES
            ]
            seal = read_seal(table)
            if (table / "CURRENT").read_bytes() == current and (table / manifest).read_bytes() == data:
                break
        except FileNotFoundError:
            continue
    else:
        raise HayaseError(f'the files of table "{table.name}" change too fast to be copied', "try again")
    own = {f"{name}/CURRENT": current, f"{name}/{manifest}": data}
    if seal is not None:
        place = seal_path(table).relative_to(home.path).as_posix()
        own[place] = seal_bytes(seal_of(manifest, data, seal.generation))
    yield from held
    yield from (_held(file, path := pin.keep(file, content), path.stat()) for file, content in own.items())


_STORE_FILES = ("IDENTITY", "rocksdict-config.json")
