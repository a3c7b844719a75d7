"""Formats numbers, durations, sizes and times, and draws sparklines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hayase.core.times import BEGINNING, END, instant_text

if TYPE_CHECKING:
    from hayase.engine.batch.lane_governor import GovernorStatus, QueueStatus

__all__ = ["busiest", "bytes_text", "clock_text", "compact", "seconds_text", "sparkline", "uptime_text"]

_BARS = "▁▂▃▄▅▆▇█"


def busiest(lanes: Sequence[GovernorStatus], most: int) -> tuple[list[QueueStatus], int]:
    """Return the `most` queues with the greatest loads, ties by length, and the number of the others."""
    queues = sorted((queue for lane in lanes for queue in lane.queues), key=lambda queue: (-queue.load, -queue.waiting))
    return queues[:most], max(0, len(queues) - most)


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
