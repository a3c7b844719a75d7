"""The benchmark of paper 3 at tiny sizes: what it searches, what it draws. No time is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import governor, governor_lane

from hayase.governor import Adaptive, RoundRobin
from pictures import is_png, saved_graphs


def test_the_least_workers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def simulate(scenario: governor.Scenario, policy: object, seed: int) -> object:
        tried.append(scenario.workers)
        return type("Result", (), {"failed": scenario.workers < 17})

    monkeypatch.setattr(governor, "simulate", simulate)
    assert governor.needed_slots(RoundRobin(), 50, 11, 10.0) == 17
    assert min(tried) == 6  # the load
    assert governor.needed_slots(RoundRobin(), 50, 11, 10.0, governor.Pool(most=16)) is None


def test_round_robin_needs_more_than_load_sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(governor, "LIMIT", 60)
    needed = [governor.needed_slots(policy, 50, 20, 60.0) for policy in (RoundRobin(), Adaptive())]
    assert needed[0] > 1.5 * needed[1]


def test_the_picture_and_the_ratios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = saved_graphs(monkeypatch)
    needed = {queues: {name: {1: 20, 10: None} for name in governor.POLICIES} for queues in governor.SIZES}
    figures = {"empty_share": 0.5, "queue_length": 1.0, "completion_seconds": 0.2, "polls": 10}
    picture = governor.draw(tmp_path / "figure.png", (1, 10), needed, {0.0: figures, 0.5: figures}, figures)
    assert is_png(picture)
    workers, empty, length = graphs
    assert (workers.x, workers.y) == ("records per second of the hot queue", f"workers, of {governor.MOST}")
    for queues in governor.SIZES:
        for name in governor.POLICIES:
            assert workers.lines[f"{name}, {queues} queues"] == [(1, 20)]  # what never suffices has no point
    assert [x for x, _ in workers.lines["load S"]] == [1, 10]
    assert (empty.x, empty.y, empty.lines["ASC"]) == ("u", "share of all polls", [(0.0, 0.5), (0.5, 0.5)])
    assert empty.legend == ["ASC", "1 - u", "informed"]
    assert [y for _, y in empty.lines["informed"]] == [0.5, 0.5]
    assert (length.x, length.y, length.lines["ASC"]) == ("u", "records", [(0.0, 1.0), (0.5, 1.0)])
    assert set(governor.against_load(needed).values()) == {float("inf")}


def test_the_least_workers_on_spark_are_looked_for_from_a_guess() -> None:
    tried: list[int] = []

    def enough(workers: int) -> bool:
        tried.append(workers)
        return workers >= 5

    assert [governor_lane.least(enough, guess, 8) for guess in (1, 4, 5, 7, 20)] == [5] * 5
    tried.clear()
    assert governor_lane.least(enough, 6, 8) == 5
    assert tried == [6, 5, 4]
    assert governor_lane.least(enough, 2, 4) is None


def test_an_empty_poll_is_its_part_of_a_batch() -> None:
    costs = governor_lane.Costs(record=0.025, batch=0.2)
    assert costs.visit(20) == pytest.approx(0.2 / 40)  # two rounds of 20 records of 20 ms in a second
    assert costs.visit(50) == pytest.approx(0.2 / 50)
    assert costs.visit(200) == pytest.approx(0.2 / 50)


def test_the_picture_and_the_ratios_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = saved_graphs(monkeypatch)
    pools = {20: governor.Pool(0.025, 0.005, 8), 50: governor.Pool(0.025, 0.004, 8)}
    found = {queues: {name: {1: 1, 60: None} for name in governor.POLICIES} for queues in pools}
    found[20]["ALS"] = {1: 1, 60: 3}
    figures = {"empty_share": 0.5, "queue_length": 1.0, "completion_seconds": 0.2}
    against_u, idle = {0.0: figures, 0.5: figures}, {"round-robin": 0.5, "ASC, u = 0.5": 0.2, "informed": 0.1}
    picture = governor.draw_spark(tmp_path / "figure.png", pools, found, found, against_u, figures, idle)
    assert is_png(picture)
    workers, empty, length, cpu = graphs
    assert (workers.x, workers.y) == ("records per second of the hot queue", f"workers, of {governor.ON_SPARK}")
    assert workers.lines["ALS, 20 queues"] == [(1, 1), (60, 3)]
    assert workers.lines["round-robin, 50 queues, simulated"] == [(1, 1)]
    assert set(workers.legend) == set(workers.lines)
    assert empty.lines["1 - u"] == [(0, 1), (1, 0)]
    assert length.lines["ASC"] == [(0.0, 1.0), (0.5, 1.0)]
    assert cpu.bars == idle
    ratios = governor.ratios_there(pools, found, found, against_u, figures, idle)
    assert [each for name, each in ratios.items() if name.endswith("round-robin to ALS (above 1)")] == [3.0]
    assert ratios["Spark: workers, farthest from the simulator's"] == 1.0
