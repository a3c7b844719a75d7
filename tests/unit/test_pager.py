"""Long output goes through a pager if there is one, and a reader who leaves it early is no error."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from hayase.console.pager import paged


def test_short_output_goes_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setenv("PAGER", "false")
    with paged(terminal, is_long=False) as sink:
        sink.write("row\n")
    assert terminal.getvalue() == "row\n"


@pytest.mark.parametrize("pager", ["", "cat", "no-such-program"])
def test_without_a_pager(monkeypatch: pytest.MonkeyPatch, pager: str) -> None:
    terminal = io.StringIO()
    monkeypatch.setenv("PAGER", pager)
    with paged(terminal, is_long=True) as sink:
        sink.write("row\n")
    assert terminal.getvalue() == "row\n"


def test_long_output_goes_through_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = f"import sys; open('{tmp_path}/shown', 'w').write(sys.stdin.read())"
    monkeypatch.setenv("PAGER", f'{sys.executable} -c "{program}"')
    with paged(io.StringIO(), is_long=True) as sink:
        sink.write("été\n" * 3)
    assert (tmp_path / "shown").read_text(encoding="utf-8") == "été\n" * 3


def test_who_has_seen_enough_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "true")
    with paged(io.StringIO(), is_long=True) as sink:
        for _ in range(100_000):
            sink.write("a line that nobody reads\n")
