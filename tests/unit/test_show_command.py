"""`hayase show`: one relation of a home, in its order, now, as of a time, with lifetimes, or as it changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from asked_shop import order, shop_in
from command_line import Command
from hayase.cli import show, stream_tail
from hayase.cli.answer_output import Form
from hayase.pipeline import Pipeline
from hayase.streams.durable import without_syncs
from library_stand_ins import replace_in


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    """A pipeline that has run, in whose directory commands run."""
    monkeypatch.chdir(tmp_path)
    with without_syncs():
        yield shop_in(tmp_path)


class TestRows:
    def test_a_query_in_its_order(self, hayase_: Command, shop: Pipeline) -> None:
        shown = hayase_("show", "top")
        assert shown.rows == shop.query("top").at()
        assert [row["total"] for row in shown.rows] == [9.0, 7.0, 5.0]

    def test_by_its_home(
        self, hayase_: Command, shop: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.chdir("/")
        assert hayase_("show", "top", "--home", tmp_path / "home").rows == shop.query("top").at()
        assert hayase_("show", "top", "-p", tmp_path / "pipeline.yaml").rows == shop.query("top").at()

    def test_as_of_a_time(self, hayase_: Command, shop: Pipeline) -> None:
        at = "2026-01-01T00:00:03Z"
        for option in ("--at", "--as-of"):
            assert hayase_("show", "spend", option, at).rows == shop.query("spend").at(at)
        assert hayase_("show", "spend", "--at", "complete").rows == shop.query("spend").at()
        late = hayase_("show", "spend", "--at", "2026-01-02T00:00Z")
        assert (late.code, late.out) == (1, "")
        assert '"spend" is final up to' in late.err
        assert "is not a time" in hayase_("show", "spend", "--at", "noon").err

    def test_lifetimes(self, hayase_: Command, shop: Pipeline) -> None:
        rows = hayase_("show", "spend", "--history").rows
        assert [(row["user"], row["total"]) for row in rows] == [
            (row["user"], row["total"]) for row, _, _ in shop.query("spend").intervals()
        ]
        assert list(rows[0]) == ["user", "total", "valid_from", "valid_to"]
        refused = hayase_("show", "orders", "--history")
        assert refused.code == 1
        assert '"orders" has no lifetimes' in refused.err

    def test_a_table_by_key(self, hayase_: Command, shop: Pipeline) -> None:
        rows = hayase_("show", "purchases").rows
        assert [(row["user"], row["total"]) for row in rows] == [("hana", 12.0), ("mei", 7.0), ("taro", 9.0)]
        assert [row["user"] for row in hayase_("show", "purchases", "--limit", 2).rows] == ["hana", "mei"]

    def test_the_last_records_of_a_stream(self, hayase_: Command, shop: Pipeline) -> None:
        every = hayase_("show", "orders").rows
        assert [row["offset"] for row in every] == list(range(8))
        for limit in (0, 1, 3, 8, 100):
            assert hayase_("show", "orders", "--limit", limit).rows == every[max(0, 8 - limit) :]
        early = hayase_("show", "orders", "--at", "2026-01-01T00:00:03Z", "--limit", 2).rows
        assert [row["offset"] for row in early] == [2, 3]

    def test_dead_letters_by_both_names(self, hayase_: Command, shop: Pipeline) -> None:
        [letter] = hayase_("show", "dead_letters").rows
        assert "a lot" in letter["record"]
        assert hayase_("show", "_dead").rows == [letter]

    def test_figures(self, hayase_: Command, shop: Pipeline) -> None:
        stages = {row["stage"]: row["read"] for row in hayase_("show", "hayase.stages").rows}
        assert stages["spend"] == 8

    def test_an_unknown_one(self, hayase_: Command, shop: Pipeline) -> None:
        done = hayase_("show", "spent")
        assert (done.code, done.out) == (1, "")
        assert 'unknown relation "spent"; did you mean "spend"?' in done.err

    def test_before_there_is_anything(self, hayase_: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert "there is no pipeline.yaml here" in hayase_("show", "spend").err
        assert 'there is no directory "nowhere"' in hayase_("show", "spend", "--home", "nowhere").err
        (tmp_path / "empty").mkdir()
        assert hayase_("show", "spend", "--home", "empty").code == 1
        (tmp_path / "pipeline.yaml").write_text("pipeline: shop\nstreams: {s: {schema: time timestamp, time: time}}\n")
        assert "does not exist yet; `hayase run` creates it" in hayase_("show", "s").err


class TestForms:
    def test_files(self, hayase_: Command, shop: Pipeline, tmp_path: Path) -> None:
        assert hayase_("show", "top", "-o", "top.parquet").out == ""
        assert pq.read_table(tmp_path / "top.parquet").to_pylist() == shop.query("top").at()
        hayase_("show", "top", "-o", "top.csv")
        assert (tmp_path / "top.csv").read_text().splitlines()[0] == '"user","total"'

    def test_a_table_of_text(self, hayase_: Command, shop: Pipeline) -> None:
        shown = hayase_("show", "top", "--format", "table", "--limit", 2)
        assert shown.out.splitlines() == ["user  total", "----  -----", "taro    9.0", "mei     7.0"]
        assert "… and more" in shown.err

    def test_a_terminal_gets_so_many_rows(
        self, shop: Pipeline, hayase_: Command, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(show, "ON_TERMINAL", 1)
        monkeypatch.setattr(show, "chosen_form", lambda chosen, output: Form.TABLE)
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        shown = hayase_("show", "top")
        assert len(shown.out.splitlines()) == 3

    def test_nothing(self, hayase_: Command, shop: Pipeline) -> None:
        assert hayase_("show", "large", "--at", "2026-01-01T00:00:00Z", "--format", "table").err == "no rows in large\n"


class TestFollowing:
    def test_a_query_begins_with_its_rows(
        self, hayase_: Command, shop: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = shop.query("spend").at()
        steps = iter([lambda: shop.append("orders", [order(30, "taro", 1)]), lambda: shop.run_until_idle(spark=False)])

        def wait(seconds: float) -> None:
            step = next(steps, None)
            if step is None:
                raise KeyboardInterrupt
            step()

        replace_in(monkeypatch, stream_tail, "time", sleep=wait)
        followed = hayase_("show", "spend", "--follow")
        assert followed.code == 0
        changes = followed.rows
        assert [{"user": row["user"], "total": row["total"]} for row in changes[: len(rows)]] == rows
        assert {row["change"] for row in changes[: len(rows)]} == {"+"}
        held = {(row["user"], row["total"]) for row in changes[: len(rows)]}
        for row in changes[len(rows) :]:
            change = (row["user"], row["total"])
            held = held | {change} if row["change"] == "+" else held - {change}
        assert held == {(row["user"], row["total"]) for row in shop.query("spend").at()}
        assert len(changes) > len(rows)

    def test_a_stream_ends_with_it(self, hayase_: Command, shop: Pipeline) -> None:
        shop.finish("orders")
        assert [row["id"] for row in hayase_("show", "orders", "-f", "--limit", 2).rows] == ["6", "7"]

    def test_text(self, hayase_: Command, shop: Pipeline) -> None:
        shop.finish("orders")
        shop.run_until_idle(spark=False)
        lines = hayase_("show", "top", "-f", "--format", "table").out.splitlines()
        assert lines[:3] == ["user  total", "----  -----", "hana   12.0"]

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            (("purchases",), 1, '"purchases" cannot be followed: a table has no log of changes'),
            (("hayase.stages",), 1, "cannot be followed"),
            (("spend", "--history"), 2, "--history"),
            (("spend", "-o", "x.csv"), 2, "--output"),
            (("spend", "--format", "csv"), 2, "--format"),
            (("orders", "--at", "2026-01-01T00:00Z"), 2, "followed from its last records"),
        ],
    )
    def test_what_cannot_be_followed(
        self, hayase_: Command, shop: Pipeline, arguments: tuple[str, ...], code: int, message: str
    ) -> None:
        done = hayase_("show", *arguments, "--follow")
        assert done.code == code
        assert message in done.err
