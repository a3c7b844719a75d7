"""The gate: how much each stage may take in the next batch, asked where the source plans it.

Spark plans batches in a process of its own, so what it must know travels through two small files that the pipeline's
process replaces atomically. One holds orders (`Grants`): no file means everything, up to the limit of a batch. The other
holds what only the pipeline's process knows (`Feedback`): how many tasks can run at once, and what the work done so far took. It
says nothing that is needed after a crash, and does not wait for the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

import orjson

from hayase.core.errors import DamagedState
from hayase.engine.home import writing
from hayase.streams.durable import make_directory, write_atomic, write_volatile
from hayase.streams.sealed import read_sealed, seal

__all__ = ["BATCH_BYTES", "BATCH_ROWS", "Feedback", "FileGate", "Gate", "Grants", "Work"]

BATCH_ROWS = 4_000_000
"""Records that one stage may take from one stream in one batch, unless the gate says less."""
BATCH_BYTES = 512 * 2**20
"""Bytes likewise: records may be large."""

Work = Mapping[str, Mapping[str, tuple[int, float]]]
"""Records done and the seconds that they took, by stage and stream: totals that grow."""


@dataclass(frozen=True, slots=True)
class Grants:
    """What may be taken next. A closed gate plans no batch at all; `stages` narrows the rows of single stages, `queues` those
    of each stream that a stage reads: where they are governed, what is not named there gets nothing. `at_once` lets
    stages fire without waiting for their time."""

    open: bool = True
    limit: int = BATCH_ROWS
    stages: Mapping[str, int] = field(default_factory=dict)
    at_once: bool = False
    queues: Mapping[str, Mapping[str, int]] | None = None

    def rows(self, stage: str, stream: str) -> int:
        """How many records of one of its streams a stage may take."""
        granted = self.limit if self.queues is None else self.queues.get(stage, {}).get(stream, 0)
        return min(self.limit, self.stages.get(stage, self.limit), granted)


@dataclass(frozen=True, slots=True)
class Feedback:
    """What the pipeline's process tells the one that plans: task slots, 0 if that is not known, and the work done."""

    slots: int = 0
    work: Work = field(default_factory=dict)


class Gate(Protocol):
    """Whatever decides how much may be taken: asked once for every batch, and on every poll while there is nothing to do."""

    def grants(self) -> Grants: ...


@dataclass(slots=True)
class FileGate:
    """Orders and figures in files: written by the pipeline's process, read by the source's, again only when they changed."""

    path: Path
    _grants_seen: tuple[int, int] | None = None
    _grants: Grants = field(default_factory=Grants)
    _feedback_seen: tuple[int, int] | None = None
    _feedback: Feedback = field(default_factory=Feedback)

    def grants(self) -> Grants:
        seen = _identity(self.path)
        if seen is None:
            return Grants()
        if seen != self._grants_seen:
            try:
                self._grants = Grants(**orjson.loads(read_sealed(self.path, "gate", "delete it to open it")))
            except FileNotFoundError:
                return Grants()
            except (ValueError, TypeError) as error:
                raise DamagedState(f"the gate {self.path} cannot be read: {error}; delete it to open it") from error
            self._grants_seen = seen
        return self._grants

    def set(self, grants: Grants) -> None:
        """Make these the grants, from the next batch on."""
        with writing(f"the gate {self.path}"):
            make_directory(self.path.parent)
            write_atomic(self.path, seal("gate", orjson.dumps(asdict(grants))))

    def clear(self) -> None:
        """Take the orders back: everything may be taken. Whoever begins does so, since those of a run that has ended mean
        nothing, and so does whoever ends."""
        self.path.unlink(missing_ok=True)

    def feedback(self) -> Feedback:
        """What was feedback last; nothing is known if a loss of power left something that cannot be read."""
        seen = _identity(self._feedback_path)
        if seen is None:
            return Feedback()
        if seen != self._feedback_seen:
            try:
                self._feedback = _feedback_from(self._feedback_path.read_bytes())
            except (ValueError, TypeError, KeyError, AttributeError, FileNotFoundError):
                self._feedback = Feedback()
            self._feedback_seen = seen
        return self._feedback

    def send_feedback(self, slots: int, work: Work) -> None:
        """Tell how many tasks can run at once, and all the work that was done since each stage began."""
        with writing(f"the gate {self._feedback_path}"):
            make_directory(self.path.parent)
            write_volatile(self._feedback_path, orjson.dumps({"slots": slots, "work": work}))

    @property
    def _feedback_path(self) -> Path:
        return self.path.with_suffix(".told.json")


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells one replacement from another: every one is another file. None if there is no file."""
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
