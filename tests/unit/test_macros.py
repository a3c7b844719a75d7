"""SQL functions of one's own: what a call stands for, and where its mistakes are."""

from __future__ import annotations

from typing import Any

import pytest

from hayase.core.errors import DeclarationError, Mistake
from hayase.core.function_data import declared_function
from hayase.cql.macros import Macros
from hayase.testing import Trial, at, trial

FUNCTIONS = {
    "vat": {"sql": "x * 1.1 -- tax"},
    "gross": {"sql": "vat(net) + fee", "arguments": ["net", "fee"]},
    "spread": {"sql": "max(x) - min(x)"},
    "shifted": {"sql": "list_transform(l, lambda y: y + x)"},
    "one": {"sql": "1"},
    "full": {"sql": "p.first || ' ' || p.last"},
    "weekend": {"sql": "day in ('sat', 'sun')"},
    "pct": {"sql": "100.0 * part / whole", "arguments": "part, whole"},
}


def macros(**more: str) -> Macros:
    data: dict[str, Any] = {**FUNCTIONS, **{name: {"sql": sql} for name, sql in more.items()}}
    return Macros([declared_function(name, fields) for name, fields in data.items()])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select vat(a) from s", "select (a * 1.1) from s"),
        ("select VAT(a+b)/2 from s", "select ((a+b) * 1.1)/2 from s"),
        ("select gross(sum(a), vat(b)) from s", "select (((sum(a)) * 1.1) + ((b * 1.1))) from s"),
        ("select spread(s.a) from s group by vat(k)", "select (max(s.a) - min(s.a)) from s group by (k * 1.1)"),
        ("select one() + one() from s", "select (1) + (1) from s"),
        ("select full(s.person) from s", "select (s.person.first || ' ' || s.person.last) from s"),
        ("select full(people[1]) from s", "select ((people[1]).first || ' ' || (people[1]).last) from s"),
        ("select not weekend(d) from s", "select not (d in ('sat', 'sun')) from s"),
        ("select pct(a, (select max(b) from t)) from s", "select (100.0 * a / ((select max(b) from t))) from s"),
        ("select 'vat(x)', x.vat, vat from s -- vat(x)", "select 'vat(x)', x.vat, vat from s -- vat(x)"),
        ("with vat(a) as (select 1) select a from vat", "with vat(a) as (select 1) select a from vat"),
        ("select a from s as vat(a, b)", "select a from s as vat(a, b)"),
        ("select vat('it''s', ", "select vat('it''s', "),
        ("select vat(x from s", "select vat(x from s"),
    ],
)
def test_what_a_call_stands_for(text: str, expected: str) -> None:
    assert macros().expand(text).text == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shifted(l, 1)", "(list_transform(l, lambda y: y + 1))"),
        ("shifted(l, y)", "(list_transform(l, lambda y_1: y_1 + y))"),
        ("shifted(l, s.y + y_1)", "(list_transform(l, lambda y_2: y_2 + (s.y + y_1)))"),
        ("list_transform(m, lambda y: shifted(l, y))", "list_transform(m, lambda y: (list_transform(l, lambda y_1: y_1 + y)))"),
    ],
)  # fmt: skip
def test_names_are_not_captured(text: str, expected: str) -> None:
    assert macros().expand(text).text == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select vat() from s", "1:8: vat takes 1 argument (x), and is given none; vat(x) stands for x * 1.1"),
        (
            "select\n  vat(a, b) from s",
            "2:3: vat takes 1 argument (x), and is given 2; vat(x) stands for x * 1.1",
        ),
        ("select one(2) from s", "1:8: one takes no arguments, and is given 1; one() stands for 1"),
        ("select pct(a,) from s", "1:8: pct takes 2 arguments (part, whole), and is given 2"),
        ("select vat(x := a) from s", "1:8: vat takes no named arguments; write them in order"),
        (
            "select spread(a) over () from s",
            "1:8: spread is not an aggregate, and has no OVER; write the expression itself",
        ),
        ("select spread(a) filter (where b) from s", "1:8: spread is not an aggregate, and has no FILTER; write"),
        ("select again(a) from s", "1:8: the function again has a mistake; correct it first"),
    ],
)
def test_mistakes_in_calls(text: str, message: str) -> None:
    with pytest.raises(DeclarationError) as error:
        macros(again="1 + again(x)").expand(text)
    assert str(error.value).startswith(message), str(error.value)


def test_recursion_is_refused_by_name() -> None:
    found = macros(a="b(x)", b="c(x) + 1", c="a(x)", d="c(x)", e="vat()").mistakes
    assert [(name, str(mistake)) for name, mistake in found] == [
        (
            "a",
            "the function a calls itself: a -> b -> c -> a; SQL functions cannot be recursive, a Python function can",
        ),
        (
            "b",
            "the function b calls itself: b -> c -> a -> b; SQL functions cannot be recursive, a Python function can",
        ),
        (
            "c",
            "the function c calls itself: c -> a -> b -> c; SQL functions cannot be recursive, a Python function can",
        ),
        ("d", '1:1: function "d": it calls c, which calls itself'),
        ("e", '1:1: function "e": vat takes 1 argument (x), and is given none; vat(x) stands for x * 1.1'),
    ]


def test_every_place_of_the_new_text_has_one_in_the_text_as_written() -> None:
    written = "select\n  gross(a + b, vat(c)) + foo(d)\nfrom s"
    expansion = macros().expand(written)
    for word, line, column, noted in (
        ("foo", 2, 26, False),
        ("a + b", 2, 9, False),
        ("c * 1.1", 2, 20, False),
        ("1.1", 2, 3, True),
        ("from", 3, 1, False),
    ):
        offset = expansion.text.index(word)
        before = expansion.text[:offset]
        place = Mistake("m", line=before.count("\n") + 1, column=offset - before.rfind("\n"))
        found = expansion.placed(place)
        assert (found.line, found.column) == (line, column), word
        assert ("gross(net, fee) stands for vat(net) + fee" in found.message) == noted


@pytest.fixture
def t() -> Any:
    with trial() as made:
        made.stream("s", "time timestamp, k string, a bigint, l array<bigint>")
        for name, fields in FUNCTIONS.items():
            made.function(name=name, **fields)  # type: ignore[call-overload]
        yield made


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select a + vat(k) as x from s", "1:8: Binder Error: No function matches the given name and argument types '*(VARCHAR, "
         "DECIMAL(2,1))'. You might need to add explicit type casts. (vat(x) stands for x * 1.1)"),
        ("select vat(b) as x from s", '1:12: unknown column "b" in "s"'),
        ("select a from s where vat(a)", "1:23: a condition must be a boolean and this is a decimal128(21, 1) (vat(x) stands for"),
        ("select spread(a) + a as x from s", '1:20: "a" is neither in GROUP BY nor in an aggregate'),
        ("select vat(spread(a)) as x, one() from s where spread(a) > 1", "1:48: the aggregate max is not supported here"),
        ("select a from t where vat(a) > 1", '1:15: unknown stream "t"'),
    ],
)  # fmt: skip
def test_mistakes_in_queries_have_their_place_as_written(t: Trial, text: str, message: str) -> None:
    with pytest.raises(DeclarationError) as error:
        t.query("q", text)
    assert str(error.value).startswith(message), str(error.value)


def test_a_query_with_sql_functions_is_the_query_that_they_stand_for(t: Trial) -> None:
    t.query(
        "called",
        "select k, gross(sum(a), 1) as g, spread(a) as w, one() as o from s [Range 3 s] group by k having vat(sum(a)) > 2",
    )
    t.query(
        "written",
        "select k, sum(a) * 1.1 + 1 as g, max(a) - min(a) as w, 1 as o from s [Range 3 s] group by k having sum(a) * 1.1 > 2",
    )
    t.append("s", [{"time": at(n), "k": "xy"[n % 2], "a": n} for n in range(9)])
    t.finish("s")
    t.run()
    assert t.intervals("called") == t.intervals("written")
    assert len(t.intervals("called")) > 5


def test_a_key_can_be_written_as_a_call_or_as_what_it_stands_for(t: Trial) -> None:
    t.query("q", "select vat(a) as x, a * 1.1 + 1 as y, count(*) as n from s group by a * 1.1")
    t.append("s", [{"time": at(n), "a": n % 2} for n in range(3)])
    t.finish("s")
    t.run()
    assert sorted((str(row["x"]), str(row["y"]), row["n"]) for row in t.at("q")) == [
        ("0.0", "1.0", 2),
        ("1.1", "2.1", 1),
    ]
