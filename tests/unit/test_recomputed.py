"""Aggregates that are recomputed from the rows of a group: their values, their order, and what happens when they fail."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hayase.cql.explain import explain
from hayase.testing import at, trial

SCHEMA = "time timestamp, k string, x bigint, y double"
RECORDS = [("a", 3, 1.0), ("b", 1, 2.0), ("a", 3, 4.0), ("a", None, 0.5), ("b", 7, None)]


def answer(expression: str, source: str = "s [Range 10 seconds]", group: str = "") -> Any:
    """Return the value of an expression over RECORDS, one second apart, at the last of them."""
    with trial() as t:
        t.stream("s", SCHEMA)
        t.query("q", f"select {expression} as v from {source} {group}")
        t.append("s", [{"time": at(i), "k": k, "x": x, "y": y} for i, (k, x, y) in enumerate(RECORDS)])
        t.finish("s")
        t.run()
        assert t.dead_letters() == []
        return [row["v"] for row in t.at("q")]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("median(x)", 3.0),
        ("mad(x)", 1.0),
        ("mode(x)", 3),
        ("mode() within group (order by k desc)", "a"),
        ("quantile_cont(x, 0.25)", 2.5),
        ("quantile(x, [0.0, 1.0])", [1, 7]),
        ("percentile_cont(0.25) within group (order by x)", 2.5),
        ("percentile_cont(0.25) within group (order by x desc)", 4.0),
        ("percentile_disc(0.5) within group (order by y)", 1.0),
        ("list(x)", [3, 1, 3, None, 7]),
        ("array_agg(x order by x desc)", [7, 3, 3, 1, None]),
        ("array_agg(x order by x nulls first, time)", [None, 1, 3, 3, 7]),
        ("list(distinct x)", [1, 3, 7, None]),
        ("list(distinct x order by x desc)", [7, 3, 1, None]),
        ("list(x) filter (where k = 'a')", [3, 3, None]),
        ("string_agg(k, '-')", "a-b-a-a-b"),
        ("string_agg(k)", "a,b,a,a,b"),
        ("string_agg(distinct x, ' ')", "1 3 7"),
        ("group_concat(k, '' order by y desc)", "abaab"),
        ("histogram(k)", [("a", 3), ("b", 2)]),
        ("max(x, 2)", [7, 3]),
        ("min(y, 3)", [0.5, 1.0, 2.0]),
        ("bit_and(x)", 1),
        ("bit_or(x)", 7),
        ("bit_xor(x)", 6),
        ("sum(distinct x)", 11),
        ("avg(distinct x)", 11 / 3),
        ("var_pop(distinct y)", 1.796875),
        ("corr(x, y)", 0.18898223650461352),
        ("covar_pop(x, y)", 2 / 9),
        ("regr_count(y, x)", 3),
        ("regr_slope(y, x)", 0.25),
        ("first(x)", 3),
        ("last(x)", 7),
        ("first(x) filter (where x < 3)", 1),
        ("last(k order by y)", "b"),
        ("any_value(x)", 3),
        ("arg_max(x, y)", 3),
        ("arg_max(k, x, 3)", ["b", "a", "a"]),
        ("arg_min(k, y)", "a"),
        ("count_if(x > 1)", 3),
        ("approx_count_distinct(x)", 3),
        ("approx_quantile(x, 0.5)", 3.0),
        ("sum(x order by y)", 14),
        ("count(*) || ':' || string_agg(k, '')", "5:abaab"),
        ("bool_and(x > 0) and median(x) > 2", True),
    ],
)
def test_functions_of_all_rows(expression: str, value: Any) -> None:
    (found,) = answer(expression)
    assert found == (pytest.approx(value) if isinstance(value, float) else value)


def test_over_nothing() -> None:
    assert answer("list(x)", group="where x > 100") == [None]
    assert answer("regr_count(x, y)", group="where x > 100") == [0]
    assert answer("median(x)", group="where x > 100 group by k") == []
    (found,) = answer("corr(x, y)", group="where k = 'b'")
    assert math.isnan(found)


def test_rows_of_a_relation_are_ordered_by_its_columns() -> None:
    counts = "(select k, x, count(*) as n from s [Range 10 seconds] group by k, x) as c"
    assert answer("list(x)", counts) == [[3, None, 1, 7]]
    assert answer("list(x order by n desc)", counts) == [[3, None, 1, 7]]
    assert answer("first(k)", counts) == ["a"]
    assert answer("arg_max(k, n)", counts) == ["a"]
    joined = "s [Range 10 seconds] as l join s [Rows 2] as r on l.k = r.k"
    assert answer("string_agg(r.x, ',' order by l.x)", joined) == ["7,7"]


def test_a_row_lasts_while_its_values_stay() -> None:
    with trial() as t:
        t.stream("s", "time timestamp, x bigint")
        t.query("q", "select median(x) as m, max(x, 1) as g from s [Range 3 seconds]")
        t.append("s", [{"time": at(i), "x": x} for i, x in enumerate([5, 5, 5, 1, 5])])
        t.finish("s")
        t.run()
        assert [(row["m"], row["g"], start, end) for row, start, end in t.query("q").intervals()] == [
            (5.0, [5], at(0), None)
        ]


def test_windows_of_all_kinds() -> None:
    for window in (
        "[Rows 3]",
        "[Partition By k Rows 3]",
        "[Range 10 seconds Slide 2 seconds]",
        "[Unbounded]",
        "[Rows 4 Slide 2]",
    ):
        found = answer("list(x)", f"s {window}")
        assert found == [
            {"[Rows 3]": [3, None, 7], "[Rows 4 Slide 2]": [3, 1, 3, None]}.get(window, [3, 1, 3, None, 7])
        ], window
    assert answer("list(x)", "s [Rows 1, 2]") == [[7], [None, 7]]


def test_a_record_that_a_sum_refuses_is_in_no_function() -> None:
    with trial() as t:
        t.stream("s", "time timestamp, x bigint")
        t.query("q", "select sum(x) as s, list(x) as l, sum(distinct x) as d from s [Range 5 seconds]")
        t.append("s", [{"time": at(i), "x": x} for i, x in enumerate([2**62, 2**62, 1])])
        t.finish("s")
        t.run()
        assert t.at("q") == [{"s": 2**62 + 1, "l": [2**62, 1], "d": 2**62 + 1}]
        (letter,) = t.dead_letters()
        assert "sum(x) of its group would overflow 64 bits" in letter["reason"]


def test_a_function_that_fails_is_null_and_reported() -> None:
    with trial() as t:
        t.stream("s", "time timestamp, k string, x bigint")
        t.query("q", "select k, sum(distinct x) as d, count(*) as n from s [Range 5 seconds] group by k")
        t.append("s", [{"time": at(i), "k": "ab"[i // 2], "x": x} for i, x in enumerate([2**63 - 1, 1, 5])])
        t.finish("s")
        t.run()
        assert t.at("q") == [{"k": "a", "d": None, "n": 2}, {"k": "b", "d": 5, "n": 1}]
        (letter,) = t.dead_letters()
        assert 'cannot compute "sum(distinct x)" of a group; it is NULL meanwhile' in letter["reason"]


def test_explain_says_that_groups_are_recomputed() -> None:
    with trial() as t:
        t.stream("s", SCHEMA)
        t.query("q", "select k, median(x) as m, count(*) as n from s [Range 5 seconds] group by k")
        t.query("p", "select last(x) as l from s [Rows 5]")
        assert (
            'Aggregate by s.k, recomputed for every group whose rows change: median_1 = median("s.x"), count_2 = count(*)'
            in explain(t.declaration, "q")
        )
        assert "recomputed" not in explain(t.declaration, "p")
