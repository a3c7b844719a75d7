"""Sessions of numbered keys, folded: one partial for each open session, whatever its number of tuples.

A tuple is in the session of the one before it with the same key if that is less than `gap` older; a session ends `gap` after its
last tuple. Tuples are combined one by one in their order, so the bits of a result do not depend on how they are cut into steps.

Order: time.   Laws: associative.   Per tuple: one combine; per step: O(keys).   Space: one partial for each key.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hayase.core.data_classes import dataclass
from hayase.windows.panes import Cells, Turns, put
from hayase.windows.partials import Lifting, Partials

__all__ = ["EndedSessions", "SessionFolds"]

_FIELDS = 6


@dataclass(frozen=True, slots=True)
class EndedSessions:
    """The partials of sessions that have ended, by lifting (`panes.Folding`). The `first` of a turn is its place in them."""

    partials: Sequence[Partials]

    def fold(self, number: int, turns: Turns) -> Partials:
        """Return the partials of the sessions at some turns, for the lifting of a number."""
        return self.partials[number].take(turns.first)

    def filled(self, turns: Turns) -> np.ndarray:
        """Return that every session has tuples."""
        return np.ones(len(turns), np.bool_)


class SessionFolds:
    """The open sessions of all keys; `liftings` are the aggregates."""

    def __init__(self, gap: int, liftings: Sequence[Lifting]) -> None:
        self._gap, self._liftings = gap, list(liftings)
        self._sessions = np.zeros((64, _FIELDS), np.int64)
        self._sessions[:, 4] = -1
        self._cells = [Cells(lifting) for lifting in liftings]
        self._emptied: list[np.ndarray] = []

    def advance(
        self, keys: np.ndarray, time: np.ndarray, cause: np.ndarray, partials: Sequence[Partials], clock: int
    ) -> tuple[EndedSessions, Turns]:
        """Add tuples in time order and advance to the clock.

        Returns the sessions that end before the clock: the time of a turn is the session's end, and its `last` is the
        session's start.
        """
        from hayase.windows import bounded_loops as loops
        from hayase.windows import panes_loops

        count, gap = len(keys), self._gap
        self._make_room(int(keys.max(initial=-1)) + 1)
        group, groups = np.empty(count, np.int64), np.empty((_FIELDS, count), np.int64)
        ended = np.empty((4, count), np.int64)
        number, ending = loops.group_sessions(self._sessions, keys, time, cause, gap, clock, group, groups, ended)
        groups, ended = groups[:, :number], ended[:, :ending]
        idle = np.flatnonzero((self._sessions[:, loops.IS_OPEN] == 1) & (self._sessions[:, loops.LATE] + gap < clock))
        late = self._sessions[idle]
        self._sessions[idle, loops.IS_OPEN] = 0
        over = np.flatnonzero(groups[loops.IS_OVER])
        starts, order = np.zeros(number + 1, np.int64), np.empty(count, np.int64)
        in_order = panes_loops.arrange(group, starts, order)
        continued = np.flatnonzero(groups[loops.GOES_ON])
        still = np.flatnonzero(groups[loops.IS_OVER] == 0)
        own = np.ascontiguousarray(groups[loops.OF_KEY])
        answers = []
        for lifting, cells, lifted in zip(self._liftings, self._cells, partials):
            rows = lifted.take(np.arange(count) if in_order else order)
            if len(continued):
                at = starts[continued]
                put(rows, at, lifting.combined(cells.take(own[continued]), rows.take(at)))
            folded = lifting.runs(rows, starts[:-1])
            answers.append(Partials.joined([folded.take(over), cells.take(np.concatenate((ended[0], idle)))]))
            cells.put(own[still], folded.take(still), len(self._sessions))
        key, start, last, caused = (
            np.concatenate((groups[at, over], ended[line], late[:, field] if line else idle))
            for line, (at, field) in enumerate(
                (
                    (loops.OF_KEY, 0),
                    (loops.START, loops.BEGAN),
                    (loops.END_OF, loops.LATE),
                    (loops.CAUSED_BY, loops.ORIGIN),
                )
            )
        )
        self._emptied.append(key)
        turns = np.lexsort((caused, last))
        return EndedSessions(answers), Turns(last[turns] + gap, key[turns], caused[turns], turns, start[turns])

    def emptied(self) -> np.ndarray:
        """Return the keys that may have no session since the last call; check with `holds`."""
        keys = np.concatenate([np.empty(0, np.int64), *self._emptied])
        self._emptied = []
        return keys

    def holds(self, keys: np.ndarray) -> np.ndarray:
        """Return which keys have an open session."""
        self._make_room(int(keys.max(initial=-1)) + 1)
        return np.asarray(self._sessions[keys, 0] == 1)

    def belongs(self, keys: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Return which tuples are in the open session of their key."""
        return self.holds(keys) & (time >= self._sessions[keys, 1])

    def size(self) -> int:
        """Return the number of tuples of all open sessions."""
        return int(self._sessions[self._sessions[:, 0] == 1, 5].sum())

    def _make_room(self, count: int) -> None:
        known = len(self._sessions)
        if count > known:
            more = np.zeros((max(count, 2 * known) - known, _FIELDS), np.int64)
            more[:, 4] = -1
            self._sessions = np.concatenate((self._sessions, more))
        for cells in self._cells:
            cells.reserve(len(self._sessions))
