"""A lane without Spark: the same plans, map sides, kernels and commits, one after the other in this process.

For tests, doctests and small files. Its results equal the lane's on Spark, record for record.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from hayase.engine.definitions import latest_version, load
from hayase.engine.gate import FileGate, Gate
from hayase.engine.home import MAIN, Home
from hayase.engine.logs import Logs
from hayase.engine.manifests import Commits, Manifest
from hayase.engine.mapping import blob_rows, header_rows, map_ranges
from hayase.engine.positions import Batch, advance, ranges
from hayase.engine.reducing import Report, Task, reduce_bucket

__all__ = ["InProcess", "begin"]


class InProcess:
    """Runs a home's newest definition, batch by batch. The caller holds the home's lock."""

    def __init__(self, home: Home, now: Callable[[], int], lane: str = MAIN, gate: Gate | None = None, tasks: int = 1):
        self._home, self._now, self._lane, self._tasks = home, now, lane, tasks
        self._gate = gate or FileGate(home.gate(lane))
        self._commits = Commits(home, lane)
        self._epoch = f"inprocess-{uuid.uuid4().hex}"
        self.manifest = self._commits.recover()
        self._failed = False

    def step(self) -> bool:
        """Run one batch; False when there was nothing to do. After one that failed, go on from what is on disk."""
        if self._failed:
            self.manifest = self._commits.recover()
        self._failed = True
        moved = self._step(self.manifest)
        self._failed = False
        return moved

    def _step(self, base: Manifest) -> bool:
        definition = load(self._home, latest_version(self._home))
        logs = Logs(self._home, definition)
        now = self._now()
        end = advance(base.offset, definition, logs, self._gate.grants(), now)
        if end == base.offset:
            return False
        batch = Batch(base.offset, end)
        blobs: list[pa.RecordBatch] = [header_rows(batch, definition.buckets)]
        for number, some in enumerate(ranges(base.offset, end, self._tasks)):
            blobs += map_ranges(definition, logs, some, number, now)
        task = Task(self._home, self._lane, base.version + 1, self._epoch, base.states, now)
        reports = [
            reduce_bucket(task, bucket, definition, rows) for bucket, rows in _by_bucket(blobs, definition.buckets)
        ]
        self.manifest = self._commits.commit(base, self._epoch, base.batch + 1, reports, now)
        return True

    def run_until_idle(self) -> Manifest:
        """Run batches until there is nothing left to do."""
        while self.step():
            pass
        return self.manifest


def _by_bucket(blobs: Iterable[pa.RecordBatch], buckets: int) -> Iterable[tuple[int, list[dict[str, Any]]]]:
    rows = [row for batch in blobs for row in blob_rows(batch)]
    for bucket in range(buckets):
        yield bucket, [row for row in rows if row["bucket"] == bucket]


def begin(commits: Commits, base: Manifest, now: int) -> Manifest:
    """Take up a new definition before the first batch, so that a start does not spend one on it."""
    home = commits.home
    definition = load(home, latest_version(home))
    end = advance(base.offset, definition, Logs(home, definition), FileGate(home.gate(commits.lane)).grants(), now)
    if definition.version == base.offset.definition or end == base.offset:
        return base
    report = Report(0, Batch(base.offset, end), (), {}, {})
    return commits.commit(base, "begin", base.batch + 1, [report], now)
