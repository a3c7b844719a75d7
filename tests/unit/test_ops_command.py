"""`hayase ops` and the routes to operations: the same changes, from a terminal and over HTTP."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from command_line import Command
from hayase.core.access import Access
from hayase.engine.definition import definitions
from hayase.engine.home import Home
from hayase.pipeline import Pipeline
from hayase.serving import Status, serving
from hayase.streams.durable import without_syncs

PIPELINE = """\
pipeline: shop
home: ./home
streams:
  orders:
    schema: time timestamp, user string, amount double
    time: time
operations:
  scores: {reads: orders, function: "scoring:score", attempts: 2}
"""
SCORE = "def score(records):\n    return {'user': records[0]['user'], 'score': records[0]['amount'] * %s}\n"
TOKEN = "a-token-of-some-length"


@pytest.fixture(autouse=True)
def _on_a_disk_that_is_thrown_away() -> Iterator[None]:
    with without_syncs():
        yield


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a pipeline that was applied, in which commands run."""
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "scoring.py").write_text(SCORE % 1)
    (tmp_path / "fix.py").write_text(SCORE % 2)
    monkeypatch.chdir(tmp_path)
    pipeline = Pipeline.from_file(tmp_path / "pipeline.yaml")
    orders = [{"time": f"2026-01-01T00:00:{at:02d}Z", "user": "taro", "amount": at} for at in range(6)]
    pipeline.append("orders", orders)
    pipeline.apply()
    return tmp_path


class TestCommands:
    def test_from_adding_to_taking_back(self, hayase_: Command, shop: Path) -> None:
        told = hayase_("ops", "add", "twice", "--reads", "orders", "--function", "fix:score", "--window", "2")
        assert told.out == "twice is added: version 2 of shop, which takes effect when the pipeline runs next\n"
        assert hayase_("ops", "update", "scores", "--from-file", "fix.py").code == 0
        with Home(shop / "home").lock():
            told = hayase_("ops", "update", "twice", "--time-limit", "5 s", "--key", "user")
        assert "hayase reset twice" in told.err, "windows per user hold something else"
        with Home(shop / "home").lock():
            told = hayase_("ops", "update", "twice", "--time-limit", "5 s")
        assert told.out == "twice is changed: version 4 of shop, which takes effect at the next batch\n"
        rows = {each["name"]: each for each in hayase_("ops", "list").rows}
        assert [(name, each["version"], each["by"]) for name, each in rows.items()] == [
            ("scores", 3, "command"), ("twice", 4, "command"),
        ]  # fmt: skip
        assert rows["twice"]["operation"] == {
            "reads": "orders", "function": "fix:score", "window": 2, "schema": "`user` string, score double", "time_limit": "5 s",
        }  # fmt: skip
        assert hayase_("ops", "rollback", "scores").out.startswith("scores is rolled back: version 5")
        history = hayase_("ops", "history", "scores").rows
        assert [(each["version"], each["by"], each["changed"]) for each in history] == [
            (1, "file", ["added"]), (3, "command", ["function", "code"]), (5, "file", ["function", "code"]),
        ]  # fmt: skip
        assert hayase_("ops", "remove", "twice").out.startswith("twice is removed: version 6")
        assert [each["name"] for each in hayase_("ops", "list", "--home", shop / "home").rows] == ["scores"]
        assert hayase_("ops", "rollback", "twice", "--to", "2").code == 0
        [shown] = hayase_("ops", "show", "twice").rows
        assert (shown["operation"].get("time_limit"), shown["files"]) == (None, ["fix.py"])

    def test_a_function_of_a_file_is_called_as_before_or_like_the_operation(self, hayase_: Command, shop: Path) -> None:
        (shop / "more.py").write_text((SCORE % 3).replace("score(", "more("))
        assert hayase_("ops", "add", "more", "--reads", "orders", "--from-file", "more.py").code == 0
        assert hayase_("ops", "update", "scores", "--from-file", "more.py", "--function", "more").code == 0
        assert [each["operation"]["function"] for each in hayase_("ops", "list").rows] == ["more:more", "more:more"]
        assert hayase_("ops", "update", "more", "--function", f"{shop}/fix.py:score").code == 0

    def test_what_is_wrong_is_told(self, hayase_: Command, shop: Path) -> None:
        (shop / "broken.py").write_text("def score(records):\n    return records[0]['usr']\n")
        told = hayase_("ops", "update", "scores", "--from-file", "broken.py")
        assert told.code == 1
        assert "KeyError: 'usr' in score, line 2" in told.err
        assert hayase_("ops", "update", "scores").code == 2, "nothing is given"
        assert "ends in .py" in hayase_("ops", "update", "scores", "--from-file", "notes.txt").err.replace("\n", " ")
        assert 'did you mean "scores"' in hayase_("ops", "show", "score").err
        assert "reads" in hayase_("ops", "add", "more", "--function", "fix:score").err
        assert definitions.latest_version(Home(shop / "home")) == 1

    def test_a_change_is_tried_first(self, hayase_: Command, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        told = hayase_("ops", "try", "scores", "--from-file", "fix.py", "--windows", "2")
        assert [(row["results"], row["failure"]) for row in told.rows] == [
            ([{"user": "taro", "score": 10.0}], None), ([{"user": "taro", "score": 8.0}], None),
        ]  # fmt: skip
        (shop / "broken.py").write_text("def score(records):\n    return records[0]['usr']\n")
        told = hayase_("ops", "try", "scores", "--from-file", "broken.py")
        assert (told.code, {row["failure"]["reason"] for row in told.rows}) == (1, {"KeyError: 'usr'"})
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", "200")
        assert (
            "2 windows tried, 0 failed: an update would pass" in hayase_("ops", "try", "scores", "--windows", "2").out
        )
        told = hayase_("ops", "try", "scores", "--from-file", "broken.py")
        assert "failed: KeyError: 'usr' in score, line 2" in told.out
        assert "6 windows tried, 6 failed: an update would be refused" in told.out
        assert definitions.latest_version(Home(shop / "home")) == 1

    def test_on_a_screen(self, hayase_: Command, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        hayase_(
            "ops",
            "add",
            "twice",
            "--reads",
            "orders",
            "--function",
            "fix:score",
            "--window",
            "1 minute",
            "--key",
            "user",
        )
        hayase_("ops", "remove", "scores")
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", "200")
        listed = hayase_("ops", "list").out
        assert "1 minute, per user" in listed
        assert "changed by command" in listed
        assert "removed by command: scores" in listed
        assert "removed" in hayase_("ops", "history", "scores").out
        assert "fix.py" in hayase_("ops", "show", "twice").out


@contextlib.contextmanager
def served(shop: Path, token: str | None = TOKEN) -> Iterator[httpx.Client]:
    with serving(Home(shop / "home"), "127.0.0.1:0", status=Status("running"), access=Access(token)) as server:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=server.url, trust_env=False, headers=headers) as client:
            yield client


class TestRoutes:
    def test_from_adding_to_taking_back(self, shop: Path) -> None:
        with served(shop) as http:
            body = {"name": "twice", "reads": "orders", "function": "score", "source": SCORE % 2, "window": 2}
            made = http.post("/operations", json=body)
            assert made.json() == {"name": "twice", "version": 2, "takes_effect": "at the next batch"}
            assert http.patch("/operations/twice", json={"source": SCORE % 3}).json()["version"] == 3
            assert http.patch("/operations/twice", json={"attempts": 1, "time_limit": "2 s"}).json()["version"] == 4
            told = http.get("/operations").json()["operations"]
            assert [(each["name"], each["by"], each["in_effect"]) for each in told] == [
                ("scores", "file", False), ("twice", "command", False),
            ]  # fmt: skip
            assert http.post("/operations/twice/rollback", json={"to": 2}).json()["version"] == 5
            found = http.get("/operations/twice").json()
            assert found["operation"]["function"] == "operation_twice:score"
            assert [each["version"] for each in found["history"]] == [2, 3, 4, 5]
            assert http.delete("/operations/twice").json()["version"] == 6
            assert http.get("/operations/twice").json()["operation"] is None

    def test_code_comes_only_with_a_token(self, shop: Path) -> None:
        with served(shop, None) as http:
            assert http.get("/operations").status_code == 200
            asked: list[tuple[str, str, Any]] = [
                ("POST", "/operations", {"name": "x", "reads": "orders", "function": "f", "source": SCORE % 2}),
                ("PATCH", "/operations/scores", {"attempts": 1}),
                ("DELETE", "/operations/scores", None),
                ("POST", "/operations/scores/rollback", {}),
            ]
            for method, path, body in asked:
                refused = http.request(method, path, json=body)
                assert refused.status_code == 403
                assert "only with a token" in refused.json()["detail"]
        assert definitions.latest_version(Home(shop / "home")) == 1

    @pytest.mark.parametrize(
        ("body", "status", "told"),
        [
            ({"source": "def score(records): 1 / 0"}, 422, "ZeroDivisionError"),
            ({"source": "def score(records):\n  return {'mark': 1}"}, 422, "another name"),
            ({"source": "def other(records): ..."}, 422, 'has no "score"'),
            ({"function": "/etc/secrets.py:f"}, 422, "cannot come from a file of the server"),
            ({"source": "x", "function": "a.b:f"}, 422, "the name of a function in it"),
            ({"attempts": "many"}, 422, "attempts"),
            ({"atempts": 3}, 422, "atempts"),
            ({"window": 2}, 409, "hayase reset scores"),
            ([], 422, "body"),
        ],
    )
    def test_what_is_not_taken(self, shop: Path, body: object, status: int, told: str) -> None:
        with served(shop) as http:
            answer = http.patch("/operations/scores", json=body)
            assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
            assert told in answer.json()["detail"]
            assert http.patch("/operations/score", json={"attempts": 1}).status_code == 404
        assert definitions.latest_version(Home(shop / "home")) == 1

    def test_bodies_are_bounded(self, shop: Path) -> None:
        with served(shop) as http:
            long = json.dumps({"source": "#" * (1 << 20)})
            headers = {"Content-Type": "application/json"}
            assert http.patch("/operations/scores", content=long, headers=headers).status_code == 413
            chunks = (long[at : at + 65536].encode() for at in range(0, len(long), 65536))
            assert http.patch("/operations/scores", content=chunks, headers=headers).status_code == 413
            assert http.patch("/operations/scores", content=b"x=1").status_code == 415
