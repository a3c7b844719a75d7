"""ORDER BY with LIMIT, OFFSET and WITH TIES, DISTINCT ON: by example."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hayase.core.declarations import PipelineDeclaration, QueryDeclaration, StreamDeclaration
from hayase.core.stages import OFFSET, TIME
from hayase.core.times import BEGINNING
from hayase.cql.planner import plan
from hayase.testing import trial

ORDERS = [
    {"time": 1, "user": "a", "n": 3},
    {"time": 2, "user": "b", "n": 5},
    {"time": 3, "user": "a", "n": 5},
    {"time": 4, "user": "c", "n": None},
    {"time": 5, "user": "b", "n": 1},
]


def result(query: str, records: list[dict[str, Any]] = ORDERS) -> list[tuple[tuple[Any, ...], int, int | None]]:
    """Run a query; return its rows with their start and end."""
    with trial() as t:
        t.stream("orders", "time bigint, user string, n bigint", time_unit="s")
        t.query("q", query)
        t.append("orders", records)
        t.finish("orders")
        t.run()
        assert not t.dead_letters()
        return [(tuple(row.values()), start, end) for row, start, end in t.query("q").intervals()]


def test_a_row_is_displaced_by_a_better_one() -> None:
    assert result("select user, n from orders order by n desc limit 2") == [
        (("a", 3), 1, 3),
        (("b", 5), 2, None),
        (("a", 5), 3, None),
    ]


def test_a_row_comes_back_when_a_better_one_ends() -> None:
    assert result("select n from orders [Range 3 seconds] order by n desc limit 1") == [
        ((3,), 1, 2),
        ((5,), 2, 5),
        ((5,), 5, None),
    ]


def test_nulls_are_last_unless_the_query_says_first() -> None:
    assert result("select n from orders [Rows 2] order by n limit 1")[-1] == ((1,), 5, None)
    assert result("select n from orders [Rows 2] order by n nulls first limit 1")[-1] == ((None,), 4, None)
    assert result("select n from orders order by n desc limit 1")[-1] == ((5,), 2, None)


def test_offset_skips_the_first_rows() -> None:
    assert result("select user, n from orders order by n desc limit 1 offset 1") == [
        (("a", 3), 2, 3),
        (("b", 5), 3, None),
    ]
    assert result("select n from orders order by 1 offset 3") == [((None,), 4, None), ((5,), 5, None)]


def test_ties_with_the_last_row_are_included() -> None:
    assert result("select user, n from orders order by n desc fetch first row with ties") == [
        (("a", 3), 1, 2),
        (("b", 5), 2, None),
        (("a", 5), 3, None),
    ]


def test_without_ties_the_other_columns_decide() -> None:
    assert result("select user, n from orders order by n desc limit 1")[-1] == (("a", 5), 3, None)
    assert result("select n, user from orders limit 1") == [((3, "a"), 1, 5), ((1, "b"), 5, None)]


def test_an_expression_that_is_not_selected_can_order() -> None:
    assert result("select user from orders order by -n, time desc limit 1") == [
        (("a",), 1, 2),
        (("b",), 2, 3),
        (("a",), 3, None),
    ]


def test_distinct_on_keeps_the_first_row_of_each_group() -> None:
    assert result("select distinct on (user) user, n from orders order by time desc") == [
        (("a", 3), 1, 3),
        (("b", 5), 2, 5),
        (("a", 5), 3, None),
        (("c", None), 4, None),
        (("b", 1), 5, None),
    ]
    assert result("select distinct on (user) user, n from orders order by time desc limit 1") == [
        (("a", 3), 1, 2),
        (("b", 5), 2, 3),
        (("a", 5), 3, 4),
        (("c", None), 4, 5),
        (("b", 1), 5, None),
    ]


def test_the_first_of_groups_and_of_set_operations() -> None:
    assert result("select user, count(*) as orders from orders group by user order by orders desc limit 1") == [
        (("a", 1), 1, 3),
        (("a", 2), 3, None),
    ]
    assert result("select n from orders union select n + 1 from orders order by n desc limit 1") == [
        ((4,), 1, 2),
        ((6,), 2, None),
    ]
    assert result("(select user from orders) limit 1") == [(("a",), 1, None)]


def test_the_first_rows_of_a_sub_query_can_be_joined_and_filtered() -> None:
    first = "(select user, n from orders order by n desc limit 2)"
    assert result(f"select user from {first} where n > 3") == [(("b",), 2, None), (("a",), 3, None)]
    assert result(f"select o.time from orders o where o.user in (select user from {first})")[-1] == ((5,), 5, None)


def test_istream_gives_the_rows_that_come_among_the_first() -> None:
    with trial() as t:
        t.stream("orders", "time bigint, user string, n bigint", time_unit="s")
        t.query("q", "Istream(select n from orders order by n desc limit 2)")
        t.append("orders", ORDERS)
        t.finish("orders")
        t.run()
        assert [tuple(row.values()) for row in t.query("q").rows()] == [(3, 1), (5, 2), (5, 3)]


@pytest.mark.parametrize("buckets", [1, 3])
def test_the_first_of_all_do_not_depend_on_buckets(buckets: int) -> None:
    """Below the one bucket of the result, each bucket leaves out early what cannot be among the first."""
    from dataclasses import replace

    with trial() as t:
        t.declaration = replace(t.declaration, buckets=buckets)
        t.stream("orders", "time bigint, user bigint, n bigint", time_unit="s")
        t.query(
            "q",
            "select user, sum(n) as total from orders group by user order by total desc, user fetch first 3 rows with ties",
        )
        t.append("orders", [{"time": at, "user": at * 7 % 11, "n": at % 5} for at in range(60)])
        t.finish("orders")
        t.run()
        totals: dict[int, int] = {}
        for at in range(60):
            totals[at * 7 % 11] = totals.get(at * 7 % 11, 0) + at % 5
            best = sorted(((-total, user) for user, total in totals.items()))[:3]
            found = sorted((-row["total"], row["user"]) for row in t.query("q").at(at))
            assert found == best, f"at {at}"


def test_results_at_an_instant_come_in_their_order() -> None:
    with trial() as t:
        t.stream("orders", "time bigint, user string, n bigint", time_unit="s")
        t.query("limited", "select user, n from orders order by n desc limit 3")
        t.query(
            "whole",
            "select user, count(*) as orders, max(n) as most from orders group by user order by 3 nulls first, user",
        )
        t.query("hidden", "select user from orders [Rows 3] order by user desc, -n")
        t.append("orders", ORDERS)
        t.finish("orders")
        t.run()
        assert [tuple(row.values()) for row in t.query("limited").at(5)] == [("a", 5), ("b", 5), ("a", 3)]
        assert [row["user"] for row in t.query("whole").at(5)] == ["c", "a", "b"]
        assert [row["user"] for row in t.query("hidden").at(5)] == ["c", "b", "a"]


FIRST = "select user as who, n from orders qualify row_number() over (partition by user order by n desc) = 1"


def test_the_values_of_shown_rows_are_in_the_state_once_and_survive_a_restore_at_any_step() -> None:
    stream = StreamDeclaration("orders", "time bigint, user string, n bigint", time="time", time_unit="s")
    (stage,) = plan(PipelineDeclaration("p", (stream,), (QueryDeclaration("q", FIRST),))).stages
    assert stage.kernel is not None
    records = pa.RecordBatch.from_pylist(
        [{"time": at, "user": "ab"[at % 2], "n": at * 7 % 11} for at in range(20)], schema=stream.arrow_schema
    )
    times = records.column("time").cast(pa.int64()).to_numpy() * 1_000_000
    rows = stage.inputs[0].map_side(records).rows
    rows = rows.append_column(TIME, pa.array(times)).append_column(OFFSET, pa.array(np.arange(20)))

    def results(restored: bool) -> tuple[list[dict[str, Any]], set[str]]:
        kernel, since, log, found = stage.kernel(0, 1), BEGINNING, [], []
        for version, first in enumerate(range(0, 20, 3), 1):
            if restored:
                kernel = stage.kernel(0, 1)
                for tuples, written in log:
                    kernel.restore(tuples.section, tuples.rows, written)
            clock = int(times[min(first + 2, 19)]) + 1
            outcome = kernel.process([rows.slice(first, 3)], since, clock, version)
            found += outcome.rows.to_pylist()
            log += [(tuples, version) for tuples in outcome.state]
            since = clock
        return found, {tuples.section for tuples, _ in log}

    found, sections = results(restored=False)
    assert results(restored=True) == (found, sections)
    assert len([row for row in found if row["valid_to"] is not None]) > 2
    assert not [section for section in sections if section.startswith("result")]


@pytest.mark.parametrize("query", [FIRST, "select user || 'x' as who, n from orders order by n desc limit 2"])
def test_rows_are_the_same_whether_their_columns_are_selected_or_computed(query: str) -> None:
    whole = [(tuple(row.values()), start, end) for row, start, end in results_in_pieces(query, len(ORDERS))]
    assert [
        (tuple(row.values()), start, end) for row, start, end in results_in_pieces(query, 1)
    ] == whole  # the end of a row is told in a later batch than its start


def results_in_pieces(query: str, count: int) -> list[tuple[dict[str, Any], int, int | None]]:
    with trial() as t:
        t.stream("orders", "time bigint, user string, n bigint", time_unit="s")
        t.query("q", query)
        for first in range(0, len(ORDERS), count):
            t.append("orders", ORDERS[first : first + count])
            t.run()
            t.restart()
        t.finish("orders")
        t.run()
        return [*t.query("q").intervals()]
