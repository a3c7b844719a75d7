"""Negative tuples on timelines that can be checked by hand; the laws compare them with the direct method at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.insertion_queue import InsertionQueue
from benchmarks.negative_tuples.kernel import NegativeKernel
from hypothesis import given
from hypothesis import strategies as st

from hayase.core.stages import OFFSET, TIME
from hayase.core.times import BEGINNING
from hayase.lifetimes.expiry import ExpiryQueue
from hayase.lifetimes.kernel import KernelConfig
from hayase.lifetimes.plans import (
    Aggregate,
    Call,
    Instants,
    Join,
    Multiset,
    Node,
    Range,
    Rows,
    Scalar,
    ToStream,
    UnionAll,
    Windowed,
)

ROW = pa.schema({"k": pa.string(), "v": pa.int64()})
OTHER = pa.schema({"k1": pa.string(), "v1": pa.int64()})
Event = tuple[int, str | None, int]


def batches(streams: Sequence[Sequence[Event]], since: int, clock: int) -> list[pa.RecordBatch]:
    """The records of a step, of every stream, and then their ticks."""
    records, ticks = [], []
    for stream, schema in zip(streams, (ROW, OTHER)):
        some = [(at, each) for at, each in enumerate(stream) if since <= each[0] < clock]
        times = [pa.array([each[0] for _, each in some], pa.int64()), pa.array([at for at, _ in some], pa.int64())]
        own = [pa.array([each[column + 1] for _, each in some], field.type) for column, field in enumerate(schema)]
        records.append(pa.RecordBatch.from_arrays([*own, *times], [*schema.names, TIME, OFFSET]))
        ticks.append(pa.RecordBatch.from_arrays(times, [TIME, OFFSET]))
    return [*records, *ticks]


def rows(plan: Node, streams: Sequence[Sequence[Event]], clocks: Sequence[int]) -> list[tuple[Any, ...]]:
    """Everything that a kernel tells, step by step."""
    own = ["changed_at"] if isinstance(plan, ToStream) else ["row_id", "valid_from", "valid_to", "changed_at"]
    output = pa.schema([*plan.schema, *(pa.field(each, pa.int64()) for each in own)])
    kernel = NegativeKernel(KernelConfig(plan, output, 1, tuple(range(len(streams)))))
    found: list[tuple[Any, ...]] = []
    since = BEGINNING
    for version, clock in enumerate(clocks, start=1):
        outcome = kernel.process(batches(streams, since, clock), since, clock, version)
        found += [tuple(each.values()) for each in outcome.rows.to_pylist()]
        since = clock
    return found


def told(plan: Node, *streams: Sequence[Event], clocks: Sequence[int] = (100,)) -> list[tuple[Any, ...]]:
    """The last word on every row: values, start, end."""
    last: dict[int, tuple[Any, ...]] = {}
    for *values, number, start, end, _ in rows(plan, streams, clocks):
        last[number] = (*values, start, end)
    return sorted(last.values(), key=repr)


def ranged(length: int, stream: int = 0) -> Node:
    return Windowed(stream, Range(length), (ROW, OTHER)[stream])


A: list[Event] = [(1, "a", 1), (2, "b", 2), (2, "a", 3), (5, "a", 3)]


def test_a_time_window_ends_by_itself() -> None:
    wanted = [("a", 1, 1, 4), ("a", 3, 2, 5), ("a", 3, 5, 8), ("b", 2, 2, 5)]
    assert told(ranged(3), A) == wanted
    assert told(ranged(3), A, clocks=[2, 3, 5, 100]) == wanted


def test_a_row_window_ends_with_a_later_tuple_and_leaves_no_ghosts() -> None:
    plan = Windowed(0, Rows(2, 1), ROW)
    assert told(plan, A) == [("a", 1, 1, 2), ("a", 3, 2, None), ("a", 3, 5, None), ("b", 2, 2, 5)]
    assert told(Windowed(0, Rows(1, 1), ROW), A) == [("a", 1, 1, 2), ("a", 3, 2, 5), ("a", 3, 5, None)]


def test_selection_and_projection_see_both_signs() -> None:
    plan = Scalar(ranged(3), (("v", '"v" * 10'),), "\"k\" = 'a'", pa.schema({"v": pa.int64()}))
    assert told(plan, A) == [(10, 1, 4), (30, 2, 5), (30, 5, 8)]


def test_a_row_that_raises_is_spoiled_once() -> None:
    plan = Scalar(ranged(3), (("v", 'cast("k" as bigint)'),), None, pa.schema({"v": pa.int64()}))
    output = pa.schema(
        {"v": pa.int64(), "row_id": pa.int64()} | dict.fromkeys(("valid_from", "valid_to", "changed_at"), pa.int64())
    )
    kernel = NegativeKernel(KernelConfig(plan, output))
    outcome = kernel.process(batches([[(1, "7", 0), (2, "x", 0)]], 0, 100), 0, 100, 1)
    assert outcome.rows.column("v").to_pylist() == [7]
    assert [each.rows.column("k").to_pylist() for each in outcome.spoiled] == [["x"]]


def test_union_keeps_every_row() -> None:
    both = (ranged(3), Scalar(ranged(1), (("k", '"k"'), ("v", '"v"')), None, ROW))
    found = told(UnionAll(both, ROW), [(1, "a", 1)])
    assert found == [("a", 1, 1, 2), ("a", 1, 1, 4)]


# left:  a [1, 4)  NULL [2, 5)      right:  a [3, 6)  NULL [3, 6)
@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("inner", [("a", 1, "a", 9, 3, 4)]),
        ("left", [("a", 1, "a", 9, 3, 4), ("a", 1, None, None, 1, 3), (None, 2, None, None, 2, 5)]),
        ("right", [("a", 1, "a", 9, 3, 4), (None, None, "a", 9, 4, 6), (None, None, None, 8, 3, 6)]),
        ("semi", [("a", 1, 3, 4)]),
        ("anti", [("a", 1, 1, 3), (None, 2, 2, 5)]),
    ],
)
def test_joins(kind: Any, wanted: list[tuple[Any, ...]]) -> None:
    schema = ROW if kind in ("semi", "anti") else pa.schema([*ROW, *OTHER])
    plan = Join(kind, ranged(3), ranged(3, 1), (("k", "k1"),), None, schema)
    streams: tuple[list[Event], list[Event]] = ([(1, "a", 1), (2, None, 2)], [(3, "a", 9), (3, None, 8)])
    assert told(plan, *streams) == sorted(wanted, key=repr)
    assert told(plan, *streams, clocks=[2, 3, 4, 100]) == sorted(wanted, key=repr)


def test_a_join_with_many_pairs_goes_on_where_its_room_ended() -> None:
    plan = Join("inner", ranged(50), ranged(50, 1), (), '"v" = "v1"', pa.schema([*ROW, *OTHER]))
    streams = [[(1, "a", at) for at in range(30)], [(2, "b", at) for at in range(30)]]
    assert told(plan, *streams) == sorted([("a", at, "b", at, 2, 51) for at in range(30)], key=repr)


def test_except_lives_while_only_the_left_has_it() -> None:
    right = Scalar(ranged(3, 1), (("k", '"k1"'), ("v", '"v1"')), None, ROW)
    plan = Multiset("except", (ranged(3), right), ROW)
    assert told(plan, [(1, "a", 1), (6, "a", 1)], [(2, "a", 1)]) == [("a", 1, 1, 2), ("a", 1, 6, 9)]


def test_an_average_that_stays_is_not_split() -> None:
    plan = Aggregate(ranged(3), ("k",), (Call("avg", "v"),), pa.schema({"k": pa.string(), "a": pa.float64()}))
    events: list[Event] = [(1, "a", 4), (2, "a", 4), (3, "a", 1)]
    assert told(plan, events) == [("a", 1.0, 5, 6), ("a", 2.5, 4, 5), ("a", 3.0, 3, 4), ("a", 4.0, 1, 3)]


def test_aggregates_without_keys_have_a_row_from_the_first_record_on() -> None:
    calls = (Call("count", None), Call("max", "v"))
    plan = Aggregate(ranged(2), (), calls, pa.schema({"n": pa.int64(), "m": pa.int64()}))
    assert told(plan, [(1, "a", 7)]) == [(0, None, 3, None), (1, 7, 1, 3)]


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("istream", [("a", 1), ("b", 3)]),
        ("dstream", [("a", 5), ("b", 5)]),
        ("rstream", [("a", 1), ("a", 3), ("b", 3)]),
    ],
)
def test_streams_balance_what_goes_and_comes_at_once(kind: Any, wanted: list[tuple[Any, ...]]) -> None:
    child = Scalar(ranged(2), (("k", '"k"'),), None, pa.schema({"k": pa.string()}))
    events: list[Event] = [(1, "a", 0), (3, "a", 1), (3, "b", 1)]
    for clocks in ([100], [2, 3, 4, 100]):
        plan = ToStream(kind, child, child.schema, None, (Instants(0, Range(2)),) if kind == "rstream" else ())
        assert sorted(rows(plan, [events], clocks)) == sorted(wanted)


@given(
    st.lists(
        st.tuples(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 99)), max_size=8), st.integers(0, 31)),
        max_size=6,
    )
)
def test_insertion_gives_what_the_deferred_sort_gives(steps: list[tuple[list[tuple[int, int]], int]]) -> None:
    queues = (InsertionQueue(0), InsertionQueue(5), ExpiryQueue())
    used: set[int] = set()
    clock = 0
    for pushed, by in steps:
        new = sorted({(end + clock, number) for end, number in pushed if number not in used})
        new = [each for at, each in enumerate(new) if each[1] not in {number for _, number in new[:at]}]
        used |= {number for _, number in new}
        lines = np.array([(end, number, number) for end, number in new], np.int64).reshape(-1, 3)
        clock += by
        popped = []
        for queue in queues:
            queue.push(*(lines[:, each].copy() for each in range(3)))
            assert queue.has(lines[:, 0].copy(), lines[:, 1].copy()).all()
            popped.append(queue.pop(clock).tolist())
        assert popped[0] == popped[1] == popped[2]
        assert len({len(queue) for queue in queues}) == 1
