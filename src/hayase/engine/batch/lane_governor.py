"""The governor of a lane, where its batches are planned: which streams the next batch takes from, how much, when to look.

A queue is what is granted as one. In the lane of operations that is a stream as one stage reads it, since each works on
its own; in the main lane a stream, since the stages that read it go through it in one pass: all get the same grant, and so
stay at one place. What a record takes there is what all of them take.

Policy and options are what the definition says under `governor`. What only the pipeline's process knows, task slots and work
done, it tells through the gate. What is seen here goes into a small file, for those who watch.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson

from hayase.core.declarations import GovernorDeclaration
from hayase.core.stages import MAIN, OPERATIONS
from hayase.engine.batch.gate import Feedback, Grants
from hayase.engine.batch.offsets import Offset, halted_stages
from hayase.engine.definition.definitions import Definition
from hayase.engine.home import Home
from hayase.engine.logs import end_of, index_of
from hayase.governor import Governor, Policy, policy_named
from hayase.governor.loads import THRESHOLD, WINDOW
from hayase.streams import StreamLog
from hayase.streams.durable import make_directory, write_volatile

__all__ = ["LaneGovernor", "Look", "Queue", "QueueSeen", "Seen", "policy_of", "seen", "seen_of"]

LEAST_ROWS = 20_000
"""Records that a stream of the main lane gives to a batch, if it gives any: a batch costs as much by itself."""
SHOWN_EVERY = 0.5
"""Seconds between two writings of what is seen."""


@dataclass(frozen=True, slots=True)
class _Defaults:
    """What holds in a lane where nothing is declared: seconds of work for every worker in a batch, what a record is taken to
    need while none was seen, how long nobody looks at most, and over how many seconds loads are taken."""

    seconds: float
    guess: float
    longest: float
    window: float


_DEFAULTS = {
    OPERATIONS: _Defaults(seconds=1.0, guess=0.05, longest=0.25, window=WINDOW),
    # a batch is worth its cost if it is large, and how long a record takes depends on how many come with it
    MAIN: _Defaults(seconds=5.0, guess=1e-6, longest=0.05, window=5.0),
}


class Queue(NamedTuple):
    """A stream as one stage reads it; as all stages of the main lane do, without a stage."""

    stage: str
    stream: str


class Look(NamedTuple):
    """What a look at the logs comes to: what may be taken now, and after how many seconds to look again if that is nothing,
    or if it is all that there was."""

    grants: Grants
    look_again: float


@dataclass(frozen=True, slots=True)
class QueueSeen:
    """One queue: records per second, seconds per record, its load, its share of the work that was granted of late, how many
    records wait, for how many seconds the oldest of them does, how often it was visited and found empty."""

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
class Seen:
    """What the governor of a lane sees and has done. A look at which no queue had anything counts as an empty poll too, of no
    queue's own."""

    lane: str
    policy: str
    slots: int
    at: int
    polls: int
    empty: int
    queues: tuple[QueueSeen, ...] = ()

    @property
    def load(self) -> float:
        """S: how many workers it takes at least."""
        return sum(each.load for each in self.queues)


def seen(home: Home, lane: str) -> Seen | None:
    """What the governor of a lane wrote last; None if there is nothing, or nothing that can be read."""
    try:
        data = orjson.loads(_seen_path(home, lane).read_bytes())
        return Seen(**{**data, "queues": tuple(QueueSeen(**each) for each in data["queues"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def seen_of(home: Home) -> tuple[Seen, ...]:
    """What the governors of all lanes wrote last."""
    found = (seen(home, lane) for lane in (MAIN, OPERATIONS))
    return tuple(each for each in found if each is not None)


def _seen_path(home: Home, lane: str) -> Path:
    return home.gate(lane).with_suffix(".seen.json")


def policy_of(declaration: GovernorDeclaration, lane: str) -> Policy:
    """The policy that is declared, with what is defaults in the lane for one that sees the ends of the logs."""
    defaults, options = _DEFAULTS[lane], dict(declaration.options)
    if declaration.policy == "informed":
        options.setdefault("seconds", declaration.seconds or defaults.seconds)
        options.setdefault("longest", defaults.longest)
    return policy_named(declaration.policy, **options)


def queues_of(definition: Definition, lane: str) -> dict[Queue, tuple[str, ...]]:
    """The queues of a lane, and the stages that each is for."""
    found: dict[Queue, list[str]] = {}
    for record in definition.records:
        for stream in record.inputs:
            found.setdefault(Queue("" if lane == MAIN else record.name, stream), []).append(record.name)
    return {queue: tuple(stages) for queue, stages in found.items()}


@dataclass(slots=True)
class _Account:
    """What is known of a queue besides its load."""

    records: int = 0
    seconds: float = 0.0
    polls: int = 0
    empty: int = 0
    granted: float = 0.0
    """Seconds of work that it was granted; those of long ago count for little."""
    oldest: tuple[int, int] = (-1, 0)
    """An offset, and when the record there was written."""


@dataclass(slots=True)
class _Pending:
    """A decision that may yet be carried out: the seconds of work that were found in each queue, and the rest after it."""

    start: Offset
    seconds: Mapping[Queue, float]
    rest: float


@dataclass(slots=True)
class LaneGovernor:
    """Decides for one lane. Reads no clock: `now` is the time in microseconds, `moment` any clock in seconds that only goes on."""

    lane: str
    slots: int = 1
    """How many tasks can run at once, if nobody tells."""
    left_behind: bool = False
    """Whether the last look saw more than it granted."""
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
    _decayed_at: float = 0.0
    _looks: int = 0
    _shown_at: float = -math.inf

    def sees_ends(self) -> bool:
        """Whether what waits decides; else it goes by lists, and a second look at once would be another visit."""
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
    ) -> Look:
        """What a batch from `start` on may take. `order` stands above all: nothing beyond it is granted."""
        if not order.open or definition.version != start.definition:
            return Look(order, 0.0)
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
            return Look(replace(order, queues={}), self._rests_until - moment)
        waiting = np.array([self._waiting[each] for each in self._queues], np.int64)
        decision = governor.decide(moment, self._workers, waiting)
        granted = {queue: count for queue, count in decision.records.items() if isinstance(queue, Queue)}
        self._remember(start, granted, decision.look_again, moment)
        self.left_behind = any(count > granted.get(queue, 0) for queue, count in self._waiting.items())
        firings = [each for stage, each in halted.items() if each is not None and self._has_records(start, stage, logs)]
        look_again = min([decision.look_again, *((each - now) / 1e6 for each in firings)])
        return Look(replace(order, queues=self._by_stage(granted, order.limit)), look_again)

    def _has_records(self, start: Offset, stage: str, logs: Mapping[str, StreamLog]) -> bool:
        return any(each.at < end_of(logs[stream]) for stream, each in start.positions[stage].items())

    @property
    def _workers(self) -> int:
        """G: as many as there are slots, but no more than there are buckets, each of which is one task."""
        return max(1, min(self._feedback.slots or self.slots, self._buckets))

    def _governor_for(self, definition: Definition, logs: Mapping[str, StreamLog], moment: float) -> Governor:
        """The governor of what the definition has, with what is known of the queues that stay."""
        if self._governor is not None and definition.version == self._version:
            return self._governor
        declaration = definition.declaration.governor or GovernorDeclaration()
        self._queues = queues_of(definition, self.lane)
        self._accounts = {each: self._accounts.get(each, _Account()) for each in self._queues}
        if self._governor is None or declaration != self._declaration:
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
            nothing = np.zeros(len(self._queues))  # so that all that was ever done says what a record takes
            self._governor.observe(moment, self._ends(logs), nothing, nothing)
        else:
            self._governor.among(list(self._queues))
        self._version, self._declaration, self._pending = definition.version, declaration, None
        return self._governor

    def _add_work(self, feedback: Feedback) -> None:
        """Add to the accounts what was done since the last telling; in the main lane by all stages, on the records of one."""
        if feedback is self._feedback:
            return
        for queue, stages in self._queues.items():
            records, seconds = 0, 0.0
            for stage in stages:
                done, took = feedback.work.get(stage, {}).get(queue.stream, (0, 0.0))
                before, spent = self._feedback.work.get(stage, {}).get(queue.stream, (0, 0.0))
                anew = done < before
                records = max(records, done if anew else done - before)
                seconds += took if anew else max(0.0, took - spent)
            self._accounts[queue].records += records
            self._accounts[queue].seconds += seconds
        self._feedback = feedback

    def _ends(self, logs: Mapping[str, StreamLog]) -> np.ndarray:
        known = {stream: end_of(logs[stream]) for stream in {each.stream for each in self._queues}}
        return np.array([known[each.stream] for each in self._queues], np.int64)

    def _observe(self, governor: Governor, ends: np.ndarray, moment: float) -> None:
        accounts = self._accounts.values()
        seconds, records = np.array([each.seconds for each in accounts]), np.array([each.records for each in accounts])
        governor.observe(moment, ends, seconds, records)

    def _count_waiting(self, start: Offset, ends: np.ndarray, halted: Mapping[str, object]) -> dict[Queue, int]:
        """Records of each queue that a stage could take now: as many as the one that is farthest behind."""
        found = {}
        for (queue, stages), end in zip(self._queues.items(), ends.tolist(), strict=True):
            places = [start.positions[each][queue.stream].at for each in stages if each not in halted]
            found[queue] = max(0, end - min(places, default=end))
        return found

    def _by_stage(self, granted: Mapping[Queue, int], limit: int) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for queue, count in granted.items():
            if self.lane == MAIN:  # what comes after the look is not worth a batch of its own
                count = limit if count >= self._waiting[queue] > 0 else max(count, LEAST_ROWS)
            for stage in self._queues[queue]:
                found.setdefault(stage, {})[queue.stream] = count
        return found

    # -- what comes of it -----------------------------------------------------------------------------------------------
    def _remember(self, start: Offset, granted: Mapping[Queue, int], rest: float, moment: float) -> None:
        """Remember a decision; visits that find nothing are over at once, the others when the batch is done."""
        assert self._governor is not None
        rest = 0.0 if self.sees_ends() else rest
        service = dict(zip(self._queues, self._governor.loads.service.tolist(), strict=True))
        found = {queue: min(count, self._waiting[queue]) for queue, count in granted.items() if self._waiting[queue]}
        self._looks += not granted
        for queue in granted.keys() - found.keys():
            self._accounts[queue].polls += 1
            self._accounts[queue].empty += 1
        if found:
            self._pending = _Pending(start, {queue: count * service[queue] for queue, count in found.items()}, rest)
        else:
            self._rests_until = moment + rest

    def _account_pending(self, start: Offset, moment: float) -> None:
        """Note that the last decision was carried out, if the lane has come on since; who goes by lists rests after it."""
        pending, self._pending = self._pending, None
        if pending is None or pending.start == start:
            return
        self._decay(moment)
        for queue, seconds in pending.seconds.items():
            self._accounts[queue].polls += 1
            self._accounts[queue].granted += seconds
        self._rests_until = moment + pending.rest

    def _decay(self, moment: float) -> None:
        assert self._governor is not None
        window = self._declaration.window or _DEFAULTS[self.lane].window
        factor = math.exp(-max(0.0, moment - self._decayed_at) / window)
        self._decayed_at = moment
        for each in self._accounts.values():
            each.granted *= factor

    def view(self, start: Offset, logs: Mapping[str, StreamLog], now: int) -> Seen:
        """What is seen, as of the last look from `start` on."""
        assert self._governor is not None
        loads, accounts = self._governor.loads, self._accounts
        total = sum(each.granted for each in accounts.values())
        figures = zip(self._queues.items(), loads.rate.tolist(), loads.service.tolist(), strict=True)
        queues = tuple(
            QueueSeen(
                stage=queue.stage,
                stream=queue.stream,
                rate=rate,
                service=service,
                load=rate * service,
                share=accounts[queue].granted / total if total > 0 else 0.0,
                waiting=self._waiting[queue],
                waited=self._seconds_waited(queue, stages, start, logs[queue.stream], now)
                if self._waiting[queue]
                else 0.0,
                polls=accounts[queue].polls,
                empty=accounts[queue].empty,
            )
            for (queue, stages), rate, service in figures
        )
        polls, empty = sum(each.polls for each in queues), sum(each.empty for each in queues)
        return Seen(
            self.lane, self._declaration.policy, self._workers, now, polls + self._looks, empty + self._looks, queues
        )

    def show(self, home: Home, start: Offset, logs: Mapping[str, StreamLog], now: int, moment: float) -> None:
        """Write what is seen, unless that was done a moment ago; a disk that refuses it stops nobody."""
        if self._governor is not None and self._version == start.definition and moment >= self._shown_at + SHOWN_EVERY:
            self._shown_at = moment
            path, found = _seen_path(home, self.lane), orjson.dumps(asdict(self.view(start, logs, now)))
            with contextlib.suppress(OSError):
                make_directory(path.parent)
                write_volatile(path, found)

    def _seconds_waited(self, queue: Queue, stages: tuple[str, ...], start: Offset, log: StreamLog, now: int) -> float:
        """Seconds since the oldest record that waits was written."""
        index = index_of(log)
        if index is None:
            return 0.0
        at = max(index.start, min(start.positions[each][queue.stream].at for each in stages))
        account = self._accounts[queue]
        if at >= index.next:
            return 0.0
        if account.oldest[0] != at:
            account.oldest = (at, log.written_at(at))
        return max(0, now - account.oldest[1]) / 1e6
