"""Grouping sets, column aliases, natural joins, unions by name, constants and lists as rows: what they stand for."""

# ruff: noqa: E501 - a query and its rows stand on one line

from __future__ import annotations

from typing import Any

import pytest

from hayase.testing import at, trial

S = [("a", 1, 10), ("a", 2, 20), ("b", 1, 40)]
T = [("a", 5), ("c", 6)]


def values(text: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query over the streams at the end, without any order of their own."""
    with trial() as t:
        t.stream("s", "time timestamp, k string, n bigint, x bigint")
        t.stream("t", "time timestamp, k string, y bigint")
        t.query("q", text.replace(" s ", " s [Range 100 seconds] ").replace(" t ", " t [Range 100 seconds] "))
        t.append("s", [{"time": at(0), "k": k, "n": n, "x": x} for k, n, x in S])
        t.append("t", [{"time": at(0), "k": k, "y": y} for k, y in T])
        t.finish("s")
        t.finish("t")
        t.run()
        return sorted((tuple(row.values()) for row in t.at("q")), key=repr)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select k, sum(x) as v from s group by rollup (k)", [("a", 30), ("b", 40), (None, 70)]),
        (
            "select k, n, sum(x) as v, grouping(k, n) as g from s group by grouping sets ((k), (n), ())",
            [("a", None, 30, 1), ("b", None, 40, 1), (None, 1, 50, 2), (None, 2, 20, 2), (None, None, 70, 3)],
        ),
        (
            "select k, n + 1 as m, count(*) as v from s group by cube (k, n + 1) having count(*) > 1",
            [("a", None, 2), (None, 2, 2), (None, None, 3)],
        ),
        ("select k, n, max(x) as v from s group by k, rollup (n) having k = 'b'", [("b", 1, 40), ("b", None, 40)]),
        ("select k, n, count(*) as v from s group by grouping sets ((k, n), (k)) having grouping(n) = 1", [("a", None, 2), ("b", None, 1)]),
        ("select k, list(x) as v from s group by rollup (1)", [("a", [10, 20]), ("b", [40]), (None, [10, 20, 40])]),
        ("select count(*) as v from s where x > 100 group by rollup (k)", [(0,)]),
        ("select k, n % 2 as odd, count(*) as v from s group by all", [("a", 0, 1), ("a", 1, 1), ("b", 1, 1)]),
        ("select b, sum(d) as v from s as r(a, b, c, d) group by b", [("a", 30), ("b", 40)]),
        ("select b, v from (select k, sum(x) from s group by k) as g(b, v)", [("a", 30), ("b", 40)]),
        ("with g(b, v) as (select k, sum(x) from s group by k) select g.b, h.w from g join g as h(b, w) on g.b = h.b", [("a", 30), ("b", 40)]),
        ("select k, v, y from (select k, sum(x) as v from s group by k) as g natural join (select k, y from t ) as u", [("a", 30, 5)]),
        ("select * from (select k, y from t ) as u natural left join (select k, count(*) as v from s group by k) as g", [("a", 5, 2), ("c", 6, None)]),
        ("select k, x from s union all by name select y as x, k from t ", [("a", 10), ("a", 20), ("a", 5), ("b", 40), ("c", 6)]),
        ("select k, n from s where x = 40 union all by name select y, k from t ", [("a", None, 5), ("b", 1, None), ("c", None, 6)]),
        ("select 1 as a, 'x' as b union all select x, k from s where x = 40", [(1, "x"), (40, "b")]),
        ("select s.k, v.name from s join (values (1, 'one'), (2, 'two')) as v(n, name) on s.n = v.n where x > 10", [("a", "two"), ("b", "one")]),
        ("select * exclude (time, n), n * 2 as m from s where x > 10", [("a", 20, 4), ("b", 40, 2)]),
        ("select s.* exclude time replace (x + 1 as x) rename (k as key) from s where x > 10", [("a", 2, 21), ("b", 1, 41)]),
        ("select * exclude (time) from (select k, time, sum(x) as v from s group by k, time) as g", [("a", 30), ("b", 40)]),
        ("select * exclude (k, n, time) from s join t using (k)", [(10, 5), (20, 5)]),
        ("select k, (select 5 + 1) as v from s where x > 10", [("a", 6), ("b", 6)]),
        ("values (1, 2.5), (3, 4) union all select n, x from s where k = 'b'", [(1, 2.5), (1, 40.0), (3, 4.0)]),
        ("select 7 as v from (select count(*) as n from s ) as u", [(7,)]),
        ("select k, unnest([n, x]) as v from s where k = 'a'", [("a", 1), ("a", 10), ("a", 2), ("a", 20)]),
        ("select k, v from s , unnest([n, x]) as u(v) where v > 15", [("a", 20), ("b", 40)]),
        ("select v, count(*) as c from s as r cross join unnest([r.n, r.n]) as u(v) group by v", [(1, 4), (2, 2)]),
        ("select k, unnest(l) + 1 as v from (select k, list(n) as l from s group by k) as g", [("a", 2), ("a", 3), ("b", 2)]),
        ("select s.x, t.y from s join t on s.k = t.k and exists (select 1 from s as r where r.x > s.x and r.n > s.n)", [(10, 5)]),
        ("select s.x, t.y from s join t on s.x > t.y and s.k not in (select k from t as u where u.y = 5)", [(40, 5), (40, 6)]),
        ("select s.x, t.y from s join t on s.x = (select max(x) from s as r where r.k = t.k)", [(20, 5)]),
        ("select s.x, t.y from s join t on s.k = t.k or s.x = (select max(x) from s )", [(10, 5), (20, 5), (40, 5), (40, 6)]),
        ("select s.x, t.y, u.y as z from s join t on s.k = t.k and s.x in (select max(x) from s group by k) left join t as u on u.y > t.y", [(20, 5, 6)]),
        ("select s.x, t.y from s asof join t on s.k = t.k and s.x >= t.y", [(10, 5), (20, 5)]),
        ("select x, y from s asof left join t on t.y >= s.n", [(10, 5), (20, 5), (40, 5)]),
        ("select x, y from s asof left join t on t.k > s.k", [(10, 6), (20, 6), (40, 6)]),
        ("select k, y, x from t asof left join (select k, n as y, x from s ) as r using (k, y)", [("a", 5, 20), ("c", 6, None)]),
        ("select s.x, r.x as y from s asof join s as r on s.k = r.k and s.n > r.n", [(20, 10)]),
        ("select s.x, r.y from s asof join (select 1 as n, y from t ) as r on s.n <= r.n", [(10, 5), (40, 5)]),
        ("select k from s union by name select k from t ", [("a",), ("b",), ("c",)]),
        ("from (select k from s ) as u union from (select k from t ) as v", [("a",), ("b",), ("c",)]),
        ("with a as (select k from s ), b as (select k from t ) from a except from b", [("b",)]),
    ],
)  # fmt: skip
def test_the_rows_of_a_snapshot(text: str, expected: list[Any]) -> None:
    assert values(text) == expected
