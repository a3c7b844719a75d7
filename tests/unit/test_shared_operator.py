"""Shared windows by example: what the rows look like, what is kept, and what goes wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hayase.core.algebra import AGGREGATES
from hayase.core.errors import DamagedState, DeclarationError
from hayase.core.reasons import ReasonKind
from hayase.core.stages import OFFSET, TIME
from hayase.lifetimes.plans import Call, Shared, SharedWindow
from hayase.lifetimes.relations import Span, Step
from hayase.lifetimes.shared_windows import SharedOperator, SharedState
from hayase.windows.panes import Panes, epoch_end
from hayase.windows.partials import Lifting
from hayase.windows.row_windows import RowWindows

SECOND = 1_000_000
YEAR = 365 * 86400 * SECOND
INPUT = pa.schema(
    [("k", pa.string()), ("v", pa.int64()), ("x", pa.float64()), (TIME, pa.int64()), (OFFSET, pa.int64())]
)
CALLS = (Call("sum", "v", text="sum(v)"), Call("max", "v", text="max(v)"))


def shared(
    windows: Sequence[tuple[str, int, int]], keys: tuple[str, ...] = (), calls: Sequence[Call] = CALLS
) -> Shared:
    """A node whose column `window` says how long the window is."""
    own = tuple(SharedWindow(kind, length, slide, length) for kind, length, slide in windows)  # type: ignore[arg-type]
    named = [(f"c{at}", pa.float64() if call.argument == "x" else pa.int64()) for at, call in enumerate(calls)]
    schema = pa.schema([("window", pa.int64()), *(INPUT.field(key) for key in keys), *named])
    return Shared(0, own, keys, tuple(calls), schema)


class Run:
    """An operator that goes on step by step; a record is (time, value) or (time, key, value)."""

    def __init__(self, operator: SharedOperator) -> None:
        self.operator = operator
        self.clock, self.version, self.offset = -(2**62), 0, 0
        self.began: int | None = None

    def step(self, records: Sequence[tuple[Any, ...]], clock: int) -> Step:
        rows = []
        for record in records:
            key, value = record[1:] if len(record) == 3 else ("a", record[1])
            number = None if value is None else float(value)
            rows.append({"k": key, "v": value, "x": number, TIME: record[0], OFFSET: self.offset})
            self.offset += 1
        if self.began is None and rows:
            self.began = rows[0][TIME]
        self.version += 1
        began = -(2**62) if self.began is None else self.began
        step = self.operator.advance(
            [pa.RecordBatch.from_pylist(rows, schema=INPUT)], Span(self.clock, clock, self.version, began)
        )
        self.clock = clock
        return step

    def after(self, other: Run) -> Run:
        """Go on where another has got to."""
        self.clock, self.version, self.offset, self.began = other.clock, other.version, other.offset, other.began
        return self


def lines(step: Step) -> list[tuple[Any, ...]]:
    """Start, end and values of the rows that begin."""
    ends = [None if end == 2**62 else end for end in step.delta.end.tolist()]
    values = [tuple(row.values()) for row in step.delta.rows.to_pylist()]
    return [(start, end, *row) for start, end, row in zip(step.delta.start.tolist(), ends, values)]


def closed(step: Step) -> list[tuple[int, int]]:
    return list(zip(step.delta.closed.tolist(), step.delta.closed_end.tolist()))


def test_windows_of_rows_move_with_every_slide() -> None:
    run = Run(SharedOperator(shared([("rows", 2, 2), ("rows", 3, 2)])))
    step = run.step([(1, 5), (2, 1), (3, 7), (4, 2)], clock=5)
    assert lines(step) == [
        (1, 2, 2, None, None), (1, 2, 3, None, None), (2, 4, 2, 6, 5), (2, 4, 3, 6, 5), (4, None, 2, 9, 7),
        (4, None, 3, 10, 7),
    ]  # fmt: skip
    step = run.step([(5, 0), (5, 1), (5, 2), (5, 9)], clock=6)
    assert lines(step) == [(5, None, 2, 11, 9), (5, None, 3, 12, 9)]
    assert closed(step) == [(4, 5), (5, 5)]


def test_windows_by_time_turn_where_a_pane_comes_or_goes() -> None:
    run = Run(SharedOperator(shared([("range", 15, 6)], ("k",))))
    step = run.step([(1, "a", 5), (2, "b", 1), (13, "a", 2)], clock=20)
    #  a   | 5 @1 in (-9, 6] .. (3, 18] | 2 @13 in (3, 18] .. (15, 30]
    assert lines(step) == [(6, 18, 15, "a", 5, 5), (6, 18, 15, "b", 1, 1), (18, None, 15, "a", 2, 2)]
    step = run.step([], clock=30)
    assert not lines(step)
    assert not closed(step)
    step = run.step([], clock=31)
    assert closed(step) == [(2, 30)]


def test_a_lone_tuple_costs_two_turns_however_many_slides_it_sees() -> None:
    panes = Panes(SECOND, [Lifting(AGGREGATES["sum"], [pa.int64()])], [(YEAR, SECOND)])
    one = Lifting(AGGREGATES["sum"], [pa.int64()]).lift([pa.array([7])])
    none = np.empty(0, np.int64)
    [(sequence, turns)] = panes.advance(np.array([0]), np.array([1]), np.array([0]), [one], clock=100 * YEAR)
    assert turns.time.tolist() == [SECOND, SECOND + YEAR]
    assert turns.first.tolist() == [0, -1]
    assert sequence.filled(turns).tolist() == [True, False]
    assert panes.holds(np.array([0])).all()
    panes.advance(none, none, none, [one.take(none)], clock=100 * YEAR)
    assert panes.emptied().tolist() == [0]
    assert not panes.holds(np.array([0])).any()


def test_a_key_without_tuples_is_dropped_and_its_number_used_again() -> None:
    state = SharedState([shared([("range", 10, 5)], ("k",))])
    run = Run(SharedOperator(shared([("range", 10, 5)], ("k",)), state))
    for at in range(0, 1000, 100):
        run.step([(at, f"{at}", 1)], clock=at + 50)
        run.step([], clock=at + 60)
    assert state.keys.slots([pa.array(["900", "0"])], 2, insert=False).tolist() == [0, -1]
    assert run.operator.size("answers") == 0
    assert run.operator.size("panes") == 0


def test_a_restored_key_without_tuples_is_dropped_too() -> None:
    node = shared([("range", 10, 5)], ("k",))
    first, state = Run(SharedOperator(node)), SharedState([node])
    steps = [first.step([(0, "x", 1)], clock=8), first.step([], clock=50)]
    second = Run(SharedOperator(node, state)).after(first)
    for version, step in enumerate(steps, 1):
        for each in step.state:
            if each.until is None or each.until >= first.clock:
                second.operator.restore(each.section, each.rows, version)
    assert lines(second.step([(51, "y", 1)], clock=56)) == [(55, None, 10, "y", 1, 1)]
    second.step([], clock=57)
    assert state.keys.slots([pa.array(["x"])], 1, insert=False).tolist() == [-1]


def test_without_keys_there_is_a_row_from_the_first_record_on() -> None:
    calls = (Call("count", None), Call("sum", "v"))
    run = Run(SharedOperator(shared([("rows", 3, 3), ("range", 4, 4)], (), calls)))
    assert lines(run.step([], clock=0)) == []
    assert lines(run.step([(2, 8)], clock=4)) == [(2, None, 3, 0, None), (2, None, 4, 0, None)]
    step = run.step([], clock=100)
    assert lines(step) == [(4, 8, 4, 1, 8), (8, None, 4, 0, None)]
    assert closed(step) == [(1, 4)]


def test_a_sum_that_does_not_fit_is_reported_and_the_query_lives_on() -> None:
    run = Run(SharedOperator(shared([("rows", 2, 1)], ("k",))))
    step = run.step([(1, 2**63 - 1), (2, 1), (3, 5)], clock=4)
    assert lines(step) == [(1, 2, 2, "a", 2**63 - 1, 2**63 - 1), (3, None, 2, "a", 6, 5)]
    [spoiled] = step.spoiled
    assert spoiled.rows.to_pylist() == [{"window": 2, "k": "a", "c0": None, "c1": 2**63 - 1}]
    assert spoiled.reasons == [(ReasonKind.OVERFLOW, "sum(v) over the last 2 rows does not fit its type")]


def test_a_query_that_joins_later_is_over_fewer_tuples_until_its_window_is_full() -> None:
    old = shared([("rows", 2, 1)], ("k",), (Call("sum", "v"),))
    new = shared([("rows", 5, 1)], ("k",), (Call("sum", "v"), Call("sum", "x")))
    first = Run(SharedOperator(old))
    written = first.step([(1, 10), (2, 20), (3, 30)], clock=4).state
    state = SharedState([old, new])
    both = [Run(SharedOperator(each, state)).after(first) for each in (old, new)]
    for each in written:
        both[0].operator.restore(each.section, each.rows, 1)
    one, two = (run.step([(5, 1)], clock=6) for run in both)
    assert lines(one) == [(5, None, 2, "a", 31)]
    assert lines(two) == [(5, None, 5, "a", 31, 1.0)]
    one, two = (run.step([(7, 2), (8, 3), (9, 4)], clock=10) for run in both)
    assert lines(two)[-1] == (9, None, 5, "a", 40, 10.0)


def test_tuples_of_time_windows_go_by_the_clock() -> None:
    run = Run(SharedOperator(shared([("range", 6, 3), ("range", 40, 20)], ("k",))))
    [panes] = [each for each in run.step([(1, 5), (25, 1)], clock=26).state if each.section == "panes"]
    assert panes.until == max(epoch_end(np.array([25]), 6, 3)[0], epoch_end(np.array([25]), 40, 20)[0])
    assert panes.rows.column("of_v").to_pylist() == [5, 1]


def test_only_tuples_in_reach_are_written() -> None:
    run = Run(SharedOperator(shared([("rows", 3, 2), ("rows", 1, 5)], ("k",))))
    step = run.step([(at, at) for at in range(100)], clock=100)
    [rows] = [each.rows for each in step.state if each.section == "rows"]
    assert rows.column("__number").to_pylist() == [99]
    step = run.step([(100, 100), (101, 101), (102, 102)], clock=103)
    [rows] = [each.rows for each in step.state if each.section == "rows"]
    assert rows.column("__number").to_pylist() == [101, 102]
    assert run.operator.live("rows", rows, 2).num_rows == 2


def test_of_restored_tuples_the_last_run_without_a_gap_counts() -> None:
    lifting = Lifting(AGGREGATES["count"], [])
    counted = RowWindows([lifting], [(4, 1)])
    keys, numbers = np.array([0, 1, 0, 0, 1, 0, 0]), np.array([8, 3, 9, 2, 4, 3, 8])
    named = counted.unknown(keys, numbers)
    assert list(zip(keys[named].tolist(), numbers[named].tolist())) == [(0, 8), (0, 9), (1, 3), (1, 4)]


def test_distinct_calls_do_not_share() -> None:
    with pytest.raises(DeclarationError, match="cannot share windows"):
        SharedOperator(shared([("rows", 2, 1)], (), (Call("count", "v", distinct=True, text="count(distinct v)"),)))


@pytest.mark.parametrize("section", ["answers", "rows", "panes"])
def test_damaged_state_is_noticed(section: str) -> None:
    operator = SharedOperator(shared([("rows", 2, 1)]))
    with pytest.raises(DamagedState, match="reset the stage"):
        operator.restore(section, pa.record_batch({"a": [1]}), 1)


def test_what_was_written_earlier_does_not_come_back() -> None:
    run, again = (Run(SharedOperator(shared([("rows", 2, 1)], ("k",)))) for _ in range(2))
    steps = [run.step([(at, at)], clock=at + 1) for at in range(3)]
    for version in (1, 2, 3, 1, 2):
        for each in steps[version - 1].state:
            again.operator.restore(each.section, each.rows, version)
    step = again.after(run).step([(5, 7)], clock=6)
    assert lines(step) == [(5, None, 2, "a", 9, 7)]
    assert closed(step) == [(2, 5)]
    assert again.operator.size("answers") == 1
    assert again.operator.size("rows") == 1


def test_an_open_row_is_rewritten_once() -> None:
    run = Run(SharedOperator(shared([("rows", 2, 1)], ("k",))))
    [first, _] = [run.step([(at, "a", at), (at, "b", at)], clock=at + 1).state for at in range(2)]
    [written] = [each.rows for each in first if each.section == "answers"]
    assert run.operator.live("answers", written, 1).num_rows == 0
    live = run.operator.live("answers", written.slice(0, 1), 2)
    assert live.to_pylist() == [
        {"key_0": "a", "__window": 0, "__row": 2, "value_0": 1, "value_1": 1},
    ]
    run.step([(5, "b", 0)], clock=6)
    assert run.operator.live("answers", written, 3).column("key_0").to_pylist() == ["a", "b"]
    assert run.operator.live("answers", written, 2).num_rows == 0
