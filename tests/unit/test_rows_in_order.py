"""Windows by rows with Order By: which of the records of one time are the newest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hayase.cql.logical import window_text
from hayase.cql.statement import parse
from hayase.testing import trial

RECORDS = [
    {"time": 1, "k": "a", "v": 3, "w": 1.0},
    {"time": 1, "k": "a", "v": 5, "w": None},
    {"time": 1, "k": "b", "v": 5, "w": 2.0},
    {"time": 1, "k": "a", "v": 4, "w": 0.5},
    {"time": 2, "k": "b", "v": None, "w": 1.0},
    {"time": 2, "k": "b", "v": 7, "w": 1.5},
    {"time": 2, "k": "b", "v": 7, "w": 1.0},
]


def last_rows(query: str, buckets: int = 3) -> list[tuple[Any, ...]]:
    with trial() as t:
        t.declaration = replace(t.declaration, buckets=buckets)
        t.stream("s", "time bigint, k string, v bigint, w double", time_unit="s")
        t.query("view", "select * from s where v > 3 or v is null")
        t.query("q", query)
        t.append("s", RECORDS[:2])
        t.run()
        t.append("s", RECORDS[2:])
        t.finish("s")
        t.run()
        assert not t.dead_letters()
        return sorted((tuple(row.values()) for row in t.query("q").at(2)), key=repr)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("[Partition By k Rows 1]", [("a", 4, 0.5), ("b", 7, 1.0)]),
        ("[Partition By k Rows 1 Order By v]", [("a", 5, None), ("b", None, 1.0)]),
        ("[Partition By k Rows 1 Order By v nulls first]", [("a", 5, None), ("b", 7, 1.0)]),
        ("[Partition By k Rows 1 Order By v nulls first, w]", [("a", 5, None), ("b", 7, 1.5)]),
        ("[Partition By k Rows 1 Order By v desc]", [("a", 3, 1.0), ("b", None, 1.0)]),
        (
            "[Partition By k Rows 2 Slide 2 Order By v desc nulls first]",
            [("a", 4, 0.5), ("a", 5, None), ("b", 7, 1.0), ("b", 7, 1.5)],
        ),
        ("[Rows 2 Order By v]", [("b", 7, 1.0), ("b", None, 1.0)]),
        ("[Rows 3 Order By w desc]", [("b", 7, 1.0), ("b", 7, 1.5), ("b", None, 1.0)]),
        (
            "[Rows 5 Order By k desc, v]",
            [("a", 4, 0.5), ("a", 5, None), ("b", 7, 1.0), ("b", 7, 1.5), ("b", None, 1.0)],
        ),
    ],
)
def test_the_order_of_equal_times(window: str, expected: list[tuple[Any, ...]]) -> None:
    assert last_rows(f"select k, v, w from s {window}") == expected
    assert last_rows(f"select k, v, w from s {window}", buckets=1) == expected


def test_other_columns_filters_and_aggregates() -> None:
    assert last_rows("select w from s [Partition By k Rows 1 Order By v] where w is null or w > 1") == [(None,)]
    assert last_rows("select k, sum(v) as total from s [Partition By k Rows 2 Order By v] group by k") == [
        ("a", 9),
        ("b", 7),
    ]
    assert last_rows("select sum(v) as total from s [Rows 2 Order By v nulls first]") == [(14,)]
    assert last_rows("select k, count(*) as n from view [Rows 4 Order By v, w] group by k") == [("a", 1), ("b", 3)]
    assert last_rows("select sum(v) as total from s [Rows 1, 2 Order By v nulls first]") == [(1, 7), (2, 14)]


def test_as_text() -> None:
    select = parse("select * from s [Partition By k Rows 1 Order By a desc, b nulls first]").query
    window = select.source.window
    assert [(part.text, *way) for part, *way in window.order] == [("a", True, False), ("b", False, True)]
    from cql_streams import planned

    node = planned("select a from s [Rows 2 Order By a desc, b nulls first]")
    assert window_text(node.child.window) == "[Rows 2 Order By a desc, b nulls first]"
