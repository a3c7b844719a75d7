"""The governor of a lane: which queues the next batch takes from, how much, and when to look at the logs again.

It runs in the process that plans batches. Grants are per queue. In the lane of operations a queue is a stream as one stage
reads it, since each stage works by itself. In the main lane it is a stream, since the stages that read it share a pass: all get
the same grant and so stay at the same position, and the service time of a record is the sum over all of them.

The definition gives the policy and its options under `governor`. The pipeline's process sends task slots and work done through
the gate (`Feedback`). The governor writes what it measures to a small file, for the display and `/metrics`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson

from hayase.core.data_classes import dataclass
from hayase.core.declarations import GovernorDeclaration
from hayase.core.stages import MAIN, OPERATIONS
from hayase.engine.batch.gate import Feedback, Grants
from hayase.engine.batch.offsets import Offset, halted_stages
from hayase.engine.definition.definitions import Definition
from hayase.engine.home import Home
from hayase.engine.logs import end_of, index_of
from hayase.governor import Governor, Informed, Policy, policy_named
from hayase.governor.loads import THRESHOLD, WINDOW
from hayase.streams import StreamLog
from hayase.streams.durable import make_directory, write_volatile

__all__ = [
    "GovernorStatus",
    "LaneDecision",
    "LaneGovernor",
    "Queue",
    "QueueStatus",
    "governor_status",
    "governor_statuses",
    "policy_of",
]

LEAST_ROWS = 20_000
"""The least grant of a stream in the main lane: a batch costs as much by itself as processing so many records."""
SHOWN_EVERY = 0.5
"""Seconds between two writings of the measurements."""


@dataclass(frozen=True, slots=True)
class _Defaults:
    """Options of a lane that declares none: seconds of work per worker in a batch, the assumed service time of a record before
    one was measured, the longest pause between two looks, the seconds over which loads are measured, and the most seconds of work
    per worker in a batch if batches cost much by themselves: while a queue may have to wait for it, and if none has to."""

    seconds: float
    guess: float
    longest: float
    window: float
    most_seconds: float
    most_alone: float


_DEFAULTS = {
    OPERATIONS: _Defaults(seconds=1.0, guess=0.05, longest=0.25, window=WINDOW, most_seconds=4.0, most_alone=8.0),
    # large batches are worth their cost, and the service time of a record depends on the size of the batch
    MAIN: _Defaults(seconds=5.0, guess=1e-6, longest=0.05, window=5.0, most_seconds=5.0, most_alone=5.0),
}
WORTH = 20.0
"""How many times as much work as it costs by itself a batch gets while there is a backlog, within the bounds of the lane."""


class Queue(NamedTuple):
    """A stream as one stage reads it; in the main lane as all stages read it, and `stage` is empty."""

    stage: str
    stream: str


class LaneDecision(NamedTuple):
    """The result of a look at the logs: what may be taken now, and after how many seconds to look again if that is nothing or
    is all that there was."""

    grants: Grants
    poll_after: float


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Measurements of one queue: arrival rate (records per second), service time (seconds per record), load, its share of the
    work that was granted lately, how many records wait, for how many seconds the oldest has waited, visits, and visits that
    found it empty."""

    stage: str
    stream: str
    rate: float
    service: float
    load: float
    share: float
    waiting: int
    waited: float
    polls: int
    empty: int

    @property
    def name(self) -> str:
        return f"{self.stage} ← {self.stream}" if self.stage else self.stream


@dataclass(frozen=True, slots=True)
class GovernorStatus:
    """Measurements of a lane's governor at time `at`. A look at which all queues were empty counts as an empty poll of none of
    them."""

    lane: str
    policy: str
    slots: int
    at: int
    polls: int
    empty: int
    queues: tuple[QueueStatus, ...] = ()
    u: float | None = None
    """The dial of the policy; None if it has none."""

    @property
    def load(self) -> float:
        """S of paper 3: the least number of workers that can keep up."""
        return sum(queue.load for queue in self.queues)


def governor_status(home: Home, lane: str) -> GovernorStatus | None:
    """The last measurements that the governor of a lane wrote; None if there are none that can be read."""
    try:
        data = orjson.loads(_status_path(home, lane).read_bytes())
        return GovernorStatus(**{**data, "queues": tuple(QueueStatus(**fields) for fields in data["queues"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def governor_statuses(home: Home) -> tuple[GovernorStatus, ...]:
    """The last measurements of the governors of all lanes."""
    by_lane = (governor_status(home, lane) for lane in (MAIN, OPERATIONS))
    return tuple(measured for measured in by_lane if measured is not None)


def _status_path(home: Home, lane: str) -> Path:
    return home.gate(lane).with_suffix(".seen.json")


def policy_of(declaration: GovernorDeclaration, lane: str) -> Policy:
    """The declared policy; the informed one gets the defaults of the lane for options that are not declared."""
    defaults, options = _DEFAULTS[lane], dict(declaration.options)
    if declaration.policy == "informed":
        options.setdefault("seconds", declaration.seconds or defaults.seconds)
        options.setdefault("longest", defaults.longest)
    return policy_named(declaration.policy, **options)


def _only_options_differ(one: GovernorDeclaration, other: GovernorDeclaration) -> bool:
    """Whether a governor can go on with its measurements under another declaration."""
    return one != other and replace(one, options=()) == replace(other, options=())


def queues_of(definition: Definition, lane: str) -> dict[Queue, tuple[str, ...]]:
    """The queues of a lane, and the stages that take from each."""
    queues: dict[Queue, list[str]] = {}
    for record in definition.records:
        for stream in record.inputs:
            queues.setdefault(Queue("" if lane == MAIN else record.name, stream), []).append(record.name)
    return {queue: tuple(stages) for queue, stages in queues.items()}


@dataclass(slots=True)
class _Account:
    """Totals of a queue: records and seconds of work, visits, visits that found it empty."""

    records: int = 0
    seconds: float = 0.0
    polls: int = 0
    empty: int = 0
    granted: float = 0.0
    """Seconds of work granted; they decay with time."""
    oldest: tuple[int, int] = (-1, 0)
    """The offset of the oldest waiting record, and when it was written."""


@dataclass(slots=True)
class _Pending:
    """A decision that is not carried out yet: the seconds of work granted to each queue, the rest after it, when it was taken and
    for how many workers, how many seconds of work had been done by then, and whether there was a backlog."""

    start: Offset
    seconds: Mapping[Queue, float]
    rest: float
    moment: float
    workers: int
    worked: float
    backlog: bool


@dataclass(slots=True)
class LaneGovernor:
    """Decides for one lane. Reads no clock: `now` is the time in microseconds, `moment` a monotonic clock in seconds."""

    lane: str
    slots: int = 1
    """How many tasks can run at once, while no feedback says so."""
    left_behind: bool = False
    """Whether more waited at the last look than was granted."""
    _version: int = 0
    _buckets: int = 1
    _declaration: GovernorDeclaration = field(default_factory=GovernorDeclaration)
    _policy: Policy | None = None
    _governor: Governor | None = None
    _queues: Mapping[Queue, tuple[str, ...]] = field(default_factory=dict)
    _accounts: dict[Queue, _Account] = field(default_factory=dict)
    _feedback: Feedback = field(default_factory=Feedback)
    _waiting: Mapping[Queue, int] = field(default_factory=dict)
    _pending: _Pending | None = None
    _rests_until: float = -math.inf
    _cost: float | None = None
    """Seconds that a batch with a backlog takes besides its work, smoothed; None before the first one."""
    _decayed_at: float = 0.0
    _looks: int = 0
    _shown_at: float = -math.inf

    def sees_ends(self) -> bool:
        """Whether the policy decides by what waits. Otherwise it walks lists, and a second look at once would be another
        visit."""
        return self._policy is None or self._policy.sees_ends

    def decide(
        self,
        definition: Definition,
        start: Offset,
        logs: Mapping[str, StreamLog],
        order: Grants,
        feedback: Feedback,
        now: int,
        moment: float,
    ) -> LaneDecision:
        """Decide what a batch from `start` on may take; at most what `order`, the grants of the gate, allows."""
        if not order.open or definition.version != start.definition:
            return LaneDecision(order, 0.0)
        governor = self._governor_for(definition, logs, moment)
        self._buckets = definition.buckets
        self._add_work(feedback)
        ends = self._ends(logs)
        self._observe(governor, ends, moment)
        self._account_pending(start, moment)
        halted = halted_stages(start, definition, logs, order.at_once, now)
        self._waiting = self._count_waiting(start, ends, halted)
        if moment < self._rests_until:
            self.left_behind = False
            return LaneDecision(replace(order, queues={}), self._rests_until - moment)
        if not self._queues:  # a lane without stages
            self.left_behind = False
            return LaneDecision(replace(order, queues={}), _DEFAULTS[self.lane].longest)
        if self._cost is not None:
            self._weigh_cost(self._cost)
        waiting = np.array([self._waiting[key] for key in self._queues], np.int64)
        decision = governor.decide(moment, self._workers, waiting)
        granted = {queue: count for queue, count in decision.records.items() if isinstance(queue, Queue)}
        self.left_behind = any(count > granted.get(queue, 0) for queue, count in self._waiting.items())
        self._remember(start, granted, decision.poll_after, moment)
        firings = [time for stage, time in halted.items() if time is not None and self._has_records(start, stage, logs)]
        poll_after = min([decision.poll_after, *((time - now) / 1e6 for time in firings)])
        return LaneDecision(replace(order, queues=self._by_stage(granted, order.limit)), poll_after)

    def _has_records(self, start: Offset, stage: str, logs: Mapping[str, StreamLog]) -> bool:
        return any(position.at < end_of(logs[stream]) for stream, position in start.positions[stage].items())

    @property
    def _workers(self) -> int:
        """G of paper 3: as many workers as slots, but at most as many as buckets, each of which is one task."""
        return max(1, min(self._feedback.slots or self.slots, self._buckets))

    def _governor_for(self, definition: Definition, logs: Mapping[str, StreamLog], moment: float) -> Governor:
        """The governor for a definition; queues that remain keep their measurements."""
        if self._governor is not None and definition.version == self._version:
            return self._governor
        declaration = definition.declaration.governor or GovernorDeclaration()
        self._queues = queues_of(definition, self.lane)
        self._accounts = {queue: self._accounts.get(queue, _Account()) for queue in self._queues}
        if self._governor is not None and _only_options_differ(declaration, self._declaration):
            self._declaration, self._policy = declaration, policy_of(declaration, self.lane)
            self._governor.replace_queues(list(self._queues))
            self._governor.use(self._policy)
        elif self._governor is None or declaration != self._declaration:
            defaults = _DEFAULTS[self.lane]
            self._policy = policy_of(declaration, self.lane)
            self._governor = Governor(
                self._policy,
                list(self._queues),
                seconds=declaration.seconds or defaults.seconds,
                window=declaration.window or defaults.window,
                threshold=declaration.threshold or THRESHOLD,
                guess=defaults.guess,
            )
            nothing = np.zeros(len(self._queues))  # so that all work so far counts for the service time
            self._governor.observe(moment, self._ends(logs), nothing, nothing)
        else:
            self._governor.replace_queues(list(self._queues))
        self._version, self._declaration, self._pending = definition.version, declaration, None
        return self._governor

    def _add_work(self, feedback: Feedback) -> None:
        """Add the work since the last feedback to the accounts: in the main lane the seconds of all stages for the records of
        one."""
        if feedback is self._feedback:
            return
        for queue, stages in self._queues.items():
            records, seconds = 0, 0.0
            for stage in stages:
                done, took = feedback.work.get(stage, {}).get(queue.stream, (0, 0.0))
                before, spent = self._feedback.work.get(stage, {}).get(queue.stream, (0, 0.0))
                was_reset = done < before
                records = max(records, done if was_reset else done - before)
                seconds += took if was_reset else max(0.0, took - spent)
            self._accounts[queue].records += records
            self._accounts[queue].seconds += seconds
        self._feedback = feedback

    def _ends(self, logs: Mapping[str, StreamLog]) -> np.ndarray:
        ends = {stream: end_of(logs[stream]) for stream in {queue.stream for queue in self._queues}}
        return np.array([ends[queue.stream] for queue in self._queues], np.int64)

    def _observe(self, governor: Governor, ends: np.ndarray, moment: float) -> None:
        accounts = self._accounts.values()
        seconds, records = np.array([own.seconds for own in accounts]), np.array([own.records for own in accounts])
        governor.observe(moment, ends, seconds, records)

    def _count_waiting(self, start: Offset, ends: np.ndarray, halted: Mapping[str, object]) -> dict[Queue, int]:
        """How many records of each queue could be taken now; those of the stage that is farthest behind count."""
        waiting = {}
        for (queue, stages), end in zip(self._queues.items(), ends.tolist(), strict=True):
            offsets = [start.positions[stage][queue.stream].at for stage in stages if stage not in halted]
            waiting[queue] = max(0, end - min(offsets, default=end))
        return waiting

    def _by_stage(self, granted: Mapping[Queue, int], limit: int) -> dict[str, dict[str, int]]:
        """The grants of queues, by stage and stream."""
        grants: dict[str, dict[str, int]] = {}
        for queue, count in granted.items():
            if self.lane == MAIN:  # records that come after the look are not worth a batch of their own
                count = limit if count >= self._waiting[queue] > 0 else max(count, LEAST_ROWS)
            for stage in self._queues[queue]:
                grants.setdefault(stage, {})[queue.stream] = count
        return grants

    # -- results of decisions -------------------------------------------------------------------------------------------
    def _remember(self, start: Offset, granted: Mapping[Queue, int], rest: float, moment: float) -> None:
        """Remember a decision. Visits to empty queues are counted at once, the others when the batch is done."""
        assert self._governor is not None
        rest = 0.0 if self.sees_ends() else rest
        service = dict(zip(self._queues, self._governor.loads.service.tolist(), strict=True))
        taken = {queue: min(count, self._waiting[queue]) for queue, count in granted.items() if self._waiting[queue]}
        self._looks += not granted
        for queue in granted.keys() - taken.keys():
            self._accounts[queue].polls += 1
            self._accounts[queue].empty += 1
        if taken:
            seconds = {queue: count * service[queue] for queue, count in taken.items()}
            self._pending = _Pending(start, seconds, rest, moment, self._workers, self._worked, self.left_behind)
        else:
            self._rests_until = moment + rest

    def _account_pending(self, start: Offset, moment: float) -> None:
        """Count the last decision if the lane has carried it out; a policy that walks lists rests after it."""
        pending, self._pending = self._pending, None
        if pending is None or pending.start == start:
            return
        self._decay(moment)
        for queue, seconds in pending.seconds.items():
            self._accounts[queue].polls += 1
            self._accounts[queue].granted += seconds
        self._rests_until = moment + pending.rest
        if pending.backlog:
            cost = moment - pending.moment - (self._worked - pending.worked) / pending.workers
            before = max(0.0, cost) if self._cost is None else self._cost
            self._cost = before + (max(0.0, cost) - before) / 4

    @property
    def _worked(self) -> float:
        """Seconds of work on all queues so far."""
        return sum(account.seconds for account in self._accounts.values())

    def _weigh_cost(self, cost: float) -> None:
        """Let the informed policy grant more at once where batches cost much by themselves, unless the seconds are declared. A
        queue then waits longer for its turn, and more gets done."""
        defaults, options = _DEFAULTS[self.lane], dict(self._declaration.options)
        if isinstance(self._policy, Informed) and not (self._declaration.seconds or "seconds" in options):
            assert self._governor is not None
            most = defaults.most_seconds if self._some_may_wait() else defaults.most_alone
            seconds = min(max(defaults.seconds, WORTH * cost), most)
            self._governor.use(replace(self._policy, seconds=seconds))

    def _some_may_wait(self) -> bool:
        """Whether the next record of a queue could have to wait for a batch of others' work: not if it is the only queue, nor if
        more records wait in every queue than its share of a batch, since they come before it."""
        assert self._governor is not None
        service = self._governor.loads.service.tolist()
        share = _DEFAULTS[self.lane].most_seconds * self._workers / len(self._queues)
        least = min(self._waiting[queue] * seconds for queue, seconds in zip(self._queues, service, strict=True))
        return len(self._queues) > 1 and least <= share

    def _decay(self, moment: float) -> None:
        assert self._governor is not None
        window = self._declaration.window or _DEFAULTS[self.lane].window
        factor = math.exp(-max(0.0, moment - self._decayed_at) / window)
        self._decayed_at = moment
        for account in self._accounts.values():
            account.granted *= factor

    def view(self, start: Offset, logs: Mapping[str, StreamLog], now: int) -> GovernorStatus:
        """The measurements as of the last look, which was from `start` on. The logs may be those of a newer definition, which does
        not have all of these queues."""
        assert self._governor is not None
        known = {*logs}
        loads, accounts = self._governor.loads, self._accounts
        total = sum(account.granted for account in accounts.values())
        figures = zip(self._queues.items(), loads.rate.tolist(), loads.service.tolist(), strict=True)
        queues = tuple(
            QueueStatus(
                stage=queue.stage,
                stream=queue.stream,
                rate=rate,
                service=service,
                load=rate * service,
                share=accounts[queue].granted / total if total > 0 else 0.0,
                waiting=self._waiting[queue],
                waited=self._seconds_waited(queue, stages, start, logs[queue.stream], now)
                if self._waiting[queue] and queue.stream in known
                else 0.0,
                polls=accounts[queue].polls,
                empty=accounts[queue].empty,
            )
            for (queue, stages), rate, service in figures
        )
        polls, empty = sum(measured.polls for measured in queues), sum(measured.empty for measured in queues)
        return GovernorStatus(
            self.lane, self._declaration.policy, self._workers, now, polls + self._looks, empty + self._looks, queues,
            getattr(self._policy, "u", None),
        )  # fmt: skip

    def show(self, home: Home, start: Offset, logs: Mapping[str, StreamLog], now: int, moment: float) -> None:
        """Write the measurements, unless that was done a moment ago. A failure to write is ignored."""
        if self._governor is not None and self._version == start.definition and moment >= self._shown_at + SHOWN_EVERY:
            self._shown_at = moment
            path, text = _status_path(home, self.lane), orjson.dumps(asdict(self.view(start, logs, now)))
            with contextlib.suppress(OSError):
                make_directory(path.parent)
                write_volatile(path, text)

    def _seconds_waited(self, queue: Queue, stages: tuple[str, ...], start: Offset, log: StreamLog, now: int) -> float:
        """Seconds since the oldest waiting record was written."""
        index = index_of(log)
        if index is None:
            return 0.0
        at = max(index.start, min(start.positions[stage][queue.stream].at for stage in stages))
        account = self._accounts[queue]
        if at >= index.next:
            return 0.0
        if account.oldest[0] != at:
            account.oldest = (at, log.written_at(at))
        return max(0, now - account.oldest[1]) / 1e6
