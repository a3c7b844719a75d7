"""A changed stage is built beside the old one: what readers see before, during and after, and what is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hayase as hy
from command_line import Answer
from hayase.core.clock import now_us
from hayase.core.errors import CursorGone, DeclarationError, HayaseError, StageChanged
from hayase.engine.batch import build_progress, lane_governor
from hayase.engine.batch.gate import Grants
from hayase.engine.commit.housekeeping import run_housekeeping
from hayase.engine.definition import definitions
from hayase.engine.definition.query_changes import add_query
from hayase.engine.integrity.verification import verify
from hayase.engine.local import InProcess
from hayase.engine.results.live_results import Live
from hayase.engine.results.query_results import Results
from hayase.streams import StreamLog, durable
from interruptions import Granting

SPEND = "select user, sum(amount) as spent from orders group by user"
COUNTS = "select user, count(*) as n, max(amount) as most from orders group by user"
RANKS = "select spent, count(*) as users from spend group by spent"


def declared(path: Path, spend: str = SPEND, **others: str) -> hy.Pipeline:
    pipeline = hy.Pipeline("shop", home=path)
    pipeline.stream("orders", schema="at bigint not null, user string, amount bigint", time="at", time_unit="us")
    pipeline.query("spend", spend)
    for name, text in others.items():
        pipeline.query(name, text)
    return pipeline


def orders(first: int, count: int) -> list[dict[str, Any]]:
    return [{"at": at, "user": "abc"[at % 3], "amount": at} for at in range(first, first + count)]


def rows(path: Path, name: str) -> list[dict[str, Any]]:
    """What a reader sees that knows nothing but the home and the name."""
    return sorted(Results(StreamLog.open(path, name)).at(), key=str)


def clean(path: Path, records: list[dict[str, Any]], name: str = "spend", **queries: str) -> list[dict[str, Any]]:
    pipeline = declared(path, **queries)
    pipeline.append("orders", records)
    pipeline.run_until_idle(spark=False)
    return rows(path, name)


@pytest.mark.parametrize("is_one_step", [True, False], ids=["one step", "two renames"])
def test_the_old_version_answers_until_the_new_one_has_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_one_step: bool
) -> None:
    monkeypatch.setattr(build_progress, "NEAR", 3)
    if not is_one_step:
        monkeypatch.setattr(durable, "exchange", lambda one, other: False)
    home = tmp_path / "home"
    pipeline = declared(home)
    pipeline.append("orders", orders(0, 30))
    pipeline.run_until_idle(spark=False)
    old = rows(home, "spend")
    changed = declared(home, COUNTS)
    with pytest.raises(StageChanged, match="--beside"):
        changed.apply()
    built = changed.apply(beside=True)
    assert built.build is not None
    assert [record.name for record in built.records] == ["spend", "spend@2"]
    gate = Granting(Grants(limit=4))
    with contextlib.closing(InProcess(pipeline.home, lambda: 0, gate)) as runner:
        seen = []
        appended = 30
        while runner.step():
            now = rows(home, "spend")
            seen.append("n" in now[0])
            if not seen[-1] and appended < 60:
                pipeline.append("orders", orders(appended, 2))
                appended += 2
                if appended == 32:
                    assert now == old
    assert seen == sorted(seen)
    assert {*seen} == {False, True}
    assert rows(home, "spend") == clean(tmp_path / "clean", orders(0, appended), spend=COUNTS)
    newest = definitions.latest(pipeline.home)
    assert newest is not None
    assert newest.build is None
    assert [(record.name, record.generation) for record in newest.records] == [("spend", 2)]
    assert sorted(path.name for path in (home / "streams").iterdir()) == ["orders", "spend"]


@pytest.fixture
def shop(tmp_path: Path) -> hy.Pipeline:
    """A home with 30 orders, processed, and a query that reads another."""
    pipeline = declared(tmp_path / "home", ranks=RANKS)
    pipeline.append("orders", orders(0, 30))
    pipeline.run_until_idle(spark=False)
    return pipeline


LARGE = SPEND.replace("from orders", "from orders where amount > 10")


def test_stages_that_read_a_built_stage_are_built_with_it(shop: hy.Pipeline, tmp_path: Path) -> None:
    old = rows(shop.home.path, "ranks")
    changed = declared(shop.home.path, LARGE, ranks=RANKS, more="select max(spent) as most from spend")
    definition = changed.apply(beside=True)
    names = [record.name for record in definition.records]
    assert {"spend", "ranks", "spend@2", "ranks@2", "more@2"} <= {*names}
    assert definition.record("ranks@2").inputs == ("spend@2",)
    assert rows(shop.home.path, "ranks") == old
    changed.run_until_idle(spark=False)
    for name in ("spend", "ranks", "more"):
        queries = {"spend": LARGE, "ranks": RANKS, "more": "select max(spent) as most from spend"}
        assert rows(shop.home.path, name) == clean(tmp_path / f"clean {name}", orders(0, 30), name, **queries)


def test_a_governed_run_builds_too(shop: hy.Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_governor, "SHOWN_EVERY", 0.0)
    declared(shop.home.path, LARGE, ranks=RANKS).apply(beside=True)
    with contextlib.closing(InProcess(shop.home, now_us, governed=True)) as runner:
        while latest(shop).build is not None:
            runner.step()
        while not runner.is_idle():
            runner.step()
    assert "ranks@2" not in runner.manifest.offset.positions


def test_a_build_can_be_given_up(shop: hy.Pipeline) -> None:
    old = rows(shop.home.path, "spend")
    changed = declared(shop.home.path, LARGE, ranks=RANKS)
    changed.apply(beside=True)
    with contextlib.closing(InProcess(shop.home, lambda: 0, Granting(Grants(limit=4)))) as runner:
        runner.step()
        assert (shop.home.path / "streams" / "spend@2").is_dir()
        assert shop.cancel().build is None
        runner.run_until_idle()
    assert rows(shop.home.path, "spend") == old
    assert not list((shop.home.path / "streams").glob("*@*"))
    with pytest.raises(DeclarationError, match="nothing is being built"):
        shop.cancel()


def test_during_a_build_other_changes_are_refused_and_the_two_versions_are_not(shop: hy.Pipeline) -> None:
    changed = declared(shop.home.path, LARGE, ranks=RANKS)
    version = changed.apply(beside=True).version
    assert changed.apply().version == changed.apply(beside=True).version == shop.apply().version == version
    other = declared(shop.home.path, SPEND, ranks=RANKS, copy="select user from orders")
    for change in (
        other.apply,
        lambda: shop.reset("spend"),
        lambda: add_query(shop.home, "copy", "select user from orders"),
    ):
        with pytest.raises(StageChanged, match="--cancel"):
            change()
    replaced = declared(shop.home.path, COUNTS, ranks=RANKS.replace("spent", "most")).apply(beside=True)
    assert [record.name for record in replaced.records if "@" in record.name] == ["spend@3", "ranks@3"]
    assert shop.reset_all().build is None


def test_only_queries_are_built_beside(tmp_path: Path) -> None:
    pipeline = declared(tmp_path / "home")
    pipeline.operation(score, reads="spend", writes="scores", schema="user string")
    pipeline.apply()
    changed = declared(tmp_path / "home", LARGE)
    changed.operation(score, reads="spend", writes="scores", schema="user string")
    with pytest.raises(StageChanged, match=r'"scores" would have to be built .* only queries can be'):
        changed.apply(beside=True)


def score(records: list[dict[str, Any]]) -> dict[str, Any]:
    return {"user": records[0]["user"]}


def test_the_dead_letters_of_a_build_appear_with_the_switch(shop: hy.Pipeline) -> None:
    shop.append("orders", [{"at": 1, "user": "late", "amount": 1}])
    shop.run_until_idle(spark=False)
    before = letters(shop)
    assert {letter[0] for letter in before} == {"spend"}
    changed = declared(shop.home.path, LARGE, ranks=RANKS)
    changed.apply(beside=True)
    with contextlib.closing(InProcess(shop.home, lambda: 0)) as runner:
        while latest(shop).build is not None:
            runner.step()
            assert letters(shop) == before
        runner.run_until_idle()
    new = [letter for letter in letters(shop) if letter not in before]
    assert [(stage, stream, offset) for stage, _, stream, offset in new] == [("spend", "orders", 30)]
    assert latest(shop).record("spend").fingerprint == new[0][1]


def letters(pipeline: hy.Pipeline) -> list[tuple[Any, ...]]:
    return [
        (letter["stage"], letter["version"], letter["stream"], letter["offset"]) for letter in pipeline.dead_letters()
    ]


def latest(pipeline: hy.Pipeline) -> definitions.Definition:
    newest = definitions.latest(pipeline.home)
    assert newest is not None
    return newest


def test_a_cursor_of_the_old_version_is_refused_after_the_switch(shop: hy.Pipeline) -> None:
    live = Live(StreamLog.open(shop.home.path, "spend"))
    cursor = live.page(None, limit=10).changes
    declared(shop.home.path, LARGE, ranks=RANKS).apply(beside=True)
    assert live.is_current(cursor)
    declared(shop.home.path, LARGE, ranks=RANKS).run_until_idle(spark=False)
    with pytest.raises(CursorGone, match="was reset"):
        live.changes_from(cursor)


def test_results_of_a_version_with_other_columns_are_asked_for_again(shop: hy.Pipeline) -> None:
    before = shop.query("spend")
    changed = declared(shop.home.path, COUNTS, ranks=RANKS.replace("spent", "most"))
    changed.apply(beside=True)
    assert changed.query("spend").at() == before.at(), "the declaration of a program does not decide what it reads"
    changed.run_until_idle(spark=False)
    with pytest.raises(HayaseError, match="ask for the results again"):
        before.at()
    assert {*changed.query("spend").at()[0]} == {"user", "n", "most"}


def test_sql_sees_one_version_and_no_builds(shop: hy.Pipeline) -> None:
    changed = declared(shop.home.path, COUNTS, ranks=RANKS.replace("spent", "most"))
    changed.apply(beside=True)
    with contextlib.closing(InProcess(shop.home, lambda: 0, Granting(Grants(limit=9)))) as runner:
        while True:
            names = shop.sql("select relation from hayase.relations").column("relation").to_pylist()
            assert not [name for name in names if "@" in name]
            columns = shop.sql("select * from spend").column_names
            assert columns in (["user", "spent"], ["user", "n", "most"])
            if not runner.step():
                break
    assert columns == ["user", "n", "most"]
    assert not [*verify(shop.home)]


def test_retention_waits_for_a_build(tmp_path: Path) -> None:
    home = tmp_path / "home"
    pipeline = declared(home)
    stream = replace(pipeline.declaration.streams[0], retention=hy.Retention(age=0))
    pipeline.declaration = replace(pipeline.declaration, streams=(stream,))
    for first in range(0, 30, 10):
        pipeline.append("orders", orders(first, 10))
    pipeline.run_until_idle(spark=False)
    changed = declared(home, LARGE)
    changed.declaration = replace(changed.declaration, streams=(stream,))
    changed.apply(beside=True)
    with contextlib.closing(InProcess(pipeline.home, lambda: 0, Granting(Grants(limit=4)))) as runner:
        for _ in range(5):
            runner.step()
            run_housekeeping(pipeline.home, now_us(), runner.commits)
            position = runner.manifest.offset.positions.get("spend@2", {}).get("orders")
            assert position is None or StreamLog.open(home, "orders").index().start <= position.at
        runner.run_until_idle()
    assert rows(home, "spend") == clean(tmp_path / "clean", orders(0, 30), spend=LARGE)


def test_two_directories_change_names_if_the_system_can_exchange_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert durable.exchange(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one" / "other").exists()
    monkeypatch.setattr(durable.ctypes, "CDLL", lambda *_, **__: object())
    assert not durable.exchange(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one" / "other").exists()


def test_streams_change_at_once_if_that_leaves_what_runs_as_it_is(shop: hy.Pipeline) -> None:
    changed = hy.Pipeline("shop", home=shop.home.path)
    changed.stream(
        "orders", schema="at bigint not null, user string, amount bigint, times bigint", time="at", time_unit="us"
    )
    changed.query("spend", SPEND.replace("sum(amount)", "sum(amount * coalesce(times, 2))"))
    changed.query("ranks", RANKS)
    definition = changed.apply(beside=True)
    assert "times" in definition.declaration.stream("orders").schema
    changed.append("orders", [{"at": 30, "user": "a", "amount": 1, "times": 100}, {"at": 31, "user": "b", "amount": 0}])
    changed.run_until_idle(spark=False)
    assert {row["user"]: row["spent"] for row in rows(shop.home.path, "spend")}["a"] == 2 * sum(range(0, 30, 3)) + 100


def test_the_command_line(shop: hy.Pipeline, tmp_path: Path, hayase_: Callable[..., Answer]) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "pipeline: shop\nhome: ./home\nstreams:\n  orders: {schema: 'at bigint not null, user string, amount bigint', "
        f"time: at, time_unit: us}}\nqueries:\n  spend: {LARGE}\n  ranks: {RANKS}\n"
    )
    refused = hayase_("plan", file)
    assert refused.code == 1
    assert "apply --beside" in refused.out
    applied = hayase_("apply", file, "--beside")
    assert applied.code == 0
    assert applied.out.count("replaces the old one") == 2
    assert "being built" in hayase_("plan", file).out
    assert hayase_("apply", file, "--beside", "--cancel").code == 2
    assert hayase_("apply", file, "--cancel").code == 0
    assert latest(shop).build is None


def test_the_number_of_buckets(shop: hy.Pipeline, tmp_path: Path, hayase_: Callable[..., Answer]) -> None:
    answers = [rows(shop.home.path, name) for name in ("spend", "ranks")]
    before = latest(shop).buckets
    assert shop.rebucket(before).version == 1, "it has as many"
    answer = hayase_("rebucket", before + 3, "--home", shop.home.path)
    assert answer.code == 0
    assert f"is built in {before + 3} buckets" in answer.out
    with pytest.raises(StageChanged, match="--cancel"):
        shop.rebucket(7)
    shop.run_until_idle(spark=False)
    assert (latest(shop).buckets, latest(shop).build) == (before + 3, None)
    assert [rows(shop.home.path, name) for name in ("spend", "ranks")] == answers
    shop.declaration = replace(shop.declaration, buckets=before)
    with pytest.raises(StageChanged, match=f"hayase rebucket {before}"):
        shop.apply()


def test_a_home_without_state_gets_other_buckets_at_once_and_one_with_operations_does_not(tmp_path: Path) -> None:
    pipeline = declared(tmp_path / "home", "select user, amount from orders")
    pipeline.append("orders", orders(0, 30))
    pipeline.run_until_idle(spark=False)
    definition = pipeline.rebucket(5)
    assert (definition.buckets, definition.build) == (5, None)
    pipeline.append("orders", orders(30, 30))
    pipeline.run_until_idle(spark=False)
    assert StreamLog.open(pipeline.home.path, "spend").index().next == 60
    pipeline.operation(score, reads="orders", writes="scores", schema="user string")
    pipeline.apply()
    with pytest.raises(StageChanged, match='"scores" would have to be built'):
        pipeline.rebucket(2)
