"""`hayase query` over a home: SQL over what a pipeline has committed, and mistakes with their places."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from asked_shop import shop_in
from command_line import Command
from hayase.pipeline import Pipeline
from hayase.streams.durable import without_syncs

JOIN = "select s.user, s.total, p.total as bought from spend s join purchases p using (user) order by s.total desc"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    """A pipeline that has run, in whose directory commands run."""
    monkeypatch.chdir(tmp_path)
    with without_syncs():
        yield shop_in(tmp_path)


def test_a_join_of_a_query_and_a_table(hayase_: Command, shop: Pipeline) -> None:
    rows = hayase_("query", JOIN).rows
    assert [tuple(row.values()) for row in rows] == [("taro", 9.0, 9.0), ("mei", 7.0, 7.0), ("hana", 5.0, 12.0)]


def test_while_it_runs(hayase_: Command, shop: Pipeline) -> None:
    with shop.home.lock():
        assert hayase_("query", "select count(*) as n from orders", "--home", "home").rows == [{"n": 8}]


def test_a_name_alone(hayase_: Command, shop: Pipeline) -> None:
    for name in ("top", " top ; ", "public.top", '"top"'):
        assert hayase_("query", name).rows == shop.query("top").at(), name
    assert 'did you mean "spend"?' in hayase_("query", "spent").err


def test_as_of(hayase_: Command, shop: Pipeline) -> None:
    at = "2026-01-01T00:00:03Z"
    assert hayase_("query", "select * from top", "--as-of", at).rows == shop.query("top").at(at)
    assert hayase_("query", "select count(*) as n from orders", "--as-of", "complete").rows == [{"n": 7}]
    assert "is after that" in hayase_("query", "spend", "--as-of", "2027-01-01T00:00Z").err


def test_from_stdin(hayase_: Command, shop: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("select user from spend\nwhere total > 8;\n"))
    assert hayase_("query", "-").rows == [{"user": "taro"}]


def test_forms(hayase_: Command, shop: Pipeline) -> None:
    text = hayase_("query", "select user from top", "--format", "table").out
    assert text.splitlines() == ["user", "----", "taro", "mei", "hana"]
    assert hayase_("query", "top", "-o", "top.parquet").code == 0
    assert Path("top.parquet").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("select totl from spend", ['1:8: unknown column "totl"; did you mean "total"?', "  select totl from spend", "         ^"]),
        ("select s.totl\nfrom spend s", ['1:10: unknown column "totl"; did you mean "total"?', "  select s.totl", "           ^"]),
        ("select *\nfrom spent", ['2:6: unknown relation "spent"; did you mean "spend"?', "  from spent", "       ^"]),
        ("select o.user from spend", ['1:8: "o" is not in the FROM clause; name the relation there, or its alias here']),
        ("select suum(total) from spend", ["suum"]),
        ("select from where", ['1:13: syntax error at or near "where": Expected table name', "  select from where"]),
        ("delete from spend", ["read"]),
        ("select 1; select 2", ["2 statements"]),
    ],
)  # fmt: skip
def test_mistakes(hayase_: Command, shop: Pipeline, text: str, said: list[str]) -> None:
    done = hayase_("query", text)
    assert (done.code, done.out) == (1, "")
    assert "Traceback" not in done.err
    for line, expected in zip(done.err.splitlines(), said):
        assert expected in line, done.err
    assert len(done.err.splitlines()) >= len(said)


@pytest.mark.parametrize(
    "option", [("--emit", "final"), ("--strict",), ("--time", "time"), ("--spark",), ("-f", "a=x")]
)
def test_options_of_files_are_refused(hayase_: Command, shop: Pipeline, option: tuple[str, ...]) -> None:
    done = hayase_("query", "spend", *option)
    assert done.code == 2
    assert "it is for a query over files" in done.err
    assert hayase_("query", "select user from o", "-s", "o=o.csv", "--home", "home").code == 2


QUERY = """
import sys
sys.argv = ["hayase", *sys.argv[1:]]
from hayase.cli import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
LOADED = {
    "duckdb", "hayase", "llvmlite", "numpy", "orjson", "pyarrow", "rich", "rocksdict", "shellingham", "sqlglot", "typer", "xxhash",
    "yaml",
}  # fmt: skip


@pytest.mark.parametrize("command", [("query", JOIN), ("show", "spend")])
def test_it_loads_no_more_than_it_needs(shop: Pipeline, command: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", QUERY, *command, "--home", "home"],
        cwd=tmp_path, capture_output=True, text=True, check=True, timeout=600,
    )  # fmt: skip
    assert "taro" in done.stdout
    modules = done.stderr.split()
    loaded = {name.partition(".")[0] for name in modules if not name.startswith("_")} - sys.stdlib_module_names
    assert loaded - {"annotated_doc", "cython_runtime", "dateutil", "mypy_extensions", "six"} <= LOADED
    assert not [
        name for name in modules if name.startswith(("hayase.engine.spark", "hayase.serving", "prompt_toolkit"))
    ]
