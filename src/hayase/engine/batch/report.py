"""What the task of a bucket reports to the commit: the files that it wrote, and what became of the records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import orjson

from hayase.core.data_classes import dataclass
from hayase.engine.batch.offsets import Batch
from hayase.engine.batch.state import SegmentRef, refs_from_json

__all__ = ["Figures", "Part", "PlacedRows", "Report", "Run", "batch_marker", "version_in"]


@dataclass(slots=True)
class Figures:
    """What happened to the records of a stage: read = processed + dead + repeated + waiting.

    `spoiled` counts rows that arose inside the stage, such as the pairs of a join, and became dead letters. `kinds` counts all
    dead letters of the stage, those rows included, by kind of reason. `work` holds, for each stream, the number of records read
    and the seconds that this took.
    """

    read: int = 0
    processed: int = 0
    dead: int = 0
    waiting: int = 0
    written: int = 0
    seconds: float = 0.0
    spoiled: int = 0
    work: dict[str, tuple[int, float]] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    repeated: int = 0

    def __post_init__(self) -> None:
        self.work = {stream: (records, seconds) for stream, (records, seconds) in self.work.items()}  # JSON has lists

    def add(self, other: Figures) -> None:
        """Add the figures of another batch, task or bucket."""
        for name in ("read", "processed", "dead", "waiting", "written", "seconds", "spoiled", "repeated"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.count_kinds(other.kinds)
        for stream, (records, seconds) in other.work.items():
            self.worked(stream, records, seconds)

    def count_kinds(self, counts: Mapping[str, int]) -> None:
        """Add dead letters, by kind."""
        for kind, count in counts.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + count

    def worked(self, stream: str, records: int, seconds: float) -> None:
        """Add work on the records of a stream."""
        before = self.work.get(stream, (0, 0.0))
        self.work[stream] = (before[0] + records, before[1] + seconds)


@dataclass(frozen=True, slots=True)
class Part:
    """A durable, staged file of output records. The parts of a stream are published in the order of `order`."""

    stream: str
    file: str
    rows: int
    order: int


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """A file of a bucket's output rows with their places, which the commit merges with those of other buckets to one part."""

    stream: str
    file: str
    rows: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Run:
    """A durable, staged file of a table's entries."""

    table: str
    file: str
    entries: int


def batch_marker(lane: str, version: int) -> bytes:
    """The marker in the runs of a batch, by which a table knows the batches that it has ingested."""
    return f"{lane}/{version:012d}".encode()


def version_in(marker: bytes, lane: str) -> int:
    """Return the version of the batch that wrote a marker, if the lane's batch did; else 0.

    >>> version_in(batch_marker("main", 7), "main"), version_in(b"", "main")
    (7, 0)
    """
    name, _, version = marker.decode().rpartition("/")
    return int(version) if name == lane else 0


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one bucket's task, as the manifest needs it. `states` holds state segments by stage identity."""

    bucket: int
    batch: Batch
    parts: tuple[Part, ...]
    states: Mapping[str, tuple[SegmentRef, ...]]
    figures: Mapping[str, Figures]
    runs: tuple[Run, ...] = ()
    placed: tuple[PlacedRows, ...] = ()

    def as_json(self) -> bytes:
        return orjson.dumps(
            {
                "bucket": self.bucket,
                "batch": self.batch.as_blob().decode(),
                "parts": self.parts,
                "states": self.states,
                "figures": self.figures,
                "runs": self.runs,
                "placed": self.placed,
            }
        )

    @classmethod
    def from_json(cls, text: bytes | str) -> Report:
        data: dict[str, Any] = orjson.loads(text)
        return cls(
            data["bucket"],
            Batch.from_blob(data["batch"].encode()),
            tuple(Part(**fields) for fields in data["parts"]),
            {stage: refs_from_json(refs) for stage, refs in data["states"].items()},
            {stage: Figures(**fields) for stage, fields in data["figures"].items()},
            tuple(Run(**fields) for fields in data["runs"]),
            tuple(PlacedRows(**fields) for fields in data["placed"]),
        )
