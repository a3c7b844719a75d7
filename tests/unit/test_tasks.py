"""What a task must know besides its messages, as it travels to the workers."""

from __future__ import annotations

from pathlib import Path

from hayase.engine.batch.outcomes import Task
from hayase.engine.batch.state import SegmentRef
from hayase.engine.home import Home


def test_a_task_is_the_same_after_its_way_to_a_worker() -> None:
    ref = SegmentRef("tuples", "a.state", 64, 128, "c0ffee", 7, 1, 3, until=5, skip=2)
    states = {"totals.1": {0: (ref, SegmentRef.marker(2)), 1: ()}, "wörds.2": {}}
    task = Task(Home(Path("/a home")), "main", 12, "epoch", states, 1_700_000_000_000_000)
    assert Task.from_json(task.as_json()) == task
    assert Task.from_json(task.as_json().decode()) == task
