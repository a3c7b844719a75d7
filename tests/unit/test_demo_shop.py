"""The demo's shop, in this process: what it gives is what plain Python makes of the same events, and is shown as it is."""

from __future__ import annotations

import io
import re
import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from command_line import answer
from hayase.core.errors import HayaseError
from hayase.demo import scoring, scoring_fix
from hayase.demo.events import BLOCKED, FAULTY_ITEMS, SLACK, Shop
from hayase.demo.expected_results import expected_results, fits_stream
from hayase.demo.hints import hints
from hayase.demo.observer import Observer, SpreeChange
from hayase.demo.result_check import CheckReport, OutputCheck, check_results
from hayase.demo.runner import open_shop
from hayase.demo.screen import Screen, plain_lines
from hayase.demo.sender import Sent
from hayase.demo.shop_pipeline import fill_blocklist, shop_pipeline
from hayase.engine.batch.lane_governor import GovernorStatus, QueueStatus
from hayase.engine.stage_figures import stage_views
from hayase.pipeline import Pipeline

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return BEGIN + timedelta(minutes=minutes)


def send(pipeline: Pipeline, seed: int, ticks: range, sent: Sent) -> None:
    for number in ticks:
        tick = Shop(seed).tick(number)
        for stream, events in (("orders", tick.orders), ("lines", tick.lines)):
            done = pipeline.append(stream, events, producer="shop", sequence=number)
            sent.records += len(events)
            sent.accepted += done.accepted
            sent.refused += done.refused


def close(pipeline: Pipeline) -> None:
    for stream in ("orders", "lines"):
        pipeline.finish(stream)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pipeline, Sent]:
    """A shop that has run and closed."""
    pipeline, sent = shop_pipeline(tmp_path_factory.mktemp("shop")), Sent()
    fill_blocklist(pipeline)
    for ticks in (range(25), range(25, 40)):
        send(pipeline, SEED, ticks, sent)
        pipeline.run_until_idle(spark=False)
    close(pipeline)
    pipeline.run_until_idle(spark=False)
    return pipeline, sent


SEED = 10


class TestTheShop:
    def test_a_tick_is_always_the_same_and_every_seed_has_its_own(self) -> None:
        assert Shop(3).tick(7) == Shop(3).tick(7)
        assert Shop(3).tick(7) != Shop(4).tick(7)

    def test_events_are_late_repeated_and_broken(self) -> None:
        orders = [each for number in range(200) for each in Shop().tick(number).orders]
        taken = [each for each in orders if fits_stream(each)]
        assert 0 < len(orders) - len(taken) < 30
        assert len({each["uuid"] for each in orders}) < len(orders)
        found = expected_results(taken, [], {}, SLACK, 100_000)
        assert all(found.dead[stage] for stage in ("spree", "purchases", "scores"))
        assert {each for _, _, each in found.spree} > {None}, "sprees end"


class TestTheExpectedResults:
    def test_sprees_begin_and_end(self) -> None:
        orders = [order(0, "a", 60), order(4, "a", 70), order(5, "b", 10), order(30, "b", 1)]
        found = expected_results(orders, [], {}, SLACK, 100)
        assert found.spree == [(("a", 2, 130), at(4), at(10))]

    def test_windows_of_the_revenue(self) -> None:
        orders = [order(0.5, "a", 60), order(1.5, "a", 70), order(3, "b", 10)]
        found = expected_results(orders, [], {}, SLACK, 100)
        assert [each for each in found.revenue if each[0][0] == "1 minute"] == [
            (("1 minute", 0, None, None), at(0.5), at(1)),
            (("1 minute", 1, 10, 10), at(3), None),
            (("1 minute", 1, 60, 60), at(1), at(2)),
            (("1 minute", 1, 70, 70), at(2), at(3)),
        ]
        assert (("1 hour", 3, 140, 70), at(3), None) in found.revenue

    def test_a_late_order_is_none_for_queries_and_one_for_the_table(self) -> None:
        orders = [order(5, "a", 60), order(1, "a", 70), order(5, "a", 60, uuid="5.0a")]
        found = expected_results(orders, [], {}, SLACK, 1)
        assert found.dead["spree"] == {1}
        assert found.spree == [(("a", 2, 120), at(5), None)]
        assert (found.purchases["a"]["orders"], found.purchases["a"]["total"]) == (2, 130)

    def test_the_fixed_operation_scores_all_and_is_the_same_otherwise(self) -> None:
        for each in (one for number in range(30) for one in Shop().tick(number).orders if fits_stream(one)):
            if each["item"] in FAULTY_ITEMS or each["amount"] is None:
                assert scoring_fix.score([each])["score"] == 99
            else:
                assert scoring_fix.score([each]) == scoring.score([each])


def order(minutes: float, user: str, amount: int, **more: Any) -> dict[str, Any]:
    made = {"time": at(minutes), "uuid": f"{minutes:.1f}{user}", "type": "purchase", "user_id": user, "item": "tea"}
    return {**made, "amount": amount, **more}


class TestTheCheck:
    def test_every_output_is_what_plain_python_says(self, shop: tuple[Pipeline, Sent]) -> None:
        pipeline, sent = shop
        report = check_results(pipeline, sent, pipeline.progress().totals)
        assert [each for each in report.outputs if not each.good] == []
        assert report.good
        assert {each.name for each in report.outputs if each.what == "dead letters" and each.actual} == {
            "streams", "spree", "revenue", "traffic", "purchases", "scores"
        }  # fmt: skip
        text = shown(report)
        assert "everything adds up" in text
        assert "✗" not in text

    def test_what_is_in_the_logs_is_what_was_sent(self, shop: tuple[Pipeline, Sent]) -> None:
        pipeline, _ = shop
        ticks = [Shop(SEED).tick(number) for number in range(40)]
        orders = [each for tick in ticks for each in tick.orders if fits_stream(each)]
        assert pipeline.results("orders").table().to_pylist() == orders
        assert pipeline.results("lines").table().to_pylist() == [each for tick in ticks for each in tick.lines]

    def test_crashes_are_dead_letters_with_their_reasons(self, shop: tuple[Pipeline, Sent]) -> None:
        pipeline, _ = shop
        reasons = {
            re.search(r'"item": "([^"]+)"', each["record"])[1]: each["reason"]  # type: ignore[index]
            for each in pipeline.dead_letters()
            if each["stage"] == "scores"
        }
        assert "nobody can say what a cursed mirror is worth" in reasons["cursed mirror"]
        assert "exit code 13" in reasons["paper dragon"]
        assert "more than 0.5 s" in reasons["endless scarf"]

    def test_a_difference_is_told(self, shop: tuple[Pipeline, Sent]) -> None:
        pipeline, sent = shop
        totals = pipeline.progress().totals
        assert not check_results(pipeline, replace(sent, accepted=sent.accepted + 1), totals).good
        figures = replace(totals["spree"], dead=totals["spree"].dead + 1)
        assert not check_results(pipeline, sent, {**totals, "spree": figures}).good
        assert not CheckReport(Sent(), {}, (OutputCheck("spree", "rows", 3, 3, False),)).good
        assert "✗" in shown(CheckReport(Sent(), {}, (OutputCheck("spree", "rows", 3, 3, False),)))

    def test_a_shop_that_has_closed_is_not_opened_again(self, shop: tuple[Pipeline, Sent]) -> None:
        with pytest.raises(HayaseError, match="has closed for good; name another home"):
            open_shop(shop[0].home.path)


# ------------------------------------------------------------------------------------------------ what is shown


def shown(what: RenderableType, width: int = 80, height: int = 24) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    console.print(what)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def scene(shop: tuple[Pipeline, Sent]) -> Screen:
    pipeline, _ = shop
    manifest = pipeline.progress()
    shop_now = Observer(pipeline).observe()
    assert shop_now.clock is not None
    gone = SpreeChange("-", shop_now.clock, {"user_id": "nobody", "orders": 9, "spent": 120_000})
    queue = QueueStatus("", "orders", 100.0, 0.001, 0.1, 0.75, 3, 0.1, 5, 0)
    seen = GovernorStatus("main", "informed", 2, 0, 5, 0, (queue, replace(queue, stage="scores", load=1.25, share=1.0)))
    return Screen(
        "running",
        stage_views(manifest, manifest, {}, 3.0),
        replace(shop_now, spree_changes=[*shop_now.spree_changes, gone]),
        75.0,
        [seen],
        "hayase dead list",
    )


class TestTheScreen:
    @pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
    def test_it_fits_and_has_everything_on_it(self, scene: Screen, width: int, height: int) -> None:
        lines = shown(scene, width, height).splitlines()
        assert len(lines) < height
        assert max(map(len, lines)) <= width
        text = "\n".join(lines)
        for each in ("spree", "revenue", "traffic", "blocked", "purchases", "scores", "10 minutes", "dead letters"):
            assert each in text
        assert "- 23:53 nobody is not any more" in text
        assert "try: hayase dead list" in text

    def test_load_and_share_stand_with_the_first_stage_of_a_pass(self, scene: Screen) -> None:
        rows = {line.split()[0]: line.split()[-2:] for line in shown(scene).splitlines()[2:8]}
        assert rows["spree"] == ["0.10", "75%"]
        assert rows["revenue"] == ["″", "″"]
        assert rows["scores"] == ["1.25", "100%"]
        assert rows["traffic"] == ["—", "—"]

    def test_lines_say_what_is_new(self, scene: Screen) -> None:
        lines = list(plain_lines(scene, None))
        assert any(line.startswith("spree: - nobody at") for line in lines)
        assert any(line.startswith("dead: scores: ") for line in lines)
        assert any(line.startswith("governor: orders: load 0.10, share 75%") for line in lines)
        again = list(plain_lines(scene, scene))
        assert not [line for line in again if line.startswith(("dead:", "spree: -", "spree: +"))]


def test_what_it_says_to_try_works_and_what_was_changed_is_not_judged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, sent = open_shop(tmp_path), Sent()
    assert pipeline.table("blocklist").get(next(iter(BLOCKED))) is not None
    send(pipeline, SEED, range(20), sent)
    pipeline.run_until_idle(spark=False)
    monkeypatch.setattr("sys.stdin", io.StringIO("select 1 as one;"))  # for `hayase sql`
    for each in hints(tmp_path, "http://127.0.0.1:1", Shop(SEED).on_spree(0)):
        command, *words = shlex.split(each.command)
        if command == "hayase":
            done = answer(capfd, monkeypatch, *(word for word in words if word != "-f"))
            assert done.code == 0, (each.command, done.err)
            assert done.out, each.command
    send(pipeline, SEED, range(20, 25), sent)
    close(pipeline)
    pipeline.run_until_idle(spark=False)
    report = check_results(pipeline, sent, pipeline.progress().totals)
    assert {each.name for each in report.outputs if each.good is None} == {"scores"}
    assert report.good
    assert "changed" in shown(report)
    scores = {row["uuid"]: row["score"] for row in pipeline.results("scores").rows()}
    orders = pipeline.results("orders").table().to_pylist()
    assert scores == {each["uuid"]: scoring_fix.score([each])["score"] for each in orders}


def test_hints_for_a_server_with_a_token_send_it(tmp_path: Path) -> None:
    requests = [
        each.command
        for each in hints(tmp_path, "http://127.0.0.1:1", "taro", with_token=True)
        if "curl" in each.command
    ]
    assert len(requests) == 3
    assert all('-H "Authorization: Bearer $HAYASE_TOKEN"' in request for request in requests)
