"""The timeline of batches: hops that processes note in files, and the phases that `hayase bench latency` makes of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.latency import PHASES, batch_phases, draw_phases

from hayase.core.timeline import VARIABLE, hops_in, reach
from pictures import is_png, saved_graphs


def test_the_hops_of_all_processes_are_in_the_order_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    reach("batch planned")
    program = "from hayase.core.timeline import reach; reach('map begins')"
    subprocess.run([sys.executable, "-c", program], check=True, env=dict(os.environ))
    reach("batch notified")
    hops = hops_in(tmp_path)
    assert [hop for _, hop in hops] == ["batch planned", "map begins", "batch notified"]
    assert [moment for moment, _ in hops] == sorted(moment for moment, _ in hops)


def test_nothing_is_written_unless_a_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    reach("batch planned")
    assert list(tmp_path.iterdir()) == []


def test_a_batch_is_divided_into_phases() -> None:
    hops = [(float(number), hop) for number, hop in enumerate(("planner asked", "batch planned", *PHASES.values()))]
    (batch,) = batch_phases(hops, 0.0, 100.0)
    assert batch == dict.fromkeys(PHASES, 1.0)


def test_the_last_task_ends_a_phase_and_the_first_map_task_begins_the_map_side() -> None:
    hops = [
        (0.0, "batch planned"),
        (1.0, "map begins"),
        (2.0, "map begins"),
        (3.0, "map ends"),
        (4.0, "map ends"),
        (5.0, "batch notified"),
        (6.0, "planner asked"),
    ]
    (batch,) = batch_phases(hops, 0.0, 100.0)
    assert {phase: seconds for phase, seconds in batch.items() if seconds} == {
        "job start (Spark)": 1.0,
        "map side": 3.0,
        "notify": 1.0,
        "commit log (Spark)": 1.0,
    }


def test_a_batch_that_is_not_notified_or_was_planned_at_another_time_has_no_phases() -> None:
    hops = [(0.0, "batch planned"), (1.0, "batch notified"), (2.0, "planner asked"), (3.0, "batch planned")]
    assert len(batch_phases(hops, 0.0, 10.0)) == 1
    assert batch_phases(hops, 1.0, 10.0) == []


def test_the_picture_has_a_bar_for_each_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = saved_graphs(monkeypatch)
    draw_phases({"idle": dict.fromkeys(PHASES, 0.01), "busy": {"map side": 0.1}}, tmp_path / "phases.png")
    assert is_png(tmp_path / "phases.png")
    (graph,) = graphs
    assert graph.x == "milliseconds"
    assert graph.legend == list(PHASES)
