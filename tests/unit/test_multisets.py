"""Set operations and relation to stream: by example."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hayase.core.errors import DamagedState, DeclarationError
from hayase.lifetimes import multisets
from hayase.lifetimes.multisets import MultisetOperator
from hayase.lifetimes.plans import Multiset, Rule, ToStream, Unbounded, Windowed
from hayase.lifetimes.relation_to_stream import ToStreamOperator
from hayase.lifetimes.relations import OPEN, Delta, Span
from interval_relations import Told, cut, drive, intervals

SCHEMA = pa.schema([("a", pa.int64())])
CHILD = Windowed(0, Unbounded(), SCHEMA)


def operator(rule: Rule) -> MultisetOperator:
    children = (CHILD,) if rule in ("distinct", "coalesce") else (CHILD, CHILD)
    return MultisetOperator(Multiset(rule, children, SCHEMA))


def told(*rows: tuple[int, int, int | None]) -> list[Told]:
    return [Told({"a": value}, start, end) for value, start, end in rows]


def result(rule: Rule, *relations: list[Told], clocks: tuple[int, ...] = (30,)) -> list[tuple[int, int, int | None]]:
    steps = list(zip(*(cut(each, SCHEMA, clocks, since=0) for each in relations)))
    deltas = drive(lambda: operator(rule), [(each[0][0], [delta for _, delta in each]) for each in steps])
    return [(row["a"], start, end) for row, start, end in intervals(deltas, [each[0][0] for each in steps])]


def test_a_distinct_row_lives_from_the_first_copy_to_the_last() -> None:
    assert result("distinct", told((1, 0, 5), (1, 3, 9), (1, 9, 12), (1, 13, None))) == [(1, 0, 12), (1, 13, None)]


def test_of_equal_copies_the_newest_goes_first() -> None:
    """The older copy ends first, but what is left of the result is the one that was there first."""
    assert result("coalesce", told((1, 0, 5), (1, 3, 9))) == [(1, 0, 9), (1, 3, 5)]
    assert result("coalesce", told((1, 0, 5), (1, 3, 9)), clocks=(4, 6, 30)) == [(1, 0, 9), (1, 3, 5)]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("except", [(1, 0, 4), (1, 8, 10)]),
        ("except all", [(1, 0, 10), (1, 2, 4), (1, 8, 10)]),
        ("intersect", [(1, 4, 8)]),
        ("intersect all", [(1, 4, 8)]),
    ],
)
def test_two_relations(rule: Rule, expected: list[tuple[int, int, int | None]]) -> None:
    assert result(rule, told((1, 0, 10), (1, 2, 10)), told((1, 4, 8))) == expected


def test_a_row_that_is_uncovered_by_an_end_comes_back_with_its_values() -> None:
    assert result("except", told((1, 0, 20), (2, 0, 20)), told((2, 0, 9)), clocks=(5, 8, 15, 30)) == [
        (1, 0, 20),
        (2, 9, 20),
    ]


def test_types_that_cannot_be_compared_are_refused() -> None:
    schema = pa.schema([("tags", pa.map_(pa.string(), pa.string()))])
    with pytest.raises(DeclarationError, match='"tags"'):
        MultisetOperator(Multiset("distinct", (Windowed(0, Unbounded(), schema),), schema))


def test_rows_without_columns_are_all_equal() -> None:
    """A count of a whole table in an EXISTS, say."""
    schema = pa.schema([])
    made = MultisetOperator(Multiset("distinct", (Windowed(0, Unbounded(), schema),), schema))
    times = np.array([1, 2, 3])
    rows = pa.RecordBatch.from_arrays([pa.nulls(3)], ["gone"]).select([])
    delta = made.advance([Delta(rows, times, times + 5, times)], Span(0, 20, 1)).delta
    assert (delta.start.tolist(), delta.end.tolist()) == ([1], [8])


def test_state_of_another_definition_is_refused() -> None:
    other = pa.record_batch({"b": [1], "__start": [1], "__end": [2], "__id": [3]})
    with pytest.raises(DamagedState, match="reset the stage"):
        operator("distinct").restore("left", other, 1)


def test_memory_follows_what_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand values pass through a window of a hundred, and a few thousand are known in the end."""
    monkeypatch.setattr(multisets, "SPARE_VALUES", 256)
    made = operator("except")
    none = np.empty(0, np.int64)
    nobody = Delta(pa.RecordBatch.from_pylist([], schema=SCHEMA), none, none, none)
    for version in range(1, 101):
        times = np.arange(version * 1000, version * 1000 + 1000)
        rows = pa.RecordBatch.from_arrays([pa.array(times)], schema=SCHEMA)
        made.advance(
            [Delta(rows, times, times + 100, times), nobody], Span(version * 1000, version * 1000 + 1000, version)
        )
    assert made.size("left") == made.size("copies") == 100
    assert len(made._values) <= 1100
    assert len(made._values.words) <= 3000


def test_dstream_tells_what_ended_in_an_earlier_and_in_this_step() -> None:
    steps = cut(told((1, 0, 7), (2, 6, 7), (3, 6, None)), SCHEMA, (5, 10), since=0)
    node = ToStream("dstream", CHILD, SCHEMA)
    first, second = drive(lambda: ToStreamOperator(node), [(span, [delta]) for span, delta in steps])
    assert len(first) == 0
    assert second.rows.column("a").to_pylist() == [1, 2]
    assert (second.start.tolist(), second.end.tolist()) == ([7, 7], [OPEN, OPEN])


def test_rstream_at_every_multiple() -> None:
    steps = cut(told((1, 2, 9), (2, 4, 13)), SCHEMA, (5, 6, 7, 30), since=0)
    node = ToStream("rstream", CHILD, SCHEMA, 4)
    deltas = drive(lambda: ToStreamOperator(node), [(span, [delta]) for span, delta in steps])
    found = [(at, a) for each in deltas for at, a in zip(each.start.tolist(), each.rows.column("a").to_pylist())]
    assert found == [(4, 1), (4, 2), (8, 1), (8, 2), (12, 2)]
