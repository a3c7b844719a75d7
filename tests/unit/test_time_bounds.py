"""Joins bounded by time: which are recognised, how long their rows are kept, and that their state stays small."""

from __future__ import annotations

import pytest

from hayase.core.declarations import PipelineDeclaration, QueryDeclaration, StreamDeclaration
from hayase.cql.explain import explain
from hayase.cql.planner import plan
from hayase.lifetimes import plans
from hayase.testing import at, trial

STREAMS = (
    StreamDeclaration("o", "time timestamp, id string, n bigint, due timestamp", "time"),
    StreamDeclaration("p", "time timestamp, id string, n bigint", "time"),
    StreamDeclaration("u", "time timestamp, id string", "time"),
    StreamDeclaration("a", "ts bigint, id string", "ts", time_unit="s"),
    StreamDeclaration("b", "ts bigint, id string", "ts", time_unit="s"),
    StreamDeclaration("m", "ts bigint, id string", "ts", time_unit="ms"),
)
SECOND = 1_000_000
HOUR = 3_600 * SECOND


def limits(text: str) -> list[tuple[int | None, int | None]]:
    """Return for how long both sides of every bounded join of a query are kept, the outermost join first."""
    planned = plan(PipelineDeclaration("x", STREAMS, (QueryDeclaration("q", text),)))
    assert not planned.mistakes
    found: list[tuple[int | None, int | None]] = []
    waiting = [draft.plan for draft in planned.queries[0].drafts if draft.plan is not None]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, plans.Lasting):
            assert isinstance(node.child, plans.Join)
            sides = (node.child.left, node.child.right)
            found.append(tuple(side.length if isinstance(side, plans.Limited) else None for side in sides))  # type: ignore[arg-type]
        waiting += plans.children(node)
    return found


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("p.time between o.time and o.time + interval '1 hour'", (HOUR, 0)),
        ("p.time between o.time - interval '30 seconds' and o.time + interval 1 hour", (HOUR, 30 * SECOND)),
        ("p.time >= o.time and p.time <= o.time + interval '90 minutes'", (90 * 60 * SECOND, 0)),
        ("p.time > o.time - interval '1.5 seconds' and o.time >= p.time", (0, 1_500_000)),
        ("o.time <= p.time and o.time > p.time - interval '2 days'", (48 * HOUR, 0)),
        ("p.time - o.time between interval '0 seconds' and interval '1 week'", (7 * 24 * HOUR, 0)),
        ("o.time - p.time <= interval '1 hour' and (p.time < o.time)", (0, HOUR)),
        ("p.time between o.time + interval '1 hour' and o.time + interval '2 hours'", (2 * HOUR, 0)),
        ("p.time between o.time - interval '2 hours' and o.time - interval '1 hour'", (0, 2 * HOUR)),
        ("p.time = o.time", (0, 0)),
        ("p.time >= o.time", (None, 0)),
        ("p.time < o.time + interval '1 hour'", (HOUR, None)),
        ("p.event_time between o.event_time and o.event_time + interval '1 hour' and o.n < p.n", (HOUR, 0)),
    ],
)
def test_conditions_on_event_times_bound_a_join(condition: str, expected: tuple[int | None, int | None]) -> None:
    assert limits(f"select o.n, p.n as m from o join p on o.id = p.id and {condition}") == [expected]
    assert limits(f"select o.n, p.n as m from o, p where o.id = p.id and {condition}") == [expected]
    assert limits(f"select o.n, p.n as m from o, p where {condition}") == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "select o.n from o join p on o.id = p.id",
        "select o.n from o join p on o.id = p.id and p.time between o.due and o.due + interval '1 hour'",
        "select o.n from o join p on o.id = p.id and p.time between o.time and o.time + interval '1 month' and p.time <> o.time"
        " and not (p.time < o.time) and p.time + interval '1 year' > o.time",
        "select o.n from o join p on o.id = p.id and (p.time = o.time or o.n = p.n)",
        "select o.n from o left join p on o.id = p.id and p.time between o.time and o.time + interval '1 hour'",
        "select o.n from o semi join p on o.id = p.id and p.time between o.time and o.time + interval '1 hour'",
        "select o.n from o [Range 1 day] join p on o.id = p.id and p.time between o.time and o.time + interval '1 hour'",
        "select a.ts from a join m on a.id = m.id and m.ts between a.ts and a.ts + 5",
    ],
)  # fmt: skip
def test_other_joins_keep_the_general_plan(text: str) -> None:
    found = limits(text)
    assert found in ([], [(None, 0)])  # `p.time >= o.time` alone lets the rows of one side go
    assert found == [] or "1 month" in text


def test_numbers_are_in_the_unit_of_the_stream() -> None:
    assert limits("select a.ts from a join b on a.id = b.id and b.ts between a.ts - 3 and a.ts + 60") == [
        (60 * SECOND, 3 * SECOND)
    ]


def test_joined_rows_are_as_late_as_the_later_part() -> None:
    text = """select o.n from o join p on o.id = p.id and p.time between o.time and o.time + interval '1 hour'
        join u on u.id = o.id and u.time between o.time and o.time + interval '3 hours'"""
    assert limits(text) == [(3 * HOUR, HOUR), (HOUR, 0)]


def test_explain_says_that_the_join_is_bounded_by_time() -> None:
    text = "select o.n from o join p on o.id = p.id and p.time between o.time and o.time + interval '1 hour'"
    shown = explain(PipelineDeclaration("x", STREAMS, (QueryDeclaration("q", text),)), "q")
    assert "Lasting rows of a join bounded by time" in shown
    assert "Limited: a row is kept until 1 hour after its time" in shown


def test_the_state_does_not_grow() -> None:
    """Both sides keep what can still be met; the joined rows stay in the results, not in the state."""
    kept = []
    with trial() as t:
        for name in ("o", "p"):
            t.stream(name, "time timestamp, id bigint", slack="5 seconds")
        condition = "o.id = p.id and p.time between o.time and o.time + interval '10 seconds'"
        t.query("q", f"select o.id, p.time as paid from o join p on {condition}")
        for start in range(0, 1_000, 100):
            for name, delay in (("o", 0), ("p", 7)):
                records = [{"time": at(second + delay), "id": second % 5} for second in range(start, start + 100)]
                t.append(name, records)
            states = t.run().states["q.1"]
            kept.append(sum(ref.rows for refs in states.values() for ref in refs))
        assert len(t.at("q")) > 1_500
    assert max(kept) < 150
