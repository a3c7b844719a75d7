"""`hayase plan`: what a change would do is what `hayase apply` then does, and planning leaves no trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import Answer, answer
from hayase.engine.definition import definitions
from hayase.engine.home import Home
from hayase.streams.durable import without_syncs

PIPELINE: dict[str, Any] = {
    "pipeline": "shop",
    "home": "./home",
    "streams": {
        "orders": {"schema": "time timestamp, id string, user string, amount double", "time": "time", "id": "id"},
        "clicks": {"schema": "time timestamp, user string", "time": "time"},
    },
    "queries": {
        "large": "select user, amount from orders where amount > 1",
        "spend": "select user, sum(amount) as total from orders group by user",
        "ranks": "select max(total) as most from spend",
    },
    "tables": {
        "purchases": {"key": "user", "columns": {"total": "Counter"}},
        "notes": {"key": "user", "columns": {"text": "Register"}},
    },
    "operations": {"scores": {"reads": "orders", "function": "scoring:score", "schema": "score double"}},
    "rules": {"source": "orders", "branches": [{"tables": {"purchases": {"key": ".user", "columns": {"total": ".amount"}}}}]},
}  # fmt: skip
SCORE = "def score(records):\n    return {'score': records[0]['amount'] * %s}\n"


class Shop:
    """A directory with a pipeline file, and commands about it."""

    def __init__(self, path: Path, capture: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
        self.path, self._capture, self._monkeypatch = path, capture, monkeypatch
        self.home = Home(path / "home")
        (path / "scoring.py").write_text(SCORE % 1)
        self.write()

    def write(self, **sections: Any) -> None:
        """Write the file, with some of its sections changed. JSON is YAML."""
        merged = {
            name: {key: value for key, value in {**before, **sections[name]}.items() if value is not None}
            if isinstance(before, dict) and name in sections
            else before
            for name, before in PIPELINE.items()
        }
        (self.path / "pipeline.yaml").write_text(json.dumps(merged))

    def run(self, *args: object) -> Answer:
        return answer(self._capture, self._monkeypatch, *args)

    def plan(self) -> dict[str, str]:
        """What becomes of everything, by name."""
        found = self.run("plan", "--json")
        assert found.code == 0, found.err
        return {f"{each['kind']} {each['name']}": each["fate"] for each in json.loads(found.out)["changes"]}

    def applied(self) -> Answer:
        return self.run("apply")


@pytest.fixture(autouse=True)
def _on_a_disk_that_is_thrown_away() -> Iterator[None]:
    with without_syncs():
        yield


@pytest.fixture
def shop(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    made = Shop(tmp_path, capsys, monkeypatch)
    assert made.applied().code == 0
    return made


EVERYTHING = {
    "stream orders", "stream clicks", "query large", "query spend", "query ranks", "table purchases", "table notes",
    "operation scores",
}  # fmt: skip


def test_before_there_is_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fresh = Shop(tmp_path, capsys, monkeypatch)
    assert fresh.plan() == dict.fromkeys(EVERYTHING, "added")
    assert not fresh.home.path.exists()
    assert "would make this version 1" in fresh.run("plan").out


def test_nothing(shop: Shop) -> None:
    assert shop.plan() == dict.fromkeys(EVERYTHING, "kept")
    assert "nothing would change: pipeline.yaml is version 1 of shop" in shop.run("plan").out
    assert "nothing has changed" in shop.applied().out


def test_every_fate(shop: Shop) -> None:
    (shop.path / "scoring.py").write_text(SCORE % 2)
    shop.write(
        streams={
            "orders": {"schema": "time timestamp, id string, user string, amount double, note string", "time": "time", "id": "id"},
            "clicks": None,
            "visits": {"schema": "time timestamp, user string", "time": "time"},
        },
        queries={"large": "select user, amount from orders where amount > 2", "ranks": None, "few": "select user from orders"},
        tables={"notes": {"key": "user", "columns": {"text": "Register", "more": "Register"}}},
    )  # fmt: skip
    expected = {
        "stream orders": "changed in place", "stream clicks": "removed", "stream visits": "added",
        "query large": "changed in place", "query ranks": "removed", "query few": "added", "query spend": "kept",
        "table purchases": "kept",
        "table notes": "changed in place", "operation scores": "changed in place",
    }  # fmt: skip
    before = sorted(shop.home.path.rglob("*"))
    assert shop.plan() == expected
    assert sorted(shop.home.path.rglob("*")) == before, "a plan leaves nothing behind"
    assert "`hayase apply pipeline.yaml` would make this version 2" in shop.run("plan").out
    told = shop.applied().out
    assert "pipeline.yaml is now version 2 of shop; the next run begins with it" in told
    for name, fate in expected.items():
        kind, _, called = name.partition(" ")
        assert any(line.split()[:2] == [called, kind] and fate in line for line in told.splitlines()), name


def test_what_must_be_rebuilt_comes_with_the_command(shop: Shop) -> None:
    shop.write(queries={"spend": "select user, sum(amount) as total from orders where amount > 0 group by user"})
    planned = shop.run("plan", "--json")
    assert planned.code == 1, "so that CI stops"
    found = json.loads(planned.out)
    assert found["possible"] is False
    [rebuilt] = [each for each in found["changes"] if each["fate"] == "rebuilt"]
    assert (rebuilt["name"], rebuilt["note"]) == (
        "spend", "needs `hayase apply --beside`, or `hayase reset spend --from earliest` (or `--from now`); ranks with it",
    )  # fmt: skip
    refused = shop.run("plan")
    assert refused.code == 1
    assert "this change is refused" in refused.out
    assert shop.applied().code == 1
    assert shop.run("reset", "spend", "--from", "earliest").code == 0
    assert set(shop.plan().values()) == {"kept"}


def test_a_stream_that_does_not_fit_its_records(shop: Shop) -> None:
    shop.write(streams={"clicks": {"schema": "time timestamp, user bigint", "time": "time"}})
    found = json.loads(shop.run("plan", "--json").out)
    [refused] = [each for each in found["changes"] if each["fate"] == "refused"]
    assert refused["name"] == "clicks"
    assert 'column "user" is' in refused["note"]


def test_what_commands_have_changed(shop: Shop) -> None:
    (shop.path / "fix.py").write_text(SCORE % 3)
    shop.run("ops", "update", "scores", "--from-file", "fix.py")
    assert shop.plan()["change by command scores"] == "kept"
    assert "hayase ops history scores" in shop.run("plan").out
    (shop.path / "scoring.py").write_text(SCORE % 4)
    found = shop.plan()
    assert (found["change by command scores"], found["operation scores"]) == ("removed", "changed in place")
    assert definitions.latest_version(shop.home) == 2


def test_a_file_with_mistakes(shop: Shop) -> None:
    shop.write(queries={"large": "select usr from orders"})
    found = shop.run("plan")
    assert found.code == 1
    assert "usr" in found.err
    (shop.path / "scoring.py").write_text("def score(:")
    shop.write()
    assert "is not valid Python" in shop.run("plan").err


def test_of_another_home(shop: Shop) -> None:
    found = shop.run("plan", "pipeline.yaml", "--home", shop.path / "other")
    assert found.out.count("added") == len(EVERYTHING)
