"""Restart policy of a lane: a budget of restarts, spent by failures without progress, and exponential backoff between them."""

from __future__ import annotations

from hayase.core.data_classes import dataclass

__all__ = ["Restarts"]


@dataclass(slots=True)
class Restarts:
    """A budget of `most` restarts; one is returned every `refill` seconds, and all of them when the lane commits records, so
    that only a lane that fails again and again at the same place ends. Reads no clock: `moment` is a time in seconds from any
    monotonic clock.

    Restarts because an interpreter started too slowly are free: the machine is busy, and giving up does not help.

    >>> budget = Restarts(most=2, refill=60.0)
    >>> [budget.allow(0.0), budget.allow(1.0), budget.allow(2.0), budget.allow(70.0)]
    [True, True, False, True]
    """

    most: int = 4
    refill: float = 60.0
    longest: float = 30.0
    _left: float = -1.0
    _at: float = 0.0
    _in_a_row: int = 0

    def allow(self, moment: float, free: bool = False) -> bool:
        """Whether another restart is allowed; if so, it is counted against the budget, unless it is `free`."""
        self._left = self.most if self._left < 0 else min(self.most, self._left + (moment - self._at) / self.refill)
        self._at = moment
        if not free:
            if self._left < 1:
                return False
            self._left -= 1
        self._in_a_row += 1
        return True

    def pause(self) -> float:
        """Return the seconds to wait before the next restart: none at first, then 1, 2, 4, up to `longest`."""
        return 0.0 if self._in_a_row <= 1 else min(self.longest, 2.0 ** (self._in_a_row - 2))

    def worked(self, records: bool) -> None:
        """Reset the backoff, because the lane has committed a batch; if that had records, also restore the budget."""
        self._in_a_row = 0
        if records:
            self._left = -1.0
