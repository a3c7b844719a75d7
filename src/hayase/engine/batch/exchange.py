"""Large message bodies as files: Spark shuffles the place of a body, not its bytes.

Through Spark a body is copied half a dozen times; a file is written once and read once, and is removed before much of it
reaches the disk. Every process of a lane sees the home, and so these files. They are not durable and need not be: the files of
a batch are of no use once it is committed, and a batch that is run again writes its own.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import xxhash

from hayase.core.errors import DamagedState
from hayase.engine.batch.bodies import from_body, to_body
from hayase.engine.batch.messages import Data, Exchanged, Message
from hayase.engine.home import writing
from hayase.streams import durable

__all__ = ["LARGE", "clear", "read_large", "write_large"]

LARGE = 65_536
"""Bytes from which on a body is written to a file."""


def write_large(groups: Iterable[list[Message]], directory: Path) -> Iterator[list[Message]]:
    """Write the large bodies of a task's data to one file; the messages then say where they are."""
    path = directory / uuid.uuid4().hex
    descriptor: int | None = None
    size = 0
    try:
        for messages in groups:
            sent: list[Message] = []
            for message in messages:
                if not isinstance(message, Data) or message.rows.nbytes < LARGE:
                    sent.append(message)
                    continue
                body = to_body(message.rows)
                padding = -size % 64  # Arrow wants its buffers aligned
                with writing(f"the exchanged data {path}"):
                    if descriptor is None:
                        descriptor = durable.open_file(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                    durable.write(descriptor, b"\0" * padding)
                    durable.write(descriptor, memoryview(body))
                sent.append(_exchanged(message, body, path.name, size + padding))
                size += padding + body.size
            yield sent
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _exchanged(data: Data, body: pa.Buffer, file: str, start: int) -> Exchanged:
    checksum = xxhash.xxh3_64_hexdigest(body)
    address = data.bucket, data.stages, data.input, data.first
    return Exchanged(*address, file, start, body.size, checksum, data.replayed)


def read_large(messages: Iterable[Message], directory: Path) -> Iterator[Message]:
    """The messages as they were before `write_large`; DamagedState if a file is missing or changed."""
    for message in messages:
        if isinstance(message, Exchanged):
            address = message.bucket, message.stages, message.input, message.first
            yield Data(*address, from_body(_read_body(message, directory / message.file)), message.replayed)
        else:
            yield message


def _read_body(place: Exchanged, path: Path) -> pa.Buffer:
    try:
        with pa.OSFile(str(path)) as file:  # not memory-mapped: a kernel may keep rows longer than the file lives
            file.seek(place.start)
            body = file.read_buffer(place.length)
    except (OSError, pa.ArrowException) as error:
        raise DamagedState(f"{path} cannot be read: {error}; do all machines see the home?") from error
    if body.size != place.length:
        raise DamagedState(f"{path} has {body.size} bytes from {place.start} on and should have {place.length}")
    if xxhash.xxh3_64_hexdigest(body) != place.checksum:
        raise DamagedState(f"{path} does not match its checksum; check the disk, then start again")
    return body


def clear(directory: Path) -> None:
    """Remove the files of earlier batches. No task may be running."""
    for path in directory.iterdir():
        path.unlink(missing_ok=True)
