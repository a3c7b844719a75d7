"""Whether a lane has committed everything that is in its logs."""

from __future__ import annotations

from hayase.engine.batch.gate import Grants
from hayase.engine.batch.offsets import Offset, advance
from hayase.engine.definition.definitions import definition_of, latest_version
from hayase.engine.home import Home
from hayase.engine.logs import Logs, settled_end

__all__ = ["is_caught_up"]


def is_caught_up(home: Home, lane: str, offset: Offset, started: int) -> bool:
    """Return whether a lane that has committed up to `offset` has nothing left to take. The wall clock counts as it was when the
    lane `started`: the clock of an idle stream follows it, and would never be reached."""
    definition = definition_of(home, latest_version(home)).of_lane(lane)
    logs = Logs(home, definition)
    return advance(offset, definition, logs, Grants(at_once=True), started, settled_end=settled_end(home)) == offset
