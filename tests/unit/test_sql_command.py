"""`hayase sql` with a script: statements, commands, formats, and where a mistake is."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from asked_shop import shop_in
from command_line import Answer, Command
from hayase.streams.durable import without_syncs

Script = Callable[..., Answer]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hayase_: Command) -> Iterator[Script]:
    """Runs a script by `hayase sql`, in the directory of a pipeline that has run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(text: str, *options: str) -> Answer:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        return hayase_("sql", *options)

    with without_syncs():
        shop_in(tmp_path)
        yield run


def test_statements_one_after_the_other(script: Script) -> None:
    done = script("select user from top\nlimit 1;\n-- a comment; not a statement\nselect count(*) as n from orders")
    assert done.rows == [{"user": "taro"}, {"n": 8}]
    assert done.code == 0


def test_a_table_says_how_many_rows(script: Script) -> None:
    lines = script("select user from top; select 1 as one;", "--format", "table").out.splitlines()
    assert lines == ["user", "----", "taro", "mei", "hana", "(3 rows)", "one", "---", "  1", "(1 row)"]


def test_a_mistake_ends_it_and_has_its_place_in_the_script(script: Script) -> None:
    done = script("select 1 as one;\n\nselect 2; select usr from spend;\nselect 3")
    assert done.code == 1
    assert [list(row.values()) for row in done.rows] == [[1], [2]]
    first, line, mark = done.err.splitlines()
    assert first == '3:18: unknown column "usr"; did you mean "user"?'
    assert line[mark.index("^") :].startswith("usr from")


def test_relations_are_listed_and_described(script: Script) -> None:
    listed = script("\\d").out
    for name in ("spend", "spend_history", "orders", "purchases", "dead_letters", "hayase.stages"):
        assert name in listed
    described = script("\\d spend\n\\d hayase.stages;").out
    assert "spend (query), final up to 2026-01-01 00:00:06" in described
    assert [line.split() for line in described.splitlines() if line.startswith("total")] == [["total", "double"]]
    assert "stages (figures)" in described
    assert 'unknown relation "spent"; did you mean "spend"?' in script("\\d spent").err


def test_as_of(script: Script) -> None:
    done = script(
        "\\as_of 2026-01-01T00:00:03Z\nselect max(total) as most from spend;\n\\as_of latest\nselect count(*) as n from orders"
    )
    assert done.rows == [{"most": 3.0}, {"n": 8}]
    assert done.err.splitlines() == ["as of 2026-01-01T00:00:03Z", "as of latest"]
    wrong = script("\\as_of noon")
    assert wrong.code == 1
    assert "noon" in wrong.err


def test_timing(script: Script) -> None:
    done = script("\\timing\nselect 1 as one;\n\\timing off\nselect 2 as two")
    on, took, off = done.err.splitlines()
    assert (on, off) == ("timing is on", "timing is off")
    assert took.endswith(" ms")
    assert "takes on or off" in script("\\timing maybe").err


def test_other_commands(script: Script) -> None:
    listed = script("\\?").out
    assert all(name in listed for name in ("\\d [NAME]", "\\as_of", "\\timing", "\\q"))
    assert script("select 1 as one; \\q\nselect 2 as two;").rows == [{"one": 1}]
    assert script("quit; select 2 as two").out == ""
    unknown = script("\\asof x")
    assert unknown.code == 1
    assert 'did you mean "\\as_of"?' in unknown.err
