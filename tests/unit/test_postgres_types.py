"""Values as PostgreSQL's texts and back, without a server."""

from __future__ import annotations

import string
from datetime import date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hayase.connectors.postgres_types import accepts, postgres_type, readable, texts_of
from hayase.core.declarations import StreamDeclaration
from hayase.core.schemas import arrow_schema
from hayase.streams.records import Origin, conform_texts

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=8)
KINDS = {
    "boolean": (st.booleans(), "bool"),
    "tinyint": (st.integers(-128, 127), "int2"),
    "bigint": (st.integers(-(2**63), 2**63 - 1), "int8"),
    "ubigint": (st.integers(0, 2**64 - 1), "numeric"),
    "float": (st.floats(width=32), "float4"),
    "double": (st.floats(), "float8"),
    "decimal(38, 10)": (st.decimals(-(10**27), 10**27, places=10), "numeric"),
    "string": (TEXT, "text"),
    "binary": (st.binary(max_size=8), "bytea"),
    "date": (st.dates(date(2, 1, 1)), "date"),
    "timestamp_ntz": (st.datetimes(datetime(2, 1, 1)), "timestamp"),
    "time": (st.times(), "time"),
    "array<bigint>": (st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=4), "_int8"),
    "array<string>": (st.lists(st.none() | TEXT | st.text(string.punctuation + " "), max_size=4), "_text"),
    "array<double>": (st.lists(st.none() | st.floats(), max_size=4), "_float8"),
    "array<binary>": (st.lists(st.none() | st.binary(max_size=4), max_size=4), "_bytea"),
    "array<decimal(20, 3)>": (st.lists(st.none() | st.decimals(-(10**16), 10**16, places=3), max_size=3), "_numeric"),
    "struct<a: bigint, b: string>": (st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.none() | TEXT}), "jsonb"),
    "array<array<bigint>>": (st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=2), "jsonb"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_read_again(kind: str) -> None:
    values, type_name = KINDS[kind]
    stream = StreamDeclaration("s", f"at bigint, v {kind}", time="at", time_unit="us")
    field = stream.arrow_schema.field("v")

    @given(st.lists(st.none() | values, min_size=1, max_size=5))
    def check(given_values: list[object]) -> None:
        column = pa.array(given_values, field.type)
        texts = texts_of(column, field)
        columns = {"at": pa.chunked_array([pa.array([0] * len(column))]), "v": readable(texts, type_name, field)}
        columns["v"] = pa.chunked_array([columns["v"]])
        conformed = conform_texts(columns, len(column), stream, 0, Origin(lambda at: [""] * len(at)))
        assert not conformed.refused
        assert repr(conformed.rows.column("v").to_pylist()) == repr(column.to_pylist())

    check()


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "1970-01-01 00:00:00.000000"),
        (253_402_300_800_000_000, "10000-01-01 00:00:00.000000"),
        (-62_135_596_800_000_000, "0001-01-01 00:00:00.000000"),
        (-62_167_219_200_000_000, "0001-01-01 00:00:00.000000 BC"),
        (-210_866_803_200_000_000, "4714-11-24 00:00:00.000000 BC"),
    ],
)
def test_years_are_written_as_postgresql_does(micros: int, text: str) -> None:
    naive = pa.field("t", pa.timestamp("us"))
    assert texts_of(pa.array([micros, None], pa.int64()).view(naive.type), naive).to_pylist() == [text, None]
    zoned = pa.field("t", pa.timestamp("us", tz="UTC"))
    assert texts_of(pa.array([micros], pa.int64()).view(zoned.type), zoned)[0].as_py().replace("Z", "") == text


def test_what_postgresql_cannot_hold_is_replaced() -> None:
    assert texts_of(pa.array(["a\0b"]), pa.field("s", pa.string())).to_pylist() == ["a\ufffdb"]
    json = arrow_schema("j json").field("j")
    written = [r'{"a": "\u0000"}', r'"\\u0000"', r'"\ud83d\ude00"', r'"\ud83d"', r'"x\ude00\\"', '"é"']
    expected = [r'{"a": "\ufffd"}', r'"\\u0000"', r'"\ud83d\ude00"', r'"\ufffd"', r'"x\ufffd\\"', '"é"']
    assert texts_of(pa.array(written), json).to_pylist() == expected
    struct = pa.field("s", pa.struct([("a", pa.string())]))
    assert texts_of(pa.array([{"a": "\0"}, None], struct.type), struct).to_pylist() == [r'{"a": "\ufffd"}', None]


def test_arrays_of_arrays_and_bounds_are_read() -> None:
    field = pa.field("v", pa.list_(pa.list_(pa.int64())))
    texts = ["{{1,2},{3,NULL}}", "[0:1][2:3]={{1,2},{3,4}}", "{}"]
    assert readable(pa.array(texts), "_int4", field).to_pylist() == ["[[1, 2], [3, null]]", "[[1, 2], [3, 4]]", "[]"]
    names = pa.field("v", pa.list_(pa.string()))
    assert readable(pa.array([r'{"a\"b\\",NULL,"NULL",c d}']), "_text", names).to_pylist() == [
        r'["a\"b\\", null, "NULL", "c d"]'
    ]
    assert readable(pa.array(["{t,f,NULL}"]), "_bool", pa.field("v", pa.list_(pa.bool_()))).to_pylist() == [
        "[true, false, null]"
    ]


def test_types_of_columns() -> None:
    schema = arrow_schema("a ubigint, b decimal(10, 2), c json, d map<string, bigint>, e array<timestamp>, f tinyint")
    assert [postgres_type(field) for field in schema] == [
        "numeric(20)", "numeric(10, 2)", "jsonb", "jsonb", "timestamp with time zone[]", "smallint",
    ]  # fmt: skip
    fitting = ("numeric", "numeric", "json", "jsonb", "_timestamptz", "int8")
    assert all(accepts(field, name) for field, name in zip(schema, fitting))
    unfit = ("int8", "float8", "text", "text", "_timestamp", "bool")
    assert not any(accepts(field, name) for field, name in zip(schema, unfit))


def test_decimals_and_times_of_day_have_all_digits() -> None:
    field = pa.field("d", pa.decimal128(38, 20))
    assert texts_of(pa.array([Decimal("0.00000000000000000001")], field.type), field).to_pylist()[0] in (
        "1E-20",
        "0.00000000000000000001",
    )
    of_day = pa.field("t", pa.time64("us"))
    assert texts_of(pa.array([time(23, 59, 59, 999_999)], of_day.type), of_day).to_pylist() == ["23:59:59.999999"]
