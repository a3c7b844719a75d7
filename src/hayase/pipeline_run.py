"""Runs of a pipeline from Python: on Spark or in this process, with what runs beside the lanes, in the foreground or behind it."""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from hayase.core.access import OPEN, Access
from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError
from hayase.engine.batch_traces import traced_batches
from hayase.engine.commit.ledger import Ledger, open_ledger
from hayase.engine.commit.ledger import progress as newest_manifest
from hayase.engine.commit.manifests import Manifest
from hayase.engine.definition.definitions import definition_of
from hayase.engine.home import Home
from hayase.engine.local_run import RunningLanes, run_local_lanes
from hayase.engine.logs import Logs
from hayase.engine.results.subscriptions import Subscriptions

if TYPE_CHECKING:
    from hayase.engine.condition import Condition
    from hayase.serving import Status

__all__ = ["BackgroundRun", "Place", "Progress", "running_lanes"]

WATCH = 0.02
"""Seconds between two checks of the lanes."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pipeline runs and is served: on Spark or in this process, the Spark `master`, the address of HTTP and who may ask."""

    spark: bool = True
    master: str | None = None
    serve: str | None = None
    access: Access = OPEN
    traces: str | None = None
    """The address of the collector that gets a trace of every batch."""


@contextlib.contextmanager
def running_lanes(
    home: Home,
    place: Place,
    subscriptions: Subscriptions,
    now: Callable[[], int],
    on_commit: Callable[[Manifest], None] = lambda manifest: None,
    session: Any = None,
) -> Iterator[RunningLanes]:
    """Run the lanes of a home while the context is active, with sources, outputs, views and the server. The caller holds the
    home's lock. Without a Spark session, one is started."""
    from hayase.connectors.supervision import Connectors

    with (
        open_ledger(home) as ledger,
        traced_batches(ledger, place.traces),
        subscriptions as views,
        _served(ledger, place.serve, place.access) as status,
        Connectors(home),
    ):

        def committed(manifest: Manifest) -> None:
            views.committed()
            if status is not None:
                status.committed(manifest)
            on_commit(manifest)

        def on_condition(condition: Condition) -> None:
            if status is not None:
                status.set_condition(condition)

        lanes: AbstractContextManager[RunningLanes]
        if place.spark:
            from hayase.engine.spark.runner import run_lanes

            lanes = run_lanes(
                home, ledger=ledger, master=place.master, session=session, awake=True,
                on_commit=committed, on_condition=on_condition,
            )  # fmt: skip
        else:
            lanes = run_local_lanes(
                home, ledger=ledger, awake=True, now=now, on_commit=committed, on_condition=on_condition
            )
        with lanes as running:
            yield running


@contextlib.contextmanager
def _served(ledger: Ledger, address: str | None, access: Access) -> Iterator[Status | None]:
    """Serve the home over HTTP; yield the status to update after commits and changes of condition, None without an address."""
    if address is None:
        yield None
        return
    from hayase.serving import Status, serving

    status = Status("starting", ledger.latest())
    with serving(ledger.home, address, tables=ledger.tables, status=status, access=access):
        yield status


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come: its state, committed batches, records that stages have read, of these dead letters, and records
    that no stage has read yet; a record that two stages read counts for each."""

    state: str
    batches: int
    read: int
    dead: int
    unread: int

    def __str__(self) -> str:
        return f"{self.state}: {self.batches:,} batches, {self.read:,} records read, {self.dead:,} dead, {self.unread:,} unread"


class BackgroundRun:
    """A run in a thread of this process. It ends in order when the program ends; killed, it loses nothing, like any run."""

    def __init__(
        self,
        home: Home,
        lanes: Callable[[Callable[[Manifest], None]], AbstractContextManager[RunningLanes]],
        on_progress: Callable[[Progress], object] | None,
    ):
        self._home, self._open, self._on_progress = home, lanes, on_progress
        self._lanes: RunningLanes | None = None
        self._begun, self._stop, self._ended = threading.Event(), threading.Event(), threading.Event()
        self._error: BaseException | None = None
        """The error that ended the run, until it was raised."""
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="run", daemon=True)
        self._thread.start()

    @property
    def state(self) -> str:
        """One of starting, running, stopping, stopped and failed."""
        if self._ended.is_set():
            return "failed" if self._failed else "stopped"
        if self._stop.is_set():
            return "stopping"
        return "running" if self._begun.is_set() else "starting"

    def progress(self) -> Progress:
        """Return how far the run has come."""
        return self._progress(newest_manifest(self._home))

    def wait_until_idle(self, timeout: float | None = None) -> Manifest:
        """Wait until all records that are in the streams are processed; return the last manifest. TimeoutError after `timeout`
        seconds; an error that ended the run is raised."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self._check()
            if self._ended.is_set():
                raise HayaseError("the pipeline was stopped before it was idle; start it again with p.start()")
            lanes = self._lanes
            if lanes is not None and lanes.is_idle():
                return lanes.manifest
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"the pipeline is not idle after {timeout:g} s: {self.progress()}")
            self._ended.wait(WATCH)

    def stop(self) -> None:
        """Finish the running batch and stop; an error that ended the run is raised."""
        self._end_quietly()
        self._check()

    def _end_quietly(self) -> None:
        self._stop.set()
        self._thread.join()
        atexit.unregister(self._end_quietly)

    def _check(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _progress(self, manifest: Manifest) -> Progress:
        unread = 0
        if manifest.offset.definition:
            logs = Logs(self._home, definition_of(self._home, manifest.offset.definition))
            positions = manifest.offset.positions.values()
            ends = logs.ends({stream for inputs in positions for stream in inputs})
            unread = sum(
                max(0, ends.get(stream, 0) - position.at) for inputs in positions for stream, position in inputs.items()
            )
        figures = manifest.totals.values()
        return Progress(
            self.state, manifest.version, sum(each.read for each in figures), sum(each.dead for each in figures), unread
        )

    def _run(self) -> None:
        try:
            with self._open(self._committed) as lanes:
                self._lanes = lanes
                self._begun.set()
                atexit.register(self._end_quietly)  # now, so that it runs before what Spark has registered ends Spark
                while not self._stop.wait(WATCH):
                    lanes.check()
        except BaseException as error:
            self._error, self._failed = error, True
        finally:
            self._ended.set()

    def _committed(self, manifest: Manifest) -> None:
        if self._on_progress is not None:
            self._on_progress(self._progress(manifest))

    def __repr__(self) -> str:
        return f"<run of {self._home.path.name}, {self.progress()}>"
