"""What the README shows runs as it is shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[2] / "README.md"


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_library_runs_as_shown() -> None:
    _, example = examples()
    said: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), said)
    assert [len(each.at) for each in said["answers"]] == [2, 2, 2, 2]


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_twelve_lines_run_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example, _ = examples()
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert "'orders': 1, 'spend': 30.0" in said
    assert "'orders': 1, 'spend': 120.0" in said
    assert 'column "amount" must be double, not "a lot"' in said
