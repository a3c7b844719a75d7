"""Windows over panes that give a value at every multiple of their slide: hopping and cumulating windows.

Unlike a `panes.PaneWindow`, which has a turn where its content changes, these have one for every window that is not empty,
because every window is a row of its own. A hopping window `(length, slide)` has at every multiple B of the slide the tuples with
`B - length < time <= B`; a cumulating window those since the last multiple of its length before B.

Order: time.   Laws: associative.   Per tuple: one combine; per window of a key that is not empty: a few.
"""

from __future__ import annotations

import numpy as np

from hayase.windows.panes import PaneSequence, Turns, with_more

__all__ = ["EveryWindow"]

_LEAST = 1024


class EveryWindow:
    """A window over a sequence of panes, with a turn at every multiple of the slide at which it is not empty."""

    def __init__(self, sequence: PaneSequence, length: int, slide: int, *, grows: bool) -> None:
        self.sequence = sequence
        self._length, self._slide, self._block = length, slide, length if grows else 0
        self._entered = self.left = self._now = 0
        self._reach = np.empty((2, 0), np.int64)
        self._places = np.empty(0, np.int64)
        self._filled = np.empty(0, np.int64)
        self._count = 0

    def turns(self, clock: int) -> Turns:
        """Return the turns before the clock that were not returned yet."""
        from hayase.windows import bounded_loops, panes_loops

        entries, base, width = self.sequence.entries, self.sequence.base, self.sequence.width
        panes = entries[panes_loops.PANE, : self.sequence.held]
        until = (clock - 1) // self._slide * self._slide
        entered, left = self._entered - base, self.left - base
        entering = int(np.searchsorted(panes, until // width, "right"))
        needed = int(entries[panes_loops.KEY, entered:entering].max(initial=-1)) + 1
        if needed > self._reach.shape[1]:
            self._reach = with_more(self._reach, needed, (-1, -1))
            self._places = np.full(self._reach.shape[1], -1)
            self._places[self._filled[: self._count]] = np.arange(self._count)
            self._filled = np.concatenate((self._filled, np.empty(self._reach.shape[1] - len(self._filled), np.int64)))
        parts = [np.empty((5, 0), np.int64)]
        room = max(_LEAST, 2 * (self._count + max(entering - entered, 0)))
        while (self._count and self._now + self._slide <= until) or entered < entering:
            turns = np.empty((5, room), np.int64)
            count, entered, left, self._now, self._count = bounded_loops.turn_every(
                entries, base, entered, max(entering, entered), left, self._now, until, width, self._length, self._slide,
                self._block, room, self._reach, self._places, self._filled, self._count, turns,
            )  # fmt: skip
            parts.append(turns[:, :count])
            if not count and not self._count and entered >= entering:
                break
            room = max(2 * room, self._count + entering - entered)
        self._entered, self.left = base + entered, base + left
        return Turns(*np.concatenate(parts, axis=1))
