"""Queries that meet tables, run whole: what a record meets is the table as it was when its batch began."""

from __future__ import annotations

from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import hayase as hy
from command_line import answer
from hayase.engine.local import InProcess

PIPELINE = """
pipeline: shop
streams:
  sales: {schema: "time bigint, id string, user string, amount double", time: time, time_unit: us, id: id}
  visits: {schema: "time bigint, id string, user string, page string", time: time, time_unit: us, id: id}
queries:
  known: select v.user, v.page, t.total, t.pages from visits [Now] as v, totals as t where v.user = t.user
  all_visits: select v.user, t.total from visits [Now] as v left join totals as t on v.user = t.user
tables:
  totals: {key: user, columns: {total: Counter, pages: GSet}}
rules:
  - source: sales
    rules: [{tables: {totals: {key: .user, columns: {total: .amount}}}}]
  - source: visits
    rules: [{when: '.page != "home"', tables: {totals: {key: .user, columns: {pages: .page}}}}]
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> hy.Pipeline:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    return hy.Pipeline.from_file(tmp_path / "pipeline.yaml", tmp_path / "home")


def sale(time: int, user: str, amount: float) -> dict[str, object]:
    return {"time": time, "id": f"s{time}", "user": user, "amount": amount}


def visit(time: int, user: str, page: str) -> dict[str, object]:
    return {"time": time, "id": f"v{time}", "user": user, "page": page}


def test_a_record_meets_what_was_committed_before_its_batch(pipeline: hy.Pipeline) -> None:
    pipeline.append("sales", [sale(1, "taro", 5), sale(2, "taro", 2.5)])
    pipeline.run_until_idle(spark=False)
    pipeline.append("visits", [visit(3, "taro", "shoes"), visit(4, "hana", "home"), visit(5, "taro", "home")])
    pipeline.append("sales", [sale(6, "taro", 100)])
    pipeline.run_until_idle(spark=False)
    pipeline.append("visits", [visit(7, "taro", "end"), visit(8, "taro", "end")])
    for name in ("sales", "visits"):
        pipeline.finish(name)
    pipeline.run_until_idle(spark=False)
    met = [(row["page"], row["total"], row["pages"]) for row, *_ in pipeline.query("known").intervals()]
    assert met == [("shoes", 7.5, []), ("home", 7.5, []), ("end", 107.5, ["shoes"]), ("end", 107.5, ["shoes"])]
    left = [(row["user"], row["total"]) for row, *_ in pipeline.query("all_visits").intervals()]
    assert left == [("taro", 7.5), ("hana", None), ("taro", 7.5), ("taro", 107.5), ("taro", 107.5)]
    assert pipeline.table("totals").get("hana") is None  # a visit to "home" says nothing about her
    assert pipeline.table("totals").get("taro") == {"total": 107.5, "pages": ["end", "shoes"]}
    assert pipeline.dead_letters() == []


def test_a_batch_that_runs_again_meets_the_same_table(pipeline: hy.Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.append("sales", [sale(1, "taro", 5)])
    pipeline.run_until_idle(spark=False)
    pipeline.append("sales", [sale(2, "taro", 5)])
    pipeline.append("visits", [visit(3, "taro", "shoes")])
    for name in ("sales", "visits"):
        pipeline.finish(name)
    with pipeline.home.lock(), closing(InProcess(pipeline.home, lambda: 0)) as runner:
        commit, calls = runner.commits.commit, []

        def once_in_vain(*arguments: object) -> object:
            calls.append(arguments)
            if len(calls) == 1:
                raise OSError("the disk is full")
            return commit(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(runner.commits, "commit", once_in_vain)
        with pytest.raises(OSError, match="full"):
            runner.step()
        runner.run_until_idle()
    rows = [row["total"] for row, *_ in pipeline.query("known").intervals()]
    assert (rows, pipeline.table("totals").get("taro", columns=["total"])) == ([5.0], {"total": 10})


@pytest.mark.usefixtures("pipeline")
def test_explain_shows_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = answer(capsys, monkeypatch, "explain", tmp_path / "pipeline.yaml", "known")
    assert (told.code, told.err) == (0, "")
    assert "table totals" in told.out


@pytest.mark.parametrize("join", [", a where s.k = a.k", "left join a on s.k = a.k"])
def test_a_record_that_meets_a_number_which_is_no_double_is_refused(tmp_path: Path, join: str) -> None:
    pipeline = hy.Pipeline("large", home=tmp_path)
    pipeline.stream("s", "ts bigint, k string", "ts", time_unit="s")
    pipeline.table("a", key="k", c="Counter", m="MapCounter", text="Register")
    pipeline.query("number", f"select a.c from s [Now] {join}")
    pipeline.query("field", f"select a.m['f'] as c from s [Now] {join}")
    pipeline.query("text", f"select a.text from s [Now] {join}")  # reads no number
    pipeline.query("keys", f"select s.k from s [Now] {join}")  # reads no column
    numbers = {
        "odd": 2**53 + 1,
        "huge": 10**399,
        "tiny": Decimal("1e-390"),
        "even": 2**70,
        "long": Decimal("0." + "1" * 30),
    }
    pipeline.table("a").load([{"k": k, "c": c, "m": {"f": c}, "text": k} for k, c in numbers.items()])
    keys = ["even", "odd", "long", "huge", "odd", "tiny", "other"]
    pipeline.append("s", [{"ts": at, "k": k} for at, k in enumerate(keys)])
    pipeline.finish("s")
    pipeline.run_until_idle(spark=False)
    unknown: list[Any] = [None] if join.startswith("left") else []
    wanted = [2.0**70, float("0." + "1" * 30), *unknown]  # a number with a point means the nearest double
    for name in ("number", "field"):
        assert [row["c"] for row, *_ in pipeline.query(name).intervals()] == wanted
        refused = [each for each in pipeline.dead_letters() if each["stage"] == name]
        assert [each["offset"] for each in refused] == [1, 3, 4, 5]
        assert all("which no double holds" in each["reason"] for each in refused)
    assert [row["text"] for row, *_ in pipeline.query("text").intervals()] == [*keys[:-1], *unknown]
    assert len(pipeline.query("keys").intervals()) == len(keys[:-1] + unknown)
