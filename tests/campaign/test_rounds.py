"""Rounds of the campaign that are part of `make test`: five, each with one fault. `make test-long` plays others, by seed."""

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
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "faults",
    [["kill tree"], pytest.param(["kill worker", "clock back", "kill tree"], marks=pytest.mark.long)],
    ids=["one", "three in one home"],
)
def test_a_live_round(tmp_path: Path, faults: list[str]) -> None:
    assert LiveRound(2026, [named(each) for each in faults], tmp_path, chunks=2).run() == []


def test_damage_rounds() -> None:
    """In a process of its own: it forks, and a process that has played a live round has threads, whose locks a fork copies."""
    paths = os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "campaign", "damage", "2026", "2027", "2028"]
    played = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert (played.returncode, played.stdout.count("right after")) == (0, 3), played.stdout + played.stderr


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "floods", [["broken bodies"], pytest.param(["broken bodies", "repeated requests"], marks=pytest.mark.long)]
)
def test_a_flood_round(tmp_path: Path, floods: list[str]) -> None:
    round = FloodRound(2026, tmp_path)
    round.floods = floods
    assert round.run() == []
