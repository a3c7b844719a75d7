"""The figures of running stages, computed from two manifests and the ends of the streams.

All functions are pure. Rates are averages over the time between the two manifests, which the caller chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hayase.core.data_classes import dataclass
from hayase.core.times import BEGINNING

if TYPE_CHECKING:
    from hayase.engine.commit.manifests import Manifest

__all__ = ["History", "StageView", "stage_views"]


@dataclass(frozen=True, slots=True)
class StageView:
    """The figures of a stage. Rates are records per second; `lag` has the uncommitted records of each input; `missed` counts
    missed firings, None for a stage that does not fire."""

    name: str
    read_rate: float
    written_rate: float
    lag: tuple[tuple[str, int], ...]
    read: int
    processed: int
    dead: int
    repeated: int
    waiting: int
    written: int
    batch_seconds: float | None
    clock: int
    missed: int | None = None

    @property
    def behind(self) -> int:
        """The uncommitted records of all inputs."""
        return sum(count for _, count in self.lag)

    @property
    def reconciles(self) -> bool:
        """Whether every record that was read is processed, dead, repeated or waiting."""
        return self.read == self.processed + self.dead + self.repeated + self.waiting


def stage_views(
    previous: Manifest, manifest: Manifest, ends: Mapping[str, int], elapsed: float
) -> tuple[StageView, ...]:
    """Return the figures of all stages. `previous` was the newest manifest `elapsed` seconds ago; `ends` are the ends of the
    streams."""
    views = []
    batches = manifest.version - previous.version
    for name, now in manifest.totals.items():
        before = previous.totals.get(name)
        same = before is not None and before.read <= now.read  # otherwise it was reset in between
        read = now.read - (before.read if before and same else 0)
        written = now.written - (before.written if before and same else 0)
        seconds = now.seconds - (before.seconds if before and same else 0.0)
        inputs = manifest.offset.positions.get(name, {})
        views.append(
            StageView(
                name=name,
                read_rate=read / elapsed if elapsed > 0 else 0.0,
                written_rate=written / elapsed if elapsed > 0 else 0.0,
                lag=tuple((stream, max(0, ends.get(stream, 0) - position.at)) for stream, position in inputs.items()),
                read=now.read,
                processed=now.processed,
                dead=now.dead,
                repeated=now.repeated,
                waiting=now.waiting,
                written=now.written,
                batch_seconds=seconds / batches if batches > 0 else None,
                clock=manifest.clocks.get(
                    name, min((position.clock for position in inputs.values()), default=BEGINNING)
                ),
                missed=manifest.offset.firings[name].missed if name in manifest.offset.firings else None,
            )
        )
    return tuple(views)


@dataclass(frozen=True, slots=True)
class History:
    """The manifests of the last few seconds with the moments they were seen, and the records read, second by second."""

    samples: tuple[tuple[float, Manifest], ...] = ()
    reads: tuple[tuple[float, int], ...] = ()

    WINDOW = 3.0
    """Seconds over which rates are averaged: several batches, and still responsive."""
    LENGTH = 40
    """Seconds of the trend."""

    def seen(self, moment: float, manifest: Manifest) -> History:
        """Return the history with a manifest added; what is older than the window is dropped."""
        kept = [sample for sample in self.samples if sample[0] <= moment]
        while len(kept) > 1 and kept[1][0] <= moment - self.WINDOW:
            kept.pop(0)
        reads = self.reads
        if not reads or moment >= reads[-1][0] + 1.0:
            reads = (*reads, (moment, sum(total.read for total in manifest.totals.values())))[-self.LENGTH - 1 :]
        return History((*kept, (moment, manifest)), reads)

    def base(self) -> tuple[float, Manifest]:
        """Return the age in seconds of the oldest manifest, and that manifest: rates are computed from it."""
        moment, manifest = self.samples[0]
        return self.samples[-1][0] - moment, manifest

    def trend(self) -> tuple[float, ...]:
        """Return the records read per second, second by second."""
        return tuple(max(0, b - a) / (t - s) for (s, a), (t, b) in zip(self.reads, self.reads[1:]))
