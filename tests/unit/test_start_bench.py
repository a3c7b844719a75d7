"""The picture of `hayase bench start`: a bar of phases for each variant, by the wall clock and by CPU time."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.start import PHASES, VARIANTS, draw

from pictures import is_png, saved_graphs


def test_the_picture_shows_all_phases_by_both_clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = saved_graphs(monkeypatch)
    durations = {phase: number + 1.0 for number, phase in enumerate(PHASES)}
    draw({name: {"seconds": durations, "cpu_seconds": durations} for name in VARIANTS}, tmp_path / "start.png")
    assert is_png(tmp_path / "start.png")
    wall, cpu = graphs
    assert (wall.x, cpu.x) == ("seconds", "CPU seconds")
    assert wall.legend == list(PHASES)
