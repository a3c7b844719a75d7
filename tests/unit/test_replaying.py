"""Dead letters that are replayed reach the stage that refused them, once, and nobody else."""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hayase as hy
from hayase.core.declarations import PipelineDeclaration, StreamDeclaration
from hayase.core.operation_data import declared_operation
from hayase.engine.dead_letters.destinations import Destinations
from hayase.engine.dead_letters.letters import Filter, Letters
from hayase.engine.dead_letters.settlement import replay
from hayase.engine.definition.definitions import Definition, StageRecord
from hayase.engine.home import Home
from hayase.engine.local import InProcess
from hayase.streams import StreamLog
from hayase.streams.dead_letters import SETTLED
from hayase.testing import trial


def _shop(home: Path) -> hy.Pipeline:
    p = hy.Pipeline("shop", home=home)
    p.stream("orders", schema="time timestamp, user string, amount string", time="time", slack="1 minute")
    p.query("numbers", "select time, user, cast(amount as double) as amount from orders")
    p.query("copies", "select time, user, amount from orders")
    p.query("spend", "select user, sum(cast(amount as double)) as spend from orders [Range 1 hour] group by user")
    return p


def _orders(*amounts: str) -> list[dict[str, Any]]:
    return [
        {"time": f"2026-01-01T00:00:{second:02}Z", "user": "taro", "amount": amount}
        for second, amount in enumerate(amounts)
    ]


def _settle(p: hy.Pipeline, letter: int, stage: str, stream: str, offset: int | None, record: str | None) -> None:
    row = {"time": None, "letter": letter, "stage": stage, "stream": stream, "offset": offset, "record": record}
    columns = {name: pa.array([value]) for name, value in row.items()}
    columns["time"] = pa.array([0], pa.timestamp("us", tz="UTC"))
    table = pa.table(columns).cast(SETTLED.arrow_schema)
    StreamLog.ensure(p.home.path, SETTLED).append(table, now=0)


GOOD = '{"time": "2026-01-01T00:00:01Z", "user": "taro", "amount": "7"}'


def test_only_the_stage_that_refused_it_gets_a_replayed_letter(tmp_path: Path) -> None:
    p = _shop(tmp_path)
    p.append("orders", _orders("1", "x", "3"))
    p.run_until_idle(spark=False)
    refused = [(each["stage"], each["offset"]) for each in p.dead_letters()]
    assert ("numbers", 1) in refused
    _settle(p, 0, "numbers", "orders", 1, GOOD)
    manifest = p.run_until_idle(spark=False)
    assert sorted(row["amount"] for row in p.results("numbers").rows()) == [1.0, 3.0, 7.0]
    assert len(p.results("copies").rows()) == 3
    assert manifest.totals["numbers"].read == 4
    assert manifest.totals["numbers"].processed == 3
    assert manifest.totals["copies"].read == 3
    before = manifest.version
    assert p.run_until_idle(spark=False).version == before, "a letter is replayed once"


def test_a_letter_that_fails_again_is_a_letter_again(tmp_path: Path) -> None:
    p = _shop(tmp_path)
    p.append("orders", _orders("1", "x"))
    p.run_until_idle(spark=False)
    count = len(p.dead_letters())
    _settle(p, 0, "numbers", "orders", 1, GOOD.replace('"7"', '"seven"'))
    p.run_until_idle(spark=False)
    [letter] = p.dead_letters()[count:]
    assert (letter["stage"], letter["stream"], letter["offset"]) == ("numbers", "orders", 1)
    assert "seven" in letter["record"]


def test_a_stage_with_a_window_takes_it_while_its_time_is_not_over(tmp_path: Path) -> None:
    p = _shop(tmp_path)
    p.append("orders", _orders("1", "x"))
    p.run_until_idle(spark=False)
    _settle(p, 0, "spend", "orders", 1, GOOD)
    p.run_until_idle(spark=False)
    p.finish("orders")
    p.run_until_idle(spark=False)
    assert p.query("spend").at() == [{"user": "taro", "spend": 8.0}]


def test_a_replayed_record_is_late_where_the_clock_has_gone_by(tmp_path: Path) -> None:
    p = _shop(tmp_path)
    p.append("orders", [*_orders("1", "x"), {"time": "2026-01-01T01:00:00Z", "user": "taro", "amount": "5"}])
    p.run_until_idle(spark=False)
    count = len(p.dead_letters())
    _settle(p, 0, "spend", "orders", 1, GOOD)
    p.run_until_idle(spark=False)
    [letter] = p.dead_letters()[count:]
    assert letter["stage"] == "spend"
    assert letter["reason"].startswith("late: ")


@pytest.mark.parametrize(
    ("stage", "stream", "record", "reason"),
    [
        ("numbers", "orders", "{", "not JSON"),
        ("numbers", "orders", '{"time": "noon"}', 'column "time"'),
        ("gone", "orders", GOOD, 'the stage "gone"'),
        ("numbers", "copies", GOOD, 'does not read "copies"'),
    ],
)
def test_what_cannot_be_replayed_is_a_letter_again(
    tmp_path: Path, stage: str, stream: str, record: str, reason: str
) -> None:
    p = _shop(tmp_path)
    p.append("orders", _orders("1"))
    p.run_until_idle(spark=False)
    _settle(p, 0, stage, stream, None, record)
    manifest = p.run_until_idle(spark=False)
    [letter] = p.dead_letters()
    assert reason in letter["reason"]
    assert letter["record"] == record
    for figures in manifest.totals.values():
        assert figures.read == figures.processed + figures.dead + figures.waiting


def test_dropped_letters_reach_nobody(tmp_path: Path) -> None:
    p = _shop(tmp_path)
    p.append("orders", _orders("1", "x"))
    p.run_until_idle(spark=False)
    count = len(p.dead_letters())
    _settle(p, 0, "numbers", "orders", 1, None)
    p.run_until_idle(spark=False)
    assert len(p.dead_letters()) == count
    assert len(p.results("numbers").rows()) == 1


def test_a_replay_is_not_lost_when_a_batch_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    p = _shop(tmp_path)
    p.append("orders", _orders("1", "x"))
    p.run_until_idle(spark=False)
    _settle(p, 0, "numbers", "orders", 1, GOOD)
    with closing(InProcess(p.home, lambda: 0)) as runner:
        monkeypatch.setattr(
            "hayase.engine.commit.manifests.write_atomic", lambda *_: (_ for _ in ()).throw(OSError("full"))
        )
        with pytest.raises(hy.HayaseError):
            runner.run_until_idle()
        monkeypatch.undo()
        runner.run_until_idle()
    assert [row["amount"] for row in p.results("numbers").rows()] == [1.0, 7.0]


def test_a_stage_that_has_come_to_its_end_takes_no_letters(tmp_path: Path) -> None:
    p = _shop(tmp_path)
    p.append("orders", _orders("1", "x"))
    p.finish("orders")
    p.run_until_idle(spark=False)
    count = len(p.dead_letters())
    [(number, _)] = [(at, each) for at, each in enumerate(p.dead_letters()) if each["stage"] == "numbers"]
    report = p.replay(number)
    assert (report.settled, sum(report.left.values())) == (0, 1)
    _settle(p, 0, "numbers", "orders", 1, GOOD)  # one that got in before the end
    p.run_until_idle(spark=False)
    [letter] = p.dead_letters()[count:]
    assert "come to its end" in letter["reason"]


def test_a_dry_run_says_what_the_stage_will_refuse_again() -> None:
    with trial() as p:
        p.stream("s", schema="at bigint, text string", time="at", time_unit="s")
        p.query("numbers", "select cast(text as bigint) as n from s")
        p.append("s", [{"at": 1, "text": "one"}, {"at": 2, "text": "2"}])
        p.run()
        letters = Letters(p.home, p.declaration)
        told = replay(letters, Filter(), dry=True)
        assert (told.settled, told.again, told.refused_again[0][0]) == (1, 1, 0)
        assert "cannot compute" in told.refused_again[0][1]
        mended = replay(letters, Filter(), lambda values, stream: [{**each, "text": "1"} for each in values], dry=True)
        assert (mended.settled, mended.again) == (1, 0)
        assert replay(letters, Filter()).again == 1
        p.run()
        assert len(p.dead_letters()) == 2


def test_a_window_that_slides_says_what_to_do_instead() -> None:
    sliding = declared_operation("op", {"reads": "s", "function": "m:f", "window": 3, "slide": 1, "schema": "n bigint"})
    stream = StreamDeclaration("s", "at bigint, text string", "at", time_unit="s")
    with tempfile.TemporaryDirectory() as place:
        ways = Destinations(Letters(Home(Path(place))))
        ways._definition = Definition(
            1, PipelineDeclaration("p", (stream,), operations=(sliding,)), (), 1, Home(Path(place))
        )
        record = StageRecord("op", "f", 1, "earliest", ("s",), stream)
        ways._definition = replace(ways._definition, records=(record,))
        told = ways.obstacle("op", "op", False)
    assert told is not None
    assert "a window of operation" in told
    assert "`hayase reset op --from earliest`" in told
