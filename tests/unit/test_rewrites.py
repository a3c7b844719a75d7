"""Rewrites of logical plans: where filters go, how joins are ordered, what columns are left, what gets a name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from hayase.core.expressions import cast
from hayase.cql.columns import column, column_name, rename_columns
from hayase.cql.logical import Distinct, Expression, Join, SetOperation, Source, ToStream, Window
from hayase.cql.rewrites import name_keys, prune_columns, push_down_filters, rewrite
from hayase.lifetimes.plans import JoinKind
from logical_plans import (
    ORDERS,
    USERS,
    below,
    col,
    counted,
    cross,
    doubled,
    equals,
    lines,
    over,
    select,
    source,
    where,
)

OS, US = source(ORDERS, "o"), source(USERS, "u")
AMOUNT, AGE = col(OS, "o.amount"), col(US, "u.age")
SAME_USER = equals(col(OS, "o.user"), col(US, "u.user"))

# ---------------------------------------------------------------------------------------------------- filters


def test_conditions_of_an_inner_join_become_keys_filters_and_a_residual() -> None:
    node = where(cross(OS, US), over(AMOUNT, 3), SAME_USER, over(AGE, 18), below(AMOUNT, AGE))
    assert (
        lines(push_down_filters(node))
        == """
Join inner on "o.user" = "u.user" where "o.amount" < "u.age"
  Filter "o.amount" > 3
    Source orders as o [Range 10 s]
  Filter "u.age" > 18
    Source users as u [Range 10 s]
"""
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("left", ["Filter u.age", "  Join left", "    Filter o.amount", "      Source orders", "    Source users"]),
        ("right", ["Filter o.amount", "  Join right", "    Source orders", "    Filter u.age", "      Source users"]),
        ("full", ["Filter u.age", "  Filter o.amount", "    Join full", "      Source orders", "      Source users"]),
    ],
)
def test_no_condition_goes_below_a_padded_side(kind: JoinKind, expected: list[str]) -> None:
    join = Join(kind, OS, US, ((col(OS, "o.user"), col(US, "u.user")),), None)
    found = lines(push_down_filters(where(join, over(AMOUNT, 3), over(AGE, 18)))).replace('"', "").splitlines()[1:]
    assert all(line.startswith(start) for line, start in zip(found, expected, strict=True)), found


def test_a_condition_of_an_outer_join_itself_only_chooses_partners() -> None:
    equal = ((col(OS, "o.user"), col(US, "u.user")),)
    right_only, left_only = (Join("left", OS, US, equal, over(each, 3)) for each in (AGE, AMOUNT))
    assert (
        lines(push_down_filters(right_only))
        == """
Join left on "o.user" = "u.user"
  Source orders as o [Range 10 s]
  Filter "u.age" > 3
    Source users as u [Range 10 s]
"""
    )
    assert push_down_filters(left_only) == left_only


@pytest.mark.parametrize("kind", ["semi", "anti"])
def test_semi_and_anti_joins(kind: JoinKind) -> None:
    assert (
        lines(push_down_filters(where(Join(kind, OS, US, (), SAME_USER), over(AMOUNT, 3))))
        == f"""
Join {kind} on "o.user" = "u.user"
  Filter "o.amount" > 3
    Source orders as o [Range 10 s]
  Source users as u [Range 10 s]
"""
    )


def test_conditions_go_through_names_groups_and_sets() -> None:
    renaming = select(OS, who="o.user", twice=doubled(AMOUNT))
    computed, named = over(column("twice", pa.float64()), 3), over(column("who", pa.string()), 1)
    assert (
        lines(push_down_filters(where(Distinct(renaming), computed, named)))
        == """
Distinct
  Filter "twice" > 3
    Project who = "o.user", twice = "o.amount" + "o.amount"
      Filter "o.user" > 1
        Source orders as o [Range 10 s]
"""
    )
    grouped = counted(OS, who="o.user")
    assert (
        lines(push_down_filters(where(grouped, named, over(column("n", pa.int64()), 5))))
        == """
Filter "n" > 5
  Aggregate by who = "o.user": n = count(*)
    Filter "o.user" > 1
      Source orders as o [Range 10 s]
"""
    )
    sides = SetOperation("except", True, select(OS, who="o.user"), select(US, who="u.user"))
    assert (
        lines(push_down_filters(ToStream("istream", where(sides, named))))
        == """
Istream
  Except all
    Project who = "o.user"
      Filter "o.user" > 1
        Source orders as o [Range 10 s]
    Project who = "u.user"
      Filter "u.user" > 1
        Source users as u [Range 10 s]
"""
    )


def test_a_global_aggregate_keeps_what_is_asked_of_it_above() -> None:
    node = where(counted(OS), Expression("false", pa.bool_(), frozenset(), "false"))
    assert push_down_filters(node) == node


# ---------------------------------------------------------------------------------------------------- joins


def test_relations_with_an_equality_are_joined_first() -> None:
    a, b, c = (source(USERS, alias) for alias in "abc")
    ends = equals(col(a, "a.user"), col(c, "c.user")), equals(col(b, "b.age"), col(c, "c.age"))
    assert (
        lines(push_down_filters(where(cross(a, b, c), *ends)))
        == """
Join inner on "c.age" = "b.age"
  Join inner on "a.user" = "c.user"
    Source users as a [Range 10 s]
    Source users as c [Range 10 s]
  Source users as b [Range 10 s]
"""
    )
    assert lines(push_down_filters(where(cross(a, b, c), ends[1]))).splitlines()[2:4] == [
        '  Join inner on "b.age" = "c.age"',
        "    Source users as b [Range 10 s]",
    ]


def test_types_whose_keys_differ_are_compared_pair_by_pair() -> None:
    found = push_down_filters(where(cross(OS, US), equals(AMOUNT, AGE)))
    assert isinstance(found, Join)
    assert (found.equal, found.residual and found.residual.sql) == ((), '"o.amount" = "u.age"')


# ---------------------------------------------------------------------------------------------------- columns


def test_only_columns_that_are_read_are_left() -> None:
    node = select(where(cross(OS, US), SAME_USER, over(AMOUNT, 3)), age="u.age")
    assert (
        lines(prune_columns(push_down_filters(node)))
        == """
Project age = "u.age"
  Join inner on "o.user" = "u.user"
    Project o.user = "o.user"
      Filter "o.amount" > 3
        Project o.user = "o.user", o.amount = "o.amount"
          Source orders as o [Range 10 s]
    Project u.user = "u.user", u.age = "u.age"
      Source users as u [Range 10 s]
"""
    )


def test_unused_columns_of_projections_aggregates_and_unions_go() -> None:
    union = SetOperation("union", True, select(OS, a="o.user", b="o.id"), select(US, a="u.user", b="u.age"))
    node = select(counted(select(union, a="a", twice=doubled(column("b", pa.int64()))), "twice", a="a"), a="a")
    assert (
        lines(prune_columns(node))
        == """
Project a = "a"
  Aggregate by a = "a"
    Project a = "a"
      Union all
        Project a = "o.user"
          Project o.user = "o.user"
            Source orders as o [Range 10 s]
        Project a = "u.user"
          Project u.user = "u.user"
            Source users as u [Range 10 s]
"""
    )


def test_rows_that_are_only_counted_keep_one_column() -> None:
    assert (
        lines(rewrite(counted(US)))
        == """
Aggregate: n = count(*)
  Project u.time = "u.time"
    Source users as u [Range 10 s]
"""
    )


# ---------------------------------------------------------------------------------------------------- names


def test_keys_and_arguments_get_names() -> None:
    computed = doubled(col(OS, "o.id"))
    join = Join("inner", OS, US, ((computed, AGE),), None)
    named = name_keys(prune_columns(counted(join, "u.age", user="u.user")))
    assert (
        lines(named)
        == """
Aggregate by user = "user": n = count(*), largest = max("u.age")
  Project user = "u.user", u.age = "u.age"
    Join inner on "__value1" = "u.age"
      Project o.id = "o.id", __value1 = "o.id" + "o.id"
        Project o.id = "o.id"
          Source orders as o [Range 10 s]
      Project u.user = "u.user", u.age = "u.age"
        Source users as u [Range 10 s]
"""
    )


def test_a_key_that_is_only_widened_is_the_column_itself() -> None:
    narrow = column("s.id", pa.int32())
    left = Source(ORDERS, "s", Window("unbounded"), pa.schema({"s.id": pa.int32()}))
    for kind, expected in ((pa.int64(), "s.id"), (pa.float64(), "__value1"), (pa.int16(), "__value1")):
        wide = Expression(cast(narrow.sql, kind), kind, narrow.columns, "id")
        named = name_keys(Join("inner", left, US, ((wide, AGE),), None))
        assert isinstance(named, Join)
        assert column_name(named.equal[0][0]) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ('"a" + "b"', '"t.a" + "b"'),
        ("""'"a"' || "a" """, """'"a"' || "t.a" """),
        ("""'it''s "a"' || "a" -- "a" """, """'it''s "a"' || "t.a" -- "a" """),
        ("""$$"a"$$ || "a" /* "a" */""", """$$"a"$$ || "t.a" /* "a" */"""),
        ('"a"."a"', '"t.a"."a"'),
        ('{"a": "a"}', '{"a": "t.a"}'),
        ('"a"::int', '"t.a"::int'),
        ("""e'\\'"a"' || "a" """, """e'\\'"a"' || "t.a" """),
    ],
)
def test_renaming_touches_columns_only(sql: str, expected: str) -> None:
    assert rename_columns(Expression(sql, pa.string(), frozenset("a"), sql), {"a": "t.a"}).sql == expected


def test_an_expression_that_is_a_column() -> None:
    assert column_name(column('a "b', pa.int64())) == 'a "b'
    assert column_name(Expression('("a")', pa.int64(), frozenset("a"), "(a)")) == "a"
    assert column_name(Expression('("a") + ("a")', pa.int64(), frozenset("a"), "a + a")) is None
