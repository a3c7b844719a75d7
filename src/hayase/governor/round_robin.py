"""The policy round-robin: all queues in turn, one record each. The baseline of paper 3."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hayase.core.data_classes import dataclass
from hayase.governor.policy import LIST_LENGTH, Asker, QueueState, Round, first_place

__all__ = ["RoundRobin"]


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Visits all queues in turn, whether they have records or not.

    Loads needed: none.   Starvation: every queue is visited within ceil(queues / 50) rounds of any worker.
    Workers needed, if all rates are 1 except a hot one: S + (queues - 1) * (hot - 1) * seconds of an empty poll.
    """

    sees_ends: ClassVar[bool] = False

    def round(self, state: QueueState, asker: Asker) -> Round:
        queues = state.queues
        length = min(LIST_LENGTH, queues)
        start = first_place(asker.number, queues) + asker.turn * length
        return Round((start + np.arange(length)) % queues, np.ones(length, np.int64))

    def bound(self, queues: int, slots: int) -> int:
        return -(-queues // LIST_LENGTH)
