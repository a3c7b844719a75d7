"""Verification of a home: reads and checks every file that the engine trusts; each finding says what to do.

| where | what is checked |
|---|---|
| `format` | its checksum, and that this version runs on that format |
| `definitions/` | checksums, and that the newest one is there; shipped code against its name |
| `commits/` | checksums, and that the newest manifest of each lane is there |
| `state/`, `staged/` | the files that the newest manifests name: checksums of every piece |
| `streams/` | declarations, producers, heads; logs without gaps; every segment and snapshot |
| `tables/` | each store, by `hayase.tables` |
| `views/`, `gates/`, `dead/`, `sources/*/files/`, `copy.json` | checksums |

Not trusted, and so not checked: `checkpoints/`, `exchange/` and `pins/` (of one run), `gates/*.told.json` and `*.seen.json`
(figures), `heads/` (an unreadable head counts as none), locks, `logs/`. A pipeline may run meanwhile: files that it removes are
not reported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hayase.core.data_classes import dataclass
from hayase.core.declarations import TableDeclaration
from hayase.core.errors import EnvironmentUnfit, HayaseError
from hayase.core.stages import MAIN, OPERATIONS
from hayase.engine import file_ledger
from hayase.engine.batch.gate import FileGate
from hayase.engine.batch.offsets import check_positions
from hayase.engine.batch.state import DamagedStateFile, read_tuples, segments
from hayase.engine.commit.manifests import Commits, Manifest, check_table_read
from hayase.engine.copies import copy_index
from hayase.engine.copies.home_snapshot import INDEX
from hayase.engine.definition.definitions import latest, latest_version, load
from hayase.engine.home import Home
from hayase.engine.logs import Logs
from hayase.engine.results import output_positions, snapshots
from hayase.streams import StreamLog, repeats
from hayase.streams.home_format import check_home
from hayase.streams.log import check_letters, pending_letters
from hayase.streams.log_directory import LogDirectory
from hayase.streams.producers import folded_in
from hayase.streams.schema_evolution import stored_declaration
from hayase.streams.sealed import read_sealed
from hayase.streams.segments import open_segment
from hayase.streams.stream_ends import ends_of

__all__ = ["Finding", "verify"]

_COPY = "put back a copy from a backup"


@dataclass(frozen=True, slots=True)
class Finding:
    """A file that is damaged or missing: where, what is wrong, and what to do."""

    path: str
    problem: str
    remedy: str

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def verify(home: Home, progress: Callable[[Path], None] = lambda path: None) -> Iterator[Finding]:
    """Yield all findings, each once; `progress` is called with each directory before it is checked."""
    try:
        check_home(home.path)
    except HayaseError as error:
        yield _finding(home.path / "format", error)
        return
    problems: set[str] = set()  # what is wrong with one file may be noticed by several checks
    for where, check in _CHECKS:
        progress(home.path / where)
        for finding in check(home):
            if finding.problem not in problems:
                problems.add(finding.problem)
                yield finding


def _finding(path: Path, error: Exception) -> Finding:
    """Turn an error into a finding; if it has no remedy, that is a copy from a backup."""
    if isinstance(error, HayaseError):
        return Finding(str(path), error.problem, error.remedy or _COPY)
    return Finding(str(path), str(error), _COPY)


def _found(path: Path, work: Callable[..., object], *arguments: Any) -> Iterator[Finding]:
    """Call `work` and yield its error as a finding. A missing file was removed by the running pipeline, and is not a finding; an
    environment in which nothing can be checked is raised."""
    try:
        work(*arguments)
    except FileNotFoundError:
        return
    except EnvironmentUnfit:
        raise
    except (HayaseError, OSError, ValueError) as error:
        yield _finding(path, error)


def _names(directory: Path, pattern: str) -> list[Path]:
    return sorted(directory.glob(pattern))


# ---------------------------------------------------------------------------------------------------- checks
def _definitions(home: Home) -> Iterator[Finding]:
    newest = list(_found(home.definitions, latest, home))
    yield from newest
    for path in _names(home.definitions, "[0-9]*.json"):
        version = int(path.stem)
        if version == latest_version(home) and newest:
            continue
        for finding in _found(path, load, home, version):
            yield Finding(finding.path, finding.problem, f"{_COPY}; only `hayase ops rollback` needs it")


def _code(home: Home) -> Iterator[Finding]:
    from hayase.operations.shipped_code import check_shipped

    for path in _names(home.code(""), "*"):
        if path.is_dir() and not path.name.endswith(".tmp"):
            yield from _found(path, check_shipped, path)


def _manifests(home: Home) -> Iterator[Finding]:
    for lane in (MAIN, OPERATIONS):
        commits = Commits(home, lane)
        for finding in _found(commits.directory, commits.latest):
            yield finding
            break
        else:
            yield from _promises(home, commits)
        newest = max(commits.versions(), default=0)
        for version in commits.versions():
            if version != newest:
                path = commits.path_of(version)
                for finding in _found(path, commits.load, version):
                    yield Finding(finding.path, finding.problem, "delete it: only the newest one is needed")


def _promises(home: Home, commits: Commits) -> Iterator[Finding]:
    """Check what the newest manifest of a lane relies on: its state files, and logs at least as long as its stages have read."""
    manifest = commits.latest()
    if not manifest.version:
        yield from _unless_gone_on(commits, manifest, _found(commits.directory, commits.check_not_begun))
    else:
        yield from _unless_gone_on(commits, manifest, _found(commits.directory, commits.check_not_longer, manifest))
    yield from _unless_gone_on(commits, manifest, _state_files(home.state(commits.lane), manifest))
    version = manifest.offset.definition
    if version:
        try:
            definition = load(home, version).of_lane(commits.lane)
        except HayaseError:  # reported by `_definitions`
            return
        findings = _found(home.path / "streams", check_positions, manifest.offset, Logs(home, definition))
        yield from _unless_gone_on(commits, manifest, findings)


def _state_files(directory: Path, manifest: Manifest) -> Iterator[Finding]:
    """Check every segment of state that a manifest names; yield one finding for a file."""
    damaged: set[str] = set()
    for identity, buckets in manifest.states.items():
        for ref in (ref for refs in buckets.values() for ref in segments(refs)):
            if ref.file not in damaged:
                try:
                    read_tuples(directory, ref, identity.rpartition(".")[0])
                except DamagedStateFile as error:
                    damaged.add(ref.file)
                    yield _finding(error.path, error.of_all(manifest.states))


def _unless_gone_on(commits: Commits, manifest: Manifest, found: Iterator[Finding]) -> Iterator[Finding]:
    """Yield findings, unless the lane has committed a newer manifest and may have removed files of the older one."""
    for finding in found:
        if commits.latest().version == manifest.version:
            yield finding


def _streams(home: Home) -> Iterator[Finding]:
    read = {name for lane in (MAIN, OPERATIONS) for name, end in ends_of(home.path, lane).ends.items() if end}
    directories = {path for path in _names(home.path / "streams", "*") if path.is_dir()}
    for path in sorted(directories | {home.path / "streams" / name for name in read}):
        yield from _stream(home, path)


def _stream(home: Home, path: Path) -> Iterator[Finding]:
    name = path.name
    declaration_findings = list(_found(path / "stream.json", stored_declaration, path))
    yield from declaration_findings
    directory = LogDirectory(path, name)
    log_findings = list(_found(path, directory.listing))
    yield from log_findings
    if log_findings or declaration_findings:
        return
    listing = directory.listing()
    yield from _found(path / "producers.json", folded_in, path, name, listing)
    for entry in listing.index.entries:
        yield from _found(path / entry.name, open_segment, path / entry.name, name)
    for letters in pending_letters(path):
        yield from _found(letters, check_letters, letters, name)
    for marks in _names(path / repeats.DIRECTORY, "*.marks"):
        yield from _found(marks, repeats.check_marks, marks)
    stored = stored_declaration(path)
    if stored is not None and stored.declaration.lifetimes:
        log = StreamLog(home.path, stored.declaration)
        for snapshot in snapshots.snapshots(log, listing.index):
            file = path / snapshots.DIRECTORY / snapshot.name
            yield from _found(file, _read_snapshot, log, snapshot)
        yield from _found(path / snapshots.DIRECTORY, snapshots.check, log, listing.index)


def _read_snapshot(log: StreamLog, snapshot: snapshots.Snapshot) -> None:
    for _ in snapshots.rows_in(log, snapshot):
        pass


def _small_files(home: Home) -> Iterator[Finding]:
    for path in _names(home.path / "views", "*.json"):
        yield from _found(
            path, read_sealed, path, "place of a view", f"{_COPY}, or delete it: then the view gets all records again"
        )
    for path in _names(home.path, INDEX):
        yield from _found(
            path,
            read_sealed,
            path,
            copy_index.KIND,
            f"{copy_index.REMEDY}, or remove it: only copies over this one need it",
        )
    for path in _names(home.path / "outputs", "*/position.json"):
        yield from _found(path, read_sealed, path, output_positions.KIND, output_positions.REMEDY)
    for path in _names(home.path / "outputs", "identity"):
        yield from _found(path, read_sealed, path, output_positions.IDENTITY, output_positions.IDENTITY_REMEDY)
    for path in _names(home.path / "outputs", "*/request.json"):
        yield from _found(path, read_sealed, path, output_positions.REQUEST, output_positions.REQUEST_REMEDY)
    for path in _names(home.path / "outputs", "*/notes.json"):
        yield from _found(path, read_sealed, path, output_positions.NOTES, output_positions.NOTES_REMEDY)
    for path in _names(home.path / "sources", "*/files/[0-9]*.json"):
        yield from _found(path, file_ledger.read_block, path)
    for path in _names(home.path / "gates", "*.json"):
        if path.stem in (MAIN, OPERATIONS):
            yield from _found(path, FileGate(path).grants)
    for path in _names(home.path / "dead", "appending.json"):
        remedy = f"{_COPY}, or remove it: then records that were being appended may be so twice"
        yield from _found(path, read_sealed, path, "replay", remedy)


def _tables(home: Home) -> Iterator[Finding]:
    from hayase.tables.stores import verify as verify_store

    try:
        definition = latest(home)
    except HayaseError:  # `_definitions` reports one that cannot be read
        return
    outputs = [record.output for record in definition.records] if definition is not None else []
    for table in outputs:
        if isinstance(table, TableDeclaration):
            damages = list(_found(home.table(table.name), verify_store, home.table(table.name)))
            yield from damages
            if not damages:
                yield from _found(home.table(table.name), _read_table, home, table)


def _read_table(home: Home, declaration: TableDeclaration) -> None:
    from hayase.tables.table import open_reader

    with contextlib.closing(open_reader(home.table(declaration.name), declaration)) as table:
        check_table_read(home, table)


_CHECKS: tuple[tuple[str, Callable[[Home], Iterator[Finding]]], ...] = (
    ("definitions", _definitions),
    ("definitions/code", _code),
    ("commits", _manifests),
    ("streams", _streams),
    ("tables", _tables),
    ("views", _small_files),
)
