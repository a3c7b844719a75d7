"""From the map side to the reduce side by way of files: Spark shuffles where a large blob lies, not its bytes.

Through Spark a blob is copied half a dozen times; a file is written once and read once, and is gone before the disk has
seen much of it. Every process of a lane sees the home, so it sees these files. Nothing here is durable, nor need be: the files
of a batch are of no use once it is committed, and a batch that is run again writes its own.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import xxhash

from hayase.core.errors import DamagedState
from hayase.engine.home import writing
from hayase.streams import durable

__all__ = ["clear", "put_out", "taken_in"]

LARGE = 65_536
"""Bytes from which on a blob is put into a file."""
KIND = "data in a file"
"""What a row is that says where its data lie."""


def put_out(batches: Iterable[pa.RecordBatch], directory: Path) -> Iterator[pa.RecordBatch]:
    """Rows of `mapping.BLOBS` whose large data were put into a file, one for all of them."""
    path = directory / uuid.uuid4().hex
    descriptor: int | None = None
    size = 0
    try:
        for batch in batches:
            kinds, blobs = batch.column("kind").to_pylist(), list(batch.column("blob"))
            for at, blob in enumerate(blobs):
                body = blob.as_buffer()
                if kinds[at] != "data" or body.size < LARGE:
                    continue
                with writing(f"the exchanged data {path}"):
                    if descriptor is None:
                        descriptor = durable.opened(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                    padding = -size % 64  # Arrow wants its buffers aligned
                    durable.write(descriptor, b"\0" * padding)
                    durable.write(descriptor, memoryview(body))
                kinds[at] = KIND
                blobs[at] = orjson.dumps([path.name, size + padding, body.size, xxhash.xxh3_64_hexdigest(body)])
                size += padding + body.size
            yield _with(batch, kinds, blobs) if KIND in kinds else batch
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _with(batch: pa.RecordBatch, kinds: list[str], blobs: list[Any]) -> pa.RecordBatch:
    plain = [each if isinstance(each, bytes) else each.as_py() for each in blobs]
    columns = dict(zip(batch.schema.names, batch.columns)) | {"kind": pa.array(kinds), "blob": pa.array(plain)}
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)


@dataclass(frozen=True, slots=True)
class _Read:
    """A blob that was in a file, in place of the scalar that it was before."""

    body: pa.Buffer

    def as_buffer(self) -> pa.Buffer:
        return self.body


def taken_in(rows: Iterable[Mapping[str, Any]], directory: Path) -> list[Mapping[str, Any]]:
    """The rows as they were before `put_out`."""
    return [row if row["kind"] != KIND else {**row, "kind": "data", "blob": _read(row, directory)} for row in rows]


def _read(row: Mapping[str, Any], directory: Path) -> _Read:
    name, start, length, digest = orjson.loads(row["blob"].as_py())
    try:
        with pa.OSFile(str(directory / name)) as file:  # not mapped: a kernel may keep rows longer than the file lives
            file.seek(start)
            body = file.read_buffer(length)
    except (OSError, pa.ArrowException) as error:
        raise DamagedState(f"{directory / name} cannot be read: {error}; do all machines see the home?") from error
    if body.size != length:
        raise DamagedState(f"{directory / name} has {body.size} bytes from {start} on and should have {length}")
    if xxhash.xxh3_64_hexdigest(body) != digest:
        raise DamagedState(f"{directory / name} does not match its checksum; check the disk, then start again")
    return _Read(body)


def clear(directory: Path) -> None:
    """Remove what earlier batches exchanged; no task may be at work."""
    for path in directory.iterdir():
        path.unlink(missing_ok=True)
