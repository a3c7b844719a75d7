"""Laws of the join: at every instant it is the SQL join of the snapshots, however the instants are cut into steps and
however often the operator is lost and restored."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.lifetimes import joins
from hayase.lifetimes.joins import JoinOperator
from hayase.lifetimes.plans import Join, Unbounded, Windowed
from hayase.lifetimes.relations import Delta
from interval_relations import (
    Driver,
    Interval,
    Row,
    Told,
    clock_lists,
    cut,
    instants,
    intervals,
    told_relations,
)
from interval_relations import values as plain

LEFT = pa.schema([("l.n", pa.int64()), ("l.k", pa.int32()), ("l.s", pa.string()), ("l.v", pa.int64())])
RIGHT = pa.schema([("r.k", pa.int64()), ("r.s", pa.string()), ("r.v", pa.string()), ("r.n", pa.int64())])
KINDS = ["inner", "left", "right", "full", "semi", "anti"]
KEYS = ((), (("l.k", "r.k"),), (("l.s", "r.s"), ("l.k", "r.k")))
RESIDUALS = (None, '"r.v"::int >= "l.v"', "true")
SEEDS = st.integers(0, 10_000)
FEWER = settings(max_examples=examples(20))


def sides(prefix: str, others: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Told]]:
    """Relations of one side, whose rows are numbered, so that all differ."""
    rows = st.builds(
        lambda k, s, v: {f"{prefix}.k": k, f"{prefix}.s": s, f"{prefix}.v": v},
        st.sampled_from([1, 1, 2, None]), st.sampled_from(["", "", "b", None]), others,
    )  # fmt: skip
    numbered = lambda relation: [  # noqa: E731
        each._replace(row={**each.row, f"{prefix}.n": at}) for at, each in enumerate(relation)
    ]
    return told_relations(rows, most=9).map(numbered)


LEFTS = sides("l", st.sampled_from([None, 1, 2, 3]))
RIGHTS = sides("r", st.sampled_from([None, "1", "2", "3", "x"]))


def raises(left: Row, right: Row, residual: str | None) -> bool:
    return residual == RESIDUALS[1] and right["r.v"] == "x"


def meet(left: Row, right: Row, keys: tuple[tuple[str, str], ...], residual: str | None) -> bool:
    """Whether two rows are partners, by the book."""
    if any(left[one] is None or left[one] != right[other] for one, other in keys) or raises(left, right, residual):
        return False
    if residual == RESIDUALS[1]:
        return None not in (left["l.v"], right["r.v"]) and int(right["r.v"]) >= left["l.v"]
    return True


def joined(node: Join, lefts: list[Row], rights: list[Row]) -> Counter[tuple[Any, ...]]:
    """The SQL join of two snapshots, by nested loops."""
    pairs = [(left, right) for left in lefts for right in rights if meet(left, right, node.keys, node.residual)]
    nothing_left, nothing_right = dict.fromkeys(LEFT.names), dict.fromkeys(RIGHT.names)
    lone_lefts = [left for left in lefts if all(left is not one for one, _ in pairs)]
    lone_rights = [right for right in rights if all(right is not one for _, one in pairs)]
    rows: list[Row] = []
    if node.kind == "semi":
        rows = [left for left in lefts if left not in lone_lefts]
    elif node.kind == "anti":
        rows = lone_lefts
    else:
        rows = [{**left, **right} for left, right in pairs]
        if node.kind in ("left", "full"):
            rows += [{**left, **nothing_right} for left in lone_lefts]
        if node.kind in ("right", "full"):
            rows += [{**nothing_left, **right} for right in lone_rights]
    return Counter(tuple(row[name] for name in node.schema.names) for row in rows)


def a_join(kind: str, keys: tuple[tuple[str, str], ...], residual: str | None) -> Join:
    schema = LEFT if kind in ("semi", "anti") else pa.schema([*LEFT, *RIGHT])
    left, right = Windowed(0, Unbounded(), LEFT), Windowed(1, Unbounded(), RIGHT)
    return Join(kind, left, right, keys, residual, schema)  # type: ignore[arg-type]


def run(
    node: Join, left: list[Told], right: list[Told], clocks: list[int], seed: int | None
) -> tuple[list[Delta], list[Interval], Driver]:
    one, other = cut(left, LEFT, clocks, since=0), cut(right, RIGHT, clocks, since=0)
    driver = Driver(lambda: JoinOperator(node), seed)
    deltas = [driver.advance([mine, theirs], span) for (span, mine), (_, theirs) in zip(one, other)]
    return deltas, intervals(deltas, [span for span, _ in one]), driver


def alive(relation: list[Told], instant: int) -> list[Row]:
    return [each.row for each in relation if each.start <= instant and (each.end is None or instant < each.end)]


def assert_joined(node: Join, left: list[Told], right: list[Told], found: list[Interval]) -> None:
    for instant in instants(left, right, found):
        there = Counter(
            plain(each.row) for each in found if each.start <= instant and (each.end is None or instant < each.end)
        )
        assert there == joined(node, alive(left, instant), alive(right, instant)), f"at {instant}"


@pytest.mark.parametrize("kind", KINDS)
@given(st.sampled_from(KEYS), st.sampled_from(RESIDUALS), LEFTS, RIGHTS, clock_lists(), st.none() | SEEDS)
def test_a_join_is_the_join_of_the_snapshots(
    kind: str, keys: Any, residual: str | None, left: list[Told], right: list[Told], clocks: list[int], seed: int | None
) -> None:
    node = a_join(kind, keys, residual)
    _, found, _ = run(node, left, right, clocks, seed)
    assert_joined(node, left, right, found)
    starts = Counter((plain(each.row), each.start) for each in found)
    assert not [each for each in found if (plain(each.row), each.end) in starts], "a row is split"


@pytest.mark.parametrize("kind", KINDS)
@given(st.sampled_from(KEYS), st.sampled_from(RESIDUALS), LEFTS, RIGHTS, clock_lists(), SEEDS)
@FEWER
def test_a_restored_join_goes_on_as_if_nothing_had_happened(
    kind: str, keys: Any, residual: str | None, left: list[Told], right: list[Told], clocks: list[int], seed: int
) -> None:
    node = a_join(kind, keys, residual)
    undisturbed, _, _ = run(node, left, right, clocks, None)
    restored, _, _ = run(node, left, right, clocks, seed)
    for one, other in zip(undisturbed, restored):
        assert one.rows.equals(other.rows)
        for name in ("start", "end", "id", "closed", "closed_end"):
            assert getattr(one, name).tolist() == getattr(other, name).tolist(), name


@pytest.mark.parametrize("kind", KINDS)
@given(LEFTS, RIGHTS, clock_lists(), st.none() | SEEDS)
@FEWER
def test_every_pair_that_raises_is_spoiled_once(
    kind: str, left: list[Told], right: list[Told], clocks: list[int], seed: int | None
) -> None:
    node = a_join(kind, KEYS[1], RESIDUALS[1])
    _, _, driver = run(node, left, right, clocks, seed)
    wanted = Counter(
        (one.row["l.v"], other.row["r.v"])
        for one in left
        for other in right
        if raises(one.row, other.row, node.residual) and meet(one.row, other.row, node.keys, None)
        if max(one.start, other.start) < min(1000 if each.end is None else each.end for each in (one, other))
    )
    told = [row for each in driver.spoiled for row in each.rows.to_pylist()]
    assert Counter((row["l.v"], row["r.v"]) for row in told) == wanted
    assert all("Conversion Error" in reason.text for each in driver.spoiled for reason in each.reasons)


@given(st.sampled_from(KINDS), st.sampled_from(RESIDUALS), LEFTS, RIGHTS, clock_lists(), SEEDS)
@example("semi", None, [Told({"l.n": 0, "l.k": 1, "l.s": "", "l.v": 1}, 0, 9, True)], [], [26], 0)
def test_small_chunks_make_no_difference(
    kind: str, residual: str | None, left: list[Told], right: list[Told], clocks: list[int], seed: int
) -> None:
    node = a_join(kind, KEYS[1], residual)
    _, whole, _ = run(node, left, right, clocks, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joins, "CANDIDATES", 2)
        _, chunked, _ = run(node, left, right, clocks, seed)
    assert whole == chunked
