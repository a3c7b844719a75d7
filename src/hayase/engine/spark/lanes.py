"""The running lanes of a home: the main lane, and one for operations if there are any."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from hayase.core.clock import now_us
from hayase.core.errors import HayaseError
from hayase.engine.commit.ledger import Ledger, home_manifest
from hayase.engine.commit.manifests import Manifest
from hayase.engine.condition import ClockWatch, Condition, StallWatch, State
from hayase.engine.definition.definitions import definition_of, latest_version
from hayase.engine.home import Home
from hayase.engine.spark.failures import translated
from hayase.engine.spark.lane import Lane
from hayase.engine.spark.lane_source import LaneSource
from hayase.engine.spark.session import keep_warm

__all__ = ["Lanes"]

LOOK = 0.01
"""Seconds between checks whether the other lanes have reached a definition."""
COUNT = 1.0
"""Seconds between counts of how many tasks can run at once."""


class Lanes:
    """Starts the lanes that the newest definition needs, also while others run. The caller holds the home's lock."""

    def __init__(
        self,
        session: SparkSession,
        home: Home,
        ledger: Ledger,
        *,
        awake: bool = False,
        on_commit: Callable[[Manifest], None] | None = None,
        on_condition: Callable[[Condition], None] = lambda condition: None,
    ):
        self._session, self._home, self._ledger, self._awake = session, home, ledger, awake
        self._listener = on_commit
        self._telling = threading.Lock()
        self._lanes: dict[str, Lane] = {}
        self._stopped = False
        self._counted = time.monotonic()
        self._stalls, self._clock = StallWatch(), ClockWatch()
        self._on_condition, self.condition = on_condition, Condition("starting", "starting the lanes")
        on_condition(self.condition)
        try:
            with self._translated():
                session.dataSource.register(LaneSource)
                self._begin()
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is raised
                self.stop()
            raise

    def _translated(self) -> contextlib.AbstractContextManager[None]:
        return translated(self._home.spark_log)

    def _begin(self) -> None:
        """Start missing lanes of the newest definition, one after the other: if they start concurrently, Spark sometimes
        serializes a task that cannot be read."""
        for name in definition_of(self._home, latest_version(self._home)).lanes:
            if name not in self._lanes:
                self._lanes[name] = self._start(name)

    def _start(self, name: str) -> Lane:
        return Lane(
            self._session,
            self._home,
            name,
            commits=self._ledger.of(name),
            awake=self._awake,
            on_commit=self._tell,
            before_change=self._await_others,
        )

    @property
    def manifest(self) -> Manifest:
        """The newest manifests of all lanes, merged."""
        return home_manifest(self._home, {name: lane.manifest for name, lane in dict(self._lanes).items()})

    def _tell(self) -> None:
        if self._listener is not None:
            with self._telling:  # each lane commits in its own thread
                self._listener(self.manifest)

    def _await_others(self, version: int) -> None:
        """Wait until no lane runs under an older definition: a reset stage empties its output stream, which tasks of other
        lanes may still be reading."""
        while not self._stopped and any(
            lane.arrived < version and lane.is_active for lane in list(self._lanes.values())
        ):
            time.sleep(LOOK)

    def is_idle(self) -> bool:
        """Whether all records that are in the logs now have been committed, including those that one lane wrote for another."""
        with self._translated():
            self._begin()
        before = [lane.manifest for lane in self._lanes.values()]
        idle = all(lane.is_idle() for lane in self._lanes.values())
        return idle and all(lane.manifest is then for lane, then in zip(self._lanes.values(), before, strict=True))

    def in_flight(self) -> bool:
        """Whether a lane has a batch that is planned and not committed yet."""
        return any(lane.in_flight() for lane in self._lanes.values())

    def run_ids(self) -> dict[str, str | None]:
        """Return Spark's id of the query of each lane."""
        return {name: lane.run_id for name, lane in self._lanes.items()}

    def check(self) -> None:
        """Raise the error that ended a lane, if any; start lanes that a new definition needs."""
        with self._translated():
            for lane in self._lanes.values():
                lane.check()
            self._begin()
            if time.monotonic() >= self._counted + COUNT:
                self._counted = time.monotonic()
                keep_warm()
                for lane in self._lanes.values():
                    lane.count_slots()
                self._tell_condition()
            elif self.condition.state in ("starting", "recovering") or self._trouble() is not None:
                self._tell_condition()

    def _tell_condition(self) -> None:
        """Determine the condition of the lanes and report it if it has changed; after `stop` or `drain`, report nothing."""
        if self._stopped:
            return
        clock_notice = self._clock.look(*_clocks())
        if clock_notice is not None:
            logging.getLogger(__name__).warning(clock_notice)
        state, reason = self._state()
        notice = clock_notice or self.condition.notice
        condition = Condition(state, reason, notice, self._clock.jumps, self._clock.jump)
        if condition != self.condition:
            self.condition = condition
            self._on_condition(condition)

    def _trouble(self) -> str | None:
        """Return why a lane is being restarted, until it has committed again; None if no lane is."""
        return next((lane.trouble for lane in list(self._lanes.values()) if lane.trouble is not None), None)

    def _state(self) -> tuple[State, str | None]:
        lanes, trouble = list(self._lanes.values()), self._trouble()
        if trouble is not None:
            return "recovering", trouble
        if self.condition.state == "starting" and not (any(lane.has_committed for lane in lanes) or self.is_idle()):
            return "starting", "waiting for the first batch"
        stalled = self._stalls.look(time.monotonic(), self._waiting(), self.manifest.seconds)
        return ("running", None) if stalled is None else ("stalled", stalled)

    def _waiting(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return position and end of each queue, by stage and stream, from which records could be taken."""
        try:
            return {queue: place for lane in list(self._lanes.values()) for queue, place in lane.waiting().items()}
        except HayaseError:  # such as a damaged stream, which its reader reports
            return {}

    def drain(self) -> None:
        """Finish the current batches, then stop."""
        with self._translated():
            for lane in self._lanes.values():
                lane.drain()
        self._stopped = True

    def stop(self) -> None:
        """Stop at once; batches that are not committed are repeated by the next run."""
        self._stopped = True
        for lane in self._lanes.values():
            lane.stop()


def _clocks() -> tuple[int, float, float]:
    """Return the wall clock (microseconds), and monotonic times (seconds) before and after it was read."""
    before = time.monotonic()
    wall = now_us()
    return wall, before, time.monotonic()
