"""What `hayase init` writes, and that every template runs as written: its answers are what plain Python makes of its data."""

from __future__ import annotations

import csv
import json
import re
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from command_line import Answer, Command
from hayase.cli.templates import TEMPLATES, template
from hayase.core.errors import UnknownName
from hayase.core.pipeline_file import read_pipeline
from hayase.core.times import instant
from hayase.pipeline import Pipeline

Rows: TypeAlias = list[dict[str, Any]]


@pytest.fixture
def begun(
    request: pytest.FixtureRequest, hayase_: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A directory with the template that the test names, in which commands run."""
    done = hayase_("init", tmp_path / "new", "--template", request.param)
    assert done.code == 0, done.err
    monkeypatch.chdir(tmp_path / "new")
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path / "new"
    for module in ("access", "scoring"):  # templates have modules of the same name
        sys.modules.pop(module, None)


def of(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("begun", [name], indirect=True)


def tried(command: Command) -> tuple[Pipeline, dict[str, Answer]]:
    """The pipeline after all that the template's README shows, and what each command said last; Spark is left out."""
    pipeline, said = Pipeline.from_file("pipeline.yaml"), {}
    for block in re.findall(r"```sh\n(.*?)```", Path("README.md").read_text(), re.DOTALL):
        for line in block.splitlines():
            for step in line.split("&&"):
                words = shlex.split(step, comments=True)
                if words[:2] == ["hayase", "run"]:
                    pipeline.run_until_idle(spark=False)
                    continue
                done = said[" ".join(words[1:])] = command(*words[1:])
                assert (words[0], done.code) == ("hayase", 0), done
    return pipeline, said


def lines(file: str) -> Rows:
    return [json.loads(line) for line in Path(file).read_text().splitlines()]


def blocked() -> dict[str, str]:
    with Path("blocklist.csv").open(newline="") as file:
        return {row["address"]: row["reason"] for row in csv.DictReader(file)}


def tail(command: Command, stream: str) -> Rows:
    done = command("streams", "tail", stream, "-n", 1000)
    assert done.code == 0, done.err
    return done.rows


class TestInit:
    def test_all_templates_are_listed_with_what_they_show(self, hayase_: Command, tmp_path: Path) -> None:
        done = hayase_("init", "--list")
        assert [line.split(maxsplit=1) for line in done.out.splitlines()] == [list(each) for each in TEMPLATES.items()]
        assert list(TEMPLATES) == ["queries", "tables", "jobs", "operations", "all"]

    def test_nothing_is_overwritten_and_what_is_in_the_way_is_named(self, hayase_: Command, tmp_path: Path) -> None:
        (tmp_path / "access.py").write_text("mine")
        (tmp_path / "README.md").write_text("mine too")
        done = hayase_("init", tmp_path, "-t", "jobs")
        assert (done.code, done.out) == (1, "")
        assert done.err == f'error: "{tmp_path}" already has README.md, access.py; choose another directory\n'
        assert sorted(each.name for each in tmp_path.iterdir()) == ["README.md", "access.py"]

    def test_files_of_other_names_are_left_in_peace(self, hayase_: Command, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("mine")
        assert hayase_("init", tmp_path).code == 0
        assert (tmp_path / "notes.txt").read_text() == "mine"

    def test_without_a_directory_it_asks_for_one(self, hayase_: Command) -> None:
        assert hayase_("init").code == 2

    def test_an_unknown_template_is_refused(self, hayase_: Command, tmp_path: Path) -> None:
        assert 'unknown template "table"; did you mean "tables"?' in hayase_("init", tmp_path / "a", "-t", "table").err
        assert not (tmp_path / "a").exists()
        with pytest.raises(UnknownName, match='unknown template "tabels"; did you mean "tables"'):
            template("tabels")

    @pytest.mark.parametrize("name", TEMPLATES)
    def test_files_are_complete_and_what_is_kept_stays_out_of_git(self, name: str) -> None:
        files = template(name)
        assert {".gitignore", "README.md", "pipeline.yaml"} < set(files)
        assert files[".gitignore"].splitlines()[-1] == "/home/"
        for line in files["README.md"].splitlines():
            if line.startswith("hayase append"):
                assert line.split()[3] in files

    @pytest.mark.parametrize("name", TEMPLATES)
    def test_what_it_says_to_try_is_what_the_readme_shows(self, hayase_: Command, tmp_path: Path, name: str) -> None:
        done = hayase_("init", tmp_path / "new", "-t", name)
        said = [line.strip() for line in done.out.partition("now try:")[2].splitlines() if line.strip()]
        assert said[:2] == [f"cd {tmp_path / 'new'}", "hayase check"]
        shown = template(name)["README.md"].replace(" pipeline.yaml", "")
        assert [step for step in said[2:] if step not in shown] == []


@of("queries")
def test_queries(begun: Path, hayase_: Command) -> None:
    rows = lines("events.ndjson")
    events = read_pipeline(Path("pipeline.yaml")).declaration.stream("events")
    assert all(list(row) == events.arrow_schema.names for row in rows)
    assert len({row["uuid"] for row in rows}) == len(rows) == 24
    broken = [row for row in rows if isinstance(row["amount"], str)]
    late, latest = [], 0
    for row in rows:
        time = instant(row["time"])
        late += [row] if time < latest - events.slack else []
        latest = max(latest, time)
    assert ([row["uuid"] for row in broken], [row["uuid"] for row in late]) == (["e12"], ["e17"])

    pipeline, said = tried(hayase_)
    assert said["append events events.ndjson"].out.startswith("appended 23 records to events (1 refused: see `hayase ")
    taken = [row for row in rows if row not in broken]
    assert [(row["user_id"], row["amount"]) for row in tail(hayase_, "large")] == [
        (row["user_id"], row["amount"]) for row in taken if (row["amount"] or 0) > 100
    ]
    spent: dict[str, list[float]] = defaultdict(list)
    for row in taken:
        if row["type"] == "purchase" and row not in late:
            spent[row["user_id"]].append(row["amount"])
    found = {row["user_id"]: (row["orders"], row["spend"]) for row in pipeline.query("totals").at()}
    assert found == {user: (len(each), pytest.approx(sum(each))) for user, each in spent.items()}
    assert len(tail(hayase_, "_dead")) == 2


@of("tables")
def test_tables(begun: Path, hayase_: Command) -> None:
    rows = lines("events.ndjson")
    once = {row["uuid"]: row for row in rows}.values()
    times = [row["time"] for row in rows]
    assert (len(rows), len(once)) == (30, 29)
    assert times != sorted(times)
    _, said = tried(hayase_)  # appends all of them twice
    assert hayase_("streams", "show", "events").rows[0]["records"] == 60
    assert hayase_("tables", "scan", "purchases").rows == purchases(once) == said["show purchases"].rows
    assert hayase_("tables", "scan", "items").rows == items(once)
    midnight = "2026-01-31T00:00:00Z"
    (was,) = [row for row in purchases([row for row in once if row["time"] <= midnight]) if row["user_id"] == "hana"]
    assert said[f"tables get purchases hana --as-of {midnight}"].rows == [was]
    assert was not in purchases(once)
    (rule,) = [each for command, each in said.items() if command.startswith("rules try")]
    assert len(rule.rows[0]["payloads"]) == 5
    assert tail(hayase_, "_dead") == []


def purchases(events: Any) -> Rows:
    made: dict[str, dict[str, Any]] = {}
    for row in sorted(events, key=lambda row: row["time"]):
        if row["type"] == "purchase":
            empty = {"user_id": row["user_id"], "total": 0, "last_purchase_time": None, "by_day": defaultdict(float)}
            one = made.setdefault(row["user_id"], empty)
            one["total"] += row["amount"]
            one["last_purchase_time"] = row["time"]
            one["by_day"][row["time"][:10]] += row["amount"]
    return [made[user] for user in sorted(made)]


def items(events: Any) -> Rows:
    made: dict[str, dict[str, Any]] = {}
    for row in events:
        one = made.setdefault(row["item"], {"item": row["item"], "sold": 0, "seen": 0, "buyers": set()})
        one["sold"] += row["type"] == "purchase"
        one["seen"] += row["type"] == "view"
        one["buyers"] |= {row["user_id"]} if row["type"] == "purchase" else set()
    return [{**made[item], "buyers": sorted(made[item]["buyers"])} for item in sorted(made)]


@of("jobs")
def test_jobs(begun: Path, hayase_: Command) -> None:
    rows = lines("logs.ndjson")
    _, said = tried(hayase_)
    assert said["groups load blocklist blocklist.csv"].out == "loaded 3 rows into blocklist\n"
    assert said["append logs logs.ndjson"].out == "appended 36 records to logs\n"
    sizes: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        if len(parts := row["request"].split(" ")) == 3:
            sizes[parts[1].partition("?")[0]].append(row["size"])
    assert {row["path"]: (row["hits"], row["bytes"]) for row in tail(hayase_, "traffic")} == {
        path: (len(each), sum(each)) for path, each in sizes.items()
    }
    assert alerts(tail(hayase_, "alerts")) == expected_alerts(rows)
    (letter,) = tail(hayase_, "_dead")
    assert letter["reason"].splitlines()[-1].startswith("ValueError: not enough values")


def alerts(found: Rows) -> dict[str, Any]:
    return {json.loads(row["key"]): json.loads(row["value"]) for row in found}


def expected_alerts(rows: Rows) -> dict[str, Any]:
    reasons, found = blocked(), [row["address"] for row in rows]
    return {
        address: {"reason": reasons[address], "requests": found.count(address)}
        for address in reasons
        if address in found
    }


def scores(orders: Rows) -> Rows:
    return [
        {"id": row["id"], "user": row["user"], "score": row["amount"] / row["items"]} for row in orders if row["items"]
    ]


def by_id(rows: Rows) -> Rows:
    """What an operation gave, without times; orders of one batch come in any order."""
    return sorted(({name: row[name] for name in ("id", "user", "score")} for row in rows), key=lambda row: row["id"])


@of("operations")
def test_operations(begun: Path, hayase_: Command) -> None:
    orders = lines("orders.ndjson")
    tried(hayase_)
    assert by_id(tail(hayase_, "scores")) == scores(orders)
    assert by_id(tail(hayase_, "suspicious")) == [row for row in scores(orders) if row["score"] >= 10]
    by_user: dict[str, Rows] = defaultdict(list)
    expected = []
    for row in orders:
        by_user[row["user"]].append(row)
        if len(window := by_user[row["user"]]) == 3:
            mean = sum(each["amount"] for each in window) / 3
            expected.append({"user": row["user"], "orders": 3, "mean": pytest.approx(mean)})
            window.clear()
    found = [{name: row[name] for name in ("user", "orders", "mean")} for row in tail(hayase_, "habits")]
    assert len(found) > 5
    assert sorted(found, key=lambda row: row["user"]) == sorted(expected, key=lambda row: row["user"])
    (letter,) = tail(hayase_, "_dead")
    assert "ZeroDivisionError" in letter["reason"]


@of("all")
def test_all(begun: Path, hayase_: Command) -> None:
    orders, logs = lines("orders.ndjson"), lines("logs.ndjson")
    pipeline, _ = tried(hayase_)

    expired = False
    last = max(datetime.fromisoformat(row["time"]) for row in orders) - timedelta(seconds=10)
    moment, step = datetime(2026, 1, 31, 12, tzinfo=UTC), timedelta(seconds=47)
    while (moment := moment + step) < last:
        rich = spree(orders, moment)
        assert {row["user"]: (row["orders"], row["spend"]) for row in pipeline.query("spree").at(moment)} == rich
        assert {row["window"]: row["revenue"] for row in pipeline.query("revenue").at(moment)} == revenue(
            orders, moment
        )
        expired = expired or not rich.keys() >= spree(orders, moment - step).keys()
    assert expired

    made = by_id(tail(hayase_, "scores"))
    assert made == scores(orders)
    assert by_id(tail(hayase_, "suspicious")) == [row for row in made if row["score"] >= 10]

    table: dict[str, dict[str, Any]] = {}
    for row in orders:
        if row["items"]:
            one = table.setdefault(row["user"], {"user": row["user"], "total": 0.0})
            one["total"] += row["amount"]
            one |= {"last": row["time"], "by_day": {"2026-01-31": one["total"]}}
    assert hayase_("tables", "scan", "purchases").rows == [table[user] for user in sorted(table)]

    requests = [row for row in logs if len(row["request"].split(" ")) == 3]
    assert alerts(tail(hayase_, "alerts")) == expected_alerts(requests)
    dead = {letter["stage"]: letter["reason"] for letter in tail(hayase_, "_dead")}
    assert sorted(dead) == ["alerts", "scores"]
    assert "ZeroDivisionError" in dead["scores"]


def revenue(orders: Rows, moment: datetime) -> dict[int, Any]:
    """The sums over the newest 5, 10 and 20 orders, after every fifth one up to a moment."""
    amounts = [row["amount"] for row in orders if datetime.fromisoformat(row["time"]) <= moment]
    end = len(amounts) // 5 * 5
    sums = {size: amounts[max(0, end - size) : end] for size in (5, 10, 20)}
    return {size: pytest.approx(sum(each)) if each else None for size, each in sums.items() if amounts}


def spree(orders: Rows, moment: datetime) -> dict[str, Any]:
    """Who has spent more than 100 in the 10 minutes up to a moment."""
    spent: dict[str, list[float]] = defaultdict(list)
    for row in orders:
        if moment - timedelta(minutes=10) < datetime.fromisoformat(row["time"]) <= moment:
            spent[row["user"]].append(row["amount"])
    return {user: (len(each), pytest.approx(sum(each))) for user, each in spent.items() if sum(each) > 100}
