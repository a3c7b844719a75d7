"""How often a lane may be started again: a budget that refills with time, and pauses that grow while starts keep failing."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Restarts"]


@dataclass(slots=True)
class Restarts:
    """A budget of `most` starts; one is given back every `refill` seconds. Reads no clock: `moment` is any clock in seconds that
    only goes on.

    A start that failed because something took long costs nothing: the machine is busy, and giving up helps nobody.

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
        """Whether another start may be made; if so, it is counted, unless it is `free`."""
        self._left = self.most if self._left < 0 else min(self.most, self._left + (moment - self._at) / self.refill)
        self._at = moment
        if not free:
            if self._left < 1:
                return False
            self._left -= 1
        self._in_a_row += 1
        return True

    def pause(self) -> float:
        """Seconds to wait before the next start: none at first, then 1, 2, 4, up to `longest`."""
        return 0.0 if self._in_a_row <= 1 else min(self.longest, 2.0 ** (self._in_a_row - 2))

    def worked(self) -> None:
        """The lane has committed something: the next failure is the first of its row."""
        self._in_a_row = 0
