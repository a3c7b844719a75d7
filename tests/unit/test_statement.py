"""The text of a query: its parts and their places, and everything that is refused by name."""

from __future__ import annotations

import pytest

from hayase.core.errors import DeclarationError
from hayase.cql.statement import parse


def refusals(text: str) -> list[str]:
    with pytest.raises(DeclarationError) as caught:
        parse(text)
    return [str(each) for each in caught.value.mistakes]


def test_the_parts_and_where_they_stand() -> None:
    found = parse("select user_id,\n  amount * 2 as Twice -- why\nfrom events as e\nwhere e.amount > 1 and not x\n")
    assert [(each.part.text, each.part.line, each.part.column) for each in found.items] == [
        ("user_id", 1, 8),
        ("amount * 2", 2, 3),
    ]
    assert [each.alias for each in found.items] == [None, "Twice"]
    assert (found.stream.text, found.stream.line, found.stream.column, found.relation) == ("events", 3, 6, "e")
    assert found.where is not None
    assert (found.where.text, found.where.line, found.where.column) == ("e.amount > 1 and not x", 4, 7)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select (a + 1) * 2 from s", "(a + 1) * 2"),
        ("select +(a) from s", "+(a)"),
        ("select extract(year from t) from s", "extract(year from t)"),
        ("select a is distinct from l[1] from s", "a is distinct from l[1]"),
        ("select case when a then 'from' else 'where' end x from s", "case when a then 'from' else 'where' end"),
        ("select a::int from s", "a::int"),
        ("select {'k': [1, 2]}['k'] from s", "{'k': [1, 2]}['k']"),
        ("select list_transform(l, lambda x: x + 1) from s", "list_transform(l, lambda x: x + 1)"),
        ("select b: a || 'é' from s", "a || 'é'"),
        ("select a /* one */ + /* two */ b from s", "a /* one */ + /* two */ b"),
        ("from s select a not in (1, 2)", "a not in (1, 2)"),
    ],
)
def test_an_expression_stays_the_text_that_was_written(text: str, expected: str) -> None:
    assert parse(text).items[0].part.text == expected


def test_aggregates() -> None:
    found = parse("select k, count(*), count(all x) n, (SUM(a + 1)) as s from s group by k, lower(z)")
    aggregates = [each.aggregate for each in found.items]
    assert aggregates[0] is None
    assert [
        (each.function, each.argument.text if each.argument else None) for each in aggregates if each is not None
    ] == [("count", None), ("count", "x"), ("sum", "a + 1")]
    assert [each.text for each in found.group] == ["k", "lower(z)"]


def test_stars() -> None:
    assert [each.star for each in parse("select *, e.* from events e").items] == [True, True]


def test_equal_parts_are_recognised_whatever_their_layout() -> None:
    one, two, three = (each.part.canon for each in parse("select Lower( e.A ), lower(a), lower(b) from s e").items)
    assert one == two != three


def test_canon_knows_no_layout_comments_or_case_but_meaning() -> None:
    canon = parse("select a, 'X' from events where b > 1").canon
    assert parse("SELECT A,\n 'X'  -- c\nFROM Events WHERE b>1;").canon == canon
    assert parse("select a, 'x' from events where b > 1").canon != canon
    assert parse("select a, 'X' from events where b > 2").canon != canon
    assert parse("select e'A' as x from s").canon != parse("select e'a' as x from s").canon
    assert parse("select $$A$$ as x from s").canon != parse("select $$a$$ as x from s").canon


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select a\nfrom s\n join t on true", "3:2: joins are not supported yet"),
        ("select a from s, t", "1:16: joins are not supported yet"),
        ("select a from s [Range 10 minutes]", "1:17: windows in [brackets] are not supported yet"),
        ("select a from s [Now] e where e.a > 1", "1:17: windows in [brackets] are not supported yet"),
        ("select a from s e [Rows 3]", "1:19: windows in [brackets] are not supported yet"),
        ("select a from s [Partition By a, b Rows 3]", "1:17: windows in [brackets] are not supported yet"),
        ("select a[1] from s [x]", "1:20: windows in [brackets] are not supported yet"),
        ("select distinct a from s", "1:8: DISTINCT is not supported yet"),
        ("select a from s having a", "1:17: HAVING is not supported yet"),
        ("select a from s order by a", "1:17: ORDER BY is not supported yet"),
        ("select a from s limit 1", "1:17: LIMIT is not supported yet"),
        ("select a from s offset 1", "1:17: OFFSET is not supported yet"),
        ("select a from s union all select a from s", "1:17: UNION is not supported yet"),
        ("select a from s except select a from s", "1:17: EXCEPT is not supported yet"),
        ("select a from s intersect select a from s", "1:17: INTERSECT is not supported yet"),
        ("with t as (select 1) select a from t", "1:1: WITH is not supported yet"),
        ("select a from (select 1) t", "1:15: sub-queries in FROM are not supported yet"),
        ("select a from range(3)", "1:15: table functions are not supported yet"),
        ("select a from s qualify true", "1:17: QUALIFY is not supported yet"),
        ("select a from s tablesample 10%", "1:15: SAMPLE is not supported yet"),
        ("select a from s using sample 10%", "1:17: sampling is not supported yet"),
        ("select * exclude (a) from s", "1:8: * EXCEPT is not supported yet"),
        ("select sum(distinct a) from s group by b", "1:8: sum(DISTINCT ...) is not supported yet"),
        ("select sum(a order by b) from s group by b", "1:8: sum(ORDER ...) is not supported yet"),
        ("select count(*) filter (where a) from s", "1:8: FILTER on an aggregate is not supported yet"),
        ("select count(*) from s group by all", "1:24: GROUP BY ALL is not supported yet"),
        ("select count(*) from s group by rollup (a)", "1:24: GROUP BY ROLLUP is not supported yet"),
        ("select count(*) from s group by cube (a)", "1:24: GROUP BY CUBE is not supported yet"),
        ("Istream(select a from s)", "1:1: Istream is not supported yet"),
        ("select a from db.s", '1:15: "db.s" is not a stream; write its plain name'),
        ("select a", "1:1: a query needs a stream; write: select ... from ..."),
        ("delete from s", "1:1: a query begins with select; write: select ... from ..."),
        ("", "1:1: there is no query in this text; write: select ... from ..."),
        (
            "select a from s; select b from s",
            "1:1: one query is one statement; this text has several; write: select ... from ...",
        ),
        ("select sum(, a) from s group by b", '1:12: syntax error at or near ","'),
        ("select * a from s", "1:8: * AS is not supported yet"),
        (f"select {'(' * 500}a{')' * 500} from s", "1:1: the query is nested too deeply; cut it into several"),
        ("select 'a from s", "1:1: cannot read the query; is a quote left open?"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(text: str, expected: str) -> None:
    assert refusals(text) == [expected]


def test_what_cannot_be_read_is_placed() -> None:
    (message,) = refusals("select a\nfrom s where where")
    assert message.startswith('2:14: cannot read the query near "where"')


def test_all_refusals_are_told_in_the_order_of_the_text() -> None:
    found = refusals("select distinct a from s [Now] join t on true order by a limit 3")
    assert [each.split(":", 2)[2].split(" ")[1] for each in found] == ["DISTINCT", "windows", "joins", "ORDER", "LIMIT"]
