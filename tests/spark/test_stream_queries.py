"""Queries whose results or parts are streams, through a lane: equal to the runner without Spark and, for OVER, to DuckDB."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import hayase as hy
from hayase.engine.spark.runner import run_until_idle

pytestmark = pytest.mark.spark

QUERIES = {
    "running": "select n, row_number() over w as place, lag(n) over w as before, sum(n) over w as total, "
    "avg(n) over (w range between 5 preceding and current row) as recent, "
    "max(n) over (w rows between 3 preceding and current row) as most from events window w as (partition by k order by ts)",
    "joined": "select k, n from events union all select k, place as n from numbered",
    "numbered": "select k, row_number() over (order by ts) as place from events where n > 2",
    "windowed": "select k, count(*) as c, sum(n) as s from joined [Range 5 seconds] group by k",
    "inner": "select max(c) as m from Istream(select k, count(*) as c from events [Rows 9] group by k) [Rows 4]",
    "newest": "select k, n from events [Partition By k Rows 2 Order By n desc]",
    "names": "events [Range 3 seconds] except all events [Rows 2 Order By n]",
}
OVER = """select n, row_number() over (partition by k order by ts, o), lag(n) over (partition by k order by ts, o),
    sum(n) over (partition by k order by ts), avg(n) over (partition by k order by ts range between 5 preceding and current row),
    max(n) over (partition by k order by ts, o rows between 3 preceding and current row) from records order by ts, o"""


def records() -> list[dict[str, object]]:
    dice = random.Random(7)
    return [{"ts": at // 3, "k": dice.choice(["a", "b", None]), "n": dice.choice([None, 1, 4, 9])} for at in range(300)]


def test_streams_of_queries_are_the_same_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    given = records()
    pipelines = []
    for name in ("with", "without"):
        p = hy.Pipeline("streams", home=tmp_path / name, buckets=3)
        p.stream("events", "ts bigint, k string, n bigint", time="ts", time_unit="s")
        for query in ("numbered", *(each for each in QUERIES if each != "numbered")):
            p.query(query, QUERIES[query])
        p.apply()
        pipelines.append(p)
    with_spark, without = pipelines
    for piece in (given[:170], given[170:]):
        for p in pipelines:
            p.append("events", piece)
        run_until_idle(with_spark.home, session=spark)
        without.run_until_idle(spark=False)
    for p in pipelines:
        p.finish("events")
    run_until_idle(with_spark.home, session=spark)
    without.run_until_idle(spark=False)
    for name in QUERIES:
        one, other = (sorted(map(str, p.query(name).intervals())) for p in pipelines)
        assert one == other, name
        assert one, name
    rows = pa.Table.from_pylist(given).append_column("o", pa.array(range(len(given))))
    with duckdb.connect() as connection:
        connection.register("records", rows)
        wanted = connection.execute(OVER).fetchall()
    names = ("n", "place", "before", "total", "recent", "most")
    found = [tuple(row[name] for name in names) for row, _, _ in with_spark.query("running").intervals()]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    assert not with_spark.dead_letters()
