"""Compares queries that group, join and compare structs and lists with DuckDB, at every instant."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from effort import examples
from hayase.testing import trial

SOME = settings(max_examples=examples(5, 60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
LENGTH = 3
SCHEMA = "ts bigint, l array<bigint>, r struct<a: double, b: array<string>>, n bigint"
ARROW = pa.schema([
    ("ts", pa.int64()), ("l", pa.list_(pa.int64())),
    ("r", pa.struct([("a", pa.float64()), ("b", pa.list_(pa.string()))])), ("n", pa.int64()),
])  # fmt: skip
QUERIES = {
    "groups": "select l, count(*) as c, sum(n) as n from {s} group by l",
    "pairs": "select r, l, max(n) as n from {s} group by r, l having count(*) > 0",
    "fields": "select r.b as b, count(distinct l) as c from {s} group by r.b",
    "rows": "select distinct l, r from {s}",
    "joined": "select x.n, y.n as m, x.r from {s} as x join {t} as y on x.r = y.r",
    "left": "select x.l, y.n from {s} as x left join {t} as y on x.l = y.l and x.n < y.n",
    "less": "select l, r from {s} except select l, r from {t}",
    "both": "select r from {s} intersect all select r from {t}",
    "all": "select l from {s} union select l from {t}",
    "within": "select n from {s} where l in (select l from {t})",
    "without": "select n, l from {s} as x where not exists (select 1 from {t} as y where y.r = x.r)",
    "places": "select n, r, row_number() over (partition by r order by n, l[1] nulls last, len(l) nulls last) as place from {s}",
    "constant": "select n from {s} where l = [1] or r.b = ['x']",
}  # fmt: skip

NUMBERS = st.none() | st.lists(st.none() | st.sampled_from([1, 2]), max_size=2)
RECORDS = st.none() | st.builds(
    dict,
    a=st.sampled_from([None, 0.0, -0.0, math.nan, 1.5]),
    b=st.none() | st.lists(st.sampled_from([None, "x", ""]), max_size=2),
)


@st.composite
def streams(draw: st.DrawFn) -> list[dict[str, Any]]:
    rows = draw(st.lists(st.tuples(st.integers(0, 2), NUMBERS, RECORDS), max_size=10))
    now, records = 0, []
    for number, (gap, numbers, record) in enumerate(rows):
        now += gap
        records.append({"ts": now, "l": numbers, "r": record, "n": number})
    return records


def plain(value: Any) -> Any:
    """Return a value that can be counted and that is equal where SQL says so."""
    if isinstance(value, dict):
        return tuple(plain(inner) for inner in value.values())
    if isinstance(value, list):
        return ["list", *map(plain, value)].__repr__()
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def counted(rows: list[dict[str, Any]], names: list[str]) -> Counter[Any]:
    return Counter(tuple(plain(row[name]) for name in names) for row in rows)


@SOME
@given(
    streams(), streams(), st.lists(st.sampled_from(list(QUERIES)), min_size=3, max_size=3, unique=True),
    st.sampled_from([None, 3]), st.booleans(),
)  # fmt: skip
def test_nested_keys_are_those_of_duckdb(
    s: list[dict[str, Any]], t: list[dict[str, Any]], chosen: list[str], batch_rows: int | None, forget: bool
) -> None:
    note(f"{s}\n{t}")
    read = {"s": s, "t": t}
    with trial() as pipeline:
        for name in read:
            pipeline.stream(name, SCHEMA, time="ts", time_unit="s")
        for name in chosen:
            pipeline.query(name, QUERIES[name].format(**{each: f"{each} [Range {LENGTH} seconds]" for each in read}))
        for name, records in read.items():
            if records:
                half = len(records) // 2
                for part in (records[:half], records[half:]):
                    if part:
                        pipeline.append(name, part)
                    if forget:
                        pipeline.restart()
        for name in read:
            pipeline.finish(name)
        pipeline.run(batch_rows=batch_rows)
        assert not pipeline.dead_letters()
        times = sorted({record["ts"] for records in read.values() for record in records})
        with duckdb.connect() as database:
            for at in range(times[0], times[-1] + 1) if times else ():
                for name, records in read.items():
                    alive = [record for record in records if record["ts"] <= at < record["ts"] + LENGTH]
                    database.register(name, pa.Table.from_pylist(alive, schema=ARROW))
                for name in chosen:
                    final = pipeline.query(name).final()
                    if final is None or at > final:  # a query over one of the streams ends with it
                        continue
                    wanted = database.sql(QUERIES[name].format(s="s", t="t")).to_arrow_table()
                    found = pipeline.query(name).at(at)
                    names = wanted.column_names
                    assert counted(found, names) == counted(wanted.to_pylist(), names), f"{name} at {at}"


@pytest.mark.parametrize("window", ["[Partition By l Rows 1]", "[Partition By r Rows 1]"])
def test_windows_by_partition_of_nested_values(window: str) -> None:
    records = [
        {"ts": 1, "l": [1], "r": {"a": 0.0, "b": None}, "n": 1}, {"ts": 2, "l": [1, None], "r": None, "n": 2},
        {"ts": 3, "l": [1], "r": {"a": -0.0, "b": None}, "n": 3}, {"ts": 4, "l": [1, None], "r": None, "n": 4},
        {"ts": 5, "l": None, "r": {"a": 1.0, "b": ["x"]}, "n": 5},
    ]  # fmt: skip
    with trial() as pipeline:
        pipeline.stream("s", SCHEMA, time="ts", time_unit="s")
        pipeline.query("q", f"select n from s {window}")
        pipeline.query("sessions", "select r, count(*) as c from s [Session 10 seconds] group by r, window_end")
        pipeline.append("s", records)
        pipeline.finish("s")
        pipeline.run(batch_rows=2)
        assert sorted(row["n"] for row in pipeline.query("q").at(5)) == [3, 4, 5]
        assert sorted(row["c"] for row, _, _ in pipeline.query("sessions").intervals()) == [1, 2, 2]
