"""Runs a query that is not part of a pipeline on the newest records of its streams, in a temporary home.

The trial copies the newest records of the streams that the query reads, directly or through other queries, finishes these
streams, and runs all these queries over them from the first record to the last. Tables are looked up as they are now. The home of
the pipeline is only read. Results are those of the copied records: what depends on older ones, such as a total since the
beginning, is as if the streams began there.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from hayase.core.clock import now_us
from hayase.core.data_classes import dataclass
from hayase.core.declarations import PipelineDeclaration, StreamDeclaration
from hayase.engine.definition.definitions import stages_of
from hayase.engine.definition.proposals import propose
from hayase.engine.home import Home
from hayase.engine.local import InProcess
from hayase.engine.results.lifespans import Integers
from hayase.engine.results.lifetime_samples import Timeline
from hayase.streams import StreamLog, durable
from hayase.streams.dead_letters import DEAD
from hayase.streams.home_format import begin_home

__all__ = ["SHOWN_REASONS", "Refusal", "TrialResult", "run_trial"]

SHOWN_REASONS = 5
"""How many kinds of reasons a result has."""
_LOOKED_AT = 1_000
"""How many refused records are looked at for their reasons."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Records that a stage has refused for reasons of one kind, and the first of these reasons."""

    stage: str
    kind: str
    reason: str
    records: int


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Rows in the order of their starts, all of them or a sample as `lifetime_samples` says, with start and end in microseconds
    (OPEN if it is not known) and in the type of the query's times.

    `first` and `end` bound the results; both are None if there are none. `read` counts the records of each stream, and `reasons`
    says why records were refused.
    """

    rows: pa.Table
    starts: Integers
    ends: Integers
    valid_from: pa.Array
    valid_to: pa.Array
    is_stream: bool
    matching: int
    density: Integers
    first: int | None
    end: int | None
    read: dict[str, int]
    refused: int
    reasons: tuple[Refusal, ...]


def run_trial(home: Home, part: PipelineDeclaration, query: str, *, records: int, limit: int, bins: int) -> TrialResult:
    """Run the queries of `part` (see `query_changes.part_with`) on the newest `records` of each stream, and return at most
    `limit` rows of `query`."""
    room = tempfile.TemporaryDirectory(prefix="hayase-trial-", ignore_cleanup_errors=True)
    with room as directory, durable.without_syncs():
        return _run(home, part, query, Home(Path(directory) / "home"), records, limit, bins)


def _run(
    home: Home, part: PipelineDeclaration, query: str, trial: Home, records: int, limit: int, bins: int
) -> TrialResult:
    begin_home(trial.path)
    for function in part.functions:
        if function.code is not None and not trial.code(function.code).exists():
            shutil.copytree(home.code(function.code), trial.code(function.code))
    trial.tables.mkdir()
    for table in part.tables:
        trial.table(table.name).symlink_to(home.table(table.name).absolute())
    with trial.lock():
        definition = propose(trial, replace(part, buckets=1))
        needed = {stream for record in definition.records for stream in record.inputs}
        read = {
            stream.name: _copy_newest(home, trial, stream, records) for stream in part.streams if stream.name in needed
        }
        with contextlib.closing(InProcess(trial, now_us, tasks=1)) as runner:
            runner.run_until_idle()
    output = stages_of(definition)[query].stream
    refused, reasons = _refusals(trial)
    return _sampled(StreamLog(trial.path, output), limit, bins, read, refused, reasons)


def _copy_newest(home: Home, trial: Home, stream: StreamDeclaration, records: int) -> int:
    """Copy the newest records of a stream into the trial, and finish the stream there; return their number."""
    target = StreamLog.ensure(trial.path, stream)
    source = StreamLog(home.path, stream)
    copied = 0
    if source.path.exists():
        index = source.index()
        batches = [piece.rows for piece in source.read(max(index.start, index.next - records), index.next)]
        if batches:
            rows = pa.Table.from_batches(batches, schema=stream.arrow_schema)
            target.append(rows, now=now_us())
            copied = rows.num_rows
    target.finish()
    return copied


def _refusals(trial: Home) -> tuple[int, tuple[Refusal, ...]]:
    """Return how many records the trial has refused, and the most frequent kinds of reasons."""
    log = StreamLog(trial.path, DEAD)
    if not log.path.exists():
        return 0, ()
    index = log.index()
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    for piece in log.read(index.start, min(index.next, index.start + _LOOKED_AT)):
        columns = (piece.rows.column(name).to_pylist() for name in ("stage", "kind", "reason"))
        for stage, kind, reason in zip(*columns):
            counts[stage, kind] += 1
            first.setdefault((stage, kind), reason.split("\n", 1)[0])
    refusals = (Refusal(*of, first[of], count) for of, count in counts.most_common(SHOWN_REASONS))
    return index.next - index.start, tuple(refusals)


def _sampled(
    log: StreamLog, limit: int, bins: int, read: dict[str, int], refused: int, reasons: tuple[Refusal, ...]
) -> TrialResult:
    timeline, is_stream = Timeline(log), not log.declaration.lifetimes
    bounds = timeline.bounds() if log.path.exists() else None
    if bounds is None:
        none, no_times = np.empty(0, np.int64), pa.array([], pa.null())
        rows = log.declaration.arrow_schema.empty_table()
        return TrialResult(rows, none, none, no_times, no_times, is_stream, 0, none, None, None, read, refused, reasons)
    first, end = bounds[0], max(bounds[1], bounds[0] + 1)
    sample = timeline.sample(first, end, limit, bins)
    valid_from, valid_to = pa.array(timeline.times(sample.starts)), pa.array(timeline.times(sample.ends))
    return TrialResult(
        sample.rows, sample.starts, sample.ends, valid_from, valid_to, is_stream, sample.matching, sample.density, first, end,
        read, refused, reasons,
    )  # fmt: skip
