"""The stream of a source, as the source sees it: what it has of the source, and where the source may keep files.

Most sources need nothing of it. One that begins with a copy, or that must know the rows it has sent, takes it in `prepare`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hayase.core.data_classes import dataclass
from hayase.streams.appends import last_sequence
from hayase.streams.log import StreamLog

__all__ = ["Inlet"]


@dataclass(frozen=True, slots=True)
class Inlet:
    """The log of a stream, the identity of the source that fills it, a directory for the source's files in the home, and the wall
    clock (microseconds)."""

    home: Path
    log: StreamLog
    identity: str
    directory: Path
    now: Callable[[], int]

    def producer(self, partition: str) -> str:
        """Return the producer of the appends of a partition."""
        return f"{self.identity}/{partition}"

    def last(self, partition: str) -> int:
        """Return the position behind what the stream has of a partition; `FIRST` if it has nothing."""
        return last_sequence(self.home, self.log.declaration, self.producer(partition))

    def latest(self) -> int:
        """Return the greatest event time of which the stream knows, by its records or by its clock."""
        index = self.log.index()
        return max(index.running_max, index.clock)
