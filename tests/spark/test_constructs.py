"""Constructs of CQL that the shop does not have, through a lane whose planner and workers are killed and which is started again:
equal to the runner without Spark, which runs unharmed and, for OVER, to DuckDB."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import function_samples
import hayase as hy
from hayase.engine.spark.runner import run_lanes
from lane_processes import planner, until, workers

pytestmark = pytest.mark.spark

RUNNING = (
    "select n, row_number() over w as place, lag(n) over w as before, sum(n) over w as total, "
    "avg(n) over (w range between 5 preceding and current row) as recent, "
    "max(n) over (w rows between 3 preceding and current row) as most from events window w as (partition by k order by ts)"
)
QUERIES = {
    # streams of queries
    "numbered": "select k, row_number() over (order by ts) as place from events where n > 2",
    "running": RUNNING,
    "joined": "select k, n from events union all select k, place as n from numbered",
    "windowed": "select k, count(*) as c, sum(n) as s from joined [Range 5 seconds] group by k",
    "inner": "select max(c) as m from Istream(select k, count(*) as c from events [Rows 9] group by k) [Rows 4]",
    "names": "events [Range 3 seconds] except all events [Rows 2 Order By n]",
    # windows with bounds
    "tumble": "select k, window_start, window_end, sum(n) as s from events [Tumble 10 seconds] "
    "group by k, window_start, window_end",
    "session": "select k, window_start, window_end, count(*) as c from events [Partition By k Session 2 seconds] "
    "group by k, window_start, window_end",
    "function": "select window_end, count(*) as c from tumble(table events, descriptor(ts), interval '10' second) "
    "group by window_end",
    # order, limits, ranks
    "newest": "select k, n from events [Partition By k Rows 2 Order By n desc]",
    "ties": "select k, n from events [Range 20 seconds] order by n fetch first 2 rows with ties",
    "top": "select k, n from events qualify row_number() over (partition by k order by n desc) <= 2",
    "ranks": "select k, n, rank() over (partition by k order by n) as r, ntile(2) over (order by n) as half, "
    "lead(n) over (order by n, k) as following from events [Rows 8]",
    # relations
    "sets": "select k, n, count(*) as c from events [Range 9 seconds] group by grouping sets ((k, n), (k), ())",
    "rolled": "select k, n, count(*) as c from events [Range 9 seconds] group by rollup (k, n)",
    "unnested": "select k, u.v as v from events [Rows 3] as e, unnest([n, 1]) as u(v)",
    "natural": "select * from (select k, n from events [Rows 9]) natural join (select k, x from others [Rows 9])",
    "by_name": "select k, n from events [Rows 3] union all by name select x as n, k from others [Rows 3]",
    "values": "select e.k, v.name from events [Rows 9] as e join (values ('a', 'one'), ('b', 'two')) as v(k, name) on e.k = v.k",
    "again": "select window_end, max(c) as c from (select window_end as x, s as c from tumble) as h [Tumble 20 seconds] "
    "group by window_end",
    # functions and types
    "functions": "select k, plus(n, 1) as t, vat(n) as v, json_extract_string(data, '$.x') as x, hex(encode(k)) as h "
    "from events [Rows 9]",
}  # fmt: skip
OVER = """select n, row_number() over (partition by k order by ts, o), lag(n) over (partition by k order by ts, o),
    sum(n) over (partition by k order by ts), avg(n) over (partition by k order by ts range between 5 preceding and current row),
    max(n) over (partition by k order by ts, o rows between 3 preceding and current row) from records order by ts, o"""


def records(seed: int) -> list[dict[str, Any]]:
    dice = random.Random(seed)
    return [
        {"ts": at // 3, "k": dice.choice(["a", "b", None]), "n": dice.choice([None, 1, 4, 9]), "data": {"x": at % 5}}
        for at in range(300)
    ]


def pipeline(home: Path) -> hy.Pipeline:
    p = hy.Pipeline("constructs", home=home, buckets=3)
    p.stream("events", "ts bigint, k string, n bigint, data json", time="ts", time_unit="s")
    p.stream("others", "ts bigint, k string, x bigint", time="ts", time_unit="s")
    p.function(function_samples.plus)
    p.function(name="vat", sql="x * 1.5")
    for name, text in QUERIES.items():
        p.query(name, text)
    p.apply()
    return p


def append(p: hy.Pipeline, first: int, end: int) -> None:
    p.append("events", records(7)[first:end])
    others = [{"ts": row["ts"], "k": row["k"], "x": row["n"]} for row in records(8)[::3]]
    p.append("others", others[first // 3 : end // 3])


def test_constructs_are_the_same_on_spark_though_its_processes_die(spark: SparkSession, tmp_path: Path) -> None:
    hurt, unharmed = pipeline(tmp_path / "hurt"), pipeline(tmp_path / "unharmed")
    for first, end in ((0, 150), (150, 300)):
        append(unharmed, first, end)
        unharmed.run_until_idle(spark=False)
    for name in ("events", "others"):
        unharmed.finish(name)
    unharmed.run_until_idle(spark=False)

    killed = 0
    append(hurt, 0, 70)
    with run_lanes(hurt.home, session=spark) as lane:
        until(lane.is_idle, lane)
        append(hurt, 70, 150)
        until(lambda: lane.in_flight() or lane.is_idle(), lane)
        for worker in workers():
            worker.kill()  # its tasks are tried again, in a worker that reads the state from files
            killed += 1
        until(lane.is_idle, lane)
    with run_lanes(hurt.home, session=spark) as lane:  # from the home alone
        append(hurt, 150, 220)
        until(lane.is_idle, lane)
        planner(lane).kill()
        append(hurt, 220, 300)
        until(lane.is_idle, lane)
        for name in ("events", "others"):
            hurt.finish(name)
        until(lane.is_idle, lane)
    assert killed
    for name in QUERIES:
        found, wanted = (sorted(map(str, p.query(name).intervals())) for p in (hurt, unharmed))
        assert found == wanted, name
        assert found, name
    assert not hurt.dead_letters()

    rows = pa.Table.from_pylist(records(7)).append_column("o", pa.array(range(300)))
    with duckdb.connect() as connection:
        connection.register("records", rows)
        by_duckdb = connection.execute(OVER).fetchall()
    names = ("n", "place", "before", "total", "recent", "most")
    log = hurt.query("running").log
    pieces = [piece.rows.select(names).to_pylist() for piece in log.read(0, log.index().next)]
    assert [tuple(row.values()) for piece in pieces for row in piece] == by_duckdb  # in the order of the log
