"""The runner without Spark: the same plans, map sides, kernels and commits as on Spark, in this process.

Its results equal those on Spark, record for record. In a large batch the map tasks, and then the buckets, run in parallel
threads: what takes time there releases Python's lock. `engine.local_run` runs it continuously.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from hayase.core.stages import MAIN
from hayase.engine.batch.gate import Feedback, FileGate, Gate, Grants
from hayase.engine.batch.idleness import is_caught_up
from hayase.engine.batch.map_side import map_task
from hayase.engine.batch.messages import Inbox, Message, headers
from hayase.engine.batch.offsets import Batch, Range, advance, mark_taken_repeats, ranges
from hayase.engine.batch.outcomes import Task
from hayase.engine.batch.reduce_side import reduce_bucket
from hayase.engine.batch.report import Report
from hayase.engine.commit.ledger import Ledger, home_manifest
from hayase.engine.commit.manifests import Commits, Manifest
from hayase.engine.commit.tables import Tables
from hayase.engine.definition.definitions import Definition, latest, latest_version, load
from hayase.engine.home import Home
from hayase.engine.logs import Logs, settled_end

if TYPE_CHECKING:
    from hayase.engine.batch.lane_governor import LaneGovernor

__all__ = ["InProcess"]

THREADED = 20_000
"""Records of a batch from which on threads are used."""
SWEEP = 64
"""Commits after which files that no manifest names are deleted."""
_T = TypeVar("_T")
_U = TypeVar("_U")


class InProcess:
    """Runs the newest definition of a home, batch by batch, the lanes in turn. The caller holds the lock of the home.

    With `at_once`, stages fire before their time. A `governed` runner takes as much in a batch as the governor of each lane
    grants, as a run on Spark does; otherwise a batch takes all that waits.
    """

    def __init__(
        self,
        home: Home,
        now: Callable[[], int],
        gate: Gate | None = None,
        tasks: int | None = None,
        at_once: bool = True,
        *,
        ledger: Ledger | None = None,
        governed: bool = False,
    ):
        self._home, self._ledger = home, ledger or Ledger(home)
        self._lane = partial(
            _Lane, now=now, gate=gate, tasks=tasks or os.cpu_count() or 1, at_once=at_once, governed=governed
        )
        self._lanes: dict[str, _Lane] = {}
        self._begin()

    def _begin(self) -> None:
        """Start the lanes that the newest definition needs."""
        definition = latest(self._home)
        for lane in definition.lanes if definition is not None else (MAIN,):
            if lane not in self._lanes:
                self._lanes[lane] = self._lane(self._home, self._ledger.of(lane))

    def step(self) -> bool:
        """Run one batch of each lane; False if there was nothing to do. After a batch that failed, go on from the last
        commit."""
        self._begin()
        moved = [lane.step() for lane in self._lanes.values()]  # a list: every lane has its turn
        return any(moved)

    @property
    def poll_after(self) -> float:
        """Seconds after which another look at the logs is worthwhile, if the last step found nothing to do."""
        return min((lane.poll_after for lane in self._lanes.values()), default=0.0)

    def is_idle(self) -> bool:
        """Whether all records that are in the logs now have been committed, including those that one lane wrote for another."""
        definition = latest(self._home)
        known = dict(self._lanes)
        if definition is not None and any(lane not in known for lane in definition.lanes):
            return False
        before = {name: lane.manifest for name, lane in known.items()}
        idle = all(lane.is_idle() for lane in known.values())
        return idle and all(lane.manifest is before[name] for name, lane in known.items())

    def sweep(self) -> None:
        """Delete what batches that failed have left. No batch may run."""
        for lane in self._lanes.values():
            lane.sweep()

    @property
    def manifest(self) -> Manifest:
        """The last commits of all lanes as one manifest."""
        return home_manifest(self._home, {name: lane.manifest for name, lane in self._lanes.items()})

    @property
    def commits(self) -> Commits:
        """The commits of the main lane."""
        return self._ledger.of(MAIN)

    def run_until_idle(self) -> Manifest:
        """Run batches until there is nothing left to do."""
        while self.step():
            pass
        return self.manifest

    @property
    def tables(self) -> Tables:
        """The tables, opened by this runner."""
        return self._ledger.tables

    def close(self) -> None:
        """Close the tables. The runner can go on afterwards and opens them again."""
        self._ledger.close()


class _Lane:
    """One lane of the runner."""

    def __init__(
        self,
        home: Home,
        commits: Commits,
        now: Callable[[], int],
        gate: Gate | None,
        tasks: int,
        at_once: bool,
        governed: bool,
    ):
        self._home, self._commits, self._now, self._at_once = home, commits, now, at_once
        self._tasks = tasks
        self._pool: ThreadPoolExecutor | None = None
        self._gate = gate or _cleared(FileGate(home.gate(commits.lane)))
        self._governor: LaneGovernor | None = None
        if governed:
            from hayase.engine.batch.lane_governor import LaneGovernor  # a run to the end needs none

            self._governor = LaneGovernor(commits.lane, tasks)
        self.poll_after = 0.0
        self._epoch = f"inprocess-{uuid.uuid4().hex}"
        self._started = now()
        self.manifest = self._recovered()
        self._failed = False

    def step(self) -> bool:
        """Run one batch; False if there was nothing to do. After a batch that failed, go on from the last commit."""
        if self._failed:
            self.manifest = self._recovered()
        self._failed = True
        moved = self._step(self.manifest)
        self._failed = False
        return moved

    def _recovered(self) -> Manifest:
        manifest = self._commits.recover()
        self._commits.finish_build(manifest, self._now())
        return manifest

    def _step(self, base: Manifest) -> bool:
        definition = load(self._home, latest_version(self._home)).of_lane(self._commits.lane)
        logs = Logs(self._home, definition)
        now, began = self._now(), time.perf_counter()
        grants = self._granted(definition, logs, base, now)
        end = advance(base.offset, definition, logs, grants, now, settled_end=settled_end(self._home))
        if end == base.offset:
            return False
        mark_taken_repeats(end, logs)
        batch = Batch(base.offset, end)
        tasks = ranges(base.offset, end, self._tasks)
        threaded = sum(len(part) for parts in tasks for part in parts) >= THREADED

        def mapped(numbered: tuple[int, tuple[Range, ...]]) -> list[Message]:
            number, task_ranges = numbered
            groups = map_task(definition, logs, batch, task_ranges, number, now)
            return [message for messages in groups for message in messages]

        sent = [headers(batch, definition.tasks), *self._run_all(mapped, list(enumerate(tasks)), threaded)]
        task = Task(self._home, self._commits.lane, base.version + 1, self._epoch, base.states, now)

        def reduced(inbox: Inbox) -> Report:
            return reduce_bucket(task, definition, inbox)

        reports = self._run_all(reduced, _inboxes(sent, self._commits.lane, definition.tasks), threaded)
        took = time.perf_counter() - began
        self.manifest = self._commits.commit(base, self._epoch, base.batch + 1, reports, now, took)
        if self.manifest.version % SWEEP == 0:
            self.sweep()
        return True

    def _granted(self, definition: Definition, logs: Logs, base: Manifest, now: int) -> Grants:
        """Return what the next batch may take: what the gate allows, and of that what the governor grants, if there is one."""
        grants = replace(self._gate.grants(), at_once=self._at_once)
        if self._governor is None:
            return grants
        moment = time.monotonic()
        work = {stage: figures.work for stage, figures in base.totals.items()}
        decision = self._governor.decide(
            definition, base.offset, logs, grants, Feedback(self._tasks, work), now, moment
        )
        self._governor.show(self._home, base.offset, logs, now, moment)
        self.poll_after = decision.poll_after
        return decision.grants

    def is_idle(self) -> bool:
        """Whether everything that is in the logs now has been committed."""
        return is_caught_up(self._home, self._commits.lane, self.manifest.offset, self._started)

    def sweep(self) -> None:
        """Delete state and staged files that the last manifest does not name."""
        self._commits.sweep(self.manifest)

    def _run_all(self, work: Callable[[_T], _U], items: list[_T], threaded: bool) -> list[_U]:
        """The results of `work` for all items, in their order."""
        if not threaded or len(items) < 2:
            return [work(item) for item in items]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._tasks, "lane")
        running = [self._pool.submit(work, item) for item in items]
        wait(running)  # for all of them, also if one fails: when that is raised, no thread writes any more
        return [future.result() for future in running]


def _cleared(gate: FileGate) -> FileGate:
    """The gate without the grants of a run that has ended."""
    gate.clear()
    return gate


def _inboxes(sent: Iterable[list[Message]], lane: str, buckets: int) -> list[Inbox]:
    """The messages of all tasks, by bucket."""
    by_bucket: list[list[Message]] = [[] for _ in range(buckets)]
    for messages in sent:
        for message in messages:
            by_bucket[message.bucket].append(message)
    return [Inbox.of(bucket, lane, messages) for bucket, messages in enumerate(by_bucket)]
