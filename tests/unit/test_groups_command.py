"""`hayase groups`: what the commands print, refuse and write, over a pipeline with streams, tables and jobs."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import hayase as hy
import hayase.cli.groups
from command_line import Command
from hayase.console.groups_view import group_list
from hayase.pipeline import Pipeline

PIPELINE = """\
pipeline: shop
home: ./home
streams:
  orders:
    schema: time timestamp, id string, user string, amount double
    time: time
    id: id
  tuples:
    schema: time timestamp, key string, value string
    time: time
queries:
  spend: select user, sum(amount) as total from orders group by user
tables:
  spending: {key: user, columns: {total: Counter, last: Register}}
  blocklist: {key: ip, columns: {reason: Register}}
  places: {key: [country, number], columns: {count: Counter}}
rules:
  source: orders
  branches:
    - tables: {spending: {key: .user, columns: {total: .amount, last: .id}}}
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a pipeline that has seen some orders, in which commands run."""
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    pipeline = Pipeline.from_file(tmp_path / "pipeline.yaml")
    orders = [
        {"time": f"2026-01-01T00:00:{at:02d}Z", "id": f"o{at}", "user": ("taro", "hana")[at % 2], "amount": at}
        for at in range(6)
    ]
    pipeline.append("orders", orders)
    tuples = [{"time": "2026-01-01T00:00:00Z", "key": f"k{at % 3}", "value": f"{at}"} for at in range(30)]
    pipeline.append("tuples", tuples)
    pipeline.run_until_idle(spark=False)
    return tmp_path


class TestList:
    def test_streams_with_what_waits_and_tables_with_what_they_hold(self, hayase_: Command, shop: Path) -> None:
        pipeline = Pipeline.from_file(shop / "pipeline.yaml")
        pipeline.append("orders", [{"time": "2026-01-01T00:01:00Z", "id": "x", "user": "taro", "amount": 1}])
        found = {each["name"]: each for each in hayase_("groups", "list").rows}
        assert set(found) == {"orders", "tuples", "spend", "spending", "blocklist", "places"}
        assert found["orders"]["kind"] == "stream"
        assert found["orders"]["records"] == 7
        assert found["orders"]["waiting"] == {"spend": 1, "spending": 1}
        assert found["spending"]["kind"] == "table"
        assert found["spending"]["rows_about"] == 2
        assert found["spending"]["bytes"] > 0
        assert found["blocklist"]["rows_about"] == 0
        assert found["spending"]["read_by"] == found["spending"]["written_by"] == []

    def test_the_jobs_that_read_and_write_them(
        self, hayase_: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pipeline = hy.Pipeline("jobs", tmp_path / "home")
        pipeline.stream("logs", "time timestamp, line string", time="time")
        pipeline.table("blocklist", "ip", reason=hy.Register())
        job = pipeline.job("alerts", reads="logs")
        job.map("alerting:parse", writes="requests", also=("blocklist",))
        job.merge("blocklist", "alerting:meet", reads=("requests",))
        monkeypatch.setattr(hayase.cli.groups, "locate", lambda *_: pipeline)
        found = {each["name"]: each for each in hayase_("groups", "list").rows}
        assert {name: (each["written_by"], each["read_by"]) for name, each in found.items()} == {
            "logs": ([], ["alerts"]),
            "alerts": (["alerts"], []),
            "requests": (["alerts"], ["alerts"]),
            "blocklist": (["alerts"], ["alerts"]),
        }
        assert found["requests"]["records"] == 0

    def test_on_a_terminal(self) -> None:
        stream = {"name": "orders", "kind": "stream", "records": 7000, "bytes": 5, "waiting": {"spend": 3, "other": 0}}
        table = {"name": "blocklist", "kind": "table", "rows_about": 12, "bytes": 5}
        jobs: dict[str, Any] = {"written_by": ["alerts"], "read_by": []}
        console = Console(width=140, record=True, file=io.StringIO())
        console.print(group_list([{**stream, **jobs}, {**table, **jobs}]))
        text = console.export_text()
        for part in ("7,000", "3 for spend", "about 12", "alerts", "blocklist"):
            assert part in text
        assert "other" not in text


class TestLoad:
    def test_a_file_whose_key_is_called_otherwise(self, hayase_: Command, shop: Path) -> None:
        Path("blocked.csv").write_text("address,reason\n10.0.0.1,spam\n10.0.0.2,\n")
        said = hayase_("groups", "load", "blocklist", "blocked.csv", "--key", "ip=address")
        assert (said.code, said.out) == (0, "loaded 2 rows into blocklist\n")
        assert hayase_("groups", "get", "blocklist", "10.0.0.1").rows == [{"ip": "10.0.0.1", "reason": "spam"}]
        assert hayase_("groups", "get", "blocklist", "10.0.0.2").rows == [{"ip": "10.0.0.2", "reason": None}]

    def test_rows_that_do_not_fit_and_others(self, hayase_: Command, shop: Path) -> None:
        rows = [{"country": "jp", "number": 1, "count": 2, "note": "x"}, {"country": None, "number": 1, "count": 2}]
        Path("places.ndjson").write_text("\n".join(map(json.dumps, rows)))
        said = hayase_("groups", "load", "places", "places.ndjson")
        assert said.code == 1
        assert 'takes no column "note"' in said.err
        assert "--ignore-others" in said.err
        said = hayase_("groups", "load", "places", "places.ndjson", "--ignore-others")
        assert said.out == "loaded 1 row into places (1 refused: see `hayase dead list`)\n"
        (letter,) = hayase_("streams", "tail", "_dead").rows
        assert (letter["stage"], letter["stream"]) == ("load", "places")
        assert hayase_("groups", "get", "places", '"jp"', "1", "--json-key").rows[0]["count"] == 2

    def test_the_results_of_a_query(self, hayase_: Command, shop: Path) -> None:
        Pipeline.from_file(shop / "pipeline.yaml").finish("orders")
        Pipeline.from_file(shop / "pipeline.yaml").run_until_idle(spark=False)
        assert hayase_("groups", "load", "spending", "--query", "spend").out == "loaded 2 rows into spending\n"
        assert hayase_("groups", "get", "spending", "taro").rows == [{"user": "taro", "total": 12, "last": "o4"}]
        said = hayase_("groups", "load", "spending", "--query", "spent")
        assert said.code == 1
        assert 'did you mean "spend"' in said.err

    def test_times_and_types(self, hayase_: Command, shop: Path) -> None:
        Path("rows.csv").write_text("user,last,at\n007,1,2026-01-01T00:00:00Z\n")
        said = hayase_("groups", "load", "spending", "rows.csv", "--time", "at", "--schema", "user string, last string")
        assert said.code == 0, said.err
        row = {"user": "007", "total": 0, "last": "1"}
        assert hayase_("groups", "get", "spending", "007").rows == [row]
        assert hayase_("tables", "get", "spending", "007", "--as-of", "2025-12-31T00:00:00Z").code == 1

    def test_what_cannot_be(self, hayase_: Command, shop: Path) -> None:
        assert hayase_("groups", "load", "spending").code == 2
        assert hayase_("groups", "load", "spending", "a.csv", "--query", "spend").code == 2
        assert hayase_("groups", "load", "spending", "a.csv", "--key", "user").code == 2
        assert hayase_("groups", "load", "spending", "--query", "spend", "--schema", "a int").code == 2
        assert "there is no file" in hayase_("groups", "load", "spending", "a.csv").err
        assert "did you mean" in hayase_("groups", "load", "spendin", "a.csv").err
        Path("a.csv").write_text("user\na\n")
        with Pipeline.from_file(shop / "pipeline.yaml").home.lock():
            said = hayase_("groups", "load", "spending", "a.csv")
        assert said.code == 1
        assert "stop that one first" in said.err


class TestGet:
    def test_the_newest_tuples_of_a_stream(self, hayase_: Command, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hayase.cli.groups, "TOGETHER", 4)
        found = hayase_("groups", "get", "tuples", "k1", "-n", 3).rows
        assert [each["value"] for each in found] == ["22", "25", "28"]
        assert len(hayase_("groups", "get", "tuples", "k1", "-n", 100).rows) == 10
        said = hayase_("groups", "get", "tuples", "k9")
        assert said.code == 1
        assert "of the last 30" in said.err
        monkeypatch.setattr(hayase.cli.groups, "LOOKED_AT", 5)
        assert [each["value"] for each in hayase_("groups", "get", "tuples", "k1").rows] == ["25", "28"]

    def test_tuples_of_a_job_are_json(self, hayase_: Command, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pipeline = Pipeline.from_file(shop / "pipeline.yaml")
        rows = [('"a"', "1"), ("5", "[2]"), ('["a",5]', '{"x":3}')]
        pipeline.append("tuples", [{"time": "2026-01-02T00:00:00Z", "key": key, "value": value} for key, value in rows])
        pipeline.declaration = hy.Pipeline("shop", pipeline.home.path).declaration
        monkeypatch.setattr(hayase.cli.groups, "locate", lambda *_: pipeline)
        assert hayase_("groups", "get", "tuples", "a").rows[0]["value"] == 1
        assert hayase_("groups", "get", "tuples", "5").code == 1
        assert hayase_("groups", "get", "tuples", "5", "--json-key").rows[0]["value"] == [2]
        (found,) = hayase_("groups", "get", "tuples", '"a"', "5", "--json-key").rows
        assert (found["key"], found["value"]) == (["a", 5], {"x": 3})
        assert "is not a key" in hayase_("groups", "get", "tuples", "a", "--json-key").err

    def test_what_cannot_be(self, hayase_: Command, shop: Path) -> None:
        assert "have no key and value" in hayase_("groups", "get", "orders", "taro").err
        assert "has no row" in hayase_("groups", "get", "spending", "nobody").err
        said = hayase_("groups", "get", "spendin", "taro")
        assert said.code == 1
        assert 'unknown group "spendin"; did you mean "spending"' in said.err


class TestExport:
    def test_tables_and_streams(self, hayase_: Command, shop: Path) -> None:
        assert hayase_("groups", "export", "spending", "s.ndjson").out == "wrote 2 rows of spending to s.ndjson\n"
        rows = [json.loads(line) for line in Path("s.ndjson").read_text().splitlines()]
        assert rows == [{"user": "hana", "total": 9, "last": "o5"}, {"user": "taro", "total": 6, "last": "o4"}]
        assert "wrote 30 records" in hayase_("groups", "export", "tuples", "t.csv").out
        assert "unknown group" in hayase_("groups", "export", "nothing", "t.csv").err

    @pytest.mark.parametrize("name", ["s.ndjson", "s.parquet", "s.csv"])
    def test_what_was_exported_can_be_loaded(self, hayase_: Command, shop: Path, name: str) -> None:
        hayase_("groups", "export", "spending", name)
        assert hayase_("groups", "load", "spending", name).out == "loaded 2 rows into spending\n"
        assert hayase_("groups", "get", "spending", "taro").rows == [{"user": "taro", "total": 12, "last": "o4"}]
