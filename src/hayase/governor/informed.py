"""The informed policy: who sees the ends of the logs need not poll.

It takes what waits, as much as fits into `seconds` of work for every worker: first one record of each queue, those
first that have waited longest, then in equal shares of seconds, so that a light queue is done whole and what is left goes
to the heavy ones. Where nothing waits it looks again when about so many records must have come that a share of `u` of
its looks find some.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from hayase.core.errors import DeclarationError
from hayase.governor.policy import SHORTEST_SERVICE, Asker, Round, Sight

__all__ = ["Informed", "expected_records", "fair_records"]

REFINEMENTS = 8
"""How often what is left over is shared out again, at most."""


@lru_cache(maxsize=16)
def expected_records(u: float) -> float:
    """How many records must be expected between two looks for a share of u of looks and visits to find something.

    Of n expected, none come with probability exp(-n), else each is a visit: exp(-n) / (exp(-n) + n) = 1 - u, which is
    n * exp(n) = u / (1 - u).

    >>> [round(expected_records(u), 2) for u in (0.0, 0.5, 0.95)]
    [0.0, 0.57, 2.17]
    """
    wanted = u / (1 - u)
    count = math.log1p(wanted)
    for _ in range(20):
        count -= (count - wanted * math.exp(-count)) / (1 + count)
    return count


def fair_records(waiting: np.ndarray, service: np.ndarray, seconds: float) -> np.ndarray:
    """How many of the waiting records fit into some seconds of work: equal seconds for each queue, none more than it has.

    What rounding leaves over goes to the queues in order, a record each; what is too little for a record of one queue is
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
    """Records below a common level of seconds, then one more each in order, and the seconds that are left."""
    ordered = np.sort(waiting * service)
    count = len(ordered)
    upto = np.cumsum(ordered) + ordered * np.arange(count - 1, -1, -1)  # the sum of shares, if none is more than this
    done = int(np.searchsorted(upto, seconds, side="right"))
    if done == count:
        return waiting, seconds - float(ordered.sum())
    level = (seconds - ordered[:done].sum()) / (count - done)
    records = np.minimum(waiting, np.floor(level / service * (1 + 1e-12)).astype(np.int64))
    left = seconds - float((records * service).sum())
    more = np.flatnonzero(records < waiting)
    costs = np.cumsum(service[more])
    fitting = int(np.searchsorted(costs, left, side="right"))
    records[more[:fitting]] += 1
    return records, left - (float(costs[fitting - 1]) if fitting else 0.0)


def _first_records(service: np.ndarray, seconds: float, least: int) -> tuple[np.ndarray, float]:
    """Which queues, of those in order, give a record that fits, the first `least` in any case; and the seconds left."""
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
    """Takes what is there, and looks seldom where there is nothing.

    Loads needed: service, to know how much fits; rate, to know when to look.   Starvation: a round serves at least as many
    queues as it has workers, so every queue that has records is served in ceil(queues / workers) rounds.
    """

    u: float = 0.97
    seconds: float = 1.0
    """Seconds of work for every worker in a round: the time in which no other decision can be taken."""
    shortest: float = 0.004
    longest: float = 0.25
    """Bounds of the time between two looks: the longest is what a first record waits after a silence."""
    sees_ends: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.u < 1:
            raise DeclarationError(f"u is {self.u:g}", "it is 0 (look all the time), or between 0 and 1")

    def round(self, sight: Sight, asker: Asker) -> Round:
        candidates = np.flatnonzero(sight.waiting)
        if not len(candidates):
            return Round(candidates, candidates, look_again=self._look_again(sight))
        candidates = candidates[np.argsort(sight.since[candidates], kind="stable")]
        service = np.maximum(sight.loads.service[candidates], SHORTEST_SERVICE)
        first, left = _first_records(service, self.seconds * asker.slots, asker.slots)
        chosen = candidates[first]
        records = np.ones(len(chosen), np.int64)
        if left > 0:
            records += fair_records(sight.waiting[chosen] - 1, service[first], left)
        return Round(chosen, records, look_again=self._look_again(sight))

    def bound(self, queues: int, slots: int) -> int:
        return -(-queues // slots)

    def _look_again(self, sight: Sight) -> float:
        rate = float(sight.loads.rate.sum())
        wanted = expected_records(self.u) / rate if rate > 0 else self.longest
        return min(max(wanted, self.shortest), self.longest)
