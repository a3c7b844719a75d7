"""The leaves of a plan, by example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hayase.core.errors import DeclarationError
from hayase.core.reasons import ReasonKind
from hayase.core.stages import OFFSET, TIME
from hayase.lifetimes.leaves import leaf
from hayase.lifetimes.plans import ADDED, Changes, Partition, Range, Rows, Unbounded, Window, Windowed
from hayase.lifetimes.relations import OPEN, Delta, Span

SCHEMA = pa.schema([("value", pa.string())])


def stream(times: Sequence[int], first: int = 0, **columns: Sequence[Any]) -> pa.RecordBatch:
    """Records named a, b, c, ... in the order of the log."""
    offsets = list(range(first, first + len(times)))
    names = pa.array([chr(ord("a") + offset) for offset in offsets], pa.string())
    given = {name: pa.array(values) for name, values in columns.items()}
    return pa.record_batch(
        {"value": names, **given, TIME: pa.array(times, pa.int64()), OFFSET: pa.array(offsets, pa.int64())}
    )


def told(delta: Delta) -> list[tuple[str, int, int | None]]:
    names = delta.rows.column(0).to_pylist()
    ends = [None if end == OPEN else end for end in delta.end.tolist()]
    return list(zip(names, delta.start.tolist(), ends))


def closed(delta: Delta) -> list[tuple[int, int]]:
    return list(zip(delta.closed.tolist(), delta.closed_end.tolist()))


def first_step(window: Window, times: Sequence[int], clock: int = 100) -> list[tuple[str, int, int | None]]:
    batch = stream(times)
    return told(leaf(Windowed(0, window, SCHEMA)).advance([batch, batch], Span(-100, clock, 1)).delta)


def test_a_time_window_knows_its_ends() -> None:
    assert first_step(Range(10), [-3, 5]) == [("a", -3, 7), ("b", 5, 15)]


def test_now_is_one_grain() -> None:
    assert first_step(Range(0), [5]) == [("a", 5, 6)]
    assert first_step(Range(0, None, 1000), [5000], 10**6) == [("a", 5000, 6000)]
    assert first_step(Range(1500, None, 1000), [5000], 10**6) == [("a", 5000, 7000)]


def test_a_slide_takes_both_times_up_to_its_multiples() -> None:
    assert first_step(Range(10, 4), [-3, 0, 5]) == [("a", 0, 8), ("b", 0, 12), ("c", 8, 16)]


def test_a_window_that_ends_before_it_moves_is_never_seen() -> None:
    assert first_step(Range(2, 10), [1, 9]) == [("b", 10, 20)]


def test_a_tuple_waits_until_the_window_moves() -> None:
    window = leaf(Windowed(0, Range(10, 10), SCHEMA))
    step = window.advance([stream([3])], Span(0, 5, 1))
    assert told(step.delta) == []
    assert window.size("waiting") == 1
    again = leaf(Windowed(0, Range(10, 10), SCHEMA))
    for each in step.state:
        again.restore(each.section, each.rows, 1)
    assert told(again.advance([stream([], 1)], Span(5, 20, 2)).delta) == [("a", 10, 20)]
    assert again.size("waiting") == 0


def test_an_end_past_all_time_is_open() -> None:
    assert first_step(Range(OPEN - 1), [5]) == [("a", 5, None)]
    assert first_step(Unbounded(), [5]) == [("a", 5, None)]


def test_a_row_window_closes_by_number() -> None:
    window = leaf(Windowed(0, Rows(2, 1), SCHEMA))
    batch = stream([1, 2, 3])
    step = window.advance([batch, batch], Span(0, 4, 1))
    assert told(step.delta) == [("a", 1, 3), ("b", 2, None), ("c", 3, None)]
    assert [each.section for each in step.state] == ["registers"]
    batch = stream([5, 6], 3)
    delta = window.advance([batch, batch], Span(4, 9, 2)).delta
    assert closed(delta) == [(1, 5), (2, 6)]
    assert told(delta) == [("d", 5, None), ("e", 6, None)]
    assert delta.id.tolist() == [3, 4]


def test_a_filtered_row_window_counts_all_tuples() -> None:
    window, all_ = leaf(Windowed(0, Rows(2, 1), SCHEMA)), stream([1, 1, 1, 4])
    delta = window.advance([all_.take(pa.array([1, 3])), all_], Span(0, 9, 1)).delta
    assert told(delta) == [("b", 1, 4), ("d", 4, None)]
    assert delta.id.tolist() == [1, 3]


def test_ghosts_of_a_row_window_stay_inside() -> None:
    assert first_step(Rows(1, 1), [1, 1, 1, 2]) == [("c", 1, 2), ("d", 2, None)]


def test_a_row_window_moves_at_every_second_tuple() -> None:
    assert first_step(Rows(2, 1, 2), [1, 2, 3, 4, 5]) == [("a", 2, 4), ("b", 2, 4), ("c", 4, None), ("d", 4, None)]


def test_partitions_keep_their_last_tuples() -> None:
    window = leaf(Windowed(0, Partition(("key",), 1), SCHEMA))
    delta = window.advance([stream([1, 2, 3], key=["x", "y", "x"])], Span(0, 4, 1)).delta
    assert told(delta) == [("a", 1, 3), ("b", 2, None), ("c", 3, None)]
    delta = window.advance([stream([5, 5, 6], 3, key=["x", "x", None])], Span(4, 9, 2)).delta
    assert closed(delta) == [(2, 5)]
    assert told(delta) == [("e", 5, None), ("f", 6, None)]
    assert window.size("members") == 3


def test_a_partition_counts_what_a_filter_takes_out() -> None:
    window = leaf(Windowed(0, Partition(("key",), 1), SCHEMA, "let"))
    batch = stream([1, 2, 3], key=[7, 7, 7], let=[True, False, True])
    assert told(window.advance([batch], Span(0, 4, 1)).delta) == [("a", 1, 2), ("c", 3, None)]


def test_a_partition_costs_what_is_alive() -> None:
    window = leaf(Windowed(0, Partition(("key",), 1_000_000), SCHEMA))
    step = window.advance([stream([1, 2], key=[1, 2])], Span(0, 4, 1))
    assert sum(each.rows.num_rows for each in step.state) == window.size("members") == 2


def test_a_row_that_is_not_there_cannot_be_taken_away() -> None:
    window = leaf(Changes(0, SCHEMA))
    batch = pa.record_batch(
        {"value": ["x", "y", "x"], ADDED: [True, False, False], TIME: np.arange(3), OFFSET: np.arange(3)}
    )
    step = window.advance([batch], Span(0, 9, 1))
    assert told(step.delta) == [("x", 0, 2)]
    (lost,) = step.spoiled
    assert lost.rows.to_pylist() == [{"value": "y"}]
    assert lost.reasons == [(ReasonKind.CHANGE, "there is no such row to remove")]
    assert np.asarray(lost.ids).tolist() == [1]


def test_changes_of_rows_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(DeclarationError, match='rows with the column "many", a map<string, int64>, cannot be compared'):
        leaf(Changes(0, pa.schema([("many", pa.map_(pa.string(), pa.int64()))])))


def test_rows_that_went_are_forgotten() -> None:
    window, count = leaf(Changes(0, pa.schema([("value", pa.int64())]))), 1000
    for step in range(30):
        at = np.arange(step * count, (step + 1) * count)
        both = {"value": np.repeat(at, 2), ADDED: [True, False] * count, TIME: np.repeat(at, 2)}
        batch = pa.record_batch({**both, OFFSET: np.arange(2 * step * count, 2 * (step + 1) * count)})
        window.advance([batch], Span(step * count, (step + 1) * count, step + 1))
    assert window.size("tuples") == 0
    assert len(window._index) <= 3000  # type: ignore[attr-defined]
