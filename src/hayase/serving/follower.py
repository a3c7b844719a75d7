"""Follows a home from another process than its pipeline: keeps the status of a server at the newest versions that can be read.

The follower looks at the manifests of the home, and opens the newest versions that are complete in logs and tables. It takes no
lock and writes nothing into the home, so the pipeline does not know of it; that may run or not, be restarted, changed or reset.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError
from hayase.engine.commit.ledger import home_manifest
from hayase.engine.commit.manifests import Commits
from hayase.engine.condition import Condition
from hayase.engine.definition.definitions import newest_version, path_of
from hayase.engine.home import Home
from hayase.relations.versions import NotComplete, OpenTables, Versions, read_versions
from hayase.serving.service import Behind, CommittedStatus, Status
from hayase.streams.home_format import FORMAT_FILE, check_home
from hayase.tables.seals import Place, place_of

__all__ = ["Follower"]

_log = logging.getLogger("hayase.serving")
POLL = 0.02
"""Seconds between two looks at the home."""
REST = 4.0
"""Seconds between two looks for each second that a look took: opening tables takes a bounded share of a core."""
STAGED = 0.2
"""Seconds after which tables of a commit that is not complete are read with the updates that they have not taken in."""
PATIENCE = 5.0
"""Seconds after which a commit that is not complete is a reason to complain."""
HOLDER_SECONDS = 1.0
"""Seconds between two looks whether the pipeline runs."""

_File = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class _Sight:
    """What a look at a home's files gives at little cost. It differs whenever there may be something new to read."""

    format: _File
    definition: tuple[int, _File]
    lanes: tuple[tuple[str, int, _File], ...]
    tables: tuple[tuple[str, Place | None], ...]


class Follower:
    """Keeps a status at the newest versions of a home; `look` does so once, `run` until it is told to stop."""

    def __init__(self, home: Home, status: Status, monotonic: Callable[[], float] = time.monotonic):
        self._home, self._status, self._monotonic = home, status, monotonic
        self._tables = OpenTables(home)
        self._seen: _Sight | None = None
        self._holder_seen = float("-inf")
        self._is_running = False
        self._complaint: str | None = None
        self._incomplete_since: float | None = None

    def run(self, stop: threading.Event) -> None:
        """Look again and again until `stop` is set."""
        pause = 0.0
        while not stop.wait(pause):
            began = self._monotonic()
            self.look()
            pause = max(POLL, REST * (self._monotonic() - began))

    def look(self) -> None:
        """Look at the home, and make the newest versions that can be read those of the status."""
        try:
            sight = self._sight()
            if sight is not None and sight.format != (self._seen and self._seen.format):
                self._tables = OpenTables(self._home)  # another home may have been created at this path
            self._follow(sight)
            self._complain(None)
        except (HayaseError, OSError) as error:
            self._keep(str(error))
        except Exception as error:
            _log.exception("a fault while %s was looked at", self._home.path)
            self._keep(f"a fault, which is in the log of this process: {type(error).__name__}")

    def _sight(self) -> _Sight | None:
        home = self._home
        if not check_home(home.path):
            return None
        version = newest_version(home)
        served = self._status.now.versions
        names = served.definition.lanes if served is not None else ()
        known = {*names, *(path.name for path in _directories(home.path / "commits"))}
        lanes = []
        for lane in sorted(known):
            commits = Commits(home, lane)
            newest = max(commits.versions(), default=0)
            lanes.append((lane, newest, _file(commits.path_of(newest))))
        tables = () if served is None else tuple((name, place_of(home.table(name))) for name in sorted(served.tables))
        return _Sight(_file(home.path / FORMAT_FILE), (version, _file(path_of(home, version))), tuple(lanes), tables)

    def _follow(self, sight: _Sight | None) -> None:
        served = self._status.now.versions
        if sight is None:
            self._wait(f"there is no home at {self._home.path} yet")
        elif not sight.definition[0]:
            self._wait(f"no pipeline was declared in {self._home.path} yet")
        elif not any(version for _, version, _ in sight.lanes):
            self._wait("the pipeline has not committed a batch yet")
        elif served is None or sight != self._seen or self._behind(sight, served).batches:
            versions = self._read()
            if versions is None:
                self._wait("the first batch of the pipeline is being committed")
            else:
                self._show(sight, versions)
        else:
            self._show(sight, served)
        self._seen = sight

    def _read(self) -> Versions | None:
        """Return the newest versions that can be read: while the next ones are being published, those that are served now. None if
        there are none yet."""
        served, since = self._status.now.versions, self._incomplete_since
        is_late = (
            since is not None and self._monotonic() > since + STAGED
        )  # its process may have been killed in between
        try:
            read = read_versions(self._home, self._tables, attempts=1, staged_from=0 if is_late else 1)
        except NotComplete:
            self._incomplete_since = self._incomplete_since or self._monotonic()
            if self._monotonic() > self._incomplete_since + PATIENCE:
                raise
            return served
        self._incomplete_since = None
        if not any(manifest.version for manifest in read.manifests.values()):
            return None
        return served if served is not None and _identity(served) == _identity(read) else read

    def _show(self, sight: _Sight, versions: Versions) -> None:
        now, before = self._status.now, self._status.now.versions
        condition = Condition("running" if self._runs() else "stopped")
        behind = self._behind(sight, versions)
        if before is not None and behind.batches and now.behind is not None and now.behind.since is not None:
            behind = replace(behind, since=now.behind.since)
        if versions is before and condition == now.condition and behind == now.behind and now.is_open:
            return
        manifest = now.manifest if versions is before else home_manifest(self._home, versions.manifests)
        self._status.follow(CommittedStatus(condition, manifest, True, now.committed_monotonic, versions, behind))

    def _behind(self, sight: _Sight, versions: Versions) -> Behind:
        newest = {lane: version for lane, version, _ in sight.lanes}
        missing = sum(max(0, newest.get(lane, 0) - manifest.version) for lane, manifest in versions.manifests.items())
        return Behind(missing, self._monotonic() if missing else None)

    def _runs(self) -> bool:
        """Whether a process runs the pipeline; looked up once a second."""
        moment = self._monotonic()
        if moment >= self._holder_seen + HOLDER_SECONDS:
            self._holder_seen, self._is_running = moment, self._home.is_locked()
        return self._is_running

    def _wait(self, reason: str) -> None:
        """Serve no data: there are none, or none any more."""
        condition = Condition("starting", reason)
        if self._status.now.condition != condition:
            self._tables = OpenTables(self._home)
            self._status.follow(CommittedStatus(condition))

    def _keep(self, reason: str) -> None:
        """Go on with what is served: the newest versions cannot be read now."""
        now = self._status.now
        self._complain(reason)
        if now.versions is None:
            self._wait(reason)
        elif now.condition.reason != reason:
            self._status.follow(replace(now, condition=Condition("stalled", reason)))

    def _complain(self, reason: str | None) -> None:
        if reason is not None and reason != self._complaint:
            _log.warning("the newest versions of %s cannot be read: %s", self._home.path, reason)
        self._complaint = reason


def _identity(versions: Versions) -> object:
    """Return what differs between versions of which answers may differ."""
    manifests = {lane: (each.version, each.epoch, each.committed_at) for lane, each in versions.manifests.items()}
    return manifests, versions.definition.version, {name: id(table) for name, table in versions.tables.items()}


def _directories(path: Path) -> list[Path]:
    try:
        return [each for each in path.iterdir() if each.is_dir()]
    except FileNotFoundError:
        return []


def _file(path: Path) -> _File:
    """Return what tells a file apart from another one at its path; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
