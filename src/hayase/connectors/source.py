"""What a source is: partitions, a position in each, and records that can be read again from any position.

A source only reads. `hayase.connectors.intake` appends what it reads to the log of a stream; the position behind the records
is the sequence of that append, so the stream itself knows what it has, and a source needs no memory of its own.

    class Numbers(Source):
        def __init__(self, setting: SourceSetting):
            self.identity = "numbers"

        def starts(self) -> dict[str, int]:
            return {"0": 0}

        def ends(self) -> dict[str, int]:
            return {"0": 100}

        def read(self, positions: Mapping[str, int], patience: float) -> list[Portion]:
            first = positions["0"]
            rows = [{"time": number, "n": number} for number in range(first, min(first + 10, 100))]
            return [Portion("0", rows, first + len(rows))] if rows else []

`hayase.testing.check_source` holds a source to the laws that are stated here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hayase.connectors.inlet import Inlet
from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.streams.records import Conformed, Records

__all__ = ["Portion", "Source", "SourceSetting", "Staged"]


class Staged(ABC):
    """Records of a portion that are too many for memory: the source has written them beside the stream's log."""

    @abstractmethod
    def publish(self, position: int) -> int:
        """Move all of them into the log, or none, as an append with this position as its sequence; return their number."""


class Portion(NamedTuple):
    """Consecutive records of a partition, and the position behind them. It may have no records: then the position moves."""

    partition: str
    records: Records | Conformed | Staged
    next: int


@dataclass(frozen=True, slots=True)
class SourceSetting:
    """What a source is made with: the stream that it fills, its options, the name of the pipeline, and the wall clock
    (microseconds). `keep` is a directory of the home for files of its own, None where nothing may be written; relative paths in
    options begin at `beside`."""

    stream: StreamDeclaration
    options: Mapping[str, Any]
    pipeline: str
    now: Callable[[], int]
    keep: Path | None = None
    beside: Path | None = None


class Source(ABC):
    """Something that records can be read from. Every method may raise EndpointError; the source is then closed, and another one
    is made after a pause."""

    identity: str
    """What is read, such as the cluster and the topic: a stream keeps its positions for each identity apart."""

    def prepare(self, inlet: Inlet) -> None:  # noqa: B027 (nothing to do for most)
        """Take what is needed of the stream, once, before `starts`; a source may fill the stream with a copy here."""

    @abstractmethod
    def starts(self) -> Mapping[str, int]:
        """Return the partitions that there are now, each with the position at which a stream begins that has nothing of it."""

    @abstractmethod
    def ends(self) -> Mapping[str, int]:
        """Return the position behind the last record that can be read now, of each partition."""

    @abstractmethod
    def read(self, positions: Mapping[str, int], patience: float) -> Sequence[Portion]:
        """Return records from these positions on, at most a few megabytes, at most one portion of each partition.

        The same position gives the same records, however often it is asked, though more or fewer of them. If there are none, wait
        for some at most `patience` seconds.
        """

    def has_reached(self, positions: Mapping[str, int], ends: Mapping[str, int]) -> bool:
        """Return whether everything is before these positions that was there when `ends` were asked for."""
        return all(partition in positions and positions[partition] >= end for partition, end in ends.items())

    def confirm(self, positions: Mapping[str, int]) -> None:  # noqa: B027 (nothing to do for many)
        """Take note that everything before these positions is durable in the stream."""

    def close(self) -> None:  # noqa: B027 (nothing to do for many)
        """Release connections."""
