"""The benchmark of paper 3 at tiny sizes: what it searches, what it draws. No time is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import governor

from hayase.governor import Adaptive, RoundRobin


def test_the_least_workers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def simulate(scenario: governor.Scenario, policy: object, seed: int) -> object:
        tried.append(scenario.workers)
        return type("Result", (), {"failed": scenario.workers < 17})

    monkeypatch.setattr(governor, "simulate", simulate)
    assert governor._needed(RoundRobin(), 50, 11, 10.0) == 17
    assert min(tried) == 6  # the load
    monkeypatch.setattr(governor, "MOST", 16)
    assert governor._needed(RoundRobin(), 50, 11, 10.0) is None


def test_round_robin_needs_more_than_load_sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(governor, "LIMIT", 60)
    needed = [governor._needed(policy, 50, 20, 60.0) for policy in (RoundRobin(), Adaptive())]
    assert needed[0] > 1.5 * needed[1]


def test_the_picture_and_the_ratios(tmp_path: Path) -> None:
    needed = {queues: {name: {1: 20, 10: None} for name in governor.POLICIES} for queues in governor.SIZES}
    figures = {"empty_share": 0.5, "queue_length": 1.0, "completion_seconds": 0.2, "polls": 10}
    picture = governor._draw(tmp_path / "figure.png", (1, 10), needed, {0.0: figures, 0.5: figures}, figures)
    assert picture.stat().st_size > 0
    assert set(governor._against_load(needed).values()) == {float("inf")}
