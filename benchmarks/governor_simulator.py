"""A discrete-event simulator of governor policies, with thousands of queues and workers, any arrivals and any service times.

The policies are those that run in a lane. Under a policy that does not see the ends of the logs, each worker walks from queue to
queue by itself, like the filters of paper 3; a visit that finds nothing costs the worker `empty_poll` seconds. Under a policy that
sees them there is one gate: while a worker is free, it polls all ends at once, which takes `empty_poll` seconds too, and hands out
waiting records; a poll that finds nothing counts as empty.

Loads are measured, by the same meter as in a lane, and published by its notices. Equal scenarios and seeds give equal outcomes.

Cost: a heap of workers, about 2 microseconds per poll; arrivals are drawn and sorted one second at a time; polls in an idle period
are counted, not simulated.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace

import numpy as np

from benchmarks.governor_scenarios import Factors, Outcome, Scenario
from hayase.governor.loads import LoadMeter
from hayase.governor.policy import SHORTEST_SERVICE, Asker, Policy, QueueState, Round, waiting_since

__all__ = ["simulate"]

CHUNK = 4096
TICK = 1.0
"""Seconds between two samples of queue lengths and loads."""


def simulate(scenario: Scenario, policy: Policy, seed: int = 0) -> Outcome:
    """Simulate a scenario under a policy.

    >>> from hayase.governor import Adaptive
    >>> from benchmarks.governor_scenarios import Poisson
    >>> pool = Scenario(Poisson(np.full(30, 1.0)), np.full(30, 0.1), workers=28, seconds=60.0, empty_poll=0.01)
    >>> simulate(pool, Adaptive(u=0.0)).empty_share > 0.98
    True
    """
    pool = _Pool(scenario, policy, seed)
    drive: _Gate | _Walkers = _Gate(pool) if policy.sees_ends else _Walkers(pool)
    at = 0.0
    while at < scenario.seconds and not pool.failed:
        stop = min(at + TICK, scenario.seconds)
        pool.arrive(at, stop)
        drive.until(at, stop)
        pool.sample(stop)
        at = stop
    return pool.outcome(at)


class _Pool:
    """Queues, counters and measured loads, used by both ways to drive the workers."""

    def __init__(self, scenario: Scenario, policy: Policy, seed: int) -> None:
        self.scenario, self.policy = scenario, policy
        count = scenario.arrivals.queues
        self._coming, serving = (np.random.default_rng((seed, stream)) for stream in range(2))
        self.factors = _stream(scenario.factors, serving)
        self.means: list[float] = scenario.service.tolist()
        self.queues: list[deque[float]] = [deque() for _ in range(count)]
        self.times, self.to = np.empty(0), np.empty(0, np.int64)
        self.workers = scenario.workers
        self._changes = deque(scenario.changes)
        self._meter = LoadMeter(range(count), window=scenario.window, threshold=scenario.threshold)
        self._ends = np.zeros(count, np.int64)
        self.served, self.worked = [0] * count, [0.0] * count
        self._meter.observe(0.0, self._ends, np.array(self.worked), np.array(self.served))
        self.state = QueueState(self._meter.loads, self.workers, np.zeros(count, np.int64), np.zeros(count))
        self.failed = False
        self._stop = 0.0
        self._taken: list[tuple[float, int]] = []  # records of a worker whose service begins after this second
        self._counts_from_now()

    def _counts_from_now(self) -> None:
        self.polls = self.empty = self.notices = 0
        self.rested = 0.0
        self.waits, self.services = array("d"), array("d")
        self._lengths: list[np.ndarray] = []
        self._served_before = np.array(self.served)
        self._arrived_before = int(self._ends.sum())

    def arrive(self, start: float, stop: float) -> None:
        """Add the arrivals up to `stop`; a worker takes a record only once its time has come."""
        self._stop = stop
        self.times, self.to = self.scenario.arrivals.between(start, stop, self._coming)
        for time, queue in zip(self.times.tolist(), self.to.tolist(), strict=True):
            self.queues[queue].append(time)
        self._ends = self._ends + np.bincount(self.to, minlength=len(self.queues))

    def serve(self, queue: int, now: float) -> float:
        """Serve the first record of a queue from `now`; return the time of completion."""
        service = self.means[queue] * next(self.factors)
        self.waits.append(now - self.queues[queue].popleft())
        if now >= self._stop:
            self._taken.append((now, queue))
        self.services.append(service)
        self.served[queue] += 1
        self.worked[queue] += service
        return now + service

    def sample(self, now: float) -> None:
        """At the end of a second, sample lengths and loads and change the number of workers."""
        served = np.array(self.served)
        self._taken = [taken for taken in self._taken if taken[0] >= now]
        lengths = self._ends - served
        np.add.at(lengths, [queue for _, queue in self._taken], 1)
        self._lengths.append(lengths)
        self.failed = bool(lengths.max() > self.scenario.limit)
        while self._changes and self._changes[0][0] <= now:
            self.workers = self._changes.popleft()[1]
        self.notices += self._meter.observe(now, self._ends, np.array(self.worked), served)
        self.state = QueueState(self._meter.loads, self.workers, self.state.waiting, self.state.since)
        if now - TICK < self.scenario.warmup <= now:
            self._counts_from_now()

    def outcome(self, seconds: float) -> Outcome:
        served, lengths = np.array(self.served), np.array(self._lengths)
        return Outcome(
            seconds=seconds,
            failed=self.failed,
            arrived=int(self._ends.sum()) - self._arrived_before,
            served=served - self._served_before,
            waits=np.array(self.waits),
            services=np.array(self.services),
            lengths=lengths.mean(axis=1) if len(lengths) else np.empty(0),
            longest=int(lengths.max()) if len(lengths) else 0,
            left=int((self._ends - served).sum()),
            polls=self.polls,
            empty=self.empty,
            rested=self.rested,
            notices=self.notices,
        )


class _Walker:
    """A worker with its position in a list of queues."""

    __slots__ = ("number", "pause", "place", "queues", "records", "turn", "version")

    def __init__(self, number: int) -> None:
        self.number, self.turn, self.version = number, 0, -1
        self.place, self.pause = 0, 0.0
        self.queues: list[int] = []
        self.records: list[int] = []

    def ask(self, policy: Policy, state: QueueState) -> None:
        answer = policy.round(state, Asker(self.number, self.turn))
        self.turn += 1
        self.place, self.pause = 0, answer.pause
        self.queues, self.records = answer.queues.tolist(), answer.records.tolist()
        self.version = state.loads.version if answer.heeds_notices else -1


class _Walkers:
    """Workers that walk from queue to queue, each by its own lists from the policy."""

    def __init__(self, pool: _Pool) -> None:
        self._pool = pool
        self._walkers: list[_Walker] = []
        self._hired = 0
        self._heap: list[tuple[float, int]] = []

    def until(self, start: float, stop: float) -> None:
        self._hire(start)
        pool, heap, walkers = self._pool, self._heap, self._walkers
        policy, state, workers = pool.policy, pool.state, pool.workers
        queues, serve, empty_poll = pool.queues, pool.serve, pool.scenario.empty_poll
        version = state.loads.version
        polls = empty = 0
        rested = 0.0
        while heap and heap[0][0] < stop:
            now, number = heap[0]
            if number >= workers:
                heappop(heap)
                continue
            walker = walkers[number]
            if walker.place == len(walker.queues) or -1 < walker.version != version:
                walker.ask(policy, state)
            place = walker.place
            walker.place = place + 1
            queue = walker.queues[place]
            waiting = queues[queue]
            polls += 1
            if waiting and waiting[0] <= now:
                done = serve(queue, now)
                for _ in range(walker.records[place] - 1):
                    if not waiting or waiting[0] > now:
                        break
                    done = serve(queue, done)
            else:
                empty += 1
                done = now + empty_poll
            rested += walker.pause
            heapreplace(heap, (done + walker.pause, number))
        pool.polls += polls
        pool.empty += empty
        pool.rested += rested

    def _hire(self, now: float) -> None:
        """Start new workers, slightly staggered; surplus workers stop at their next visit."""
        pool = self._pool
        if pool.workers == self._hired:
            return
        self._hired = pool.workers
        at_work = {number for _, number in self._heap}
        for number in range(pool.workers):
            if number >= len(self._walkers):
                self._walkers.append(_Walker(number))
            if number not in at_work:
                heappush(self._heap, (now + number * pool.scenario.empty_poll / pool.workers, number))


class _Gate:
    """One gate that sees the ends of the logs and hands out work to free workers."""

    def __init__(self, pool: _Pool) -> None:
        self._pool = pool
        self._busy: list[float] = []
        self._look_at = 0.0
        self._turn = 0
        count = len(pool.queues)
        self._waiting, self._seen, self._since = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count)
        self._upto = 0

    def until(self, start: float, stop: float) -> None:
        pool, busy = self._pool, self._busy
        self._upto, self._look_at = 0, max(self._look_at, start)
        while True:
            free = pool.workers - len(busy)
            if free > 0 and (not busy or self._look_at <= busy[0]):
                if self._look_at >= stop:
                    break
                self._look(self._look_at, free, stop)
            elif busy and busy[0] < stop:
                done = heappop(busy)
                if free <= 0:  # no worker was free: poll at once if the last poll left records behind
                    self._look_at = done if self._seen.any() else max(done, self._look_at)
            else:
                break
        self._arrived(math.inf)

    def _arrived(self, now: float) -> None:
        """Count the arrivals since the last poll."""
        upto = int(np.searchsorted(self._pool.times, now, side="right"))
        if upto > self._upto:
            self._waiting += np.bincount(self._pool.to[self._upto : upto], minlength=len(self._waiting))
            self._upto = upto

    def _look(self, now: float, free: int, stop: float) -> None:
        pool = self._pool
        self._arrived(now)
        self._since = waiting_since(self._since, self._seen, self._waiting, now)
        state = QueueState(pool.state.loads, pool.workers, self._waiting, self._since)
        answer = pool.policy.round(state, Asker(0, self._turn, free))
        self._turn += 1
        if len(answer.queues):
            self._hand_out(answer, free, now + pool.scenario.empty_poll)
            self._waiting[answer.queues] -= answer.records
            self._since[answer.queues] = now
            self._look_at = now + answer.poll_after
        else:  # polls before the next arrival are only counted
            times = pool.times
            coming = float(times[self._upto]) if self._upto < len(times) else stop
            looks = max(1, math.ceil((min(coming, stop) - now) / answer.poll_after))
            pool.polls += looks
            pool.empty += looks
            self._look_at = now + looks * answer.poll_after
        self._seen = self._waiting.copy()

    def _hand_out(self, answer: Round, free: int, now: float) -> None:
        """Divide the records into portions of about equal work, one for each free worker."""
        pool = self._pool
        queues = np.repeat(answer.queues, answer.records)
        service = np.maximum(pool.state.loads.service[queues], SHORTEST_SERVICE)
        before = np.cumsum(service) - service
        pieces = min(free, len(queues))
        piece = np.minimum((before * (pieces / service.sum()) * (1 + 1e-9)).astype(np.int64), pieces - 1)
        last, done, last_queue = -1, now, -1
        for number, queue in zip(piece.tolist(), queues.tolist(), strict=True):
            if number != last:
                if last >= 0:
                    heappush(self._busy, done)
                last, done, last_queue = number, now, -1
            if queue != last_queue:
                pool.polls += 1
                last_queue = queue
            done = pool.serve(queue, done)
        heappush(self._busy, done)


def _stream(factors: Factors, random: np.random.Generator) -> Iterator[float]:
    while True:
        yield from factors(random, CHUNK).tolist()
