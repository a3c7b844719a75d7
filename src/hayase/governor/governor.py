"""The governor of a lane: combines measured loads and a policy into one decision for all workers.

The lane passes measurements as they come (`observe`) and calls `decide` before every batch, which returns how many records of each
queue the batch may take. The governor reads no clock and no log; times and figures are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from hayase.core.data_classes import dataclass
from hayase.governor.loads import GUESS, THRESHOLD, WINDOW, LoadMeter, Loads
from hayase.governor.policy import SHORTEST_SERVICE, Asker, Policy, QueueState, Round, waiting_since

__all__ = ["Decision", "Governor"]

RESTS = 0.25
"""About how many seconds a worker may rest in total per decision, because no queue is visited meanwhile."""


@dataclass(frozen=True, slots=True)
class Decision:
    """How many records of each queue the next batch may take, the seconds of work they need, and the seconds until the next poll if
    there are none."""

    records: Mapping[Hashable, int]
    seconds: float
    poll_after: float


class _Walker:
    """A worker that walks through its lists, some visits per decision."""

    def __init__(self, number: int) -> None:
        self._number, self._turn, self._place = number, 0, 0
        self._version = -1
        self._round: Round | None = None

    def forget(self) -> None:
        """Drop the list, because the queues have changed."""
        self._round = None

    def visits(self, policy: Policy, state: QueueState, seconds: float) -> Round:
        """Return the next visits, as many as fit into the seconds, at least one; the rests between them are added up at the end.

        If the whole list takes less time, it is walked as often as fits.
        """
        stale = self._place > 0 and -1 < self._version != state.loads.version
        if self._round is None or stale or self._place == len(self._round.queues):
            self._round = policy.round(state, Asker(self._number, self._turn))
            self._turn, self._place = self._turn + 1, 0
            self._version = state.loads.version if self._round.heeds_notices else -1
        queues, records = self._round.queues[self._place :], self._round.records[self._place :]
        pause = self._round.pause
        work = np.cumsum(records * state.loads.service[queues])
        fitting = int(np.searchsorted(work, seconds * (1 + 1e-9), side="right"))
        if pause > 0:
            fitting = min(fitting, int(RESTS / pause))
        count = min(max(1, fitting), len(queues))
        times = 1
        if count == len(self._round.queues):
            times = max(1, int(seconds / max(float(work[-1]), SHORTEST_SERVICE)))
            times = min(times, max(1, int(RESTS / (pause * count)))) if pause > 0 else times
        self._place += count
        return Round(queues[:count], records[:count] * times, poll_after=pause * count * times)


class Governor:
    """Decides for a lane. Queues are identified by any hashable object, such as a pair of stage and stream."""

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
        """The loads as last published."""
        return self._meter.loads

    def replace_queues(self, queues: Sequence[Hashable]) -> None:
        """Replace the queues; measurements of those that stay are kept."""
        old = dict(zip(self.queues, zip(self._seen.tolist(), self._since.tolist(), strict=True), strict=True))
        self._meter = self._meter.for_queues(queues)
        for walker in self._walkers:
            walker.forget()
        kept = [old.get(queue, (0, 0.0)) for queue in self.queues]
        self._seen = np.array([seen for seen, _ in kept], np.int64)
        self._since = np.array([since for _, since in kept])

    def use(self, policy: Policy) -> None:
        """Decide by the same policy with other options from now on."""
        self._policy = policy

    def observe(self, now: float, ends: np.ndarray, seconds: np.ndarray, records: np.ndarray) -> bool:
        """Record totals per queue, as `LoadMeter.observe` does."""
        return self._meter.observe(now, ends, seconds, records)

    def decide(self, now: float, workers: int, waiting: np.ndarray) -> Decision:
        """Decide what the next batch may take, given the number of workers and of waiting records in each queue.

        >>> from hayase.governor import Informed
        >>> governor = Governor(Informed(), ["slow", "idle"], guess=0.5)
        >>> governor.decide(0.0, 4, np.array([100, 0]))
        Decision(records={'slow': 8}, seconds=4.0, poll_after=0.25)
        """
        if not self.queues:
            return Decision({}, 0.0, 0.0)
        now = max(now, self._latest)
        self._since = waiting_since(self._since, self._seen, waiting, now)
        state = QueueState(self.loads, max(1, workers), waiting, self._since)
        answer = self._answer(state)
        self._turn += 1
        self._seen = np.array(waiting, np.int64)
        self._seen[answer.queues] -= np.minimum(answer.records, self._seen[answer.queues])
        self._latest = math.nextafter(now, math.inf)  # a served queue comes after all that wait, even at the same time
        self._since[answer.queues] = self._latest
        records = {
            self.queues[queue]: count for queue, count in zip(answer.queues, answer.records.tolist(), strict=True)
        }
        return Decision(records, answer.seconds(self.loads), answer.poll_after)

    def _answer(self, state: QueueState) -> Round:
        """Return one round for all workers; if each walks by itself, the sum of their visits."""
        if self._policy.sees_ends:
            return self._policy.round(state, Asker(0, self._turn, state.workers))
        while len(self._walkers) < state.workers:
            self._walkers.append(_Walker(len(self._walkers)))
        rounds = [walker.visits(self._policy, state, self._seconds) for walker in self._walkers[: state.workers]]
        records = np.zeros(state.queues, np.int64)
        for part in rounds:
            np.add.at(records, part.queues, part.records)
        queues = np.flatnonzero(records)
        return Round(queues, records[queues], poll_after=sum(part.poll_after for part in rounds) / len(rounds))
