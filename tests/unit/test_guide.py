"""What the guide shows runs as it is shown: an expression followed by a comment has that value."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hayase.core.pipeline_file import read_pipeline
from hayase.engine.checking import check_file
from hayase.pipeline import Pipeline

GUIDE = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (GUIDE / page).read_text(), re.DOTALL)


def run(example: str) -> int:
    """Run a block; how many values it shows."""
    lines = example.splitlines()
    said: dict[str, Any] = {}
    shown = 0
    for statement in ast.parse(example).body:
        text = "\n".join(lines[statement.lineno - 1 : statement.end_lineno])
        expected = lines[statement.end_lineno] if statement.end_lineno < len(lines) else ""  # type: ignore[operator]
        if isinstance(statement, ast.Expr) and expected.startswith("# "):
            assert eval(text, said) == ast.literal_eval(expected[2:]), text
            shown += 1
        else:
            exec(text, said)
    return shown


def test_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    in_process = functools.partialmethod(Pipeline.run_until_idle, spark=False)
    monkeypatch.setattr(Pipeline, "run_until_idle", in_process)
    (example,) = blocks("tables.md", "python")
    assert run(example) == 2


def test_the_pipeline_file_of_tables(tmp_path: Path) -> None:
    declared, rules = blocks("tables.md", "yaml")
    (tmp_path / "rules.yaml").write_text(
        rules.replace("user_purchase_status", "purchases").replace("stream1", "events")
    )
    columns = "time timestamp, uuid string, type string, user_id string, amount double"
    stream = {"schema": columns, "time": "time", "id": "uuid"}
    head = yaml.safe_dump({"pipeline": "shop", "streams": {"events": stream}})
    (tmp_path / "pipeline.yaml").write_text(head + declared)
    stages = check_file(read_pipeline(tmp_path / "pipeline.yaml"))
    assert [stage.name for stage in stages] == ["purchases"]
