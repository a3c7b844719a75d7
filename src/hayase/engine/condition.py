"""How a running pipeline is: starting, recovering, running, stalled, stopping or failed, and why.

The watches here read no clock. `moment` is any clock in seconds that only goes on; the wall clock is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from hayase.core.times import instant_text

__all__ = ["WELL", "ClockWatch", "Condition", "StallWatch", "State"]

State = Literal["starting", "recovering", "running", "stalled", "stopping", "failed"]
WELL: tuple[State, ...] = ("running", "stopping")
"""States in which nobody has to do anything."""
STALLED_AFTER = 180.0
"""Seconds without progress, although records wait, after which a pipeline counts as stalled."""
BATCHES = 4
"""Or as long as so many batches like the last one, if those are slow."""
JUMP = 2.0
"""Seconds by which the wall clock must differ from the time that passed to have been set."""
SHORT = 0.1
"""Seconds that a reading of both clocks may take to be of use."""


@dataclass(frozen=True, slots=True)
class Condition:
    """The state of a pipeline and the reason for it. `notice` tells of what is no failure and may surprise, such as a wall
    clock that was set; `jumps` counts those, and `jump` is the last one in seconds, below 0 if the clock was set back."""

    state: State = "starting"
    reason: str | None = None
    notice: str | None = None
    jumps: int = 0
    jump: float = 0.0


@dataclass(slots=True)
class StallWatch:
    """Sees whether queues move. A queue that holds records and has not moved for too long is stalled.

    >>> watch = StallWatch()
    >>> queue = {("spend", "orders"): (10, 25)}
    >>> watch.look(0.0, queue), watch.look(100.0, queue)
    (None, None)
    >>> watch.look(200.0, queue)
    'nothing was committed for 200 s although records wait: 15 of "orders" for "spend"'
    >>> watch.look(210.0, {("spend", "orders"): (11, 25)})
    """

    _since: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)

    def look(
        self, moment: float, waiting: Mapping[tuple[str, str], tuple[int, int]], last_batch: float = 0.0
    ) -> str | None:
        """Why the pipeline is stalled, or None. `waiting` gives, by stage and stream, the position and the end of each queue
        from which records could be taken; `last_batch` is how many seconds the last batch took."""
        before = self._since
        self._since = {
            queue: before[queue] if queue in before and before[queue][0] == at else (at, moment)
            for queue, (at, _) in waiting.items()
        }
        limit = max(STALLED_AFTER, BATCHES * last_batch)
        late = {queue: since for queue, (_, since) in self._since.items() if moment >= since + limit}
        if not late:
            return None
        first = min(late, key=lambda queue: late[queue])
        at, end = waiting[first]
        more = f", and {len(late) - 1} more" if len(late) > 1 else ""
        return (
            f"nothing was committed for {moment - late[first]:.0f} s although records wait: "
            f'{end - at:,} of "{first[1]}" for "{first[0]}"{more}'
        )


@dataclass(slots=True)
class ClockWatch:
    """Sees whether the wall clock was set, by comparing it with the time that passed.

    >>> watch = ClockWatch()
    >>> watch.look(1_000_000_000, 5.0, 5.0), watch.look(1_010_000_000, 15.0, 15.0)
    (None, None)
    >>> watch.look(411_000_000, 16.0, 16.0)
    'the wall clock was set back by 600.0 s, to 1970-01-01T00:06:51Z; jobs go on firing at their intervals'
    >>> watch.jumps, watch.jump
    (1, -600.0)
    """

    jumps: int = 0
    jump: float = 0.0
    _lead: float | None = None

    def look(self, wall: int, before: float, after: float) -> str | None:
        """What to tell of a clock that was set since the last look, or None. `wall` is the wall clock in microseconds, read
        between the moments `before` and `after`."""
        if after - before > SHORT:  # another process had its turn in between: which of them is it the time of?
            return None
        last, lead = self._lead, wall / 1e6 - after
        self._lead = lead
        if last is None or abs(lead - last) < JUMP:
            return None
        self.jumps, self.jump = self.jumps + 1, round(lead - last, 1)
        way = "back" if self.jump < 0 else "forward"
        return (
            f"the wall clock was set {way} by {abs(self.jump):,} s, to {instant_text(wall)}; jobs go on firing at their "
            "intervals"
        )
