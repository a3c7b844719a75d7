"""One rule for all readers: a text means the same value in every format, and a value that its column cannot hold is refused."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import HayaseError
from hayase.core.numbers import exact_loads, fits_arrow
from hayase.serving.bodies import ARROW, JSON, NDJSON, records_in
from hayase.streams.file_formats import Format, read_records
from hayase.streams.inference import schema_of
from hayase.streams.records import Conformed, conform

REFUSED = "refused"
KINDS = {
    "tinyint": pa.int8(),
    "bigint": pa.int64(),
    "ubigint": pa.uint64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(10, 2)": pa.decimal128(10, 2),
    "decimal(38, 20)": pa.decimal128(38, 20),
}

few = st.integers(0, 12)
whole = st.one_of(
    st.integers(-130, 130), st.integers(), st.sampled_from([2**24, 2**53, 2**63, 2**64, 10**20, 10**38, 10**400]),
    st.sampled_from([24, 53, 60, 63, 64, 100]).flatmap(lambda power: st.integers(-2, 2).map(lambda by: 2**power + by)),
).map(str)  # fmt: skip
fraction = st.one_of(
    st.text("0123456789", min_size=1, max_size=25), st.text("0", min_size=1, max_size=120), st.just("0" * 330 + "1"),
    few.map(lambda count: "9" * (count + 10)), few.map(lambda count: "0" * (count + 13) + "1"),
)  # fmt: skip
power = st.one_of(
    st.integers(-30, 30), st.integers(-420, 420), st.sampled_from([10**7, -(10**7), 10**20, -(10**20), -999999])
).map(lambda each: f"e{each}")
numbers = st.builds(
    lambda sign, one, two, three: sign + one.removeprefix("-") + two + three,
    st.sampled_from(["", "-"]), whole, st.just("") | fraction.map(lambda each: "." + each), st.just("") | power,
)  # fmt: skip


def stream(kind: str, more: str = "") -> StreamDeclaration:
    return StreamDeclaration("s", f"t bigint, x {kind}{more}", "t", time_unit="s", max_ahead=None)


def expected(text: str, kind: pa.DataType) -> Any:
    """What the rule says, computed with fractions."""
    mantissa, _, exponent = text.partition("e")
    zero = not mantissa.strip("-0.")
    if not zero and (abs(int(exponent or 0)) > 9_000 or len(text) > 4_000):
        return REFUSED
    number = Fraction(0) if zero else Fraction(text)
    if pa.types.is_integer(kind):
        signed = pa.types.is_signed_integer(kind)
        limit = 2 ** (kind.bit_width - signed)
        return int(number) if number.denominator == 1 and -limit * signed <= number < limit else REFUSED
    if pa.types.is_decimal(kind):
        shifted = number * 10**kind.scale
        fits = shifted.denominator == 1 and abs(shifted) < 10**kind.precision
        return Decimal(int(shifted)).scaleb(-kind.scale, Context(prec=60)) if fits else REFUSED
    with np.errstate(over="ignore"):
        nearest = float(kind.to_pandas_dtype()(float(text)))
    if np.isinf(nearest) or (number and not nearest):
        return REFUSED
    return nearest if not re.fullmatch(r"-?[0-9]+", text) or Fraction(nearest) == number else REFUSED


def of_rows(done: Conformed) -> list[Any]:
    """The values by the time of their records, `REFUSED` where there is none."""
    found = dict(zip(done.rows["t"].to_pylist(), done.rows["x"].to_pylist()))
    return [found.get(at, REFUSED) for at in range(done.rows.num_rows + len(done.refused))]


def read(content: bytes, form: str, declared: StreamDeclaration) -> list[Any]:
    chunks = [each.conformed for each in read_records(io.BytesIO(content), Format(form), declared, lambda: 0)]
    rows = pa.concat_tables([declared.arrow_schema.empty_table(), *(each.rows for each in chunks)])
    return of_rows(Conformed(rows, tuple(bad for each in chunks for bad in each.refused)))


def json_rows(texts: list[str]) -> list[str]:
    return [f'{{"t": {at}, "x": {text}}}' for at, text in enumerate(texts)]


def ndjson(texts: list[str]) -> bytes:
    return "\n".join(json_rows(texts)).encode()


def arrow(texts: list[str]) -> pa.Table:
    return pa.table({"t": range(len(texts)), "x": pa.array([Decimal(text) for text in texts])})


def parquet(texts: list[str], kind: str) -> list[Any]:
    file = io.BytesIO()
    pq.write_table(arrow(texts), file)
    return read(file.getvalue(), "parquet", stream(kind))


def ipc(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


READERS: dict[str, Callable[[list[str], str], list[Any]]] = {
    "dicts": lambda texts, kind: of_rows(
        conform([{"t": at, "x": exact_loads(text)} for at, text in enumerate(texts)], stream(kind), 0)
    ),
    "pandas": lambda texts, kind: of_rows(
        conform(pd.DataFrame({"t": range(len(texts)), "x": pd.Series(map(exact_loads, texts), dtype=object)}), stream(kind), 0)
    ),
    "csv": lambda texts, kind: read(
        ("t,x\n" + "".join(f"{at},{text}\n" for at, text in enumerate(texts))).encode(), "csv", stream(kind)
    ),
    "csv, quoted": lambda texts, kind: read(
        ("x,t\n" + "".join(f'"{text}",{at}\n' for at, text in enumerate(texts))).encode(), "csv", stream(kind)
    ),
    "ndjson": lambda texts, kind: read(ndjson(texts), "ndjson", stream(kind)),
    "ndjson beside a decimal": lambda texts, kind: read(ndjson(texts), "ndjson", stream(kind, ", d decimal(5, 2)")),
    "ndjson, nested": lambda texts, kind: [
        each if each == REFUSED else each[0]
        for each in read(re.sub(rb'"x": ([^}]*)', rb'"x": [\1]', ndjson(texts)), "ndjson", stream(f"array<{kind}>"))
    ],
    "http json": lambda texts, kind: of_rows(records_in(f"[{','.join(json_rows(texts))}]".encode(), JSON, stream(kind), 0)),
    "http ndjson": lambda texts, kind: of_rows(records_in(ndjson(texts), NDJSON, stream(kind), 0)),
}  # fmt: skip
COLUMNS: dict[str, Callable[[list[str], str], list[Any]]] = {
    "arrow": lambda texts, kind: of_rows(conform(arrow(texts), stream(kind), 0)),
    "parquet": parquet,
    "http arrow": lambda texts, kind: of_rows(records_in(ipc(arrow(texts)), ARROW, stream(kind), 0)),
}
"""Readers of typed columns, which can be asked about what an Arrow decimal can hold."""


@settings(max_examples=examples(40))
@given(st.lists(numbers, min_size=1, max_size=4), st.sampled_from(sorted(KINDS)))
@example(["9007199254740993", "1.5"], "double")
@example(["123456789012345678901"], "double")
@example(["123e-10000000", "1e-10000000", "1e-99999999999999999999", "7"], "bigint")
@example(["1e-10000000", "1e99999999999999999999", "0e99999999999999999999", "1.50"], "decimal(10, 2)")
@example(["9007199254740993.0", "1.00000000000000000001", "9007199254740993e0", "9" * 5000], "bigint")
@example(["1e-400", "0.0", "-0", "0e5"], "double")
@example(["16777217", "16777217.0", "1e-50", "3e38"], "float")
@example(["1." + "0" * 100, "1." + "0" * 100 + "1"], "decimal(10, 2)")
@example(["-1267650600228229401496703205378.040"], "decimal(38, 20)")
def test_every_reader_takes_the_same_values_and_refuses_the_same(texts: list[str], kind: str) -> None:
    wanted = [expected(text, KINDS[kind]) for text in texts]
    for name, reader in READERS.items():
        assert reader(texts, kind) == wanted, name
    plain = [text for text in texts if "e" not in text and len(text) < 38]
    if plain and fits_arrow(map(Decimal, plain)):
        shape = arrow(plain)["x"].type
        if all(Decimal(text).as_tuple().exponent == -shape.scale for text in plain):
            for name, reader in COLUMNS.items():
                assert reader(plain, kind) == [expected(text, KINDS[kind]) for text in plain], name


moments = st.builds(
    lambda at, digits, zone: f"{at:%Y-%m-%dT%H:%M:%S}{digits and '.' + digits}{zone}",
    st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)),
    st.text("0123456789", max_size=9) | st.just("1230000000"),
    st.sampled_from(["Z", "+09:00", ""]),
)


@settings(max_examples=examples(30))
@given(st.lists(moments, min_size=1, max_size=4))
def test_a_time_is_taken_to_the_microsecond_or_refused(texts: list[str]) -> None:
    def wanted(text: str) -> Any:
        beyond = re.search(r"\.[0-9]{6}([0-9]*)", text)
        if beyond and beyond[1].strip("0"):
            return REFUSED
        at = datetime.fromisoformat(text)
        return at if at.tzinfo else at.replace(tzinfo=UTC)

    readers = {name: READERS[name] for name in ("csv", "csv, quoted")}
    quoted = {name: READERS[name] for name in READERS.keys() - readers.keys()}
    want = [wanted(text) for text in texts]
    for name, reader in readers.items():
        assert reader(texts, "timestamp") == want, name
    for name, reader in quoted.items():
        assert reader([json.dumps(text) for text in texts], "timestamp") == want, name
    column = pa.table({"t": range(len(texts)), "x": pa.array(texts)})
    assert of_rows(conform(column, stream("timestamp"), 0)) == want


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(numbers.filter(lambda text: len(text) < 60), min_size=1, max_size=4), st.sampled_from(["csv", "ndjson"])
)
@example(["9007199254740993", "1.5"], "csv")
@example(["9007199254740993", "1.5"], "ndjson")
@example(["123456789012345678901"], "csv")
@example(["0.12345678901234567890123", "1"], "ndjson")
@example(["1e400", "1.5"], "csv")
@example(["1e400", "1.5"], "ndjson")
@example(["0e99999999999999999999", "1.5"], "csv")
def test_an_inferred_type_loses_no_digit(tmp_path_factory: pytest.TempPathFactory, texts: list[str], form: str) -> None:
    file = tmp_path_factory.mktemp("inferred") / f"f.{form}"
    rows = ("t,x\n" + "".join(f"{at},{text}\n" for at, text in enumerate(texts))).encode()
    file.write_bytes(rows if form == "csv" else ndjson(texts))
    try:
        kind = schema_of([file]).field("x").type
    except HayaseError:  # no type of a column holds them all
        return
    if pa.types.is_string(kind):
        return
    for text in texts:
        got = expected(text, kind)
        if got == REFUSED:  # no column holds it
            assert expected(text, pa.float64()) == expected(text, pa.int64()) == REFUSED, (text, kind)
            continue
        digits = len(re.sub(r"e.*|[-.]", "", text).lstrip("0"))
        if pa.types.is_floating(kind) and got:
            written = Decimal(f"{Decimal(got):.{max(digits, 1) - 1}e}")
            assert Decimal(text) in (written, Decimal(repr(got))), (text, kind)


def test_files_of_other_types_do_not_round_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n9007199254740993\n")
    (tmp_path / "b.csv").write_text("x\n1.5\n")
    with pytest.raises(HayaseError, match=r'column "x" is int64 in ".*a.csv" and double in another file'):
        schema_of([tmp_path / "a.csv", tmp_path / "b.csv"])
    (tmp_path / "a.csv").write_text("x\n7\n")
    assert schema_of([tmp_path / "a.csv", tmp_path / "b.csv"]).field("x").type == pa.float64()
