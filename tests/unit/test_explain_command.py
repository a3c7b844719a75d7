"""`hayase explain`: of a pipeline file, and of a query over files."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Answer, Command, answer

PIPELINE = """\
pipeline: shop
streams:
  events:
    schema: time timestamp, user string, amount double
    time: time
queries:
  large: select user, amount from events where amount > 1
  totals: select user, count(*) as n from events group by user
"""


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Runs `hayase explain` as the entry point does, in a directory with a pipeline file and orders.csv."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "orders.csv").write_text("time,user\n2026-01-01T00:00:00Z,taro\n")

    def command(*args: str) -> Answer:
        return answer(capsys, monkeypatch, "explain", *args)

    return command


def test_a_query_of_a_file(explain: Command) -> None:
    answer = explain("pipeline.yaml", "totals")
    assert answer.code == 0
    assert answer.out.startswith("Query totals\n")
    assert "large" not in answer.out


def test_all_queries_of_a_file(explain: Command) -> None:
    out = explain("pipeline.yaml").out
    assert "Query large\n" in out
    assert "Query totals\n" in out


@pytest.mark.parametrize("source", [["-s", "o=orders.csv"], ["--schema", "o=time timestamp, user string"]])
def test_a_text(explain: Command, source: list[str]) -> None:
    answer = explain("select user from o [Rows 3]", *source)
    assert answer.code == 0, answer.err
    assert "Rows 3" in answer.out


def test_a_mistake_is_marked_in_the_text(explain: Command) -> None:
    answer = explain("select usr from o", "-s", "o=orders.csv")
    assert answer.code == 1
    assert 'unknown column "usr"' in answer.err
    assert answer.err.endswith("\n  select usr from o\n         ^\n")


def test_an_unknown_query(explain: Command) -> None:
    answer = explain("pipeline.yaml", "total")
    assert answer.code == 1
    assert 'unknown query "total" in pipeline.yaml; did you mean "totals"?' in answer.err


def test_neither_a_file_nor_a_query_with_streams(explain: Command) -> None:
    answer = explain("select 1")
    assert answer.code == 1
    assert "say what it reads with --stream" in answer.err
