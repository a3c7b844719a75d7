"""Writers of `format("hayase")`, which append Spark rows to a stream: tasks stage durable segments, the driver publishes them.

A record that does not fit (no time, too far ahead, ...) becomes a dead letter, as in an append. Rows keep the order of their
partitions. Guarantees:

- **Streaming**: exactly once per query. The commit point of a batch is one file, `committed.json`, renamed atomically in the
  staging directory of (stream, query); publishing the files that it names is idempotent. A batch that Spark runs or commits
  again, in any partitioning, adds nothing. The query is identified by its id, which Spark keeps in the checkpoint: with a new
  checkpoint it is another query, and writes everything it reads.
- **Batch**: if a task fails, nothing is written. If the driver is killed or the disk fails while segments are being published,
  those already published remain, each complete. A repeated write adds its rows again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path

import orjson
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from hayase.core.clock import now_us
from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError, StreamError, StreamFinished
from hayase.streams import StreamLog, durable
from hayase.streams.dead_letters import DEAD, append_letters
from hayase.streams.records import check_columns, conform
from hayase.streams.schema_evolution import stored_declaration
from hayase.streams.sealed import read_sealed, seal

__all__ = ["BatchWriter", "StreamWriter"]

_SEGMENT_BYTES = 64 * 2**20
_SEGMENT_ROWS = 1_000_000
_FORGOTTEN = 7 * 86_400
"""Seconds after which an untouched staging directory of a batch write counts as left by a driver that died."""
_QUERY = "sql.streaming.queryId"
"""The local property of tasks in which Spark passes the id of their query."""
_COMMITTED, _LOCK = "committed.json", "lock"


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The files that a task has staged in a directory, in order: dead letters and records."""

    folder: Path
    letters: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Target:
    """The stream that is written to. Picklable; opens the log in the process that uses it."""

    home: Path
    stream: str
    columns: Sequence[str] = field(repr=False)

    def __post_init__(self) -> None:
        log = self.log()
        stored = stored_declaration(log.path)
        if stored is not None and stored.mark is not None:
            raise StreamError(
                self.stream,
                f'stream "{self.stream}" is the output of a stage and takes no other records; write to another',
            )
        check_columns(list(self.columns), log.declaration)
        if log.index().finished:
            raise StreamFinished(
                self.stream, f'stream "{self.stream}" is finished and takes no more records; write to another stream'
            )

    def log(self) -> StreamLog:
        return StreamLog.open(self.home, self.stream)

    def folder(self, job: str) -> Path:
        """Return the staging directory of a query or a batch write, below that of the stream, so that publishing is a rename."""
        return self.home / "streams" / self.stream / "staging" / f"spark-{job}"

    def stage(self, folder: Path, batches: Iterable[pa.RecordBatch], now: int) -> Staged:
        """Write rows durably as segments of bounded size, and rows that do not fit as dead letters."""
        log = self.log()
        attempt = uuid.uuid4().hex
        letters: list[str] = []
        rows: list[str] = []
        for number, table in enumerate(_chunks(batches)):
            result = conform(table, log.declaration, now)
            if result.refused:
                letters.append(f"{attempt}-{number:06d}-dead")
                dead = append_letters(self.stream, result.refused, now)
                StreamLog(self.home, DEAD).stage(folder, letters[-1], dead, now=now)
            if result.rows.num_rows:
                rows.append(f"{attempt}-{number:06d}")
                log.stage(folder, rows[-1], result.rows, now=now)
        return Staged(folder, tuple(letters), tuple(rows))

    def publish(self, staged: Staged, *, again: bool) -> None:
        """Publish staged files in the logs, dead letters first; with `again`, missing files count as published."""
        for log, names in ((StreamLog.ensure(self.home, DEAD), staged.letters), (self.log(), staged.rows)):
            for name in names:
                log.publish(staged.folder / name, again=again)


class BatchWriter(DataSourceArrowWriter):
    """The writer of one `df.write`."""

    def __init__(self, home: Path, stream: str, columns: Sequence[str]):
        self.target = _Target(home, stream, columns)
        self._folder = self.target.folder(f"write-{uuid.uuid4().hex}")
        # Created here and not by tasks: a task that outlives an abort must not create it again.
        durable.make_directory(self._folder)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self.target.stage(self._folder, iterator, now_us())

    def commit(self, messages: Sequence[Staged | None]) -> None:
        self.target.publish(_together(self._folder, messages), again=False)
        self._clean_up()

    def abort(self, messages: Sequence[Staged | None]) -> None:
        self._clean_up()

    def _clean_up(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        for folder in self._folder.parent.glob("spark-write-*"):
            if folder.stat().st_mtime < time.time() - _FORGOTTEN:
                shutil.rmtree(folder, ignore_errors=True)


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query. Spark creates a new one for every call, so it keeps no state."""

    def __init__(self, home: Path, stream: str, columns: Sequence[str]):
        self.target = _Target(home, stream, columns)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context is not None else None
        if not query:
            raise HayaseError('format("hayase") writes streams only from a streaming query; start it with .start()')
        folder = self.target.folder(query)
        durable.make_directory(folder)
        return self.target.stage(folder, iterator, now_us())

    def commit(self, messages: Sequence[Staged | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        folders = {message.folder for message in messages if message is not None}
        for folder in folders:  # one, or none if the batch had no tasks
            with _turn(folder):
                committed = _Committed.of(folder)
                if committed is None or committed.batch < batchId:
                    committed = _Committed(batchId, _together(folder, messages))
                    durable.write_atomic(folder / _COMMITTED, committed.as_bytes())
                self.target.publish(committed.staged, again=True)
                _remove_all(folder, set(os.listdir(folder)) - {_COMMITTED, _LOCK})

    def abort(self, messages: Sequence[Staged | None], batchId: int) -> None:  # noqa: N803
        for message in messages:
            if message is not None:
                with _turn(message.folder):
                    committed = _Committed.of(message.folder)
                    kept = {*committed.staged.letters, *committed.staged.rows} if committed else set()
                    _remove_all(message.folder, {*message.letters, *message.rows} - kept)


@dataclass(frozen=True, slots=True)
class _Committed:
    """The last committed batch of a query: its files belong to the logs, whether published yet or not."""

    batch: int
    staged: Staged

    def as_bytes(self) -> bytes:
        content = {"batch": self.batch, "letters": self.staged.letters, "rows": self.staged.rows}
        return seal("batch", orjson.dumps(content))

    @classmethod
    def of(cls, folder: Path) -> _Committed | None:
        try:
            content = orjson.loads(read_sealed(folder / _COMMITTED, "batch", "put back a copy from a backup"))
        except FileNotFoundError:
            return None
        return cls(content["batch"], Staged(folder, tuple(content["letters"]), tuple(content["rows"])))


def _together(folder: Path, messages: Sequence[Staged | None]) -> Staged:
    """Return the files that all tasks have staged, in the order of their partitions."""
    staged = [message for message in messages if message is not None]
    letters = tuple(name for part in staged for name in part.letters)
    return Staged(folder, letters, tuple(name for part in staged for name in part.rows))


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Hold a lock, so that an earlier driver that is presumed dead cannot commit at the same time."""
    descriptor = durable.open_file(folder / _LOCK, os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_all(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        durable.remove(folder / name)


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows in tables of about the size of a segment, so that memory is bounded for tasks of any size."""
    pending: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        pending.append(batch)
        size, rows = size + batch.nbytes, rows + batch.num_rows
        if size >= _SEGMENT_BYTES or rows >= _SEGMENT_ROWS:
            yield pa.Table.from_batches(pending)
            pending, size, rows = [], 0, 0
    if rows:
        yield pa.Table.from_batches(pending)
