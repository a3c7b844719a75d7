"""Housekeeping beside a running lane: joins small segments, writes snapshots of results, folds old updates of tables, and
removes records by retention.

Whatever the retention says, records that a declared stage has not committed yet are kept, and so are records of results that
no snapshot covers, and records that an output has not delivered.
"""

from __future__ import annotations

import logging
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
from hayase.engine.dead_letters.letters import obsolete_before
from hayase.engine.definition.definitions import Definition, latest
from hayase.engine.home import Home
from hayase.engine.logs import declared_streams
from hayase.engine.results.output_positions import delivered_marker, needed_by_outputs
from hayase.engine.results.snapshots import update_snapshots as keep_snapshots
from hayase.streams import StreamLog
from hayase.streams.dead_letters import DEAD, SETTLED
from hayase.streams.repeats import needed_for_repeats

__all__ = ["Housekeeping", "fold_tables", "needed_from", "run_housekeeping"]

PAUSE = 2.0
"""Seconds between two rounds."""
FOLDS = 2
"""Folds per `fold_after` interval: each fold reads all updates that are not folded yet."""


def needed_from(manifest: Manifest, definition: Definition, stream: str) -> int | None:
    """Return the first offset of a stream that some stage has not committed yet; None if no stage reads the stream."""
    positions = [
        inputs[stream].at
        for stage, inputs in manifest.offset.positions.items()
        if stream in inputs and any(record.name == stage for record in definition.records)
    ]
    return min(positions, default=None)


def run_housekeeping(
    home: Home, now: int, commits: Commits | None = None, stop: Callable[[], bool] = lambda: False
) -> None:
    """Do one round over all streams of the newest definition and, given the commits of the main lane, over its tables."""
    definition = latest(home)
    if definition is None:
        return
    manifests = {lane: Commits(home, lane).latest() for lane in definition.lanes}
    if any(lane_manifest.offset.definition != definition.version for lane_manifest in manifests.values()):
        return  # a stage that is about to begin may read all records
    manifest = home_manifest(home, manifests)
    for name, declaration in {**declared_streams(definition), DEAD.name: DEAD, SETTLED.name: SETTLED}.items():
        if not (home.path / "streams" / name).is_dir():
            continue
        log = StreamLog(home.path, declaration)
        log.settle_letters()
        needed_offsets = [] if (needed := needed_from(manifest, definition, name)) is None else [needed]
        if (ids_from := needed_for_repeats(log)) is not None:
            needed_offsets.append(ids_from)
        if declaration.lifetimes:  # before segments are joined: snapshots stand at the ends of segments
            needed_offsets.append(keep_snapshots(log, now))
        outputs = [output.name for output in definition.declaration.outputs if output.reads == name]
        if (undelivered := needed_by_outputs(home, outputs, log)) is not None:
            needed_offsets.append(undelivered)
        while log.compact():
            pass
        if declaration.retention.age is not None or declaration.retention.size is not None:
            log.trim(min(needed_offsets, default=log.index().next), now)
    _trim_settled(home, manifests.values(), now)
    if commits is not None and commits.done.offset.definition == definition.version:
        fold_tables(commits.tables, commits.done, definition, stop)
        _forget_changes(home, commits.tables, definition)


def _trim_settled(home: Home, manifests: Iterable[Manifest], now: int) -> None:
    """Remove settlements of dead letters that retention has removed, once every lane has read them."""
    if (home.path / "streams" / SETTLED.name).is_dir():
        read_by_all = min((manifest.offset.settled for manifest in manifests), default=0)
        log = StreamLog(home.path, replace(SETTLED, retention=Retention(age=0)))
        log.trim(min(read_by_all, obsolete_before(home)), now)


def fold_tables(tables: Tables, manifest: Manifest, definition: Definition, stop: Callable[[], bool]) -> int:
    """Fold updates that are older than `fold_after` in all tables; return how many were folded.

    The age of an update counts from the newest event of all streams that feed the table. Event ids are kept down to the
    horizon of the stream that is furthest behind: repeated events older than that are refused. Both are taken from `manifest`,
    which must be applied: a committed batch that is not in the table yet may hold a repetition that was within the horizon
    when it arrived.
    """
    count = 0
    for record in definition.records:
        table = record.output
        if not isinstance(table, TableDeclaration) or record.name not in manifest.offset.positions or stop():
            continue
        peaks = {stream: position.peak for stream, position in manifest.offset.positions[record.name].items()}
        due = max(peaks.values()) - table.fold_after
        # the streams into which jobs emit never repeat a record; in a stream without records, the first may have any time
        repeatable = [peak for stream, peak in peaks.items() if not stream.startswith("_")]
        keep_from = min(repeatable) - table.horizon if repeatable else END
        own_table = tables.own(table)
        folded_before = own_table.folded_before()
        if max(peaks.values()) > BEGINNING and (
            folded_before is None or due >= folded_before + max(table.fold_after // FOLDS, 1)
        ):
            count += own_table.fold(due, keep_from, stop)
    return count


def _forget_changes(home: Home, tables: Tables, definition: Definition) -> None:
    """Delete, in tables that outputs mirror, the keys of batches that all their outputs have delivered."""
    for table in definition.declaration.tables:
        outputs = [output.name for output in definition.declaration.outputs if output.reads == table.name]
        passed = [marker for output in outputs if (marker := delivered_marker(home, output)) is not None]
        if outputs:
            tables.own(table).forget_changes(passed)


class Housekeeping:
    """Runs housekeeping in a thread while a lane runs. A round that fails is logged at once, if the reason is new; on exit, the
    error of the last round is raised, if it failed."""

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
                run_housekeeping(self._home, now_us(), self._commits, self._done.is_set)
                self._error = None
            except Exception as error:  # a full disk may have space in the next round
                if str(error) != str(self._error):
                    logging.getLogger(__name__).warning("housekeeping failed and is tried again: %s", error)
                self._error = error
