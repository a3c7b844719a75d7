"""How the lanes are, as those who listen are told: starting, recovering, running, stalled, and of a clock that was set."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import shop
from hayase.core.errors import LaneFailed
from hayase.engine import condition
from hayase.engine.commit.manifests import Manifest
from hayase.engine.condition import Condition
from hayase.engine.spark import lanes
from hayase.engine.spark.lanes import Lanes
from hayase.engine.spark.runner import run_lanes


@dataclass
class FakeLane:
    """A lane that says what a test has it say."""

    manifest: Manifest = field(default_factory=Manifest)
    trouble: str | None = None
    has_committed: bool = False
    idle: bool = False
    queues: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    error: Exception | None = None

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def waiting(self) -> dict[tuple[str, str], tuple[int, int]]:
        return self.queues

    def is_idle(self) -> bool:
        return self.idle

    def count_slots(self) -> None:
        pass

    def drain(self) -> None:
        pass

    def stop(self) -> None:
        pass


@pytest.fixture
def lane(monkeypatch: pytest.MonkeyPatch) -> FakeLane:
    made = FakeLane()
    monkeypatch.setattr(lanes, "Lane", lambda *a, **k: made)
    monkeypatch.setattr(lanes, "COUNT", 0.0)
    return made


SESSION = cast(Any, SimpleNamespace(dataSource=SimpleNamespace(register=lambda source: None)))


def test_what_is_told(tmp_path: Path, lane: FakeLane, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = shop.shop(tmp_path, 0, ["spend"])
    pipeline.apply()
    told: list[Condition] = []
    monkeypatch.setattr(condition, "STALLED_AFTER", 0.0)
    ledger = cast(Any, SimpleNamespace(of=lambda name: None))
    made = Lanes(SESSION, pipeline.home, ledger, on_condition=told.append)
    made.check()
    assert told[-1] == Condition("starting", "waiting for the first batch")
    lane.trouble = "lane main is started again: Broken pipe"
    made.check()
    assert told[-1] == Condition("recovering", "lane main is started again: Broken pipe")
    lane.trouble, lane.has_committed = None, True
    made.check()
    assert told[-1] == Condition("running")
    lane.queues = {("spend", "events"): (3, 5)}
    made.check()
    assert told[-1].state == "stalled"
    assert '2 of "events" for "spend"' in str(told[-1].reason)
    lane.queues = {}
    walls = iter([1_000_000_000_000_000, 1_000_000_000_000_000 - 3_600_000_000, *[996_400_000_000_000] * 9])
    monkeypatch.setattr(lanes, "_clocks", lambda: (next(walls), 50.0, 50.0))
    made._clock = condition.ClockWatch()
    made.check()
    assert told[-1] == Condition("running")
    made.check()
    assert (told[-1].state, told[-1].jumps, told[-1].jump) == ("running", 1, -3600.0)
    assert "set back by 3,600.0 s" in str(told[-1].notice)


def test_a_failure_is_told_before_anything_is_stopped(tmp_path: Path, lane: FakeLane) -> None:
    pipeline = shop.shop(tmp_path, 0, ["spend"])
    pipeline.apply()
    told: list[Condition] = []
    lane.error = LaneFailed("lane main failed: the disk is full")
    with pytest.raises(LaneFailed), run_lanes(pipeline.home, session=SESSION, on_condition=told.append) as made:
        made.check()
    assert told[-1] == Condition("failed", "lane main failed: the disk is full")
