"""Window functions over relations (OVER), QUALIFY and the first rows of each group: by example."""

# ruff: noqa: E501 - a call and its values are on one line

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hayase.testing import trial

ORDERS = [
    {"time": 1, "user": "a", "n": 3, "x": 0.5},
    {"time": 2, "user": "b", "n": 5, "x": 1.5},
    {"time": 3, "user": "a", "n": 5, "x": None},
    {"time": 4, "user": "c", "n": None, "x": 2.5},
    {"time": 5, "user": "a", "n": 1, "x": 0.25},
]


def at_the_end(query: str, buckets: int = 2) -> list[tuple[Any, ...]]:
    """Run a query; return its rows at the last instant, sorted."""
    with trial() as t:
        t.declaration = replace(t.declaration, buckets=buckets)
        t.stream("orders", "time bigint, user string, n bigint, x double", time_unit="s")
        t.query("q", query)
        t.append("orders", ORDERS[:2])
        t.run()
        t.append("orders", ORDERS[2:])
        t.finish("orders")
        t.run()
        assert not t.dead_letters()
        return sorted((tuple(row.values()) for row in t.query("q").at(5)), key=repr)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("row_number() over (partition by user order by n)", [("a", 1, 1), ("a", 3, 2), ("a", 5, 3), ("b", 5, 1), ("c", None, 1)]),
        ("rank() over (order by n desc)", [("a", 1, 4), ("a", 3, 3), ("a", 5, 1), ("b", 5, 1), ("c", None, 5)]),
        ("dense_rank() over (order by n desc)", [("a", 1, 3), ("a", 3, 2), ("a", 5, 1), ("b", 5, 1), ("c", None, 4)]),
        ("ntile(2) over (order by n)", [("a", 1, 1), ("a", 3, 1), ("a", 5, 2), ("b", 5, 1), ("c", None, 2)]),
        ("lag(n) over (order by time)", [("a", 1, None), ("a", 3, None), ("a", 5, 5), ("b", 5, 3), ("c", None, 5)]),
        ("lead(n, 1, 0) over (partition by user order by n)", [("a", 1, 3), ("a", 3, 5), ("a", 5, 0), ("b", 5, 0), ("c", None, 0)]),
        ("first_value(user) over (order by n desc)", [("a", 1, "b"), ("a", 3, "b"), ("a", 5, "b"), ("b", 5, "b"), ("c", None, "b")]),
        ("last_value(time) over (order by n)", [("a", 1, 5), ("a", 3, 1), ("a", 5, 3), ("b", 5, 3), ("c", None, 4)]),
        ("nth_value(n, 2) over (order by time rows 1 preceding)", [("a", 1, 1), ("a", 3, None), ("a", 5, 5), ("b", 5, 5), ("c", None, None)]),
        ("count(*) filter (where n > 1) over (partition by user)", [("a", 1, 2), ("a", 3, 2), ("a", 5, 2), ("b", 5, 1), ("c", None, 0)]),
        ("sum(x) over (order by time range between 2 preceding and current row)", [("a", 1, 2.75), ("a", 3, 0.5), ("a", 5, 2.0), ("b", 5, 2.0), ("c", None, 4.0)]),
        ("max(n) over ()", [("a", 1, 5), ("a", 3, 5), ("a", 5, 5), ("b", 5, 5), ("c", None, 5)]),
    ],
)  # fmt: skip
def test_functions(call: str, expected: list[tuple[Any, ...]]) -> None:
    assert at_the_end(f"select user, n, {call} as f from orders [Unbounded]") == expected


@pytest.mark.parametrize("function", ["sum", "avg"])
def test_a_row_whose_sum_of_decimals_overflows_is_refused_and_no_other(function: str) -> None:
    """DuckDB raises for the whole statement; the rows of other partitions and instants, and other frames, have their values."""
    with trial() as t:
        t.stream("s", "time bigint, k string, d decimal(38, 0)", time_unit="s")
        frame = "partition by k order by d rows between 1 preceding and current row"
        t.query(
            "q",
            f"select k, d, {function}(d) filter (where d > 1) over ({frame}) as f, count(*) over (order by d) as n from s",
        )
        large = "9" * 38
        for time, k, d in (
            (1, "a", large),
            (1, "b", "4"),
            (2, "a", large),
            (2, "a", "2"),
            (2, "a", "1"),
            (3, "b", "6"),
        ):
            t.append("s", [{"time": time, "k": k, "d": d}])
            t.run()
        t.finish("s")
        t.run()
        shown = {(row["k"], int(row["d"])): row["f"] for row in t.query("q").at(3)}
        assert (shown["a", 1], shown["b", 4]) == (None, 4)
        assert shown["a", 2] == 2
        assert shown["b", 6] == (10 if function == "sum" else 5)
        letters = t.dead_letters()
        assert letters
        assert all(large in letter["record"] and "out of range" in letter["reason"] for letter in letters)


def test_a_row_whose_sum_overflows_is_refused() -> None:
    with trial() as t:
        t.stream("s", "time bigint, k string, n bigint", time_unit="s")
        t.query("q", "select k, n, sum(n) over (partition by k order by n) as total from s [Range 2 seconds]")
        large = 2**63 - 1
        for time, k, n in ((1, "a", large), (1, "b", 1), (2, "a", 1), (4, "b", 2)):
            t.append("s", [{"time": time, "k": k, "n": n}])
            t.run()
        t.finish("s")
        t.run()
        assert [(*row.values(), start, end) for row, start, end in t.query("q").intervals()] == [
            ("a", large, large, 1, 2),
            ("b", 1, 1, 1, 3),
            ("a", 1, 1, 2, 4),
            ("b", 2, 2, 4, None),
        ]
        assert ["out of range" in letter["reason"] for letter in t.dead_letters()] == [True]


def test_expressions_and_names() -> None:
    assert at_the_end(
        "select 2 * row_number() over (order by time) + n, sum(n) over (), rank() over (order by n) from orders [Rows 1]"
    ) == [(3, 1, 1)]
    with trial() as t:
        t.stream("orders", "time bigint, user string, n bigint, x double", time_unit="s")
        t.query("q", "select 1 + count(*) over (), sum(n) over (), row_number() over () from orders [Rows 1]")
        assert t.query("q").log.declaration.arrow_schema.names[:3] == ["column_1", "sum_n", "row_number"]


def test_groups_are_ranked() -> None:
    query = "select user, sum(n) as total, rank() over (order by sum(n) desc) as place from orders group by user"
    assert at_the_end(query) == [("a", 9, 1), ("b", 5, 2), ("c", None, 3)]
    assert at_the_end(f"{query} qualify place <= 2") == [("a", 9, 1), ("b", 5, 2)]
    assert at_the_end(
        "select user from orders group by user qualify row_number() over (order by count(*) desc) = 1"
    ) == [("a",)]


@pytest.mark.parametrize(
    "condition", ["r <= 2", "r < 3", "2 >= r", "3 > r", "r between 1 and 2", "r in (1, 2)", "r <= 2 and r > 0"]
)
def test_top_n_of_each_group(condition: str) -> None:
    inner = "select user, n, row_number() over (partition by user order by n desc) as r from orders [Unbounded]"
    assert at_the_end(f"select user, n from ({inner}) where {condition}") == [("a", 3), ("a", 5), ("b", 5), ("c", None)]
    assert at_the_end(f"select * from ({inner}) where {condition}")[:2] == [("a", 3, 2), ("a", 5, 1)]
    assert at_the_end(f"{inner} qualify {condition}")[:2] == [("a", 3, 2), ("a", 5, 1)]


def test_the_second_of_each_group() -> None:
    inner = "select user, n, row_number() over (partition by user order by n desc) as r from orders [Unbounded]"
    assert at_the_end(f"select user, n from ({inner}) where r = 2") == [("a", 3)]


def test_ranks_with_ties_and_other_functions_beside() -> None:
    inner = "select user, n, rank() over (order by n desc) as r, count(*) over () as c, lead(n) over (order by n desc) as l from orders [Unbounded]"
    assert at_the_end(f"select user, n, c, l from ({inner}) where r <= 1") == [("a", 5, 5, 3), ("b", 5, 5, 5)]


def test_an_order_may_use_a_window_function() -> None:
    query = "select user, n from orders [Unbounded] order by row_number() over (order by n desc) limit 1"
    assert at_the_end(query) == [("b", 5)]


def test_equal_rows_keep_their_values_however_records_are_cut_into_batches() -> None:
    records = [{"time": at // 3, "k": "ab"[at % 2], "n": at * 7 % 3} for at in range(90)]
    found = []
    for size in (90, 7):
        with trial() as t:
            t.stream("s", "time bigint, k string, n bigint", time_unit="s")
            t.query("q", "select k, n, lag(n) over (partition by k order by n) as before from s [Rows 12]")
            for first in range(0, 90, size):
                t.append("s", records[first : first + size])
                t.run()
            t.finish("s")
            t.run()
            found.append(sorted(map(repr, t.query("q").intervals())))
    assert found[0] == found[1]


def test_named_windows() -> None:
    query = "select user, n, sum(n) over (w order by n) as f from orders [Unbounded] window w as (partition by user)"
    assert at_the_end(query) == [("a", 1, 1), ("a", 3, 4), ("a", 5, 9), ("b", 5, 5), ("c", None, None)]
    nested = (
        "select n, rank() over w as r from (select n, max(n) over w as m from orders [Unbounded] window w as ()) "
        "where n = m window w as (order by n)"
    )
    assert at_the_end(nested) == [(5, 1), (5, 1)]
