"""The map side of a batch: ranges of streams in, messages to the buckets out. Does not depend on Spark.

For each group of stages that reads a range, records that are late for it are refused, its map sides run, and the resulting rows
are split by the hash of the key. A stage without a kernel keeps the order of the log instead: a range goes to one bucket as a
whole.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from hayase.core import keys
from hayase.core.data_classes import dataclass
from hayase.core.reasons import Reason, ReasonKind, reasons_of
from hayase.core.stages import OFFSET, Input, Refusals
from hayase.core.times import BEGINNING, duration_text, instant_text
from hayase.engine.batch.messages import Data, DeadLetters, MapFigures, Message, mapped_schema
from hayase.engine.batch.offsets import Batch, Range
from hayase.engine.batch.report import Figures
from hayase.engine.batch.scan_groups import ScanGroup, scan_groups
from hayase.engine.definition.definitions import Definition, stages_of
from hayase.streams import Piece, StreamLog, event_times
from hayase.streams.dead_letters import dead_table
from hayase.streams.records import row_texts
from hayase.streams.repeats import Marks, marks_between, repeated_in

if TYPE_CHECKING:
    from hayase.engine.dead_letters.replay import Replayed

__all__ = ["map_task"]

CHUNK_ROWS = 262_144
"""Rows that are mapped at once: enough that the cost of a call does not matter, few enough for a message."""
CHUNK_BYTES = 64 * 2**20
"""Bytes that are mapped at once, unless a single record has more: a message, and a text column, hold less than 2 GiB."""


def map_task(
    definition: Definition, logs: Mapping[str, StreamLog], batch: Batch, task: Iterable[Range], number: int, now: int
) -> Iterator[list[Message]]:
    """The messages of one task of a batch, which reads the ranges `task`. `number` tells the tasks apart: the first one also
    takes the dead letters that are replayed."""
    if number == 0 and batch.end.settled > batch.start.settled:
        from hayase.engine.dead_letters.replay import replayed_records  # seldom needed

        for letters in replayed_records(definition, batch):
            yield from _map_replayed(definition, logs, batch, letters, now)
    groups = scan_groups(definition, batch)
    for count, whole in enumerate(task):
        log = logs[whole.stream]
        bucket = (number + count) % definition.buckets
        readers = [
            _Reading(group, log, whole.passed[group.names[0]], definition.buckets_of(group.names[0]), bucket, now)
            for group in groups
            if group.names[0] in whole.passed
        ]
        marks = marks_between(log, whole.first, whole.next)
        for chunk in chunks_of(log.read(whole.first, whole.next), log):
            firsts = chunk.without_repeats(marks)
            for reading in readers:
                yield from filter(None, reading.map_chunk(firsts, len(chunk) - len(firsts)))
        figures = {name: reading.figures for reading in readers for name in reading.group.names}
        yield [MapFigures(bucket, whole.stream, figures)]


def _map_replayed(
    definition: Definition, logs: Mapping[str, StreamLog], batch: Batch, letters: Replayed, now: int
) -> Iterator[list[Message]]:
    """Map records that one stage, and no other, gets again: as if they came now, in the stream that they came in."""
    refused = letters.refused(now)
    figures = Figures(read=refused.num_rows, dead=refused.num_rows)
    figures.count_kinds(Counter(refused.column("kind").to_pylist()))
    if refused.num_rows:
        yield [DeadLetters(0, refused)]
    if letters.rows.num_rows:
        group, log = ScanGroup((stages_of(definition)[letters.stage],)), logs[letters.stream]
        place = batch.start.positions[letters.stage][letters.stream]
        times = event_times(letters.rows, log.declaration)
        chunk = _Chunk(letters.rows, letters.offsets, times, np.full(len(times), place.peak))
        reading = _Reading(group, log, place.clock, definition.buckets_of(letters.stage), 0, now, figures)
        for messages in filter(None, reading.map_chunk(chunk)):
            yield [replace(message, replayed=True) if isinstance(message, Data) else message for message in messages]
    if any(record.name == letters.stage for record in definition.records):
        yield [MapFigures(0, letters.stream, {letters.stage: figures})]


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Records of a log, with their offsets, their event times and, for each, the greatest event time before it."""

    rows: pa.RecordBatch
    offsets: np.ndarray
    times: np.ndarray
    peaks: np.ndarray
    dedupe: np.ndarray | None = None
    """How far each record may be behind the greatest event time, if the stream has `dedupe`."""

    def without_repeats(self, marks: list[Marks]) -> _Chunk:
        """The records that are not repeats by these marks; the same if the stream has no `dedupe`."""
        if not marks:
            return self
        kept = np.flatnonzero(~repeated_in(marks, self.offsets))
        offsets = self.offsets[kept]
        part = np.searchsorted([mark.next for mark in marks], offsets, side="right")
        dedupe = np.array([mark.dedupe for mark in marks])[part]
        rows = self.rows if len(kept) == len(self) else self.rows.take(pa.array(kept))
        return _Chunk(rows, offsets, self.times[kept], self.peaks[kept], dedupe)

    @property
    def first(self) -> int:
        return int(self.offsets[0])

    def __len__(self) -> int:
        return int(self.rows.num_rows)


def chunks_of(pieces: Iterable[Piece], log: StreamLog) -> Iterator[_Chunk]:
    """Pieces of a log as chunks of about one size: small segments joined, large ones cut. What is computed for a chunk is computed
    once, however many appends it comes from."""
    pending: list[Piece] = []
    count = size = 0
    for piece in pieces:
        for rows, at in _cut(piece.rows):
            if pending and (count >= CHUNK_ROWS // 2 or size + rows.nbytes > CHUNK_BYTES):
                yield _chunk(pending, log)
                pending, count, size = [], 0, 0
            before = piece.running_max_before
            if at:  # the later part of a piece that was cut
                before = max(before, int(event_times(piece.rows.slice(0, at), log.declaration).max()))
            pending.append(Piece(rows, piece.first + at, before))
            count, size = count + rows.num_rows, size + rows.nbytes
    if pending:
        yield _chunk(pending, log)


def _chunk(pieces: list[Piece], log: StreamLog) -> _Chunk:
    """Consecutive pieces as one chunk."""
    rows = pieces[0].rows if len(pieces) == 1 else pa.concat_batches([piece.rows for piece in pieces])
    times = event_times(rows, log.declaration)
    starts = np.array([piece.first - pieces[0].first for piece in pieces])
    offsets = np.arange(pieces[0].first, pieces[0].first + len(times))
    return _Chunk(rows, offsets, times, _peaks(times, starts, [piece.running_max_before for piece in pieces]))


def _cut(rows: pa.RecordBatch, at: int = 0) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Rows in halves until each fits a chunk, with the row where each begins; a single record always fits."""
    count = rows.num_rows
    if count <= 1 or (count <= CHUNK_ROWS and rows.nbytes <= CHUNK_BYTES):
        yield rows, at
    else:
        yield from _cut(rows.slice(0, count // 2), at)
        yield from _cut(rows.slice(count // 2), at + count // 2)


def _peaks(times: np.ndarray, starts: np.ndarray, before: list[int]) -> np.ndarray:
    """For each record the greatest event time of all before it; `before` are those of the records at `starts`, the first of which
    is 0."""
    peaks = np.empty(len(times), np.int64)
    peaks[0] = before[0]
    peaks[1:] = times[:-1]
    peaks[starts] = np.maximum(peaks[starts], before)
    return np.maximum.accumulate(peaks, out=peaks)


@dataclass(frozen=True, slots=True)
class _Accepted:
    """The records of a chunk that an input takes: their rows, where they are in the chunk, and the refusals of the others."""

    chunk: _Chunk
    rows: pa.RecordBatch
    kept: np.ndarray
    refused: Refusals = field(default_factory=Refusals)

    def without(self, refused: Refusals) -> _Accepted:
        """The same without some more records of the chunk."""
        kept = self.kept[~np.isin(self.kept, refused.rows)]
        return _Accepted(self.chunk, self.chunk.rows.take(pa.array(kept)), kept, refused)


@dataclass(frozen=True, slots=True)
class _Reading:
    """A group of stages as it reads a stream. `passed` is the clock of the stream before the batch, `bucket` takes what has no
    key.

    `figures` count for each stage. A record counts once, however many inputs of a stage read it. Records that are not refused
    here count as processed; the reduce side subtracts those that wait and those that a kernel refuses.
    """

    group: ScanGroup
    log: StreamLog
    passed: int
    buckets: int
    bucket: int
    now: int
    figures: Figures = field(default_factory=Figures)

    def map_chunk(self, chunk: _Chunk, repeated: int = 0) -> Iterator[list[Message]]:
        """The messages of a chunk: those of each input, then the dead letters. `repeated` repeats were left out of it."""
        began = time.perf_counter()
        accepted = _Accepted(chunk, chunk.rows, np.arange(len(chunk)))
        late = _late(chunk, self.log, self.passed) if self.group.stages[0].refuses_late else Refusals()
        if chunk.dedupe is not None:
            late = _either(_older_than_ids(chunk, self.log), late)
        if len(late):
            accepted = accepted.without(late)
        refused = dict(zip(accepted.refused.rows.tolist(), accepted.refused.reasons))
        inputs = [
            (number, source)
            for number, source in enumerate(self.group.inputs)
            if source.stream == self.log.declaration.name
        ]
        for number, source in inputs:
            messages, lost = self._map_input(number, source, accepted)
            if source.counts:  # what the others refuse, these refuse too
                refused = dict(zip(lost.rows.tolist(), lost.reasons)) | refused
            yield messages
        if any(source.counts for _, source in inputs):
            self.figures.read += len(chunk) + repeated
            self.figures.repeated += repeated
            self.figures.dead += len(refused)
            self.figures.count_kinds(Counter(reason.kind.value for reason in refused.values()))
            self.figures.processed += len(chunk) - len(refused)
            yield self._dead_letters(chunk, dict(sorted(refused.items())))
        self.figures.seconds += (time.perf_counter() - began) / len(self.group.stages)

    def _map_input(self, number: int, source: Input, accepted: _Accepted) -> tuple[list[Message], Refusals]:
        """The messages of an input for a chunk, and the records that it refuses."""
        chunk, old = accepted.chunk, Refusals()
        if source.horizon is not None:
            old = _too_old(chunk, source.horizon)
            accepted = accepted.without(old) if len(old) else accepted
        rows = accepted.rows
        if source.numbered:
            rows = rows.append_column(OFFSET, pa.array(chunk.offsets[accepted.kept], pa.int64()))
        mapped = source.map_side(rows)
        input_rows = accepted.kept[mapped.input_rows]
        if self.group.stages[0].kernel is None:
            parts = [(self.bucket, mapped.rows)] if mapped.rows.num_rows else []
        else:
            columns = [*mapped.rows.columns, pa.array(chunk.times[input_rows]), pa.array(chunk.offsets[input_rows])]
            whole = pa.RecordBatch.from_arrays(columns, schema=mapped_schema(source.schema))
            parts = list(_parts(whole, number, source, self.buckets))
        lost = np.concatenate([old.rows, accepted.kept[mapped.refused.rows]])
        names = self.group.names
        messages: list[Message] = [Data(bucket, names, number, chunk.first, part) for bucket, part in parts]
        return messages, Refusals(lost, [*old.reasons, *mapped.refused.reasons])

    def _dead_letters(self, chunk: _Chunk, refused: Mapping[int, Reason]) -> list[Message]:
        """Dead letters of the refused records of a chunk, for each stage."""
        if not refused:
            return []
        rows = list(refused)
        records = row_texts(pa.table(chunk.rows.take(pa.array(rows))))
        return [
            DeadLetters(
                self.bucket,
                dead_table(
                    stage=stage.name,
                    version=stage.fingerprint,
                    stream=self.log.declaration.name,
                    offsets=chunk.offsets[rows].tolist(),
                    records=records,
                    reasons=list(refused.values()),
                    attempts=1,
                    now=self.now,
                ),
            )
            for stage in self.group.stages
        ]


def _parts(rows: pa.RecordBatch, number: int, source: Input, buckets: int) -> Iterable[tuple[int, pa.RecordBatch]]:
    """The mapped rows of an input, by its number, in parts, each with the bucket it goes to."""
    if not rows.num_rows:
        return ()
    if source.broadcast:
        return [(bucket, rows) for bucket in range(buckets)]
    if source.bucket is not None:
        return [(source.bucket % buckets, rows)]
    if source.dealt:
        start = rows.column(OFFSET)[0].as_py() + number  # records of several inputs at one offset fill all buckets
        return keys.deal(rows, start, buckets)
    return [(bucket, part) for bucket, part in keys.split(rows, source.key, buckets) if part.num_rows]


def _late(chunk: _Chunk, log: StreamLog, passed: int) -> Refusals:
    """Records older than the greatest event time before them in the log less the slack, or than the clock before the batch."""
    slack = log.declaration.slack
    bounds = np.full(len(chunk), passed, np.int64)
    if not log.declaration.ordered:
        known = chunk.peaks > BEGINNING
        np.maximum(bounds, chunk.peaks - slack, out=bounds, where=known)
    rows = np.flatnonzero(chunk.times < bounds)
    texts = [
        f"late: {instant_text(int(chunk.times[row]))} is before {instant_text(int(bounds[row]))}, "
        f'where the clock of stream "{log.declaration.name}" stood (slack {duration_text(slack)}); give the stream more '
        "slack, or send records sooner"
        for row in rows
    ]
    return Refusals(rows, reasons_of(ReasonKind.LATE, texts))


def _older_than_ids(chunk: _Chunk, log: StreamLog) -> Refusals:
    """Records of a stream with `dedupe` that are older than the ids that are known."""
    assert chunk.dedupe is not None
    bounds = chunk.peaks - chunk.dedupe
    rows = np.flatnonzero((chunk.times < bounds) & (chunk.peaks > BEGINNING))
    texts = [
        f"too old: {instant_text(int(chunk.times[row]))} is before {instant_text(int(bounds[row]))}; whether a record of stream "
        f'"{log.declaration.name}" came before is known for {duration_text(int(chunk.dedupe[row]))} (dedupe)'
        for row in rows
    ]
    return Refusals(rows, reasons_of(ReasonKind.TOO_OLD, texts))


def _either(some: Refusals, others: Refusals) -> Refusals:
    """The refusals of both, in order; a row in both has the reason of the first."""
    reasons = dict(zip(others.rows.tolist(), others.reasons)) | dict(zip(some.rows.tolist(), some.reasons))
    rows = sorted(reasons)
    return Refusals(np.array(rows, np.int64), [reasons[row] for row in rows])


def _too_old(chunk: _Chunk, horizon: int) -> Refusals:
    """Records that are older than the horizon. Which these are depends on the log alone."""
    times, peaks = chunk.times, chunk.peaks
    rows = np.flatnonzero((times < peaks - horizon) & (peaks > BEGINNING))
    texts = [
        f"too old: {instant_text(int(times[row]))} is before {instant_text(int(peaks[row]) - horizon)}; whether an event came "
        f"before is known for {duration_text(horizon)} (the horizon)"
        for row in rows
    ]
    return Refusals(rows, reasons_of(ReasonKind.TOO_OLD, texts))
