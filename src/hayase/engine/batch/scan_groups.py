"""Which stages of a batch run as one shared scan: one rule, for the map side and for the reduce side.

Stages of the same `core.stages.SharedScan` form a group in a batch if they have as many buckets and their positions are equal,
before it and after it. Then
they read the same records, the same records are late for them, and their kernels pass the same instants; that they began at the
same record lets them share the numbers of rows too. Both sides compute the groups from the definition and the batch alone, so
the data that the map side sends to a group is for exactly the stages that the reduce side runs together.

One thing is known only in a bucket: a stage that gets replayed records there runs apart from its group (`ScanGroup.split`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property

from hayase.core.data_classes import dataclass
from hayase.core.stages import Input, Stage
from hayase.engine.batch.offsets import Batch
from hayase.engine.definition.definitions import Definition, stages_of

__all__ = ["ScanGroup", "scan_groups"]


@dataclass(frozen=True)
class ScanGroup:
    """Stages that run together in a batch; mostly a single one."""

    stages: tuple[Stage, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.stages)

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs of the stage; of several stages, inputs with the columns that all of them need."""
        first = self.stages[0]
        if len(self.stages) == 1 or first.shared_scan is None:
            return first.inputs
        return tuple(map(first.shared_scan.merge_inputs, zip(*(stage.inputs for stage in self.stages), strict=True)))

    def split(self, apart: Collection[str]) -> Iterator[ScanGroup]:
        """The group without the stages `apart`, then each of these by itself."""
        together = tuple(stage for stage in self.stages if stage.name not in apart)
        if len(together) == len(self.stages):
            yield self
            return
        if together:
            yield ScanGroup(together)
        yield from (ScanGroup((stage,)) for stage in self.stages if stage.name in apart)


def scan_groups(definition: Definition, batch: Batch) -> list[ScanGroup]:
    """The stages of a lane's definition, each in one group, in the order of the definition."""
    stages = stages_of(definition)
    groups: dict[object, list[Stage]] = {}
    for record in definition.records:
        stage = stages[record.name]
        key: tuple[object, ...] = (record.name,)
        if stage.shared_scan is not None:
            places = [tuple(sorted(at.positions.get(stage.name, {}).items())) for at in (batch.start, batch.end)]
            key = (stage.shared_scan.group, definition.buckets_of(stage.name), *places)
        groups.setdefault(key, []).append(stage)
    return [ScanGroup(tuple(members)) for members in groups.values()]
