"""Computes the figures of running stages from two manifests and the ends of the streams, and formats numbers and times.

All functions are pure. Rates are averages over the time between the two manifests, which the caller chooses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hayase.core.times import BEGINNING, END, instant_text

if TYPE_CHECKING:
    from hayase.engine.batch.lane_governor import GovernorStatus, QueueStatus
    from hayase.engine.commit.manifests import Manifest

__all__ = [
    "History",
    "StageView",
    "busiest",
    "bytes_text",
    "clock_text",
    "compact",
    "seconds_text",
    "sparkline",
    "stage_views",
    "uptime_text",
]

_BARS = "▁▂▃▄▅▆▇█"


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


def busiest(lanes: Sequence[GovernorStatus], most: int) -> tuple[list[QueueStatus], int]:
    """Return the `most` queues with the greatest loads, ties by length, and the number of the others."""
    queues = sorted((queue for lane in lanes for queue in lane.queues), key=lambda queue: (-queue.load, -queue.waiting))
    return queues[:most], max(0, len(queues) - most)


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


def compact(count: float) -> str:
    """Format a number in at most six characters.

    >>> [compact(n) for n in (0, 0.25, 7, 12_345, 123_456, 2_400_000, 98_765_432_100)]
    ['0', '0.2', '7', '12,345', '123k', '2.4M', '98.8G']
    """
    if 0 < count < 9.95 and count != int(count):
        return f"{count:.1f}"
    if count < 99_999.5:
        return f"{count:,.0f}"
    for unit, scale in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if count < 999.5 * scale:
            return f"{count / scale:.3g}{unit}"
    return f"{count / 1e12:.3g}T"


def seconds_text(seconds: float | None) -> str:
    """Format a short duration.

    >>> seconds_text(None), seconds_text(0.0004), seconds_text(0.38), seconds_text(2.5), seconds_text(95)
    ('—', '0 ms', '380 ms', '2.5 s', '95 s')
    """
    if seconds is None:
        return "—"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 59.95 else f"{seconds:.0f} s"


def uptime_text(seconds: float) -> str:
    """Format a duration as minutes and seconds, with hours if there are any.

    >>> uptime_text(75), uptime_text(90_000)
    ('1:15', '25:00:00')
    """
    minutes, left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


def bytes_text(count: int) -> str:
    """Format a size with three significant digits.

    >>> bytes_text(0), bytes_text(1_536), bytes_text(12_345_678)
    ('0 B', '1.54 kB', '12.3 MB')
    """
    if count < 1000:
        return f"{count} B"
    for unit, scale in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if count < 999.5 * scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count / 1e12:.3g} TB"


def clock_text(clock: int, *, short: bool = False) -> str:
    """Format a clock in microseconds; the short form omits the year.

    >>> clock_text(1_500_000, short=True), clock_text(1_500_000), clock_text(BEGINNING), clock_text(END)
    ('01-01 00:00:01', '1970-01-01 00:00:01', '—', 'finished')
    """
    if clock <= BEGINNING:
        return "—"
    if clock >= END:
        return "finished"
    text = instant_text(clock)
    return text[5 if short else 0 : 19].replace("T", " ") if text[10:11] == "T" else text


def sparkline(values: Sequence[float]) -> str:
    """Draw values as a row of bars; the greatest one has full height.

    >>> sparkline([0, 1, 2, 4])
    '▁▃▅█'
    """
    top = max(values, default=0) or 1
    return "".join(_BARS[min(len(_BARS) - 1, int(value / top * (len(_BARS) - 1) + 0.5))] for value in values)
