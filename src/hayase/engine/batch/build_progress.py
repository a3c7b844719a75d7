"""How far a build has come, and the cut of the streams at which it and what it replaces meet. Pure functions of an offset.

A build replaces other stages when both have processed the same records. So that they do, the stages concerned wait for each other
once the build is near: none of them takes records behind the furthest position of any. Then what the streams between them still
hold is processed, and nothing is left to do for the build: it has caught up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hayase.core.data_classes import dataclass
from hayase.core.stages import is_build, public_name
from hayase.engine.logs import end_of

if TYPE_CHECKING:
    from hayase.engine.batch.offsets import Offset, Position
    from hayase.engine.definition.definitions import Definition
    from hayase.streams import StreamLog

__all__ = ["Cut", "common_cut", "records_behind"]

NEAR = 100_000
"""How many records of a stream a build may be behind when the others begin to wait for it."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A place in each of the streams behind a build, which the `stages` concerned do not pass. `feeding` are those of them that
    determine the results of the build."""

    places: Mapping[str, Position]
    stages: frozenset[str]
    feeding: frozenset[str]

    def place(self, stage: str, stream: str) -> Position | None:
        """The place in a stream that a stage does not pass; None if it may take everything."""
        return self.places.get(stream) if stage in self.stages else None

    def is_reached(self, offset: Offset) -> bool:
        """Whether all stages concerned are at the cut."""
        return all(
            position.at == self.places[stream].at
            for stage in self.stages
            for stream, position in offset.positions[stage].items()
            if stream in self.places
        )


def common_cut(start: Offset, definition: Definition, logs: Mapping[str, StreamLog]) -> Cut | None:
    """The cut at which a build and what it replaces meet; None if the build is not near, or if there is none."""
    feeding, stages = _concerned(definition)
    outputs = {record.name for record in definition.records}
    readings = [
        (stage, stream, position)
        for stage in stages
        for stream, position in start.positions[stage].items()
        if stream not in outputs
    ]
    places: dict[str, Position] = {}
    for _, stream, position in readings:
        if stream not in places or (position.at, position.clock) > (places[stream].at, places[stream].clock):
            places[stream] = position
    waited_for = {stream for stage, stream, _ in readings if not is_build(stage)}
    for stage, stream, position in readings:
        if stage in feeding:
            until = places[stream].at if stream in waited_for else end_of(logs[stream])
            if until - position.at > NEAR:
                return None
    return Cut(places, stages, feeding) if feeding else None


def _concerned(definition: Definition) -> tuple[frozenset[str], frozenset[str]]:
    """The stages of a build with those whose output they read, directly or through others; and these with the stages that the
    build replaces."""
    records = {record.name: record for record in definition.records}
    feeding: set[str] = set()
    remaining = [name for name in records if is_build(name)]
    replaced = {public_name(name) for name in remaining} & records.keys()
    while remaining:
        name = remaining.pop()
        if name not in feeding:
            feeding.add(name)
            remaining += [stream for stream in records[name].inputs if stream in records]
    return frozenset(feeding), frozenset(feeding | replaced)


def records_behind(offset: Offset, definition: Definition, logs: Mapping[str, StreamLog]) -> dict[str, int]:
    """How many records each stage of a build has not read yet, by its public name; those of a build that no lane has taken up are
    missing."""
    return {
        public_name(stage): sum(max(0, end_of(logs[stream]) - position.at) for stream, position in inputs.items())
        for stage, inputs in offset.positions.items()
        if is_build(stage) and any(record.name == stage for record in definition.records)
    }
