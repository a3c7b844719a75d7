"""The policy informed: it sees the ends of the logs, so it need not poll queues.

It takes waiting records, as many as fit into `seconds` of work for every worker: first one record of each queue, those that have
waited longest first, then equal shares of time, so that short queues are emptied and the rest goes to the long ones. If nothing
waits, it chooses the time until the next poll such that a share of `u` of its polls finds records.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar

import numpy as np

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError
from hayase.governor.policy import SHORTEST_SERVICE, Asker, QueueState, Round

__all__ = ["Informed", "expected_records", "fair_records"]

REFINEMENTS = 8
"""How often, at most, remaining time is shared out again."""


@lru_cache(maxsize=16)
def expected_records(u: float) -> float:
    """Return how many records must be expected between two polls so that a share of u of polls and visits finds something.

    If n are expected, none come with probability exp(-n), else each is a visit: exp(-n) / (exp(-n) + n) = 1 - u, which is
    n * exp(n) = u / (1 - u).

    >>> [round(expected_records(u), 2) for u in (0.0, 0.5, 0.95)]
    [0.0, 0.57, 2.17]
    """
    ratio = u / (1 - u)
    count = math.log1p(ratio)
    for _ in range(20):
        count -= (count - ratio * math.exp(-count)) / (1 + count)
    return count


def fair_records(waiting: np.ndarray, service: np.ndarray, seconds: float) -> np.ndarray:
    """Return how many waiting records of each queue fit into some seconds of work, with equal seconds for each queue that has
    enough records.

    The remainder from rounding goes to the queues in order, one record each; time that is too short for a record of one queue is
    shared by the others.

    >>> fair_records(np.array([2, 100, 100]), np.array([1.0, 1.0, 2.0]), 22.0)
    array([ 2, 10,  5])
    """
    records = waiting.copy()
    open_ = np.flatnonzero(waiting)
    for _ in range(REFINEMENTS):
        records[open_], left = _level_records(waiting[open_], service[open_], seconds)
        wanting = open_[records[open_] < waiting[open_]]
        out = wanting[service[wanting] > left]
        if len(out) == len(wanting):
            break
        seconds = max(0.0, seconds - float((records[out] * service[out]).sum()))
        open_ = np.setdiff1d(open_, out, assume_unique=True)
    return records


def _level_records(waiting: np.ndarray, service: np.ndarray, seconds: float) -> tuple[np.ndarray, float]:
    """Return the records below a common level of seconds, plus one each in order while it fits, and the remaining seconds."""
    ordered = np.sort(waiting * service)
    count = len(ordered)
    upto = np.cumsum(ordered) + ordered * np.arange(count - 1, -1, -1)  # the sum of shares if none exceeds this one
    done = int(np.searchsorted(upto, seconds, side="right"))
    if done == count:
        return waiting, seconds - float(ordered.sum())
    level = (seconds - ordered[:done].sum()) / (count - done)
    records = np.minimum(waiting, np.floor(level / service * (1 + 1e-12)).astype(np.int64))
    left = seconds - float((records * service).sum())
    unfinished = np.flatnonzero(records < waiting)
    costs = np.cumsum(service[unfinished])
    fitting = int(np.searchsorted(costs, left, side="right"))
    records[unfinished[:fitting]] += 1
    return records, left - (float(costs[fitting - 1]) if fitting else 0.0)


def _first_records(service: np.ndarray, seconds: float, least: int) -> tuple[np.ndarray, float]:
    """Return the queues, in order, one record of which fits, the first `least` in any case; and the remaining seconds."""
    order = np.arange(len(service))
    chosen, rest = order[:least], order[least:]
    left = seconds - float(service[chosen].sum())
    for _ in range(REFINEMENTS):
        rest = rest[service[rest] <= left]
        if not len(rest):
            break
        costs = np.cumsum(service[rest])
        count = int(np.searchsorted(costs, left, side="right"))
        chosen, rest, left = np.append(chosen, rest[:count]), rest[count:], left - float(costs[count - 1])
    return chosen, left


@dataclass(frozen=True, slots=True)
class Informed:
    """Takes waiting records, and polls rarely if there are none.

    Loads needed: service, to know how much fits; rate, to know when to poll.   Starvation: a round serves at least as many
    queues as it has workers, so every queue that has records is served within ceil(queues / workers) rounds.
    """

    u: float = 0.97
    seconds: float = 1.0
    """Seconds of work for every worker in a round, during which no other decision can be taken."""
    shortest: float = 0.004
    longest: float = 0.25
    """Bounds of the seconds between two polls; a first record after a silence waits at most the longest."""
    sees_ends: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.u < 1:
            raise DeclarationError(f"u is {self.u:g}", "it is 0 (look all the time), or between 0 and 1")

    def round(self, state: QueueState, asker: Asker) -> Round:
        candidates = np.flatnonzero(state.waiting)
        if not len(candidates):
            return Round(candidates, candidates, poll_after=self._poll_after(state))
        candidates = candidates[np.argsort(state.since[candidates], kind="stable")]
        service = np.maximum(state.loads.service[candidates], SHORTEST_SERVICE)
        first, left = _first_records(service, self.seconds * asker.slots, asker.slots)
        chosen = candidates[first]
        records = np.ones(len(chosen), np.int64)
        if left > 0:
            records += fair_records(state.waiting[chosen] - 1, service[first], left)
        return Round(chosen, records, poll_after=self._poll_after(state))

    def bound(self, queues: int, slots: int) -> int:
        return -(-queues // slots)

    def _poll_after(self, state: QueueState) -> float:
        rate = float(state.loads.rate.sum())
        seconds = expected_records(self.u) / rate if rate > 0 else self.longest
        return min(max(seconds, self.shortest), self.longest)
