"""The logical plans of queries: golden texts, the same answers as DuckDB's, and independence from layout."""

# ruff: noqa: E501 - a plan has long lines

from __future__ import annotations

import random
from collections import Counter
from textwrap import dedent

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import tokenize

from cql_streams import SOURCES, planned
from effort import examples
from hayase.cql import logical
from hayase.cql.logical import Node, describe
from hayase.cql.statement import parse

GOLDEN = {
    "select K, a + 1 as x, s.b from s [Rows 5] where a > 1 and k = 'x' and s.b = a": """
        Project k = "s.k", x = "s.a" + 1, b = "s.b"
          Filter "s.b" = "s.a"
            Filter "s.k" = 'x'
              Filter "s.a" > 1
                Source s as s [Rows 5]
        """,
    "select * from s [Range 1 minute Slide 10 seconds] as x, t y [Now] where x.k = y.k": """
        Project time = "x.time", k = "x.k", a = "x.a", b = "x.b", l = "x.l", p = "x.p", d = "x.d", time_1 = "y.time", k_1 = "y.k", c = "y.c", a_1 = "y.a"
          Filter "x.k" = "y.k"
            Join inner
              Source s as x [Range 1 minute Slide 10 s]
              Source t as y [Now]
        """,
    "select s.a, c from s join t on s.k = t.k and t.a = s.a and s.b < t.c and true": """
        Project a = "s.a", c = "t.c"
          Join inner on "s.k" = "t.k" and CAST(( "s.a" ) AS DOUBLE) = "t.a" where "s.b" < "t.c"
            Source s as s [Unbounded]
            Source t as t [Unbounded]
        """,
    "select k, z from s full join t using (K, a) left join u using (k)": """
        Project k = coalesce("s.k", "t.k"), z = "u.z"
          Join left on coalesce("s.k", "t.k") = "u.k"
            Join full on "s.k" = "t.k" and CAST(( "s.a" ) AS DOUBLE) = "t.a"
              Source s as s [Unbounded]
              Source t as t [Unbounded]
            Source u as u [Unbounded]
        """,
    "select k from s anti join t on s.k = t.k and s.b > t.c": """
        Project k = "s.k"
          Join anti on "s.k" = "t.k" where "s.b" > "t.c"
            Source s as s [Unbounded]
            Source t as t [Unbounded]
        """,
    "select k from s where exists (select 1 from t where t.k = s.k and t.c > 3 and t.c < s.a)": """
        Project k = "s.k"
          Join semi on "s.k" = "t.k" where "t.c" < "s.a"
            Source s as s [Unbounded]
            Filter "t.c" > 3
              Source t as t [Unbounded]
        """,
    "select k from s where not exists (select * from s where k = 'x')": """
        Project k = "s.k"
          Join anti
            Source s as s [Unbounded]
            Filter "s_2.k" = 'x'
              Source s as s_2 [Unbounded]
        """,
    "select k from s where k in (select upper(k) from t) and a not in (select c from t where t.k = s.k)": """
        Project k = "s.k"
          Join anti on "s.k" = "t.k" where (("s.a") = ("t.c")) IS NOT FALSE
            Join semi on "s.k" = upper("t.k")
              Source s as s [Unbounded]
              Source t as t [Unbounded]
            Source t as t [Unbounded]
        """,
    "select k from s where k in (select k from t group by k having count(*) > 3)": """
        Project k = "s.k"
          Join semi on "s.k" = "subquery.k"
            Source s as s [Unbounded]
            Project subquery.k = "t.k"
              Filter "count_1" > 3
                Aggregate by t.k = "t.k": count_1 = count(*)
                  Source t as t [Unbounded]
        """,
    "select a as n, k from s union select c, z from t, u except all select a, k from t": """
        Except all
          Project n = CAST(( "n" ) AS DOUBLE), k = "k"
            Union
              Project n = CAST(( "s.a" ) AS BIGINT), k = "s.k"
                Source s as s [Unbounded]
              Project n = "t.c", k = "u.z"
                Join inner
                  Source t as t [Unbounded]
                  Source u as u [Unbounded]
          Project n = "t.a", k = "t.k"
            Source t as t [Unbounded]
        """,
    "select distinct k, a from s": """
        Distinct
          Project k = "s.k", a = "s.a"
            Source s as s [Unbounded]
        """,
    "select k, SUM( a )/count(*) + 1 as m, sum(a) filter (where b > 1), count(distinct a), variance(b), count(*) n "
    "from s group by k having n > 3 and max(a) > 2 and k <> 'x'": """
        Project k = "s.k", m = "sum_1"/"count_2" + 1, sum_a = "sum_3", count_distinct_a = "count_4", variance_b = "var_samp_5", n = "count_2"
          Filter "s.k" <> 'x'
            Filter "max_6" > 2
              Filter ("count_2") > 3
                Aggregate by s.k = "s.k": sum_1 = sum("s.a"), count_2 = count(*), sum_3 = sum(CASE WHEN ( "s.b" > 1 ) THEN ( "s.a" ) END), count_4 = count(distinct "s.a"), var_samp_5 = var_samp("s.b"), max_6 = max("s.a")
                  Source s as s [Unbounded]
        """,
    "select upper( K ) || 'x' as y, (a + 1) * 2, b as c, count(*) from s group by Upper(k), a+1, c": """
        Project y = "key_1" || 'x', column_2 = "key_2" * 2, c = "s.b", count = "count_1"
          Aggregate by key_1 = Upper("s.k"), key_2 = "s.a"+1, s.b = "s.b": count_1 = count(*)
            Source s as s [Unbounded]
        """,
    "select p.x, s.p.y, count(*) from s group by 1, p.y": """
        Project x = "key_1", y = "key_2", count = "count_1"
          Aggregate by key_1 = "s.p".x, key_2 = "s.p".y: count_1 = count(*)
            Source s as s [Unbounded]
        """,
    "select sum(a), count(b) from s [Unbounded]": """
        Project sum_a = "sum_1", count_b = "count_2"
          Aggregate: sum_1 = sum("s.a"), count_2 = count("s.b")
            Source s as s [Unbounded]
        """,
    "select x.m, y.k from (select k, max(a) as m from s [Rows 3] group by k) x join t y on x.k = y.k": """
        Project m = "x.m", k = "y.k"
          Join inner on "x.k" = "y.k"
            Project x.k = "s.k", x.m = "max_1"
              Aggregate by s.k = "s.k": max_1 = max("s.a")
                Source s as s [Rows 3]
            Source t as y [Unbounded]
        """,
    "with w as (select k, a from s) select x.k, y.a from w x join w y on x.k = y.k": """
        Project k = "x.k", a = "y.a"
          Join inner on "x.k" = "y.k"
            Project x.k = "s.k", x.a = "s.a"
              Source s as s [Unbounded]
            Project y.k = "s.k", y.a = "s.a"
              Source s as s [Unbounded]
        """,
    "select Rstream(k, count(*)) from s [Partition By K, a Rows 3 Slide 2] group by k": """
        Rstream
          Project k = "s.k", count = "count_1"
            Aggregate by s.k = "s.k": count_1 = count(*)
              Source s as s [Partition By k, a Rows 3 Slide 2]
        """,
    "Istream(select * from q, ch)": """
        Istream
          Project k = "q.k", n = "q.n", k_1 = "ch.k", v = "ch.v"
            Join inner
              Source q as q [Unbounded]
              Source ch as ch [Unbounded]
        """,
    "select list_transform(l, lambda k: k + a) as m from s where a is distinct from l[1]": """
        Project m = list_transform("s.l", lambda k: k + "s.a")
          Filter "s.a" is distinct from "s.l"[1]
            Source s as s [Unbounded]
        """,
}  # fmt: skip


@pytest.mark.parametrize("text", GOLDEN)
def test_plans(text: str) -> None:
    assert describe(planned(text)) == dedent(GOLDEN[text]).strip().split("\n")


# ---------------------------------------------------------------------------------------------------- expressions


def test_expressions_know_type_columns_text_and_place() -> None:
    plan = planned("select a,\n  upper(k) || b as x from s")
    assert isinstance(plan, logical.Project)
    assert plan.schema == pa.schema({"a": pa.int32(), "x": pa.string()})
    value = plan.columns[1].value
    assert value.columns == {"s.k", "s.b"}
    assert (value.text, value.line, value.column) == ("upper(k) || b", 2, 3)


def test_an_equality_knows_its_sides_in_one_type() -> None:
    plan = planned("select s.k from s, t where s.a = t.c + 1 and s.k = 'x' and (s.time - t.time = interval 1 day)")
    assert isinstance(plan, logical.Project)
    filters = []
    node: Node = plan.child
    while isinstance(node, logical.Filter):
        filters.append(node.predicate)
        node = node.child
    assert filters[0].equality is None  # no stream has intervals
    assert [[each.sql for each in one.equality or ()] for one in filters[1:]] == [
        ['"s.k"', "'x'"],
        ['CAST((\n"s.a"\n) AS BIGINT)', '"t.c" + 1'],
    ]


def test_types_of_aggregates() -> None:
    plan = planned("select sum(a), avg(a), min(k), sum(d), count(*), stddev(b), sum(b) from s")
    kinds = [pa.int64(), pa.float64(), pa.string(), pa.decimal128(38, 2), pa.int64(), pa.float64(), pa.float64()]
    assert plan.schema.types == kinds


# ---------------------------------------------------------------------------------------------------- meaning


def sql_of(node: Node) -> str:
    """A plan as SQL of its own: operator upon operator."""
    match node:
        case logical.Source():
            names = [each.removeprefix(f"{node.alias}.") for each in node.schema.names]
            columns = ", ".join(f'"{name}" as "{flat}"' for name, flat in zip(names, node.schema.names))
            return f"select {columns} from {node.declaration.name}"
        case logical.Filter():
            return f"select * from ({sql_of(node.child)}) where {node.predicate.sql}"
        case logical.Project():
            columns = ", ".join(f'{each.value.sql} as "{each.name}"' for each in node.columns)
            return f"select {columns} from ({sql_of(node.child)})"
        case logical.Join():
            equal = [f"({left.sql}) = ({right.sql})" for left, right in node.equal]
            on = " and ".join([*equal, *([f"({node.residual.sql})"] if node.residual else [])]) or "true"
            left, right = sql_of(node.left), sql_of(node.right)
            if node.kind in ("semi", "anti"):
                how = "exists" if node.kind == "semi" else "not exists"
                return f"select * from ({left}) where {how} (select 1 from ({right}) where {on})"
            return f"select * from ({left}) {node.kind} join ({right}) on {on}"
        case logical.Aggregate():
            keys = [f'{each.value.sql} as "{each.name}"' for each in node.keys]
            calls = [
                f"{each.function}({'distinct ' if each.distinct else ''}{each.argument.sql if each.argument else '*'})"
                f' as "{each.name}"'
                for each in node.calls
            ]
            group = " group by " + ", ".join(each.value.sql for each in node.keys) if node.keys else ""
            return f"select {', '.join(keys + calls)} from ({sql_of(node.child)}){group}"
        case logical.Distinct():
            return f"select distinct * from ({sql_of(node.child)})"
        case logical.SetOperation():
            every = " all" if node.all else ""
            return f"select * from ({sql_of(node.left)}) {node.kind}{every} select * from ({sql_of(node.right)})"
        case logical.ToStream():
            return sql_of(node.child)


QUERIES = [
    "select * from s join t using (k)",
    "select k, s.a, t.a as ta, c from s full join t using (k)",
    "select k, z from s right join u using (k)",
    "select k, s.a from s full join t using (k, a) left join u using (k)",
    "select s.k, t.c, u.z from s, t left join u on t.k = u.k where s.a = t.c",
    "select x.a, y.a as ya, z from s x join t y on x.k = y.k and x.a < y.c, u where u.k = x.k",
    "select x.a, y.a as b from s x right join s y on x.a = y.a + 1",
    "select k, a from s where exists (select 1 from t where t.k = s.k and t.c > 1)",
    "select k, a from s where not exists (select c from t where t.c < s.a and k = 'x')",
    "select k, a from s where not exists (select 1 from s where a > 100)",
    "select k, a from s where a in (select c from t)",
    "select k, a from s where a not in (select c from t where c is not null)",
    "select k, a from s where a not in (select c from t)",
    "select k, a from s where a not in (select c from t where t.k = s.k)",
    "select k, a from s where a + 1 in (select max(c) from t group by k) and k in (select k from u union select 'x' from u)",
    "select k from s where exists (select count(*) from t)",
    "select k from s x where exists (select 1 from t where t.k = x.k and c in (select a from s where s.k is not null))",
    "select k from s semi join t using (k)",
    "select s.k, a from s anti join u on s.k = u.k and s.a > 1",
    "select k, a from s union select k, c from t",
    "select a, k from s union all select c, k from t except select a, k from t",
    "select a from s except all select c from t",
    "select k from s intersect select k from t union all select k from u",
    "select k from s intersect all select k from u",
    "select k from s except (select k from t union select z from u)",
    "select distinct k, a % 2 as odd from s",
    "select k, count(*), sum(a), min(b), max(a), count(b), count(distinct a) from s group by k",
    "select a % 2 as odd, sum(a) / count(*) + 1 as m from s group by odd having m > 1 or odd is null",
    "select k || 'x' as kx, count(*) filter (where s.a > 1) as n, sum(s.a + c) from s join t using (k) group by kx",
    "select (a + 1) * 2 as x, a + 1 + 2 as y, -(A+1) as z, count(*) from s group by a + 1",
    "select k from s group by k",
    "select count(*), sum(a), avg(b), var_samp(a), stddev_pop(a) from s",
    "select count(*) from s where a > 1000",
    "select k as v, sum(a) as k_ from s group by 1 having k_ > 2 and v <> 'z'",
    "select k, sum(a) as a from s group by k having a > 2",
    "select m + 1 as n, y.k from (select k, max(a) as m from s group by k) x left join t y on x.k = y.k",
    "select * from (select * from s join t using (k)), (select z from u)",
    "with w as (select k, a from s where a > 0), v as (select k from w) select w.a from w join v on w.k = v.k",
    "select p.x + 1 as x, s.p.y from s where p.x > 0 and s.p.y <> 'q'",
    "select list_transform(l, lambda k: k + a) as m, l[1] as one from s where list_contains(l, a) or a is not null",
    "select case when a > 1 then k else 'other' end as g, count(*) from s group by case when a > 1 then k else 'other' end",
    "select case k when 'x' then 1 when 'y' then 2 else 3 end as g, a from s",
    "select k, case sum(a) when 1 then 'one' when 2 then 'two' end as g from s group by k",
    "select k from s where (a = 1 or b > 2) and not (k = 'x' and a > 1) and a between 0 and 3",
    "from s select a, -- the number\n  k /* and the key */",
]  # fmt: skip


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    chosen = random.Random(5)

    def maybe(value: object) -> object:
        return None if chosen.random() < 0.15 else value

    rows: dict[str, list[dict[str, object]]] = {"s": [], "t": [], "u": []}
    for number in range(14):
        key = maybe(chosen.choice("xyz"))
        small = maybe(chosen.randrange(4))
        inner = {"x": chosen.randrange(3), "y": chosen.choice("pq")}
        rows["s"].append(
            {"time": number, "k": key, "a": small, "b": maybe(chosen.randrange(5) / 2), "l": [1, 2], "p": inner}
        )
        rows["t"].append({"time": number, "k": maybe(chosen.choice("xyw")), "c": small, "a": chosen.randrange(4)})
        rows["u"].append({"ts": number, "k": maybe(chosen.choice("xw")), "z": chosen.choice("xyz")})
    for name, each in rows.items():
        connection.register(name, pa.Table.from_pylist(each, schema=SOURCES[name].arrow_schema))
    return connection


@pytest.mark.parametrize("text", QUERIES)
def test_a_plan_means_what_duckdb_reads_in_the_text(text: str, database: duckdb.DuckDBPyConnection) -> None:
    ours = database.sql(sql_of(planned(text))).fetchall()
    assert Counter(map(repr, ours)) == Counter(map(repr, database.sql(text).fetchall()))


# ---------------------------------------------------------------------------------------------------- layout

KEYWORDS = {
    "select", "from", "where", "group", "by", "having", "join", "on", "using", "left", "full", "right", "and", "or",
    "not", "in", "exists", "union", "except", "intersect", "all", "distinct", "as", "between", "is", "filter", "case",
    "when", "then", "else", "end", "rows", "range", "slide", "partition", "now", "unbounded", "semi", "anti", "with",
    "true", "rstream", "istream", "seconds", "minute",
}  # fmt: skip


@settings(max_examples=examples(20), deadline=None)
@given(st.sampled_from([*GOLDEN, *QUERIES]), st.randoms(use_true_random=False))
def test_layout_and_case_of_keywords_say_nothing(text: str, chosen: random.Random) -> None:
    words: list[str] = []
    for token in tokenize(text, dialect="duckdb"):
        for word in text[token.start : token.end + 1].split() if token.text else []:
            plain = word.lower() in KEYWORDS
            words.append("".join(chosen.choice((each.upper(), each.lower())) for each in word) if plain else word)
            words.append(chosen.choice([" ", "\n", "  \n\t", " /* as from [x] */ ", " -- or\n"]))
    written = "".join(words)
    assert schemas(planned(written)) == schemas(planned(text))
    assert parse(written).canon == parse(text).canon


def schemas(node: Node) -> list[object]:
    """Everything about a plan but the text of its expressions, which keep their layout."""
    facts: list[object] = [type(node), node.schema]
    if isinstance(node, logical.Source):
        facts += [node.declaration, node.alias, node.window]
    if isinstance(node, logical.Join):
        facts += [node.kind, [[one.columns for one in each] for each in node.equal], node.residual is None]
    if isinstance(node, logical.Filter):
        facts += [node.predicate.columns, node.predicate.kind, node.predicate.equality is None]
    return facts + [schemas(each) for each in logical.children(node)]
