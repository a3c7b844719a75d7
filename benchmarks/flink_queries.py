"""The queries of `bench peers` in Flink SQL. Run by an interpreter that has `apache-flink`; prints seconds as JSON.

Usage: python flink_queries.py DIRECTORY PARALLELISM QUERY...   The directory holds left.csv, right.csv and, with a few
lines only, left-few.csv and right-few.csv: what a job over those takes is its start-up, and is told apart. Every job
runs twice, and the faster one counts: the JVM is warm then.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

TABLE = """
CREATE TABLE `{name}` (ts BIGINT, k BIGINT, x DOUBLE, t AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR t AS t)
WITH ('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'csv')
"""
SINK = "CREATE TABLE {name} ({columns}) WITH ('connector' = 'blackhole')"
QUERIES = {
    "range": (
        "k BIGINT, a DOUBLE",
        "SELECT k, AVG(x) OVER (PARTITION BY k ORDER BY t RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT ROW) "
        "FROM {left}",
    ),
    "rows": (
        "k BIGINT, a DOUBLE, m DOUBLE",
        "SELECT k, AVG(x) OVER w, MAX(x) OVER w FROM {left} "
        "WINDOW w AS (PARTITION BY k ORDER BY t ROWS BETWEEN 99 PRECEDING AND CURRENT ROW)",
    ),
    "whole": (
        "a DOUBLE",
        "SELECT AVG(x) OVER (ORDER BY t ROWS BETWEEN 9999 PRECEDING AND CURRENT ROW) FROM {left}",
    ),
    "join": (
        "k BIGINT, x DOUBLE, y DOUBLE",
        "SELECT l.k, l.x, r.x FROM {left} AS l, {right} AS r WHERE l.k = r.k "
        "AND l.t > r.t - INTERVAL '10' SECOND AND l.t < r.t + INTERVAL '10' SECOND",
    ),
}


def main() -> None:
    directory, parallelism, *queries = sys.argv[1:]
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    environment.get_config().set("parallelism.default", parallelism)
    for name in ("left", "right", "left_few", "right_few"):
        path = Path(directory).resolve() / f"{name.replace('_', '-')}.csv"
        environment.execute_sql(TABLE.format(name=name, path=path))
    found: dict[str, dict[str, float]] = {}
    for query in queries:
        columns, text = QUERIES[query]
        environment.execute_sql(SINK.format(name=f"sink_{query}", columns=columns))
        seconds: dict[str, list[float]] = {"_few": [], "": []}
        for suffix in ("_few", "_few", "", ""):  # the first job also starts Flink itself
            began = time.perf_counter()
            statement = text.format(left=f"`left{suffix}`", right=f"`right{suffix}`")
            environment.execute_sql(f"INSERT INTO sink_{query} {statement}").wait()
            seconds[suffix].append(time.perf_counter() - began)
        found[query] = {"start_up": min(seconds["_few"]), "whole": min(seconds[""])}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
