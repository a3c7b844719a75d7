"""Round-robin: all queues in turn, a record each. What paper 3 sets out from, and compares with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hayase.governor.policy import LIST_LENGTH, Asker, Round, Sight, first_place

__all__ = ["RoundRobin"]


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Queue after queue, whether there is something in it or not.

    Loads needed: none.   Starvation: every queue is visited in ceil(queues / 50) rounds of any worker.
    Workers needed, where `rates` are 1 but one is hot: S + (queues - 1) * (hot - 1) * seconds of an empty poll.
    """

    sees_ends: ClassVar[bool] = False

    def round(self, sight: Sight, asker: Asker) -> Round:
        queues = sight.queues
        length = min(LIST_LENGTH, queues)
        start = first_place(asker.number, queues) + asker.turn * length
        return Round((start + np.arange(length)) % queues, np.ones(length, np.int64))

    def bound(self, queues: int, slots: int) -> int:
        return -(-queues // LIST_LENGTH)
