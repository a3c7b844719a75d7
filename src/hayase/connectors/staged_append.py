"""An append that is too large for memory, such as the copy of a table: the whole of it enters the stream, or nothing.

Records are written to staged segments. When all are durable, a mark says so, and they are published; whoever is interrupted after
the mark publishes them at the next start, whoever is interrupted before begins again. Parts have a producer, so none is published
twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator

import orjson
import pyarrow as pa

from hayase.connectors.inlet import Inlet
from hayase.connectors.source import Staged
from hayase.core.errors import EndpointError
from hayase.streams import StreamLog, durable
from hayase.streams.dead_letters import DEAD, append_letters
from hayase.streams.records import Conformed
from hayase.streams.segments import open_segment

__all__ = ["StagedAppend", "exclusive", "publish_complete"]

_MARK = "copy.json"


@contextlib.contextmanager
def exclusive(inlet: Inlet) -> Iterator[None]:
    """Only one process stages appends to a stream; EndpointError if another one does."""
    durable.make_directory(inlet.directory)
    descriptor = durable.open_file(inlet.directory / "copy.lock", os.O_CREAT | os.O_RDWR)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EndpointError(
                f'another process of the source fills stream "{inlet.log.declaration.name}"',
                "wait until it is done, or end it",
            ) from None
        yield
    finally:
        os.close(descriptor)


def publish_complete(inlet: Inlet) -> None:
    """Publish an append whose mark is there, and remove what others have left; only within `exclusive`."""
    mark = inlet.directory / _MARK
    if mark.exists():
        complete = orjson.loads(mark.read_bytes())
        directory = inlet.directory / complete["directory"]
        if complete["letters"]:
            dead = StreamLog.ensure(inlet.home, DEAD)
            dead.publish_all([directory / name for name in complete["letters"]], again=True)
        if complete["parts"]:
            inlet.log.publish_all([directory / name for name in complete["parts"]], again=True)
        durable.remove(mark)
        durable.fsync_directory(inlet.directory)
    for directory in inlet.directory.glob("copy-*"):
        shutil.rmtree(directory)


class StagedAppend(Staged):
    """An append of a partition that is being made. `name` is the same whenever the same records are staged again."""

    def __init__(self, inlet: Inlet, partition: str, name: str):
        self._inlet, self._partition = inlet, partition
        self._directory = inlet.directory / f"copy-{name}"
        self._producer = f"{inlet.producer(partition)}/copy/{name}"
        self._parts: list[str] = []
        self._letters: list[str] = []
        self._last: pa.Table | None = None
        self._count = 0
        durable.make_directory(self._directory)

    def add(self, conformed: Conformed) -> None:
        """Stage records and dead letters."""
        self._count += conformed.rows.num_rows + len(conformed.refused)
        if conformed.rows.num_rows:
            self._stage_last(self._producer, len(self._parts) + 1)
            self._last = conformed.rows
        if conformed.refused:
            name = f"letters-{len(self._letters):06d}.seg"
            stream, now = self._inlet.log.declaration.name, self._inlet.now()
            dead = StreamLog.ensure(self._inlet.home, DEAD)
            letters = append_letters(stream, conformed.refused, now)
            producer, sequence = f"{stream}/{self._producer}", len(self._letters) + 1
            dead.stage(self._directory, name, letters, now=now, producer=producer, sequence=sequence)
            self._letters.append(name)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the records that were staged."""
        for name in self._parts:
            segment = open_segment(self._directory / name, self._inlet.log.declaration.name)
            yield from (segment.batch(number) for number in range(len(segment.trailer.batches)))
        if self._last is not None:
            yield from self._last.to_batches()

    def publish(self, position: int) -> int:
        """Mark the append as complete and publish it. Its last part is an append of the partition, up to the position."""
        self._stage_last(self._inlet.producer(self._partition), position)
        complete = {"directory": self._directory.name, "parts": self._parts, "letters": self._letters}
        durable.write_atomic(self._inlet.directory / _MARK, orjson.dumps(complete))
        publish_complete(self._inlet)
        return self._count

    def _stage_last(self, producer: str, sequence: int) -> None:
        if self._last is not None:
            name = f"{len(self._parts):06d}.seg"
            now = self._inlet.now()
            self._inlet.log.stage(self._directory, name, self._last, now=now, producer=producer, sequence=sequence)
            self._parts.append(name)
            self._last = None
