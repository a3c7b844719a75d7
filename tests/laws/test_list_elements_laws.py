"""Laws of UNNEST: at every instant the elements of the live rows, for any cut into steps and restores."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.interval_relations import Driver, Told, assert_same, clock_lists, cut, intervals, told_relations

from effort import examples
from hayase.lifetimes.list_elements import UnnestOperator
from hayase.lifetimes.plans import Unbounded, Unnest, Windowed

CHILD = pa.schema({"k": pa.string(), "l": pa.list_(pa.int64())})
NODE = Unnest(Windowed(0, Unbounded(), CHILD), "l", pa.schema([*CHILD, ("x", pa.int64())]))
lists = st.none() | st.lists(st.none() | st.integers(0, 3), max_size=3)
relations = told_relations(st.fixed_dictionaries({"k": st.sampled_from(["a", None]), "l": lists}))


def without_list(row: dict[str, object]) -> dict[str, object]:
    return {"k": row["k"], "x": row["x"]}


@given(relations, clock_lists(), st.integers(0, 1000))
@settings(max_examples=examples(60))
def test_rows_are_the_elements_at_every_instant(relation: list[Told], clocks: list[int], seed: int) -> None:
    wanted = [told._replace(row={"k": told.row["k"], "x": x}) for told in relation for x in told.row["l"] or []]
    for cuts, chance in ((clocks[-1:], None), (clocks, seed)):
        steps = cut(relation, CHILD, cuts, since=0)
        driver = Driver(lambda: UnnestOperator(NODE), chance)
        deltas = [driver.advance([delta], span) for span, delta in steps]
        found = intervals(deltas, [span for span, _ in steps])
        assert_same([each._replace(row=without_list(each.row)) for each in found], wanted, clocks[-1])
