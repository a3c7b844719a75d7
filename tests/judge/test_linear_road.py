"""Linear Road (`examples/linear_road`) against a model in plain Python that reads the records one by one: every answer."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import hayase as hy
from linear_road import EXAMPLE, answers, due, history, linear_road, records, road_model, small, traffic

SECONDS = 480


@pytest.mark.parametrize(("expressways", "seed", "appended"), [(1, 1, 480), (2, 2, 480), (1, 3, 130), (3, 4, 480)])
def test_the_answers_are_those_of_the_model(expressways: int, seed: int, appended: int, tmp_path: Path) -> None:
    given = records(small(expressways, seed), SECONDS)
    before = history(small(expressways, seed), given)
    model = road_model.LinearRoad(before.to_pylist())
    model.take(given)
    pipeline = linear_road(tmp_path, before)
    times = given.column("time").to_numpy()
    for start in range(0, SECONDS, appended):  # so many seconds at a time, each in a batch of its own
        first, last = times.searchsorted([start, start + appended])
        pipeline.append("input", given.slice(first, last - first))
        if last == len(times):
            pipeline.finish("input")
        pipeline.run_until_idle(spark=False)
    told, expected = answers(pipeline), due(model)
    for query, answer in told.items():
        assert answer == expected[query], query
    assert pipeline.dead_letters() == []
    everything_occurs(model)


def everything_occurs(model: road_model.LinearRoad) -> None:
    """The traffic has what the rules are about, so that equal answers say something."""
    made = model.answers
    assert {toll > 0 for *_, toll in made.tolls} == {True, False}
    assert made.accidents, "vehicles are notified of accidents"
    assert any(accident.cleared is not None for accident in model.accidents), "accidents are cleared"
    assert {balance > 0 for _, _, _, balance, _ in made.balances} == {True, False}
    assert any(spent for *_, spent in made.expenditures)


@pytest.fixture
def road(tmp_path: Path) -> hy.Pipeline:
    return linear_road(tmp_path, traffic.history([1], traffic.Traffic()))


def test_a_vehicle_that_leaves_pays_nothing_for_its_last_segment(road: hy.Pipeline) -> None:
    """Sixty slow cars fill segments 0 and 1; a vehicle crosses into 1, where it leaves."""
    crowd = [
        report(time, 1000 + car, seg * 5280 + 20 * car, seg) | {"spd": 20}
        for time in range(0, 150, 30)
        for seg in (0, 1)
        for car in range(seg * 60, seg * 60 + 60)
    ]
    drive = [
        report(100, 7, 10, 0) | {"lane": 0},
        report(130, 7, 5290, 1),
        report(160, 7, 6000, 1) | {"lane": 4},
    ]
    requests = [request(time, 100 + time, 7) for time in (100, 129, 130, 190)]
    told = run(road, [*crowd, *drive, *requests])
    toll = 2 * (60 - 50) ** 2
    assert [quoted for _, vid, _, quoted in sorted(told["toll_notifications"]) if vid == 7] == [toll, toll]
    assert sorted(told["balances"]) == [
        (100, 200, 7, 0, None),
        (129, 229, 7, 0, None),
        (130, 230, 7, toll, 130),
        (190, 290, 7, toll, 130),
    ]


def test_an_accident_is_notified_from_the_next_minute_on_until_the_minute_in_which_it_is_cleared(
    road: hy.Pipeline,
) -> None:
    """Two cars stand in segment 50 from 0 on, which their fourth reports say, at 90 and 95; one drives on at 250."""
    one = [report(time, 1, 50 * 5280, 50) for time in range(0, 301, 30)]
    two = [report(time, 2, 50 * 5280, 50) for time in range(5, 216, 30)] + [report(245, 2, 51 * 5280, 51)]
    passing = [
        report(time, 1000 + time + seg, seg * 5280 + 1, seg) | {"lane": 0}
        for time in (119, 120, 245, 299, 300)
        for seg in (45, 46, 50, 51)
    ]
    told = run(road, [*one, *two, *passing])
    notified = {(time, vid - 1000 - time) for time, vid, *_ in told["accident_notifications"] if vid > 2}
    assert notified == {(time, seg) for time in (120, 245, 299) for seg in (46, 50)}
    assert {tuple(place) for _, _, *place in told["accident_notifications"]} == {(0, 0, 50)}


def test_a_standing_car_alone_is_no_accident_nor_are_two_in_the_exit_lane(road: hy.Pipeline) -> None:
    alone = [report(time, 1, 50 * 5280, 50) for time in range(0, 301, 30)]
    beside = [report(time, 2, 50 * 5280, 50) | {"lane": 3} for time in range(0, 301, 30)]
    leaving = [report(time, vid, 60 * 5280, 60) | {"lane": 4} for vid in (3, 4) for time in range(0, 301, 30)]
    passing = [report(time, 1000 + time, 59 * 5280, 59) | {"lane": 0} for time in range(120, 301, 60)]
    assert run(road, [*alone, *beside, *leaving, *passing])["accident_notifications"] == Counter()


def report(time: int, vid: int, pos: int, seg: int) -> dict[str, int]:
    nothing = dict.fromkeys(traffic.COLUMNS, -1)
    return nothing | {
        "type": 0,
        "time": time,
        "vid": vid,
        "spd": 0,
        "xway": 0,
        "lane": 1,
        "dir": 0,
        "seg": seg,
        "pos": pos,
    }


def request(time: int, qid: int, vid: int) -> dict[str, int]:
    return dict.fromkeys(traffic.COLUMNS, -1) | {"type": 2, "time": time, "qid": qid, "vid": vid}


def run(road: hy.Pipeline, given: list[dict[str, int]]) -> dict[str, Counter[tuple[int, ...]]]:
    road.append("input", sorted(given, key=lambda record: record["time"]))
    road.finish("input")
    road.run_until_idle(spark=False)
    assert road.dead_letters() == []
    return answers(road)


def test_the_files_of_the_generator_can_be_appended(tmp_path: Path) -> None:
    program = [sys.executable, str(EXAMPLE / "traffic.py"), "60", str(tmp_path / "records"), "--expressways", "2"]
    subprocess.run(program, check=True)
    pipeline = linear_road(tmp_path, traffic.history([], traffic.Traffic()))
    pipeline.table("daily_tolls").load(tmp_path / "records" / "daily_tolls.csv")
    pipeline.append("input", tmp_path / "records" / "input.csv")
    assert pipeline.dead_letters() == []
    expected = records(traffic.Traffic(2), 60)
    assert [tuple(row[name] for name in traffic.COLUMNS) for row in pipeline.results("input").rows()] == [
        tuple(row.values()) for row in expected.to_pylist()
    ], "the seed decides"
