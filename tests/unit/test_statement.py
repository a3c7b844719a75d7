"""The text of a query: its syntax and places, and the windows and operators that CQL adds to SQL."""

from __future__ import annotations

import pytest

from hayase.core.errors import DeclarationError
from hayase.cql import syntax
from hayase.cql.statement import parse
from hayase.cql.syntax import Combined, Joined, Membership, Named, Nested, Plain, Select


def select(text: str) -> Select:
    found = parse(text).query
    assert isinstance(found, Select)
    return found


def stream(text: str) -> Named:
    found = select(text).source
    assert isinstance(found, Named)
    return found


def refusals(text: str) -> list[str]:
    with pytest.raises(DeclarationError) as caught:
        parse(text)
    return [str(each) for each in caught.value.mistakes]


# ---------------------------------------------------------------------------------------------------- parts


def test_the_parts_and_where_they_stand() -> None:
    found = select("select user_id,\n  amount * 2 as Twice -- why\nfrom events as e\nwhere e.amount > 1 and not x\n")
    assert [(each.part.text, each.part.line, each.part.column) for each in found.items] == [
        ("user_id", 1, 8),
        ("amount * 2", 2, 3),
    ]
    assert [each.alias for each in found.items] == [None, "Twice"]
    assert isinstance(found.source, Named)
    part = found.source.part
    assert (part.text, part.line, part.column, found.source.alias) == ("events", 3, 6, "e")
    assert [(each.part.text, each.part.line, each.part.column) for each in found.where] == [
        ("e.amount > 1", 4, 7),
        ("not x", 4, 24),
    ]


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
        ("select sum(a) filter (where b) + 1 from s", "sum(a) filter (where b) + 1"),
        ("select a between 1 and 2 and b from s", "a between 1 and 2 and b"),
    ],
)
def test_an_expression_stays_the_text_that_was_written(text: str, expected: str) -> None:
    assert select(text).items[0].part.text == expected


def test_a_piece_knows_its_place() -> None:
    part = select("select\n  a +\n   b from s").items[0].part
    piece = part.piece(part.text.index("b"), len(part.text))
    assert (piece.text, piece.line, piece.column) == ("b", 3, 4)
    assert (part.piece(2, 3).line, part.piece(2, 3).column) == (2, 5)


def test_stars() -> None:
    assert [(each.star, each.of) for each in select("select *, e.*, a from events e").items] == [
        (True, None),
        (True, "e"),
        (False, None),
    ]


def test_conditions_are_split_at_their_ands() -> None:
    found = select("select a from s where (a = 1 and (b between 1 and 2 and (c))) and (d or e and f) and x == y")
    assert [each.part.text for each in found.where] == ["a = 1", "b between 1 and 2", "(c)", "(d or e and f)", "x == y"]
    sides = [[side.text for side in each.sides or ()] for each in found.where if isinstance(each, Plain)]
    assert sides == [["a", "1"], [], [], [], ["x", "y"]]


def test_members() -> None:
    found = select(
        "select a from s where exists (select 1 from t) and not exists (select 1 from u) "
        "and a + 1 in (select b from v) and not (a in ((select b from w)))"
    )
    members = [each for each in found.where if isinstance(each, Membership)]
    assert [(each.negated, each.value.text if each.value else None) for each in members] == [
        (False, None),
        (True, None),
        (False, "a + 1"),
        (True, "a"),
    ]
    assert [each.part.text for each in syntax.named_relations(found)] == ["s", "t", "u", "v", "w"]


# ---------------------------------------------------------------------------------------------------- relations


def shape(node: syntax.Relation) -> str:
    match node:
        case Named():
            return node.part.text
        case Nested():
            return f"<{node.alias}>"
        case Joined():
            return f"({shape(node.left)} {node.kind} {shape(node.right)})"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a, b, c", "((a inner b) inner c)"),
        ("a join b on true left join c on true", "((a inner b) left c)"),
        ("a, b left join c on true, d", "((a inner (b left c)) inner d)"),
        ("a join b join c on true on true", "(a inner (b inner c))"),
        ("(a right join b on true) full outer join c using (k)", "((a right b) full c)"),
        ("a cross join b semi join c using (k) anti join d on true", "(((a inner b) semi c) anti d)"),
        ("(select 1 from x), (select 2 from y) as z", "(<None> inner <z>)"),
        ("((a))", "a"),
    ],
)
def test_joins(text: str, expected: str) -> None:
    assert shape(select(f"select 1 from {text}").source) == expected


def test_what_is_read() -> None:
    found = parse(
        "with w as (select a from s1) select a from w, s2 where a in (select a from S3) union "
        "(select a from (select a from s4) x except select a from s2)"
    )
    assert [each.text for each in found.sources] == ["s1", "s2", "S3", "s4", "s2"]


def ways(node: syntax.Query) -> str:
    if isinstance(node, Combined):
        return f"({ways(node.left)} {node.kind}{' all' if node.all else ''} {ways(node.right)})"
    return node.items[0].part.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{a} union {b} union all {c}", "((a union b) union all c)"),
        ("{a} union {b} intersect {c}", "(a union (b intersect c))"),
        ("{a} intersect all {b} union {c}", "((a intersect all b) union c)"),
        ("{a} except {b} union {c}", "((a except b) union c)"),
        ("{a} except ({b} union {c})", "(a except (b union c))"),
        ("({a} union {b}) intersect {c}", "((a union b) intersect c)"),
        ("{a} except {b} intersect {c} except all {d}", "((a except (b intersect c)) except all d)"),
    ],
)
def test_set_operations_bind_as_in_sql(text: str, expected: str) -> None:
    assert ways(parse(text.format(**{each: f"select {each} from s" for each in "abcd"})).query) == expected


# ---------------------------------------------------------------------------------------------------- windows

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "kind", "length", "slide", "partition"),
    [
        ("[Range 10 seconds]", "range", 10 * SECOND, None, []),
        ("[RANGE 1h 30m slide 90 S]", "range", 5400 * SECOND, 90 * SECOND, []),
        ("[range 1.5 seconds]", "range", 1_500_000, None, []),
        ("[Rows 5]", "rows", 5, None, []),
        ("[rows 5 SLIDE 2]", "rows", 5, 2, []),
        ("[Partition By a, \"B c\" Rows 3]", "rows", 3, None, ["a", '"B c"']),
        ("[partition  by rows Rows 3 Slide 3]", "rows", 3, 3, ["rows"]),
        ("[Now]", "range", 0, None, []),
        ("[Unbounded]", "unbounded", 0, None, []),
        ("[ range /* for ever */ unbounded ]", "unbounded", 0, None, []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("way", ["select a from s {}", "select a from s {} as x where a > 1", "from s x {} select a"])
def test_windows(way: str, text: str, kind: str, length: int, slide: int | None, partition: list[str]) -> None:
    window = stream(way.format(text)).window
    assert window is not None
    assert (window.kind, window.length, window.slide) == (kind, length, slide)
    assert [each.text for each in window.partition] == partition


def test_brackets_elsewhere_are_no_windows() -> None:
    found = select("select l[1] from s [Rows 2] x join t on x.l[1] = t.m[2], u [Now] where extract(year from l[3]) = 1")
    windows = [each.window.kind if each.window else None for each in syntax.named_relations(found)]
    assert windows == ["rows", None, "range"]


# ---------------------------------------------------------------------------------------------------- streams


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Istream(select a from s)", "istream"),
        ("DSTREAM ( select a from s union select a from t );", "dstream"),
        ("select Rstream(a, b as c) from s", "rstream"),
        ("select distinct istream(*) from s", "istream"),
        ("select a from s", None),
        ("select istream, 'Istream(a)' from s", None),
    ],
)
def test_streams(text: str, kind: str | None) -> None:
    assert parse(text).stream == kind


# ---------------------------------------------------------------------------------------------------- canon


def test_canon_knows_no_layout_comments_or_case_but_meaning() -> None:
    canon = parse("select a, 'X' from events [Rows 5] where b > 1").canon
    assert parse("SELECT A,\n 'X'  -- c\nFROM Events[rows 5] WHERE b>1;").canon == canon
    assert parse("select a, 'x' from events [Rows 5] where b > 1").canon != canon
    assert parse("select a, 'X' from events [Rows 6] where b > 1").canon != canon
    assert parse("select a, 'X' from events where b > 1").canon != canon
    assert parse("select e'A' as x from s").canon != parse("select e'a' as x from s").canon
    assert parse("select $$A$$ as x from s").canon != parse("select $$a$$ as x from s").canon
    assert parse("select a from s").canon != parse("Istream(select a from s)").canon


# ---------------------------------------------------------------------------------------------------- mistakes


def test_what_cannot_be_read_is_placed() -> None:
    (message,) = refusals("select a\nfrom s where where")
    assert message.startswith('2:14: cannot read the query near "where"')


def test_all_refusals_are_told_in_the_order_of_the_text() -> None:
    found = refusals("select a from s [Row 1] positional join t order by all limit 0")
    assert [each.split(" ", 1)[1].split(" is ")[0].split(" does ")[0] for each in found] == [
        '"Row"',
        "POSITIONAL JOIN",
        "ORDER BY ALL",
        "LIMIT takes a whole number from 1 on; leave the clause out to keep all rows",
    ]
