"""Laws of the first rows of groups: at every instant they are those that sorting the snapshot gives, however the instants are
cut into steps and however often the operator is lost and restored."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hayase.lifetimes.order_keys import order_keys
from hayase.lifetimes.plans import Order, Top, Unbounded, Windowed
from hayase.lifetimes.top_rows import TopOperator
from interval_relations import Interval, Told, clock_lists, cut, drive, instants, intervals, snapshot, told_relations

SCHEMA = pa.schema([("k", pa.string()), ("a", pa.int32()), ("s", pa.string()), ("x", pa.float64())])
CHILD = Windowed(0, Unbounded(), SCHEMA)
ROWS = st.builds(
    dict,
    k=st.sampled_from([None, "one", "two"]),
    a=st.sampled_from([None, -1, 1, 2]),
    s=st.sampled_from([None, "", "b", "b\0", "ba", "a long text", "a long text, and more"]),
    x=st.sampled_from([None, 0.0, -1.5, math.nan]),
)
ALIKE = st.builds(dict, k=st.just("one"), a=st.sampled_from([1, 2]), s=st.just("b"), x=st.sampled_from([0.5, 1.5]))
ENDING = st.one_of(told_relations(ROWS), told_relations(ALIKE, most=25))
LASTING = ENDING.map(lambda relation: [told._replace(end=None) for told in relation])
"""Relations of which no row ends."""
RELATIONS = ENDING | LASTING
SEEDS = st.none() | st.integers(0, 10_000)


@st.composite
def tops(draw: st.DrawFn) -> Top:
    """Draw the first rows of something: any keys, any order, with all columns in it."""
    keys = draw(st.sampled_from([(), (), ("k",), ("k", "a")]))
    names = draw(st.permutations(SCHEMA.names))
    order = tuple(Order(name, draw(st.booleans()), draw(st.booleans())) for name in names)
    limit = draw(st.sampled_from([None, 1, 1, 2, 3, 5]))
    offset = draw(st.sampled_from([0, 0, 1, 2])) if limit is not None else draw(st.integers(1, 3))
    return Top(CHILD, keys, order, draw(st.integers(0, 2)), limit, offset, draw(st.booleans()), SCHEMA)


Row = dict[str, Any]


def compare(order: Sequence[Order], one: Row, other: Row) -> int:
    for entry in order:
        left, right = one[entry.column], other[entry.column]
        if left is None or right is None:
            if left is not right:
                return -1 if (left is None) == entry.nulls_first else 1
            continue
        if isinstance(left, float):
            left, right = ((math.isnan(value), 0.0 if math.isnan(value) else value) for value in (left, right))
        else:
            left, right = (value.encode() if isinstance(value, str) else value for value in (left, right))
        if left != right:
            return (-1 if left < right else 1) * (-1 if entry.descending else 1)
    return 0


def first_rows(node: Top, rows: Sequence[Row]) -> list[Row]:
    """The definition: sort every group, and take the rows from the offset on."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in node.keys), []).append(row)
    found: list[Row] = []
    for group in groups.values():
        group.sort(key=cmp_to_key(lambda one, other: compare(node.order, one, other)))
        last = len(group) if node.limit is None else min(node.offset + node.limit, len(group))
        while node.ties and node.offset < last < len(group):
            if compare(node.order[: node.listed], group[last - 1], group[last]):
                break
            last += 1
        found += group[node.offset : last]
    return found


def result(node: Top, relation: list[Told], clocks: list[int], seed: int | None) -> list[Interval]:
    node = replace(node, lasting=all(told.end is None for told in relation))
    steps = [(span, [delta]) for span, delta in cut(relation, SCHEMA, clocks, since=0)]
    return intervals(drive(lambda: TopOperator(node), steps, seed), [span for span, _ in steps])


def alive(relation: Sequence[Told], at: int) -> list[Row]:
    return [told.row for told in relation if told.start <= at and (told.end is None or at < told.end)]


@given(tops(), RELATIONS, clock_lists(), SEEDS)
def test_first_rows_are_those_of_the_sorted_snapshot(
    node: Top, relation: list[Told], clocks: list[int], seed: int | None
) -> None:
    found = result(node, relation, clocks, seed)
    for at in instants(relation, found):
        if at < clocks[-1]:
            wanted = [Told(row, at, None, False) for row in first_rows(node, alive(relation, at))]
            assert snapshot(found, at) == snapshot(wanted, at), f"at {at}"


@given(tops(), RELATIONS, clock_lists(), st.integers(0, 10_000))
def test_restored_and_continued_is_unbroken(node: Top, relation: list[Told], clocks: list[int], seed: int) -> None:
    unbroken, broken = (result(node, relation, clocks, chance) for chance in (None, seed))
    assert Counter(map(repr, unbroken)) == Counter(map(repr, broken))


@given(tops(), RELATIONS, clock_lists())
def test_a_row_that_stays_is_not_split(node: Top, relation: list[Told], clocks: list[int]) -> None:
    """Steps do not matter: the intervals are the same as those of one step."""
    found, whole = (result(node, relation, cuts, None) for cuts in (clocks, clocks[-1:]))
    assert Counter(map(repr, found)) == Counter(map(repr, whole))


@given(tops(), LASTING, clock_lists())
def test_of_rows_that_never_end_only_the_first_ones_are_kept(
    node: Top, relation: list[Told], clocks: list[int]
) -> None:
    operator = TopOperator(replace(node, lasting=True))
    for span, delta in cut(relation, SCHEMA, clocks, since=0):
        operator.advance([delta], span)
    from_the_first = replace(node, limit=node.limit and node.limit + node.offset, offset=0)
    assert operator.size("tuples") <= len(first_rows(from_the_first, alive(relation, clocks[-1])))


VALUES = {
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(20, 2): st.decimals(-(10**17), 10**17, places=2),
    pa.string(): st.text(st.sampled_from(["\0", "a", "b", "é", "\uffff"]), max_size=12),
    pa.binary(): st.binary(max_size=10),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
}


@given(st.data(), st.sampled_from(list(VALUES)), st.booleans(), st.booleans())
def test_order_keys_compare_as_values_do(
    data: st.DataObject, kind: pa.DataType, descending: bool, nulls_first: bool
) -> None:
    values = data.draw(st.lists(st.none() | VALUES[kind], max_size=8))
    rows = pa.record_batch([pa.array(values, kind)], ["v"]).slice(data.draw(st.integers(0, 2)))
    order = [Order("v", descending, nulls_first)]
    keys = order_keys(rows, order, 1)
    assert keys.listed.tolist() == [len(key) for key in keys.keys.to_pylist()]
    found = rows.to_pylist()
    for one, key in zip(found, keys.keys.to_pylist()):
        for other, other_key in zip(found, keys.keys.to_pylist()):
            assert np.sign(compare(order, one, other)) == (key > other_key) - (key < other_key)
