"""One set of manifests of a home, a version for each lane, with the tables at exactly these versions.

A manifest is written before its outputs are published, so the newest one may not be complete in the logs and tables yet. Then the
one before is taken: a lane commits only when everything of the commit before is published. Logs keep what older manifests name;
a table is opened read-only, which fixes its state, and is compared with the manifest by the marker of its newest batch. If a
pipeline was killed when some of its tables had taken a batch in and others had not, the others are read together with their staged
runs.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration, TableDeclaration
from hayase.core.errors import HayaseError
from hayase.core.times import BEGINNING, END
from hayase.engine.batch.report import version_in
from hayase.engine.commit.manifests import Commits, Manifest
from hayase.engine.definition.definitions import Definition, StageRecord, definition_of, newest_version
from hayase.engine.home import Home
from hayase.engine.logs import Logs
from hayase.engine.results.committed_results import is_published
from hayase.streams.home_format import check_home
from hayase.tables.seals import Place, place_of
from hayase.tables.table import Table, open_reader, open_with_staged

__all__ = ["NotComplete", "OpenTables", "Versions", "read_versions"]

_ATTEMPTS = 200
_STAGED_FROM = 20
"""The attempt from which on staged runs count: by then nobody seems to take them in."""
_PAUSE = 0.01
"""Seconds between two looks at a home whose last commit is being published."""


class NotComplete(HayaseError):
    """The last commit is not complete in streams and tables: it is being published, or its pipeline was killed meanwhile."""


@dataclass(frozen=True, slots=True)
class Versions:
    """Manifests by lane, the stages as their lanes run them, and the tables that were asked for."""

    home: Home
    definition: Definition
    """The newest definition that a lane runs; before the first batch, the newest one of the home."""
    manifests: Mapping[str, Manifest]
    stages: Mapping[str, StageRecord]
    tables: Mapping[str, Table]
    places: Mapping[str, Place | None]
    """Where the tables were found on disk; a table that has changed since is at another place."""
    is_newest: bool
    """Whether each lane is at its newest manifest; else one of them was being published."""

    def manifest_of(self, stage: str) -> Manifest:
        """Return the manifest of the lane that runs a stage."""
        return self.manifests[self.stages[stage].lane]

    def clock(self, stage: str) -> int | None:
        """Return the latest event time up to which a stage has processed everything; None if there is none."""
        positions = self.manifest_of(stage).offset.positions.get(stage, {}).values()
        clock = min((position.clock for position in positions), default=BEGINNING)
        if clock >= END:
            clock = max(position.peak for position in positions) + 1
        return None if clock <= BEGINNING + 1 else clock - 1


@dataclass(frozen=True, slots=True)
class _TableState:
    """A table that is open at a fixed state: its place on disk, its generation, and the marker of its newest batch."""

    place: Place | None
    declaration: TableDeclaration
    generation: str | None
    marker: bytes
    table: Table


class OpenTables:
    """Read-only tables that this process has open, each at its newest state and at the one after the batch before. The tables of
    a lane take a batch in one after the other; with both states, a set of tables of one version can be had meanwhile."""

    def __init__(self, home: Home):
        self._home = home
        self._open: dict[str, list[_TableState]] = {}
        self._lock = threading.Lock()

    def states(self, declaration: TableDeclaration) -> list[_TableState]:
        """Return the states of a table that are at hand, the newest first. A table is closed when nobody refers to it."""
        path = self._home.table(declaration.name)
        with self._lock:
            place = place_of(path)
            known = self._open.get(declaration.name, [])
            if known and place is not None and (known[0].place, known[0].declaration) == (place, declaration):
                return known
            table = open_reader(path, declaration)
            weakref.finalize(table, table.store.close)
            state = _TableState(place, declaration, table.generation(), table.newest_marker(), table)
            before = [each for each in known if (each.generation, each.marker) != (state.generation, state.marker)]
            self._open[declaration.name] = [state, *before[:1]]
            return self._open[declaration.name]

    def close(self) -> None:
        """Let go of all tables."""
        with self._lock:
            self._open.clear()


def read_versions(
    home: Home,
    tables: OpenTables,
    wanted: Collection[str] | None = None,
    shown: Mapping[str, int] | None = None,
    pause: Callable[[float], None] = time.sleep,
    attempts: int = _ATTEMPTS,
    staged_from: int = _STAGED_FROM,
) -> Versions:
    """Return the newest versions of all lanes that can be read, with the `wanted` tables, by their names in lower case, or all.
    `shown` has the versions of lanes that a reader has seen before: it waits for tables that are behind them. From the attempt
    `staged_from` on, tables are read with updates that they have not taken in. NotComplete if there are none after so many
    attempts."""
    newest = _newest_definition(home)
    if newest is None:
        raise HayaseError(f"no pipeline was declared in {home.path} yet", "run one there first, with `hayase run`")
    for attempt in range(attempts):
        if attempt:
            pause(_PAUSE)
            newest = _newest_definition(home) or newest
        with_staged = attempt >= staged_from
        seen = {} if with_staged or shown is None else shown
        chosen = [
            _readable(home, lane, newest, tables, wanted, seen.get(lane, 0), with_staged) for lane in newest.lanes
        ]
        if all(chosen):
            return _together(home, newest, [each for each in chosen if each is not None])
    raise NotComplete(
        f"the last commit of {home.path} is not complete in its streams and tables",
        "start the pipeline, which completes it, then ask again",
    )


def _newest_definition(home: Home) -> Definition | None:
    check_home(home.path)
    version = newest_version(home)
    return definition_of(home, version) if version else None


@dataclass(frozen=True, slots=True)
class _LaneVersion:
    """A manifest of a lane whose outputs can be read, and the part of the definition that it ran."""

    lane: str
    manifest: Manifest
    definition: Definition
    tables: Mapping[str, _TableState]
    is_newest: bool


def _readable(
    home: Home,
    lane: str,
    newest: Definition,
    tables: OpenTables,
    wanted: Collection[str] | None,
    least: int,
    with_staged: bool,
) -> _LaneVersion | None:
    """Return the newest version of a lane that is complete; None if neither of the last two is, or it is less than `least`."""
    commits = Commits(home, lane)
    last = commits.latest()
    for manifest in _newest_first(commits, last):
        if manifest is not last and manifest.version < min(least, last.version):
            continue
        version = manifest.offset.definition
        definition = (definition_of(home, version) if version else newest).of_lane(lane)
        staged = _Staged(commits, last) if with_staged and manifest is last else None
        opened = _outputs(home, definition, manifest, tables, wanted, staged)
        if opened is not None:
            return _LaneVersion(lane, manifest, definition, opened, manifest is last)
    return None


@dataclass(frozen=True, slots=True)
class _Staged:
    """The runs of a lane's newest manifest that tables may not have taken in."""

    commits: Commits
    manifest: Manifest

    def completed(self, state: _TableState, record: StageRecord) -> _TableState | None:
        """Return a table at the state before together with its staged runs; None if that is not what is there."""
        home, lane = self.commits.home, self.commits.lane
        directory = home.staged(lane)
        files = [directory / run.file for run in self.manifest.runs if run.table == record.name]
        if (
            not files
            or not any(_is_at(state, record, each) for each in _before(self.commits, self.manifest))
            or record.name in self.manifest.begun
        ):
            return None
        if not isinstance(record.output, TableDeclaration) or not all(file.exists() for file in files):
            return None
        try:
            table = open_with_staged(home.table(record.name), record.output, files)
        except HayaseError:
            if all(file.exists() for file in files):
                raise
            return None  # they are being taken in
        weakref.finalize(table, table.store.close)
        if table.generation() != state.generation or version_in(table.newest_marker(), lane) != self.manifest.version:
            return None
        return _TableState(state.place, record.output, state.generation, table.newest_marker(), table)


def _newest_first(commits: Commits, last: Manifest) -> Iterator[Manifest]:
    """Yield the last manifest and the one before, which is read only if it is needed."""
    yield last
    yield from _before(commits, last)


def _before(commits: Commits, manifest: Manifest) -> tuple[Manifest, ...]:
    if manifest.version <= 1:
        return (Manifest(),) if manifest.version else ()
    return (commits.load(manifest.version - 1),) if commits.path_of(manifest.version - 1).exists() else ()


def _outputs(
    home: Home,
    definition: Definition,
    manifest: Manifest,
    tables: OpenTables,
    wanted: Collection[str] | None,
    staged: _Staged | None,
) -> dict[str, _TableState] | None:
    """Return the wanted tables of a lane if its outputs are as the manifest says, else None."""
    logs = Logs(home, definition)
    opened: dict[str, _TableState] = {}
    for record in definition.records:
        if isinstance(record.output, StreamDeclaration):
            if not is_published(logs[record.name], record, manifest):
                return None
        elif wanted is None or record.name.lower() in wanted:
            known = tables.states(record.output)
            states = [state for state in known if _is_at(state, record, manifest)]
            completed = staged.completed(known[0], record) if staged is not None and not states else None
            if not states and completed is None:
                return None
            opened[record.name] = states[0] if completed is None else completed
    return opened


def _is_at(state: _TableState, record: StageRecord, manifest: Manifest) -> bool:
    """Whether a table has ingested the batches up to the manifest, and none after it."""
    if record.name not in manifest.offset.positions:
        return True
    if state.generation is None or not record.generation <= int(state.generation) <= manifest.offset.definition:
        return False
    return version_in(state.marker, record.lane) == manifest.ends.get(record.name, 0)


def _together(home: Home, newest: Definition, lanes: list[_LaneVersion]) -> Versions:
    definition = max((lane.definition for lane in lanes), key=lambda each: each.version)
    definition = definition_of(home, definition.version) if definition.version != newest.version else newest
    states = {name: state for lane in lanes for name, state in lane.tables.items()}
    return Versions(
        home,
        definition,
        {lane.lane: lane.manifest for lane in lanes},
        {record.name: record for lane in lanes for record in lane.definition.records},
        {name: state.table for name, state in states.items()},
        {name: state.place for name, state in states.items()},
        all(lane.is_newest for lane in lanes),
    )
