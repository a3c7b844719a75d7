"""When a lane may be started again, and whether a home's lock is held: decided without Spark."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from hayase.engine import file_lock
from hayase.engine.spark.restarts import Restarts


def test_the_budget_of_restarts_is_spent_and_refills() -> None:
    budget = Restarts(most=2, refill=60.0)
    assert [budget.allow(moment) for moment in (0.0, 0.0, 1.0, 59.0, 62.0, 63.0)] == [
        True,
        True,
        False,
        False,
        True,
        False,
    ]
    assert budget.allow(63.0, free=True), "a restart because the machine is busy costs nothing"
    assert not budget.allow(63.0)


def test_a_budget_never_holds_more_than_it_had_at_first() -> None:
    budget = Restarts(most=2, refill=60.0)
    assert budget.allow(0.0)
    assert [budget.allow(10_000.0) for _ in range(3)] == [True, True, False]


def test_records_restore_the_budget() -> None:
    budget = Restarts(most=2, refill=60.0)
    for _ in range(10):  # processes die faster than the budget refills, but each time the lane gets on
        assert [budget.allow(0.0) for _ in range(2)] == [True, True]
        budget.worked(records=True)
    assert budget.allow(0.0)
    budget.worked(records=False)  # the clock of an idle stream moved, which any lane can do before it fails again
    assert [budget.allow(0.0) for _ in range(2)] == [True, False]


def test_pauses_double_until_a_batch_is_committed() -> None:
    budget = Restarts(most=100, longest=5.0)
    pauses = []
    for _ in range(6):
        assert budget.allow(0.0)
        pauses.append(budget.pause())
    assert pauses == [0.0, 1.0, 2.0, 4.0, 5.0, 5.0]
    budget.worked(records=False)
    assert budget.allow(0.0)
    assert budget.pause() == 0.0


@pytest.mark.parametrize("shown", [True, False], ids=["where a lock can be asked for", "where it can only be tried"])
def test_a_lock_is_seen_while_it_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: bool) -> None:
    if not shown:
        monkeypatch.setattr(file_lock, "CAN_ASK", False)
    path = tmp_path / "lock"
    path.touch()
    with path.open("r+b") as other:
        assert not file_lock.is_held(other.fileno())
        with path.open("r+b") as holder:
            fcntl.flock(holder, fcntl.LOCK_EX)
            file_lock.show_held(holder.fileno())
            assert file_lock.is_held(other.fileno())
        assert not file_lock.is_held(other.fileno())
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # asking has left nothing behind
