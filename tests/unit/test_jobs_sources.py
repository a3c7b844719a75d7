"""Functions by name: of modules, of scripts that are not run again, and the text that they depend on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hayase.core.errors import DeclarationError
from hayase.core.function_sources import FunctionSource, needed_text, source_of

SCRIPT = """
from __future__ import annotations
import re
import hayase as hy
from hayase.jobs.job_builder import Job

PATTERN = re.compile(r"(\\d+)")
SEEN = {}
SEEN["start"] = 1
UNUSED = print("UNUSED IS RUN")
job = Job("numbers", "logs")

class Found:
    def __init__(self, text): self.text = text

def first(line):
    return Found(PATTERN.search(line).group(1))

@job.map(attempts=2)
def parse(record):
    yield int(first(record["line"]).text), SEEN["start"]

@job.reduce
def count(key, values):
    return key, len(values)

print("RUNNING", job.declaration.steps[0].function)
raise SystemExit
"""


def test_a_script_is_not_run_for_its_functions(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "numbers_script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["UNUSED IS RUN", f"RUNNING {script}:parse"]
    parse = FunctionSource(f"{script}:parse").load()
    assert list(parse({"line": "a 17"})) == [(17, 1)]
    assert parse.__code__.co_firstlineno in (19, 20)
    assert capfd.readouterr().out == ""
    assert FunctionSource(f"{script}:count").load()(1, [2, 3]) == (1, 2)


def test_a_module_that_is_running_is_not_imported_again(tmp_path: Path) -> None:
    code = """
from hayase.core.function_sources import source_of
def f(x): return x
print(source_of(f))
assert source_of(f).load() is f
"""
    (tmp_path / "running_module.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "running_module"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.splitlines() == [f"FunctionSource(name='running_module:f', directory='{tmp_path}')"]


def test_the_text_of_a_function_is_what_it_needs(tmp_path: Path) -> None:
    text = needed_text(SCRIPT, "parse")
    assert "PATTERN" in text
    assert "class Found" in text
    assert "SEEN['start'] = 1" in text
    assert "UNUSED" not in text
    assert "Job" not in text
    assert "count" not in text
    assert needed_text(SCRIPT.replace("line)\n", "line)  # a remark\n\n"), "parse") == text
    assert needed_text(SCRIPT.replace("d+", "d"), "parse") != text
    assert needed_text(SCRIPT.replace("len(values)", "sum(values)"), "parse") == text
    assert needed_text(SCRIPT.replace("@job.map(attempts=2)", '@p.operation(reads=["logs"])'), "parse") == text
    assert needed_text(SCRIPT.replace("@job.map(attempts=2)", '@p.view("logs")'), "parse") == text


def test_names_of_functions() -> None:
    assert source_of(source_of).name == "hayase.core.function_sources:source_of"
    assert source_of(source_of).load() is source_of
    assert "def source_of" in source_of(source_of).text()

    def inner() -> None:
        pass

    with pytest.raises(DeclarationError, match="stands inside of something else"):
        source_of(inner)
    with pytest.raises(DeclarationError, match="a lambda cannot be found by other processes"):
        source_of(lambda record: None)
    with pytest.raises(DeclarationError, match="is not a function"):
        source_of(3)  # type: ignore[arg-type]


def test_functions_that_cannot_be_had(tmp_path: Path) -> None:
    (tmp_path / "broken_functions.py").write_text("def good(x): return x\nTEXT = 'x'\n")
    (tmp_path / "worse_functions.py").write_text("1 / 0\n")
    folder = str(tmp_path)
    assert FunctionSource("broken_functions:good", folder).load()(3) == 3
    for name, told in {
        "broken_functions:god": 'broken_functions has no "god"; did you mean "good"?',
        "broken_functions:TEXT": "broken_functions:TEXT is a str, not a function; name a function",
        "worse_functions:f": "the module worse_functions cannot be loaded: ZeroDivisionError: division by zero in <module>, line 1",
        "no_such_module:f": "there is no module no_such_module; it must be installed, or lie in the directory of the pipeline",
        f"{folder}/broken_functions.py:bad": f'{folder}/broken_functions.py has no "bad"; it has no function at all',
    }.items():
        with pytest.raises(DeclarationError) as caught:
            FunctionSource(name, folder).load()
        assert str(caught.value) == told
    with pytest.raises(DeclarationError, match="cannot be read"):
        FunctionSource(f"{folder}/none.py:f").load()
