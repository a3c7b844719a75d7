"""Compares Hayase with the reference interpreter: the rows of queries at every instant, and the records of their streams.

`HAYASE_EXAMPLES=2000` tries more than the usual number of cases.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace

import pytest
from given_cases import Case, Query, cases
from given_queries import Made, Reading
from given_streams import COLUMNS, Stream, Window, bounded_windows, grain_of, several, streams
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from product import Plan, Product, Verdict, plans, running
from reference import Reference, difference

from effort import examples
from hayase.testing import at, trial

EXAMPLES = int(os.environ.get("HAYASE_EXAMPLES", examples(20, 300)))
SOME = settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
FEWER = settings(SOME, max_examples=-(-EXAMPLES // 2))
pytestmark = pytest.mark.timeout(600 + 5 * EXAMPLES)


def told(case: Case) -> str:
    """Return a case as text."""
    lines = []
    for stream in case.streams:
        lines.append(f"{stream.name}: {stream.schema} (unit {stream.unit})")
        lines += [f"    {record}" for record in stream.records()]
    lines += [f"{query.name}: {query.text}" for query in case.queries]
    return "\n".join(lines)


def check(reference: Reference, case: Case, query: Query, verdict: Verdict) -> None:
    """Assert that a verdict is right at every instant from the first event to the last."""
    first, last = case.extent(query)
    if first > last:
        assert not verdict.lifetimes or any(stream.times for stream in case.streams_of(query))
        return
    assert verdict.final is not None, query.name
    assert verdict.final >= last, query.name
    for instant in reference.instants(query):
        surplus, missing = difference(verdict.at(instant), reference.rows(query, instant))
        assert (surplus, missing) == ([], []), f"{query.name} at {instant}: (surplus, missing); {query.made.sql}"


def check_all(case: Case, product: Product) -> None:
    reference = Reference(case)
    try:
        for query in case.queries:
            (check if query.kind is None else check_stream)(reference, case, query, product.verdict(query))
            figures = product.trial.figures(query.name)
            assert figures.read == figures.processed + figures.dead + figures.waiting, query.name
    finally:
        reference.close()


@SOME
@given(cases(), st.data())
def test_a_query_is_its_sql_over_the_snapshots(case: Case, data: st.DataObject) -> None:
    note(told(case))
    with running(case) as product:
        check_all(case, product)
        assert not product.dead()
        query = data.draw(st.sampled_from(case.queries))
        first, last = case.extent(query)
        if first <= last:  # the pipeline's own snapshots are those of its lifetimes
            instant = data.draw(st.integers(first, last)) // (grain := grain_of(case.unit(query))) * grain
            assert difference(product.at(query, instant), product.verdict(query).at(instant)) == ([], [])


@SOME
@given(cases(most=20, queries=2), plans())
def test_no_plan_makes_a_difference(case: Case, plan: Plan) -> None:
    """Results do not depend on batches, buckets, the order of appends, disorder within the slack, or restarts."""
    note(told(case))
    with running(case, plan) as product:
        check_all(case, product)
        assert not product.dead()


@FEWER
@given(streams("s0", unit="ms", most=40), st.integers(1, 12), st.integers(1, 5), plans())
def test_rows_of_the_whole_stream_are_counted_in_every_bucket(
    stream: Stream, count: int, slide: int, plan: Plan
) -> None:
    """`[Rows N]` without Partition By under GROUP BY: a bucket has some of the groups, but counts all records."""
    window = Window("rows", f" [Rows {count} Slide {slide}]" if slide > 1 else f" [Rows {count}]", count, slide)
    reading = Reading("t", stream, window)
    sql = "SELECT s AS c0, count(*) AS c1, sum(a) AS c2, max(x) AS c3 FROM {} GROUP BY s"
    columns = (("c0", "text"), ("c1", "int"), ("c2", "int"), ("c3", "float"))
    made = Made(sql.format(f"s0{window.text}"), sql.format("t"), columns)
    case = Case((stream,), (Query("q", made.cql, made, (reading,)),))
    note(told(case))
    with running(case, replace(plan, buckets=max(plan.buckets, 2))) as product:
        check_all(case, product)


_CALLS = {
    "count(*)": "int", "count(x)": "int", "sum(a)": "int", "sum(x)": "float", "min(a)": "int", "max(x)": "float",
    "avg(a)": "approx", "var_pop(x)": "approx", "min(s)": "text", "sum(a + b)": "int",
}  # fmt: skip


@st.composite
def over_several_windows(draw: st.DrawFn, name: str, stream: Stream) -> Query:
    """Draw aggregates of a stream over several windows at once; for SQLite, a union of one query per window."""
    text, windows = draw(several())
    calls = draw(st.lists(st.sampled_from(list(_CALLS)), min_size=1, max_size=3, unique=True))
    where = draw(st.sampled_from(["", "", " WHERE a > 0", " WHERE x IS NOT NULL AND b < 2"]))
    grouped = draw(st.booleans()) or windows[0][1].keys
    key, by = (["s"], " GROUP BY s") if grouped else ([], "")
    having = draw(st.sampled_from(["", "", " HAVING count(*) > 1"]))
    listed = ", ".join(f"{item} AS c{at}" for at, item in enumerate([*key, *calls]))
    parts = [
        f'SELECT {tag!r} AS "window", {listed} FROM {name}_{at}{where}{by}{having}'
        for at, (tag, _) in enumerate(windows)
    ]
    kinds = ["text" if isinstance(windows[0][0], str) else "int", *["text"] * len(key), *map(_CALLS.__getitem__, calls)]
    names = ["window", *(f"c{at}" for at in range(len(key) + len(calls)))]
    cql = f"SELECT {listed} FROM {stream.name}{text}{where}{by}{having}"
    made = Made(cql, " UNION ALL ".join(parts), tuple(zip(names, kinds)))
    readings = tuple(Reading(f"{name}_{at}", stream, window) for at, (_, window) in enumerate(windows))
    return Query(name, cql, made, readings)


@SOME
@given(st.data(), st.sampled_from([None, "ms", "s"]), plans())
def test_windows_that_share_a_pass_are_what_each_is_alone(data: st.DataObject, unit: str | None, plan: Plan) -> None:
    """Several windows in a statement, and several such statements over one stream."""
    stream = data.draw(streams("s0", unit=unit, most=25))
    queries = tuple(data.draw(over_several_windows(f"q{at}", stream)) for at in range(data.draw(st.integers(1, 3))))
    case = Case((stream,), queries)
    note(told(case))
    with running(case, plan) as product:
        check_all(case, product)
        assert not product.dead()


@st.composite
def over_windows_with_bounds(draw: st.DrawFn, name: str, stream: Stream) -> Query:
    """Draw aggregates for each window and group; sessions are those of the groups, with or without Partition By."""
    given_stream = stream
    window = draw(bounded_windows(draw(st.sampled_from(["tumble", "hop", "cumulate", "session"]))))
    key = draw(st.sampled_from(["s", "a", "coalesce(b, 0)", None]))
    if window.kind == "session":
        text = re.sub(r"PARTITION BY .* SESSION", "SESSION", window.text)
        own = key if key in COLUMNS else "b" if key else None
        if draw(st.booleans()) and key in COLUMNS:
            text = window.text.replace(f"PARTITION BY {', '.join(window.keys)} ", f"PARTITION BY {key} ")
        if key == "coalesce(b, 0)":  # records without b are in the sessions of 0
            stream = replace(stream, rows=tuple((a, b or 0, x, s) for a, b, x, s in stream.rows))
        window = replace(window, text=text, keys=(own,) if own else ())
    keys = [*(["window_start"] if draw(st.booleans()) else []), "window_end", *([key] if key else [])]
    keys += ["is_final"] if window.early else []
    keys = draw(st.permutations(keys))
    kinds = {**window.types(stream.unit), "s": "text", "a": "int", "coalesce(b, 0)": "int"}
    reads_b = stream is given_stream
    calls = draw(
        st.lists(
            st.sampled_from([call for call in _CALLS if reads_b or "b" not in call]),
            min_size=1,
            max_size=3,
            unique=True,
        )
    )
    where = draw(st.sampled_from(["", "", " WHERE a > 0", *([" WHERE x IS NOT NULL AND b < 2"] if reads_b else [])]))
    having = draw(st.sampled_from(["", "", " HAVING count(*) > 1"]))
    listed = ", ".join(f"{item} AS c{at}" for at, item in enumerate([*keys, *calls]))
    sql = f"SELECT {listed} FROM {{}}{where} GROUP BY {', '.join(keys)}{having}"
    columns = [kinds[key] for key in keys] + [_CALLS[call] for call in calls]
    made = Made(
        sql.format(f"{stream.name}{window.text}"),
        sql.format(name),
        tuple((f"c{at}", kind) for at, kind in enumerate(columns)),
    )
    return Query(name, made.cql, made, (Reading(name, stream, window),))


@SOME
@given(st.data(), st.sampled_from([None, "ms", "s"]), plans())
def test_every_window_and_group_has_a_row(data: st.DataObject, unit: str | None, plan: Plan) -> None:
    """Windows with bounds, of several sizes over one stream, whether they share a pass or not."""
    stream = data.draw(streams("s0", unit=unit, most=25))
    queries = tuple(data.draw(over_windows_with_bounds(f"q{at}", stream)) for at in range(data.draw(st.integers(1, 3))))
    case = Case((stream,), queries)
    note(told(case))
    with running(case, plan) as product:
        check_all(case, product)
        assert not product.dead()


def check_stream(reference: Reference, case: Case, query: Query, verdict: Verdict) -> None:
    """Assert that the records of a stream are right up to the last event."""
    last = case.extent(query)[1]
    actual = [(start, row) for start, _, row in verdict.lifetimes if start <= last]
    expected = reference.records(query)
    for instant in sorted({time for time, _ in (*actual, *expected)}):
        actual_rows, expected_rows = (
            [row for time, row in records if time == instant] for records in (actual, expected)
        )
        assert difference(actual_rows, expected_rows) == ([], []), f"{query.name} at {instant}: (surplus, missing)"


@FEWER
@given(cases(streaming=True), plans())
def test_a_stream_is_told_by_the_snapshots(case: Case, plan: Plan) -> None:
    """Istream, Dstream and Rstream of any query, over streams, relations and streams of other queries."""
    assume(case.queries[-1].kind is not None)
    note(told(case))
    with running(case, plan) as product:
        check_all(case, product)
        assert not product.dead()


def test_a_view_is_what_its_text_in_the_place_of_its_name_is() -> None:
    with trial() as t:
        for name in ("s", "r"):
            t.stream(name, "time timestamp, a bigint")
        inner = "select count(*) as n from s [Range 1 second]"
        t.query("v", inner)
        t.query("by_name", "select v.n as n, r.a as a from v, r [Now]")
        t.query("by_text", f"select v.n as n, r.a as a from ({inner}) as v, r [Now]")
        t.append("s", [{"time": at(0), "a": 0}])
        t.append("r", [{"time": at(5), "a": 1}])
        for name in ("s", "r"):
            t.finish(name)
        t.run()
        assert t.query("by_text").at(at(5)) == [{"n": 0, "a": 1}]
        assert t.query("by_name").at(at(5)) == [{"n": 0, "a": 1}]
