"""The condition of a pipeline: starting, recovering, running, stalled, stopping, stopped or failed, and why.

The watches here read no clock: `moment` is a time in seconds from any monotonic clock, and the wall clock is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from hayase.core.data_classes import dataclass
from hayase.core.times import instant_text

__all__ = ["WELL", "ClockWatch", "Condition", "StallWatch", "State"]

State = Literal["starting", "recovering", "running", "stalled", "stopping", "stopped", "failed"]
WELL: tuple[State, ...] = ("running", "stopping", "stopped")
"""States that need no attention: "stopped" is that of a home which a replica serves while its pipeline does not run."""
STALLED_AFTER = 180.0
"""Seconds without progress, while records wait, after which a pipeline counts as stalled."""
BATCHES = 4
"""The limit is at least the duration of the last batch times this number."""
JUMP = 2.0
"""Seconds of difference between wall clock and monotonic clock from which the wall clock counts as set."""
SHORT = 0.1
"""Longest time in seconds for reading both clocks; slower readings are ignored."""


@dataclass(frozen=True, slots=True)
class Condition:
    """The state of a pipeline and the reason for it. `notice` reports an event that is not a failure, such as a wall clock that
    was set; `jumps` counts these, and `jump` is the last one in seconds, negative if the clock was set back."""

    state: State = "starting"
    reason: str | None = None
    notice: str | None = None
    jumps: int = 0
    jump: float = 0.0


@dataclass(slots=True)
class StallWatch:
    """Detects queues that hold records but have not moved for too long.

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
        """Return why the pipeline is stalled, or None. `waiting` has, by stage and stream, the position and the end of each queue
        from which records could be taken; `last_batch` is the duration of the last batch in seconds."""
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
    """Detects that the wall clock was set, by comparing it with a monotonic clock.

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
        """Return a notice if the clock was set since the last call, or None. `wall` is the wall clock in microseconds, read
        between the moments `before` and `after`."""
        if after - before > SHORT:  # the process was suspended between the readings, so they do not belong together
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
