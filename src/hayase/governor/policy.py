"""The interface of policies: a policy is a pure function from the visible state of the queues to the next round of visits.

A free worker (`Asker`) passes a `QueueState` to a policy and gets a `Round`: which queues to visit in which order, how many records
to take from each at most, how long to rest between two visits, and when to poll again. A policy has no state: the number of the
round is an argument, so equal arguments give equal rounds, and the lane and the simulator use the same functions.

To add one: a module beside `round_robin` with a frozen dataclass that has `sees_ends`, `round` and `bound`, a line in
`hayase.governor.POLICIES`, and its test. The laws in `tests/laws/test_governor_laws.py` then check it too.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np

from hayase.core.data_classes import dataclass
from hayase.governor.loads import Loads

__all__ = ["LIST_LENGTH", "SHORTEST_SERVICE", "Asker", "Policy", "QueueState", "Round", "first_place", "waiting_since"]

LIST_LENGTH = 50
"""How many queues a worker visits per round (paper 3, 5.1)."""
SHORTEST_SERVICE = 1e-9
"""The least service time in seconds, to avoid divisions by zero."""
GOLDEN = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class QueueState:
    """The input of a policy: the published loads, the number of workers (G), and the number of waiting records of each queue.

    `since` is the time when a queue was served last or, if later, when it was first seen with records again.
    """

    loads: Loads
    workers: int
    waiting: np.ndarray
    since: np.ndarray

    @property
    def queues(self) -> int:
        return len(self.loads.rate)


@dataclass(frozen=True, slots=True)
class Asker:
    """The worker that asks: its number, how many rounds it has had, and for how many workers the round is."""

    number: int = 0
    turn: int = 0
    slots: int = 1


@dataclass(frozen=True, slots=True)
class Round:
    """The next visits. A queue may occur more than once; a worker rests `pause` seconds between two visits.

    If there is nothing to do, the worker asks again after `poll_after` seconds. A round that `heeds_notices` is replaced when loads
    are published; its first visit is made in any case.
    """

    queues: np.ndarray
    records: np.ndarray
    pause: float = 0.0
    poll_after: float = 0.0
    heeds_notices: bool = False

    def seconds(self, loads: Loads) -> float:
        """Return the seconds of work, if all the records are there."""
        return float((self.records * loads.service[self.queues]).sum())


class Policy(Protocol):
    """Decides which queues workers visit; there is at least one worker and at least one queue.

    With `sees_ends` it uses the number of waiting records: it returns only queues with records, each once, and no more records than
    there are.
    """

    sees_ends: ClassVar[bool]

    def round(self, state: QueueState, asker: Asker) -> Round: ...

    def bound(self, queues: int, slots: int) -> int:
        """Return the number of rounds of one worker within which every queue with records is visited, whatever the loads."""
        ...


def first_place(number: int, queues: int) -> int:
    """Return the queue at which a worker starts: fixed for the worker, and far from those of other workers.

    >>> [first_place(number, 100) for number in range(4)]
    [0, 61, 23, 85]
    """
    return int(number * GOLDEN % 1.0 * queues)


def waiting_since(since: np.ndarray, before: np.ndarray, waiting: np.ndarray, now: float) -> np.ndarray:
    """Return `QueueState.since` after another poll: queues that were empty and now have records wait from now on.

    >>> waiting_since(np.array([1.0, 1.0]), np.array([0, 3]), np.array([2, 4]), 9.0)
    array([9., 1.])
    """
    return np.where((before == 0) & (waiting > 0), now, since)
