"""What `conform` takes, what it refuses, and what it says."""

from __future__ import annotations

import enum
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import HayaseError, SchemaMismatch
from hayase.core.reasons import Reason, ReasonKind, reasons_of
from hayase.core.times import instant
from hayase.streams.dead_letters import APPEND, DEAD, dead_table
from hayase.streams.record_text import record_text, shown
from hayase.streams.records import Conformed, conform

NOW = instant("2026-02-01T00:00:00Z")
TIME = "2026-01-31T12:00:00Z"
ORDERS = StreamDeclaration("orders", "time timestamp, id string, n int not null, price double", "time", id="id")


def order(**fields: Any) -> dict[str, Any]:
    return {"time": TIME, "id": "a", "n": 1, "price": 2.5} | fields


def one(kind: str, value: Any) -> Conformed:
    """A value of a type, as a row with nothing else but a time."""
    return conform([{"t": TIME, "x": value}], StreamDeclaration("s", f"t timestamp, x {kind}", "t"), NOW)


def taken(kind: str, value: Any) -> Any:
    done = one(kind, value)
    assert done.refused == ()
    return done.rows["x"].to_pylist()[0]


class Colour(enum.IntEnum):
    RED = 3


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("boolean", True, True),
        ("bigint", 3.0, 3),
        ("bigint", Decimal("3.00"), 3),
        ("bigint", Decimal("0e9999"), 0),
        ("bigint", np.int32(7), 7),
        ("bigint", Colour.RED, 3),
        ("bigint", 2**63 - 1, 2**63 - 1),
        ("tinyint", -128, -128),
        ("double", 3, 3.0),
        ("double", "-Infinity", float("-inf")),
        ("double", Decimal("0.1"), 0.1),
        ("float", 0.5, 0.5),
        ("string", "早瀬", "早瀬"),
        ("string", np.str_("a"), "a"),
        ("binary", b"\x00\xff", b"\x00\xff"),
        ("binary", "AP8=", b"\x00\xff"),
        ("date", "2026-01-31", date(2026, 1, 31)),
        ("date", datetime(2026, 1, 31), date(2026, 1, 31)),
        ("decimal(10, 2)", "1.50", Decimal("1.50")),
        ("decimal(10, 2)", 1.1, Decimal("1.10")),
        ("decimal(10, 2)", 7, Decimal("7.00")),
        ("decimal(38, 0)", 10**37, Decimal(10**37)),
        ("decimal(2, 2)", 0, Decimal("0.00")),
        ("timestamp", "2026-01-31 21:00:00+09:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("timestamp", "2026-01-31T12:00:00.000001000Z", datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC)),
        ("timestamp", "2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("timestamp", datetime(2026, 1, 31), datetime(2026, 1, 31, tzinfo=UTC)),
        (
            "timestamp",
            datetime(2026, 1, 31, tzinfo=timezone(timedelta(hours=1))),
            datetime(2026, 1, 30, 23, tzinfo=UTC),
        ),
        ("timestamp", pd.Timestamp("2026-01-31"), datetime(2026, 1, 31, tzinfo=UTC)),
        ("timestamp", np.datetime64("2026-01-31"), datetime(2026, 1, 31, tzinfo=UTC)),
        ("timestamp", pd.NaT, None),
        ("timestamp_ntz", "2026-01-31T01:00:00", datetime(2026, 1, 31, 1)),
        ("array<bigint>", [1, 2.0, None], [1, 2, None]),
        ("array<timestamp>", ["2026-01-31"], [datetime(2026, 1, 31, tzinfo=UTC)]),
        ("map<string, int>", {"a": 1}, [("a", 1)]),
        ("map<int, int>", {"7": 1}, [(7, 1)]),
        ("struct<a: int, b: string>", {"a": 1}, {"a": 1, "b": None}),
        ("string", None, None),
        ("bigint", pd.NA, None),
    ],
)
def test_a_value_that_fits_is_taken_as_it_is(kind: str, value: Any, expected: Any) -> None:
    assert taken(kind, value) == expected


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("boolean", 1, 'column "x" must be boolean, not 1'),
        ("int", "abc", 'column "x" must be int, not "abc"'),
        ("bigint", 3.7, 'column "x" must be bigint, not 3.7'),
        ("int", True, 'column "x" must be int, not True'),
        ("int", 2**31, 'column "x" must be int, not 2147483648; it takes -2147483648 to 2147483647'),
        ("bigint", 2**63, "it takes -9223372036854775808 to 9223372036854775807"),
        pytest.param("bigint", 10**5000, "it takes", id="5000 digits"),
        ("bigint", float("nan"), "must be bigint, not nan"),
        ("bigint", Decimal("1E+999999"), "must be bigint"),
        ("double", True, "must be double, not True"),
        ("double", "1.5", 'must be double, not "1.5"'),
        ("double", 2**53 + 1, "no double is that integer; declare the column decimal or bigint"),
        ("float", 1e300, "it would become infinite"),
        ("string", 5, 'column "x" must be string, not 5'),
        ("string", b"a", "must be string, not b'a'"),
        ("string", "a\ud800", 'must be string, not "a\\ud800"; a lone surrogate is not a character'),
        ("binary", "not base64!", "text for binary is base64"),
        ("date", "31.1.2026", 'write it like "2026-01-31"'),
        ("date", datetime(2026, 1, 31, 5), "it has a time of day"),
        ("decimal(10, 2)", "1.555", "must be decimal(10, 2)"),
        ("decimal(10, 2)", 1.555, "must be decimal(10, 2)"),
        ("decimal(10, 2)", 10**8, "must be decimal(10, 2)"),
        ("decimal(10, 2)", Decimal("NaN"), "must be decimal(10, 2)"),
        ("timestamp", 1700000000, "declare the column bigint and give the stream a time_unit"),
        ("timestamp", "yesterday", 'write it like "2026-01-31T12:00:00Z"'),
        ("timestamp", "2026-01-31T12:00:00.123456789Z", "it is finer than microseconds"),
        ("timestamp", pd.Timestamp(1), "it is finer than microseconds"),
        ("timestamp_ntz", "2026-01-31T01:00:00Z", "it has a zone and the column has none"),
        ("array<int>", [1, "a"], 'column "x"[1] must be int, not "a"'),
        ("array<int>", "abc", 'column "x" must be array<int>'),
        ("map<string, int>", {"a": "b"}, 'column "x"["a"] must be int'),
        ("struct<price: int>", {"prise": 1}, 'unknown field "prise"; did you mean "price"?'),
        ("struct<a: struct<b: int>>", {"a": {"b": "c"}}, 'column "x".a.b must be int, not "c"'),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_reason(kind: str, value: Any, reason: str) -> None:
    done = one(kind, value)
    assert done.rows.num_rows == 0
    assert reason in done.refused[0].reason


@pytest.mark.parametrize("text", ["1710101112345", "1" * 100, "1710101112345.5", "2026-01-31112:00"])
def test_a_digit_does_not_separate_a_date_from_a_time_of_day(text: str) -> None:
    stream = StreamDeclaration("s", "t timestamp, at timestamp", "t")
    (refused,) = conform([{"t": "2026-01-31", "at": text}], stream, NOW).refused
    assert 'column "at" must be timestamp' in refused.reason
    with pytest.raises(HayaseError, match="is not a time"):
        instant(text)


def test_the_reason_of_a_record_is_short_however_much_is_wrong_with_it() -> None:
    names = [f"{'column' * 8}{at}" for at in range(20)]
    stream = StreamDeclaration("s", "t bigint, " + ", ".join(f"{name} string" for name in names), "t", time_unit="s")
    unknown = {str(at): at for at in range(30)} | {"n" * 100_000: 1}
    (refused,) = conform([{"t": 1} | dict.fromkeys(names, 5) | unknown], stream, NOW).refused
    assert len(refused.reason) < 550
    assert refused.reason.startswith('unknown field "0"; known are: ')
    assert refused.reason.endswith("; and 50 more")


def test_refused_records_leave_the_others_in_order() -> None:
    given = [order(id=str(at)) for at in range(5000)]
    given[7], given[4000] = order(n="x"), order(price=[])
    done = conform(given, ORDERS, NOW)
    assert done.rows["id"].to_pylist() == [str(at) for at in range(5000) if at not in (7, 4000)]
    assert [each.record for each in done.refused] == [record_text(given[7]), record_text(given[4000])]
    assert done.rows.schema == ORDERS.arrow_schema


def test_all_reasons_of_a_record_are_said() -> None:
    (refused,) = conform([order(n="x", price="y", prise=1)], ORDERS, NOW).refused
    assert refused.reason == (
        'unknown field "prise"; did you mean "price"?; column "n" must be int, not "x"; '
        'column "price" must be double, not "y"'
    )


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (order(time=None), 'column "time" is missing or null, and is the time column'),
        (order(id=None), 'column "id" is missing or null, and is the id column'),
        ({"time": TIME, "id": "a"}, 'column "n" is missing or null, and is a not-null column'),
        (["a"], "a record is an object with the stream's columns as fields, not ['a']"),
        (
            order(time="2999-01-01"),
            'column "time": 2999-01-01T00:00:00Z is 973 years ahead of now; max_ahead is 1 day',
        ),
    ],
)
def test_records_that_no_stream_takes(record: Any, reason: str) -> None:
    (refused,) = conform([record], ORDERS, NOW).refused
    assert refused.reason == reason


def test_a_missing_nullable_field_is_null() -> None:
    done = conform([{"time": TIME, "id": "a", "n": 1}, order()], ORDERS, NOW)
    assert done.rows["price"].to_pylist() == [None, 2.5]


@pytest.mark.parametrize(
    ("unit", "value", "fits"),
    [
        ("s", 1_700_000_000, True),
        ("s", 2**62, False),
        ("s", -(2**62) // 10**6, False),
        ("s", -(2**62) // 10**6 + 1, True),
        ("us", -(2**62), False),
        ("us", -(2**62) + 1, True),
        ("us", 2**62 - 1, True),
        ("us", 2**62, False),
        ("ms", -(2**63), False),
    ],
)
def test_integer_times_are_scaled_without_overflow(unit: str, value: int, fits: bool) -> None:
    stream = StreamDeclaration("s", "t bigint", "t", time_unit=unit, max_ahead=None)
    assert conform([{"t": value}], stream, NOW).rows.num_rows == fits


def test_max_ahead_is_inclusive_and_in_the_unit_of_the_column() -> None:
    stream = StreamDeclaration("s", "t bigint", "t", time_unit="s", max_ahead=10_000_000)
    now = 1_000_000_500_000
    done = conform([{"t": 1_000_010}, {"t": 1_000_011}], stream, now)
    assert done.rows["t"].to_pylist() == [1_000_010]
    assert "max_ahead is 10 s" in done.refused[0].reason


def test_a_record_of_64_megabytes_is_taken_and_refused_whole() -> None:
    big = "a" * (64 << 20)
    done = conform([order(id=big), order(id=big, n="x")], ORDERS, NOW)
    assert done.rows["id"][0].as_py() == big
    assert len(done.refused[0].record) > len(big)
    assert len(done.refused[0].reason) < 200


def test_depth_has_no_limit_in_what_is_kept() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    (refused,) = conform([order(price=deep)], ORDERS, NOW).refused
    assert refused.record.count("[") == 100_001
    assert "must be double, not [[[" in refused.reason


def decimal(kind: pa.DataType, number: int) -> pa.Array:
    """One decimal of a type that pyarrow may not make values of."""
    return pa.Array.from_buffers(
        kind, 1, [None, pa.py_buffer(number.to_bytes(kind.bit_width // 8, "little", signed=True))]
    )


class TestArrow:
    TABLE = pa.table({"id": ["a", "b"], "time": ["2026-01-31", None], "n": [1.0, 2.5]})

    def test_columns_are_matched_by_name_and_cast_exactly(self) -> None:
        done = conform(self.TABLE.slice(0, 1), ORDERS, NOW)
        assert done.rows.to_pylist() == [
            {"time": datetime(2026, 1, 31, tzinfo=UTC), "id": "a", "n": 1, "price": None},
        ]

    def test_a_bad_value_refuses_its_row(self) -> None:
        (refused,) = conform(self.TABLE, ORDERS, NOW).refused
        assert refused.record == '{"id": "b", "time": null, "n": 2.5}'
        assert refused.reason.endswith('column "n" must be int, not 2.5')

    def test_batches_dictionaries_views_and_large_types(self) -> None:
        batch = pa.record_batch(
            {
                "time": pa.array([1, 2], pa.timestamp("ms")),
                "id": pa.array(["a", "b"]).dictionary_encode(),
                "n": pa.array([1, 2], pa.uint64()),
                "price": pa.array([1.5, None], pa.float32()),
            }
        )
        done = conform(batch, ORDERS, NOW)
        assert done.refused == ()
        assert done.rows["id"].to_pylist() == ["a", "b"]
        assert done.rows["price"].to_pylist() == [1.5, None]
        for kind in (pa.large_string(), pa.string_view()):
            table = pa.table({"time": [TIME], "n": [1], "id": pa.array(["a"], kind)})
            assert conform(table, ORDERS, NOW).rows["id"].to_pylist() == ["a"]

    @pytest.mark.parametrize("column", [pa.array([True]), pa.array(["1"]), pa.array([2**40]), pa.array([[1]])])
    def test_what_rows_refuse_tables_refuse(self, column: pa.Array) -> None:
        table = pa.table({"time": [TIME], "id": ["a"], "n": column})
        assert 'column "n" must be int' in conform(table, ORDERS, NOW).refused[0].reason

    def test_times_past_pythons_calendar_are_times(self) -> None:
        stream = StreamDeclaration("s", "t timestamp", "t", max_ahead=None)
        times = pa.array([0, 2**41, 2**62, 5], pa.timestamp("s"))
        done = conform(pa.table({"t": times}), stream, NOW)
        assert done.rows["t"].cast(pa.int64()).to_pylist() == [0, 2**41 * 10**6, 5_000_000]
        assert len(done.refused) == 1

    @pytest.mark.parametrize("kind", [pa.decimal128(38, scale) for scale in (2**31 - 1, 1000, 39, -1000, 1 - 2**31)])
    @pytest.mark.parametrize("column", ["n", "x", "s", "d", "a"])
    def test_decimals_of_any_scale_are_refused_or_exact(self, kind: pa.DataType, column: str) -> None:
        schema = "t bigint, n bigint, x double, s string, d decimal(38, 10), a array<int>"
        stream = StreamDeclaration("s", schema, "t", time_unit="s")
        array = decimal(kind, 7)
        given = pa.ListArray.from_arrays([0, 1], array) if column == "a" else array
        done = conform(pa.table({"t": [1, 2], column: pa.concat_arrays([given, pa.nulls(1, given.type)])}), stream, NOW)
        assert done.rows["t"].to_pylist() == [2]
        assert str(kind) in done.refused[0].reason
        assert str(kind) in done.refused[0].record

    @pytest.mark.parametrize(
        ("kind", "number", "expected"),
        [
            (pa.decimal128(38, -38), 2**90, None),  # Arrow's own cast gives 2655538300099584331606594463.91
            (pa.decimal128(38, -2), 2**88, Decimal(2**88 * 100)),
            (pa.decimal128(38, -20), 5, Decimal("5e20")),
            (pa.decimal256(76, 70), 10**75, Decimal(10**5)),
            (pa.decimal256(76, -76), 7, None),
            (pa.decimal64(18, 0), 10**17, Decimal(10**17)),
            (pa.decimal32(9, -9), 3, Decimal("3e9")),
        ],
    )
    def test_decimals_keep_their_value_whatever_their_type(
        self, kind: pa.DataType, number: int, expected: Decimal | None
    ) -> None:
        stream = StreamDeclaration("s", "t bigint, d decimal(38, 2)", "t", time_unit="s")
        done = conform(pa.table({"t": [1], "d": decimal(kind, number)}), stream, NOW)
        assert done.rows["d"].to_pylist() == ([] if expected is None else [expected])

    def test_times_in_a_zone_whose_name_is_not_utf8(self) -> None:
        zoned = pa.table({"t": pa.array([5], pa.timestamp("s", "Here")), "s": pa.array([5], pa.timestamp("s", "Here"))})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, zoned.schema) as writer:
            writer.write_table(zoned)
        table = pa.ipc.open_stream(sink.getvalue().to_pybytes().replace(b"Here", b"He\xffe")).read_all()
        (refused,) = conform(table, StreamDeclaration("s", "t timestamp, s string", "t"), NOW).refused
        assert "must be string, not 5 timestamp[s, tz=He" in refused.reason

    @pytest.mark.parametrize("zone", ["Nowhere/Zone", "+99:99"])
    def test_times_in_a_zone_that_nobody_knows(self, zone: str) -> None:
        stream = StreamDeclaration("s", "t timestamp, s string", "t")
        times = pa.array([5, None], pa.timestamp("s", zone))
        done = conform(pa.table({"t": times}), stream, NOW)
        assert done.rows["t"].cast(pa.int64()).to_pylist() == [5_000_000]
        refused = conform(pa.table({"t": times.fill_null(7), "s": times}), stream, NOW).refused
        assert [each.record.count(zone) for each in refused] == [2]

    def test_nanoseconds_are_not_cut(self) -> None:
        stream = StreamDeclaration("s", "t timestamp", "t")
        done = conform(pa.table({"t": pa.array([1000, 1001], pa.timestamp("ns"))}), stream, NOW)
        assert done.rows.num_rows == 1
        assert "finer than microseconds" in done.refused[0].reason

    def test_text_that_is_not_utf8_is_refused(self) -> None:
        text = pa.Array.from_buffers(
            pa.string(), 2, [None, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff")]
        )
        done = conform(pa.table({"time": [TIME, TIME], "n": [1, 1], "id": text}), ORDERS, NOW)
        assert done.rows["id"].to_pylist() == ["a"]
        assert "\\udcff" in done.refused[0].record

    def test_unknown_and_repeated_columns_have_no_record_to_blame(self) -> None:
        with pytest.raises(SchemaMismatch, match='no column "prise"; did you mean "price"'):
            conform(pa.table({"prise": [1]}), ORDERS, NOW)
        with pytest.raises(SchemaMismatch, match="given twice"):
            conform(pa.table([[1], [1]], names=["n", "n"]), ORDERS, NOW)


class TestPandas:
    def test_missing_values_are_null_except_nan_among_floats(self) -> None:
        frame = pd.DataFrame(
            {
                "time": [pd.Timestamp("2026-01-31"), pd.Timestamp("2026-01-30")],
                "id": ["a", "b"],
                "n": pd.array([1, 2], dtype="Int64"),
                "price": [np.nan, 1.5],
            }
        )
        done = conform(frame, ORDERS, NOW)
        assert done.refused == ()
        assert str(done.rows["price"].to_pylist()) == "[nan, 1.5]"

    def test_nan_stands_for_null_elsewhere(self) -> None:
        frame = pd.DataFrame({"time": [TIME, pd.NaT], "id": ["a", np.nan], "n": [1.0, np.nan], "price": [None, "x"]})
        done = conform(frame, ORDERS, NOW)
        assert done.rows.num_rows == 1
        assert done.refused[0].record == '{"time": null, "id": null, "n": null, "price": "x"}'
        assert done.refused[0].reason.count("missing or null") == 3

    def test_categories_and_strange_types(self) -> None:
        frame = pd.DataFrame({"time": [TIME], "id": pd.Categorical(["a"]), "n": [1], "price": [1 + 2j]})
        done = conform(frame, ORDERS, NOW)
        assert "must be double, not (1+2j)" in done.refused[0].reason
        assert conform(frame.drop(columns="price"), ORDERS, NOW).rows["id"].to_pylist() == ["a"]

    def test_columns_without_names(self) -> None:
        with pytest.raises(SchemaMismatch, match="takes columns by name"):
            conform(pd.DataFrame([[1]]), ORDERS, NOW)


@pytest.mark.parametrize("given", [{"time": TIME}, "time", 5, None])
def test_what_is_no_list_of_records(given: Any) -> None:
    with pytest.raises(HayaseError, match="not a list of records"):
        conform(given, ORDERS, NOW)


def test_nothing_is_nothing() -> None:
    assert conform([], ORDERS, NOW).rows.schema == ORDERS.arrow_schema
    assert conform(iter([order()]), ORDERS, NOW).rows.num_rows == 1


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"a": float("nan"), "b": [float("-inf")]}, '{"a": "NaN", "b": ["-Infinity"]}'),
        ({1: Decimal("1.50"), None: ()}, '{"1": "1.50", "null": []}'),
        ({(1, 2): {}}, '{"(1, 2)": {}}'),
        ("\udc00é", '"\\udc00\\u00e9"'),
        ({"t": datetime(2026, 1, 1, tzinfo=UTC), "n": np.int8(1)}, '{"t": "2026-01-01T00:00:00+00:00", "n": 1}'),
        ({"s": {1}}, '{"s": "{1}"}'),
    ],
)
def test_any_record_has_a_text(record: Any, text: str) -> None:
    assert record_text(record) == text


def test_records_that_contain_themselves_have_a_text() -> None:
    record: dict[str, Any] = {"a": 1}
    record["self"] = [record]
    assert record_text(record) == '{"a": 1, "self": ["..."]}'
    assert len(record_text(10**5000)) > 4000


def test_values_are_shown_short() -> None:
    assert len(shown("a" * 10_000)) < 70
    assert shown(16**5000) == "0x1" + "0" * 57 + "…"
    assert len(shown({str(at): [at] * 1000 for at in range(1000)})) < 300
    assert "\n" not in shown(b"a\nb") + shown("a\nb")


def test_dead_letters_fit_their_stream() -> None:
    table = dead_table(APPEND, None, "orders", None, ["{}", "[]"], reasons_of(ReasonKind.SCHEMA, ["a", "b"]), 1, NOW)
    assert table.schema == DEAD.arrow_schema
    assert conform(table, DEAD, NOW).rows.equals(table)
    late = [Reason(ReasonKind.LATE, "a")]
    assert dead_table("spend", "2", "orders", [7], ["{}"], late, 3, NOW).to_pylist() == [
        {
            "time": datetime(2026, 2, 1, tzinfo=UTC),
            "stage": "spend",
            "version": "2",
            "stream": "orders",
            "offset": 7,
            "kind": "late",
            "reason": "a",
            "record": "{}",
            "attempts": 3,
        }
    ]


def test_an_arrow_type_without_a_class_in_pyarrow_is_refused_by_record() -> None:
    body = Path(__file__).parents[1] / "corpus" / "arrow-body" / "crash-7163c62c9fd7340717c25e26b04d7135e4db9386"
    column = pa.ipc.open_stream(body.read_bytes()).read_all()["d"]
    assert str(column.type) == "month_interval"
    time = pa.array([datetime(2026, 1, 31, tzinfo=UTC)] * len(column))
    done = conform(pa.table({"t": time, "d": column}), StreamDeclaration("s", "t timestamp, d decimal(20,4)", "t"), NOW)
    assert [refused.reason for refused in done.refused] == [
        'column "d" must be decimal(20, 4), not month_interval'
    ] * len(column)
    assert done.rows.num_rows == 0 < len(column)


@pytest.mark.parametrize("kind", [pa.string_view(), pa.list_(pa.string_view())])
def test_refused_rows_of_columns_of_views_are_kept_as_text(kind: pa.DataType) -> None:
    values = [["a"], ["b"]] if pa.types.is_list(kind) else ["a", "b"]
    table = pa.table({"t": [TIME, "soon"], "x": pa.array(values, kind)})
    stream = StreamDeclaration("s", f"t timestamp, x {'array<string>' if pa.types.is_list(kind) else 'string'}", "t")
    done = conform(table, stream, NOW)
    assert done.rows["x"].to_pylist() == values[:1]
    assert [refused.record for refused in done.refused] == [record_text({"t": "soon", "x": values[1]})]


@pytest.mark.parametrize("number", ["-1267650600228229401496703205378.040", "1267650600228229401496703205378"])
def test_a_decimal_that_overflows_128_bits_in_the_scale_of_its_column_is_refused(number: str) -> None:
    """Arrow's casts from text, and from decimals of another scale, give another number."""
    declared = StreamDeclaration("s", "ts bigint, x decimal(38, 20)", "ts", time_unit="s")
    own = pa.array([Decimal(number), Decimal("1.5")], pa.decimal128(38, 3))
    for values in (pa.array([number, "1.5"]), own, own.cast(pa.decimal256(76, 3)), own.dictionary_encode()):
        done = conform(pa.table({"ts": [1, 2], "x": values}), declared, 0)
        assert (done.rows["x"].to_pylist(), len(done.refused)) == ([Decimal("1.5")], 1)
