"""Streams inside of a query: unions of streams, Istream in FROM, windows behind sub-queries and relations, bare names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hayase.core.declarations import PipelineDeclaration, QueryDeclaration, StreamDeclaration
from hayase.core.errors import DeclarationError
from hayase.cql.explain import explain
from hayase.testing import trial

LEFT = [{"time": at, "k": "ab"[at % 2], "v": at} for at in (1, 2, 3, 5, 8)]
RIGHT = [{"time": at, "k": "a", "v": 10 * at} for at in (2, 4, 5)]


def intervals(query: str, **options: Any) -> list[tuple[Any, ...]]:
    """The rows of a result without hidden columns, each with its start and end, sorted."""
    with trial() as t:
        t.declaration = replace(t.declaration, buckets=options.pop("buckets", 2))
        pieces = options.pop("pieces", 2)
        for name in ("l", "r"):
            t.stream(name, "time bigint, k string, v bigint", time_unit="s")
        for name, text in options.items():
            t.query(name, text)
        t.query("q", query)
        for first in range(0, 5, pieces):
            for name, records in (("l", LEFT), ("r", RIGHT)):
                t.append(name, records[first : first + pieces])
            t.run()
            t.restart()
        for name in ("l", "r"):
            t.finish(name)
        t.run()
        assert not t.dead_letters()
        hidden = ("event_time", "changed_at")
        found = [
            (*(value for name, value in row.items() if name not in hidden), start, end)
            for row, start, end in t.query("q").intervals()
        ]
        return sorted(found, key=lambda row: (row[-2], repr(row)))


def same(one: str, other: str, **queries: str) -> None:
    """Two texts give the same, in any batches."""
    found = intervals(one, **queries)
    assert found
    assert found == intervals(other, **queries)
    assert found == intervals(one, buckets=1, pieces=5, **queries)


def test_a_union_of_streams_is_a_stream() -> None:
    union = "select k, v from l where v > 1 union all select k, v + 1 as v from r"
    found = intervals(union)
    assert [row[:3] for row in found] == [
        ("a", 2, 2), ("a", 21, 2), ("b", 3, 3), ("a", 41, 4), ("a", 51, 5), ("b", 5, 5), ("a", 8, 8),
    ]  # fmt: skip
    assert {end for *_, end in found} == {None}
    same(
        "select sum(v) as total from u [Rows 2]",
        "select sum(v) as total from (select k, v from l where v > 1 union all select k, v + 1 as v from r) [Rows 2]",
        u=union,
    )
    same(
        "select k, sum(v) as s from u [Range 2 seconds] group by k",
        "select k, sum(v) as s from (select k, v from l [Range 2 seconds] where v > 1 "
        "union all select k, v + 1 as v from r [Range 2 seconds]) group by k",
        u=union,
    )


def test_unions_of_named_streams() -> None:
    queries = {"x": "select k, v from l where k = 'a'", "y": "Istream(select k, count(*) as v from r group by k)"}
    same("select k, v from x union all select k, v from y", "x union all y", **queries)
    queries["u"] = "x union all y"
    same("Istream(select * from (x union all y) [Range 2 seconds])", "Istream(u [Range 2 seconds])", **queries)


def test_istream_in_from() -> None:
    counts = "select k, count(*) as n from l [Rows 3] group by k"
    query = "select k, max(n) as m from {} [Range 3 seconds] as x group by k"
    same(query.format(f"(Istream({counts}))"), query.format("i"), i=f"Istream({counts})")
    same(query.format(f"Istream({counts})"), query.format("i"), i=f"Istream({counts})")
    same(query.format(f"Dstream({counts})"), query.format("i"), i=f"Dstream({counts})")
    same(
        "select x.k, x.n, y.n as m from Rstream(select k, count(*) as n from l [Now] group by k) [Now] as x "
        "join Istream(select k, count(*) as n from r group by k) [Range 9 seconds] as y on x.k = y.k",
        "select x.k, x.n, y.n as m from x [Now] join y [Range 9 seconds] on x.k = y.k",
        x="Rstream(select k, count(*) as n from l [Now] group by k)", y="Istream(select k, count(*) as n from r group by k)",
    )  # fmt: skip
    assert intervals(f"select k from Istream({counts}) where n > 1") == intervals(
        "select k from i where n > 1", i=f"Istream({counts})"
    )
    deep = f"select count(*) as c from Istream(select k from Istream({counts}) [Rows 2] where n > 1) [Rows 5]"
    same(
        deep,
        "select count(*) as c from j [Rows 5]",
        i=f"Istream({counts})",
        j="Istream(select k from i [Rows 2] where n > 1)",
    )


def test_a_window_behind_a_relation_takes_its_rows_as_they_appear() -> None:
    totals = "select k, sum(v) as s from l [Range 3 seconds] group by k"
    wanted = "select max(s) as m, count(*) as n from i [Rows 3]"
    queries = {"totals": totals, "i": f"Istream({totals})"}
    same("select max(s) as m, count(*) as n from totals [Rows 3]", wanted, **queries)
    same(f"select max(s) as m, count(*) as n from ({totals}) [Rows 3]", wanted, **queries)
    same(f"with t as ({totals}) select max(s) as m, count(*) as n from t [Rows 3]", wanted, **queries)


def test_windows_behind_plain_sub_queries() -> None:
    same("select sum(v) as s from (select v from l where k = 'a') [Rows 2]", "select sum(v) as s from x [Rows 2]",
         x="select v from l where k = 'a'")  # fmt: skip
    same("select k, sum(v) as s from (select k, v from l) as x [Partition By k Rows 2] group by k",
         "select k, sum(v) as s from l [Partition By k Rows 2] group by k")  # fmt: skip
    same("select a, count(*) as n from (select k, v from l) [Rows 4] as x(a, b) where b > 1 group by a",
         "select k as a, count(*) as n from l [Rows 4] where v > 1 group by k")  # fmt: skip
    same("with x as (select v from l where v > 1) select window_end, count(*) as n from x [Tumble 4 seconds] group by window_end",
         "select window_end, count(*) as n from l [Tumble 4 seconds] where v > 1 group by window_end")  # fmt: skip
    same("with x as (select time, v from l) select window_end, sum(v) as n "
         "from TUMBLE(TABLE x, DESCRIPTOR(time), INTERVAL '4' SECONDS) group by window_end",
         "select window_end, sum(v) as n from l [Tumble 4 seconds] group by window_end")  # fmt: skip
    same("select sum(v) as s from (select v, time - 1 as event_time from l) [Range 3 seconds]",
         "select sum(v) as s from x [Range 3 seconds]", x="select v, time - 1 as event_time from l")  # fmt: skip
    same("select row_number() over (order by event_time) as n, v from Istream(select v from l [Rows 1])",
         "select row_number() over (order by time) as n, v from l")  # fmt: skip


def test_windows_over_windows() -> None:
    minutes = (
        "Istream(select window_start as event_time, k, sum(v) as s from l [Tumble 2 seconds] group by window_start, k)"
    )
    inner = "select window_start as first, k, sum(v) as s from l [Tumble 2 seconds] group by window_start, k"
    with pytest.raises(DeclarationError, match="the event time of these results is when rows appear"):
        intervals(minutes)
    over = "select k, sum(s) as total from {} [Tumble 4 seconds Offset 1 second] group by window_end, k"
    same(over.format(f"Istream({inner})"), over.format("inside"), inside=inner)
    whole = "select k, sum(v) as total from l [Tumble 4 seconds] group by window_end, k"
    assert [row[:2] for row in intervals(over.format(f"({inner})"))] == [row[:2] for row in intervals(whole)]


@pytest.mark.parametrize(
    ("bare", "full"),
    [
        ("l union all r", "select * from l union all select * from r"),
        ("l [Rows 2] union r [Rows 2]", "select * from l [Rows 2] union select * from r [Rows 2]"),
        ("l [Range 2 seconds] except all x", "select * from l [Range 2 seconds] except all select * from x"),
        ("select k from x intersect y [Now]", "select k from x intersect select * from y [Now]"),
        ("Istream(l [Rows 1] except r [Rows 1])", "Istream(select * from l [Rows 1] except select * from r [Rows 1])"),
        ("Rstream(l [Now])", "Rstream(select * from l [Now])"),
        ("l [Rows 2]", "select * from l [Rows 2]"),
        (
            "select v from (l union all r) where v > 3",
            "select v from l where v > 3 union all select v from r where v > 3",
        ),
    ],
)
def test_bare_names(bare: str, full: str) -> None:
    same(bare, full, x="select time, k, v from l [Range 1 second]", y="select k from l")


def test_the_logical_plan_shows_what_is_inside() -> None:
    stream = StreamDeclaration("l", "time timestamp, k string, v bigint", time="time")
    text = "select max(n) as m from Istream(select k, count(*) as n from l [Rows 3] group by k) [Range 3 seconds]"
    shown = explain(PipelineDeclaration("p", (stream,), (QueryDeclaration("q", text),)), "q")
    assert "    Source _q_s1 as subquery [Range 3 s]\n        Istream\n          Project" in shown.replace(
        "      Source", "    Source"
    )
    assert "Stage _q_s1:" in shown
    view = "select sum(v) as s from (select v from l where k = 'a') [Rows 2]"
    shown = explain(PipelineDeclaration("p", (stream,), (QueryDeclaration("q", view),)), "q")
    assert "input 0: stream l, through view _q_s1" in shown
    assert "Stage _q_s1" not in shown


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select a from l where v in Istream(select v from r)", "1:28: Istream must enclose a whole query, once"),
        ("select * from (select k, v as valid_to from l) [Rows 2]", "is reserved for the lifetime of a row"),
        ("select * from (l join r on l.k = r.k) [Rows 2]", "a window after a joined relation is not supported"),
        ("l union all nothing", '1:13: unknown stream "nothing"'),
        ("l union all r order by", "1:"),
    ],
)
def test_what_is_refused(query: str, message: str) -> None:
    with pytest.raises(DeclarationError) as error:
        intervals(query)
    assert message in str(error.value)
