"""Runs without Spark: in the background, as a context, with views, sources, outputs and the server, and their errors."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import httpx
import pytest

import hayase as hy
from command_line import Command
from hayase.core.errors import DeclarationError, HayaseError, HomeInUse, StageChanged
from hayase.engine.local_run import run_local_lanes

SPEND = "select user, sum(amount) as spend from orders [Range 10 seconds] group by user"


@pytest.fixture
def shop(tmp_path: Path) -> hy.Pipeline:
    p = hy.Pipeline("shop", tmp_path / "home")
    p.stream("orders", "time timestamp, user string, amount bigint", time="time")
    p.query("spend", SPEND)
    return p


def order(at: int, user: str = "taro") -> dict[str, object]:
    return {"time": f"2026-01-01T00:00:{at:02d}Z", "user": user, "amount": at}


# ---------------------------------------------------------------------------------------------------- start and stop


def test_a_pipeline_runs_behind_the_program_until_it_is_stopped(shop: hy.Pipeline) -> None:
    told: list[hy.Progress] = []
    with shop:
        run = shop.start(spark=False, on_progress=told.append)
        assert shop.start(spark=False) is run
        for at in range(3):
            shop.append("orders", [order(at)])
            shop.wait_until_idle()
        assert shop.query("spend").at() == [{"user": "taro", "spend": 1}], "final up to the second before the last"
        assert (run.state, run.progress().read, run.progress().unread) == ("running", 3, 0)
        assert "3 records read" in repr(run)
        with pytest.raises(HomeInUse):
            shop.run_until_idle(spark=False)
    assert run.state == "stopped"
    assert told[-1].read == 3
    assert repr(shop).endswith("; stopped>")
    shop.finish("orders")
    shop.start(spark=False)  # again
    shop.wait_until_idle()
    shop.stop()
    assert shop.query("spend").at() == [{"user": "taro", "spend": 3}]
    shop.stop()  # nothing runs


def test_a_run_in_the_foreground_ends_when_it_is_told(shop: hy.Pipeline) -> None:
    shop.append("orders", [order(1), order(2)])
    seen = threading.Event()
    shop.view("spend", lambda records: seen.set())
    manifest = shop.run(spark=False, stop=seen.is_set)
    assert manifest.totals["spend"].read == 2


def test_waiting_has_an_end(shop: hy.Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HayaseError, match=r"call p\.start\(\) first"):
        shop.wait_until_idle()
    monkeypatch.setattr("hayase.engine.local.InProcess.is_idle", lambda runner: False)
    with shop:
        shop.start(spark=False)
        with pytest.raises(TimeoutError, match=r"not idle after 0\.1 s: "):
            shop.wait_until_idle(0.1)
        shop.stop()
        with pytest.raises(HayaseError, match="was stopped before it was idle"):
            shop.wait_until_idle()


def test_mistakes_are_told_at_the_start_and_failures_by_whoever_waits(
    shop: hy.Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.stream("orders", "time timestamp, customer string, amount bigint", time="time")
    with pytest.raises(DeclarationError, match='unknown column "user"'):
        shop.start(spark=False)
    shop.stream("orders", "time timestamp, user string, amount bigint", time="time")

    def broken(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr("hayase.engine.local.reduce_bucket", broken)
    shop.append("orders", [order(1)])
    run = shop.start(spark=False)
    with pytest.raises(hy.LaneFailed, match="a batch failed: ValueError: broken"):
        shop.wait_until_idle()
    assert run.state == "failed"
    with pytest.raises(RuntimeError, match="mine"), shop:
        raise RuntimeError("mine")
    monkeypatch.undo()
    shop.run_until_idle(spark=False)
    assert shop.progress().totals["spend"].read == 1


def test_an_operation_runs_in_the_same_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scoring.py").write_text(
        "def score(records):\n    return {'user': records[0]['user'], 'twice': 2 * records[0]['amount']}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with hy.Pipeline("shop", tmp_path / "home") as p:
        p.stream("orders", "time timestamp, user string, amount bigint", time="time")
        p.operation("scoring:score", reads="orders", writes="scores", schema="user string, twice bigint")
        p.start(spark=False)
        p.append("orders", [order(1), order(2)])
        p.wait_until_idle()
        assert p.dead_letters() == []
        assert [row["twice"] for row in p.results("scores").rows()] == [2, 4]


def test_the_home_is_cleaned_up_and_the_condition_told(shop: hy.Pipeline) -> None:
    shop.append("orders", [order(1)])
    conditions, phases = [], []
    with shop.home.lock():
        shop.apply()
        with run_local_lanes(
            shop.home, on_condition=lambda condition: conditions.append(condition.state), on_phase=phases.append
        ) as lanes:
            while not lanes.is_idle():
                lanes.check()
    assert conditions == ["starting", "running", "stopping"]
    assert phases == ["starting the lanes", "stopping"]
    assert not list(shop.home.staged("main").iterdir())


# ---------------------------------------------------------------------------------------------------- declarations


def test_declaring_again_replaces_before_the_first_run(shop: hy.Pipeline) -> None:
    shop.query("large", "select user from orders where amount > 1")
    shop.query("spend", SPEND)
    shop.query("spend", SPEND.replace("sum", "max"))
    assert [query.name for query in shop.declaration.queries] == ["spend", "large"]
    shop.stream("orders", "time timestamp, user string, amount bigint", time="time", slack="1 second")
    assert [stream.slack for stream in shop.declaration.streams] == [1_000_000]
    shop.table("bought", key="user", total=hy.Counter())
    shop.table("bought", key="user", total=hy.Counter(), last=hy.Register())
    assert shop.declaration.table("bought").column_names == ("total", "last")
    shop.append("orders", [order(1), order(3)])
    shop.finish("orders")
    shop.run_until_idle(spark=False)
    assert shop.query("spend").at() == [{"user": "taro", "spend": 3}]
    shop.query("spend", SPEND)
    with pytest.raises(StageChanged, match="hayase reset spend"):
        shop.run_until_idle(spark=False)
    shop.reset("spend")
    shop.run_until_idle(spark=False)
    assert shop.query("spend").at() == [{"user": "taro", "spend": 4}]


def test_a_replaced_stream_has_the_source_of_its_new_declaration(tmp_path: Path) -> None:
    p = hy.Pipeline("shop", tmp_path / "home")
    p.stream("logs", "time bigint, n bigint", time="time", time_unit="s", source=hy.Files(f"{tmp_path}/*.ndjson"))
    p.stream("logs", "time bigint, n bigint", time="time", time_unit="s")
    assert p.declaration.sources == ()


# ---------------------------------------------------------------------------------------------------- hy.open


def test_a_home_is_opened_as_it_was_declared(shop: hy.Pipeline) -> None:
    shop.append("orders", [order(1)])
    early = hy.open(shop.home.path)
    assert [stream.name for stream in early.declaration.streams] == ["orders"]
    shop.run_until_idle(spark=False)
    opened = hy.open(str(shop.home.path))
    assert opened.declaration == shop.declaration
    opened.append("orders", [order(2)])
    opened.finish("orders")
    opened.run_until_idle(spark=False)
    assert opened.query("spend").at() == shop.query("spend").at() == [{"user": "taro", "spend": 3}]


def test_a_place_that_is_no_home_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HayaseError, match="is not the home of a pipeline; check the path"):
        hy.open(tmp_path / "nowhere")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(HayaseError, match="is not the home of a pipeline"):
        hy.open(tmp_path / "nothing")


# ---------------------------------------------------------------------------------------------------- the command

FILE = """pipeline: shop
streams:
  orders:
    schema: time bigint, n bigint
    time: time
    time_unit: s
    from: {files: {path: logs/*.ndjson}}
queries:
  total: SELECT sum(n) AS total FROM orders [RANGE UNBOUNDED]
outputs:
  copy: {reads: total, to: {parquet: {path: copy}}}
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.ndjson").write_text('{"time": 1, "n": 1}\n{"time": 2, "n": 2}\n{"time": 9, "n": 0}\n')
    (tmp_path / "pipeline.yaml").write_text(FILE)
    return tmp_path


def test_the_command_runs_until_idle_with_sources_and_outputs(files: Path, hayase_: Command) -> None:
    done = hayase_("run", "--in-process", "--until-idle", "--plain")
    assert done.code == 0, done
    assert "starting Spark" not in done.out + done.err
    opened = hy.open(files / "shop")
    assert opened.query("total").at() == [{"total": 3}]
    assert list((files / "copy").rglob("*.parquet")), "the output was written"
    assert not (files / "shop" / "logs" / "spark.log").exists()
    wrong = hayase_("run", "--in-process", "--master", "local[1]")
    assert wrong.code == 2
    assert "a run in this process has no Spark master" in wrong.err


def test_a_run_serves_and_reads_its_sources_as_they_grow(files: Path) -> None:
    p = hy.Pipeline.from_file(files / "pipeline.yaml")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with p:
        p.start(spark=False, serve=address)
        (files / "logs" / "b.ndjson").write_text('{"time": 10, "n": 4}\n{"time": 12, "n": 0}\n')
        for _, sign, row in p.query("total").tail():
            if (sign, row["total"]) == ("+", 7):
                break
        answer = httpx.get(f"http://{address}/queries/total").json()
        assert answer["rows"][-1] == {"total": 7}
