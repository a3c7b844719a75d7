"""The kinds of relations: present rows and lifetimes of a query, records of a stream, rows of a table, figures.

Each gives Arrow batches of the columns asked for, as of an instant, and may leave out rows that are outside of the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.data_classes import dataclass
from hayase.core.declarations import EVENT_TIME, StreamDeclaration
from hayase.core.errors import NotFinal
from hayase.core.times import BEGINNING, instant_text
from hayase.engine.results.committed_results import CommittedResults
from hayase.engine.results.lifespans import own_columns
from hayase.relations.bounds import NOTHING_SAID, Bounds, Value
from hayase.relations.kept_rows import KeptRows
from hayase.streams import Index, StreamLog, event_times
from hayase.streams.repeats import first_pieces

__all__ = ["Figures", "Lifetimes", "PresentRows", "Records", "Relation", "among", "free_name", "is_compared"]

OFFSET = "offset"
_ROWS = 65_536
"""Rows of a batch at most."""


class Relation(Protocol):
    """A relation of a home at one set of manifests."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str:
        """query, history, stream, table, letters or figures."""
        ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def scale(self) -> int | None:
        """Microseconds in a unit of its integer times; None if its times are timestamps."""
        ...

    def final(self) -> int | None:
        """The latest instant for which it can be asked, in microseconds; None if there is none yet."""
        ...

    @property
    def has_clock(self) -> bool:
        """Whether it follows event time; figures and dead letters do not, and are always the latest."""
        ...

    def batches(
        self, as_of: int | None, columns: Sequence[str], bounds: Bounds = NOTHING_SAID
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as of an instant in microseconds, by default the latest; NotFinal if that is beyond its clock."""
        ...


def free_name(name: str, taken: Sequence[str]) -> str:
    """Return the name, with as many underscores behind it as it needs to differ from the others, whatever their case.

    >>> free_name("offset", ["Offset", "offset_"])
    'offset__'
    """
    lower = {each.lower() for each in taken}
    while name in lower:
        name += "_"
    return name


def _chunks(rows: pa.Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    yield from rows.select(list(columns)).to_batches(max_chunksize=_ROWS)


@dataclass(frozen=True, slots=True)
class PresentRows:
    """The rows of a query that are valid at its clock, or at an earlier instant."""

    results: CommittedResults
    kept: KeptRows
    version: Hashable
    """What identifies the rows among those that are kept, with an instant."""
    kind: str = "query"

    @property
    def name(self) -> str:
        return self.results.log.declaration.name

    @property
    def schema(self) -> pa.Schema:
        declaration = self.results.log.declaration
        return pa.schema([declaration.arrow_schema.field(name) for name in own_columns(declaration)])

    @property
    def scale(self) -> int | None:
        declaration = self.results.log.declaration
        return None if declaration.time_unit is None else declaration.time_scale

    @property
    def has_clock(self) -> bool:
        return True

    def final(self) -> int | None:
        return self.results.final_us()

    def batches(
        self, as_of: int | None, columns: Sequence[str], bounds: Bounds = NOTHING_SAID
    ) -> Iterator[pa.RecordBatch]:
        rows = self.kept.rows((self.version, as_of), lambda: self.results.as_of(as_of).at_table())
        yield from _chunks(among(rows, bounds), columns)


def is_compared(kind: pa.DataType, values: Sequence[Value]) -> bool:
    """Whether these constants are compared with values of an Arrow type as they are: texts with texts, integers with integers."""
    if pa.types.is_string(kind):
        return bool(values) and all(isinstance(value, str) for value in values)
    return bool(values) and pa.types.is_int64(kind) and all(type(value) is int and _fits(value) for value in values)


def _fits(value: int) -> bool:
    return -(2**63) <= value < 2**63


_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)


def among(rows: _Rows, bounds: Bounds) -> _Rows:
    """Return the rows whose texts and integers are among the values that they may have."""
    for field in rows.schema:
        values = bounds.among.get(field.name.lower(), ())
        if is_compared(field.type, values):
            rows = rows.filter(pc.is_in(rows.column(field.name), pa.array(values, field.type)))
    return rows


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """All rows of a query with `valid_from` and `valid_to`, as far as they were known at an instant."""

    present: PresentRows
    kind: str = "history"

    @property
    def name(self) -> str:
        return f"{self.present.name}_history"

    @property
    def schema(self) -> pa.Schema:
        results = self.present.results
        return CommittedResults(results.log, Index((), 0, 0, BEGINNING, BEGINNING)).intervals_table().schema

    @property
    def scale(self) -> int | None:
        return self.present.scale

    @property
    def has_clock(self) -> bool:
        return True

    def final(self) -> int | None:
        return self.present.final()

    def batches(
        self, as_of: int | None, columns: Sequence[str], bounds: Bounds = NOTHING_SAID
    ) -> Iterator[pa.RecordBatch]:
        rows = self.present.results.as_of(as_of).intervals_table()
        if (
            as_of is not None
        ):  # an end after the instant was not known then, whatever the batch had processed by the time
            ends = rows.column(rows.num_columns - 1)
            later = pc.greater(ends, pa.scalar(as_of // (self.scale or 1), ends.type))
            rows = rows.set_column(rows.num_columns - 1, rows.field(-1), pc.if_else(later, None, ends))
        yield from _chunks(rows, columns)


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a stream, those that were appended first at first, with `event_time` and `offset`.

    They end with the records that the manifests have committed, or, for a declared stream, that were there when it was looked at.
    """

    log: StreamLog
    index: Index
    clock: int | None
    """The latest instant that is final, in microseconds; None if there is none."""
    kind: str = "stream"
    shown_as: str | None = None

    @property
    def name(self) -> str:
        return self.shown_as or self.log.declaration.name

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self._declaration.shown_schema, *self._added().values()])

    @property
    def scale(self) -> int | None:
        return None if self._declaration.time_unit is None else self._declaration.time_scale

    @property
    def has_clock(self) -> bool:
        return self.kind != "letters"

    def final(self) -> int | None:
        return self.clock

    @property
    def _declaration(self) -> StreamDeclaration:
        return self.log.declaration

    def _added(self) -> dict[str, pa.Field]:
        """Return the columns that are not in the log, by what they hold."""
        names = self._declaration.shown_schema.names
        time = self._declaration.arrow_schema.field(self._declaration.time).type
        added = {OFFSET: pa.field(free_name(OFFSET, names), pa.int64(), nullable=False)}
        if EVENT_TIME not in names and self.kind != "letters":
            added = {EVENT_TIME: pa.field(EVENT_TIME, time, nullable=False)} | added
        return added

    def batches(
        self, as_of: int | None, columns: Sequence[str], bounds: Bounds = NOTHING_SAID
    ) -> Iterator[pa.RecordBatch]:
        if as_of is not None and self.has_clock and (self.clock is None or as_of > self.clock):
            raise _not_final(self.name, as_of, self.clock, self._declaration)
        first, end, since, until = self._needed(bounds)
        until = until if as_of is None else min(as_of, until if until is not None else as_of)
        schema = pa.schema([self.schema.field(name) for name in columns])
        for begin, stop in self._ranges(first, end, since):
            for piece in first_pieces(self.log, begin, stop):
                rows, offsets = piece.rows, None
                if until is not None or since is not None:
                    chosen = self._within(rows, since, until)
                    if not len(chosen):
                        continue
                    if len(chosen) < rows.num_rows:
                        rows, offsets = rows.take(pa.array(chosen)), chosen + piece.first
                if offsets is None:
                    offsets = np.arange(piece.first, piece.first + rows.num_rows)
                yield self._shown(rows, offsets, schema)

    def _needed(self, bounds: Bounds) -> tuple[int, int, int | None, int | None]:
        """Return the offsets [first, end) and the least and greatest event time that a statement needs."""
        least, most = bounds.integers(self._added()[OFFSET].name)
        first = self.index.start if least is None else max(self.index.start, least)
        end = self.index.next if most is None else min(self.index.next, most + 1)
        scale, since, until = self.scale, None, None
        for name in {EVENT_TIME, self._declaration.shown_name(self._declaration.time).lower()}:
            at_least, at_most = bounds.instants(name, scale) if self._is_time(name) else (None, None)
            since = at_least if since is None else max(since, since if at_least is None else at_least)
            until = at_most if until is None else min(until, until if at_most is None else at_most)
        return first, end, since, until

    def _is_time(self, name: str) -> bool:
        """Whether a column, by its name in lower case, is the event time."""
        time = self._declaration.shown_name(self._declaration.time)
        return name == time.lower() or EVENT_TIME in self._added()

    def _ranges(self, first: int, end: int, since: int | None) -> Iterator[tuple[int, int]]:
        """Yield the ranges of offsets to read: whole segments whose records are all older than `since` are left out."""
        for entry in self.index.entries:
            begin, stop = max(first, entry.first), min(end, entry.next)
            if begin < stop and (since is None or entry.running_max >= since):
                yield begin, stop

    def _within(self, rows: pa.RecordBatch, since: int | None, until: int | None) -> np.ndarray:
        times = event_times(rows, self._declaration)
        inside = np.ones(len(times), np.bool_)
        if since is not None:
            inside &= times >= since
        if until is not None:
            inside &= times <= until
        return np.flatnonzero(inside)

    def _shown(self, rows: pa.RecordBatch, offsets: np.ndarray, schema: pa.Schema) -> pa.RecordBatch:
        declaration, added = self._declaration, {field.name: what for what, field in self._added().items()}
        shown = {declaration.shown_name(name): name for name in rows.schema.names}
        columns: list[Any] = []
        for name in schema.names:
            what = added.get(name)
            if what == OFFSET:
                columns.append(pa.array(offsets, pa.int64()))
            else:
                columns.append(rows.column(declaration.time if what == EVENT_TIME else shown[name]))
        return pa.record_batch(columns, schema=schema)


def _not_final(name: str, as_of: int, clock: int | None, declaration: StreamDeclaration) -> NotFinal:
    if clock is None:
        return NotFinal(f'nothing of "{name}" is final yet; append records and run the pipeline')
    unit, scale = declaration.time_unit, declaration.time_scale
    texts = [instant_text(time) if unit is None else str(time // scale) for time in (clock, as_of)]
    return NotFinal(f'"{name}" is final up to {texts[0]}, and {texts[1]} is after that; append later records')


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of the pipeline, computed when they are asked for."""

    name: str
    schema: pa.Schema
    rows: Callable[[], list[dict[str, Any]]]
    kind: str = "figures"

    @property
    def scale(self) -> int | None:
        return None

    @property
    def has_clock(self) -> bool:
        return False

    def final(self) -> int | None:
        return None

    def batches(
        self, as_of: int | None, columns: Sequence[str], bounds: Bounds = NOTHING_SAID
    ) -> Iterator[pa.RecordBatch]:
        yield from _chunks(pa.Table.from_pylist(self.rows(), schema=self.schema), columns)
