"""Reading JSON texts in bulk gives what reading them one by one gives, or nothing; and no text ends the process."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.declarations import StreamDeclaration
from hayase.streams import exact_lines
from hayase.streams.json_blocks import block_reader
from hayase.streams.json_texts import conform_json, conform_loaded, conform_read
from hayase.streams.records import Conformed

SCHEMA = "t bigint, i int, u ubigint, f float, x double, b boolean, s string, w timestamp, d date"
NOW = 1_800_000_000_000_000
NAMES = ("t", "i", "u", "f", "x", "b", "s", "w", "d")

numbers = st.one_of(
    st.integers(-3, 3).map(str), st.integers().map(str), st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from([
        "-0", "-0.0", "0e0", "1e-400", "-1e-400", "0." + "0" * 330 + "1", "1e400", "9007199254740993", "16777217", "1.0", "1e2",
        "18446744073709551615", "9223372036854775808", "NaN", "Infinity", "-Infinity", "01", "1.", ".5", "+1", "0x10",
    ]),
)  # fmt: skip
texts = st.one_of(
    st.text(max_size=5).map(json.dumps), st.text(max_size=5).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from([
        '"2026-01-01T00:00:00Z"', '"2026-01-01 00:00:00.5"', '"2026-02-30"', '"2026-01-01"', '"1767225600"', '"0000-01-01"',
        r'"\ud800"', r'"\udc00"', r'"\ud83d\ude00"', r'"\u0000"', '"\t"', '"\x7f"', r'"\x"', '"}"', '"{"', '"}\n{"', '"',
    ]),
)  # fmt: skip
values = st.one_of(
    numbers, texts, st.sampled_from(["null", "true", "false", "[]", "{}", "[{}]", '{"t": 1}', "", "nul"])
)
members = st.tuples(st.sampled_from([*NAMES, "t", "z", "", r"\u0074"]), values)
objects = st.lists(members, max_size=5).map(
    lambda fields: "{" + ", ".join(f'"{name}": {value}' for name, value in fields) + "}"
)
plain = st.fixed_dictionaries(
    {"t": st.integers(0, 10**9)},
    optional={
        "i": st.integers(-(2**31), 2**31 - 1), "u": st.integers(0, 2**64 - 1), "b": st.booleans(), "s": st.text(max_size=8),
        "x": st.floats(allow_nan=False, allow_infinity=False), "f": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "w": st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456+09:00", "2026-01-01"]),
        "d": st.dates().map(str),
    },
).map(json.dumps)  # fmt: skip
lines = st.one_of(
    plain, plain, plain, objects, objects,
    st.sampled_from(["", " ", "null", "[]", "1", "{}{}", '{"t": 1}\n{"t": 2}', '{"t":', "1}"]),
    objects.map(lambda text: f" {text}"), objects.map(lambda text: f"{text} "), objects.map(lambda text: f"{text}\0}}"),
)  # fmt: skip


def shown(done: Conformed) -> tuple[str, tuple[Any, ...]]:
    """Records with the signs of their zeros, and those that were refused, with their reasons."""
    return repr(done.rows.to_pylist()), done.refused


def one_by_one(block: list[bytes], declared: StreamDeclaration) -> Conformed:
    try:
        rows = exact_lines.loader(declared.arrow_schema)(block)
    except ValueError:
        return conform_json(block, declared, NOW, str)
    return conform_loaded(rows, block, declared, NOW, str)


def check(block: list[bytes], declared: StreamDeclaration) -> bool:
    columns = block_reader(declared)(block)
    if columns is not None:
        assert shown(conform_read(columns, block, declared, NOW, str)) == shown(one_by_one(block, declared))
    return columns is not None


@pytest.mark.parametrize("extra_fields", ["refuse", "ignore", "keep"])
@settings(max_examples=examples(300), deadline=None)
@given(block=st.lists(lines, min_size=1, max_size=4))
@example(block=["null"])
@example(block=['{"t": 1}\n{"t":', "2}"])
@example(block=['{"t": 1}{"t": 2}', ""])
@example(block=['{"t": 1, "x": 0.0}', '{"t": 2, "x": 1e-400}'])
@example(block=['{"t": 1, "z": ' + "[" * 2000 + "]" * 2000 + "}"])
def test_texts_read_in_bulk_are_the_records_that_they_are_one_by_one(extra_fields: Any, block: list[str]) -> None:
    more = ", extra json" if extra_fields == "keep" else ""
    declared = StreamDeclaration("s", SCHEMA + more, "t", time_unit="s", extra_fields=extra_fields)
    check([text.encode("utf-8", "surrogatepass") for text in block], declared)


@settings(max_examples=examples(100), deadline=None)
@given(
    block=st.lists(st.binary(max_size=12).map(lambda inner: b'{"t": 1, "s": "' + inner + b'"}'), min_size=1, max_size=3)
)
def test_bytes_that_are_not_utf8_are_never_read_in_bulk(block: list[bytes]) -> None:
    declared = StreamDeclaration("s", SCHEMA, "t", time_unit="s")
    check(block, declared)


@settings(max_examples=examples(50), deadline=None)
@given(block=st.lists(plain, min_size=1, max_size=20))
def test_plain_records_are_read_in_bulk(block: list[str]) -> None:
    """All but those with a number that a double may not hold: then each text is read by itself."""
    declared = StreamDeclaration("s", SCHEMA, "t", time_unit="s")
    read = check([text.encode() for text in block], declared)
    numbers_of = [row.get(name, 1.5) for row in map(json.loads, block) for name in ("x", "f")]
    assert read or any(number == 0 or abs(number) >= 2**24 for number in numbers_of)
