"""The benchmark of operations at tiny sizes: what it counts, what it draws. No time is looked at, no Spark is started."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks import operation_functions, operation_speed, operations

from pictures import is_png, saved_graphs


def test_what_is_wrong_is_counted() -> None:
    expected = np.array([1, 2, 3])
    assert operations.wrong(np.array([3, 2, 1]), expected) == 0
    assert operations.wrong(np.array([1, 3]), expected) == 1
    assert operations.wrong(np.array([1, 2, 3, 3, 3]), expected) == 2
    assert operations.wrong(np.array([1, 2, 7, 7]), expected) == 3
    assert operations.wrong(np.array([], np.int64), expected) == 3


def test_poison_of_every_kind_is_there() -> None:
    kinds = operations.mixed_kinds(5_000)
    assert len(kinds) == 5_000
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "good": 4_485, "raise": 500, "exit": 5, "fault": 5, "hang": 5
    }  # fmt: skip
    with pytest.raises(ValueError, match="poison 7"):
        operation_functions.poisonous([{"number": 7, "kind": "raise"}])
    assert operation_functions.poisonous([{"number": 7, "kind": "good"}]) == {"number": 7}


@pytest.mark.parametrize("size", [1, 3])
def test_both_kernels_do_the_work(size: int) -> None:
    rates = operations.measure_isolation(size, 20, 1)
    assert set(rates) == {"in-process", "child"}
    assert min(rate for each in rates.values() for rate in each.values()) > 0


def test_the_lane_is_compared_with_the_faster_of_the_plain_runs_around_it() -> None:
    plain, lane = iter([100.0, 50.0, 80.0]), iter([10.0, 20.0])
    asked: list[tuple[int, int]] = []

    def alone(milliseconds: int, count: int) -> float:
        asked.append((milliseconds, count))
        return next(plain)

    speed = operation_speed.measure_speed(alone, lambda milliseconds, count: next(lane), 3, 800, rounds=2)
    assert asked == [(3, 200)] * 3
    assert speed["lane_records_per_second"] == [80.0, 40.0]
    assert (speed["ratios"], speed["best"], speed["median"]) == ([0.8, 0.5], 0.8, 0.65)
    assert list(operation_speed.ratios_of({3: speed}).values()) == [0.8, 0.65]


def test_plain_processes_call_the_function() -> None:
    with operation_speed.plain_processes(2) as plain:
        assert 0 < plain.records_per_second(1, 6) <= 2 * 1000
    assert operation_functions.lasting([{"number": 7, "kind": "1"}]) == {"number": 7}


def test_results_of_every_second() -> None:
    commits = [(10.0, 0), (10.5, 50), (12.0, 350), (13.0, 350), (14.0, 450)]
    assert operations.per_second(commits, 10.0, 14.5) == pytest.approx([150, 200, 0, 100])
    assert operations.around([1, 2, 3, 4], 10.0, 12.4) == ([1, 2], [3, 4])


def test_the_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = saved_graphs(monkeypatch)
    rates = {"in-process": {"wall": 2.0, "cpu": 2.0}, "child": {"wall": 1.0, "cpu": 1.0}}
    change = {"other_per_second": [300.0, 290.0], "called_after_seconds": 1.0, "effect_seconds": 0.5}
    path = operations.draw(tmp_path / "figure.png", {1: rates, 10: rates}, 1.5, change)
    assert is_png(path)
    bars, line = graphs
    assert bars.title == "Windows a second of a trivial function"
    assert bars.bars == {
        "in-process,\n1 records": 2.0, "child,\n1 records": 1.0, "in-process,\n10 records": 2.0, "child,\n10 records": 1.0,
        f"Spark, {operations.WORKERS} workers,\n1 record": 1.5,
    }  # fmt: skip
    assert (line.x, line.y) == ("second", "results a second")
    assert line.lines["the other operation"] == [(0.5, 300.0), (1.5, 290.0)]
    assert [x for x, _ in line.lines["change asked for"]] == [1.0, 1.0]
    assert [x for x, _ in line.lines["new version at work"]] == [1.5, 1.5]
    assert line.legend == ["the other operation", "change asked for", "new version at work"]
