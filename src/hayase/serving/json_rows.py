"""Rows of streams and queries as JSON: times in ISO form, decimals in full, other values as in the records of dead letters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

from hayase.core.schemas import is_json
from hayase.engine.results.lifespans import OPEN, Integers
from hayase.streams.record_text import record_text
from hayase.streams.typed_columns import python_values

__all__ = ["json_text", "lifetime_rows", "plain_rows"]


def json_text(value: Any) -> bytes:
    """Serialise a value of `plain_rows`, or a structure of such values."""
    return orjson.dumps(value, default=_fallback, option=orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS)


def _fallback(value: Any) -> orjson.Fragment:
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    return orjson.Fragment(record_text(value))


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows as dicts for `json_text`; NaN and the infinities, which JSON lacks, become strings.

    >>> json_text(plain_rows(pa.table({"ratio": [0.5, math.inf], "day": ["monday", None]})))
    b'[{"ratio":0.5,"day":"monday"},{"ratio":"Infinity","day":null}]'
    """
    names = table.column_names
    columns = [_values(column, is_json(field)) for field, column in zip(table.schema, table.columns)]
    return [dict(zip(names, row)) for row in zip(*columns)]


def lifetime_rows(
    rows: pa.Table, starts: Integers, ends: Integers, valid_from: Sequence[Any], valid_to: Sequence[Any]
) -> list[dict[str, Any]]:
    """Return rows with their lifetimes for `json_text`: in microseconds (`starts` and `ends`), and in the query's own form."""
    columns = zip(plain_rows(rows), valid_from, valid_to, starts.tolist(), ends.tolist(), strict=True)
    return [
        {
            "row": row,
            "valid_from": begin,
            "valid_to": end,
            "from_us": from_us,
            "to_us": None if to_us == OPEN else to_us,
        }
        for row, begin, end, from_us, to_us in columns
    ]


def _values(column: pa.ChunkedArray, as_written: bool) -> list[Any]:
    values = python_values(column)
    if as_written:
        return [None if text is None else orjson.Fragment(text) for text in values]
    return [_finite(value) for value in values] if _has_floats(column.type) else values


def _has_floats(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or any(_has_floats(kind.field(at).type) for at in range(kind.num_fields))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else orjson.Fragment(record_text(value))
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return value
