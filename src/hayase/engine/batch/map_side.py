"""The map side of a batch: ranges of streams in, Arrow blobs per bucket out. Knows nothing of Spark.

For each stage that reads a range: records that are late for it are refused, its map side runs, and what comes out is
split by the hash of the stage's key. A stage without a kernel keeps the order of the log instead: a range goes to one
bucket whole.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa

from hayase.core import keys
from hayase.core.stages import OFFSET, TIME, Input, Refusals, Stage
from hayase.core.times import BEGINNING, duration_text, instant_text
from hayase.engine.batch.offsets import Batch, Range
from hayase.engine.definition.definitions import Definition, stages_of
from hayase.streams import Piece, StreamLog, event_times
from hayase.streams.dead_letters import dead_table
from hayase.streams.records import row_texts

if TYPE_CHECKING:
    from hayase.engine.dead_letters.replay import Replayed

__all__ = ["BLOBS", "blob_rows", "from_blob", "header_rows", "map_ranges", "map_task", "mapped_schema"]

CHUNK_ROWS = 262_144
"""Rows that are mapped at once: enough to drown the cost of a call, few enough for a blob."""
CHUNK_BYTES = 64 * 2**20
"""Bytes that are mapped at once, unless a single record has more: a blob, and a column of text, hold less than 2 GiB."""

BLOBS = pa.schema(
    [
        ("bucket", pa.int32()),
        ("kind", pa.string()),  # header | data | replayed | dead | figures (of a stream, which stands in `stage`)
        ("stage", pa.string()),
        ("input", pa.int32()),
        ("first", pa.int64()),
        ("blob", pa.binary()),
    ]
)


def mapped_schema(schema: pa.Schema) -> pa.Schema:
    """What travels to a kernel: the mapped columns, the event time and the offset."""
    return schema.append(pa.field(TIME, pa.int64())).append(pa.field(OFFSET, pa.int64()))


def header_rows(batch: Batch, buckets: int) -> pa.RecordBatch:
    """One row for every bucket, with or without data: the batch's offsets, and so every clock."""
    return _rows([(bucket, "header", "", 0, 0, batch.as_blob()) for bucket in range(buckets)])


def map_task(
    definition: Definition, logs: Mapping[str, StreamLog], batch: Batch, task: Iterable[Range], number: int, now: int
) -> Iterator[pa.RecordBatch]:
    """What one task of a batch gives to the reduce side. `number` tells the tasks apart: the first one also takes the dead
    letters that are replayed."""
    if number == 0 and batch.end.settled > batch.start.settled:
        from hayase.engine.dead_letters.replay import replayed  # seldom

        for each in replayed(definition, batch):
            yield from _map_replayed(definition, logs, batch, each, now)
    yield from map_ranges(definition, logs, task, number, now)


def _map_replayed(
    definition: Definition, logs: Mapping[str, StreamLog], batch: Batch, letters: Replayed, now: int
) -> Iterator[pa.RecordBatch]:
    """Records that one stage gets once more, and nobody else: as if they came now, in the stream that they came in."""
    refused = letters.refused(now)
    dead = refused.num_rows
    if dead:
        yield _rows([(0, "dead", letters.stage, 0, 0, to_blob(_batch(refused)))])
    figures = {"read": dead, "processed": 0, "dead": dead, "seconds": 0.0}
    if letters.rows.num_rows:
        stage, log = stages_of(definition)[letters.stage], logs[letters.stream]
        place = batch.start.positions[letters.stage][letters.stream]
        times = event_times(letters.rows, log.declaration)
        chunk = _Chunk(letters.rows, letters.offsets, times, np.full(len(times), place.peak))
        party = _Party((stage,), stage.inputs, place.clock)
        began = time.perf_counter()
        for made in _mapped(party, chunk, log, definition, 0, now):
            figures["read"] += made.read
            figures["dead"] += made.dead
            figures["processed"] += made.read - made.dead
            if made.rows:
                yield _rows([(each[0], _AGAIN.get(each[1], each[1]), *each[2:]) for each in made.rows])
        figures["seconds"] += time.perf_counter() - began
    if any(each.name == letters.stage for each in definition.records):
        yield _rows([(0, "figures", letters.stream, 0, 0, orjson.dumps({letters.stage: figures}))])


def map_ranges(
    definition: Definition, logs: Mapping[str, StreamLog], task: Iterable[Range], number: int, now: int
) -> Iterator[pa.RecordBatch]:
    """Run the map sides of all stages over the ranges of one task. `number` tells the tasks of a batch apart."""
    stages = stages_of(definition)
    for count, each in enumerate(task):
        log = logs[each.stream]
        bucket = (number + count) % definition.buckets
        figures = {name: {"read": 0, "processed": 0, "dead": 0, "seconds": 0.0} for name in each.passed}
        parties = list(_parties(stages, each.passed))
        for chunk in _chunks(log.read(each.first, each.next), log):
            for party in parties:
                began = time.perf_counter()
                for made in _mapped(party, chunk, log, definition, bucket, now):
                    for name in party.names:
                        figures[name]["read"] += made.read
                        figures[name]["dead"] += made.dead
                        figures[name]["processed"] += made.read - made.dead
                    if made.rows:
                        yield _rows(made.rows)
                for name in party.names:
                    figures[name]["seconds"] += (time.perf_counter() - began) / len(party.names)
        yield _rows([(bucket, "figures", each.stream, 0, each.first, orjson.dumps(figures))])


@dataclass(frozen=True, slots=True)
class _Party:
    """Stages that read a range together: one alone, or company, whose inputs are read once for all of them."""

    stages: tuple[Stage, ...]
    inputs: tuple[Input, ...]
    passed: int

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.stages]

    @property
    def blob_name(self) -> str:
        """What is written on its blobs: the names of all who shall get them."""
        return ",".join(self.names)


def _parties(stages: Mapping[str, Stage], passed: Mapping[str, int]) -> Iterator[_Party]:
    """Who reads a range together: company for which the same is late."""
    found: dict[tuple[str, int], list[Stage]] = {}
    for name, clock in passed.items():
        company = stages[name].shared_scan
        found.setdefault((company.group if company else name, clock), []).append(stages[name])
    for (_, clock), members in found.items():
        first, inputs = members[0], members[0].inputs
        if first.shared_scan is not None and len(members) > 1:
            inputs = tuple(map(first.shared_scan.read, zip(*(each.inputs for each in members), strict=True)))
        yield _Party(tuple(members), inputs, clock)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Records of a log, with their offsets, their event times and the running maximum before each of them."""

    rows: pa.RecordBatch
    offsets: np.ndarray
    times: np.ndarray
    peaks: np.ndarray

    @property
    def first(self) -> int:
        return int(self.offsets[0])

    def __len__(self) -> int:
        return int(self.rows.num_rows)


def _chunks(pieces: Iterable[Piece], log: StreamLog) -> Iterator[_Chunk]:
    """Pieces of a log as chunks of about one size: small segments joined, large ones cut."""
    held: list[_Chunk] = []
    count = size = 0
    for piece in pieces:
        times = event_times(piece.rows, log.declaration)
        peaks = _peaks(times, piece.running_max_before)
        for rows, at in _cut(piece.rows):
            if held and (count >= CHUNK_ROWS // 2 or size + rows.nbytes > CHUNK_BYTES):
                yield _joined(held)
                held, count, size = [], 0, 0
            part = slice(at, at + rows.num_rows)
            offsets = np.arange(piece.first + at, piece.first + at + rows.num_rows)
            held.append(_Chunk(rows, offsets, times[part], peaks[part]))
            count, size = count + rows.num_rows, size + rows.nbytes
    if held:
        yield _joined(held)


def _cut(rows: pa.RecordBatch, at: int = 0) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Rows in halves until each fits a chunk, with the place where each begins; one record is never too large."""
    count = rows.num_rows
    if count <= 1 or (count <= CHUNK_ROWS and rows.nbytes <= CHUNK_BYTES):
        yield rows, at
    else:
        yield from _cut(rows.slice(0, count // 2), at)
        yield from _cut(rows.slice(count // 2), at + count // 2)


def _peaks(times: np.ndarray, before: int) -> np.ndarray:
    """For each record the running maximum of all before it."""
    peaks = np.empty(len(times), np.int64)
    peaks[:1] = before
    np.maximum.accumulate(times[:-1], out=peaks[1:])
    return np.maximum(peaks, before, out=peaks)


def _joined(chunks: list[_Chunk]) -> _Chunk:
    if len(chunks) == 1:
        return chunks[0]
    return _Chunk(
        pa.concat_batches([each.rows for each in chunks]),
        np.concatenate([each.offsets for each in chunks]),
        np.concatenate([each.times for each in chunks]),
        np.concatenate([each.peaks for each in chunks]),
    )


_Row = tuple[int, str, str, int, int, bytes]
_AGAIN = {"data": "replayed"}


@dataclass(slots=True)
class _Made:
    """What stages made of a chunk: rows to send, how many records were read, and how many of them died.

    A record counts once, however many inputs of a stage read it. Those that do not die here count as processed; the reduce
    side takes off what waits and what its kernel refuses.
    """

    rows: list[_Row]
    read: int = 0
    dead: int = 0


def _mapped(
    party: _Party, chunk: _Chunk, log: StreamLog, definition: Definition, bucket: int, now: int
) -> Iterator[_Made]:
    """What each input that reads this stream makes of a chunk, and then what became of its records."""
    timely = _Timely(chunk, Refusals(), chunk.rows, np.arange(len(chunk)))
    if party.stages[0].kernel is not None and party.stages[0].every is None:
        late = _late(chunk, log, party.passed)
        if len(late):
            kept = np.delete(timely.kept, late.rows)
            timely = _Timely(chunk, late, chunk.rows.take(pa.array(kept)), kept)
    refused = dict(zip(timely.late.rows.tolist(), timely.late.reasons))
    readers = [(number, each) for number, each in enumerate(party.inputs) if each.stream == log.declaration.name]
    for number, source in readers:
        rows, lost = _mapped_input(party, number, timely, definition, bucket)
        if source.counts:  # the others only tell of records that these account for
            refused = dict(zip(lost.rows.tolist(), lost.reasons)) | refused
        yield _Made(rows)
    if any(source.counts for _, source in readers):
        letters = _letters(party, chunk, log.declaration.name, dict(sorted(refused.items())), bucket, now)
        yield _Made(letters, read=len(chunk), dead=len(refused))


@dataclass(frozen=True, slots=True)
class _Timely:
    """A chunk as a stage takes it: its late records, the rows that are left, and where they stand in the chunk."""

    chunk: _Chunk
    late: Refusals
    rows: pa.RecordBatch
    kept: np.ndarray


def _mapped_input(
    party: _Party, number: int, timely: _Timely, definition: Definition, bucket: int
) -> tuple[list[_Row], Refusals]:
    """What an input makes of a chunk: rows to send, and the records that it refuses."""
    source, chunk = party.inputs[number], timely.chunk
    old = Refusals()
    if source.horizon is not None:
        timely = _within(timely, source.horizon)
        old = timely.late
    rows = timely.rows
    if source.numbered:
        rows = rows.append_column(OFFSET, pa.array(chunk.offsets[timely.kept], pa.int64()))
    mapped = source.map_side(rows)
    origin = timely.kept[mapped.origin]
    sent: list[_Row] = []
    if party.stages[0].kernel is None:
        if mapped.rows.num_rows:
            sent.append((bucket, "data", party.blob_name, number, chunk.first, to_blob(mapped.rows)))
    else:
        whole = pa.RecordBatch.from_arrays(
            [*mapped.rows.columns, pa.array(chunk.times[origin]), pa.array(chunk.offsets[origin])],
            schema=mapped_schema(source.schema),
        )
        sent += [
            (to, "data", party.blob_name, number, chunk.first, blob)
            for to, blob in _sent(whole, source, definition.buckets)
        ]
    lost = np.concatenate([old.rows, timely.kept[mapped.refused.rows]])
    return sent, Refusals(lost, [*old.reasons, *mapped.refused.reasons])


def _letters(
    party: _Party, chunk: _Chunk, stream: str, refused: Mapping[int, str], bucket: int, now: int
) -> list[_Row]:
    """Dead letters of the records of a chunk that are refused, one for each stage."""
    sent: list[_Row] = []
    rows = list(refused)
    for stage in party.stages if refused else ():
        letters = dead_table(
            stage=stage.name,
            version=stage.fingerprint,
            stream=stream,
            offsets=chunk.offsets[rows].tolist(),
            records=row_texts(pa.table(chunk.rows.take(pa.array(rows)))),
            reasons=list(refused.values()),
            attempts=1,
            now=now,
        )
        sent.append((bucket, "dead", stage.name, 0, chunk.first, to_blob(_batch(letters))))
    return sent


def _sent(rows: pa.RecordBatch, source: Input, buckets: int) -> Iterator[tuple[int, bytes]]:
    """The blobs of an input, each with the bucket it goes to."""
    if not rows.num_rows:
        return
    if source.broadcast:
        blob = to_blob(rows)
        yield from ((bucket, blob) for bucket in range(buckets))
    elif source.bucket is not None:
        yield source.bucket % buckets, to_blob(rows)
    else:
        yield from ((bucket, to_blob(part)) for bucket, part in keys.split(rows, source.key, buckets) if part.num_rows)


def _late(chunk: _Chunk, log: StreamLog, passed: int) -> Refusals:
    """Records older than their stream's running maximum less the slack, or than what the clock had passed by decision."""
    slack = log.declaration.slack
    bounds = np.full(len(chunk), passed, np.int64)
    if not log.declaration.ordered:
        known = chunk.peaks > BEGINNING
        np.maximum(bounds, chunk.peaks - slack, out=bounds, where=known)
    rows = np.flatnonzero(chunk.times < bounds)
    return Refusals(
        rows,
        [
            f"late: {instant_text(int(chunk.times[i]))} is before {instant_text(int(bounds[i]))}, "
            f'where the clock of stream "{log.declaration.name}" stood (slack {duration_text(slack)}); give the stream more '
            "slack, or send records sooner"
            for i in rows
        ],
    )


def _within(timely: _Timely, horizon: int) -> _Timely:
    """A chunk without the records that are older than the horizon. What is refused depends on the log alone."""
    times, peaks = timely.chunk.times, timely.chunk.peaks
    old = np.flatnonzero((times < peaks - horizon) & (peaks > BEGINNING))
    if not len(old):
        return timely
    kept = np.delete(timely.kept, old)
    reasons = [
        f"too old: {instant_text(int(times[i]))} is before {instant_text(int(peaks[i]) - horizon)}; whether an event came "
        f"before is known for {duration_text(horizon)} (the horizon)"
        for i in old
    ]
    return _Timely(timely.chunk, Refusals(old, reasons), timely.chunk.rows.take(pa.array(kept)), kept)


def _batch(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0]


def _rows(rows: list[_Row]) -> pa.RecordBatch:
    columns = list(zip(*rows))
    return pa.RecordBatch.from_arrays(
        [pa.array(values, each.type) for values, each in zip(columns, BLOBS)], schema=BLOBS
    )


def blob_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows of `BLOBS` as mappings; the blobs stay Arrow scalars, so that nothing is copied."""
    columns = [list(each) if each.type == pa.binary() else each.to_pylist() for each in batch.columns]
    return [dict(zip(BLOBS.names, values)) for values in zip(*columns)]


def to_blob(batch: pa.RecordBatch) -> bytes:
    """A batch as the bytes of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(memoryview(sink.getvalue()))


def from_blob(blob: pa.BinaryScalar) -> pa.RecordBatch:
    """The batch of a blob, without copying it."""
    return pa.ipc.open_stream(blob.as_buffer()).read_next_batch()
