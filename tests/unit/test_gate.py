"""The gate between the pipeline's process and the one that plans batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from hayase.core.errors import DamagedState
from hayase.engine.batch.gate import BATCH_ROWS, Feedback, FileGate, Grants


def test_without_a_file_everything_is_granted(tmp_path: Path) -> None:
    assert FileGate(tmp_path / "gate.json").grants() == Grants()
    assert Grants().rows("any", "s") == BATCH_ROWS


def test_grants_are_seen_by_another_gate_at_once(tmp_path: Path) -> None:
    here, there = (FileGate(tmp_path / "gates" / "main.json") for _ in range(2))
    for limit in range(1, 40):  # faster than a clock of files ticks
        wanted = Grants(open=limit % 2 == 0, limit=limit, stages={"a": limit - 1})
        here.set(wanted)
        assert there.grants() == wanted


def test_a_stage_gets_no_more_than_the_limit() -> None:
    grants = Grants(limit=10, stages={"small": 3, "large": 30})
    assert [grants.rows(each, "s") for each in ("small", "large", "other")] == [3, 10, 10]


def test_a_damaged_gate_says_so(tmp_path: Path) -> None:
    path = tmp_path / "gate.json"
    path.write_text('{"open": tru')
    with pytest.raises(DamagedState, match="delete it"):
        FileGate(path).grants()


def test_a_governed_queue_that_is_not_named_gets_nothing() -> None:
    grants = Grants(limit=10, stages={"small": 3}, queues={"small": {"s": 5}, "large": {"s": 50, "t": 1}})
    queues = (("small", "s"), ("large", "s"), ("large", "t"), ("small", "t"), ("x", "s"))
    assert [grants.rows(*queue) for queue in queues] == [3, 10, 1, 0, 0]


def test_feedback_is_seen_by_another_gate_at_once(tmp_path: Path) -> None:
    here, there = (FileGate(tmp_path / "gates" / "main.json") for _ in range(2))
    assert there.feedback() == Feedback()
    for slots in range(1, 40):
        work = {"scores": {"orders": (slots * 10, slots / 4)}}
        here.send_feedback(slots, work)
        assert there.feedback() == Feedback(slots, work)
    assert there.feedback() is there.feedback(), "read once"
    assert there.grants() == Grants()
    assert [each.name for each in (tmp_path / "gates").iterdir()] == ["main.told.json"]


@pytest.mark.parametrize("text", ["", '{"slots": 1', '{"slots": 2}', '{"slots": 2, "work": {"a": 3}}', "[]"])
def test_feedback_may_be_lost_by_a_loss_of_power(tmp_path: Path, text: str) -> None:
    (tmp_path / "main.told.json").write_text(text)
    assert FileGate(tmp_path / "main.json").feedback() == Feedback()
