"""Binary columns and arrays in json columns, in every place where a query can use them; DuckDB is the reference."""

# ruff: noqa: E501 - a query stands on one line

from __future__ import annotations

import json
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from hayase.core.errors import DeclarationError
from hayase.testing import at, trial

BINARIES: list[dict[str, Any]] = [
    {"k": "6162", "b": b"ab", "n": 1}, {"k": "00FF", "b": b"\x00\xff", "n": 2}, {"k": "", "b": b"", "n": 3},
    {"k": None, "b": None, "n": 4}, {"k": "6162", "b": b"ab", "n": 5}, {"k": "61620000", "b": b"ab\x00", "n": 6},
    {"k": "7A", "b": b"a longer binary value, " * 3, "n": 7},
]  # fmt: skip
ARRAYS: list[dict[str, Any]] = [
    {"k": "one", "j": '[1, {"a": 2}, "x", null]', "n": 1}, {"k": "two", "j": "[]", "n": 2},
    {"k": "three", "j": '[{"a": 3, "b": [4, 5]}]', "n": 3}, {"k": "none", "j": None, "n": 4},
]  # fmt: skip
OBJECTS: list[dict[str, Any]] = [
    {"k": "one", "j": '{"items": [{"a": 1, "b": "x"}, {"a": 2}]}', "n": 1}, {"k": "two", "j": '{"items": []}', "n": 2},
    {"k": "three", "j": '{"other": 1}', "n": 3}, {"k": "none", "j": None, "n": 4},
]  # fmt: skip
OF_BINARIES = {
    "functions": "select n, octet_length(b) as o, md5(b) as m, sha1(b) as s1, sha256(b) as s, hex(b) as h, to_hex(b) as t from s",
    "texts": "select n, encode(k) as e, from_hex(k) as f, unhex(k) as u, decode(encode(k)) as d, base64(b) as c, "
    "from_base64(base64(b)) as r, b::string as x, octet_length(encode(k)) as o from s",
    "joined": "select b || b as bb, b || '\\xAA'::blob as c, n from s where b is not null and octet_length(b) < 9",
    "compared": "select n from s where b >= '\\x00'::blob and b <> 'ab'::blob and b < from_hex('7A') or b in ('ab'::blob)",
    "groups": "select b, count(*) as c, min(n) as n from s group by b",
    "ends": "select min(b) as lo, max(b) as hi, count(distinct b) as c, arg_max(n, b) as a, first(b order by n) as f from s",
    "rows": "select distinct b from s",
    "less": "select b from s except select b || '\\x00'::blob from s",
    "pairs": "select x.n, y.n as m from s as x join s as y on x.b = y.b and x.n < y.n",
    "met": "select x.n, y.n as m from s as x asof join s as y on x.b > y.b",
    "first": "select n, b from s where b is not null order by b desc, n limit 3",
    "ranks": "select n, rank() over (order by b nulls last) as place, lag(b) over (order by b nulls last, n) as before from s",
    "lists": "select list(b order by n) as l from s where octet_length(b) < 3",
}
OF_ARRAYS = {
    "cast": "select k, unnest(j::json::json[]) as x from s",
    "paths": "select k, unnest(j->'$[*].b[*]') as x from s",
    "texts": "select k, unnest(j->>'$[*]') as x from s",
    "beside": "select s.k, x->>'$.a' as a from s, unnest(s.j::json[]) as u(x) where json_type(x) = 'OBJECT'",
    "counts": "select x->>'$.a' as a, count(*) as c from s cross join unnest(json_extract(s.j, '$[*]')) as u(x) group by all",
}
OF_OBJECTS = {
    "typed": "select k, (unnest(from_json(j->'$.items', '[{\"a\": \"BIGINT\", \"b\": \"VARCHAR\"}]'))).a as a from s",
    "fields": "select s.k, u.x.a as a, u.x.b as b from s, unnest(json_transform(s.j->'$.items', '[{\"a\": \"INT\", \"b\": \"VARCHAR\"}]')) as u(x)",
    "elements": "select k, unnest(json_extract(j, '$.items[*]')) as x from s",
    "names": "select k, unnest(json_keys(j)) as x from s",
    "groups": "select (x->>'$.a')::int as a, max(n) as n from s, unnest(s.j->'$.items[*]') as u(x) group by a",
}  # fmt: skip


def compare(queries: dict[str, str], schema: str, records: list[dict[str, Any]], kinds: pa.Schema) -> None:
    """Assert that every query has the rows that DuckDB gives for it."""
    with trial() as t, duckdb.connect() as database:
        t.stream("s", f"time timestamp, {schema}")
        for name, text in queries.items():
            t.query(
                name,
                text.replace(" from s", " from s [Range 100 seconds]").replace(
                    " join s ", " join s [Range 100 seconds] "
                ),
            )
        parsed = [
            record | ({"j": json.loads(record["j"])} if record.get("j") is not None else {}) for record in records
        ]
        t.append("s", [{"time": at(0), **record} for record in parsed])
        t.finish("s")
        t.run()
        assert not t.dead_letters()
        database.register("s", pa.Table.from_pylist(records, schema=kinds))
        if "j" in kinds.names:
            database.execute("create table typed as select k, j::json as j, n from s")
            database.unregister("s")
            database.execute("alter table typed rename to s")
        for name, text in queries.items():
            wanted = database.sql(text).to_arrow_table().to_pylist()
            assert sorted(map(repr, t.at(name))) == sorted(map(repr, wanted)), name


def test_binaries_are_those_of_duckdb() -> None:
    kinds = pa.schema([("k", pa.string()), ("b", pa.binary()), ("n", pa.int64())])
    compare(OF_BINARIES, "k string, b binary, n bigint", BINARIES, kinds)


@pytest.mark.parametrize(("queries", "records"), [(OF_ARRAYS, ARRAYS), (OF_OBJECTS, OBJECTS)])
def test_arrays_in_json_are_unnested_as_in_duckdb(queries: dict[str, str], records: list[dict[str, Any]]) -> None:
    kinds = pa.schema([("k", pa.string()), ("j", pa.string()), ("n", pa.int64())])
    compare(queries, "k string, j json, n bigint", records, kinds)


def test_a_value_that_is_no_array_is_a_dead_letter() -> None:
    with trial() as t:
        t.stream("s", "time timestamp, j json")
        t.query("q", "select unnest(j::json[]) as x from s [Now]")
        t.append("s", [{"time": at(0), "j": {"a": 1}}, {"time": at(0), "j": [1, {"a": [2, "x"]}, None]}])
        t.finish("s")
        t.run()
        assert sorted(row["x"] for row, _, _ in t.intervals("q")) == [
            "1", "null", '{"a":[2,"x"]}',
        ]  # fmt: skip

        (letter,) = t.dead_letters()
        assert "unnest" in letter["reason"] or "j::json[]" in letter["reason"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select unnest(j) as x from s [Now]", "1:15: unnest takes a list, and this is a string; for an array in json write unnest(j::json[])"),
        ("select value from s [Now], json_each(s.j)", "table functions are not supported; write unnest(j::json[]) for an array in json, unnest(json_keys(j)) for the names of an object"),
    ],
)  # fmt: skip
def test_the_way_out(text: str, message: str) -> None:
    with trial() as t:
        t.stream("s", "time timestamp, j json")
        with pytest.raises(DeclarationError) as caught:
            t.query("q", text)
    assert message in str(caught.value)
