"""Rows that wait, against a plain list: which of them leave when, in which order, and after any catching up."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hayase.core.stages import OFFSET, TIME
from hayase.streams.reorder_buffer import ReorderBuffer
from hayase.streams.row_buffer import RowBuffer

SCHEMA = pa.schema({"x": pa.string(), TIME: pa.int64(), OFFSET: pa.int64()})
Row = tuple[int, int]


def batch(rows: list[Row]) -> pa.RecordBatch:
    columns = [
        [f"{time}/{offset}" for time, offset in rows],
        [time for time, _ in rows],
        [offset for _, offset in rows],
    ]
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, SCHEMA)], schema=SCHEMA)


def rows_of(found: pa.RecordBatch) -> list[Row]:
    rows = list(zip(found.column(TIME).to_pylist(), found.column(OFFSET).to_pylist()))
    assert found.column("x").to_pylist() == [f"{time}/{offset}" for time, offset in rows]
    return rows


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[list[Row], int]]:
    """Batches of records with growing offsets, none older than the clock, and the clock after each."""
    found, clock, offset = [], 0, 0
    for _ in range(draw(st.integers(1, 12))):
        times = draw(st.lists(st.integers(clock, clock + 20), max_size=8))
        rows = [(time, offset + i) for i, time in enumerate(times)]
        offset += len(rows)
        clock += draw(st.integers(0, 12))
        found.append((rows, clock))
    return found


@given(steps(), st.integers(0, 12), st.integers(1, 4))
def test_everybody_leaves_in_order_and_once(given_: list[tuple[list[Row], int]], lost_at: int, joined: int) -> None:
    buffer, waiting = ReorderBuffer(SCHEMA), []
    segments: list[list[Row]] = []
    for number, (rows, clock) in enumerate(given_):
        if number == lost_at:  # another worker takes over from the state segments, neighbours of which may be joined
            buffer = ReorderBuffer(SCHEMA)
            runs = [segments[i : i + joined] for i in range(0, len(segments), joined)]
            before = given_[number - 1][1] if number else -1
            buffer.catch_up([batch([row for part in run for row in part]) for run in runs], before)
        leaving, added = buffer.enter([batch(rows[:3]), batch(rows[3:])], clock)
        waiting += rows
        assert rows_of(leaving) == sorted(row for row in waiting if row[0] <= clock)
        assert sorted(rows_of(added)) == sorted(row for row in rows if row[0] > clock)
        waiting = [row for row in waiting if row[0] > clock]
        segments.append(rows_of(added))
        assert len(buffer) == len(waiting)


@given(steps(), st.integers(1, 11))
def test_catching_up_from_behind_repeats_nobody(given_: list[tuple[list[Row], int]], behind: int) -> None:
    ahead, late = ReorderBuffer(SCHEMA), ReorderBuffer(SCHEMA)
    segments: list[list[Row]] = []
    last = max(0, len(given_) - behind)
    for number, (rows, clock) in enumerate(given_):
        _, added = ahead.enter([batch(rows)], clock)
        segments.append(rows_of(added))
        if number < last:
            late.enter([batch(rows)], clock)
    # a joined segment that begins before the version at which the other worker stopped
    late.catch_up([batch([row for part in segments for row in part])], given_[-1][1])
    assert len(late) == len(ahead)
    one, other = (buffer.enter([], 10**6)[0] for buffer in (late, ahead))
    assert rows_of(one) == rows_of(other)


@given(st.data())
def test_rows_are_taken_by_key_in_the_order_of_arrival(data: st.DataObject) -> None:
    buffer, waiting, arrived = RowBuffer(SCHEMA, OFFSET), [], 0
    for _ in range(data.draw(st.integers(1, 12))):
        keys = data.draw(st.lists(st.integers(0, 5), max_size=6))
        rows = sorted((key, arrived + at) for at, key in enumerate(keys))
        arrived += len(rows)
        buffer.put(np.array([key for key, _ in rows], np.int64), batch(rows))
        waiting += rows
        chosen = data.draw(st.sets(st.integers(-1, 6), max_size=3))
        expected = sorted(row for row in waiting if row[0] in chosen)
        numbers = np.array(sorted(chosen), np.int64)
        for keep in (True, False):
            found, taken = buffer.take(numbers, keep)
            assert rows_of(taken) == expected
            assert found.tolist() == [key for key, _ in expected]
        waiting = [row for row in waiting if row[0] not in chosen]
        if data.draw(st.booleans()):
            bound = data.draw(st.integers(-1, 3))
            left = [rows_of(part) for part in buffer.take_up_to(bound)]
            assert all(part == sorted(part) for part in left)
            assert sorted(row for part in left for row in part) == sorted(row for row in waiting if row[0] <= bound)
            waiting = [row for row in waiting if row[0] > bound]
        assert len(buffer) == len(waiting)


def test_rows_that_wait_long_are_held_in_few_batches() -> None:
    buffer = RowBuffer(SCHEMA, OFFSET)
    for offset in range(1000):
        buffer.put(np.array([10_000 + offset]), batch([(10_000 + offset, offset)]))
    assert len(buffer) == 1000
    assert len(buffer.take_up_to(10**6)) <= int(np.log2(1000)) + 2
