"""The policies als and asc: adaptive load sharing and adaptive self-control (paper 3, 4.2 and 4.3).

Every worker draws its next queues at random in proportion to their loads, into a list of 50 that it visits repeatedly until the
next notice; workers do not coordinate. If there are more workers than work, they rest between two visits, as `u` says: 0 means no
rest, near 1 the pool rests until its capacity matches the load.

Four additions to the paper:

- Shares are shares of time, but a visit takes as long as a record of its queue, so queues with short service times would get less
  than their load. So a visit takes as many records as fit into the mean service time of the list; one if all are alike.
- A queue without load, or one that no list happens to contain, would never be visited: before every walk through its list a
  worker visits one more queue, all queues in turn.
- With steady loads there are no notices, and lists that are unfair by chance would stay: a list is walked at most four times.
- A pool without load would rest for ever: no rest is longer than `longest`.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError
from hayase.governor.policy import LIST_LENGTH, SHORTEST_SERVICE, Asker, QueueState, Round, first_place

__all__ = ["Adaptive", "drawn", "rest", "restraint"]

WALKS = 4
"""How often a list is walked, at most, before another one is drawn."""


def drawn(load: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Map random numbers from [0, 1) to queues, with probabilities in proportion to the loads.

    The number times S is r of the paper: queue h is the one with `load[:h].sum() <= r < load[:h + 1].sum()`. Without any
    load all queues are equally likely.

    >>> drawn(np.array([1.0, 3.0, 6.0]), np.array([0.05, 0.1, 0.39, 0.4, 0.99]))
    array([0, 1, 1, 2, 2])
    """
    upto = np.cumsum(load)
    if upto[-1] <= 0:
        upto = np.arange(1.0, len(load) + 1)
    last = np.searchsorted(upto, upto[-1])  # the last queue with a load: draws near 1 may be rounded up to S
    return np.minimum(np.searchsorted(upto, draws * upto[-1], side="right"), last)


def restraint(workers: float, total: float) -> float:
    """Return R = (G - S) / G: the share of the pool that is not needed; 0 if the load exceeds the pool.

    >>> round(restraint(28, 3.0), 4)
    0.8929
    """
    return max(0.0, (workers - total) / workers)


def rest(u: float, workers: float, total: float, services: np.ndarray, longest: float) -> float:
    """Return the seconds between two visits: u * R / (1 - R) * L_S / |L|, where L_S is the sum of the visits' service times.

    >>> round(rest(0.5, 28, 3.0, np.full(50, 0.1), longest=10.0), 4)
    0.4167
    """
    needless = restraint(workers, total)
    if u == 0 or needless == 0:
        return 0.0
    if needless == 1:
        return longest
    return min(longest, u * needless / (1 - needless) * float(services.mean()))


def _records_of_a_visit(service: np.ndarray) -> np.ndarray:
    """Return for each visit how many records fit into the mean service time, at least one."""
    return np.maximum(1, (service.mean() / np.maximum(service, SHORTEST_SERVICE) * (1 + 1e-9)).astype(np.int64))


@dataclass(frozen=True, slots=True)
class Adaptive:
    """ALS, and with `u` above 0 ASC. If there are enough workers, a share of about 1 - u of its polls is empty.

    Loads needed: rate and service.   Starvation: every queue is visited within as many rounds of a worker as there are queues;
    a round has at most 51 visits.
    """

    u: float = 0.0
    length: int = LIST_LENGTH
    longest: float = 1.0
    seed: int = 0
    sees_ends: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 <= self.u < 1:
            raise DeclarationError(f"u is {self.u:g}", "it is 0 (no rest), or between 0 and 1")

    def round(self, state: QueueState, asker: Asker) -> Round:
        queues, loads = state.queues, state.loads
        # the draws depend on these numbers only, so a list stays the same until one of them changes
        place = (self.seed, asker.number, loads.version, asker.turn // WALKS)
        draws = np.random.default_rng(place).random(self.length)
        listed = drawn(loads.load, draws)
        beside = (first_place(asker.number, queues) + asker.turn) % queues
        service = loads.service[listed]
        records = _records_of_a_visit(service)
        pause = rest(self.u, state.workers, loads.total, records * service, self.longest)
        return Round(np.append(beside, listed), np.append(1, records), pause, heeds_notices=True)

    def bound(self, queues: int, slots: int) -> int:
        return queues
