"""Tells whether a source has a backlog: more than it reads in a moment, by the speed at which its positions move.

Positions of sources are counts, offsets or places in a file; a time is the same for all of them. The ends of a source are asked for
about once a second, and its positions are known after every step: so the end of a backlog is noticed at once, without a request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

__all__ = ["Backlog"]

SOON = 0.5
"""Seconds of reading that are no backlog."""
WINDOW = 2.0
"""Seconds over which the speed is measured."""
AGAIN = 1.0
"""Seconds after which a backlog that goes on is said again."""


class Backlog:
    """The backlog of one source; `note` and `clear` say that there is one, and that there is none."""

    def __init__(self, note: Callable[[], None], clear: Callable[[], None]):
        self._note, self._clear = note, clear
        self._ends: Mapping[str, int] = {}
        self._moves: list[tuple[float, int]] = []
        self._noted_at: float | None = None
        clear()  # a process before this one may have left it

    def set_ends(self, ends: Mapping[str, int]) -> None:
        """Take the ends of the partitions, as of now."""
        self._ends = ends

    def update(self, positions: Mapping[str, int], moment: float) -> None:
        """Take the positions at a moment (seconds), and say what has changed."""
        if not positions:  # nothing has been read yet
            return
        place = sum(positions.values())
        self._moves = [move for move in self._moves if move[0] > moment - WINDOW] or self._moves[-1:]
        self._moves.append((moment, place))
        began, before = self._moves[0]
        left = sum(max(0, end - positions.get(partition, end)) for partition, end in self._ends.items())
        has_backlog = place > before and left * (moment - began) > SOON * (place - before)
        if has_backlog and (self._noted_at is None or moment >= self._noted_at + AGAIN):
            self._note()
            self._noted_at = moment
        elif not has_backlog and self._noted_at is not None:
            self.close()

    def close(self) -> None:
        """Say that there is none."""
        self._clear()
        self._noted_at = None
