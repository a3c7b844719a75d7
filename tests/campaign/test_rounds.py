"""Rounds of the campaign that are part of `make test`: five, of every kind. `make test-long` plays others, by seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from campaign.faults import named
from campaign.flood import FloodRound
from campaign.live import LiveRound


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_live_rounds_in_one_home(tmp_path: Path) -> None:
    """A worker killed, the clock put back, the whole tree killed: three rounds, which share what a start costs."""
    faults = [named(each) for each in ("kill worker", "clock back", "kill tree")]
    assert LiveRound(2026, faults, tmp_path, chunks=2).run() == []


def test_a_damage_round() -> None:
    """In a process of its own: it forks, and a process that has played a live round has threads, whose locks a fork copies."""
    paths = os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "campaign", "damage", "2026"]
    played = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert (played.returncode, "right after" in played.stdout) == (0, True), played.stdout + played.stderr


@pytest.mark.timeout(600)
def test_a_flood_round(tmp_path: Path) -> None:
    round = FloodRound(2026, tmp_path)
    round.floods = ["broken bodies", "repeated requests"]
    assert round.run() == []
