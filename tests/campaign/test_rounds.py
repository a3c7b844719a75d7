"""Rounds of the campaign that are part of `make test`: five, of every kind. `make test-long` plays others, by seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign.damage import DamageRound
from campaign.faults import named
from campaign.flood import FloodRound
from campaign.live import LiveRound


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_live_rounds_in_one_home(tmp_path: Path) -> None:
    """A worker killed, the clock put back, the whole tree killed: three rounds, which share what a start costs."""
    faults = [named(each) for each in ("kill worker", "clock back", "kill tree")]
    assert LiveRound(2026, faults, tmp_path, chunks=2).run() == []


@pytest.mark.timeout(600)
def test_a_damage_round(tmp_path: Path) -> None:
    assert DamageRound(2026, tmp_path).run() == []


@pytest.mark.timeout(600)
def test_a_flood_round(tmp_path: Path) -> None:
    round = FloodRound(2026, tmp_path)
    round.floods = ["broken bodies", "repeated requests"]
    assert round.run() == []
