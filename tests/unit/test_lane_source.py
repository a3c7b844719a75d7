"""When a batch is planned: when the governor asks for a look, and later during a flood of records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

import hayase as hy
import shop
from hayase.core.stages import MAIN
from hayase.core.times import END
from hayase.engine.batch.gate import FileGate, Grants
from hayase.engine.batch.lane_governor import LaneDecision, LaneGovernor, governor_status
from hayase.engine.batch.offsets import Offset, Position
from hayase.engine.source_backlogs import note_backlog
from hayase.engine.spark import lane_source
from hayase.engine.spark.lane_source import (
    BACKLOG_GLANCE,
    CALM,
    ENOUGH,
    FLOOD,
    GLANCE,
    LONGEST_WAIT,
    LOOK,
    PATIENCE,
    POLL,
    LaneReader,
    after_flood,
    during_backlog,
)
from hayase.streams import StreamLog
from hayase.streams.dead_letters import SETTLED

STILL = round(CALM / GLANCE)


def offset(at: int, clock: int = 0) -> Offset:
    return Offset(1, {"q": {"s": Position(at, clock)}})


@pytest.mark.parametrize(
    ("ends", "taken", "glances"),
    [
        ([0], 0, 0),
        ([FLOOD - 1, 10 * FLOOD], FLOOD - 1, 0),
        ([FLOOD] * 20, FLOOD, STILL),
        ([FLOOD, *[2 * FLOOD] * (STILL + 1), 9 * FLOOD], 2 * FLOOD, STILL + 1),
        ([FLOOD, 0], 0, 1),  # the gate was closed meanwhile
    ],
)
def test_a_batch_waits_while_a_flood_comes(ends: Sequence[int], taken: int, glances: int) -> None:
    slept: list[float] = []
    plans = iter([offset(each) for each in ends])
    end = after_flood(offset(0), next(plans), lambda: next(plans), slept.append)
    assert (end, slept) == (offset(taken), [GLANCE] * glances)


def test_the_wait_during_a_flood_is_bounded() -> None:
    slept: list[float] = []
    end = after_flood(offset(0), offset(FLOOD), lambda: offset((len(slept) + 1) * FLOOD), slept.append)
    assert sum(slept) == pytest.approx(PATIENCE)
    assert end == offset((len(slept) + 1) * FLOOD)


def test_finished_streams_are_not_waited_for() -> None:
    end = offset(5 * FLOOD, clock=END)
    assert after_flood(offset(0), end, lambda: pytest.fail("nothing can follow"), lambda seconds: None) == end


@pytest.mark.parametrize(
    ("ends", "backlog", "taken", "glances"),
    [
        ([0], 9, 0, 0),
        ([1, 2], 0, 1, 0),
        ([1, 2, 3, 4], 2, 3, 2),  # the backlog ends
        ([1, ENOUGH - 1, ENOUGH, 2 * ENOUGH], 9, ENOUGH, 2),
        ([1, 0], 9, 0, 1),  # the gate was closed meanwhile
    ],
)
def test_a_batch_waits_for_enough_of_a_backlog(ends: Sequence[int], backlog: int, taken: int, glances: int) -> None:
    slept: list[float] = []
    plans = iter([offset(each) for each in ends])
    end = during_backlog(offset(0), next(plans), lambda: next(plans), lambda: len(slept) < backlog, slept.append)
    assert (end, slept) == (offset(taken), [BACKLOG_GLANCE] * glances)


def test_the_wait_during_a_backlog_is_bounded() -> None:
    slept: list[float] = []
    end = during_backlog(offset(0), offset(1), lambda: offset(len(slept) + 1), lambda: True, slept.append)
    assert sum(slept) == pytest.approx(LONGEST_WAIT)
    assert end == offset(len(slept) + 1)


class FakeTime:
    """A clock that advances by sleeping; `at` holds actions for later moments."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        self.at: dict[float, Callable[[], object]] = {}

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept.append(seconds)
        self.now += seconds
        for moment in [each for each in self.at if each <= self.now]:
            self.at.pop(moment)()


class FakeWatch:
    """Waits on that clock; `comes` says after how many seconds of a wait a file comes, if at all."""

    def __init__(self, clock: FakeTime):
        self._clock, self.comes = clock, float("inf")
        self.watched: set[Path] = set()

    def watch(self, directories: Iterable[Path]) -> None:
        self.watched |= set(directories)

    def forget(self) -> None:
        """Nothing has come before a look."""

    def wait(self, seconds: float) -> bool:
        self._clock.sleep(min(seconds, self.comes))
        return self.comes < seconds


class Planned:
    """The reader of a lane as Spark's planning process has it, on a clock that stands still."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, awake: bool = False, **stream: Any):
        self.time = FakeTime()
        monkeypatch.setattr(lane_source, "time", self.time)
        monkeypatch.setattr(lane_source, "now_us", lambda: round(self.time.now * 1e6))
        self.watch = FakeWatch(self.time)
        monkeypatch.setattr(lane_source, "DirectoryWatch", lambda: self.watch)
        self.pipeline = shop.shop(path, queries=["big", "spend"], **stream)
        self.pipeline.apply()
        self.home = self.pipeline.home
        options = {"home": str(path), "lane": MAIN, "slots": "2", "awake": str(awake).lower()}
        self.reader = LaneReader({**options, "initial": orjson.dumps(Offset().as_json()).decode()})
        self.offset: dict[str, Any] = self.reader.initialOffset()
        assert self.plan().definition == 1

    def append(self, count: int = 1) -> None:
        self.pipeline.append("events", [shop.Event(1, "a", 1).row()] * count)

    def plan(self) -> Offset:
        self.offset = self.reader.latestOffset(self.offset, None)
        return Offset.from_json(self.offset)


def test_an_idle_lane_is_looked_at_seldom_and_reported_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = Planned(tmp_path, monkeypatch)
    before, begun = lane.offset, lane.time.now
    for _ in range(10):
        lane.plan()
    assert lane.offset == before
    assert lane.time.now - begun == pytest.approx(10 * POLL)
    found = governor_status(lane.home, MAIN)
    assert found is not None
    assert 9 <= found.empty <= 20, "a look every 50 ms"


def test_new_records_are_found_at_the_next_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = Planned(tmp_path, monkeypatch)
    lane.plan()
    lane.time.at[lane.time.now + 0.02] = lane.append
    begun = lane.time.now
    assert {each["events"].at for each in lane.plan().positions.values()} == {1}
    assert lane.time.now - begun <= 0.05 + 2 * LOOK


@pytest.mark.parametrize("has_source", [False, True])
def test_a_lane_waits_for_the_sources_of_its_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_source: bool
) -> None:
    more = {"source": hy.Files(f"{tmp_path}/*.ndjson")} if has_source else {}
    lane = Planned(tmp_path / "home", monkeypatch, **more)
    note_backlog(lane.home, "events")
    touched = (lane.home.path / "sources" / "events" / "backlog").stat().st_mtime
    monkeypatch.setattr(lane_source, "now_us", lambda: round(touched * 1e6))
    lane.append()
    begun = lane.time.now
    assert {each["events"].at for each in lane.plan().positions.values()} == {1}
    assert lane.time.now - begun >= LONGEST_WAIT if has_source else lane.time.now - begun < BACKLOG_GLANCE


def test_a_stage_that_waits_for_its_time_does_not_make_it_spin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = Planned(tmp_path, monkeypatch)
    monkeypatch.setattr(LaneGovernor, "decide", lambda *_: LaneDecision(Grants(queues={}), -1.0))
    lane.append()
    lane.time.slept.clear()
    before = lane.offset
    assert lane.plan().as_json() == before
    assert len(lane.time.slept) <= POLL / LOOK + 1


def test_a_closed_gate_plans_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = Planned(tmp_path, monkeypatch)
    gate = FileGate(lane.home.gate(MAIN))
    gate.set(Grants(open=False))
    lane.append()
    before = lane.offset
    assert lane.plan().as_json() == before
    gate.set(Grants())
    assert lane.plan().as_json() != before


def test_letters_that_were_settled_are_read_up_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = Planned(tmp_path, monkeypatch)
    assert lane.plan().settled == 0
    row = {"time": 0, "letter": 1, "stage": "big", "stream": "events", "offset": 1, "record": None}
    log = StreamLog.ensure(tmp_path, SETTLED)
    log.append(pa.Table.from_pylist([row, row], SETTLED.arrow_schema), now=0)
    assert lane.plan().settled == 2


def test_tasks_are_as_many_as_there_are_slots_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = Planned(tmp_path, monkeypatch)
    since = lane.offset
    end = Offset.from_json(since)
    positions = {stage: {"events": Position(10**6)} for stage in end.positions}
    to = Offset(end.definition, positions).as_json()
    assert len(lane.reader.partitions(since, to)) == 2
    FileGate(lane.home.gate(MAIN)).send_feedback(5, {})
    assert len(lane.reader.partitions(since, to)) == 5


def test_a_new_file_in_a_log_brings_the_next_look_forward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = Planned(tmp_path, monkeypatch)
    lane.plan()
    assert lane.watch.watched == {tmp_path / "streams" / "events"}
    lane.plan()
    lane.watch.comes = 0.01
    lane.time.at[lane.time.now + 0.01] = lane.append
    begun = lane.time.now
    assert {each["events"].at for each in lane.plan().positions.values()} == {1}
    assert lane.time.now - begun <= 0.01 + LOOK + 1e-6


def test_files_that_bring_nothing_do_not_make_it_spin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = Planned(tmp_path, monkeypatch)
    lane.plan()
    lane.watch.comes = LOOK / 8
    lane.time.slept.clear()
    lane.plan()
    assert len(lane.time.slept) <= 2 * (POLL / LOOK + 1)
