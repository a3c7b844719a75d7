"""The gate between the pipeline's process and the one that plans batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from hayase.core.errors import DamagedState
from hayase.engine.gate import BATCH_ROWS, FileGate, Grants


def test_without_a_file_everything_is_granted(tmp_path: Path) -> None:
    assert FileGate(tmp_path / "gate.json").grants() == Grants()
    assert Grants().rows("any") == BATCH_ROWS


def test_what_is_set_is_seen_by_another_gate_at_once(tmp_path: Path) -> None:
    here, there = (FileGate(tmp_path / "gates" / "main.json") for _ in range(2))
    for limit in range(1, 40):  # faster than a clock of files ticks
        wanted = Grants(open=limit % 2 == 0, limit=limit, stages={"a": limit - 1})
        here.set(wanted)
        assert there.grants() == wanted


def test_a_stage_gets_no_more_than_the_limit() -> None:
    grants = Grants(limit=10, stages={"small": 3, "large": 30})
    assert [grants.rows(each) for each in ("small", "large", "other")] == [3, 10, 10]


def test_a_damaged_gate_says_so(tmp_path: Path) -> None:
    path = tmp_path / "gate.json"
    path.write_text('{"open": tru')
    with pytest.raises(DamagedState, match="delete it"):
        FileGate(path).grants()
