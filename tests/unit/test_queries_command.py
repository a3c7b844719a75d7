"""The commands `hayase queries`: a query is added to a pipeline and removed again, while it runs or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import Command
from hayase.pipeline import Pipeline
from hayase.streams.durable import without_syncs

PIPELINE = """
pipeline: shop
home: home
streams:
  orders: {schema: "time timestamp, user string, amount double", time: time}
queries:
  spend: select user, sum(amount) as total from orders group by user
"""
LARGE = "select user, amount from orders where amount > 2"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    """A pipeline that was applied, in whose directory commands run."""
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    with without_syncs():
        pipeline = Pipeline.from_file(tmp_path / "pipeline.yaml")
        pipeline.append(
            "orders", [{"time": f"2026-01-01T00:00:0{at}Z", "user": "taro", "amount": at} for at in range(5)]
        )
        pipeline.apply()
        yield pipeline


def test_from_adding_to_removing(hayase_: Command, shop: Pipeline) -> None:
    added = hayase_("queries", "add", "large", LARGE)
    assert added.out == "large is added: version 2 of shop, which takes effect when the pipeline runs next\n"
    shop.run_until_idle(spark=False)
    assert [row["amount"] for row in shop.results("large").rows()] == [3.0, 4.0]
    with shop.home.lock():
        removed = hayase_("queries", "remove", "large")
    assert removed.out == "large is removed: version 3 of shop, which takes effect at the next batch\n"
    assert hayase_("queries", "remove", "large").code != 0


def test_a_query_may_begin_with_new_records(hayase_: Command, shop: Pipeline) -> None:
    hayase_("queries", "add", "large", LARGE, "--from", "now")
    shop.run_until_idle(spark=False)
    shop.append("orders", [{"time": "2026-01-01T00:00:09Z", "user": "hana", "amount": 9}])
    shop.run_until_idle(spark=False)
    assert [row["user"] for row in shop.results("large").rows()] == ["hana"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["remove", "spend"], 'query "spend" is declared by the file of the pipeline'),
        (["remove", "spnd"], 'unknown query "spnd"'),
        (["add", "spend", LARGE], '"spend"'),
        (["add", "large", "select amunt from orders"], 'did you mean "amount"?'),
        (["add", "no name", LARGE], "no name"),
    ],
)
def test_what_is_refused_is_said(hayase_: Command, shop: Pipeline, arguments: list[str], reason: str) -> None:
    refused = hayase_("queries", *arguments)
    assert refused.code != 0
    assert reason in " ".join(refused.err.split())
