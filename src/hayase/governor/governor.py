"""The governor of a lane: measured loads and a policy, held together for a whole pool.

Who runs a lane tells it figures as they come (`observe`), and asks before every batch (`decide`): the answer is for all
workers at once, how many records of each queue the batch may take. It reads no clock and no log; those are arguments.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hayase.governor.loads import GUESS, THRESHOLD, WINDOW, LoadMeter, Loads
from hayase.governor.policy import Asker, Policy, Round, Sight, waiting_since

__all__ = ["Decision", "Governor", "pooled"]


@dataclass(frozen=True, slots=True)
class Decision:
    """Records that each queue may give to the next batch, the seconds of work they are, and when to look again if none."""

    records: Mapping[Hashable, int]
    seconds: float
    look_again: float


def pooled(policy: Policy, sight: Sight, turn: int, seconds: float) -> Round:
    """One round for all workers. Where each would walk by itself, their lists are laid together and repeated.

    That is done until there are about as many seconds of work for each; the pauses between the visits become one, after it.
    """
    if policy.sees_ends:
        return policy.round(sight, Asker(0, turn, sight.workers))
    rounds = [policy.round(sight, Asker(number, turn)) for number in range(sight.workers)]
    visits = np.zeros(sight.queues, np.int64)
    for each in rounds:
        np.add.at(visits, each.queues, each.records)
    queues = np.flatnonzero(visits)
    once = float((visits * sight.loads.service).sum())
    times = max(1, int(seconds * sight.workers / once)) if once > 0 else 1
    pause = sum(each.pause * len(each.queues) for each in rounds) / len(rounds) * times
    return Round(queues, visits[queues] * times, look_again=pause)


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
        self._since = waiting_since(self._since, self._seen, waiting, now)
        sight = Sight(self.loads, max(1, workers), waiting, self._since)
        answer = pooled(self._policy, sight, self._turn, self._seconds)
        self._turn += 1
        self._seen = np.array(waiting, np.int64)
        self._seen[answer.queues] -= np.minimum(answer.records, self._seen[answer.queues])
        self._since[answer.queues] = now
        records = {
            self.queues[queue]: count for queue, count in zip(answer.queues, answer.records.tolist(), strict=True)
        }
        return Decision(records, answer.seconds(self.loads), answer.look_again)
