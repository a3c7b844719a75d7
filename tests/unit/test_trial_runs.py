"""Trial runs of operations: what a change would give for the newest records, window by window; and the code of every version."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hayase.core.access import Access
from hayase.core.errors import DeclarationError
from hayase.engine.definition.operation_trials import trials_within
from hayase.engine.definition.trial_runs import MOST_WINDOWS, try_update
from hayase.engine.home import Home
from hayase.pipeline import Pipeline
from hayase.serving import Status, models, serving
from hayase.streams.durable import without_syncs

TOKEN = "a-token-of-some-length"
SCORE = "def score(records):\n    return {'user': records[0]['user'], 'score': records[0]['amount'] * %s}\n"
FAULTY = """
import os, time

def score(records):
    amount = records[0]['amount']
    if amount == 3:
        raise ValueError('three')
    if amount == 4:
        os._exit(7)
    if amount == 5:
        time.sleep(3600)
    return {'user': 'x', 'score': amount} if amount else {'user': 'x', 'score': 'none'}
"""
ORDERS = [{"time": f"2026-01-01T00:00:{at:02d}Z", "user": "taro", "amount": at} for at in range(12)]


@pytest.fixture(autouse=True)
def _on_a_disk_that_is_thrown_away() -> Iterator[None]:
    with without_syncs():
        yield


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A directory with a pipeline that was applied, and some orders."""
    (tmp_path / "pipeline.yaml").write_text(
        "pipeline: shop\nhome: ./home\n"
        'streams:\n  orders: {schema: "time timestamp, user string, amount double", time: time}\n'
        'operations:\n  scores: {reads: orders, function: "scoring:score", time_limit: 300 ms}\n'
        '  sums: {reads: orders, function: "scoring:score", window: 5}\n'
        '  minutes: {reads: orders, function: "scoring:score", window: 1 minute}\n'
    )
    (tmp_path / "scoring.py").write_text(SCORE % 1)
    pipeline = Pipeline.from_file(tmp_path / "pipeline.yaml")
    pipeline.append("orders", ORDERS)
    pipeline.apply()
    return tmp_path


def source(path: Path, text: str) -> str:
    (path / "changed.py").write_text(text)
    return str(path)


def everything(home: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file() and path.name != "lock"}


class TestRuns:
    def test_every_window_has_its_results_or_how_it_failed(self, shop: Path, tmp_path: Path) -> None:
        before = everything(shop / "home")
        run = try_update(Home(shop / "home"), "scores", {"function": "changed:score"}, source(tmp_path, FAULTY))
        told = {
            window.records.to_pylist()[0]["amount"]: window.failure.kind
            if window.failure
            else window.results.to_pylist()
            for window in run.windows
        }
        assert told == {
            0: "unfit", 3: "raised", 4: "exited", 5: "time",
            **{at: [{"user": "x", "score": float(at)}] for at in (1, 2, 6, 7, 8, 9, 10, 11)},
        }  # fmt: skip
        raised = next(window.failure for window in run.windows if window.failure and window.failure.kind == "raised")
        assert raised.reason == "ValueError: three"
        assert "line 7" in raised.traceback
        assert (run.failed, run.untried, run.passes) == (4, 0, True)
        assert everything(shop / "home") == before, "nothing is written"

    def test_as_it_is_with_another_option(self, shop: Path) -> None:
        run = try_update(Home(shop / "home"), "scores", {"attempts": 1}, windows=5)
        assert [window.results.to_pylist()[0]["score"] for window in run.windows] == [7.0, 8.0, 9.0, 10.0, 11.0]
        assert run.passes

    @pytest.mark.parametrize(("name", "sizes"), [("sums", [5, 5]), ("minutes", [12])])
    def test_windows_of_several_records(self, shop: Path, name: str, sizes: list[int]) -> None:
        run = try_update(Home(shop / "home"), name, {"attempts": 1}, windows=3)
        assert [window.records.num_rows for window in run.windows] == sizes

    def test_a_change_that_would_be_refused(self, shop: Path, tmp_path: Path) -> None:
        bad = source(tmp_path, "def score(records):\n    return {'mark': 1}\n")
        run = try_update(Home(shop / "home"), "scores", {"function": "changed:score"}, bad)
        assert (run.failed, run.passes) == (12, False)
        anew = try_update(Home(shop / "home"), "scores", {"function": "changed:score"}, bad, anew=True)
        assert (anew.failed, anew.passes, anew.schema) == (0, True, "mark bigint")

    def test_what_cannot_be_loaded(self, shop: Path, tmp_path: Path) -> None:
        home = Home(shop / "home")
        with pytest.raises(DeclarationError, match="is not valid Python"):
            try_update(home, "scores", {"function": "changed:score"}, source(tmp_path, "def score(:"))
        with pytest.raises(DeclarationError, match="ZeroDivisionError"):
            try_update(home, "scores", {"function": "changed:score"}, source(tmp_path, "1 / 0\ndef score(r): ..."))
        with pytest.raises(DeclarationError, match='cannot read the stream "other"'):
            try_update(home, "scores", {"reads": "other"})
        with pytest.raises(DeclarationError, match="cannot read any stream"):
            try_update(home, "scores", {"reads": "z*"})
        with pytest.raises(DeclarationError, match="no pipeline was declared"):
            try_update(Home(tmp_path / "none"), "scores", {})

    def test_when_the_time_is_over_windows_stay_untried(self, shop: Path, tmp_path: Path) -> None:
        slow = source(tmp_path, "import time\ndef score(records):\n    time.sleep(3600)\n")
        with trials_within(2.0):
            run = try_update(Home(shop / "home"), "scores", {"function": "changed:score", "time_limit": "1 h"}, slow)
        assert (len(run.windows), run.untried) == (0, 12)

    def test_without_records_there_is_nothing_to_try(self, tmp_path: Path) -> None:
        (tmp_path / "scoring.py").write_text(SCORE % 1)
        pipeline = Pipeline("shop", home=tmp_path / "home")
        pipeline.stream("orders", schema="time timestamp, user string, amount double", time="time")
        pipeline.operation(
            f"{tmp_path / 'scoring.py'}:score", reads="orders", writes="scores", schema="user string, score double"
        )
        pipeline.apply()
        run = try_update(Home(tmp_path / "home"), "scores", {"attempts": 1})
        assert (run.windows, run.untried, run.passes) == ((), 0, True)


@contextlib.contextmanager
def served(shop: Path, token: str | None = TOKEN) -> Iterator[httpx.Client]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with (
        serving(Home(shop / "home"), "127.0.0.1:0", status=Status("running"), access=Access(token)) as server,
        httpx.Client(base_url=server.url, trust_env=False, headers=headers, timeout=60) as client,
    ):
        yield client


class TestRoutes:
    def test_a_trial_over_http(self, shop: Path) -> None:
        with served(shop) as http:
            told = http.post("/operations/scores/trial", json={"source": FAULTY, "windows": 12}).json()
            assert models.TrialAnswer.model_validate(told).model_dump(by_alias=True) == told
            assert (told["tried"], told["failed"], told["untried"], told["passes"]) == (12, 4, 0, True)
            newest = told["windows"][0]
            assert newest["records"] == [{"time": "2026-01-01T00:00:11Z", "user": "taro", "amount": 11.0}]
            assert newest["results"] == [{"user": "x", "score": 11.0}]
            reasons = [window["failure"]["reason"] for window in told["windows"] if window["failure"]]
            assert reasons[2] == "ValueError: three in score, line 7"
            assert http.get("/operations/scores").json()["version"] == 1

    def test_an_answer_is_bounded(self, shop: Path) -> None:
        many = "def score(records):\n    return [{'user': 'x' * 1000, 'score': n} for n in range(2000)]\n"
        with served(shop) as http:
            told = http.post("/operations/scores/trial", json={"source": many, "windows": 3}).json()
            assert [(len(each["results"]), each["more_results"]) for each in told["windows"]] == [(20, 1980)] * 3
            huge = "def score(records):\n    return {'user': 'x' * 3_000_000, 'score': 1.0}\n"
            told = http.post("/operations/scores/trial", json={"source": huge, "windows": 4}).json()
            assert [len(each["results"]) for each in told["windows"]] == [1, 1, 0, 0]
            assert [each["more_results"] for each in told["windows"]] == [0, 0, 1, 1]

    @pytest.mark.parametrize(
        ("body", "status", "told"),
        [
            ({"source": "def score("}, 422, "is not valid Python"),
            ({"source": SCORE % 1, "windows": MOST_WINDOWS + 1}, 422, "windows"),
            ({"source": SCORE % 1, "windows": 0}, 422, "windows"),
            ({"function": "/etc/secrets.py:f"}, 422, "cannot come from a file of the server"),
            ({"nothing": 1}, 422, "nothing"),
            ({"source": "#" * (1 << 20)}, 413, "longer"),
        ],
    )
    def test_what_is_not_tried(self, shop: Path, body: Any, status: int, told: str) -> None:
        with served(shop) as http:
            answer = http.post("/operations/scores/trial", json=body)
            assert answer.status_code == status
            assert told in answer.json()["detail"]
            assert http.post("/operations/score/trial", json={}).status_code == 404

    def test_code_runs_only_with_a_token(self, shop: Path) -> None:
        with served(shop, None) as http:
            refused = http.post("/operations/scores/trial", json={"source": SCORE % 1})
            assert refused.status_code == 403
            assert "only with a token" in refused.json()["detail"]
            assert http.get("/operations/scores/versions/1").status_code == 200

    def test_every_version_with_its_code(self, shop: Path) -> None:
        with served(shop) as http:
            assert http.patch("/operations/scores", json={"source": SCORE % 2}).json()["version"] == 2
            assert http.delete("/operations/sums").json()["version"] == 3
            told = http.get("/operations/scores/versions/1").json()
            assert models.OperationSources.model_validate(told).model_dump() == told
            assert told["files"] == [{"path": "scoring.py", "text": SCORE % 1}]
            told = http.get("/operations/scores/versions/3").json()
            assert (told["version"], told["changed"]) == (2, ["function", "code"])
            assert told["files"] == [{"path": "operation_scores.py", "text": SCORE % 2}]
            assert http.get("/operations/sums/versions/3").json()["files"] == []
            added = {"name": "late", "reads": "orders", "function": "score", "source": SCORE % 3}
            assert http.post("/operations", json=added).json()["version"] == 4
            assert http.get("/operations/late/versions/3").status_code == 404
            assert http.get("/operations/scores/versions/0").status_code == 422

    def test_the_code_of_an_installed_module(self, tmp_path: Path) -> None:
        from hayase.demo import scoring

        pipeline = Pipeline("shop", home=tmp_path / "home")
        pipeline.stream(
            "orders", schema="time timestamp, uuid string, user_id string, type string, item string, amount bigint",
            time="time",
        )  # fmt: skip
        schema = "uuid string, user_id string, score int"
        pipeline.operation(scoring.score, reads="orders", writes="scores", schema=schema)
        pipeline.apply()
        with served(tmp_path) as http:
            [file] = http.get("/operations/scores/versions/1").json()["files"]
            assert file == {"path": "hayase/demo/scoring.py", "text": Path(scoring.__file__).read_text()}
