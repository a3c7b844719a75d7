"""OVER in stream mode: one result for each record, by example, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hayase.core.declarations import PipelineDeclaration, QueryDeclaration, StreamDeclaration
from hayase.core.errors import DeclarationError
from hayase.cql.explain import explain
from hayase.lifetimes.plans import Frame, RunningCall, RunningOver, Unbounded, Windowed
from hayase.lifetimes.relations import OPEN, Delta, Span
from hayase.lifetimes.running_over import RunningOverOperator
from hayase.testing import trial

ORDERS = [
    {"time": 1, "user": "a", "n": 3},
    {"time": 2, "user": "b", "n": 5},
    {"time": 2, "user": "a", "n": 4},
    {"time": 2, "user": "a", "n": None},
    {"time": 4, "user": "b", "n": 2},
    {"time": 7, "user": "a", "n": 1},
]


def results(query: str, buckets: int = 1, pieces: int = 2, **others: str) -> list[tuple[Any, ...]]:
    """Run a query over the orders, appended in pieces; return its records without their time, in order."""
    with trial() as t:
        t.declaration = replace(t.declaration, buckets=buckets)
        t.stream("orders", "time bigint, user string, n bigint", time_unit="s")
        for name, text in others.items():
            t.query(name, text)
        t.query("q", query)
        for first in range(0, len(ORDERS), pieces):
            t.append("orders", ORDERS[first : first + pieces])
            t.run()
            t.restart()
        t.finish("orders")
        t.run()
        assert not t.dead_letters()
        names = t.query("q").log.declaration.arrow_schema.names
        kept = [name for name in names if name not in ("changed_at", "row_id", "valid_from", "valid_to")]
        return [tuple(row[name] for name in kept) for row, _, _ in t.query("q").intervals()]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("row_number() over (order by time)", [1, 2, 3, 4, 5, 6]),
        ("row_number() over (partition by user order by event_time)", [1, 1, 2, 3, 2, 4]),
        ("rank() over (order by time)", [1, 2, 2, 2, 5, 6]),
        ("dense_rank() over (partition by user order by time)", [1, 1, 2, 2, 2, 3]),
        ("lag(n) over (partition by user order by time)", [None, None, 3, 4, 5, None]),
        ("lag(n, 2, -1) over (order by time)", [-1, -1, 3, 5, 4, None]),
        ("first_value(n) over (partition by user order by time)", [3, 5, 3, 3, 5, 3]),
        ("last_value(n) over (order by time)", [3, None, None, None, 2, 1]),
        ("last_value(n ignore nulls) over (order by time)", [3, 4, 4, 4, 2, 1]),
        ("last_value(user) over (order by time rows 1 preceding)", ["a", "b", "a", "a", "b", "a"]),
        ("nth_value(n, 2) over (order by time)", [None, 5, 5, 5, 5, 5]),
        ("nth_value(user, 2) over (order by time rows between 2 preceding and current row)", [None, "b", "b", "a", "a", "b"]),
        ("sum(n) over (order by time)", [3, 12, 12, 12, 14, 15]),
        ("sum(n) over (order by time rows unbounded preceding)", [3, 8, 12, 12, 14, 15]),
        ("sum(n) over (order by time rows between 1 preceding and current row)", [3, 8, 9, 4, 2, 3]),
        ("sum(n) over (order by time range between 2 preceding and current row)", [3, 12, 12, 12, 11, 1]),
        ("sum(n) over (order by time range between interval '2 seconds' preceding and current row)", [3, 12, 12, 12, 11, 1]),
        ("count(*) over (partition by user order by time range interval 3 seconds preceding)", [1, 1, 3, 3, 2, 1]),
        ("count(*) over (partition by user order by time range current row)", [1, 1, 2, 2, 1, 1]),
        ("count(*) filter (where n > 2) over (order by time)", [1, 3, 3, 3, 3, 3]),
        ("max(user) over (order by time rows 1 preceding)", ["a", "b", "b", "a", "b", "b"]),
        ("avg(n) over (partition by user order by time rows 1 preceding)", [3.0, 5.0, 3.5, 4.0, 3.5, 1.0]),
        ("2 * count(n) over (order by time) + n", [5, 11, 10, None, 10, 11]),
    ],
)  # fmt: skip
def test_functions(call: str, expected: list[Any]) -> None:
    assert results(f"select {call} as f from orders") == [(value,) for value in expected]


def test_records_do_not_depend_on_batches_and_buckets() -> None:
    query = (
        "select user, n, sum(n) over (partition by user order by time range between 3 preceding and current row) as f, "
        "row_number() over (partition by user order by time) as r from orders"
    )
    whole = results(query, pieces=6)
    assert whole[:3] == [("a", 3, 3, 1), ("b", 5, 5, 1), ("a", 4, 7, 2)]
    assert sorted(map(repr, whole)) == sorted(map(repr, results(query, buckets=4, pieces=1)))


def test_different_partitions_in_one_select_keep_the_order_of_the_stream() -> None:
    query = (
        "select row_number() over (partition by user order by time) as a, lag(user) over (order by time) as b, "
        "count(*) over (partition by n order by time rows unbounded preceding) as c from orders"
    )
    wanted = [(1, None, 1), (1, "a", 1), (2, "b", 1), (3, "a", 1), (2, "a", 1), (4, "b", 1)]
    assert results(query, buckets=3) == wanted


def test_where_comes_before_and_qualify_after() -> None:
    assert results("select n, row_number() over (order by time) as r from orders where user = 'a'") == [
        (3, 1), (4, 2), (None, 3), (1, 4),
    ]  # fmt: skip
    first = "select user, n from orders qualify row_number() over (partition by user order by time) = 1"
    assert results(first) == [("a", 3), ("b", 5)]
    assert results(
        "select user, n from (select *, row_number() over (partition by user order by time) as r from orders) where r = 1"
    ) == [("a", 3), ("b", 5)]
    assert results("select lag(s) over (order by time) as f from (select time, n + 1 as s from orders where n > 1)") == [
        (None,), (4,), (6,), (5,),
    ]  # fmt: skip


def test_the_result_is_a_stream_that_others_read_through_windows() -> None:
    numbered = "select user, row_number() over (partition by user order by time) as r from orders"
    assert results("select user, max(r) as m from numbered [Rows 2] group by user", numbered=numbered)[-1] == ("a", 4)
    found = results(
        "select user, r, count(*) over (order by event_time) as c from numbered where r > 1", numbered=numbered
    )
    assert sorted(found) == [("a", 2, 2), ("a", 3, 2), ("a", 4, 4), ("b", 2, 3)]


def test_a_record_whose_sum_does_not_fit_is_refused() -> None:
    with trial() as t:
        t.stream("s", "time bigint, n bigint", time_unit="s")
        t.query("q", "select n, sum(n) over (order by time rows 1 preceding) as total from s")
        t.append("s", [{"time": at, "n": n} for at, n in enumerate((1, 2**63 - 1, 5, 6))])
        t.finish("s")
        t.run()
        assert [(row["n"], row["total"]) for row, _, _ in t.query("q").intervals()] == [(1, 1), (6, 11)]
        assert [letter["kind"] for letter in t.dead_letters()] == ["overflow", "overflow"]
        assert str(2**63 - 1) in t.dead_letters()[0]["record"]


def test_partitions_that_have_left_their_frames_are_forgotten() -> None:
    schema = pa.schema([("k", pa.int64()), ("x", pa.float64())])
    call = RunningCall("f", "sum", ("x",), Frame("range", 5, peers=True))
    node = RunningOver(Windowed(0, Unbounded(), schema), ("k",), (call,), pa.schema([*schema, ("f", pa.float64())]))
    operator = RunningOverOperator(node)
    for step in range(8):
        numbers = np.arange(1500 * step, 1500 * (step + 1))
        rows = pa.record_batch({"k": pa.array(numbers % 3000), "x": pa.array(0.1 * (numbers % 7))})
        times = numbers // 4
        delta = Delta(rows, times, np.full(1500, OPEN), numbers)
        found = operator.advance([delta], Span(375 * step, 375 * (step + 1), step)).delta
        assert found.rows.column("f").equals(rows.column("x"))
        assert operator.size("rows") <= 3024


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("lead(n) over (order by time)", "lead over a stream needs records that have not come yet"),
        ("ntile(2) over (order by time)", "ntile over a stream needs records"),
        (
            "sum(n) over (order by time rows between 1 preceding and 1 following)",
            "FOLLOWING over a stream needs records",
        ),
        ("sum(n) over (order by time rows between 3 preceding and 1 preceding)", "ends at CURRENT ROW"),
        ("sum(n) over (order by time groups 2 preceding)", "GROUPS with a number over a stream is not supported"),
        ("sum(n) over (order by time range interval '1 month' preceding)", '"1 month" is not a duration'),
        ("sum(n) over (order by time range interval '1 ms' preceding)", "event times are whole numbers of 1 s"),
        ("count(distinct n) over (order by time)", "count(DISTINCT ...) over a stream is not supported"),
        ("lag(n, n) over (order by time)", "a whole number from 0 on"),
        ("row_number() over (order by time, n)", "an order by more than event time"),
        ("row_number() over (order by time), sum(n) over (order by n)", "not ordered by event time beside one that is"),
        ("lag(n ignore nulls) over (order by time)", "lag with IGNORE NULLS over a stream is not supported"),
        ("sum(user) over (order by time)", "there is no sum of a string"),
        ("median(n) over (order by time)", "median with OVER is not supported"),
    ],
)
def test_what_is_refused(call: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=r"1:\d+") as error:
        results(f"select {call} from orders")
    assert message in str(error.value)


def test_explain_says_what_is_kept() -> None:
    orders = StreamDeclaration("orders", "time timestamp, user string, n bigint", time="time")
    text = (
        "select user, row_number() over w as r, sum(n) over w as total, "
        "avg(n) over (w range interval '10 minutes' preceding) as recent from orders "
        "window w as (partition by user order by time)"
    )
    shown = explain(PipelineDeclaration("p", (orders,), (QueryDeclaration("q", text),)), "q")
    assert "Stage q: in all buckets" in shown
    assert "Over by orders.user, one result for each record" in shown
    for how in ("(counted)", "(running total)", "(fold of the last 10 minutes)"):
        assert how in shown
    assert "output: stream q (" in shown


def test_named_windows() -> None:
    query = (
        "select sum(n) over w as a, lag(n) over (w) as b, count(*) over (v order by time rows 1 preceding) as c, "
        "max(n) over x as d from orders window v as (partition by user), w as (v order by time), "
        "x as (order by time rows between 2 preceding and current row) qualify row_number() over w > 1"
    )
    assert results(query) == [(7, 3, 2, 5), (7, 4, 2, 5), (7, 5, 2, 4), (8, None, 2, 2)]
