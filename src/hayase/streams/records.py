"""Conforms appended records to a stream's schema: a table with exactly that schema, and the records that are refused.

`conform` takes rows (dicts), Arrow tables and batches, and pandas frames. A record that does not fit is refused alone,
with its JSON text and every reason; the others keep their order and values. Every record is either accepted or refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache, partial
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.data_classes import dataclass
from hayase.core.declarations import EXTRA, StreamDeclaration
from hayase.core.errors import HayaseError, SchemaMismatch, nearest
from hayase.core.reasons import ReasonKind
from hayase.core.schemas import is_json
from hayase.core.times import BEGINNING, END, duration_text, instant_text
from hayase.streams.json_columns import written_records
from hayase.streams.record_text import record_text, shown
from hayase.streams.typed_columns import Fitted, fit_arrow, fit_json, fit_values, python_values
from hayase.streams.typed_values import is_null

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Conformed",
    "Origin",
    "Records",
    "Refused",
    "check_columns",
    "conform",
    "conform_rows",
    "conform_texts",
    "row_texts",
    "rows_at",
]

Records: TypeAlias = "Iterable[Mapping[str, Any]] | pa.Table | pa.RecordBatch | pd.DataFrame"
"""What `conform` takes."""

_SPANS = ((365 * 86_400_000_000, "year"), (86_400_000_000, "day"), (3_600_000_000, "hour"), (60_000_000, "minute"))


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that did not fit, as JSON text or as the line of its file, and why."""

    record: str
    reason: str
    kind: ReasonKind


@dataclass(frozen=True, slots=True)
class Origin:
    """Where records came from: their texts and places, such as "line 7", by position, and those that could not be read.

    `texts` is called only for refused records; `unreadable` has the reasons by position.
    """

    texts: Callable[[list[int]], list[str]]
    place: Callable[[int], str] | None = None
    unreadable: Mapping[int, str] = field(default_factory=dict)

    def refused(self, reasons: Mapping[int, list[str]], ahead: Collection[int]) -> tuple[Refused, ...]:
        """Return the refused records in order; an unreadable one has only that reason. Those in `ahead` are too far ahead of now;
        one that has other reasons too is refused for these."""
        places = sorted(reasons.keys() | self.unreadable.keys())
        return tuple(self._refused(at, text, reasons, ahead) for at, text in zip(places, self.texts(places)))

    def _refused(self, at: int, text: str, reasons: Mapping[int, list[str]], ahead: Collection[int]) -> Refused:
        if at in self.unreadable:
            return Refused(text, self._at(at) + self.unreadable[at], ReasonKind.UNREADABLE)
        kind = ReasonKind.AHEAD if at in ahead and len(reasons[at]) == 1 else ReasonKind.SCHEMA
        return Refused(text, self._at(at) + _joined(reasons[at]), kind)

    def _at(self, position: int) -> str:
        return "" if self.place is None else f"{self.place(position)}: "


_MOST_REASONS = 8
"""Maximal number of reasons that are kept for one record."""
_LONGEST_REASON = 500
"""Maximal length of all reasons together, in characters. Each reason may list the columns of the stream, and a small
body may hold many records."""


def _joined(reasons: list[str]) -> str:
    if len(reasons) == 1 and len(reasons[0]) <= _LONGEST_REASON:
        return reasons[0]
    text = reasons[0] if len(reasons[0]) <= _LONGEST_REASON else reasons[0][: _LONGEST_REASON - 1] + "…"
    shown_reasons = 1
    for reason in reasons[1:_MOST_REASONS]:
        if len(text) + len(reason) + 2 > _LONGEST_REASON:
            break
        text += "; " + reason
        shown_reasons += 1
    more = len(reasons) - shown_reasons
    return text + (f"; and {more:,} more" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class Conformed:
    """The rows in the stream's schema and the refused records, both in input order."""

    rows: pa.Table
    refused: tuple[Refused, ...] = ()


def conform(records: Records, declaration: StreamDeclaration, now: int) -> Conformed:
    """Conform records to a stream; `max_ahead` is measured from `now` (microseconds).

    A table or frame with a column that the stream does not have raises `SchemaMismatch`, since no single record is to
    blame, unless the stream ignores or keeps extra fields.

    >>> orders = StreamDeclaration("orders", "time timestamp, amount double", "time")
    >>> orders_in = [{"time": "2026-01-31T12:00:00Z", "amount": 3}, {"time": "2026-01-31T12:00:01Z", "amount": "free"}]
    >>> done = conform(orders_in, orders, now=1_800_000_000_000_000)
    >>> done.rows.num_rows, done.refused[0].reason
    (1, 'column "amount" must be double, not "free"')
    """
    if isinstance(records, pa.RecordBatch):
        records = pa.Table.from_batches([records])
    if isinstance(records, pa.Table):
        return _conform_table(records, declaration, now)
    if "pandas" in sys.modules and isinstance(records, sys.modules["pandas"].DataFrame):
        return _conform_frame(records, declaration, now)
    if isinstance(records, (Mapping, str, bytes)) or not isinstance(records, Iterable):
        raise HayaseError(f"{shown(records)} is not a list of records; give a list of dicts, an Arrow table or a frame")
    return conform_rows(list(records), declaration, now)


def conform_rows(
    rows: Sequence[Any], declaration: StreamDeclaration, now: int, origin: Origin | None = None
) -> Conformed:
    """Conform rows given as dicts; those that are not dicts are refused."""
    schema = declaration.arrow_schema
    columns, reasons, not_records = _columns(rows, schema.names, declaration.extra_fields)
    fitted = [fit_values(column, target) for column, target in zip(columns, schema)]
    origin = origin or Origin(lambda at: [record_text(rows[position]) for position in at])
    if not_records:
        origin = replace(origin, unreadable={**not_records, **origin.unreadable})
    return _divided(fitted, declaration, now, origin, reasons)


def conform_texts(
    columns: Mapping[str, pa.ChunkedArray],
    count: int,
    declaration: StreamDeclaration,
    now: int,
    origin: Origin,
    parse: bool = True,
) -> Conformed:
    """Conform columns of text, parsed by their types; a missing column is null. Without `parse`, as in JSON, columns have types,
    and only times and dates are texts."""
    fitted = [
        fit_arrow(columns.get(target.name, pa.chunked_array([pa.nulls(count)])), target, parse)
        for target in declaration.arrow_schema
    ]
    reasons = _keep_columns({name: column.to_pylist for name, column in columns.items()}, fitted, declaration)
    return _divided(fitted, declaration, now, origin, reasons)


def _columns(
    rows: Sequence[Any], names: list[str], extra_fields: str
) -> tuple[list[list[Any]], dict[int, list[str]], dict[int, str]]:
    """Return the rows as columns, None where a field is missing; the reasons for rows with unknown fields; and those
    for rows that are not records. Unknown fields that are kept are an object in the column `EXTRA`."""
    try:
        if sum(map(len, rows)) == len(rows) * len(names) and all(map(issubclass, map(type, rows), repeat(dict))):
            take_fields = itemgetter(*names)  # all names present and as many fields as names: no unknown field
            values = list(map(take_fields, rows))
            return (
                (
                    [values]
                    if len(names) == 1
                    else [list(column_values) for column_values in zip(*values)] or [[] for _ in names]
                ),
                {},
                {},
            )
    except (TypeError, KeyError):
        pass  # checked row by row below
    known = frozenset(names)
    reasons: dict[int, list[str]] = {}
    not_records: dict[int, str] = {}
    columns: list[list[Any]] = [[] for _ in names]
    unknown = lru_cache(1000)(lambda name: f"unknown field {shown(name)}" + nearest(str(name), names))
    for at, row in enumerate(rows):
        if not isinstance(row, Mapping):
            not_records[at] = f"a record is an object with the stream's columns as fields, not {shown(row)}"
            row = {}
        elif extra_fields == "refuse" and not known.issuperset(row):
            reasons[at] = [
                unknown(name) if number < _MOST_REASONS else "unknown field"
                for number, name in enumerate(name for name in row if name not in known)
            ]
        elif extra_fields == "keep" and not known.issuperset(row):
            if row.get(EXTRA) is not None:
                reasons[at] = [_EXTRA_TWICE]
            row = {**row, EXTRA: {name: value for name, value in row.items() if name not in known}}
        for column, name in zip(columns, names):
            column.append(row.get(name))
    return columns, reasons, not_records


_EXTRA_TWICE = f'the record has a value for column "{EXTRA}" and fields that go there; leave out one of them'


def _keep_columns(
    columns: Mapping[str, Callable[[], list[Any]]], fitted: list[Fitted], declaration: StreamDeclaration
) -> dict[int, list[str]]:
    """Put the columns of a table that the stream does not have into the fitted column `EXTRA`, if they are kept, and return
    the reasons for records with a value for that column of their own. A null is left out."""
    names = declaration.arrow_schema.names
    extra = {name: values() for name, values in columns.items() if name not in names}
    if declaration.extra_fields != "keep" or not extra:
        return {}
    at_extra = names.index(EXTRA)
    own = fitted[at_extra]
    objects: list[Any] = [
        {name: value for name, value in zip(extra, row) if not is_null(value)} or None for row in zip(*extra.values())
    ]
    kept = fit_values(objects, declaration.arrow_schema.field(EXTRA))
    reasons = {
        at: [_EXTRA_TWICE]
        for at, is_own in enumerate(own.column.is_valid().to_pylist())
        if is_own and objects[at] is not None
    }
    fitted[at_extra] = Fitted(pc.coalesce(kept.column, own.column), own.reasons | kept.reasons)
    return reasons


def _conform_table(table: pa.Table, declaration: StreamDeclaration, now: int) -> Conformed:
    check_columns(table.column_names, declaration)
    fitted = [
        fit_arrow(
            table.column(target.name) if target.name in table.column_names else _nulls(table.num_rows, target), target
        )
        for target in declaration.arrow_schema
    ]
    reasons = _keep_columns(
        {name: partial(python_values, table.column(name)) for name in table.column_names}, fitted, declaration
    )
    return _divided(fitted, declaration, now, Origin(lambda at: row_texts(rows_at(table, at))), reasons)


def rows_at(table: pa.Table, places: list[int]) -> pa.Table:
    """Return the rows at these places, at least one; Arrow takes no rows of columns of views, such as those of Polars."""
    try:
        return table.take(places)
    except pa.ArrowNotImplementedError:
        return pa.concat_tables([table.slice(place, 1) for place in places])


def row_texts(table: pa.Table) -> list[str]:
    """Return the JSON text of every row, as dead letters keep it.

    >>> row_texts(pa.table({"user": ["taro"], "amount": [3]}))
    ['{"user": "taro", "amount": 3}']
    """
    return [record_text(record) for record in written_records(table)]


def _conform_frame(frame: pd.DataFrame, declaration: StreamDeclaration, now: int) -> Conformed:
    check_columns(list(frame.columns), declaration)
    fitted = [
        _fit_series(frame[target.name], target)
        if target.name in frame.columns
        else fit_arrow(_nulls(len(frame), target), target)
        for target in declaration.arrow_schema
    ]
    reasons = _keep_columns(
        {name: partial(_objects, frame[name], pa.string()) for name in frame.columns}, fitted, declaration
    )
    return _divided(fitted, declaration, now, Origin(lambda at: _frame_texts(frame.iloc[at], declaration)), reasons)


def _frame_texts(frame: pd.DataFrame, declaration: StreamDeclaration) -> list[str]:
    names = list(frame.columns)
    schema = declaration.arrow_schema
    kinds = [schema.field(name).type if name in schema.names else pa.string() for name in names]
    columns = [_objects(frame[name], kind) for name, kind in zip(names, kinds)]
    return [record_text(dict(zip(names, row))) for row in zip(*columns)]


def _fit_series(series: pd.Series[Any], target: pa.Field) -> Fitted:
    """Fit a column of a frame; pandas writes NaN for a missing value, which stays a number only in floating-point columns."""
    if is_json(target):  # a text is JSON text, as in other tables
        return fit_json(_objects(series, target.type), target, parse=True)
    if series.dtype == object:
        return fit_values(_objects(series, target.type), target)
    try:
        array = pa.array(series, from_pandas=not pa.types.is_floating(target.type))
    except (pa.ArrowException, TypeError, ValueError):
        return fit_values(_objects(series, target.type), target)
    return fit_arrow(array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array]), target)


def _objects(series: pd.Series[Any], kind: pa.DataType) -> list[Any]:
    floating = pa.types.is_floating(kind)
    return [None if isinstance(value, float) and value != value and not floating else value for value in series]


def _nulls(count: int, target: pa.Field) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(count, target.type)])


def check_columns(given: list[Any], declaration: StreamDeclaration) -> None:
    """Raise SchemaMismatch if a table, frame or file has columns that the stream does not have, unless it ignores or keeps
    them, or one twice."""
    known = declaration.arrow_schema.names
    for name in given:
        if name not in known and (declaration.extra_fields == "refuse" or not isinstance(name, str)):
            raise SchemaMismatch(
                f'stream "{declaration.name}" has no column {shown(name)}{nearest(str(name), known)}'
                if isinstance(name, str)
                else f'stream "{declaration.name}" takes columns by name, and one is {shown(name)}; name it'
            )
        if given.count(name) > 1:
            raise SchemaMismatch(f'column {shown(name)} for stream "{declaration.name}" is given twice; rename one')


def _divided(
    fitted: list[Fitted],
    declaration: StreamDeclaration,
    now: int,
    origin: Origin,
    reasons: dict[int, list[str]] | None = None,
) -> Conformed:
    """Return the accepted rows and the refused records, after checking nulls and times too."""
    schema = declaration.arrow_schema
    reasons = {} if reasons is None else reasons
    ahead: set[int] = set()
    for fitted_column, target in zip(fitted, schema):
        for at, reason in fitted_column.reasons.items():
            reasons.setdefault(at, []).append(reason)
        if not target.nullable or target.name in (declaration.time, declaration.id):
            _check_nulls(fitted_column, target, declaration, reasons)
        if target.name == declaration.time:
            ahead = _check_times(fitted_column.column, declaration, now, reasons)
    table = pa.table([fitted_column.column for fitted_column in fitted], schema=schema)
    if not reasons and not origin.unreadable:
        return Conformed(table)
    keep = np.ones(table.num_rows, dtype=bool)
    keep[[*reasons, *origin.unreadable]] = False
    return Conformed(table.filter(pa.array(keep)), origin.refused(reasons, ahead))


def _check_nulls(
    fitted: Fitted, target: pa.Field, declaration: StreamDeclaration, reasons: dict[int, list[str]]
) -> None:
    if fitted.column.null_count == len(fitted.reasons):
        return
    role = {declaration.time: "the time column", declaration.id: "the id column"}.get(target.name, "a not-null column")
    for at in np.flatnonzero(pc.is_null(fitted.column).to_numpy()).tolist():
        if at not in fitted.reasons:
            reasons.setdefault(at, []).append(f'column "{target.name}" is missing or null, and is {role}')


def _check_times(
    column: pa.ChunkedArray, declaration: StreamDeclaration, now: int, reasons: dict[int, list[str]]
) -> set[int]:
    """Check that times lie strictly between BEGINNING and END, and not after `now + max_ahead`, in the column's unit. Return the
    positions of those that are too far ahead."""
    scale, ahead = declaration.time_scale, declaration.max_ahead
    least, most = BEGINNING // scale + 1, (END - 1) // scale
    latest = most if ahead is None else min(most, (now + ahead) // scale)
    counts = column.cast(pa.int64())
    bounds = pc.min_max(counts)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    too_far: set[int] = set()
    if low is None or (least <= low and high <= latest):
        return too_far
    outside = pc.fill_null(pc.or_(pc.less(counts, least), pc.greater(counts, latest)), False)
    for at in np.flatnonzero(outside.to_numpy()).tolist():
        value = counts[at].as_py()
        moment = instant_text(value * scale)
        if least <= value <= most and ahead is not None:
            limit = f"max_ahead is {duration_text(ahead)}"
            reason = f"{moment} is {_span(value * scale - now)} ahead of now; {limit}"
            too_far.add(at)
        else:
            reason = f"{value} is not a time; it lies beyond what a stream can order"
        reasons.setdefault(at, []).append(f'column "{declaration.time}": {reason}')
    return too_far


def _span(microseconds: int) -> str:
    """Return a duration as people say it, roughly."""
    for scale, name in _SPANS:
        if microseconds >= scale:
            count = microseconds // scale
            return f"{count} {name}{'' if count == 1 else 's'}"
    return duration_text(microseconds)
