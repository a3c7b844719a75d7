"""Whatever is appended: a clear error or a dead letter, nothing lost, nothing hung."""

from __future__ import annotations

import errno
import multiprocessing
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import hayase as hy
import shop
from hayase.core.errors import DamagedSegment, HayaseError, HomeInUse, SchemaMismatch, StageChanged, StreamFinished
from hayase.streams import StreamLog, durable
from shop import Event, check, expected

YEAR = 365 * 86_400_000_000
NOW = 56 * YEAR


@pytest.fixture
def pipeline(tmp_path: Path) -> hy.Pipeline:
    pipeline = hy.Pipeline("shop", tmp_path, clock=lambda: NOW)
    pipeline.stream("events", "time timestamp, user string, amount bigint, price double", "time")
    pipeline.query("spend", "select user, count(*) as n, sum(amount) as s, sum(price) as p from events group by user")
    pipeline.query("copy", "select user, amount, price from events")
    return pipeline


GOOD = {"time": "2020-01-01T00:00:00Z", "user": "a", "amount": 1, "price": 0.5}


def deep(levels: int) -> dict[str, object]:
    value: object = "bottom"
    for _ in range(levels):
        value = {"x": value}
    return {"time": "2020-01-01T00:00:00Z", "user": value}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({**GOOD, "amount": 2**63}, "amount"),
        ({**GOOD, "amount": -(2**63) - 1}, "amount"),
        ({**GOOD, "amount": 10**400}, "amount"),
        ({**GOOD, "user": "a\ud800b"}, "user"),
        ({**GOOD, "a\udfffb": 1}, ""),
        ({**GOOD, "time": "2999-01-01T00:00:00Z"}, "ahead|future"),
        ({**GOOD, "time": None}, "time"),
        ({**GOOD, "time": float("nan")}, "time"),
        ({**GOOD, "time": 10**30}, "time"),
        ({"user": "a"}, "time"),
        ({**GOOD, "amount": float("nan")}, "amount"),
        ({**GOOD, "amuont": 1}, "amuont"),
        ({**GOOD, "user": b"\xff\xfe"}, "user"),
        ("not a record", ""),
        (None, ""),
    ],
    ids=str,
)
def test_a_record_that_does_not_fit_is_refused_alone(pipeline: hy.Pipeline, bad: object, reason: str) -> None:
    answer = pipeline.append("events", [GOOD, bad, GOOD])  # type: ignore[list-item]
    assert (answer.accepted, answer.refused) == (2, 1)
    (letter,) = pipeline.dead_letters()
    assert letter["stage"] == "append"
    assert any(each in letter["reason"] for each in reason.split("|"))
    pipeline.finish("events")
    pipeline.run_until_idle(spark=False)
    assert [row["n"] for row in pipeline.query("spend").at()] == [2]


def test_a_record_100000_levels_deep_is_refused_alone(pipeline: hy.Pipeline) -> None:
    answer = pipeline.append("events", [GOOD, deep(100_000)])
    assert (answer.accepted, answer.refused) == (1, 1)
    pipeline.run_until_idle(spark=False)
    assert len(pipeline.dead_letters()) == 1


def test_nan_and_infinities_are_numbers_of_a_double_column(pipeline: hy.Pipeline) -> None:
    prices = [1.0, float("inf"), float("nan"), None]
    times = [f"2020-01-01T00:00:0{second}Z" for second in range(4)]
    answer = pipeline.append("events", [{**GOOD, "time": at, "price": price} for at, price in zip(times, prices)])
    assert (answer.accepted, answer.refused) == (4, 0)
    pipeline.finish("events")
    pipeline.run_until_idle(spark=False)
    sums = [row["p"] for row, _, _ in pipeline.query("spend").intervals()]
    assert sums[:2] == [1.0, float("inf")]
    assert [each != each for each in sums] == [False, False, True, True]


def test_a_record_of_64_megabytes_passes(pipeline: hy.Pipeline) -> None:
    large = "x" * (64 * 2**20)
    assert pipeline.append("events", [GOOD, {**GOOD, "user": large}, GOOD]).accepted == 3
    pipeline.finish("events")
    pipeline.run_until_idle(spark=False)
    assert sorted((len(row["user"]), row["n"]) for row in pipeline.query("spend").at()) == [(1, 2), (2**26, 1)]
    assert pipeline.query("copy").table().column("user").to_pylist()[1] == large


def test_a_record_of_64_megabytes_that_is_refused_keeps_its_text(pipeline: hy.Pipeline) -> None:
    large = "x" * (64 * 2**20)
    assert pipeline.append("events", [{**GOOD, "user": large, "amount": "none"}]).refused == 1
    assert len(pipeline.dead_letters()[0]["record"]) > 64 * 2**20


def test_a_schema_that_does_not_match_the_stream_on_disk_is_refused_as_a_whole(
    pipeline: hy.Pipeline, tmp_path: Path
) -> None:
    pipeline.append("events", [GOOD])
    other = hy.Pipeline("shop", tmp_path, clock=lambda: NOW)
    other.stream("events", "time timestamp, user bigint, amount bigint, price double", "time")
    with pytest.raises(SchemaMismatch, match='"user" is bigint and was string'):
        other.append("events", [{"time": "2020-01-01T00:00:00Z", "user": 1}])
    assert len(pipeline.results("events").rows()) == 1


@pytest.mark.parametrize("harm", ["flip", "cut", "gone"])
def test_a_damaged_segment_stops_the_run_and_nothing_is_lost_when_it_is_restored(tmp_path: Path, harm: str) -> None:
    events = [Event(at, "ab"[at % 2], at) for at in range(40)]
    pipeline = shop.shop(tmp_path, 3, ["big", "spend", "ranks"])
    pipeline.append("events", [each.row() for each in events[:10]])
    pipeline.run_until_idle(spark=False)
    for first in (10, 20, 30):
        pipeline.append("events", [each.row() for each in events[first : first + 10]])
    path = tmp_path / "streams" / "events" / StreamLog.open(tmp_path, "events").index().entries[2].name
    sound = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        at = len(sound) // 2
        path.write_bytes(sound[:at] if harm == "cut" else sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1 :])
    error = DamagedSegment if harm != "gone" else Exception
    with pytest.raises(error, match=f"{path.name}|not whole"):
        pipeline.run_until_idle(spark=False)
    path.write_bytes(sound)
    pipeline.finish("events")
    pipeline.run_until_idle(spark=False)
    check(pipeline, expected(events, 3, finished=True))


def test_a_changed_stage_is_refused_before_anything_runs_and_reset_is_the_way_out(tmp_path: Path) -> None:
    events = [Event(at, "a", at) for at in range(5)]
    pipeline = shop.shop(tmp_path, 0, ["spend"])
    pipeline.append("events", [each.row() for each in events])
    before = pipeline.run_until_idle(spark=False)
    pipeline.remove("spend")
    pipeline.query("spend", "select user, count(*) as n from events group by user")
    with pytest.raises(StageChanged, match="`hayase apply --beside`, or begin anew with `hayase reset spend"):
        pipeline.run_until_idle(spark=False)
    assert pipeline.progress() == before
    pipeline.reset("spend")
    pipeline.finish("events")
    pipeline.run_until_idle(spark=False)
    assert [row["n"] for row, _, _ in pipeline.query("spend").intervals()] == [1, 2, 3, 4, 5]


_HOLD = """
import sys
from pathlib import Path
from hayase.engine.home import Home
with Home(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_on_the_same_home_is_refused(tmp_path: Path) -> None:
    pipeline = shop.shop(tmp_path, 0, ["spend"])
    pipeline.append("events", [Event(1, "a", 1).row()])
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(HomeInUse, match=f"in use by process {holder.pid}"):
            pipeline.run_until_idle(spark=False)
        assert pipeline.append("events", [Event(2, "a", 1).row()]).accepted == 1, "appending needs no lock"
        holder.kill()  # whoever dies holds nothing
        holder.wait()
        assert pipeline.run_until_idle(spark=False).totals["spend"].read == 2
    finally:
        holder.kill()
        holder.communicate()


def test_the_same_producer_and_sequence_again_changes_nothing(tmp_path: Path) -> None:
    pipeline = shop.shop(tmp_path, 0, ["spend"])
    rows = [Event(1, "a", 1).row(), {"at": "never"}]
    first = pipeline.append("events", rows, producer="p", sequence=7)
    pipeline.run_until_idle(spark=False)
    for _ in range(2):
        again = shop.shop(tmp_path, 0, ["spend"]).append("events", rows, producer="p", sequence=7)
        assert again.repeated
        assert (again.first, again.next) == (first.first, first.next)
    pipeline.run_until_idle(spark=False)
    assert shop.figures_of(pipeline, "spend")[0] == 1
    assert len(pipeline.dead_letters()) == 1


def _write(home: Path, writer: int, count: int) -> None:
    pipeline = shop.shop(home, 10**9, [])
    for number in range(count):
        pipeline.append(
            "events", [Event(number, f"writer {writer}", number).row()], producer=f"{writer}", sequence=number
        )


def test_two_writers_while_a_run_goes_on(tmp_path: Path) -> None:
    pipeline = shop.shop(tmp_path, 10**9, ["spend", "copy"])
    pipeline.apply()
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(tmp_path, writer, 40)) for writer in range(2)]
    for each in writers:
        each.start()
    while any(each.is_alive() for each in writers):
        pipeline.run_until_idle(spark=False)
    for each in writers:
        each.join()
        assert each.exitcode == 0
    pipeline.finish("events")
    pipeline.run_until_idle(spark=False)
    log = [Event(**row) for row in pipeline.results("events").table().to_pylist()]
    assert len(log) == 80
    check(pipeline, expected(log, 10**9, finished=True))


def test_records_that_do_not_fit_a_finished_stream_are_no_dead_letters(pipeline: hy.Pipeline) -> None:
    stream, refused = pipeline.declaration.streams[0].name, [{"nonsense": 1}]
    pipeline.append(stream, refused, producer="p", sequence=1)
    before = len(pipeline.dead_letters())
    pipeline.finish(stream)
    for sequence in (None, 2):
        with pytest.raises(StreamFinished):
            pipeline.append(stream, refused, producer=None if sequence is None else "p", sequence=sequence)
    pipeline.append(stream, refused, producer="p", sequence=1)  # a repeat
    assert len(pipeline.dead_letters()) == before == 1


def test_an_append_that_fails_writes_no_dead_letter(pipeline: hy.Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.append("events", [GOOD])
    mixed = [GOOD, {**GOOD, "amount": "many"}]

    def full(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("hayase.streams.log.write_segment", full)
        with pytest.raises(HayaseError):
            pipeline.append("events", mixed)
    pipeline.finish("events")
    with pytest.raises(StreamFinished):
        pipeline.append("events", mixed)
    assert pipeline.dead_letters() == []


HOUR = 3_600_000_000


def _ahead(*hours: int) -> list[dict[str, Any]]:
    return [
        {"time": datetime.fromtimestamp((NOW + each * HOUR) // 1_000_000, UTC), "user": f"u{each}"} for each in hours
    ]


@pytest.mark.parametrize("lacking", ["events", "_dead"])
def test_a_record_too_far_ahead_that_is_repeated_later_is_counted_once(
    lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The append was killed before its records were in the log, or before its dead letters were, and is repeated when one of
    the records is no longer ahead."""
    now = NOW
    pipeline = hy.Pipeline("shop", tmp_path, clock=lambda: now)
    pipeline.stream("events", "time timestamp, user string", "time")
    rows = _ahead(0, 30, 1, 300)

    real = durable.rename

    def killed(source: Path, target: Path, **options: bool) -> None:
        if target.suffix == ".seg" and target.parent.name == lacking:
            raise KeyboardInterrupt
        real(source, target, **options)

    with monkeypatch.context() as patched:
        patched.setattr(durable, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            pipeline.append("events", rows, producer="p", sequence=1)
    assert pipeline.dead_letters() == []
    now += 100 * HOUR
    pipeline.append("events", rows, producer="p", sequence=1)
    pipeline.append("events", rows, producer="p", sequence=1)
    users = [row["user"] for row in pipeline.results("events").rows()]
    assert users == (["u0", "u1"] if lacking == "_dead" else ["u0", "u1", "u30"])
    letters = [letter["record"][-5:-2] for letter in pipeline.dead_letters()]
    assert letters == (["u30", "300"] if lacking == "_dead" else ["300"])


def test_an_append_of_records_too_far_ahead_alone_is_a_repeat_later(tmp_path: Path) -> None:
    now = NOW
    pipeline = hy.Pipeline("shop", tmp_path, clock=lambda: now)
    pipeline.stream("events", "time timestamp, user string", "time")
    first = pipeline.append("events", _ahead(30, 31), producer="p", sequence=1)
    now += 100 * HOUR
    again = pipeline.append("events", _ahead(30, 31), producer="p", sequence=1)
    assert (first.accepted, first.refused) == (again.accepted, again.refused) == (0, 2)
    assert pipeline.results("events").rows() == []
    assert len(pipeline.dead_letters()) == 2
