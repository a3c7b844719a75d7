"""Map sides of queries: functions from a batch of a stream to the rows of a plan's leaf. All can be pickled.

Columns that are only selected and renamed are not copied. Expressions are evaluated by DuckDB (`hayase.core.expressions`); the
reason of a refused row shows the text of the query, not the names of the planner.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.data_classes import dataclass
from hayase.core.expressions import Projection
from hayase.core.reasons import ReasonKind, reasons_of
from hayase.core.stages import Lookup, Mapped, MapSide, Refusals

__all__ = [
    "ChangeRows",
    "CheckedRows",
    "Composed",
    "Computed",
    "CountedRows",
    "EarliestRecord",
    "LifetimeRows",
    "SelectedColumns",
    "TableRows",
]


@dataclass(frozen=True, slots=True)
class SelectedColumns:
    """Selects columns of the batch and renames them to those of `schema`."""

    columns: tuple[str, ...]
    schema: pa.Schema

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        """Select and rename."""
        return Mapped(_select_columns(batch, self.columns, self.schema), np.arange(batch.num_rows))


@dataclass(frozen=True, slots=True)
class Computed:
    """Evaluates a projection; `where` and `columns` are the texts of its expressions in the query."""

    projection: Projection
    where: str | None
    columns: tuple[str, ...]

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        """Project. Reasons of refused rows show the texts of the query."""
        return self.projection(batch, (self.where, *self.columns))


@dataclass(frozen=True, slots=True)
class CountedRows:
    """Evaluates a projection and keeps refused rows too, because a window counts them.

    A refused row has the columns that are only `chosen` (pairs of output and input name); its other columns are null, and the
    boolean column `flag`, which says whether a row passes the filter, is false.
    """

    computed: MapSide
    chosen: tuple[tuple[str, str], ...]
    flag: str

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        """Project, and put the refused rows back in their places."""
        mapped = self.computed(batch)
        lost = mapped.refused.rows
        if not len(lost):
            return mapped
        taken = {out: batch.column(own).take(pa.array(lost)) for out, own in self.chosen}
        taken[self.flag] = pa.array([False] * len(lost))
        schema = mapped.rows.schema
        empty = pa.RecordBatch.from_arrays(
            [taken[field.name] if field.name in taken else pa.nulls(len(lost), field.type) for field in schema],
            schema=schema,
        )
        input_rows = np.concatenate([mapped.input_rows, lost])
        order = np.argsort(input_rows, kind="stable")
        rows = pa.concat_batches([mapped.rows, empty]).take(pa.array(order))
        return Mapped(rows, input_rows[order], mapped.refused)


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """Selects columns of all rows, because a window counts them, and adds the boolean column `flag`: whether `check`, the map
    side that selects and computes what the operators above the window need, gives the row.

    A row that `check` refuses is refused, whether or not it is ever alive in the window.
    """

    chosen: SelectedColumns
    check: MapSide
    flag: str

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        """Select, and check every row."""
        checked = self.check(batch)
        passed = np.zeros(batch.num_rows, np.bool_)
        passed[checked.input_rows] = True
        mapped = self.chosen(batch)
        return Mapped(mapped.rows.append_column(self.flag, pa.array(passed)), mapped.input_rows, checked.refused)


@dataclass(frozen=True, slots=True)
class LifetimeRows:
    """Selects columns of a stream of lifetimes, then `row_id`, `valid_from` and `valid_to` in microseconds.

    `scale` is the number of microseconds in one unit of the stream's times.
    """

    columns: tuple[str, ...]
    schema: pa.Schema
    scale: int

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        """Select, rename, and convert the times to microseconds."""
        own = [batch.column(name) for name in self.columns]
        times = [_microseconds(batch.column(name), self.scale) for name in ("valid_from", "valid_to")]
        rows = pa.RecordBatch.from_arrays([*own, batch.column("row_id"), *times], schema=self.schema)
        return Mapped(rows, np.arange(batch.num_rows))


def _microseconds(times: pa.Array, scale: int) -> pa.Array:
    units = times.cast(pa.int64())
    return units if scale == 1 else pc.multiply_checked(units, pa.scalar(scale, pa.int64()))


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """Selects columns of a stream of changes, then whether the row is added; `sign` is the column with + or -."""

    columns: tuple[str, ...]
    schema: pa.Schema
    sign: str

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        """Select and rename. Rows whose sign is neither + nor - are refused."""
        signs = batch.column(self.sign)
        added = pc.fill_null(pc.equal(signs, "+"), False)
        good = pc.or_(added, pc.fill_null(pc.equal(signs, "-"), False)).to_numpy(zero_copy_only=False)
        own = [batch.column(name) for name in self.columns]
        rows = pa.RecordBatch.from_arrays([*own, added], schema=self.schema)
        if good.all():
            return Mapped(rows, np.arange(batch.num_rows))
        bad = np.flatnonzero(~good)
        shown = ["null" if sign is None else f'"{sign}"' for sign in signs.take(pa.array(bad)).to_pylist()]
        reasons = [f'a change is + or -, and column "{self.sign}" is {text}' for text in shown]
        return Mapped(
            rows.filter(pa.array(good)), np.flatnonzero(good), Refusals(bad, reasons_of(ReasonKind.CHANGE, reasons))
        )


@dataclass(frozen=True, slots=True)
class EarliestRecord:
    """Selects the earliest record of a batch, without columns: only its event time is needed."""

    time: str

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        """Find the earliest record."""
        rows = pa.RecordBatch.from_arrays([], schema=pa.schema([]))
        if not batch.num_rows:
            return Mapped(rows, np.empty(0, np.int64))
        times = batch.column(self.time).cast(pa.int64()).to_numpy()
        return Mapped(rows, np.array([np.argmin(times)]))


@dataclass(frozen=True, slots=True)
class TableRows:
    """Joins rows with a table: columns `own` of the batch, then the table's key (the columns `keys`), then its `columns`.

    A row whose key is not in the table is dropped or, in a left join, has nulls for all columns of the table. A row is refused
    if the table's row has a value in `columns` that does not fit its Arrow type. Every key is looked up once per batch,
    however many rows have it.
    """

    table: str
    kind: Literal["inner", "left"]
    own: tuple[str, ...]
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    schema: pa.Schema
    lookup: Lookup = field(repr=False, compare=False)

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        """Look up the keys and join the rows of the table with those of the batch."""
        if not batch.num_rows:
            return Mapped(pa.RecordBatch.from_pylist([], schema=self.schema), np.empty(0, np.int64))
        parts = self.lookup.table.key
        keys = pa.RecordBatch.from_arrays([batch.column(name) for name in self.keys], names=list(parts))
        firsts, number = _distinct_rows(keys)
        distinct = keys if len(firsts) == batch.num_rows else keys.take(pa.array(firsts))
        known, rows, misfits = self.lookup.find(distinct, self.columns)
        place = np.full(len(firsts), -1, np.int64)
        place[known] = np.arange(len(known))
        place = place[number]
        met = place >= 0
        unfit = np.isin(number, misfits.rows)
        own = [batch.column(name) for name in (*self.own, *self.keys)]
        kept = met if self.kind == "inner" else ~unfit
        input_rows = np.flatnonzero(kept)
        if not kept.all():
            place, met = place[kept], met[kept]
            own = [column.take(pa.array(input_rows)) for column in own]
        if not met.all():
            nulls = (pa.scalar(None, column.type) for column in own[len(self.own) :])
            own[len(self.own) :] = [pc.if_else(met, column, null) for column, null in zip(own[len(self.own) :], nulls)]
        taken = pa.array(place, mask=place < 0)
        looked_up = [rows.column(name).take(taken) for name in self.columns]
        reasons = dict(zip(misfits.rows.tolist(), misfits.reasons))
        refused = Refusals(np.flatnonzero(unfit), [reasons[key] for key in number[unfit].tolist()])
        return Mapped(pa.RecordBatch.from_arrays([*own, *looked_up], schema=self.schema), input_rows, refused)


def _distinct_rows(keys: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
    """Return the position of the first of equal rows, and for every row the number of its distinct row."""
    number = np.zeros(keys.num_rows, np.int64)
    for place, column in enumerate(keys.columns):
        encoded = column.dictionary_encode(null_encoding="encode")
        codes = encoded.indices.to_numpy().astype(np.int64)
        if place == 0:
            number = codes
        else:
            _, number = np.unique(number * len(encoded.dictionary) + codes, return_inverse=True)
    count = int(number.max()) + 1
    if count == keys.num_rows:
        return np.arange(count), np.arange(count)
    firsts = np.empty(count, np.int64)
    firsts[number[::-1]] = np.arange(keys.num_rows)[::-1]
    return firsts, number


@dataclass(frozen=True, slots=True)
class Composed:
    """Runs two map sides one after the other. A row that either refuses is refused."""

    first: MapSide
    second: MapSide

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        """Run both map sides."""
        inner = self.first(batch)
        outer = self.second(inner.rows)
        if not len(inner.refused) and not len(outer.refused):
            return Mapped(outer.rows, inner.input_rows[outer.input_rows])
        rows = np.concatenate([inner.refused.rows, inner.input_rows[outer.refused.rows]])
        order = np.argsort(rows, kind="stable")
        reasons = [*inner.refused.reasons, *outer.refused.reasons]
        refused = Refusals(rows[order], [reasons[at] for at in order])
        return Mapped(outer.rows, inner.input_rows[outer.input_rows], refused)


def _select_columns(batch: pa.RecordBatch, columns: tuple[str, ...], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([batch.column(name) for name in columns], schema=schema)
