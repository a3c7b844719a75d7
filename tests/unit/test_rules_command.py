"""`hayase rules try`: what it says an event would do, for rules alone and for a pipeline."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from command_line import Answer, Command, answer
from hayase.console.rules_view import json_text, trial_view
from hayase.tables import TYPES

RULES = """\
source: shop
branches:
  - condition: '.type == "purchase"'
    tables:
      - tableName: spending
        ops:
          - {key: .user, columnName: total, method: incr, paramJq: .amount}
          - {key: .user, columnName: items, paramJq: '.items[]'}
  - when: .type == "view"
    tables: {views: {key: [.user, .page], columns: {count: 1}}}
"""
PIPELINE = """\
pipeline: shop
streams:
  shop:
    schema: time timestamp, id string, type string, user string, amount double, items array<string>, page bigint
    time: time
    id: id
tables:
  spending:
    key: user
    columns: {total: Counter, items: GSet}
  views:
    key: [user, page]
    columns: {count: Counter}
rules: rules.yaml
"""
EVENT = {"time": "2026-01-01T00:00:01Z", "id": "e1", "type": "purchase", "user": "taro", "amount": 2.5,
         "items": ["tea", "rice"]}  # fmt: skip


@pytest.fixture
def hayase_(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Runs the command line beside a file of rules and the pipeline that names it."""
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)

    def command(*args: object) -> Answer:
        return answer(capsys, monkeypatch, *args)

    return command


def event(**changed: object) -> str:
    return json.dumps({key: value for key, value in {**EVENT, **changed}.items() if value is not ...})


def tried(command: Command, *args: object) -> dict[str, Any]:
    (row,) = command("rules", "try", *args).rows
    return row


class TestRulesAlone:
    def test_payloads_and_branches(self, hayase_: Command) -> None:
        row = tried(hayase_, "rules.yaml", "--event", event())
        assert row["source"] == "shop"
        assert [(each["condition"], each["concerns"], each["tables"]) for each in row["branches"]] == [
            ('.type == "purchase"', True, ["spending"]),
            ('.type == "view"', False, ["views"]),
        ]
        assert row["payloads"] == [
            {"table": "spending", "key": ["taro"], "column": "total", "method": "incr", "parameter": 2.5},
            {"table": "spending", "key": ["taro"], "column": "items", "method": None, "parameter": "tea"},
            {"table": "spending", "key": ["taro"], "column": "items", "method": None, "parameter": "rice"},
        ]
        assert row["refusals"] == []

    def test_an_event_of_no_concern(self, hayase_: Command) -> None:
        done = hayase_("rules", "try", "rules.yaml", "--event", '{"type": "other"}')
        assert done.code == 0
        assert done.rows[0]["payloads"] == []

    def test_what_is_refused_is_named_and_the_rest_stands(self, hayase_: Command) -> None:
        done = hayase_("rules", "try", "rules.yaml", "--event", event(items=7))
        assert done.code == 1
        (row,) = done.rows
        assert [each["column"] for each in row["payloads"]] == ["total"]
        assert row["refusals"] == [
            {"rule": "update 2 (spending.items)", "program": ".items[]", "reason": "Cannot iterate over number (7)"}
        ]

    def test_numbers_keep_their_digits(self, hayase_: Command) -> None:
        done = hayase_(
            "rules", "try", "rules.yaml", "--event", '{"type": "view", "user": 12345678901234567890, "page": 0.1}'
        )
        assert '"key":[12345678901234567890,0.1]' in done.out.replace(" ", "")

    def test_what_is_no_json_is_refused(self, hayase_: Command) -> None:
        done = hayase_("rules", "try", "rules.yaml", "--event", "{type: purchase}")
        assert done.code == 1
        assert "it is not JSON" in done.rows[0]["refusals"][0]["reason"]

    def test_many_from_a_file_and_from_a_pipe(
        self, hayase_: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = f"{event()}\n\n{event(type='view', page=3)}\n"
        (tmp_path / "events.ndjson").write_text(text)
        rows = hayase_("rules", "try", "rules.yaml", "--events", "events.ndjson").rows
        assert [(row["event"], [each["table"] for each in row["payloads"]]) for row in rows] == [
            (1, ["spending"] * 3),
            (2, ["views"]),
        ]
        for args in ((), ("--events", "-")):
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
            assert hayase_("rules", "try", "rules.yaml", *args).rows == rows

    def test_mistakes_in_the_rules_have_their_place(self, hayase_: Command, tmp_path: Path) -> None:
        (tmp_path / "rules.yaml").write_text(RULES.replace(".amount", ".amount |"))
        done = hayase_("rules", "try", "rules.yaml", "--event", event())
        assert done.code == 1
        assert done.err.startswith("rules.yaml:7:")

    def test_wrong_usage(self, hayase_: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        assert hayase_("rules", "try", "rules.yaml", "--event", "{}", "--events", "-").code == 2
        assert (
            "no.yaml: there is no such file; check the name" in hayase_("rules", "try", "no.yaml", "--event", "{}").err
        )
        assert '"no.ndjson" cannot be read' in hayase_("rules", "try", "rules.yaml", "--events", "no.ndjson").err
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        assert hayase_("rules", "try", "rules.yaml").code == 2


class TestPipeline:
    def test_payloads_have_versions_and_deltas(self, hayase_: Command) -> None:
        row = tried(hayase_, "--event", event())
        total, tea, rice = row["payloads"]
        assert total["delta"] == TYPES["Counter"]().payload("incr", 2.5).hex()
        assert total["version"] == {"time_us": 1_767_225_601_000_000, "id": "e1", "operation": 0}
        assert (tea["method"], tea["version"]["operation"]) == ("add", 0)
        assert rice["version"]["operation"] == 65_536

    def test_composite_keys_with_numbers(self, hayase_: Command) -> None:
        row = tried(hayase_, "--event", event(type="view", page=7))
        assert [each["key"] for each in row["payloads"]] == [["taro", 7]]

    @pytest.mark.parametrize(
        ("changed", "reason"),
        [
            ({"amount": "free"}, 'column "amount" must be double, not "free"'),
            ({"time": ...}, "time"),
            ({"id": ...}, "id"),
            ({"user": None}, "the key is null"),
        ],
    )
    def test_what_the_stream_or_a_rule_refuses(self, hayase_: Command, changed: dict[str, Any], reason: str) -> None:
        done = hayase_("rules", "try", "pipeline.yaml", "--event", event(**changed))
        assert done.code == 1
        assert reason in done.rows[0]["refusals"][0]["reason"]
        assert done.rows[0]["payloads"] == []

    def test_what_a_type_refuses(self, hayase_: Command, tmp_path: Path) -> None:
        (tmp_path / "rules.yaml").write_text(RULES.replace("paramJq: .amount", "paramJq: .type"))
        done = hayase_("rules", "try", "--event", event())
        assert done.code == 1
        assert "Counter.incr" in done.rows[0]["refusals"][0]["reason"]
        assert [each["column"] for each in done.rows[0]["payloads"]] == ["items", "items"]

    def test_the_source_is_asked_for_when_there_are_several(self, hayase_: Command, tmp_path: Path) -> None:
        more = "---\nsource: other\nrules: [{tables: {views: {key: [.user, .page], columns: {count: 2}}}}]\n"
        (tmp_path / "rules.yaml").write_text(RULES + more)
        stream = PIPELINE.split("streams:\n")[1].split("tables:")[0].replace("  shop:", "  other:")
        (tmp_path / "pipeline.yaml").write_text(PIPELINE.replace("tables:\n", stream + "tables:\n", 1))
        for file in ("rules.yaml", "pipeline.yaml"):
            assert (
                "shop, other; say whose event it is with --source" in hayase_("rules", "try", file, "--event", "{}").err
            )
            assert 'did you mean "other"?' in hayase_("rules", "try", file, "--source", "othr", "--event", "{}").err
            row = tried(hayase_, file, "--source", "other", "--event", event(page=1))
            assert [(each["table"], each["parameter"]) for each in row["payloads"]] == [("views", 2)]

    def test_a_pipeline_without_rules(self, hayase_: Command, tmp_path: Path) -> None:
        (tmp_path / "pipeline.yaml").write_text(PIPELINE.split("tables:")[0])
        assert '"pipeline.yaml" has no rules' in hayase_("rules", "try", "--event", event()).err


class TestOnScreen:
    def shown(self, trial: dict[str, Any], *, typed: bool) -> str:
        from rich.console import Console

        console = Console(width=200, file=io.StringIO())
        console.print(trial_view(trial, typed=typed))
        text = console.file.getvalue()  # type: ignore[attr-defined]
        return str(text)

    def test_branches_payloads_and_refusals(self, hayase_: Command) -> None:
        text = self.shown(tried(hayase_, "pipeline.yaml", "--event", event(items=None)), typed=True)
        assert '✓ .type == "purchase" → spending' in text
        assert '· .type == "view" → views' in text
        assert "2026-01-01T00:00:01Z e1 0" in text
        assert "✗ update 2 (spending.items), .items[]: Cannot iterate over null" in text

    def test_nothing_to_do(self, hayase_: Command) -> None:
        assert "no payloads" in self.shown(tried(hayase_, "rules.yaml", "--event", "{}"), typed=False)

    def test_any_number_can_be_written(self) -> None:
        assert json_text([2**70, 0.5]).replace(" ", "") == f"[{2**70},0.5]"


def test_help_has_an_example(hayase_: Command) -> None:
    assert "Example: hayase rules try" in hayase_("rules", "try", "--help").out
