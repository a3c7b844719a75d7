"""Queries added by command: what a file applied later makes of them, and what `hayase plan` says about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hayase.cli.pipeline_location import kind_of
from hayase.core.errors import DeclarationError, UnknownName
from hayase.engine.definition import definitions
from hayase.engine.definition.diff import preview
from hayase.engine.definition.query_changes import add_query, addition, explain_query, plan_query, remove_query
from hayase.pipeline import Pipeline
from hayase.streams.durable import without_syncs


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with without_syncs():
        yield


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = Pipeline("shop", tmp_path / "home")
    made.stream("orders", schema="time timestamp, user string, amount double")
    made.query("spend", "select user, sum(amount) as total from orders [Range 1 minute Slide 10 seconds] group by user")
    made.append("orders", [{"time": f"2026-01-01T00:00:{at:02d}Z", "user": "taro", "amount": at} for at in range(5)])
    made.apply()
    return made


def current(pipeline: Pipeline) -> definitions.Definition:
    newest = definitions.latest(pipeline.home)
    assert newest is not None
    return newest


def notes(pipeline: Pipeline) -> dict[str, tuple[str, str]]:
    return {
        difference.name: (difference.fate, difference.note)
        for difference in preview(pipeline.home, pipeline.declaration).differences
        if difference.kind == "change by command"
    }


def test_an_added_query_stays_when_the_file_is_applied_again(pipeline: Pipeline) -> None:
    assert add_query(pipeline.home, "large", "select user, amount from orders where amount > 2").added == ("large",)
    assert pipeline.apply().version == 2  # nothing has changed
    assert notes(pipeline)["large"][0] == "kept"
    pipeline.query("small", "select user from orders where amount < 1")
    assert [query.name for query in pipeline.apply().declaration.queries] == ["spend", "small", "large"]
    assert current(pipeline).added == ("large",)
    pipeline.run_until_idle(spark=False)
    assert [row["amount"] for row in pipeline.results("large").rows()] == [3.0, 4.0]


def test_commands_know_an_added_query(pipeline: Pipeline) -> None:
    add_query(pipeline.home, "large", "select user, amount from orders where amount > 2")
    pipeline.run_until_idle(spark=False)
    assert kind_of(pipeline, "large") == "results"
    assert kind_of(pipeline, "orders") == "stream"
    remove_query(pipeline.home, "large")
    assert kind_of(pipeline, "large") == "not declared any more"


def test_the_file_wins_once_it_declares_the_name(pipeline: Pipeline) -> None:
    add_query(pipeline.home, "large", "select user, amount from orders where amount > 2")
    pipeline.query("large", "select user, amount from orders where amount > 3")
    assert notes(pipeline)["large"] == ("removed", "the file declares it now")
    assert pipeline.apply().added == ()
    pipeline.run_until_idle(spark=False)
    assert [row["amount"] for row in pipeline.results("large").rows()] == [4.0]
    with pytest.raises(DeclarationError, match="declared by the file"):
        remove_query(pipeline.home, "large")


def test_a_declaration_that_was_read_from_the_home_keeps_what_was_added(pipeline: Pipeline) -> None:
    add_query(pipeline.home, "large", "select user, amount from orders where amount > 2")
    again = Pipeline("shop", pipeline.home.path)
    again.declaration = current(pipeline).declaration
    assert again.reset("large").added == ("large",)
    remove_query(pipeline.home, "large")
    assert pipeline.apply().added == ()
    assert [query.name for query in current(pipeline).declaration.queries] == ["spend"]


def test_a_file_that_takes_away_what_an_added_query_reads_is_told_so(pipeline: Pipeline) -> None:
    add_query(pipeline.home, "ranks", "select max(total) as most from spend")
    pipeline.declaration = replace(pipeline.declaration, queries=())
    with pytest.raises(DeclarationError, match='query "ranks", which was added by command, does not fit') as refused:
        pipeline.apply()
    assert 'declare "ranks" as it should be' in str(refused.value)
    pipeline.query("ranks", "select max(amount) as most from orders")
    with pytest.raises(Exception, match="hayase reset ranks"):  # its state is that of another query
        pipeline.apply()
    pipeline.reset("ranks")
    assert current(pipeline).added == ()


def test_operations_and_repairs_keep_added_queries(pipeline: Pipeline) -> None:
    add_query(pipeline.home, "one", "select user from orders")
    add_query(pipeline.home, "two", "select user from one")
    assert current(pipeline).added == ("one", "two")
    assert definitions.load(pipeline.home, 2).added == ("one",)
    with pytest.raises(UnknownName):
        remove_query(pipeline.home, "three")


def test_an_addition_names_what_shares_its_scan(pipeline: Pipeline) -> None:
    text = "select user, max(amount) as most from orders [Range 5 minutes Slide 10 seconds] group by user"
    plan = addition(current(pipeline), "most", text)
    assert [(stage.name, stage.shares) for stage in plan.stages] == [("most", ("spend",))]
    assert plan.declaration == f"queries:\n  most: {text}\n"
    assert "shares its pass over orders with" not in explain_query(current(pipeline), "most", text)
    assert add_query(pipeline.home, "most", text).version == plan.version + 1


def test_a_query_with_several_stages_names_each(pipeline: Pipeline) -> None:
    text = "select max(total) as most from (select user, sum(amount) as total from orders group by user)"
    query = plan_query(current(pipeline), "most", text)
    plan = addition(current(pipeline), "most", text)
    assert [stage.name for stage in plan.stages] == [draft.stage.name for draft in query.drafts]
    assert all(stage.keeps for stage in plan.stages)
