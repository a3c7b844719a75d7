"""A row for every type of column, as the tests of targets use them, and a row of nulls."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

from hayase.connectors.sink import HEADS
from hayase.core.schemas import arrow_schema

__all__ = ["VALUES", "changes_of", "column_of"]

_UTC = dt.UTC
VALUES: dict[str, Any] = {
    "boolean": True,
    "tinyint": -128,
    "smallint": 32_767,
    "int": -(2**31),
    "bigint": 2**63 - 1,
    "ubigint": 2**64 - 1,
    "float": 0.5,
    "double": 1e-300,
    "decimal(38, 10)": Decimal("1234567890123456789012345678.0123456789"),
    "string": "naïve \u0000 text",
    "json": '{"a": [1, null]}',
    "binary": b"\x00\xff",
    "date": dt.date(1969, 12, 31),
    "timestamp": dt.datetime(2026, 1, 31, 12, 0, 0, 123_456, tzinfo=_UTC),
    "timestamp_ntz": dt.datetime(1583, 1, 1, 0, 0, 0, 1),
    "time": dt.time(23, 59, 59, 999_999),
    "array<bigint>": [1, None, 3],
    "array<ubigint>": [2**64 - 1],
    "array<time>": [dt.time(1, 2, 3, 4)],
    "map<string, double>": [("a", 0.5), ("b", None)],
    "struct<a: bigint, b: array<struct<c: string>>>": {"a": 1, "b": [{"c": "x"}]},
}
"""A value of each type, as Arrow gives it to Python."""


def column_of(kind: str) -> pa.Schema:
    """The schema of a row with one column, `value`."""
    return arrow_schema(f"value {kind}")


def changes_of(kind: str) -> pa.Table:
    """Changes of which one row has the value of a type, and one has none."""
    schema = column_of(kind)
    values = pa.array([VALUES[kind], None], schema.field("value").type)
    heads = [pa.array([1_000_000, 2_000_000]), pa.array([True, True]), pa.array([1, 2])]
    fields = [pa.field(name, head.type) for name, head in zip(HEADS, heads)]
    return pa.table([*heads, values], schema=pa.schema([*fields, *schema]))
