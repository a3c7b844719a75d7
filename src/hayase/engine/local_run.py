"""A continuous run without Spark: a thread of this process runs batches while streams grow, for development and small machines.

Home, batches, commits and results are those of a run on Spark, and either can go on where the other was stopped or killed. The
lanes run in turn, so that an operation that takes long delays the queries; the governor bounds by how much.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from hayase.core.clock import now_us
from hayase.core.errors import HayaseError, LaneFailed
from hayase.core.stages import MAIN
from hayase.engine.commit.housekeeping import Housekeeping
from hayase.engine.commit.ledger import Ledger, open_ledger
from hayase.engine.commit.manifests import Manifest
from hayase.engine.condition import Condition
from hayase.engine.home import Home
from hayase.engine.local import InProcess

__all__ = ["LocalLanes", "RunningLanes", "run_local_lanes"]

LONGEST = 0.05
"""Most seconds between two looks at the logs."""
PATIENCE = 5.0
"""Seconds that the running batch has to end when the run is interrupted; it is not committed if it takes longer."""


class RunningLanes(Protocol):
    """What the caller of a run watches, on Spark or in this process."""

    @property
    def manifest(self) -> Manifest:
        """The newest manifests of all lanes, merged."""

    def is_idle(self) -> bool:
        """Whether all records that are in the logs now have been committed."""

    def check(self) -> None:
        """Raise the error that ended a lane, if any."""


class LocalLanes:
    """Runs batches in a thread. The caller holds the home's lock, and calls `drain` or `stop` at the end."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        *,
        awake: bool,
        now: Callable[[], int] = now_us,
        on_commit: Callable[[Manifest], None] | None = None,
        on_running: Callable[[], None] = lambda: None,
    ):
        self._runner = InProcess(home, now, at_once=not awake, ledger=ledger, governed=True)
        self._on_commit, self._on_running = on_commit, on_running
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._rounds, name="lanes", daemon=True)
        self._thread.start()

    @property
    def manifest(self) -> Manifest:
        return self._runner.manifest

    def is_idle(self) -> bool:
        return self._runner.is_idle()

    def check(self) -> None:
        if self._error is None:
            return
        if isinstance(self._error, HayaseError):
            raise self._error
        raise LaneFailed(f"a batch failed: {type(self._error).__name__}: {self._error}") from self._error

    def drain(self) -> None:
        """Finish the running batch, then stop."""
        self._stop.set()
        self._thread.join()
        if self._error is None:
            self._runner.sweep()

    def stop(self) -> None:
        """Stop. A batch that takes longer than a moment is left to end with the process; the next run repeats it."""
        self._stop.set()
        self._thread.join(PATIENCE)

    def _rounds(self) -> None:
        try:
            first = True
            while not self._stop.is_set():
                moved = self._runner.step()
                if moved and self._on_commit is not None:
                    self._on_commit(self.manifest)
                if first:
                    first = False
                    self._on_running()
                if not moved:
                    self._stop.wait(min(self._runner.poll_after, LONGEST) or LONGEST)
        except BaseException as error:
            self._error = error
            logging.getLogger(__name__).info("the lanes have ended: %s", error)


@contextlib.contextmanager
def run_local_lanes(
    home: Home,
    *,
    ledger: Ledger | None = None,
    awake: bool = False,
    now: Callable[[], int] = now_us,
    on_commit: Callable[[Manifest], None] | None = None,
    on_phase: Callable[[str], None] = lambda phase: None,
    on_condition: Callable[[Condition], None] = lambda condition: None,
) -> Iterator[LocalLanes]:
    """Run the lanes of a home in this process while the context is active. On exit, the running batch is finished; after an
    error it is not waited for.

    The arguments are those of `engine.spark.runner.run_lanes`.
    """
    if ledger is None:
        with (
            open_ledger(home) as own,
            run_local_lanes(
                home,
                ledger=own,
                awake=awake,
                now=now,
                on_commit=on_commit,
                on_phase=on_phase,
                on_condition=on_condition,
            ) as running,
        ):
            yield running
        return
    lanes: LocalLanes | None = None
    try:
        on_phase("starting the lanes")
        on_condition(Condition("starting", "starting the lanes"))
        lanes = LocalLanes(
            home,
            ledger,
            awake=awake,
            now=now,
            on_commit=on_commit,
            on_running=lambda: on_condition(Condition("running")),
        )
        with Housekeeping(home, ledger.of(MAIN)):
            yield lanes
        on_phase("stopping")
        on_condition(Condition("stopping"))
        lanes.drain()
        lanes.check()
    except BaseException as error:
        if isinstance(error, Exception):
            on_condition(Condition("failed", str(error) or type(error).__name__))
            logging.getLogger(__name__).info("the pipeline has failed: %s", error)
        if lanes is not None:
            lanes.stop()
        raise
