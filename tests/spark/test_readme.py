"""What the README shows runs as it is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_twelve_lines_run_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert "'orders': 1, 'spend': 30.0" in said
    assert "'orders': 1, 'spend': 120.0" in said
    assert 'column "amount" must be double, not "a lot"' in said
