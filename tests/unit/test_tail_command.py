"""`hayase streams tail` of a query prints its changes: each row as it appears and as it ends, once each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import Command
from hayase.cli import stream_tail
from hayase.engine.results import live_results
from hayase.pipeline import Pipeline
from hayase.streams.durable import without_syncs
from library_stand_ins import replace_in

PIPELINE = """
pipeline: shop
home: home
streams:
  orders: {schema: "time timestamp, user string, amount double", time: time}
queries:
  spend: select user, sum(amount) as total from orders [Range 3 seconds] group by user
  large: select user, amount from orders where amount > 2
"""


def order(second: int, user: str = "taro") -> dict[str, object]:
    return {"time": f"2026-01-01T00:00:{second:02d}Z", "user": user, "amount": second}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    """A pipeline that has run, in whose directory commands run."""
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    with without_syncs():
        pipeline = Pipeline.from_file(tmp_path / "pipeline.yaml")
        pipeline.append("orders", [order(at, user) for at in range(0, 20, 2) for user in ("taro", "hana")])
        pipeline.run_until_idle(spark=False)
        yield pipeline


def test_a_row_appears_once_and_ends_once(hayase_: Command, shop: Pipeline) -> None:
    changes = hayase_("streams", "tail", "spend", "-n", 1000).rows
    appeared = [row for row in changes if row["change"] == "+"]
    assert len({(row["user"], row["event_time"]) for row in appeared}) == len(appeared)
    assert changes[0] == {"event_time": "2026-01-01T00:00:00+00:00", "change": "+", "user": "hana", "total": 0.0} | {
        "user": changes[0]["user"]
    }
    assert len(changes) == len(shop.results("spend").changes())


@pytest.mark.parametrize("looked_at", [1, 7, 1000])
def test_the_last_changes_are_the_end_of_all_changes(
    hayase_: Command, shop: Pipeline, monkeypatch: pytest.MonkeyPatch, looked_at: int
) -> None:
    monkeypatch.setattr(live_results, "LAST", looked_at)
    every = hayase_("streams", "tail", "spend", "-n", 1000).rows
    for count in range(len(every) + 2):
        assert hayase_("streams", "tail", "spend", "-n", count).rows == every[max(0, len(every) - count) :], count


def test_a_query_that_is_a_stream_has_records(hayase_: Command, shop: Pipeline) -> None:
    assert [row["amount"] for row in hayase_("streams", "tail", "large", "-n", 3).rows] == [16, 18, 18]


def test_following_ends_with_the_inputs(hayase_: Command, shop: Pipeline) -> None:
    before = hayase_("streams", "tail", "spend", "-n", 1000).rows
    shop.finish("orders")
    shop.run_until_idle(spark=False)
    after = hayase_("streams", "tail", "spend", "-n", 1000, "-f").rows
    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert hayase_("streams", "tail", "spend", "-n", 0, "-f").rows == []


def test_what_comes_while_it_is_followed(hayase_: Command, shop: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = iter(
        [
            lambda: shop.append("orders", [order(30)]),
            lambda: shop.run_until_idle(spark=False),
            lambda: shop.finish("orders"),
            lambda: shop.run_until_idle(spark=False),
        ]
    )
    replace_in(monkeypatch, stream_tail, "time", sleep=lambda seconds: next(steps)())
    followed = hayase_("streams", "tail", "spend", "-n", 1, "-f").rows
    assert followed[-1] | {"event_time": ""} == {"event_time": "", "change": "+", "user": "taro", "total": 30.0}
    assert followed[1:] == hayase_("streams", "tail", "spend", "-n", len(followed) - 1).rows


def test_a_terminal_gets_signs_and_times(hayase_: Command, shop: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hayase.cli.streams.as_json", lambda wanted: wanted)
    head, _, *lines = hayase_("streams", "tail", "spend", "-n", 4).out.splitlines()
    assert head.split() == ["event_time", "user", "total"]
    changes = hayase_("streams", "tail", "spend", "-n", 4, "--json").rows
    assert [line.split()[0] for line in lines] == [row["change"] for row in changes]
    assert "2026-01-01 00:00:" in lines[0]


def test_before_there_are_changes(hayase_: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hayase.cli.streams.as_json", lambda wanted: wanted)
    assert hayase_("streams", "tail", "spend").err == "no changes yet\n"
    assert hayase_("streams", "tail", "large").err == "no records in large yet\n"
