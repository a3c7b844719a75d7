"""The output of a stage as one manifest left it, although later batches may have added to its log since.

A manifest says where each output ends and what its clock is. The log behind it only grows, until the stage is reset or retention
removes records; both raise `MovedOn`, and whoever reads begins again with a newer manifest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError, OffsetGone
from hayase.core.times import BEGINNING, END
from hayase.engine.commit.manifests import Manifest
from hayase.engine.definition.definitions import StageRecord
from hayase.engine.logs import index_of
from hayase.engine.results.query_results import Results
from hayase.streams import Index, StreamLog
from hayase.streams.schema_evolution import stored_declaration

__all__ = ["CommittedResults", "MovedOn", "committed_index", "is_published"]

_T = TypeVar("_T")


class MovedOn(HayaseError):
    """What a manifest refers to can no longer be read: the stage was reset since, or retention has removed records."""

    def __init__(self, name: str):
        super().__init__(f'"{name}" was reset, or its oldest records were removed, while it was read; ask again')


def is_published(log: StreamLog, record: StageRecord, manifest: Manifest) -> bool:
    """Whether the log of a stage's output holds what a manifest commits, and has not begun anew since."""
    name = log.declaration.name
    if name not in manifest.clocks and name not in manifest.ends:
        return True  # the stage has not begun
    stored = stored_declaration(log.path)
    mark = "" if stored is None else stored.mark or ""
    if not mark.isdigit() or not record.generation <= int(mark) <= manifest.offset.definition:
        return False
    index = log.index()
    end = manifest.ends.get(name)
    return end is None or index.start <= end <= index.next


def committed_index(log: StreamLog, record: StageRecord, manifest: Manifest) -> Index:
    """Return the index of an output as it was when the manifest had been applied."""
    name = log.declaration.name
    current = index_of(log)
    clock, end = manifest.clocks.get(name, BEGINNING), manifest.ends.get(name)
    if current is None or name not in manifest.clocks:
        return Index((), 0, 0, BEGINNING, BEGINNING)
    if not is_published(log, record, manifest):
        raise MovedOn(name)
    peak = max((position.peak for position in manifest.offset.positions[name].values()), default=BEGINNING)
    if end is None:
        return Index((), current.start, current.start, peak if clock >= END else BEGINNING, clock)
    entries = tuple(
        entry if entry.next <= end else replace(entry, next=end) for entry in current.entries if entry.first < end
    )
    running_max = entries[-1].running_max if entries else current.running_max
    if clock >= END:
        running_max = max(peak, log.running_max_at(end) if entries else BEGINNING)
    return Index(entries, current.start, end, running_max, clock)


@dataclass(frozen=True, slots=True)
class CommittedResults(Results):
    """The results that the records before the end of `bound` represent."""

    bound: Index

    def as_of(self, time: int | None) -> CommittedResults:
        """Return the results as they were known at an instant, in microseconds; NotFinal if that is not final yet."""
        if time is None:
            return self
        if time >= self._final_before(self.bound):
            raise self._not_final(self.bound, time)
        behind = time // self._scale * self._scale + self._scale  # nothing changes within a unit of time
        return replace(self, bound=replace(self.bound, clock=behind))

    def final_us(self) -> int | None:
        """Return the latest instant at which results are final, in microseconds; None if there is none yet."""
        return self._latest(self.bound)

    def _index(self) -> Index:
        return self.bound

    def _consistent(self, look: Callable[[Index], _T]) -> _T:
        try:
            return look(self.bound)
        except (OffsetGone, FileNotFoundError) as error:
            raise MovedOn(self.log.declaration.name) from error
