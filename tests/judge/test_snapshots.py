"""Hayase against an independent engine: at every instant a query says what SQLite says about the snapshots of its windows.

`HAYASE_EXAMPLES=2000` tries more than the usual number of cases.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from given_cases import Case, Query, cases
from given_queries import Made, Reading
from given_streams import Stream, Window, grain_of, several, streams
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from product import Plan, Product, Verdict, plans, running
from sqlite import Judge, difference

from hayase.testing import at, trial

EXAMPLES = int(os.environ.get("HAYASE_EXAMPLES", 60))
SOME = settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
FEWER = settings(SOME, max_examples=-(-EXAMPLES // 2))
pytestmark = pytest.mark.timeout(600 + 5 * EXAMPLES)


def told(case: Case) -> str:
    """A case as one would write it down."""
    lines = []
    for stream in case.streams:
        lines.append(f"{stream.name}: {stream.schema} (unit {stream.unit})")
        lines += [f"    {record}" for record in stream.records()]
    lines += [f"{query.name}: {query.text}" for query in case.queries]
    return "\n".join(lines)


def check(judge: Judge, case: Case, query: Query, verdict: Verdict) -> None:
    """A verdict is right at every instant from the first event to the last."""
    first, last = case.extent(query)
    if first > last:
        assert not verdict.lifetimes or any(stream.times for stream in case.streams_of(query))
        return
    assert verdict.final is not None, query.name
    assert verdict.final >= last, query.name
    for instant in judge.instants(query):
        surplus, missing = difference(verdict.at(instant), judge.answer(query, instant))
        assert (surplus, missing) == ([], []), f"{query.name} at {instant}: (surplus, missing); {query.made.sql}"


def check_all(case: Case, product: Product) -> None:
    judge = Judge(case)
    try:
        for query in case.queries:
            check(judge, case, query, product.verdict(query))
    finally:
        judge.close()


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
    """Batches, buckets, the interleaving of appends, disorder within the slack, lost memory."""
    note(told(case))
    with running(case, plan) as product:
        check_all(case, product)
        assert not product.dead()


@FEWER
@given(streams("s0", unit="ms", most=40), st.integers(1, 12), st.integers(1, 5), plans())
def test_rows_of_the_whole_stream_are_counted_in_every_bucket(
    stream: Stream, count: int, slide: int, plan: Plan
) -> None:
    """`[Rows N]` without Partition By under GROUP BY: each bucket has some of the groups, but all of the order."""
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
    """Aggregates of a stream over several windows at once; to SQLite, one query for each, united."""
    text, windows = draw(several())
    calls = draw(st.lists(st.sampled_from(list(_CALLS)), min_size=1, max_size=3, unique=True))
    where = draw(st.sampled_from(["", "", " WHERE a > 0", " WHERE x IS NOT NULL AND b < 2"]))
    grouped = draw(st.booleans()) or windows[0][1].keys
    key, by = (["s"], " GROUP BY s") if grouped else ([], "")
    having = draw(st.sampled_from(["", "", " HAVING count(*) > 1"]))
    listed = ", ".join(f"{each} AS c{at}" for at, each in enumerate([*key, *calls]))
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


def slide_of(query: Query, grain: int) -> int | None:
    """By how much all windows of a query move together: Rstream tells the snapshot at every such instant.

    If that is no whole number of units, it tells of changes, as it does of windows that do not slide.
    """
    slides = {each.window.slide if each.window.kind == "range" else 1 for each in query.readings}
    slide = slides.pop() if len(slides) == 1 else 1
    return slide if slide > 1 and slide % grain == 0 else None


@FEWER
@given(cases(queries=1, views=False), st.sampled_from(["istream", "dstream", "rstream"]), plans())
def test_a_stream_is_the_difference_of_snapshots(case: Case, kind: str, plan: Plan) -> None:
    (query,) = case.queries
    assume("approx" not in dict(query.columns).values())  # nearly equal rows are not equal
    case = replace(case, queries=(replace(query, text=f"{kind}({query.text})"),))
    note(told(case))
    first, last = case.extent(query)
    judge, before, expected = Judge(case), [], []
    slide = slide_of(query, grain_of(case.unit(query))) if kind == "rstream" else None
    slides = range(-(-first // slide) * slide, last + 1, slide) if slide else ()
    for instant in sorted({*judge.instants(query), *slides}) if first <= last else ():
        now = judge.answer(query, instant)
        came, went = difference(now, before)
        changed = instant % slide == 0 if slide else came or went
        told_now = {"istream": came, "dstream": went, "rstream": now if changed else []}[kind]
        expected += [(instant, row) for row in told_now]
        before = now
    judge.close()
    with running(case, plan) as product:
        found = [(start, row) for start, _, row in product.verdict(query).lifetimes if start <= last]
        for instant in {time for time, _ in (*found, *expected)}:
            one, other = ([row for time, row in some if time == instant] for some in (found, expected))
            assert difference(one, other) == ([], []), instant


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
