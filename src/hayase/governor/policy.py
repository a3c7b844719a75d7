"""What a policy is: a pure function from what can be seen to what is done next.

A policy is asked by a worker that is free (`Asker`), looks at a `Sight` and answers with a `Round`: which queues to visit
in which order, how many records to take from each at most, how long to rest between two visits, and when to look
again. It keeps nothing: the number of the round comes with the question, so equal questions get equal answers, and the
gate of a lane and the simulator ask the same functions.

To add one: a module beside `round_robin` with a frozen dataclass that has `sees_ends`, `round` and `bound`, a line in
`hayase.governor.POLICIES`, and its test. The laws in `tests/laws/test_governor_laws.py` then hold for it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from hayase.governor.loads import Loads

__all__ = ["LIST_LENGTH", "SHORTEST_SERVICE", "Asker", "Policy", "Round", "Sight", "first_place", "waiting_since"]

LIST_LENGTH = 50
"""Queues that a worker goes through before it asks again (paper 3, 5.1)."""
SHORTEST_SERVICE = 1e-9
"""Seconds that a record takes at least, so that nothing is divided by nothing."""
GOLDEN = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class Sight:
    """What can be seen: the published loads, G, and, from the ends of the logs, how many records wait in each queue.

    `since` says when a queue was served last or, if that is later, when it was first seen with records again.
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
    """Who asks: the worker's number, how many rounds it has had, and for how many workers the answer is."""

    number: int = 0
    turn: int = 0
    slots: int = 1


@dataclass(frozen=True, slots=True)
class Round:
    """What to do next. A queue may occur more than once; `pause` seconds lie between two visits.

    Where there is nothing to do, `look_again` seconds go by before the next question. A round that `heeds_notices` is
    dropped for another when loads are published; its first visit is made in any case.
    """

    queues: np.ndarray
    records: np.ndarray
    pause: float = 0.0
    look_again: float = 0.0
    heeds_notices: bool = False

    def seconds(self, loads: Loads) -> float:
        """How many seconds of work that is, if all the records are there."""
        return float((self.records * loads.service[self.queues]).sum())


class Policy(Protocol):
    """Decides where workers go; there is at least one worker, and at least one queue.

    `sees_ends` says whether it looks at what waits: if so, it names only queues with records, each once, and no more
    records than there are.
    """

    sees_ends: ClassVar[bool]

    def round(self, sight: Sight, asker: Asker) -> Round: ...

    def bound(self, queues: int, slots: int) -> int:
        """Rounds of an asker, one after the other, in which every queue that has records is visited, whatever the loads."""
        ...


def first_place(number: int, queues: int) -> int:
    """Where a worker begins to go round: far from the others, and always the same.

    >>> [first_place(number, 100) for number in range(4)]
    [0, 61, 23, 85]
    """
    return int(number * GOLDEN % 1.0 * queues)


def waiting_since(since: np.ndarray, before: np.ndarray, waiting: np.ndarray, now: float) -> np.ndarray:
    """`Sight.since` after another look: queues that were empty and have records wait from now on.

    >>> waiting_since(np.array([1.0, 1.0]), np.array([0, 3]), np.array([2, 4]), 9.0)
    array([9., 1.])
    """
    return np.where((before == 0) & (waiting > 0), now, since)
