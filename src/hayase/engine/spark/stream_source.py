"""Hayase's streams as an ordinary Spark data source, `format("hayase")`: rows in and out, batch and streaming.

    spark.read.format("hayase").option("home", "./shop").option("stream", "orders").load()
    spark.readStream.format("hayase").load("./shop/streams/orders")

Which stream is said by the options `home` and `stream`, or by the path of its directory. `.schema(...)` may name some
of the columns: only these are read. Further options:

    reading     from, to          offsets: records from <= offset < to; by default all there are
                since, until      event times: records since <= time < until; segments without such are not opened
                slices            how many tasks read; by default one per core
    streaming   start             earliest (the default) or latest: where a query without a checkpoint begins
                max_rows          at most so many records in one batch
                slices            as above
    writing     none              see `hayase.engine.spark.stream_sink`

An offset of a streaming query is {"stream": name, "next": offset}. Retention does not wait for such queries: one whose
next records were removed fails with `OffsetGone`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from hayase.core.errors import HayaseError, OffsetGone, SchemaMismatch, StreamError, UnknownName
from hayase.core.schemas import ddl
from hayase.core.times import BEGINNING, END, instant
from hayase.engine.spark.stream_sink import BatchWriter, StreamWriter
from hayase.streams import Index, StreamLog, event_times
from hayase.streams.segments import read_trailer

__all__ = ["HayaseSource", "register"]

Span = tuple[int, int]
"""Records first <= offset < next."""

_PLACE = ("home", "stream", "path")
_READING = (*_PLACE, "from", "to", "since", "until", "slices")
_FOLLOWING = (*_PLACE, "start", "max_rows", "slices")
_WRITING = (*_PLACE, "checkpointlocation")


def register(session: SparkSession) -> None:
    """Make `format("hayase")` known to a session."""
    session.dataSource.register(HayaseSource)


class HayaseSource(DataSource):
    """The streams of a home, known to Spark as `hayase`."""

    @classmethod
    def name(cls) -> str:
        return "hayase"

    def schema(self) -> str:
        _check_options(self.options, {*_READING, *_FOLLOWING, *_WRITING})
        return ddl(_log(self.options).declaration.shown_schema)

    def reader(self, schema: Any) -> StreamRecords:
        _check_options(self.options, _READING)
        return StreamRecords(_log(self.options), schema, self.options)

    def streamReader(self, schema: Any) -> StreamFollower:  # noqa: N802 (Spark's name)
        _check_options(self.options, _FOLLOWING)
        return StreamFollower(_log(self.options), schema, self.options)

    def writer(self, schema: Any, overwrite: bool) -> BatchWriter:
        return BatchWriter(*self._target(overwrite), schema.fieldNames())

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802
        return StreamWriter(*self._target(overwrite), schema.fieldNames())

    def _target(self, overwrite: bool) -> tuple[Path, str]:
        _check_options(self.options, _WRITING)
        home, name = _place(self.options)
        if overwrite:
            raise HayaseError(f'stream "{name}" only grows; write to it in append mode')
        return home, name


@dataclass
class Slice(InputPartition):
    """What one task reads."""

    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class _Selection:
    """The columns and the event times that are wanted of a stream; picklable, and opens the log where it is used."""

    home: Path
    stream: str
    schema: pa.Schema
    since: int = BEGINNING
    until: int = END

    def records(self, spans: Iterable[Span]) -> Iterator[pa.RecordBatch]:
        """The records, straight from the mapped segments."""
        log = StreamLog.open(self.home, self.stream)
        for first, next_ in spans:
            for piece in log.read(first, next_):
                rows = self._within(piece.rows, log)
                if rows.num_rows:
                    shown = log.declaration.shown(rows)
                    columns = [
                        (shown if name in shown.schema.names else rows).column(name) for name in self.schema.names
                    ]
                    yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _within(self, rows: pa.RecordBatch, log: StreamLog) -> pa.RecordBatch:
        if self.since == BEGINNING and self.until == END:
            return rows
        times = event_times(rows, log.declaration)
        wanted = (times >= self.since) & (times < self.until)
        return rows if wanted.all() else rows.filter(pa.array(np.asarray(wanted)))


class StreamRecords(DataSourceReader):
    """A batch read: the records that are there when it is planned."""

    def __init__(self, log: StreamLog, schema: Any, options: Mapping[str, str]):
        since = _option(options, "since", instant, BEGINNING)
        until = _option(options, "until", instant, END)
        self._selection = _Selection(_home(log), log.declaration.name, _wanted(schema, log), since, until)
        self._slices = _slices(options)
        index = log.index()
        first, next_ = _offset(options, "from", index.start), _offset(options, "to", index.next)
        if first < index.start:
            raise _gone(log, first, index)
        if not first <= next_ <= index.next:
            raise HayaseError(
                f'stream "{log.declaration.name}" has no records from {first} to {next_}: it holds {index.start} to '
                f"{index.next}; change the options `from` and `to`"
            )
        bounded = "since" in options or "until" in options
        self._spans = _spans_within(log, index, first, next_, since, until) if bounded else [(first, next_)]

    def partitions(self) -> list[Slice]:
        return sliced(self._spans, self._slices) or [Slice(())]

    def read(self, partition: Slice) -> Iterator[pa.RecordBatch]:
        return self._selection.records(partition.spans)


class StreamFollower(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read: batches in the order of the log, each record in exactly one."""

    def __init__(self, log: StreamLog, schema: Any, options: Mapping[str, str]):
        self._log, self._name = log, log.declaration.name
        self._selection = _Selection(_home(log), self._name, _wanted(schema, log))
        self._slices = _slices(options)
        self._max_rows = _option(options, "max_rows", lambda text: _count(text, 1), None)
        self._start = options.get("start", "earliest")
        if self._start not in ("earliest", "latest"):
            raise HayaseError(f'option start cannot be "{self._start}"; say "earliest" or "latest"')
        self._target: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For the tasks, which only `read`: the log stays where batches are planned."""
        return {"_selection": self._selection}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        index = self._log.index()
        return self._as_json(index.start if self._start == "earliest" else index.next)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._max_rows is None else ReadMaxRows(self._max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._log.index().next

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        index = self._log.index()
        first = self._from_json(start, index)
        end = index.next if self._target is None else min(index.next, self._target)
        if isinstance(limit, ReadMaxRows):
            end = min(end, first + limit.max_rows)
        return self._as_json(max(first, end))

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._as_json(self._log.index().next)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Slice]:
        index = self._log.index()
        return sliced([(self._from_json(start, index), self._from_json(end, index))], self._slices)

    def read(self, partition: Slice) -> Iterator[pa.RecordBatch]:
        return self._selection.records(partition.spans)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the checkpoint says how far the query is."""

    def stop(self) -> None:
        """Nothing is open."""

    def _as_json(self, offset: int) -> dict[str, Any]:
        return {"stream": self._name, "next": offset}

    def _from_json(self, offset: dict[str, Any], index: Index) -> int:
        if offset.get("stream") != self._name:
            raise StreamError(
                self._name,
                f'the checkpoint is of a query that read stream "{offset.get("stream")}", not "{self._name}"; use '
                f"another checkpointLocation",
            )
        at = int(offset["next"])
        if at < index.start:
            raise _gone(self._log, at, index)
        if at > index.next:
            raise StreamError(
                self._name,
                f'the checkpoint stands at record {at} of stream "{self._name}", which ends at {index.next}: it is '
                f"another stream of that name; use another checkpointLocation",
            )
        return at


def sliced(spans: Sequence[Span], count: int) -> list[Slice]:
    """Spans divided into at most `count` parts of about the same size, none of them empty.

    >>> [each.spans for each in sliced([(0, 4), (10, 15)], 3)]
    [((0, 3),), ((3, 4), (10, 12)), ((12, 15),)]
    """
    total = sum(next_ - first for first, next_ in spans)
    made = []
    for low, high in pairwise(total * part // count for part in range(count + 1)):
        at, mine = 0, []
        for first, next_ in spans:
            begin, end = first + max(low - at, 0), min(first + high - at, next_)
            if begin < end:
                mine.append((begin, end))
            at += next_ - first
        if mine:
            made.append(Slice(tuple(mine)))
    return made


def _spans_within(log: StreamLog, index: Index, first: int, next_: int, since: int, until: int) -> list[Span]:
    """What remains of [first, next_) without the segments that hold no record of these times."""
    spans: list[Span] = []
    for entry in index.entries:
        begin, end = max(first, entry.first), min(next_, entry.next)
        if begin >= end or entry.running_max < since:
            continue
        try:
            trailer = read_trailer(log.path / entry.name, log.declaration.name)
        except FileNotFoundError:
            pass  # compacted since: nothing is known about these records any more, so they are read
        else:
            if trailer.latest < since or trailer.earliest >= until:
                continue
        if spans and spans[-1][1] == begin:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((begin, end))
    return spans


def _wanted(schema: Any, log: StreamLog) -> pa.Schema:
    """The columns that Spark expects, as Spark expects them, if the stream has them."""
    declared, name = log.declaration.shown_schema, log.declaration.name
    if log.declaration.hides_time:  # readers may still ask for the name that the log has for it
        declared = pa.schema([*declared, log.declaration.arrow_schema.field(log.declaration.time)])
    expected: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    for each in expected:
        if each.name not in declared.names:
            raise UnknownName("column", each.name, declared.names, f' in stream "{name}"')
        column = declared.field(each.name)
        if each.type != column.type or (column.nullable and not each.nullable):
            raise SchemaMismatch(
                f'column "{each.name}" of stream "{name}" cannot be read as asked; its schema is '
                f"({ddl(log.declaration.shown_schema)}): leave out .schema(...), or name a part of this one"
            )
    return expected


def _log(options: Mapping[str, str]) -> StreamLog:
    return StreamLog.open(*_place(options))


def _home(log: StreamLog) -> Path:
    return log.path.parent.parent


def _place(options: Mapping[str, str]) -> tuple[Path, str]:
    """Home and stream. Absolute, for tasks may run in another directory."""
    path, home, stream = options.get("path"), options.get("home"), options.get("stream")
    if path is not None and home is None and stream is None:
        place = Path(path.removeprefix("file://")).absolute()
        if place.parent.name == "streams":
            return place.parent.parent, place.name
        raise HayaseError(f'"{path}" is not the path of a stream; write it like "<home>/streams/<name>"')
    if path is None and home is not None and stream is not None:
        return Path(home).absolute(), stream
    raise HayaseError("say which stream: by the options home and stream, or by the path <home>/streams/<name> alone")


def _check_options(options: Mapping[str, str], known: Iterable[str]) -> None:
    for name in options:
        if name not in known:
            raise UnknownName("option", name, set(known) - {"checkpointlocation"}, ' of format("hayase") here')


def _option(options: Mapping[str, str], name: str, read: Callable[[str], Any], default: Any) -> Any:
    if name not in options:
        return default
    try:
        return read(options[name])
    except HayaseError as error:
        raise HayaseError(f"option {name}: {error}") from error


def _count(text: str, least: int) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) >= least):
        raise HayaseError(f'"{text}" is not a number of at least {least}')
    return int(text)


def _offset(options: Mapping[str, str], name: str, default: int) -> int:
    return int(_option(options, name, lambda text: _count(text, 0), default))


def _slices(options: Mapping[str, str]) -> int:
    return int(_option(options, "slices", lambda text: _count(text, 1), os.cpu_count() or 1))


def _gone(log: StreamLog, offset: int, index: Index) -> OffsetGone:
    name = log.declaration.name
    return OffsetGone(
        name,
        f'records {offset} to {index.start - 1} of stream "{name}" were removed by retention; the first one left is '
        f"{index.start}: read from there (a streaming query: with a new checkpointLocation), or keep more",
    )
