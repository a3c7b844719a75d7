"""Where plans run: the keys of their leaves, and where they are cut."""

from __future__ import annotations

import pyarrow as pa
import pytest

from hayase.core.declarations import StreamDeclaration
from hayase.cql.columns import column
from hayase.cql.distribution import ANYWHERE, LeafKey, check_keys, cut, needs_coalescing
from hayase.cql.logical import Distinct, Join, Node, SetOperation, ToStream, Window, describe
from hayase.cql.rewrites import rewrite
from hayase.lifetimes.plans import JoinKind
from logical_plans import ORDERS, STOCK, USERS, below, col, counted, cross, doubled, equals, over, select, source, where

OS, US, VS = source(ORDERS, "o"), source(USERS, "u"), source(USERS, "v")
SAME_USER = equals(col(OS, "o.user"), col(US, "u.user"))
PAIR = (col(OS, "o.user"), col(US, "u.user"))
JOINED = where(cross(OS, US), SAME_USER)
ONE_BUCKET: LeafKey = ()
CALLED = column("n", pa.int64())


def between(name: str, schema: pa.Schema) -> StreamDeclaration:
    fields = ", ".join(f"c{number} string" for number in range(len(schema)))
    return StreamDeclaration(name, f"changed_at timestamp, {fields}", "changed_at", lifetimes=True)


def placed(root: Node) -> dict[str, tuple[list[LeafKey], str]]:
    """Of every fragment the keys of its leaves, and its operators, each by its first word."""
    return {
        each.name: (list(each.keys), " ".join(_word(line) for line in describe(each.root)))
        for each in cut("q", rewrite(root), between)
    }


def _word(line: str) -> str:
    word, *others = line.split()
    return others[0] if word == "Source" else word.rstrip(":")


def keys(root: Node) -> list[LeafKey]:
    """The keys of a plan that is one stage."""
    (found,) = placed(root).values()
    return found[0]


# ---------------------------------------------------------------------------------------------------- one stage


def test_what_does_not_meet_goes_anywhere() -> None:
    assert keys(select(where(OS, over(col(OS, "o.id"), 3)), user="o.user")) == [ANYWHERE]
    union = SetOperation("union", True, select(OS, user="o.user"), select(US, user="u.user"))
    assert keys(union) == [ANYWHERE, ANYWHERE]
    assert keys(ToStream("istream", source(ORDERS, "o", Window("unbounded")))) == [ANYWHERE]


def test_equal_keys_meet() -> None:
    assert keys(JOINED) == [("o.user",), ("u.user",)]
    assert keys(counted(OS, user="o.user", id="o.id")) == [("user", "id")]
    assert keys(Distinct(select(OS, a="o.user", b="o.id"))) == [("a", "b")]
    sides = select(OS, a="o.user", b="o.id"), select(US, a="u.user", b="u.age")
    for kind, is_all in (("union", False), ("except", True), ("intersect", False)):
        assert keys(SetOperation(kind, is_all, *sides)) == [("a", "b"), ("a", "b")]  # type: ignore[arg-type]
    assert keys(ToStream("dstream", sides[0])) == [("a", "b")]


def test_computed_keys_are_columns_of_the_leaf() -> None:
    join = Join("inner", OS, US, ((doubled(col(OS, "o.id")), col(US, "u.age")),), None)
    assert keys(join) == [("__value1",), ("u.age",)]


def test_a_key_that_goes_on_is_one_stage() -> None:
    assert keys(counted(JOINED, user="u.user", id="o.id")) == [("o.user",), ("u.user",)]
    three = where(cross(OS, US, VS), SAME_USER, equals(col(US, "u.user"), col(VS, "v.user")))
    assert keys(three) == [("o.user",), ("u.user",), ("v.user",)]
    grouped = select(counted(US, user="u.user"), **{"g.user": "user", "g.n": "n"})
    join = where(cross(OS, grouped), equals(col(OS, "o.user"), col(grouped, "g.user")))
    assert keys(Distinct(select(join, user="g.user", n="g.n"))) == [("o.user",), ("user",)]


def test_all_keys_that_fit_are_used_and_in_the_same_order() -> None:
    ages = equals(col(US, "u.age"), col(VS, "v.age"))
    both = where(cross(US, VS), equals(col(US, "u.user"), col(VS, "v.user")), ages)
    assert keys(both) == [("u.user", "u.age"), ("v.user", "v.age")]
    assert keys(counted(both, age="v.age")) == [("u.age",), ("v.age",)]
    twice = where(cross(US, OS), equals(col(US, "u.age"), col(OS, "o.id")), SAME_USER)
    assert keys(twice) == [("u.age", "u.user"), ("o.id", "o.user")]


def test_sides_of_a_union_have_their_own_keys() -> None:
    sides = select(counted(OS, user="o.user"), n="n"), select(counted(US), n="n")
    assert keys(SetOperation("union", True, *sides)) == [("user",), ONE_BUCKET]


# ---------------------------------------------------------------------------------------------------- one bucket


def test_what_has_no_key_runs_in_one_bucket() -> None:
    assert keys(counted(OS)) == [ONE_BUCKET]
    assert keys(where(cross(OS, US), below(col(OS, "o.id"), col(US, "u.age")))) == [ONE_BUCKET, ONE_BUCKET]
    assert keys(ToStream("rstream", select(OS, user="o.user"))) == [ONE_BUCKET]
    assert keys(cross(OS, select(counted(US), n="n"))) == [ONE_BUCKET, ONE_BUCKET]  # nothing to be spread below


# ---------------------------------------------------------------------------------------------------- cuts


def test_a_plan_is_cut_where_the_key_changes() -> None:
    assert placed(counted(JOINED, id="o.id")) == {
        "_q_1": ([("o.user",), ("u.user",)], "Project Join Project orders Project users"),
        "q": ([("id",)], "Aggregate _q_1"),
    }


def test_what_can_be_spread_is_cut_off_from_what_cannot() -> None:
    assert placed(counted(Distinct(select(OS, user="o.user")))) == {
        "_q_1": ([("user",)], "Distinct Project Project orders"),
        "q": ([ONE_BUCKET], "Aggregate _q_1"),
    }
    union = SetOperation("union", True, select(counted(OS, user="o.user"), n="n"), select(US, n="u.age"))
    assert placed(ToStream("rstream", union)) == {
        "_q_1": ([("user",)], "Project Aggregate Project Project orders"),
        "q": ([ONE_BUCKET, ONE_BUCKET], "Rstream Union _q_1 Project Project users"),
    }


def test_only_the_side_that_does_not_fit_is_cut_off() -> None:
    grouped = select(counted(US, "u.user", age="u.age"), **{"g.top": "largest"})
    join = where(cross(OS, grouped), equals(col(OS, "o.user"), col(grouped, "g.top")))
    assert placed(counted(join, user="o.user")) == {
        "_q_1": ([("age",)], "Project Aggregate Project Project users"),
        "q": ([("o.user",), ("g.top",)], "Aggregate Project Join Project orders _q_1"),
    }


def test_cuts_are_numbered_sources_first() -> None:
    inner = select(counted(counted(JOINED, id="o.id"), size="n"), times="n")
    found = placed(counted(inner))
    assert [(name, operators.split()[-1]) for name, (_, operators) in found.items()] == [
        ("_q_1", "users"),
        ("_q_2", "_q_1"),
        ("_q_3", "_q_2"),
        ("q", "_q_3"),
    ]


@pytest.mark.parametrize(
    ("kind", "by_left", "by_right"), [("left", 1, 2), ("right", 2, 1), ("full", 2, 2), ("inner", 1, 1)]
)
def test_a_padded_key_is_no_key_above(kind: JoinKind, by_left: int, by_right: int) -> None:
    join = Join(kind, OS, US, (PAIR,), None)
    assert len(placed(counted(join, user="o.user"))) == by_left
    assert len(placed(counted(join, user="u.user"))) == by_right


# ---------------------------------------------------------------------------------------------------- leaves


def test_a_window_by_partition_stays_together() -> None:
    window = source(ORDERS, "o", Window("rows", 3, partition=("user", "id")))
    assert keys(select(window, amount="o.amount")) == [("o.user", "o.id")]
    assert keys(counted(select(window, who="o.user"), user="who")) == [("o.user",)]
    assert list(placed(counted(window, amount="o.amount"))) == ["_q_1", "q"]
    assert keys(counted(window)) == [ONE_BUCKET]


def test_changes_go_where_equal_rows_go() -> None:
    stock = source(STOCK, "s", Window("unbounded"))
    assert keys(select(where(stock, over(col(stock, "s.n"), 3)), item="s.item")) == [("s.item", "s.n")]
    assert keys(counted(stock, item="s.item")) == [("s.item",)]
    assert list(placed(counted(select(stock, twice=doubled(col(stock, "s.n"))), twice="twice"))) == ["_q_1", "q"]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (OS, True),
        (source(ORDERS, "o", Window("unbounded")), False),
        (counted(OS, user="o.user"), False),
        (select(counted(OS, user="o.user"), user="user", n="n"), False),
        (select(counted(OS, user="o.user"), n="n"), True),
        (where(counted(OS, user="o.user"), over(CALLED, 3)), False),
        (JOINED, True),
        (cross(*(source(USERS, each, Window("unbounded")) for each in "ab")), False),
        (SetOperation("union", True, Distinct(OS), Distinct(OS)), True),
        (SetOperation("except", True, OS, OS), False),
    ],
)
def test_when_an_equal_row_may_follow_at_once(node: Node, expected: bool) -> None:
    assert needs_coalescing(node) is expected


# ---------------------------------------------------------------------------------------------------- types


@pytest.mark.parametrize(
    ("node", "what"),
    [
        (counted(OS, tags="o.tags"), "GROUP BY"),
        (Distinct(select(OS, tags="o.tags", user="o.user")), "DISTINCT"),
        (SetOperation("except", False, select(OS, tags="o.tags"), select(OS, tags="o.tags")), "EXCEPT"),
        (Join("left", OS, OS, ((col(OS, "o.tags"), col(OS, "o.tags")),), None), "a join"),
        (ToStream("istream", select(OS, tags="o.tags")), "Istream"),
        (source(ORDERS, "o", Window("rows", 2, partition=("tags",))), "Partition By"),
    ],
)
def test_values_that_cannot_be_compared_are_refused(node: Node, what: str) -> None:
    (mistake,) = check_keys(node)
    assert str(mistake).startswith(f"1:1: {what} compares values, and a map<")


def test_values_that_are_only_passed_on_are_not() -> None:
    assert check_keys(ToStream("rstream", select(JOINED, tags="o.tags"))) == []
    assert check_keys(SetOperation("union", True, select(OS, tags="o.tags"), select(OS, tags="o.tags"))) == []
