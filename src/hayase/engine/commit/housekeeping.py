"""Housekeeping beside a running lane: small segments are joined, results kept as snapshots, old updates of tables folded,
and what retention lets go is removed.

Nothing that a declared stage has not committed is removed, whatever the retention says, and of results nothing that is
not in a snapshot.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import TracebackType

from hayase.core.clock import now_us
from hayase.core.declarations import Retention, TableDeclaration
from hayase.core.times import BEGINNING, END
from hayase.engine.commit.ledger import home_manifest
from hayase.engine.commit.manifests import Commits, Manifest
from hayase.engine.commit.tables import Tables
from hayase.engine.dead_letters.letters import spent
from hayase.engine.definition.definitions import Definition, latest
from hayase.engine.home import Home
from hayase.engine.logs import declared_streams
from hayase.engine.results.snapshots import keep as keep_snapshots
from hayase.streams import StreamLog
from hayase.streams.dead_letters import DEAD, SETTLED

__all__ = ["Housekeeping", "fold_tables", "keep_house", "needed_from"]

PAUSE = 2.0
"""Seconds between two rounds."""
FOLDS = 2
"""How often updates are looked at for folding while they grow old enough: each time costs what is not folded yet."""


def needed_from(manifest: Manifest, definition: Definition, stream: str) -> int | None:
    """The first offset of a stream that some stage has yet to commit; None if no stage reads it."""
    positions = [
        inputs[stream].at
        for stage, inputs in manifest.offset.positions.items()
        if stream in inputs and any(each.name == stage for each in definition.records)
    ]
    return min(positions, default=None)


def keep_house(home: Home, now: int, commits: Commits | None = None, stop: Callable[[], bool] = lambda: False) -> None:
    """One round over all streams of the newest definition, and over the tables of the one who commits to the main lane."""
    definition = latest(home)
    if definition is None:
        return
    manifests = {lane: Commits(home, lane).latest() for lane in definition.lanes}
    if any(each.offset.definition != definition.version for each in manifests.values()):
        return  # a stage that is about to begin may want everything there is
    manifest = home_manifest(home, manifests)
    for name, declaration in {**declared_streams(definition), DEAD.name: DEAD, SETTLED.name: SETTLED}.items():
        if not (home.path / "streams" / name).is_dir():
            continue
        log = StreamLog(home.path, declaration)
        held = [] if (needed := needed_from(manifest, definition, name)) is None else [needed]
        if declaration.lifetimes:  # before its segments are joined, whose ends are where snapshots stand
            held.append(keep_snapshots(log, now))
        while log.compact():
            pass
        if declaration.retention.age is not None or declaration.retention.size is not None:
            log.trim(min(held, default=log.index().next), now)
    _trim_settled(home, manifests.values(), now)
    if commits is not None and commits.done.offset.definition == definition.version:
        fold_tables(commits.tables, commits.done, definition, stop)


def _trim_settled(home: Home, manifests: Iterable[Manifest], now: int) -> None:
    """Remove what became of dead letters that are gone themselves, once every lane has read it."""
    if (home.path / "streams" / SETTLED.name).is_dir():
        read = min((each.offset.settled for each in manifests), default=0)
        log = StreamLog(home.path, replace(SETTLED, retention=Retention(age=0)))
        log.trim(min(read, spent(home)), now)


def fold_tables(tables: Tables, manifest: Manifest, definition: Definition, stop: Callable[[], bool]) -> int:
    """Fold what has become old enough in all tables; how many updates were folded.

    How old updates are is told by the newest event of all streams that feed the table, and what may still be repeated by the
    stream that is furthest behind, as far as records are in the table: of what follows in the logs, nothing that is older
    than the horizon is let in. A batch that is committed and not in the table yet may bring a repetition that was young
    enough when it came, so its manifest does not count yet.
    """
    count = 0
    for record in definition.records:
        table = record.output
        if not isinstance(table, TableDeclaration) or record.name not in manifest.offset.positions or stop():
            continue
        peaks = {stream: each.peak for stream, each in manifest.offset.positions[record.name].items()}
        due = max(peaks.values()) - table.fold_after
        # what jobs emit (to streams of their own) never comes again; of a stream without records anything may come first
        repeated = [peak for stream, peak in peaks.items() if not stream.startswith("_")]
        keep_from = min(repeated) - table.horizon if repeated else END
        own = tables.own(table)
        folded = own.folded_before()
        if max(peaks.values()) > BEGINNING and (folded is None or due >= folded + max(table.fold_after // FOLDS, 1)):
            count += own.fold(due, keep_from, stop)
    return count


class Housekeeping:
    """Keeps house in a thread of its own while a lane runs; an error there is raised when it is left."""

    def __init__(self, home: Home, commits: Commits):
        self._home, self._commits = home, commits
        self._done = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._rounds, name="housekeeping", daemon=True)

    def __enter__(self) -> Housekeeping:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _rounds(self) -> None:
        while not self._done.wait(PAUSE):
            try:
                keep_house(self._home, now_us(), self._commits, self._done.is_set)
                self._error = None
            except Exception as error:  # a full disk may have room again in the next round; the last one is raised
                self._error = error
