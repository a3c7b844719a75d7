"""What the guide shows runs as it is shown: an expression followed by a comment has that value."""

from __future__ import annotations

import ast
import functools
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from command_line import answer
from hayase.core.pipeline_file import read_pipeline
from hayase.engine.checking import check_file
from hayase.pipeline import Pipeline

GUIDE = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (GUIDE / page).read_text(), re.DOTALL)


def run(example: str, said: dict[str, Any] | None = None, place: str = "<guide>") -> int:
    """Run a block; how many values it shows."""
    lines = example.splitlines()
    said = {} if said is None else said
    shown = 0
    for statement in ast.parse(example).body:
        expected = lines[statement.end_lineno] if statement.end_lineno < len(lines) else ""  # type: ignore[operator]
        if isinstance(statement, ast.Expr) and expected.startswith("# "):
            found = eval(compile(ast.Expression(statement.value), place, "eval"), said)
            assert found == ast.literal_eval(expected[2:]), ast.unparse(statement)
            shown += 1
        else:
            exec(compile(ast.Module([statement], []), place, "exec"), said)
    return shown


def in_process(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run what follows in this process, with its homes at a place of their own."""
    monkeypatch.chdir(place)
    monkeypatch.setattr(Pipeline, "run_until_idle", functools.partialmethod(Pipeline.run_until_idle, spark=False))


def test_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_process(tmp_path, monkeypatch)
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


def programs(page: str) -> list[str]:
    """The Python of a page, put together: a block that imports Hayase begins a new program."""
    found: list[str] = []
    for block in blocks(page, "python"):
        if "import hayase as hy\n" in block:
            found.append(block)
        else:
            found[-1] += block
    return found


@pytest.mark.parametrize(("number", "values"), [(0, 10), (1, 4), (2, 3)])
def test_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, values: int) -> None:
    """Functions of jobs are found by the names of their modules, so each program is one."""
    in_process(tmp_path, monkeypatch)
    name, text = f"jobs_of_the_guide_{number}", programs("jobs.md")[number]
    path = tmp_path / f"{name}.py"
    path.write_text(text)
    module = ModuleType(name)
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, name, module)
    assert run(text, vars(module), str(path)) == values


@pytest.mark.parametrize("example", ["access_monitor", "sensor_watch"])
def test_the_examples_of_jobs_are_shown_as_they_stand(example: str) -> None:
    text = (GUIDE.parent / "tests" / "examples" / f"{example}.py").read_text()
    assert text in blocks("jobs.md", "python")


def test_the_pipeline_file_of_jobs(tmp_path: Path) -> None:
    (declared,) = blocks("jobs.md", "yaml")
    (tmp_path / "traffic_functions.py").write_text(programs("jobs.md")[0].partition("logs = [")[0])
    stream = {"schema": "time timestamp, address string, status int, size bigint", "time": "time"}
    head = yaml.safe_dump({"pipeline": "traffic", "streams": {"logs": stream}})
    (tmp_path / "pipeline.yaml").write_text(head + declared)
    stages = check_file(read_pipeline(tmp_path / "pipeline.yaml"))
    assert [stage.name for stage in stages] == ["traffic"]


README = GUIDE.parent / "README.md"
FUNCTIONS = """
def parse(record):
    yield record["address"], 1


def alert(key, new_values, stored):
    yield key, stored is not None
"""


def test_the_readme_declares_what_can_be_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = README.read_text()
    tables, jobs = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    events = {
        "schema": "time timestamp, uuid string, type string, user_id string, amount double",
        "time": "time",
        "id": "uuid",
    }
    logs = {"schema": "time timestamp, address string", "time": "time"}
    head = yaml.safe_dump({"pipeline": "shop", "streams": {"events": events, "logs": logs}})
    blocklist = "tables:\n  blocklist: {key: address, columns: {since: Register}}\n"
    (tmp_path / "access.py").write_text(FUNCTIONS)
    (tmp_path / "pipeline.yaml").write_text(head + jobs + tables.replace("tables:\n", blocklist, 1))
    stages = check_file(read_pipeline(tmp_path / "pipeline.yaml"))
    assert [stage.name for stage in stages] == ["traffic", "purchases"]
    (event,) = re.findall(r"hayase rules try pipeline.yaml --event '(.*?)'", text)
    told = answer(
        capsys, monkeypatch, "rules", "try", tmp_path / "pipeline.yaml", "--source", "events", "--event", event
    )
    assert told.code == 0
    assert "2026-01-31" in told.out
