"""Segment files: immutable runs of consecutive records, independent of their offsets in a stream.

    body     Arrow IPC file: the records, in batches of at most `BATCH_ROWS`
    trailer  JSON: counts, event times, producers, time of writing
    footer   40 bytes: magic, length of body and trailer, xxh3_64 of body and trailer

A truncated file, or one with any changed byte, raises `DamagedSegment`. Files are memory-mapped and read without a copy;
the body is checked against its checksum once per process. Dead letters are compressed: a flood of them repeats one reason
over and over, and few are ever read.
"""

from __future__ import annotations

import os
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import xxhash

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DamagedSegment, SchemaMismatch, StreamError
from hayase.core.system_errors import remedy_of
from hayase.core.times import BEGINNING, END
from hayase.streams import durable
from hayase.streams.dead_letters import DEAD
from hayase.streams.event_time import event_times

__all__ = ["BATCH_ROWS", "Produced", "Segment", "Trailer", "open_segment", "read_trailer", "stage", "write_segment"]

BATCH_ROWS = 262_144
"""Maximal number of records in one batch of a segment: large enough to amortise a pass, small enough for a cache."""
WORTH_ROWS = 32_768
"""Batches of at least this many records are not joined with others."""

_MAGIC = b"HAYASE\x01\n"
_FOOTER = struct.Struct("<8sQQQQ")
_VERIFIED_KEPT = 65_536
_verified: OrderedDict[tuple[str, int, int, int], None] = OrderedDict()


@dataclass(frozen=True, slots=True)
class Produced:
    """Records [first, next) are append number `sequence` of a producer; offsets are relative to the segment, or to the
    stream after `moved`."""

    producer: str
    sequence: int
    first: int
    next: int

    def moved(self, by: int) -> Produced:
        """Return the same append with its offsets shifted."""
        return Produced(self.producer, self.sequence, self.first + by, self.next + by)


@dataclass(frozen=True, slots=True)
class Trailer:
    """The metadata of a segment; `batches` has (records, latest event time) of each batch."""

    rows: int
    earliest: int
    latest: int
    batches: tuple[tuple[int, int], ...]
    producers: tuple[Produced, ...]
    written_at: int


@dataclass(frozen=True, slots=True)
class Segment:
    """An open, verified segment; it stays readable when the file is removed."""

    trailer: Trailer
    batch: Callable[[int], pa.RecordBatch]


class _Sink:
    """The file that Arrow writes to; counts and hashes the bytes, so that no second copy is held in memory."""

    closed = False

    def __init__(self, descriptor: int):
        self.descriptor, self.length, self.digest = descriptor, 0, xxhash.xxh3_64()

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.length += len(data)
        return durable.write(self.descriptor, data)

    def flush(self) -> None:
        """Do nothing: Arrow calls it, but `fsync_file` makes the bytes durable."""


def write_segment(
    descriptor: int,
    rows: pa.Table,
    declaration: StreamDeclaration,
    *,
    written_at: int,
    producers: Iterable[Produced] = (),
) -> Trailer:
    """Write records to an open file as a segment and make its bytes durable; the caller renames the file."""
    batches = _batches(in_declared_schema(rows, declaration))
    spans = [_span(batch, declaration) for batch in batches]
    trailer = Trailer(
        rows=rows.num_rows,
        earliest=min((earliest for earliest, _ in spans), default=END),
        latest=max((latest for _, latest in spans), default=BEGINNING),
        batches=tuple((batch.num_rows, latest) for batch, (_, latest) in zip(batches, spans)),
        producers=tuple(producers),
        written_at=written_at,
    )
    sink = _Sink(descriptor)
    options = pa.ipc.IpcWriteOptions(compression="zstd" if declaration.name == DEAD.name else None)
    with pa.ipc.new_file(pa.PythonFile(sink, mode="w"), declaration.arrow_schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    text = _trailer_text(trailer)
    footer = _FOOTER.pack(_MAGIC, sink.length, len(text), sink.digest.intdigest(), xxhash.xxh3_64_intdigest(text))
    durable.write(descriptor, text + footer)
    durable.fsync_file(descriptor)
    return trailer


def stage(
    directory: Path,
    rows: pa.Table,
    declaration: StreamDeclaration,
    name: str,
    *,
    written_at: int,
    producer: str | None = None,
    sequence: int | None = None,
    confirm: bool = True,
) -> Path:
    """Write records to the durable file `directory/name`, for `StreamLog.publish`; an existing file is replaced. Without `confirm`
    its name is durable once the caller has synced the directory."""
    try:
        with durable.temporary(directory, name) as (draft, descriptor):
            produced = one_append(producer, sequence, rows.num_rows)
            write_segment(descriptor, rows, declaration, written_at=written_at, producers=produced)
            durable.rename(draft, directory / name, confirm=confirm)
    except OSError as error:
        raise write_error(declaration.name, error) from error
    return directory / name


def one_append(producer: str | None, sequence: int | None, rows: int) -> tuple[Produced, ...]:
    """Return the producers of a segment with one append; ValueError unless producer and sequence are given together."""
    if producer is None and sequence is None:
        return ()
    if producer is None or sequence is None:
        raise ValueError("give producer and sequence together: the one names the sender, the other counts its appends")
    return (Produced(producer, sequence, 0, rows),)


def write_error(stream: str, error: OSError) -> StreamError:
    """Return the error to raise when a log could not be changed: the state of the log, and what to do."""
    if isinstance(error, durable.Unsynced):
        return StreamError(
            stream,
            f'a change to stream "{stream}" was made, but the disk did not confirm it ({error.strerror}), so it may '
            f"not last: check the disk, then do it again with the same producer and sequence",
        )
    if durable.no_room(error):
        return StreamError(
            stream,
            f'no room on disk for stream "{stream}" ({error.strerror})',
            "nothing was changed: free some space or set a retention, then do it again",
        )
    return StreamError(stream, f'stream "{stream}" cannot be written: {error}\n{remedy_of(error)}')


def in_declared_schema(rows: pa.Table, declaration: StreamDeclaration) -> pa.Table:
    """Return the records in exactly the declared schema; SchemaMismatch if names or types of columns differ."""
    schema = declaration.arrow_schema
    if rows.schema.equals(schema, check_metadata=False):
        return rows
    if rows.schema.names == schema.names and rows.schema.types == schema.types:
        with_nulls = [field.name for field in schema if not field.nullable and rows.column(field.name).null_count]
        if not with_nulls:
            return pa.Table.from_arrays(rows.columns, schema=schema)
        raise SchemaMismatch(
            f'null in column "{with_nulls[0]}" of stream "{declaration.name}", which is declared not null'
        )
    raise SchemaMismatch(
        f"records with columns ({', '.join(f'{field.name} {field.type}' for field in rows.schema)}) do not fit stream "
        f'"{declaration.name}", which has ({declaration.schema}); conform them first'
    )


def _batches(rows: pa.Table) -> list[pa.RecordBatch]:
    """Return the records in batches that are large enough; large chunks are not copied."""
    pieces = max((column.num_chunks for column in rows.columns), default=1)
    whole = rows.combine_chunks() if pieces > 1 and rows.num_rows < pieces * WORTH_ROWS else rows
    return [batch for batch in whole.to_batches(max_chunksize=BATCH_ROWS) if batch.num_rows]


def _span(batch: pa.RecordBatch, declaration: StreamDeclaration) -> tuple[int, int]:
    times = event_times(batch, declaration)
    earliest, latest = int(times.min()), int(times.max())
    if earliest <= BEGINNING or latest >= END:
        raise SchemaMismatch(
            f'a time in column "{declaration.time}" of stream "{declaration.name}" is beyond every calendar; refuse '
            f"such records before the append"
        )
    return earliest, latest


def _trailer_text(trailer: Trailer) -> bytes:
    return orjson.dumps(
        {
            "rows": trailer.rows,
            "earliest": trailer.earliest,
            "latest": trailer.latest,
            "batches": trailer.batches,
            "producers": [
                [append.producer, append.sequence, append.first, append.next] for append in trailer.producers
            ],
            "written_at": trailer.written_at,
        }
    )


def read_trailer(path: Path, stream: str) -> Trailer:
    """Read the metadata of a segment without its records."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        footer = os.pread(descriptor, _FOOTER.size, max(0, size - _FOOTER.size))
        body, length, _, digest = _lengths(footer, size, path, stream)
        text = os.pread(descriptor, length, body)
    finally:
        os.close(descriptor)
    return _trailer(text, digest, path, stream)


def open_segment(path: Path, stream: str) -> Segment:
    """Map a segment and verify its checksum, once per process."""
    with pa.memory_map(str(path)) as file:
        state = os.fstat(file.fileno())
        whole = file.read_buffer() if state.st_size else pa.py_buffer(b"")
    footer = bytes(whole[max(0, whole.size - _FOOTER.size) :])
    body, length, body_digest, digest = _lengths(footer, whole.size, path, stream)
    trailer = _trailer(bytes(whole[body : body + length]), digest, path, stream)
    records = whole.slice(0, body)
    key = (str(path), state.st_ino, state.st_size, state.st_mtime_ns)
    if key not in _verified:
        if xxhash.xxh3_64_intdigest(memoryview(records)) != body_digest:
            raise damage_error(path, stream, "its records do not match their checksum")
        _verified[key] = None
        while len(_verified) > _VERIFIED_KEPT:
            _verified.popitem(last=False)
    return Segment(trailer, pa.ipc.open_file(records).get_batch)


def _lengths(footer: bytes, size: int, path: Path, stream: str) -> tuple[int, int, int, int]:
    if len(footer) < _FOOTER.size:
        raise damage_error(path, stream, f"it was cut short at {size} bytes")
    magic, body, length, body_digest, digest = _FOOTER.unpack(footer)
    if magic != _MAGIC:
        raise damage_error(path, stream, f"it was cut short at {size} bytes, or its end was overwritten")
    if body + length + _FOOTER.size != size:
        raise damage_error(path, stream, f"it is {size} bytes long and should be {body + length + _FOOTER.size}")
    return body, length, body_digest, digest


def _trailer(text: bytes, digest: int, path: Path, stream: str) -> Trailer:
    if xxhash.xxh3_64_intdigest(text) != digest:
        raise damage_error(path, stream, "its trailer does not match its checksum")
    data = orjson.loads(text)
    return Trailer(
        rows=data["rows"],
        earliest=data["earliest"],
        latest=data["latest"],
        batches=tuple((rows, latest) for rows, latest in data["batches"]),
        producers=tuple(Produced(*append) for append in data["producers"]),
        written_at=data["written_at"],
    )


def damage_error(path: Path, stream: str, what: str) -> DamagedSegment:
    """Return the error for a damaged segment file, with the advice what to do."""
    return DamagedSegment(
        stream,
        f'segment "{path}" of stream "{stream}" is damaged: {what}',
        "put back an intact copy of this file (same name) from a backup, and check the disk",
    )
