"""Laws of ASOF joins: at every instant each row of the left side has the match that sorting the snapshot of the right side gives,
however the instants are cut into steps and however often the operator is lost and restored."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hayase.lifetimes.asof_joins import AsofOperator
from hayase.lifetimes.plans import Asof, Order, Unbounded, Windowed
from interval_relations import Interval, Told, clock_lists, cut, drive, instants, intervals, snapshot, told_relations

Row = dict[str, Any]
COMPARED = {
    pa.int64(): [None, -1, 0, 1, 2, 300],
    pa.float64(): [None, -1.5, 0.0, -0.0, 2.5, math.nan],
    pa.string(): [None, "", "b", "b\0", "ba", "a long text", "a long text, and more"],
}


def schemas(kind: pa.DataType) -> tuple[pa.Schema, pa.Schema]:
    left = pa.schema([("k", pa.string()), ("t", kind), ("n", pa.int64())])
    return left, pa.schema([("j", pa.string()), ("u", kind), ("a", pa.int64()), ("b", pa.string())])


@st.composite
def cases(draw: st.DrawFn) -> tuple[Asof, list[Told], list[Told]]:
    """Draw a join of two relations: any direction, with and without keys."""
    kind = draw(st.sampled_from(list(COMPARED)))
    left, right = schemas(kind)
    keys = draw(st.sampled_from([(), (("k", "j"),), (("k", "j"),)]))
    column = Order("u", draw(st.booleans()))
    node = Asof(
        draw(st.sampled_from(["inner", "left"])), Windowed(0, Unbounded(), left), Windowed(1, Unbounded(), right), keys, "t",
        (column, *(Order(name) for name in draw(st.sampled_from([("j", "a", "b"), ("b", "a", "j")])))),
        draw(st.booleans()), pa.schema([*left, *right]),
    )  # fmt: skip
    key, value = st.sampled_from([None, "one", "two"]), st.sampled_from(COMPARED[kind])
    lefts = st.builds(dict, k=key, t=value, n=st.sampled_from([1, 2]))
    rights = st.builds(dict, j=key, u=value, a=st.sampled_from([None, 1, 2]), b=st.sampled_from([None, "x", "y"]))
    return node, draw(told_relations(lefts)), draw(told_relations(rights, most=25))


def _rank(value: Any) -> Any:
    if isinstance(value, float):
        return math.isnan(value), 0.0 if math.isnan(value) else value
    return value.encode() if isinstance(value, str) else value


def compare(order: Sequence[Order], one: Row, other: Row) -> int:
    """Compare two rows by an order with NULLs last."""
    for entry in order:
        left, right = one[entry.column], other[entry.column]
        if left is None or right is None:
            if left is not right:
                return 1 if left is None else -1
        elif _rank(left) != _rank(right):
            return (-1 if _rank(left) < _rank(right) else 1) * (-1 if entry.descending else 1)
    return 0


def meets(node: Asof, one: Row, other: Row) -> bool:
    keys = [(one[left], other[right]) for left, right in node.keys]
    value, compared = one[node.column], other[node.order[0].column]
    if value is None or compared is None or any(left is None or left != right for left, right in keys):
        return False
    less, greater = (_rank(value), _rank(compared))[:: -1 if node.order[0].descending else 1]
    return bool(less < greater or (less == greater and not node.strict))


def joined(node: Asof, lefts: Sequence[Row], rights: Sequence[Row]) -> list[Row]:
    """The definition: of all rows that a row meets, the first in the order."""
    found: list[Row] = []
    for row in lefts:
        met = sorted(
            (other for other in rights if meets(node, row, other)),
            key=cmp_to_key(lambda one, other: compare(node.order, one, other)),
        )
        if met or node.kind == "left":
            found.append({**row, **(met[0] if met else dict.fromkeys(node.right.schema.names))})
    return found


def result(node: Asof, relations: tuple[list[Told], list[Told]], clocks: list[int], seed: int | None) -> list[Interval]:
    sides = [cut(relation, side.schema, clocks, since=0) for relation, side in zip(relations, (node.left, node.right))]
    steps = [(span, [left, right]) for (span, left), (_, right) in zip(*sides)]
    return intervals(drive(lambda: AsofOperator(node), steps, seed), [span for span, _ in steps])


def alive(relation: Sequence[Told], at: int) -> list[Row]:
    return [told.row for told in relation if told.start <= at and (told.end is None or at < told.end)]


@given(cases(), clock_lists(), st.none() | st.integers(0, 10_000))
def test_every_row_has_the_match_of_the_sorted_snapshot(
    case: tuple[Asof, list[Told], list[Told]], clocks: list[int], seed: int | None
) -> None:
    node, left, right = case
    found = result(node, (left, right), clocks, seed)
    for at in instants(left, right, found):
        if at < clocks[-1]:
            wanted = [Told(row, at, None) for row in joined(node, alive(left, at), alive(right, at))]
            assert snapshot(found, at) == snapshot(wanted, at), f"at {at}"


@given(cases(), clock_lists(), st.integers(0, 10_000))
def test_restored_and_continued_is_unbroken(
    case: tuple[Asof, list[Told], list[Told]], clocks: list[int], seed: int
) -> None:
    node, left, right = case
    unbroken, broken = (result(node, (left, right), clocks, chance) for chance in (None, seed))
    assert Counter(map(repr, unbroken)) == Counter(map(repr, broken))


@given(cases(), clock_lists())
def test_a_row_whose_match_stays_is_not_split(case: tuple[Asof, list[Told], list[Told]], clocks: list[int]) -> None:
    """Steps do not matter: the intervals are the same as those of one step."""
    node, left, right = case
    found, whole = (result(node, (left, right), cuts, None) for cuts in (clocks, clocks[-1:]))
    assert Counter(map(repr, found)) == Counter(map(repr, whole))


@pytest.mark.parametrize("later", [True, False])
def test_a_change_costs_its_effect_and_not_the_state(later: bool) -> None:
    """A right row touches only the left rows whose match it becomes: the result says how many there were."""
    left, right = schemas(pa.int64())
    node = Asof("inner", Windowed(0, Unbounded(), left), Windowed(1, Unbounded(), right), (("k", "j"),), "t",
                (Order("u", descending=True), Order("a")), False, pa.schema([*left, *right]))  # fmt: skip
    lefts = [Told({"k": "one", "t": at, "n": at}, 0, None) for at in range(2_000)]
    rights = [Told({"j": "one", "u": at, "a": 0, "b": None}, 0, None) for at in range(2_000)]
    rights += [Told({"j": "one", "u": 1_000, "a": 1 if later else -1, "b": None}, 5, None)]
    found = result(node, (lefts, rights), [5, 10], None)
    assert len(found) == 2_000 + (0 if later else 1)
