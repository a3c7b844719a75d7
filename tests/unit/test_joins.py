"""The join of interval relations: when pairs and single tuples appear and end, what is kept, what is forgotten."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hayase.core.errors import DamagedState
from hayase.lifetimes.joins import PAIRS, SINGLES, JoinOperator
from hayase.lifetimes.plans import Join, Unbounded, Windowed
from hayase.lifetimes.relations import OPEN, Delta, Span, Step

LEFT = pa.schema([("a", pa.int64()), ("x", pa.string())])
RIGHT = pa.schema([("b", pa.int64()), ("y", pa.string())])
Told = tuple[Any, str, int, int]  # key, value, start, end


def a_join(kind: str, residual: str | None = None, keys: tuple[tuple[str, str], ...] = (("a", "b"),)) -> JoinOperator:
    schema = LEFT if kind in ("semi", "anti") else pa.schema([*LEFT, *RIGHT])
    left, right = Windowed(0, Unbounded(), LEFT), Windowed(1, Unbounded(), RIGHT)
    return JoinOperator(Join(kind, left, right, keys, residual, schema))  # type: ignore[arg-type]


class Run:
    """Steps of a join whose tuples are named by their values; ids are in the order in which they come."""

    def __init__(self, operator: JoinOperator) -> None:
        self.operator = operator
        self.ids: list[dict[str, int]] = [{}, {}]
        self.clock = self.version = 0

    def step(
        self, clock: int, left: list[Told] | None = None, right: list[Told] | None = None, **ends: int
    ) -> tuple[list[Any], list[Any], Step]:
        """What appears, as (values of x and y, start, end), what ends, as (id, end), and everything."""
        self.version += 1
        deltas = []
        for schema, ids, told in ((LEFT, self.ids[0], left or []), (RIGHT, self.ids[1], right or [])):
            closed = sorted((end, ids[name]) for name, end in ends.items() if name in ids)
            for _, name, _, _ in told:
                ids[name] = len(ids)
            numbers = np.array([(start, end, ids[name]) for _, name, start, end in told], np.int64).reshape(-1, 3)
            columns = [[each[0] for each in told], [each[1] for each in told]]
            rows = pa.record_batch([pa.array(one, kind) for one, kind in zip(columns, schema.types)], schema=schema)
            over = np.array(closed, np.int64).reshape(-1, 2)
            deltas.append(
                Delta(rows, *(numbers[:, at].copy() for at in range(3)), over[:, 1].copy(), over[:, 0].copy())
            )
        step = self.operator.advance(deltas, Span(self.clock, clock, self.version))
        self.clock = clock
        delta = step.delta
        rows = [tuple(row[name] for name in ("x", "y") if name in row) for row in delta.rows.to_pylist()]
        appeared = list(zip(rows, delta.start.tolist(), delta.end.tolist()))
        return appeared, list(zip(delta.closed.tolist(), delta.closed_end.tolist())), step


def test_a_pair_with_known_ends_is_told_once_and_forgotten() -> None:
    run = Run(a_join("inner"))
    assert run.step(10, [(1, "l", 0, 30)], [(1, "r", 5, 20)])[0] == [(("l", "r"), 5, 20)]
    assert run.operator.size(PAIRS) == 0
    assert run.step(40)[:2] == ([], [])
    assert run.operator.size("left") == run.operator.size("right") == 0


def test_a_pair_with_one_open_end_ends_when_the_known_one_passes() -> None:
    run = Run(a_join("inner"))
    appeared, _, step = run.step(10, [(1, "l", 0, OPEN)], [(1, "r", 5, 20)])
    assert appeared == [(("l", "r"), 5, OPEN)]
    assert [each.until for each in step.state if each.section == PAIRS] == [21]
    assert run.step(20)[:2] == ([], [])
    assert run.step(30)[:2] == ([], [(0, 20)])
    assert run.operator.size(PAIRS) == 0


def test_a_pair_with_one_open_end_ends_when_that_is_closed() -> None:
    run = Run(a_join("inner"))
    run.step(10, [(1, "l", 0, OPEN)], [(1, "r", 5, 20)])
    assert run.step(30, l=12)[:2] == ([], [(0, 12)])


def test_both_tuples_of_an_open_pair_may_end_in_one_step() -> None:
    run = Run(a_join("inner"))
    run.step(10, [(1, "l", 0, OPEN)], [(1, "r", 5, OPEN)])
    assert run.step(30, l=15, r=12)[:2] == ([], [(0, 12)])


def test_a_pair_that_opens_and_closes_in_one_step_is_told_once() -> None:
    run = Run(a_join("inner"))
    run.step(10, [(1, "l", 0, OPEN)])
    assert run.step(30, [], [(1, "r", 12, OPEN)], l=15)[:2] == ([(("l", "r"), 12, 15)], [])


def test_tuples_of_one_step_that_do_not_overlap_never_meet() -> None:
    appeared, _, _ = Run(a_join("inner")).step(30, [(1, "l", 0, 5), (1, "m", 3, 6)], [(1, "r", 5, 9)])
    assert appeared == [(("m", "r"), 5, 6)]


def test_results_are_in_the_order_of_start_left_and_right() -> None:
    rights = [(1, name, 3, 9) for name in "pqr"]
    run = Run(a_join("full"))
    appeared, _, step = run.step(30, [(1, "l", 1, 9), (2, "k", 3, 9), (1, "m", 3, 9)], rights)
    assert [row for row, start, _ in appeared if start == 3] == [
        *[("l", name) for name in "pqr"], ("k", None), *[("m", name) for name in "pqr"],
    ]  # fmt: skip
    assert step.delta.id.tolist() == sorted(step.delta.id.tolist())


def test_null_is_nobodys_partner() -> None:
    tuples = [(None, "n", 0, OPEN), (None, "o", 1, 20)]
    run = Run(a_join("left"))
    appeared, _, _ = run.step(10, tuples, [(None, "r", 0, OPEN)])
    assert appeared == [(("n", None), 0, OPEN), (("o", None), 1, 20)]
    assert run.operator.size("right") == 0
    assert run.step(30, n=15)[1] == [(0, 15)]
    inner = Run(a_join("inner"))
    assert inner.step(10, tuples)[0] == []
    assert inner.operator.size("left") == 0


def test_a_partner_that_takes_the_place_of_another_splits_nothing() -> None:
    rights = [(1, "r", 0, 5), (1, "s", 5, 9), (1, "t", 9, 12)]
    assert Run(a_join("semi")).step(30, [(1, "l", 2, 20)], rights)[0] == [(("l",), 2, 12)]
    assert Run(a_join("semi", '"x" < "y"')).step(30, [(1, "l", 2, 20)], rights)[0] == [(("l",), 2, 12)]
    assert Run(a_join("anti")).step(30, [(1, "l", 2, 20)], rights)[0] == [(("l",), 12, 20)]


def test_a_semi_join_knows_the_end_when_a_partner_stays_longer() -> None:
    run = Run(a_join("semi"))
    assert run.step(10, [(1, "l", 2, 20), (1, "m", 2, 40)], [(1, "r", 0, 30)])[0] == [
        (("l",), 2, 20), (("m",), 2, OPEN),
    ]  # fmt: skip
    assert run.step(50)[1] == [(1, 30)]


def test_an_outer_join_fills_every_gap() -> None:
    run = Run(a_join("left"))
    assert run.step(10, [(1, "l", 0, OPEN)])[0] == [(("l", None), 0, OPEN)]
    assert run.operator.size(SINGLES) == 1
    assert run.step(20, [], [(1, "r", 12, 15)])[:2] == ([(("l", "r"), 12, 15), (("l", None), 15, OPEN)], [(0, 12)])
    assert run.step(30, l=25)[:2] == ([], [(2, 25)])
    assert run.operator.size(SINGLES) == 0


@pytest.mark.parametrize("kind", ["left", "semi", "anti"])
def test_many_partners_of_one_key_cost_no_pairs(kind: str) -> None:
    run = Run(a_join(kind))
    _, _, step = run.step(10, [], [(1, str(number), 0, OPEN) for number in range(1000)])
    appeared, _, _ = run.step(20, [(1, "l", 12, OPEN)])
    assert len(appeared) == {"left": 1000, "semi": 1, "anti": 0}[kind]
    assert run.operator.size(PAIRS) == (1000 if kind == "left" else 0)
    assert ("y" in step.state[0].rows.schema.names) == (kind == "left")


def test_a_pair_on_which_the_predicate_raises_is_spoiled_and_does_not_meet() -> None:
    run = Run(a_join("left", '"y"::int > 0'))
    appeared, _, step = run.step(10, [(1, "l", 0, 9)], [(1, "7", 0, 5), (1, "z", 2, 9)])
    assert appeared == [(("l", "7"), 0, 5), (("l", None), 5, 9)]
    (spoiled,) = step.spoiled
    assert spoiled.rows.to_pylist() == [{"a": 1, "x": "l", "b": 1, "y": "z"}]
    assert "Could not convert string 'z'" in spoiled.reasons[0].text


def test_without_keys_everything_meets() -> None:
    for residual in (None, "true"):
        run = Run(a_join("inner", residual, keys=()))
        appeared, _, _ = run.step(10, [(None, "l", 0, 9), (2, "m", 1, 9)], [(3, "r", 0, 5)])
        assert appeared == [(("l", "r"), 0, 5), (("m", "r"), 1, 5)]


def test_lines_of_pairs_are_used_again() -> None:
    run = Run(a_join("inner"))
    for number in range(100):
        now = 10 * number
        run.step(
            now + 10, [(1, f"l{number}", now, OPEN)], [(1, f"r{number}", now, now + 12)], **{f"l{number - 1}": now}
        )
        assert run.operator.size(PAIRS) <= 2
    assert len(run.operator._pool) <= 8


def test_keys_without_tuples_are_forgotten() -> None:
    operator = a_join("inner")
    run = Run(operator)
    run.step(1, [(-1, "stays", 0, OPEN)])
    for number in range(100):
        now = number + 1
        run.step(now + 1, [(number, f"l{number}", now, now + 1)])
        assert len(operator._keys._index) <= 2
    assert run.step(200, [], [(-1, "r", 150, 160), (98, "s", 151, 160)])[0] == [(("stays", "r"), 150, 160)]


def test_what_is_known_of_a_key_stays_with_it_when_others_are_forgotten() -> None:
    run = Run(a_join("semi"))
    ends = [1, 100, 20, 1, 1, 1]
    run.step(5, [], [(key, f"r{key}", 0, end) for key, end in enumerate(ends)])
    assert len(run.operator._keys._index) == 2
    appeared, _, _ = run.step(10, [(1, "long", 6, 50), (2, "short", 6, 50)])
    assert appeared == [(("long",), 6, 50), (("short",), 6, OPEN)]
    assert run.step(60)[1] == [(1, 20)]


def test_a_step_without_anything_gives_nothing() -> None:
    for kind in ("inner", "left", "right", "full", "semi", "anti"):
        for residual in (None, '"x" < "y"'):
            appeared, ended, step = Run(a_join(kind, residual)).step(10)
            assert (appeared, ended, list(step.state), list(step.spoiled)) == ([], [], [], [])


@pytest.mark.parametrize("residual", [None, '"x" < "y"'])
def test_what_an_operator_has_already_may_be_restored_again(residual: str | None) -> None:
    run = Run(a_join("full", residual))
    _, _, first = run.step(10, [(1, "l", 0, OPEN), (2, "m", 0, OPEN)], [(1, "r", 5, 40)])
    _, _, second = run.step(20, [], [(2, "s", 15, OPEN)])
    assert [run.operator.size(section) for section in (PAIRS, SINGLES, "left", "right")] == [2, 1, 2, 2]
    for each in [*first.state, *second.state, *first.state]:
        run.operator.restore(each.section, each.rows, 2)
    appeared, ended, _ = run.step(30, l=25, s=26)
    assert appeared == [((None, "r"), 25, OPEN), (("m", None), 26, OPEN)]
    assert ended == [(first.delta.id[2], 25), (second.delta.id[0], 26)]
    assert [run.operator.size(section) for section in (PAIRS, SINGLES, "left", "right")] == [0, 2, 1, 1]


def test_state_of_another_definition_is_refused() -> None:
    with pytest.raises(DamagedState, match=r"pairs.*reset the stage"):
        a_join("inner").restore(PAIRS, pa.record_batch({"left": [1]}), 1)
