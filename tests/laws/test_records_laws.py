"""Laws of records coming in: nothing raises, nothing is lost, nothing changes, and the way in makes no difference."""

from __future__ import annotations

import io
import math
from datetime import UTC, date, datetime
from typing import Any
from unittest import mock

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.declarations import StreamDeclaration
from hayase.core.times import instant
from hayase.streams import csv_blocks, file_formats
from hayase.streams.file_formats import Format, read_records
from hayase.streams.record_text import record_text
from hayase.streams.records import conform
from hayase.streams.typed_columns import fit_arrow, fit_text, fit_values
from hayase.streams.typed_values import Unfit, converter

NOW = instant("2026-02-01T00:00:00Z")
STREAM = StreamDeclaration(
    "s",
    "t timestamp, b boolean, i int, n bigint, f float, x double, s string, d decimal(10, 2), day date, raw binary, "
    "a array<bigint>, m map<string, double>, c struct<p: int, q: string>",
    "t",
    max_ahead=None,
)
NAMES = STREAM.arrow_schema.names
KINDS = {each.name: each.type for each in STREAM.arrow_schema}

anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-200, 200),
    st.floats(),
    st.text(),
    st.characters(categories=["Cs"]),
    st.binary(),
    st.decimals(),
    st.datetimes(),
    st.datetimes(timezones=st.timezones()),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.complex_numbers(),
    st.sampled_from(["2026-01-31T12:00:00Z", "2026-01-31", "1.5", "NaN", "0x1F", "AAAA", "true"]),
)
nested = st.recursive(
    anything, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
loose_rows = st.lists(st.dictionaries(st.sampled_from([*NAMES, "z"]) | st.text(), nested, max_size=6), max_size=20)

times = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1))
good_row = st.fixed_dictionaries(
    {"t": times.map(lambda each: each.isoformat() + "Z")},
    optional={
        "b": st.none() | st.booleans(),
        "i": st.integers(-(2**31), 2**31 - 1),
        "n": st.integers(-(2**63), 2**63 - 1) | st.sampled_from([3.0, -2.0]),
        "f": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "x": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53),
        "s": st.none() | st.text(),
        "day": st.dates().map(date.isoformat),
        "raw": st.sampled_from(["", "AA==", "/+8="]),
        "a": st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3),
        "m": st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False), max_size=3),
        "c": st.fixed_dictionaries({}, optional={"p": st.integers(0, 9), "q": st.text()}),
    },
)
good_rows = st.lists(good_row, max_size=12)
bad_row = st.sampled_from([{}, {"t": 5}, {"t": "2026-01-31", "i": 2**31}, {"t": "2026-01-31", "zz": 1}, {"t": "soon"}])


@settings(max_examples=examples(30))
@given(loose_rows)
def test_any_rows_are_divided_without_loss(rows: list[dict[str, Any]]) -> None:
    done = conform(rows, STREAM, NOW)
    assert done.rows.num_rows + len(done.refused) == len(rows)
    done.rows.validate(full=True)
    assert done.rows.schema == STREAM.arrow_schema
    for each in done.refused:
        orjson.loads(each.record) if each.record.isascii() and "\\ud" not in each.record else each.record.encode()
        each.reason.encode()


@given(good_rows, st.lists(st.tuples(st.integers(0, 12), bad_row), max_size=5))
def test_bad_records_change_nothing_about_the_good(rows: list[Any], bad: list[tuple[int, Any]]) -> None:
    mixed = list(rows)
    for at, row in bad:
        mixed.insert(at, row)
    alone, done = conform(rows, STREAM, NOW), conform(mixed, STREAM, NOW)
    assert alone.refused == ()
    assert len(done.refused) == len(bad)
    assert done.rows.equals(alone.rows)


@given(good_rows)
def test_accepted_values_come_back_equal(rows: list[dict[str, Any]]) -> None:
    back = conform(rows, STREAM, NOW).rows.to_pylist()
    for row, got in zip(rows, back, strict=True):
        for name in ("b", "i", "n", "f", "x", "s", "a"):
            assert got[name] == row.get(name)
        assert got["t"] == datetime.fromisoformat(row["t"])
        assert (got["day"] and got["day"].isoformat()) == row.get("day")
        assert dict(got["m"] or {}) == row.get("m", {})


@settings(max_examples=examples(25))
@given(good_rows)
def test_the_way_in_makes_no_difference(rows: list[dict[str, Any]]) -> None:
    expected = conform(rows, STREAM, NOW).rows
    assert conform(expected, STREAM, NOW).rows.equals(expected)
    text = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    assert _read(text, "ndjson").equals(expected)
    exact = StreamDeclaration("s", STREAM.schema.replace(", d decimal(10, 2)", ""), "t", max_ahead=None)
    assert _read(text, "ndjson", exact).equals(expected.drop_columns(["d"]))
    file = io.BytesIO()
    pq.write_table(expected, file)
    assert _read(file.getvalue(), "parquet").equals(expected)
    flat = ["t", "b", "i", "n", "f", "x", "s", "day"]
    loose = pa.table(
        {
            name: pa.array([row.get(name) for row in rows], None if rows else pa.null())
            for name in flat
            if name not in "nx"
        }
    )
    assert conform(loose, STREAM, NOW).rows.select(loose.column_names).equals(expected.select(loose.column_names))


@given(good_rows)
def test_a_record_taken_from_its_text_is_the_same(rows: list[dict[str, Any]]) -> None:
    table = conform(rows, STREAM, NOW).rows
    again = [orjson.loads(record_text(row)) for row in table.to_pylist()]
    for row in again:
        row["m"] = dict(row["m"]) if row["m"] is not None else None
    assert conform(again, STREAM, NOW).rows.equals(table)


@given(st.sampled_from(sorted(KINDS)), st.lists(anything, max_size=8))
def test_a_column_is_judged_as_its_values_are(name: str, values: list[Any]) -> None:
    fitted = fit_values(values, pa.field(name, KINDS[name]))
    assert _plain(fitted.column) == _one_by_one(values, KINDS[name], parse=False)


digits = st.from_regex(r"[+-]?0?x?[0-9]{0,20}\.?[0-9]{0,3}(e[0-9]{1,3})?", fullmatch=True)
moments = st.builds(
    lambda at, mark, zone: at.isoformat(mark) + zone,
    st.datetimes(timezones=st.none() | st.just(UTC)),
    st.sampled_from("T "),
    st.sampled_from(["", "Z", "+09:00", "-0030", "000"]),
)
odd = st.sampled_from(["0000-01-01T00:00:00Z", "0000-01-01", "0001-01-01T00:00:00+09:00", "9999-12-31T23:59:59-09:00",
                       "nan(1)", "INF", "1e400", "0xFF", "TRUE", "1", "-0", "2026-02-29", "24:00"])  # fmt: skip
words = st.text(min_size=1) | digits | moments | odd | st.dates().map(date.isoformat)


@settings(max_examples=examples(150))
@given(st.sampled_from(sorted(KINDS)), st.lists(st.none() | words, max_size=4), st.booleans())
def test_text_is_judged_as_its_values_are(name: str, texts: list[str | None], parse: bool) -> None:
    kind = KINDS[name]
    if not parse and (pa.types.is_nested(kind) or pa.types.is_integer(kind) or name in "bfx"):
        return
    column = pa.chunked_array([pa.array(texts, pa.string())])
    for texts_alone in (texts, *([each] for each in texts)):
        column = pa.chunked_array([pa.array(texts_alone, pa.string())])
        fitted = fit_text(column, pa.field(name, kind), parse)
        assert _plain(fitted.column) == _one_by_one(texts_alone, kind, parse)


@settings(max_examples=examples(150))
@given(
    st.lists(st.text(alphabet='a,"\n\r', max_size=12) | st.just('a,"b"\n'), max_size=8).map("".join), st.integers(1, 3)
)
def test_csv_is_split_the_same_quickly_and_carefully(text: str, width: int) -> None:
    block = text.encode()
    quick = csv_blocks.split(block, [pa.string()] * width, last=True, limit=0)
    careful = csv_blocks.careful_split(block, width, last=True, limit=0)
    assert [each.to_pylist() for each in quick.columns] == [each.to_pylist() for each in careful.columns]
    everything = list(range(quick.count))
    assert quick.texts(everything) == careful.texts(everything)
    assert [quick.line(at) for at in everything] == [careful.line(at) for at in everything]
    assert (quick.used, quick.lines, quick.unreadable) == (careful.used, careful.lines, careful.unreadable)


@settings(max_examples=examples(150))
@given(
    st.lists(
        st.tuples(
            digits | odd | st.integers().map(str),
            st.text(alphabet='ax ,"\n\r', max_size=5) | st.just("a"),
            digits | odd | st.floats().map(str),
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(["i", "n"]),
    st.sampled_from(["f", "x"]),
    st.sampled_from(["{}", '"{}"']),
)
@example([("1", "a x", "2.5"), ("2", "", " 3")], "i", "f", "{}")
def test_numbers_in_csv_are_judged_as_their_texts_are(
    rows: list[tuple[str, str, str]], whole: str, real: str, form: str
) -> None:
    block = "".join(
        ",".join([form.format(one), f'"{between.replace(chr(34), chr(34) * 2)}"', form.format(other)]) + "\n"
        for one, between, other in rows
    ).encode()
    kinds = [KINDS[whole], pa.string(), KINDS[real]]
    found = csv_blocks.split(block, kinds, last=True, limit=0)
    texts = csv_blocks.careful_split(block, 3, last=True, limit=0)
    for kind, column, text in zip(kinds, found.columns, texts.columns):
        fitted = fit_arrow(column, pa.field("x", kind), parse=True)
        assert repr(_plain(fitted.column)) == repr(_one_by_one(text.to_pylist(), kind, parse=True))


csv_texts = st.lists(
    st.text(alphabet='1a,"\n\r', max_size=12) | st.sampled_from(['1,"b"\n', '2,"x\ny ""z""\r\n', "3,\n"]), max_size=8
).map("".join)


@settings(max_examples=examples(100))
@given(csv_texts, st.integers(1, 20))
def test_where_a_file_is_cut_into_blocks_makes_no_difference(text: str, size: int) -> None:
    stream = StreamDeclaration("s", "t bigint, x string", "t", time_unit="s")

    def records() -> tuple[list[Any], list[Any]]:
        chunks = [
            each.conformed
            for each in read_records(io.BytesIO(b"t,x\n" + text.encode()), Format("csv"), stream, lambda: NOW)
        ]
        return [row for each in chunks for row in each.rows.to_pylist()], [
            bad for each in chunks for bad in each.refused
        ]

    whole = records()
    with mock.patch.object(file_formats, "BLOCK_BYTES", size):
        assert records() == whole


def _read(content: bytes, name: str, stream: StreamDeclaration = STREAM) -> pa.Table:
    chunks = list(read_records(io.BytesIO(content), Format(name), stream, lambda: NOW))
    assert all(each.conformed.refused == () for each in chunks), chunks
    return pa.concat_tables([stream.arrow_schema.empty_table(), *(each.conformed.rows for each in chunks)])


def _one_by_one(values: list[Any], kind: pa.DataType, parse: bool) -> list[Any]:
    results = []
    for value in values:
        try:
            results.append(converter(kind, parse)(value))
        except Unfit:
            results.append(None)
    return _plain(pa.array(results, kind))


def _plain(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values that compare by what they are: times as numbers, NaN as a word."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    return ["NaN" if isinstance(each, float) and math.isnan(each) else each for each in column.to_pylist()]
