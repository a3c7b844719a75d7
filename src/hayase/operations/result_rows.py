"""What functions gave, as rows of the output: fitted to its schema a whole group of windows at a time, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.errors import DeclarationError, Mistake, nearest
from hayase.core.schemas import ddl
from hayase.operations.user_functions import Given
from hayase.streams.record_text import shown
from hayase.streams.typed_columns import Fitted, fit_arrow, fit_values

__all__ = ["FittedResults", "fit_results", "schema_of_results"]


@dataclass(frozen=True, slots=True)
class FittedResults:
    """Rows in the schema of the output, `counts[i]` of them of the window i; windows that do not fit, with the reason."""

    rows: pa.RecordBatch
    counts: np.ndarray
    unfit: dict[int, str] = field(default_factory=dict)


def fit_results(given: Sequence[Given], schema: pa.Schema, ignored: str | None = None) -> FittedResults:
    """Fit what some windows gave. A window of which one row does not fit has none. A field that is `ignored` is left out.

    >>> done = fit_results([[{"x": 1}], [{"x": 2}, {"x": "two"}], []], pa.schema([("x", pa.int64())]))
    >>> done.rows.num_rows, done.counts.tolist(), done.unfit
    (1, [1, 0, 0], {1: 'column "x" must be bigint, not "two"'})
    """
    first = next((each for each in given if isinstance(each, pa.RecordBatch)), None)
    if first is not None and (
        len(given) > 1 and not all(isinstance(each, pa.RecordBatch) and each.schema == first.schema for each in given)
    ):
        return _one_by_one(given, schema, ignored)
    counts = np.fromiter(map(len, given), np.int64, len(given))
    reasons: dict[int, list[str]] = {}
    if first is None:
        columns = _columns([record for each in given for record in each], schema.names, ignored, reasons)
        fitted = [fit_values(values, target) for values, target in zip(columns, schema)]
    else:
        table = pa.Table.from_batches(given)
        if ignored in table.column_names:
            table = table.select([at for at, name in enumerate(table.column_names) if name != ignored])
        fitted = _fitted_arrow(table, schema, reasons)
    return _divided(fitted, schema, counts, reasons)


def _one_by_one(given: Sequence[Given], schema: pa.Schema, ignored: str | None) -> FittedResults:
    """Windows whose results are of different kinds."""
    parts = [fit_results([each], schema, ignored) for each in given]
    return FittedResults(
        pa.concat_batches([each.rows for each in parts]),
        np.concatenate([each.counts for each in parts]),
        {number: each.unfit[0] for number, each in enumerate(parts) if each.unfit},
    )


def _columns(
    records: list[dict[str, Any]], names: list[str], ignored: str | None, reasons: dict[int, list[str]]
) -> list[list[Any]]:
    """Records turned into columns, None where a field is missing; unknown fields are a reason."""
    fields = sum(map(len, records)) - (0 if ignored is None else sum(ignored in each for each in records))
    if fields == len(records) * len(names):
        try:
            if len(names) == 1:
                return [list(map(itemgetter(names[0]), records))]
            return [list(each) for each in zip(*map(itemgetter(*names), records))] or [[] for _ in names]
        except KeyError:
            pass  # looked at one by one
    known = frozenset(names if ignored is None else [*names, ignored])
    for at, record in enumerate(records):
        if not known.issuperset(record):
            strange = [name for name in record if name not in known]
            reasons[at] = [f"unknown field {shown(name)}{nearest(str(name), names)}" for name in strange]
    return [[record.get(name) for record in records] for name in names]


def _fitted_arrow(table: pa.Table, schema: pa.Schema, reasons: dict[int, list[str]]) -> list[Fitted]:
    names = table.column_names
    wrong = [f"unknown field {shown(name)}{nearest(name, schema.names)}" for name in names if name not in schema.names]
    wrong += [f"field {shown(name)} is there twice" for name in dict.fromkeys(names) if names.count(name) > 1]
    if wrong:
        reasons.update(dict.fromkeys(range(table.num_rows), wrong))
        return [Fitted(pa.chunked_array([pa.nulls(table.num_rows, target.type)])) for target in schema]
    absent = pa.chunked_array([pa.nulls(table.num_rows)])
    return [fit_arrow(table.column(target.name) if target.name in names else absent, target) for target in schema]


def _divided(
    fitted: list[Fitted], schema: pa.Schema, counts: np.ndarray, reasons: dict[int, list[str]]
) -> FittedResults:
    for each, target in zip(fitted, schema):
        for at, reason in each.reasons.items():
            reasons.setdefault(at, []).append(reason)
        if not target.nullable and each.column.null_count > len(each.reasons):
            for at in np.flatnonzero(pc.is_null(each.column).to_numpy()).tolist():
                if at not in each.reasons and at not in reasons:
                    reasons[at] = [f'column "{target.name}" is missing or null, and is a not-null column']
    columns = [each.column.combine_chunks() for each in fitted]
    loose = pa.schema([each.with_nullable(True) for each in schema])
    rows = pa.RecordBatch.from_arrays(columns, schema=loose)
    unfit: dict[int, str] = {}
    if reasons:
        ends = np.cumsum(counts)
        owner = np.searchsorted(ends, np.fromiter(reasons, np.int64, len(reasons)), side="right").tolist()
        for number, each_reason in sorted(zip(owner, reasons.values()), key=itemgetter(0)):
            unfit.setdefault(number, "; ".join(each_reason))
        lost = np.zeros(len(counts), np.bool_)
        lost[list(unfit)] = True
        rows = rows.filter(pa.array(np.repeat(~lost, counts)))
        counts = np.where(lost, 0, counts)
    return FittedResults(rows.cast(schema) if loose != schema else rows, counts, unfit)


# ---------------------------------------------------------------------------------------------------- inference


def schema_of_results(given: Sequence[Given], ignored: str | None = None) -> str:
    """The schema, as DDL, of what some windows gave, but for a field that is `ignored`; a DeclarationError says which columns
    it does not show.

    >>> schema_of_results([[{"name": "taro", "mean": 1.5}], [{"name": "hanako", "tags": ["a"]}]])
    'name string, mean double, tags array<string>'
    """
    values: dict[str, list[pa.Array]] = {}
    mistakes: list[Mistake] = []
    for each in given:
        if isinstance(each, pa.RecordBatch):
            for name, column in zip(each.schema.names, each.columns):
                if name != ignored:
                    values.setdefault(name, []).append(column)
    records = [record for each in given if not isinstance(each, pa.RecordBatch) for record in each]
    for name in dict.fromkeys(name for record in records for name in record):
        if name == ignored:
            continue
        if not isinstance(name, str):
            mistakes.append(Mistake(f"a field of a result is named {shown(name)}", "names are texts"))
            continue
        try:
            found = pa.array([record.get(name) for record in records])
            values.setdefault(name, []).append(found)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            told = str(error).partition("\n")[0]
            mistakes.append(Mistake(f'the type of the field "{name}" is not clear: {told}', _DECLARE))
    if not values and not mistakes:
        told = "no record" if ignored is None else f'no record with more than "{ignored}"'
        raise DeclarationError(f"the sample gave {told}, so the schema is not known", _DECLARE)
    fields = []
    for name, columns in values.items():
        try:
            kinds = pa.unify_schemas([pa.schema([("x", each.type)]) for each in columns], promote_options="permissive")
            fields.append(pa.field(name, _declarable(kinds.field("x").type)))
            ddl(pa.schema([fields[-1]]))
        except (pa.ArrowException, DeclarationError, _Unclear) as error:
            mistakes.append(Mistake(f'the type of the field "{name}" is not clear: {error}', _DECLARE))
    if mistakes:
        raise DeclarationError(mistakes)
    return ddl(pa.schema(fields))


_DECLARE = 'declare the schema of the output, like "name string, score double"'


class _Unclear(Exception):
    """A type that a sample does not tell."""


def _declarable(kind: pa.DataType) -> pa.DataType:
    """The nearest type that a stream's column can have."""
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
        return pa.struct([pa.field(each.name, _declarable(each.type)) for each in kind])
    return kind
