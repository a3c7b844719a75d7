"""The gate: limits and measurements that the pipeline's process passes to the process that plans batches.

Spark plans batches in a process of its own, so both travel through small files that the pipeline's process replaces atomically.
One file holds the `Grants`: how much each stage may take. Without it everything may be taken, up to the limit of a batch. The
other holds the `Feedback`: how many tasks can run at once, and how long the work so far took. It is not needed after a crash
and not synced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Protocol

import orjson

from hayase.core.data_classes import dataclass
from hayase.core.errors import DamagedState
from hayase.engine.home import writing
from hayase.streams.durable import make_directory, write_atomic, write_volatile
from hayase.streams.sealed import read_sealed, seal

__all__ = ["BATCH_BYTES", "BATCH_ROWS", "Feedback", "FileGate", "Gate", "Grants", "Work"]

BATCH_ROWS = 4_000_000
"""Records that one stage may take from one stream in one batch, unless the grants say less."""
BATCH_BYTES = 512 * 2**20
"""Bytes that one stage may take from one stream in one batch: records may be large."""

Work = Mapping[str, Mapping[str, tuple[int, float]]]
"""Records processed and the seconds that this took, by stage and stream: totals that only grow."""


@dataclass(frozen=True, slots=True)
class Grants:
    """How much the next batch may take.

    No batch is planned unless the gate is `open`. `limit` bounds every queue, `stages` the queues of single stages, `queues`
    single queues by stage and stream: if it is set, a queue that it does not name gets nothing. `at_once` lets stages fire
    before their time.
    """

    open: bool = True
    limit: int = BATCH_ROWS
    stages: Mapping[str, int] = field(default_factory=dict)
    at_once: bool = False
    queues: Mapping[str, Mapping[str, int]] | None = None

    def rows(self, stage: str, stream: str) -> int:
        """How many records a stage may take from one of its streams."""
        granted = self.limit if self.queues is None else self.queues.get(stage, {}).get(stream, 0)
        return min(self.limit, self.stages.get(stage, self.limit), granted)


@dataclass(frozen=True, slots=True)
class Feedback:
    """What only the pipeline's process knows: the number of task slots (0 if unknown), and the work done so far."""

    slots: int = 0
    work: Work = field(default_factory=dict)


class Gate(Protocol):
    """A source of grants. It is asked once for every batch, and at every poll while there is nothing to do."""

    def grants(self) -> Grants: ...


@dataclass(slots=True)
class FileGate:
    """Grants and feedback in files. The pipeline's process writes them; the planning process reads a file again when it has
    changed."""

    path: Path
    _grants_seen: tuple[int, int] | None = None
    _grants: Grants = field(default_factory=Grants)
    _feedback_seen: tuple[int, int] | None = None
    _feedback: Feedback = field(default_factory=Feedback)

    def grants(self) -> Grants:
        identity = _identity(self.path)
        if identity is None:
            return Grants()
        if identity != self._grants_seen:
            try:
                self._grants = Grants(**orjson.loads(read_sealed(self.path, "gate", "delete it to open it")))
            except FileNotFoundError:
                return Grants()
            except (ValueError, TypeError) as error:
                raise DamagedState(f"the gate {self.path} cannot be read: {error}", "delete it to open it") from error
            self._grants_seen = identity
        return self._grants

    def set(self, grants: Grants) -> None:
        """Set the grants, from the next batch on."""
        with writing(f"the gate {self.path}"):
            make_directory(self.path.parent)
            write_atomic(self.path, seal("gate", orjson.dumps(asdict(grants))))

    def clear(self) -> None:
        """Remove the grants, so that everything may be taken. A run does so when it begins, since the grants of an earlier run
        mean nothing, and when it ends."""
        self.path.unlink(missing_ok=True)

    def feedback(self) -> Feedback:
        """The last feedback; none if there is no file, or one that a loss of power has made unreadable."""
        identity = _identity(self._feedback_path)
        if identity is None:
            return Feedback()
        if identity != self._feedback_seen:
            try:
                self._feedback = _feedback_from(self._feedback_path.read_bytes())
            except (ValueError, TypeError, KeyError, AttributeError, FileNotFoundError):
                self._feedback = Feedback()
            self._feedback_seen = identity
        return self._feedback

    def send_feedback(self, slots: int, work: Work) -> None:
        """Write how many tasks can run at once, and the work done since each stage began."""
        with writing(f"the gate {self._feedback_path}"):
            make_directory(self.path.parent)
            write_volatile(self._feedback_path, orjson.dumps({"slots": slots, "work": work}))

    @property
    def _feedback_path(self) -> Path:
        return self.path.with_suffix(".told.json")


def _identity(path: Path) -> tuple[int, int] | None:
    """What distinguishes a replacement of a file from the one before: every one is a new file. None if there is no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_ino


def _feedback_from(text: bytes) -> Feedback:
    data = orjson.loads(text)
    return Feedback(
        int(data["slots"]),
        {
            stage: {stream: (int(records), float(seconds)) for stream, (records, seconds) in streams.items()}
            for stage, streams in data["work"].items()
        },
    )
