"""Converts the results of user functions to rows of the output schema, a group of windows at a time, and infers that schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError, Mistake, nearest
from hayase.core.schemas import ddl
from hayase.operations.user_functions import Returned
from hayase.streams.record_text import shown
from hayase.streams.typed_columns import Fitted, fit_arrow, fit_values

__all__ = ["FittedResults", "fit_results", "schema_of_results"]


@dataclass(frozen=True, slots=True)
class FittedResults:
    """Rows in the output schema, `counts[i]` of them from window i; and the windows whose results do not fit, with reasons."""

    rows: pa.RecordBatch
    counts: np.ndarray
    unfit: dict[int, str] = field(default_factory=dict)


def fit_results(returned: Sequence[Returned], schema: pa.Schema, ignored: str | None = None) -> FittedResults:
    """Convert the results of windows. If one row of a window does not fit, the window has no rows. The field `ignored`
    is dropped.

    >>> done = fit_results([[{"x": 1}], [{"x": 2}, {"x": "two"}], []], pa.schema([("x", pa.int64())]))
    >>> done.rows.num_rows, done.counts.tolist(), done.unfit
    (1, [1, 0, 0], {1: 'column "x" must be bigint, not "two"'})
    """
    first = next((result for result in returned if isinstance(result, pa.RecordBatch)), None)
    if first is not None and (
        len(returned) > 1
        and not all(isinstance(result, pa.RecordBatch) and result.schema == first.schema for result in returned)
    ):
        return _one_by_one(returned, schema, ignored)
    counts = np.fromiter(map(len, returned), np.int64, len(returned))
    reasons: dict[int, list[str]] = {}
    if first is None:
        columns = _columns([record for result in returned for record in result], schema.names, ignored, reasons)
        fitted = [fit_values(values, target) for values, target in zip(columns, schema)]
    else:
        table = pa.Table.from_batches(returned)
        if ignored in table.column_names:
            table = table.select([at for at, name in enumerate(table.column_names) if name != ignored])
        fitted = _fitted_arrow(table, schema, reasons)
    return _divided(fitted, schema, counts, reasons)


def _one_by_one(returned: Sequence[Returned], schema: pa.Schema, ignored: str | None) -> FittedResults:
    """Convert windows whose results are of different kinds, each separately."""
    parts = [fit_results([result], schema, ignored) for result in returned]
    return FittedResults(
        pa.concat_batches([part.rows for part in parts]),
        np.concatenate([part.counts for part in parts]),
        {number: part.unfit[0] for number, part in enumerate(parts) if part.unfit},
    )


def _columns(
    records: list[dict[str, Any]], names: list[str], ignored: str | None, reasons: dict[int, list[str]]
) -> list[list[Any]]:
    """Turn records into columns, None where a field is missing; unknown fields are added to `reasons`."""
    fields = sum(map(len, records)) - (0 if ignored is None else sum(ignored in record_ for record_ in records))
    if fields == len(records) * len(names):
        try:
            if len(names) == 1:
                return [list(map(itemgetter(names[0]), records))]
            return [list(column) for column in zip(*map(itemgetter(*names), records))] or [[] for _ in names]
        except KeyError:
            pass  # checked record by record below
    known = frozenset(names if ignored is None else [*names, ignored])
    for at, record in enumerate(records):
        if not known.issuperset(record):
            strange = [name for name in record if name not in known]
            reasons[at] = [f"unknown field {shown(name)}{nearest(str(name), names)}" for name in strange]
    return [[record.get(name) for record in records] for name in names]


def _fitted_arrow(table: pa.Table, schema: pa.Schema, reasons: dict[int, list[str]]) -> list[Fitted]:
    names = table.column_names
    mistakes = [
        f"unknown field {shown(name)}{nearest(name, schema.names)}" for name in names if name not in schema.names
    ]
    mistakes += [f"field {shown(name)} is there twice" for name in dict.fromkeys(names) if names.count(name) > 1]
    if mistakes:
        reasons.update(dict.fromkeys(range(table.num_rows), mistakes))
        return [Fitted(pa.chunked_array([pa.nulls(table.num_rows, target.type)])) for target in schema]
    absent = pa.chunked_array([pa.nulls(table.num_rows)])
    return [fit_arrow(table.column(target.name) if target.name in names else absent, target) for target in schema]


def _divided(
    fitted: list[Fitted], schema: pa.Schema, counts: np.ndarray, reasons: dict[int, list[str]]
) -> FittedResults:
    for column, target in zip(fitted, schema):
        for at, reason in column.reasons.items():
            reasons.setdefault(at, []).append(reason)
        if not target.nullable and column.column.null_count > len(column.reasons):
            for at in np.flatnonzero(pc.is_null(column.column).to_numpy()).tolist():
                if at not in column.reasons and at not in reasons:
                    reasons[at] = [f'column "{target.name}" is missing or null, and is a not-null column']
    columns = [column.column.combine_chunks() for column in fitted]
    loose = pa.schema([field.with_nullable(True) for field in schema])
    rows = pa.RecordBatch.from_arrays(columns, schema=loose)
    unfit: dict[int, str] = {}
    if reasons:
        ends = np.cumsum(counts)
        owner = np.searchsorted(ends, np.fromiter(reasons, np.int64, len(reasons)), side="right").tolist()
        for number, row_reasons in sorted(zip(owner, reasons.values()), key=itemgetter(0)):
            unfit.setdefault(number, "; ".join(row_reasons))
        unfit_windows = np.zeros(len(counts), np.bool_)
        unfit_windows[list(unfit)] = True
        rows = rows.filter(pa.array(np.repeat(~unfit_windows, counts)))
        counts = np.where(unfit_windows, 0, counts)
    return FittedResults(rows.cast(schema) if loose != schema else rows, counts, unfit)


# ---------------------------------------------------------------------------------------------------- inference


def schema_of_results(returned: Sequence[Returned], ignored: str | None = None) -> str:
    """Return the schema, as DDL, of the results of windows without the field `ignored`; DeclarationError names columns
    whose type cannot be inferred.

    >>> schema_of_results([[{"name": "taro", "mean": 1.5}], [{"name": "hanako", "tags": ["a"]}]])
    'name string, mean double, tags array<string>'
    """
    values: dict[str, list[pa.Array]] = {}
    mistakes: list[Mistake] = []
    for result in returned:
        if isinstance(result, pa.RecordBatch):
            for name, column in zip(result.schema.names, result.columns):
                if name != ignored:
                    values.setdefault(name, []).append(column)
    records = [record for result in returned if not isinstance(result, pa.RecordBatch) for record in result]
    for name in dict.fromkeys(name for record in records for name in record):
        if name == ignored:
            continue
        if not isinstance(name, str):
            mistakes.append(Mistake(f"a field of a result is named {shown(name)}", "names are texts"))
            continue
        try:
            column_values = pa.array([record.get(name) for record in records])
            values.setdefault(name, []).append(column_values)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            cause = str(error).partition("\n")[0]
            mistakes.append(Mistake(f'the type of the field "{name}" is not clear: {cause}', _DECLARE))
    if not values and not mistakes:
        cause = "no record" if ignored is None else f'no record with more than "{ignored}"'
        raise DeclarationError(f"the sample gave {cause}, so the schema is not known", _DECLARE)
    fields = []
    for name, columns in values.items():
        try:
            kinds = pa.unify_schemas(
                [pa.schema([("x", column_.type)]) for column_ in columns], promote_options="permissive"
            )
            fields.append(pa.field(name, _declarable(kinds.field("x").type)))
            ddl(pa.schema([fields[-1]]))
        except (pa.ArrowException, DeclarationError, _Unclear) as error:
            mistakes.append(Mistake(f'the type of the field "{name}" is not clear: {error}', _DECLARE))
    if mistakes:
        raise DeclarationError(mistakes)
    return ddl(pa.schema(fields))


_DECLARE = 'declare the schema of the output, like "name string, score double"'


class _Unclear(Exception):
    """A type that cannot be inferred from a sample."""


def _declarable(kind: pa.DataType) -> pa.DataType:
    """Return the nearest type that a stream's column can have."""
    if pa.types.is_null(kind):
        raise _Unclear("it is null, or empty, in all of the sample")
    if pa.types.is_dictionary(kind):
        return _declarable(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_unsigned_integer(kind) and kind.bit_width < 64:
        return {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}[kind.bit_width]
    if kind == pa.float16():
        return pa.float32()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_declarable(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_declarable(kind.key_type), _declarable(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _declarable(field.type)) for field in kind])
    return kind
