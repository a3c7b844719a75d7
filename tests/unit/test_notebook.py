"""The notebook `examples/first_steps.ipynb` runs from its first cell to its last, twice, and shows what it says."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "first_steps.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == kind]


def run(names: dict[str, Any]) -> list[Any]:
    """Run all cells as a notebook does; the value of an expression at the end of a cell is what it shows."""
    shown = []
    for number, cell in enumerate(cells("code")):
        body = ast.parse("".join(cell["source"]))
        last = body.body.pop() if isinstance(body.body[-1], ast.Expr) else None
        exec(compile(body, f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
            html = getattr(value, "_repr_html_", None)
            shown.append(value if html is None else html())
    return shown


def test_it_runs_and_shows_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    graph, accepted, spend, reason, history, early, total, bought, row = run({"__name__": "__main__"})
    assert "query spend" in graph
    assert (accepted.accepted, accepted.refused) == (3, 1)
    assert "lifetimes of spend" in spend
    assert "a lot" in reason
    assert "valid_from" in history
    assert early == [{"user": "hana", "orders": 1, "spend": 30.0}]
    assert total == [(170.0,)]
    assert "<td>taro</td><td>140</td>" in bought
    assert row == {"total": 140.0, "last": "2026-01-31T12:04:00Z"}
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_declarations_can_be_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    declaring = "".join(cells("code")[0]["source"])
    exec(declaring, names)
    first = names["p"].declaration
    exec(declaring.replace("p = hy.Pipeline", "_ = hy.Pipeline"), names)
    assert names["p"].declaration == first


def test_it_is_kept_without_outputs() -> None:
    """Outputs hold paths of the machine that made them, and every run would change the file."""
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells("code"))
