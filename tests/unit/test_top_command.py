"""`hayase top` shows a pipeline that another process runs, or that nobody runs, from the files of its home."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from command_line import Command
from hayase.cli import top
from hayase.pipeline import Pipeline
from hayase.streams.durable import without_syncs
from library_stand_ins import replace_in

PIPELINE = """
pipeline: shop
home: home
streams:
  orders: {schema: "time timestamp, user string, amount double", time: time}
queries:
  spend: select user, sum(amount) as total from orders group by user
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    """A pipeline that has run, and has one more record to read."""
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    with without_syncs():
        pipeline = Pipeline.from_file(tmp_path / "pipeline.yaml")
        pipeline.append("orders", [order(at) for at in range(5)])
        pipeline.run_until_idle(spark=False)
        pipeline.append("orders", [order(9)])
        yield pipeline


def order(second: int) -> dict[str, object]:
    return {"time": f"2026-01-01T00:00:0{second}Z", "user": "taro", "amount": second}


def looks(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> None:
    """Between two looks take the next step; after the last one, Ctrl-C."""
    left = iter(steps)

    def wait(seconds: float) -> None:
        step = next(left, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    replace_in(monkeypatch, top, "time", sleep=wait)


def test_a_pipeline_that_does_not_run(hayase_: Command, shop: Pipeline) -> None:
    done = hayase_("top", "--once")
    assert done.code == 0, done.err
    state, stage = done.out.splitlines()
    assert state.startswith("shop: not running; its last batch was committed at 20")
    assert "lag orders:1, " in stage
    assert "read 5," in stage


def test_one_that_another_process_runs(hayase_: Command, shop: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    with shop.home.lock():
        holder = shop.home.holder()
        assert holder is not None
        assert holder.process == str(os.getpid())
        looks(monkeypatch, lambda: None, lambda: None)
        assert hayase_("top", "pipeline.yaml", "--once").out.startswith("shop: running\n")
        assert hayase_("top", "--home", "home", "--once").out.startswith("shop: running\n")
    assert shop.home.holder() is None


def test_it_goes_on_when_the_pipeline_starts(hayase_: Command, shop: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = shop.home.lock()
    monkeypatch.setattr("hayase.console.display.EVERY", 0.0)
    looks(
        monkeypatch, lock.__enter__, lambda: lock.__exit__(None, None, None), lambda: shop.run_until_idle(spark=False)
    )
    done = hayase_("top")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert "not running" in lines[0]
    assert "shop: running" in lines
    assert "lag orders:0, " in lines[-1]


def test_before_the_first_batch(hayase_: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    assert hayase_("top", "--once").out == "shop: not running, and nothing was committed yet\n"
    assert hayase_("top", "--home", "elsewhere", "--once").code == 0  # the file says what it is
    (tmp_path / "pipeline.yaml").unlink()
    assert "there is no pipeline.yaml here" in hayase_("top").err


def test_on_a_terminal(hayase_: Command, shop: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "output", lambda: Console(force_terminal=True, color_system=None, width=100))
    shown = hayase_("top", "--once").out
    assert "shop  not running; its last batch was committed at" in shown
    assert " up " not in shown
    assert "`hayase run` starts it; Ctrl-C ends this view" in shown
    with shop.home.lock():
        looks(monkeypatch, lambda: None)
        shown = hayase_("top", "--once").out
        assert f"process {os.getpid()} runs it; Ctrl-C ends this view only" in shown
        assert "1 behind" in shown
        assert " up " in shown
