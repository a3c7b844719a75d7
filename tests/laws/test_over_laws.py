"""Laws of OVER in relation mode: at every instant the values are those that DuckDB computes from the snapshot, however the
instants are cut into steps and however often the operator is lost and restored."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.lifetimes import over_rows
from hayase.lifetimes.over_rows import OverOperator
from hayase.lifetimes.plans import Over, OverCall, Unbounded, Windowed
from interval_relations import Interval, Told, clock_lists, cut, drive, instants, intervals, snapshot, told_relations

SCHEMA = pa.schema([("k", pa.string()), ("a", pa.int32()), ("b", pa.int64())])
CHILD = Windowed(0, Unbounded(), SCHEMA)
ROWS = st.builds(dict, k=st.sampled_from([None, "one", "two"]), a=st.sampled_from([None, 1, 2]), b=st.integers(0, 3))
RELATIONS = told_relations(ROWS)
DUCKDB = duckdb.connect(config={"threads": "1"})
FEW = settings(max_examples=examples(25))
SEEDS = st.none() | st.integers(0, 10_000)
WHOLE = 'ORDER BY "a" DESC NULLS LAST, "k" NULLS LAST, "b"'
CALLS = {
    ("row_number()", WHOLE): pa.int64(),
    ("rank()", 'ORDER BY "b"'): pa.int64(),
    ('lag("b", 2)', WHOLE): pa.int64(),
    ('sum("a")', f"{WHOLE} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING"): pa.int64(),
    ('max("b")', ""): pa.int64(),
    ('count("a")', 'ORDER BY "b" RANGE BETWEEN 1 PRECEDING AND CURRENT ROW'): pa.int64(),
}


@st.composite
def overs(draw: st.DrawFn) -> Over:
    keys = draw(st.sampled_from([(), ("k",), ("k", "a")]))
    chosen = draw(st.lists(st.sampled_from(list(CALLS)), min_size=1, max_size=3, unique=True))
    calls = tuple(OverCall(f"f{number}", sql, over, sql) for number, (sql, over) in enumerate(chosen))
    fields = [pa.field(call.name, CALLS[call.sql, call.over]) for call in calls]
    return Over(CHILD, keys, ("k", "a", "b"), calls, pa.schema([*SCHEMA, *fields]))


def by_definition(node: Over, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What DuckDB says about a snapshot."""
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    keys = f"PARTITION BY {', '.join(node.keys)} " if node.keys else ""
    calls = ", ".join(f"{call.sql} OVER ({keys}{call.over}) AS {call.name}" for call in node.calls)
    DUCKDB.register("relation", table)
    found = DUCKDB.execute(f"SELECT *, {calls} FROM relation")
    names = [column[0] for column in found.description]
    return [dict(zip(names, row)) for row in found.fetchall()]


def result(node: Over, relation: list[Told], clocks: list[int], seed: int | None) -> list[Interval]:
    steps = [(span, [delta]) for span, delta in cut(relation, SCHEMA, clocks, since=0)]
    return intervals(drive(lambda: OverOperator(node), steps, seed), [span for span, _ in steps])


@pytest.mark.parametrize("most", [1, 7, over_rows.MOST_ROWS])
@FEW
@given(overs(), RELATIONS, clock_lists(), SEEDS)
def test_values_are_those_of_the_snapshot(
    most: int, node: Over, relation: list[Told], clocks: list[int], seed: int | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(over_rows, "MOST_ROWS", most)
        found = result(node, relation, clocks, seed)
    for at in instants(relation, found):
        if at < clocks[-1]:
            alive = [told.row for told in relation if told.start <= at and (told.end is None or at < told.end)]
            wanted = [Told(row, at, None) for row in by_definition(node, alive)]
            assert snapshot(found, at) == snapshot(wanted, at), f"at {at}"


@FEW
@given(overs(), RELATIONS, clock_lists(), SEEDS)
def test_steps_and_restores_do_not_matter(
    node: Over, relation: list[Told], clocks: list[int], seed: int | None
) -> None:
    found, whole = result(node, relation, clocks, seed), result(node, relation, clocks[-1:], None)
    for at in instants(found, whole):
        if at < clocks[-1]:
            assert snapshot(found, at) == snapshot(whole, at)
    assert Counter(map(repr, result(node, relation, clocks, seed))) == Counter(map(repr, found))
