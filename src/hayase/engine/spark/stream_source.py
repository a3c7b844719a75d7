"""Readers of `format("hayase")` for streams: the records that exist, by offsets and times, or batches as they grow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError, OffsetGone, SchemaMismatch, StreamError, UnknownName
from hayase.core.schemas import ddl, spark_schema
from hayase.core.times import BEGINNING, END, instant
from hayase.streams import Index, StreamLog, event_times
from hayase.streams.repeats import first_rows
from hayase.streams.segments import read_trailer

__all__ = ["StreamFollower", "StreamRecords", "expected_schema", "sliced"]

Span = tuple[int, int]
"""A range of records: first <= offset < next."""


@dataclass
class Slice(InputPartition):
    """The ranges of records that one task reads."""

    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class _Selection:
    """The columns and event times to read from a stream. Picklable; opens the log in the process that uses it."""

    home: Path
    stream: str
    schema: pa.Schema
    since: int = BEGINNING
    until: int = END

    def records(self, spans: Iterable[Span]) -> Iterator[pa.RecordBatch]:
        """Yield the records, directly from the memory-mapped segments."""
        log = StreamLog.open(self.home, self.stream)
        for first, next_ in spans:
            for batch in first_rows(log, first, next_):
                rows = self._within(batch, log)
                if rows.num_rows:
                    shown = log.declaration.shown(rows)
                    columns = [
                        (shown if field.name in shown.schema.names else rows).column(field.name).cast(field.type)
                        for field in self.schema
                    ]
                    yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _within(self, rows: pa.RecordBatch, log: StreamLog) -> pa.RecordBatch:
        if self.since == BEGINNING and self.until == END:
            return rows
        times = event_times(rows, log.declaration)
        wanted = (times >= self.since) & (times < self.until)
        return rows if wanted.all() else rows.filter(pa.array(np.asarray(wanted)))


class StreamRecords(DataSourceReader):
    """The reader of a batch query: the records that exist when it is planned."""

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
    """The reader of a streaming query: batches in the order of the log, each record in exactly one."""

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
        """Pickle only what `read` needs in tasks; the log stays in the planning process."""
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
        """Do nothing: the checkpoint holds the position of the query."""

    def stop(self) -> None:
        """Do nothing: nothing is open."""

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
    """Divide ranges into at most `count` slices of about equal size, none of them empty.

    >>> [part.spans for part in sliced([(0, 4), (10, 15)], 3)]
    [((0, 3),), ((3, 4), (10, 12)), ((12, 15),)]
    """
    total = sum(next_ - first for first, next_ in spans)
    slices = []
    for low, high in pairwise(total * part // count for part in range(count + 1)):
        position, slice_spans = 0, []
        for first, next_ in spans:
            begin, end = first + max(low - position, 0), min(first + high - position, next_)
            if begin < end:
                slice_spans.append((begin, end))
            position += next_ - first
        if slice_spans:
            slices.append(Slice(tuple(slice_spans)))
    return slices


def _spans_within(log: StreamLog, index: Index, first: int, next_: int, since: int, until: int) -> list[Span]:
    """Return [first, next_) without the segments that hold no record with since <= time < until."""
    spans: list[Span] = []
    for entry in index.entries:
        begin, end = max(first, entry.first), min(next_, entry.next)
        if begin >= end or entry.running_max < since:
            continue
        try:
            trailer = read_trailer(log.path / entry.name, log.declaration.name)
        except FileNotFoundError:
            pass  # compacted meanwhile: the times of these records are unknown, so they are read
        else:
            if trailer.latest < since or trailer.earliest >= until:
                continue
        if spans and spans[-1][1] == begin:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((begin, end))
    return spans


def _wanted(schema: Any, log: StreamLog) -> pa.Schema:
    """Return the schema that Spark expects; raise an error if the stream does not have these columns and types."""
    declared, name = log.declaration.shown_schema, log.declaration.name
    if log.declaration.hides_time:  # readers may still use the column's name in the log
        declared = pa.schema([*declared, log.declaration.arrow_schema.field(log.declaration.time)])
    return expected_schema(schema, spark_schema(declared), f'stream "{name}"')


def expected_schema(schema: Any, declared: pa.Schema, what: str) -> pa.Schema:
    """Return the schema that Spark expects; raise an error if what is read does not have these columns and types."""
    expected: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    for wanted in expected:
        if wanted.name not in declared.names:
            raise UnknownName("column", wanted.name, declared.names, f" in {what}")
        column = declared.field(wanted.name)
        if wanted.type != column.type or (column.nullable and not wanted.nullable):
            raise SchemaMismatch(
                f'column "{wanted.name}" of {what} cannot be read as asked; its schema is '
                f"({ddl(declared)}): leave out .schema(...), or name a part of this one"
            )
    return expected


def _home(log: StreamLog) -> Path:
    return log.path.parent.parent


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
