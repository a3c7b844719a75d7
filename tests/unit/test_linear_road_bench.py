"""The benchmark of Linear Road: which numbers of expressways it tries, and when it says that all answers came in time."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.linear_road import ANSWERS, Entered, Size, next_trials, verdict

from linear_road import records, road_model, small, traffic

SIZE = Size(history=60, measured=20, known=1)


@pytest.mark.parametrize(
    ("first", "most", "can", "tried", "found"),
    [
        (8, 128, 0, [8, 4, 2, 1], 0),
        (8, 128, 1, [8, 4, 2, 1], 1),
        (8, 128, 3, [8, 4, 2, 3], 3),
        (8, 128, 7, [8, 4, 6, 7], 7),
        (8, 128, 11, [8, 16, 12, 10], 10),
        (8, 128, 40, [8, 16, 32, 64, 48, 40], 40),
        (8, 16, 90, [8, 16], 16),
        (2, 2, 9, [2], 2),
    ],
)
def test_it_doubles_or_halves_and_then_searches_between(
    first: int, most: int, can: int, tried: list[int], found: int
) -> None:
    trials: dict[int, dict[str, bool]] = {}
    for expressways in next_trials(trials, first, most):
        trials[expressways] = {"kept": expressways <= can}
    assert list(trials) == tried
    assert max((each for each, trial in trials.items() if trial["kept"]), default=0) == found


def test_as_many_notifications_are_due_as_the_model_gives() -> None:
    given = records(small(2, 6), 150)
    entered = Entered()
    counted = sum(entered.take(second) for second in traffic.seconds(small(2, 6), 150))
    assert counted == len(road_model.LinearRoad().take(given).tolls) > 0


def test_a_late_answer_and_a_missing_one_are_failures() -> None:
    waits = {name: np.array([1.2, 4.9]) for name in ANSWERS}
    due = {"records": 1000, "toll_notifications": 2, "balances": 2, "expenditures": 2}
    assert verdict(SIZE, waits, due, 1.0)["kept"]
    late = verdict(SIZE, waits | {"balances": np.array([1.2, 5.1])}, due, 1.0)
    assert (late["kept"], late["late"]) == (False, 1)
    missing = verdict(SIZE, waits, due | {"balances": 3}, 1.0)
    assert (missing["kept"], missing["missing"]["balances"]) == (False, 1)
    assert missing["records_per_second"] == 50


def test_a_trial_that_ended_early_has_the_rate_of_its_seconds_and_is_a_failure() -> None:
    waits = {name: np.array([1.2, 5.1]) for name in ANSWERS}
    due = {"seconds": 10, "records": 1000, "toll_notifications": 9, "balances": 9, "expenditures": 9}
    early = verdict(SIZE, waits, due, 5.0)
    assert (early["kept"], early["records_per_second"], early["cpu_seconds_per_second"]) == (False, 100, 0.5)


def test_a_trial_without_memory_is_a_failure() -> None:
    short = verdict(SIZE, {}, {}, 0.0, 1 << 30, "memory runs short")
    assert (short["kept"], short["ended"], short["memory_bytes"]) == (False, "memory runs short", 1 << 30)
