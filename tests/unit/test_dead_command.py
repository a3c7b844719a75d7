"""`hayase dead` and the routes /dead: what they print, ask, refuse and do."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from command_line import Command
from hayase.console.letters_view import group_table, letter_details, letter_list, report_lines
from hayase.core.clock import now_us
from hayase.core.reasons import ReasonKind, reasons_of
from hayase.engine.dead_letters.letters import Letters
from hayase.engine.dead_letters.settlement import Settlement
from hayase.pipeline import Pipeline
from hayase.streams import StreamLog
from hayase.streams.dead_letters import DEAD, dead_table
from hayase.testing import at
from serving_shop import Shop
from serving_shop import shop as served_shop

PIPELINE = """\
pipeline: shop
home: ./home
streams:
  orders:
    schema: time timestamp, user string, amount double
    time: time
queries:
  large: select user, amount from orders where amount > 1
"""


def write(
    home: Path, stage: str, offsets: list[int | None], reasons: list[str], now: int | None = None,
    kind: ReasonKind = ReasonKind.FUNCTION,
) -> None:  # fmt: skip
    moment = now_us() if now is None else now
    texts = [f'{{"amount": {each or 0}}}' for each in offsets]
    rows = dead_table(stage, "v1", "orders", offsets, texts, reasons_of(kind, reasons), 3, moment)
    StreamLog.ensure(home, DEAD).append(rows, now=moment)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a pipeline that has three dead letters of a stage and one of an append."""
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    pipeline = Pipeline.from_file(tmp_path / "pipeline.yaml")
    pipeline.append("orders", [{"time": at(second), "user": "taro", "amount": second} for second in range(4)])
    pipeline.apply()
    home = pipeline.home.path
    write(home, "large", [1, 2], ["ValueError: bad 1\nTraceback: line 5", "ValueError: bad 2"], now=1_000_000)
    write(home, "large", [3], ["late: 1 is before 2"], kind=ReasonKind.LATE)
    pipeline.append("orders", [{"time": at(9), "user": "hana", "amount": "free"}])
    return tmp_path


def letters(place: Path) -> Letters:
    return Letters(place / "home")


def open_numbers(place: Path) -> list[int]:
    return [each.number for each in letters(place).newest().letters][::-1]


class TestLooking:
    def test_list(self, hayase_: Command, shop: Path) -> None:
        rows = hayase_("dead", "list").rows
        assert [each["letter"] for each in rows] == [3, 2, 1, 0]
        assert (rows[0]["stage"], rows[0]["state"], rows[0]["settled_us"]) == ("append", "open", None)
        assert [each["letter"] for each in hayase_("dead", "list", "--limit", 1, "--stage", "large").rows] == [2]
        assert [each["letter"] for each in hayase_("dead", "list", "--since", "1 hour").rows] == [3, 2]
        assert [each["letter"] for each in hayase_("dead", "list", "--until", "2020-01-01").rows] == [1, 0]
        assert [each["letter"] for each in hayase_("dead", "list", "--offsets", "2..3").rows] == [2, 1]
        assert [each["letter"] for each in hayase_("dead", "list", "--offsets", "2", "--version", "v").rows] == [1]
        assert hayase_("dead", "list", "--home", shop / "home", "--reason", "nothing").rows == []

    def test_grouped(self, hayase_: Command, shop: Path) -> None:
        rows = hayase_("dead", "list", "--grouped").rows
        assert (rows[0]["stage"], rows[0]["count"], rows[0]["reason"]) == ("large", 2, "ValueError: bad 2")

    def test_show(self, hayase_: Command, shop: Path) -> None:
        (row,) = hayase_("dead", "show", 0).rows
        assert row["reason"].endswith("line 5")
        assert (row["attempts"], row["version"], row["state"]) == (3, "v1", "open")
        missing = hayase_("dead", "show", 9)
        assert missing.code == 1
        assert 'unknown dead letter "9"; they are numbered 0 to 3' in missing.err

    def test_without_letters_and_without_a_home(
        self, hayase_: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert "there is no pipeline.yaml here" in hayase_("dead", "list").err
        (tmp_path / "pipeline.yaml").write_text(PIPELINE)
        assert hayase_("dead", "list") == (0, "", "")
        assert hayase_("dead", "drop", "--all").rows[0]["settled"] == 0
        assert hayase_("dead", "replay", 5).code == 1
        assert not (tmp_path / "home").exists()

    @pytest.mark.parametrize(
        "wrong",
        [["list", "--since", "soon"], ["list", "--offsets", "5.."], ["replay"], ["drop"], ["drop", "1", "--all"],
         ["replay", "1", "--set", "amount"], ["list", "--limit", "0"]],
    )  # fmt: skip
    def test_wrong_usage(self, hayase_: Command, shop: Path, wrong: list[str]) -> None:
        assert hayase_("dead", *wrong).code == 2

    def test_on_a_terminal(self, shop: Path) -> None:
        found = letters(shop)
        console = Console(file=io.StringIO(), width=100)
        console.print(letter_list(found.newest().letters), letter_details(found.get(0)), group_table(found.groups()))
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert "#0  1970-01-01 00:00:01  large ← orders #1" in text
        assert "Traceback: line 5" in text
        found.replay()
        found.drop()
        told = [letter_details(found.get(number)) for number in (0, 2)]
        console.print(*told, letter_list(found.newest(settled=True).letters))
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert "replayed as" in text
        assert "dropped at" in text

    def test_a_report_in_words(self) -> None:
        report = Settlement(settled=3, appended=1, unchanged=2, before=1, refusals=[(n, "why") for n in range(11)])
        report.left["a reason"] = 1
        assert list(report_lines(report, "replayed"))[:5] == [
            "replayed 3 letters, 1 of them by an append to a stream",
            "  2 letters for a stage that is as it was when it refused the record, and may again",
            "  1 letter had been settled before",
            "  1 letter left open: a reason",
            "    #0: why",
        ]


class TestSettling:
    def test_replay_one(self, hayase_: Command, shop: Path) -> None:
        done = hayase_("dead", "replay", 0)
        assert done.rows[0]["settled"] == 1
        assert "stages take them when it runs next" in done.err
        assert open_numbers(shop) == [1, 2, 3]
        again = hayase_("dead", "replay", 0)
        assert (again.code, again.rows[0]["before"]) == (0, 1)

    def test_more_than_one_is_asked_for(self, hayase_: Command, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        refused = hayase_("dead", "replay", "--stage", "large")
        assert refused.code == 1
        assert "this would replay 2 letters; say that you mean it with --yes" in refused.err
        terminal = io.StringIO("n\n")
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdin", terminal)
        assert hayase_("dead", "drop", "--stage", "large").code == 1
        assert len(open_numbers(shop)) == 4
        terminal = io.StringIO("y\n")
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdin", terminal)
        asked = hayase_("dead", "replay", "--stage", "large")
        assert "this will replay 2 letters" in asked.err
        assert asked.rows[0]["settled"] == 2

    def test_late_ones_only_if_that_is_said(self, hayase_: Command, shop: Path) -> None:
        left = hayase_("dead", "replay", 2)
        assert left.code == 1
        assert left.rows[0]["late"] == 1
        assert "--late" in left.rows[0]["left"][0]["reason"]
        assert hayase_("dead", "replay", 2, "--late").rows[0]["settled"] == 1

    def test_edits(self, hayase_: Command, shop: Path) -> None:
        tried = hayase_("dead", "replay", 3, "--set", "amout=5")
        assert tried.code == 1
        assert 'did you mean "amount"' in tried.rows[0]["refusals"][0]["reason"]
        planned = hayase_("dead", "replay", 3, "--edit", ".amount = 1", "--set", "amount=7.5", "--dry-run")
        assert (planned.rows[0]["settled"], len(open_numbers(shop))) == (1, 4)
        done = hayase_("dead", "replay", 3, "--edit", ".amount = 1", "--set", "amount=7.5", "--set", "user=5")
        assert done.rows[0]["appended"] == 1
        row = Pipeline.from_file("pipeline.yaml").results("orders").rows()[-1]
        assert (row["amount"], row["user"]) == (7.5, "5")
        assert hayase_("dead", "show", 3).rows[0]["appended"] == 4
        assert "jq" in hayase_("dead", "replay", 0, "--edit", ".amount +").err

    def test_drop(self, hayase_: Command, shop: Path) -> None:
        assert hayase_("dead", "drop", "--reason", "valueerror", "--dry-run").rows[0]["settled"] == 2
        assert hayase_("dead", "drop", "--reason", "valueerror", "--limit", 1).rows[0]["settled"] == 1
        assert hayase_("dead", "drop", "--all", "--yes").rows[0]["settled"] == 3
        assert hayase_("dead", "list").rows == []
        assert {each["state"] for each in hayase_("dead", "list", "--all").rows} == {"dropped"}


class TestRoutes:
    @pytest.fixture
    def served(self, tmp_path: Path) -> Iterator[Shop]:
        with served_shop(tmp_path / "shop") as made:
            for amount in ("one", "two"):
                made.http.post(
                    "/streams/orders", json={"time": "2026-01-01T00:00:07Z", "uuid": amount, "amount": amount}
                )
            yield made

    @staticmethod
    def problem(answered: httpx.Response, status: int) -> str:
        assert answered.status_code == status, answered.text
        return str(answered.json()["detail"])

    def test_letters_are_listed_and_shown(self, served: Shop) -> None:
        told = served.get("/dead?stage=append&limit=1").json()
        assert [each["letter"] for each in told["letters"]] == [told["first"]] == [2]
        assert (told["next"], told["older"]) == (3, 2)
        older = served.get(f"/dead?stage=append&before={told['older']}").json()
        assert [each["letter"] for each in older["letters"]] == [1]
        letter = served.get("/dead/2").json()
        assert (letter["state"], letter["settled_at"], letter["stream"]) == ("open", None, "orders")
        assert "numbered 0 to 2" in self.problem(served.get("/dead/3"), 404)
        self.problem(served.get("/dead/x"), 422)
        assert 'did you mean "stage"' in self.problem(served.get("/dead?stag=x"), 422)

    def test_letters_are_replayed_and_dropped(self, served: Shop) -> None:
        asked: dict[str, Any] = {"stage": "append", "edit": ".amount = 5", "set": {"user": "taro"}, "limit": 1}
        assert served.http.post("/dead/replay", json={**asked, "dry_run": True}).json()["appended"] == 1
        done = served.http.post("/dead/replay", json=asked).json()
        assert (done["settled"], done["appended"], done["next"]) == (1, 1, 2)
        assert served.get("/dead/1").json()["appended"] == 5
        assert served.http.post("/dead/drop", json={"letters": [1, 2]}).json() | {"left": 0} == {
            "settled": 1, "appended": 0, "unchanged": 0, "again": 0, "late": 0, "before": 1, "left": 0, "refusals": [],
            "next": None,
        }  # fmt: skip
        assert served.get("/dead").json()["letters"][0]["stage"] == "by_place"
        assert [each["state"] for each in served.get("/dead?settled=true").json()["letters"]] == [
            "open", "replayed", "dropped",
        ]  # fmt: skip

    def test_bodies_that_ask_for_nothing(self, served: Shop) -> None:
        all_: dict[str, Any] = {"all": True}
        for body in (
            {}, [], {"limit": 5}, {**all_, "edit": ".a +"}, {**all_, "edit": "\0"}, {**all_, "edit": "\ud800"},
            {"stage": "\ud800"}, {"letters": []}, {"letters": [2**70]}, {"letters": [True]}, {"al": True}, {"all": 1},
            {"since": "soon"}, {"since": 2**80}, {**all_, "limit": 0}, {**all_, "set": 5}, {**all_, "late": None},
        ):  # fmt: skip
            text = json.dumps(body)
            answered = served.http.post("/dead/replay", content=text, headers={"Content-Type": "application/json"})
            self.problem(answered, 422)

    def test_odd_edits_leave_letters_open(self, served: Shop) -> None:
        body = b'{"stage": "append", "set": {"user": "\\ud800", "amount": 1}}'
        answered = served.http.post("/dead/replay", content=body, headers={"Content-Type": "application/json"})
        assert answered.json()["settled"] == 0
        assert len(answered.json()["refusals"]) == 2
        assert "Content-Type" in self.problem(served.http.post("/dead/drop", content=b"{}"), 415)
        elsewhere = served.http.post("/dead/drop", json={"all": True}, headers={"Origin": "http://evil.example"})
        self.problem(elsewhere, 403)

    def test_a_token_is_asked_for(self, tmp_path: Path) -> None:
        with served_shop(tmp_path / "shop", token="secret-of-the-shop") as made:
            self.problem(made.http.post("/dead/drop", json={"all": True}), 401)
            assert made.http.post(
                "/dead/drop", json={"all": True}, headers={"Authorization": "Bearer secret-of-the-shop"}
            ).json()["settled"] == 1  # fmt: skip
