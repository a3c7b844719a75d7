"""Compares ASOF joins with DuckDB's, at every instant.

DuckDB does not say which of several rows with the same key and time it takes, so it gets only the first of them.
"""

from __future__ import annotations

import duckdb
from given_cases import Case, Query
from given_queries import Made, Reading
from given_streams import COLUMNS, TYPES, grain_of, snapshot, streams, windows
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from product import Plan, plans, running
from reference import Reference, difference

from effort import examples

SOME = settings(
    max_examples=examples(25, 300), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
_KINDS = {"int": "bigint", "float": "double", "text": "varchar"}
_SCHEMA = ", ".join(["time bigint", *(f"{name} {_KINDS[kind]}" for name, kind in TYPES.items())])
_LISTED = ", ".join(f"{side}.{name} AS {side}_{name}" for side in "lr" for name in ("time", *COLUMNS))


@st.composite
def asof_queries(draw: st.DrawFn) -> tuple[Case, str]:
    """Draw a case with one ASOF join of two streams, and its text for DuckDB."""
    unit = draw(st.sampled_from(["ms", "s"]))
    left, right = draw(streams("s0", unit=unit, most=15)), draw(streams("s1", unit=unit, most=25))
    counted = windows().filter(lambda window: not window.bounds)
    readings = (Reading("l", left, draw(counted)), Reading("r", right, draw(counted)))
    keys = draw(st.lists(st.sampled_from(COLUMNS), max_size=2, unique=True))
    compared = draw(st.sampled_from(["time", "time", "time", *(name for name in COLUMNS if name not in keys)]))
    join = draw(st.sampled_from(["ASOF JOIN", "ASOF LEFT JOIN"]))
    if draw(st.integers(0, 3)) == 0:
        on = f"USING ({', '.join([*keys, compared])})"
    else:
        sign = draw(st.sampled_from([">=", ">=", ">", "<=", "<"]))
        on = "ON " + " AND ".join([*(f"l.{key} = r.{key}" for key in keys), f"l.{compared} {sign} r.{compared}"])
    where = draw(st.sampled_from(["", "", " WHERE l.a > 0", " WHERE r.a > 0"]))
    cql = f"SELECT {_LISTED} FROM s0{readings[0].window.text} AS l {join} s1{readings[1].window.text} AS r {on}{where}"
    others = ", ".join(f"{name} NULLS LAST" for name in ("time", *COLUMNS))
    first = f"row_number() OVER (PARTITION BY {', '.join([*keys, compared])} ORDER BY {others}) = 1"
    sql = f"SELECT {_LISTED} FROM l {join} (FROM r QUALIFY {first}) AS r {on}{where}"
    kinds = {"time": f"time:{unit}", **TYPES}
    columns = tuple((f"{side}_{name}", kinds[name]) for side in "lr" for name in kinds)
    return Case((left, right), (Query("q", cql, Made(cql, "SELECT 1", columns), readings),)), sql


@SOME
@given(asof_queries(), plans())
def test_an_asof_join_is_that_of_duckdb_at_every_instant(drawn: tuple[Case, str], plan: Plan) -> None:
    case, sql = drawn
    (query,) = case.queries
    note(f"{query.text}\n" + "\n".join(f"{s.name}: {record}" for s in case.streams for record in s.records()))
    reference, database = Reference(case), duckdb.connect()
    try:
        for reading in query.readings:
            database.execute(f"CREATE TABLE {reading.table} ({_SCHEMA})")
        with running(case, plan) as product:
            verdict = product.verdict(query)
            assert not product.dead()
            for instant in reference.instants(query) if any(stream.times for stream in case.streams) else ():
                for reading in query.readings:
                    rows = snapshot(reading.window.lifetimes(reading.source, grain_of(case.unit(query))), instant)
                    database.execute(f"DELETE FROM {reading.table}")
                    if rows:
                        marks = ", ".join("?" * len(rows[0]))
                        database.executemany(f"INSERT INTO {reading.table} VALUES ({marks})", rows)
                wanted = database.execute(sql).fetchall()
                assert difference(verdict.at(instant), wanted) == ([], []), f"at {instant}: (surplus, missing)"
    finally:
        reference.close()
        database.close()
