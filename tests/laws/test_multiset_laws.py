"""Laws of set operations and of relation to stream: what they tell is what counting the snapshots gives, however the
instants are cut into steps and however often the operator is lost and restored."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hayase.lifetimes import multisets
from hayase.lifetimes.multisets import MultisetOperator
from hayase.lifetimes.plans import Multiset, ToStream, Unbounded, Windowed
from hayase.lifetimes.relation_to_stream import ToStreamOperator
from hayase.lifetimes.relations import OPEN, Delta, Span
from interval_relations import Interval, Told, clock_lists, cut, drive, instants, intervals, snapshot, told_relations

SCHEMA = pa.schema([("a", pa.int32()), ("s", pa.string()), ("x", pa.float64())])
CHILD = Windowed(0, Unbounded(), SCHEMA)
ROWS = st.builds(
    dict,
    a=st.sampled_from([None, 1]),
    s=st.sampled_from([None, "", "b"]),
    x=st.sampled_from([None, 0.0, -0.0, math.nan]),
)
ALIKE = st.builds(dict, a=st.sampled_from([None, 1]), s=st.just("b"), x=st.just(0.5))
RELATIONS = st.one_of(told_relations(ROWS), told_relations(ALIKE))
WHOLE = SCHEMA.remove(2)
WHOLE_ROWS = st.builds(dict, a=st.sampled_from([None, 1]), s=st.sampled_from([None, "", "b"]))
WHOLE_RELATIONS = told_relations(WHOLE_ROWS)
"""Without floats equal rows are the same bytes, and rows of the result may be rows of the input."""
SEEDS = st.none() | st.integers(0, 10_000)

Snapshot = Counter[tuple[Any, ...]]


def wanted(rule: str, left: Snapshot, right: Snapshot) -> Snapshot:
    """The rule by its definition."""
    match rule:
        case "distinct":
            return Counter(set(left))
        case "coalesce":
            return left
        case "except":
            return Counter(set(left) - set(right))
        case "except all":
            return left - right
        case "intersect":
            return Counter(set(left) & set(right))
        case "intersect all":
            return left & right
    raise AssertionError(rule)


RULES = ["distinct", "coalesce", "except", "except all", "intersect", "intersect all"]


def result(
    rule: str, relations: list[list[Told]], clocks: list[int], seed: int | None, schema: pa.Schema = SCHEMA
) -> list[Interval]:
    children = 1 if rule in ("distinct", "coalesce") else 2
    node = Multiset(rule, (Windowed(0, Unbounded(), schema),) * children, schema)  # type: ignore[arg-type]
    steps = [cut(relation, schema, clocks, since=0) for relation in relations[:children]]
    told = [(each[0][0], [delta for _, delta in each]) for each in zip(*steps)]
    return intervals(drive(lambda: MultisetOperator(node), told, seed), [span for span, _ in told])


@pytest.mark.parametrize("rule", RULES)
@given(RELATIONS, RELATIONS, clock_lists(), SEEDS)
def test_a_result_is_the_rule_of_its_snapshots(
    rule: str, left: list[Told], right: list[Told], clocks: list[int], seed: int | None
) -> None:
    found = result(rule, [left, right], clocks, seed)
    for at in instants(left, right, found):
        if at < clocks[-1]:
            assert snapshot(found, at) == wanted(rule, snapshot(left, at), snapshot(right, at)), f"at {at}"


@pytest.mark.parametrize("rule", RULES)
@given(WHOLE_RELATIONS, WHOLE_RELATIONS, clock_lists(), SEEDS)
def test_rows_without_floats_are_those_that_came(
    rule: str, left: list[Told], right: list[Told], clocks: list[int], seed: int | None
) -> None:
    found = result(rule, [left, right], clocks, seed, WHOLE)
    for at in instants(left, right, found):
        if at < clocks[-1]:
            assert snapshot(found, at) == wanted(rule, snapshot(left, at), snapshot(right, at)), f"at {at}"


@pytest.mark.parametrize("rule", RULES)
@given(RELATIONS, RELATIONS, clock_lists())
def test_nothing_is_split(rule: str, left: list[Told], right: list[Told], clocks: list[int]) -> None:
    """No row ends where an equal one starts."""
    found = result(rule, [left, right], clocks, None)
    ends = {(str(each.row), each.end) for each in found}
    assert not [each for each in found if (str(each.row), each.start) in ends]


@pytest.mark.parametrize("rule", RULES)
@given(RELATIONS, RELATIONS, clock_lists(), st.integers(0, 10_000))
def test_restored_and_continued_is_unbroken(
    rule: str, left: list[Told], right: list[Told], clocks: list[int], seed: int
) -> None:
    unbroken, broken = (result(rule, [left, right], clocks, each) for each in (None, seed))
    assert repr(unbroken) == repr(broken)


@given(RELATIONS, clock_lists(), SEEDS)
def test_values_that_nobody_has_are_forgotten(relation: list[Told], clocks: list[int], seed: int | None) -> None:
    """Numbers of values change under the operator, and nobody notices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multisets, "SPARE_VALUES", 0)
        patch.setattr(multisets, "MANY", 1)
        found = result("coalesce", [relation], clocks, seed)
    for at in instants(relation, found):
        if at < clocks[-1]:
            assert snapshot(found, at) == snapshot(relation, at)


# ---------------------------------------------------------------------------------------------------- to a stream

Record = tuple[int, tuple[Any, ...]]


def records(deltas: list[Delta]) -> list[Record]:
    found = [
        (at, tuple("NaN" if each != each else each for each in row.values()))
        for delta in deltas
        for at, row in zip(delta.start.tolist(), delta.rows.to_pylist())
    ]
    assert [at for at, _ in found] == sorted(at for at, _ in found)
    ids = [number for delta in deltas for number in delta.id.tolist()]
    assert len(ids) == len(set(ids))
    return found


def is_asked(at: int) -> bool:
    """Whether a query asks for the snapshot at an instant."""
    return at % 5 in (0, 3)


def asked(span: Span) -> Delta:
    """The instants of a step for which a query asks."""
    at = np.array([each for each in range(span.since, span.clock) if is_asked(each)], np.int64)
    return Delta(pa.RecordBatch.from_arrays([], schema=pa.schema([])), at, np.full(len(at), OPEN), at)


def streamed(kind: str, relation: list[Told], clocks: list[int], seed: int | None, every: int | None) -> list[Delta]:
    node = ToStream(kind, CHILD, SCHEMA, every)  # type: ignore[arg-type]
    steps = [(span, [delta]) for span, delta in cut(relation, SCHEMA, clocks, since=0)]
    if kind != "rstream":
        whole = drive(lambda: MultisetOperator(Multiset("coalesce", (CHILD,), SCHEMA)), steps)
        steps = [(span, [delta]) for (span, _), delta in zip(steps, whole)]
    elif every is None:
        steps = [(span, [*given, asked(span)]) for span, given in steps]
    return drive(lambda: ToStreamOperator(node), steps, seed)


def expected(kind: str, relation: list[Told], last: int, every: int | None) -> Counter[Record]:
    found: Counter[Record] = Counter()
    before: Snapshot = Counter()
    for at in range(last):
        now = snapshot(relation, at)
        match kind:
            case "istream":
                some = now - before
            case "dstream":
                some = before - now
            case _:
                some = now if (is_asked(at) if every is None else at % every == 0) else Counter()
        found.update({(at, row): count for row, count in some.items()})
        before = now
    return found


@pytest.mark.parametrize(("kind", "every"), [("istream", None), ("dstream", None), ("rstream", None), ("rstream", 3)])
@given(RELATIONS, clock_lists(), SEEDS)
def test_a_stream_is_the_difference_of_snapshots(
    kind: str, every: int | None, relation: list[Told], clocks: list[int], seed: int | None
) -> None:
    found = records(streamed(kind, relation, clocks, seed, every))
    assert Counter(found) == expected(kind, relation, clocks[-1], every)
    if seed is not None:
        assert repr(found) == repr(records(streamed(kind, relation, clocks, None, every)))
