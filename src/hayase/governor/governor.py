"""The governor of a lane: measured loads and a policy, held together for a whole pool.

Who runs a lane tells it figures as they come (`observe`), and asks before every batch (`decide`): the answer is for all
workers at once, how many records of each queue the batch may take. It reads no clock and no log; those are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hayase.governor.loads import GUESS, THRESHOLD, WINDOW, LoadMeter, Loads
from hayase.governor.policy import SHORTEST_SERVICE, Asker, Policy, Round, Sight, waiting_since

__all__ = ["Decision", "Governor"]

RESTS = 0.25
"""Seconds that the rests of a worker in one decision sum up to, about: nobody is visited meanwhile."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Records that each queue may give to the next batch, the seconds of work they are, and when to look again if none."""

    records: Mapping[Hashable, int]
    seconds: float
    look_again: float


class _Walker:
    """A worker that goes by its lists, some visits in each decision."""

    def __init__(self, number: int) -> None:
        self._number, self._turn, self._place = number, 0, 0
        self._version = -1
        self._round: Round | None = None

    def forget(self) -> None:
        """Ask for another list: the queues are others."""
        self._round = None

    def visits(self, policy: Policy, sight: Sight, seconds: float) -> Round:
        """The next visits, as many as there are seconds for, at least one; the rests between them become one, after it.

        A whole list that is done sooner is walked as often as the seconds are enough for.
        """
        stale = self._place > 0 and -1 < self._version != sight.loads.version
        if self._round is None or stale or self._place == len(self._round.queues):
            self._round = policy.round(sight, Asker(self._number, self._turn))
            self._turn, self._place = self._turn + 1, 0
            self._version = sight.loads.version if self._round.heeds_notices else -1
        queues, records = self._round.queues[self._place :], self._round.records[self._place :]
        pause = self._round.pause
        work = np.cumsum(records * sight.loads.service[queues])
        fitting = int(np.searchsorted(work, seconds * (1 + 1e-9), side="right"))
        if pause > 0:
            fitting = min(fitting, int(RESTS / pause))
        count = min(max(1, fitting), len(queues))
        times = 1
        if count == len(self._round.queues):
            times = max(1, int(seconds / max(float(work[-1]), SHORTEST_SERVICE)))
            times = min(times, max(1, int(RESTS / (pause * count)))) if pause > 0 else times
        self._place += count
        return Round(queues[:count], records[:count] * times, look_again=pause * count * times)


class Governor:
    """Decides for a lane. Queues may be anything with a name, such as pairs of a stage and a stream."""

    def __init__(
        self,
        policy: Policy,
        queues: Sequence[Hashable],
        *,
        seconds: float = 1.0,
        window: float = WINDOW,
        threshold: float = THRESHOLD,
        guess: float = GUESS,
    ) -> None:
        self._policy, self._seconds = policy, seconds
        self._meter = LoadMeter(queues, window=window, threshold=threshold, guess=guess)
        self._turn = 0
        self._latest = -math.inf
        self._walkers: list[_Walker] = []
        self._seen = np.zeros(len(self.queues), np.int64)
        self._since = np.zeros(len(self.queues))

    @property
    def queues(self) -> tuple[Hashable, ...]:
        return self._meter.queues

    @property
    def loads(self) -> Loads:
        """The loads as they were published last."""
        return self._meter.loads

    def among(self, queues: Sequence[Hashable]) -> None:
        """Govern other queues from now on; what is known of those that stay is kept."""
        old = dict(zip(self.queues, zip(self._seen.tolist(), self._since.tolist(), strict=True), strict=True))
        self._meter = self._meter.among(queues)
        for each in self._walkers:
            each.forget()
        kept = [old.get(each, (0, 0.0)) for each in self.queues]
        self._seen = np.array([seen for seen, _ in kept], np.int64)
        self._since = np.array([since for _, since in kept])

    def observe(self, now: float, ends: np.ndarray, seconds: np.ndarray, records: np.ndarray) -> bool:
        """Take in totals per queue, as `LoadMeter.observe` does."""
        return self._meter.observe(now, ends, seconds, records)

    def decide(self, now: float, workers: int, waiting: np.ndarray) -> Decision:
        """What the next batch may take, with so many workers and so many records waiting in each queue.

        >>> from hayase.governor import Informed
        >>> governor = Governor(Informed(), ["slow", "idle"], guess=0.5)
        >>> governor.decide(0.0, 4, np.array([100, 0]))
        Decision(records={'slow': 8}, seconds=4.0, look_again=0.25)
        """
        if not self.queues:
            return Decision({}, 0.0, 0.0)
        now = max(now, self._latest)
        self._since = waiting_since(self._since, self._seen, waiting, now)
        sight = Sight(self.loads, max(1, workers), waiting, self._since)
        answer = self._answer(sight)
        self._turn += 1
        self._seen = np.array(waiting, np.int64)
        self._seen[answer.queues] -= np.minimum(answer.records, self._seen[answer.queues])
        self._latest = math.nextafter(
            now, math.inf
        )  # who was served comes after all that wait, however little time went by
        self._since[answer.queues] = self._latest
        records = {
            self.queues[queue]: count for queue, count in zip(answer.queues, answer.records.tolist(), strict=True)
        }
        return Decision(records, answer.seconds(self.loads), answer.look_again)

    def _answer(self, sight: Sight) -> Round:
        """One round for all workers. Where each walks by itself, their visits are laid together."""
        if self._policy.sees_ends:
            return self._policy.round(sight, Asker(0, self._turn, sight.workers))
        while len(self._walkers) < sight.workers:
            self._walkers.append(_Walker(len(self._walkers)))
        rounds = [each.visits(self._policy, sight, self._seconds) for each in self._walkers[: sight.workers]]
        records = np.zeros(sight.queues, np.int64)
        for each in rounds:
            np.add.at(records, each.queues, each.records)
        queues = np.flatnonzero(records)
        return Round(queues, records[queues], look_again=sum(each.look_again for each in rounds) / len(rounds))
