"""The gate: how much each stage may take in the next batch, asked where the source plans it.

Spark plans batches in a process of its own, so the answer travels through a file that the pipeline's process replaces
atomically. No file means: everything, up to the limit of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

import orjson

from hayase.core.errors import DamagedState
from hayase.engine.home import writing
from hayase.streams.durable import write_atomic

__all__ = ["BATCH_BYTES", "BATCH_ROWS", "FileGate", "Gate", "Grants"]

BATCH_ROWS = 4_000_000
"""Records that one stage may take from one stream in one batch, unless the gate says less."""
BATCH_BYTES = 512 * 2**20
"""Bytes likewise: records may be large."""


@dataclass(frozen=True, slots=True)
class Grants:
    """What may be taken next. A closed gate plans no batch at all; `stages` narrows the rows of single stages. `at_once`
    lets stages fire without waiting for their time."""

    open: bool = True
    limit: int = BATCH_ROWS
    stages: Mapping[str, int] = field(default_factory=dict)
    at_once: bool = False

    def rows(self, stage: str) -> int:
        """How many records of each of its streams a stage may take."""
        return min(self.limit, self.stages.get(stage, self.limit))


class Gate(Protocol):
    """Whatever decides how much may be taken: asked once for every batch, and on every poll while there is nothing to do."""

    def grants(self) -> Grants: ...


@dataclass(slots=True)
class FileGate:
    """Grants in a file: set by the pipeline's process, asked by the source's. Reads the file again only when it changed."""

    path: Path
    _seen: tuple[int, int] | None = None
    _grants: Grants = field(default_factory=Grants)

    def grants(self) -> Grants:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return Grants()
        seen = (status.st_mtime_ns, status.st_ino)  # every replacement is another file
        if seen != self._seen:
            try:
                self._grants = Grants(**orjson.loads(self.path.read_bytes()))
            except (ValueError, TypeError) as error:
                raise DamagedState(f"the gate {self.path} cannot be read: {error}; delete it to open it") from error
            self._seen = seen
        return self._grants

    def set(self, grants: Grants) -> None:
        """Make these the grants, from the next batch on."""
        with writing(f"the gate {self.path}"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self.path, orjson.dumps(asdict(grants)))
