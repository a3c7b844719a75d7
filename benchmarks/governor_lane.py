"""The governor on Spark: a pool of sleeping workers, many queues, arrivals in the background, and what came of it."""

from __future__ import annotations

import contextlib
import math
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.governor_scenarios import Poisson
from benchmarks.measure import cpu_seconds, median, until_idle
from benchmarks.operation_functions import SERVICE, serve
from hayase import Pipeline
from hayase.core.stages import OPERATIONS
from hayase.engine.batch.lane_governor import GovernorStatus, governor_status
from hayase.engine.commit.manifests import Manifest
from hayase.engine.spark.lanes import Lanes
from hayase.engine.spark.runner import run_lanes
from hayase.engine.spark.session import local_master, open_session
from hayase.streams import StreamLog

__all__ = ["Costs", "Pool", "costs", "idle_cpu", "keeps_up", "least", "pool", "session_of", "watched"]

SEED = 11
WINDOW = 5.0
"""Seconds over which loads are taken: a run is short."""
TICK = 0.2
"""Seconds between two appends to a queue."""
BEHIND = 2.5
"""A queue is too long if it holds what comes in so many seconds, and a few records: a batch takes about one second."""
FEW = 12
WARM_UP = 5.0
SETTLE = 12.0
"""Seconds before lengths and waits count: the first batches are slow, and what they leave behind is waited for."""


@dataclass(slots=True)
class Pool:
    """A pipeline at work: `queues` streams, one operation that reads them all, and the moments of its commits."""

    pipeline: Pipeline
    lanes: Lanes
    logs: list[StreamLog]
    output: StreamLog
    commits: list[tuple[float, int]]
    appended: int = 0

    def append(self, queue: int, count: int) -> None:
        """Put records into a queue; their time is that of the append."""
        now = time.time_ns() // 1000
        numbers = np.arange(self.appended, self.appended + count)
        self.appended += count
        self.logs[queue].append(pa.table({"time": np.full(count, now), "number": numbers}), now=now)

    def look(self) -> GovernorStatus:
        """What the governor wrote last."""
        until = time.monotonic() + 30
        while (found := governor_status(self.pipeline.home, OPERATIONS)) is None:
            if time.monotonic() > until:
                raise TimeoutError("the governor has seen nothing")
            time.sleep(0.05)
        return found

    @contextlib.contextmanager
    def arrivals(self, rates: np.ndarray) -> Iterator[None]:
        """Records come in the background, at these rates, each queue's by chance."""
        stop = threading.Event()
        failed: list[BaseException] = []

        def come() -> None:
            random, coming = np.random.default_rng(SEED), Poisson(rates)
            began = time.monotonic()
            at = 0.0
            try:
                while not stop.is_set():
                    _, to = coming.between(at, at + TICK, random)
                    at += TICK
                    stop.wait(max(0.0, began + at - time.monotonic()))
                    for queue, count in enumerate(np.bincount(to, minlength=len(rates)).tolist()):
                        if count:
                            self.append(queue, count)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=come, name="arrivals", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if failed:
            raise failed[0]

    def completions(self, since: float) -> np.ndarray:
        """Seconds from the append to the commit of the result, of all that was committed from a moment on."""
        found = [np.empty(0)]
        for (_, first), (moment, last) in zip(self.commits, self.commits[1:], strict=False):
            if moment >= since and last > first:
                times = [piece.rows.column("time").to_numpy() for piece in self.output.read(first, last)]
                found += [moment - each / 1e6 for each in times]
        return np.concatenate(found)


def session_of(slots: int) -> Any:
    """A session with so many task slots, whatever the cores: its tasks sleep."""
    return open_session(local_master(slots))


@contextlib.contextmanager
def pool(session: Any, queues: int, workers: int, policy: str, **options: float) -> Iterator[Pool]:
    """A pool at rest, with every worker warm: some records are done already."""
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as home:
        p = Pipeline("bench", home=home, buckets=workers)
        for number in range(queues):
            p.stream(f"q{number:03d}", "time bigint, number bigint", time="time", time_unit="us")
        p.operation(serve, reads="q*", writes="served", schema="number bigint", attempts=1)
        p.governor(policy, window=WINDOW, **options)
        p.apply()
        logs = [StreamLog.ensure(p.home.path, each) for each in p.declaration.streams]
        commits: list[tuple[float, int]] = []
        output = p.results("served").log
        commits.append((time.time(), output.index().next))

        def committed(manifest: Manifest) -> None:
            commits.append((time.time(), output.index().next))

        with run_lanes(p.home, session=session, awake=True, on_commit=committed) as lanes:
            made = Pool(p, lanes, logs, output, commits)
            for number in range(queues):
                made.append(number, max(1, math.ceil(4 * workers / queues)))
            until_idle(lanes, patience=120)
            yield made


# ---------------------------------------------------------------------------------------------------- what things cost


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of a worker: that a record takes, all in all, and that a batch costs whatever is in it."""

    record: float
    batch: float

    def visit(self, queues: int, seconds: float = 1.0) -> float:
        """What a visit that finds nothing costs: its part of the batch, in which a worker goes round all queues as often as there
        are `seconds` for."""
        visits = min(queues, 50)
        return self.batch / (visits * max(1, int(seconds / (visits * SERVICE))))


def costs(session: Any, workers: int, seconds: float) -> Costs:
    """Measure both under the informed policy, which makes no visit in vain: one record at a time, then a flood."""
    with pool(session, 1, workers, "informed", u=0.0) as one:
        took = []
        for _ in range(12):
            began = time.perf_counter()
            one.append(0, 1)
            until_idle(one.lanes)
            took.append(time.perf_counter() - began)
        one.append(0, math.ceil(workers * (seconds + 2) / SERVICE))
        first = len(one.commits)
        until_idle(one.lanes)
        whole = one.commits[first - 1 :][1:-1]  # the last batch is not full
        if len(whole) < 2:
            raise TimeoutError("the flood was over too soon")
        (began, start), (ended, end) = whole[0], whole[-1]
    return Costs(workers * (ended - began) / (end - start), max(0.0, median(took[4:]) - SERVICE))


# ---------------------------------------------------------------------------------------------------- figure 5


def keeps_up(session: Any, rates: np.ndarray, workers: int, policy: str, seconds: float) -> bool:
    """Whether so many workers are enough: no queue is longer at the end than what comes in a few seconds, nor grows on."""
    most = BEHIND * rates + FEW
    lengths: list[np.ndarray] = []
    with pool(session, len(rates), workers, policy) as found, found.arrivals(rates):
        began = time.monotonic()
        while time.monotonic() < began + WARM_UP + seconds:
            found.lanes.check()
            time.sleep(0.5)
            lengths.append(_lengths(found, len(rates)))
            if (lengths[-1] > 3 * most).any():
                return False
    late = np.mean(lengths[-6:], axis=0)
    return not (late > most).any()


def _lengths(found: Pool, queues: int) -> np.ndarray:
    """Records that were appended and are not done: the last batch counts until it is committed."""
    stage = found.lanes.manifest.offset.positions["served"]
    return np.array([found.logs[number].index().next - stage[f"q{number:03d}"].at for number in range(queues)])


def least(enough: Callable[[int], bool], guess: int, most: int) -> int | None:
    """The least number of workers that is enough, looked for up and down from a guess; None if `most` are not."""
    workers = min(max(guess, 1), most)
    if enough(workers):
        while workers > 1 and enough(workers - 1):
            workers -= 1
        return workers
    while workers < most:
        workers += 1
        if enough(workers):
            return workers
    return None


# ---------------------------------------------------------------------------------------------------- figure 8


def watched(session: Any, queues: int, workers: int, policy: str, seconds: float, **options: float) -> dict[str, float]:
    """A record a second in every queue: share of empty polls, length of a queue, seconds to completion."""
    lengths = []
    with pool(session, queues, workers, policy, **options) as found, found.arrivals(np.ones(queues)):
        _watch(found, SETTLE)
        before, since = found.look(), time.time()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            _watch(found, 0.25)
            lengths.append(float(_lengths(found, queues).mean()))
        after = found.look()
        took = found.completions(since)
    polls = after.polls - before.polls
    return {
        "empty_share": (after.empty - before.empty) / polls if polls else 0.0,
        "polls_per_second": polls / (after.at - before.at) * 1e6,
        "queue_length": float(np.mean(lengths)),
        "completion_seconds": float(took.mean()) if len(took) else math.inf,
        "service_seconds_seen": float(np.mean([each.service for each in after.queues])),
        "records_completed": len(took),
    }


def _watch(found: Pool, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found.lanes.check()
        time.sleep(min(0.25, seconds))


def idle_cpu(session: Any, queues: int, workers: int, policy: str, seconds: float, **options: float) -> float:
    """CPU seconds that all processes use in a second in which there is nothing to do."""
    with pool(session, queues, workers, policy, **options) as found:
        _watch(found, 3.0)
        before, began = cpu_seconds(), time.monotonic()
        _watch(found, seconds)
        return (cpu_seconds() - before) / (time.monotonic() - began)
