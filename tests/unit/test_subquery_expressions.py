"""Sub-queries inside expressions: scalar ones, and EXISTS and IN anywhere."""

from __future__ import annotations

from typing import Any

import pytest

from hayase.core.errors import DeclarationError
from hayase.testing import at, trial

STREAMS = {
    "s": [(0, "a", 1), (1, "b", 5), (2, "a", 3), (3, None, 9)],
    "t": [(0, "a", 2), (1, "a", 4), (2, "c", None)],
}


def rows(text: str, instant: int = 4) -> list[dict[str, Any]]:
    """Return the rows of a query over the streams at a second, in any order but the same each time."""
    with trial() as t:
        for name, records in STREAMS.items():
            t.stream(name, "time timestamp, k string, x bigint")
            t.append(name, [{"time": at(second), "k": k, "x": x} for second, k, x in records])
        t.stream("end", "time timestamp")
        t.append("end", [{"time": at(9)}])
        t.query("q", text.replace(" s ", " s [Range 100 seconds] ").replace(" t ", " t [Range 100 seconds] "))
        for name in (*STREAMS, "end"):
            t.finish(name)
        t.run()
        assert t.dead_letters() == []
        return sorted(t.query("q").at(at(min(instant, 3))), key=repr)


def values(text: str, instant: int = 4) -> list[Any]:
    return [next(iter(row.values())) if len(row) == 1 else tuple(row.values()) for row in rows(text, instant)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select x from s where x > (select avg(x) from t )", [5, 9]),
        ("select x, (select count(*) from t where x > 100) as n from s where k = 'b'", [(5, 0)]),
        ("select x, (select max(x) from t ) - x as d from s where k = 'a'", [(1, 3), (3, 1)]),
        ("select x, (select max(x) from t where t.k = s.k) as m from s ", [(1, 4), (3, 4), (5, None), (9, None)]),
        ("select x, (select count(*) + 1 from t where t.k = s.k) as n from s ", [(1, 3), (3, 3), (5, 1), (9, 1)]),
        ("select x from s where x < (select sum(u.x) from t as u where u.k = s.k and u.x > 2)", [1, 3]),
        ("select x, (select x from t where k = 'c') as m from s where k = 'b'", [(5, None)]),
        ("select x, (select time from t where k = 'z') is null as m from s where k = 'b'", [(5, True)]),
        ("select x, (select t.x from t where t.k = s.k and t.x = s.x + 1) as m from s where k = 'a'", [(1, 2), (3, 4)]),
        ("select x from s where k = 'b' or exists (select 1 from t where t.k = s.k)", [1, 3, 5]),
        ("select x from s where k = 'b' or not exists (select 1 from t where t.x > s.x)", [5, 9]),
        ("select x, exists (select 1 from t where t.k = s.k) as e from s ", [(1, True), (3, True), (5, False), (9, False)]),
        ("select x from s where x = 9 or k in (select k from t )", [1, 3, 9]),
        ("select 7 as n from (select k, x from s where x = 9 or exists (select 1 from t where t.k = s.k)) as u", [7, 7, 7]),
        ("select x from s where x = 9 or k not in (select k from t )", [5, 9]),
        ("select x, k in (select k from t ) as m from s ", [(1, True), (3, True), (5, False), (9, None)]),
        ("select x, x not in (select x from t ) as m from s where k = 'a'", [(1, None), (3, None)]),
        ("select x from s where not (k in (select k from t ) or x = 9)", [5]),
        ("select k, sum(x) as n, (select count(*) from t ) as c from s group by k", [("a", 4, 3), ("b", 5, 3), (None, 9, 3)]),
        ("select k from s group by k having sum(x) > (select max(x) from t )", ["b", None]),
        ("select count(*) + (select max(x) from t ) as n from s ", [8]),
        ("select sum(x - (select min(x) from t )) as n from s ", [10]),
        ("select count(*) as n, (select max(x) from t ) as m from s where x > 100", [(0, 4)]),
        ("select (select max(n) from (select k, count(*) as n from t group by k) as g) as m from s where k = 'b'", [2]),
        ("select x from s where x = (select max(x) from s where x < (select max(x) from s ))", [5]),
        ("with w as (select max(x) as m from t ) select x from s where x > (select m from w)", [5, 9]),
    ],
)  # fmt: skip
def test_the_rows_of_a_snapshot(text: str, expected: list[Any]) -> None:
    assert values(text) == expected


def test_a_scalar_sub_query_changes_with_its_relation() -> None:
    with trial() as t:
        t.stream("s", "time timestamp, x bigint")
        t.query("q", "select (select max(x) from s [Range 2 seconds]) as m, count(*) as n from s [Rows 1]")
        t.append("s", [{"time": at(i), "x": x} for i, x in enumerate([5, 1, 2, 3])])
        t.finish("s")
        t.run()
        found = [(row["m"], row["n"], start, end) for row, start, end in t.query("q").intervals()]
        assert [(m, n) for m, n, _, _ in found] == [(5, 1), (2, 1), (3, 1)]


def test_several_rows_are_reported() -> None:
    with trial() as t:
        t.stream("s", "time timestamp, x bigint")
        t.query("q", "select x, (select x from s [Rows 2]) as m from s [Rows 1]")
        t.append("s", [{"time": at(i), "x": i} for i in range(2)])
        t.finish("s")
        t.run()
        assert t.at("q") == [{"x": 1, "m": None}]
        (letter,) = t.dead_letters()
        assert "a scalar sub-query gives more than one row" in letter["reason"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select (select x, k from t ) as m from s ", "1:8: a scalar sub-query selects one column; select one"),
        ("select x from s where x > (select max(x) from t where t.x < s.x)", "1:.*by equality only; write inner = outer"),
        ("select x from s where x > (select z from t )", '1:.*unknown column "z" in "t"'),
        ("select s.x from s left join t on s.x = (select 1 from t )", "a sub-query in ON of a join that is not .* filter a side"),
        ("select k, count(*) as n from s group by k having k in (select k from t )", "beside GROUP BY .* put the grouped query"),
        ("select x from s where x = any (select x from t )", "ANY or ALL with a sub-query is not supported; use IN or EXISTS"),
        ("select x,\n (select max(x)\n from t ) + z as m from s ", '3:.*unknown column "z" in "s"'),
    ],
)  # fmt: skip
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        rows(text)
