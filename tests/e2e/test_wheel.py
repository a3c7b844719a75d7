"""The package without a checkout: built, installed into an empty environment, and used as the README shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ORDERS = "time,user,amount\n2026-01-31T12:00:00Z,taro,1.0\n2026-01-31T12:00:01Z,taro,3.0\n"
QUERY = "select user, avg(amount) as average from orders [Rows 100] group by user"

pytestmark = [pytest.mark.long]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    _run([_uv(), "build", "--quiet", "--wheel", "--out-dir", str(directory)], ROOT)
    (path,) = directory.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def bin(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the package and what it depends on, in the versions of the lock file."""
    environment = tmp_path_factory.mktemp("environment") / "venv"
    _run([_uv(), "venv", "--quiet", "--python", sys.executable, str(environment)], ROOT)
    python, lock = str(environment / "bin" / "python"), str(ROOT / "requirements.lock")
    _run([_uv(), "pip", "install", "--quiet", "--python", python, "--constraint", lock, str(wheel)], ROOT)
    return environment / "bin"


def test_the_package_holds_the_program_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        about = Parser().parsestr(file.read(metadata).decode())
    assert {name.partition("/")[0] for name in names} == {"hayase", metadata.partition("/")[0]}
    assert not [name for name in names if "__pycache__" in name]
    assert "hayase/py.typed" in names
    assert "hayase/serving/console/index.html" in names
    needed = {re.split(r"[^A-Za-z0-9_-]", line)[0] for line in about.get_all("Requires-Dist", [])}
    assert {"pyspark", "numba", "duckdb"} < needed
    assert not needed & {"pytest", "hypothesis", "matplotlib", "redis", "mypy", "ruff", "httpx", "mkdocs", "atheris"}
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.11"
    assert "# Hayase" in str(about.get_payload())


def test_a_query_over_a_file(bin: Path, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text(ORDERS)
    said = _run([str(bin / "hayase"), "query", QUERY, "-s", "orders=orders.csv", "--time", "time"], tmp_path)
    assert '"average": 2.0' in said.splitlines()[-1]


@pytest.mark.spark
def test_the_lines_of_the_readme_and_the_demo(bin: Path, tmp_path: Path) -> None:
    twelve, library = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    _run([str(bin / "python"), "-c", library], tmp_path)
    assert "'orders': 1, 'spend': 120.0" in _run([str(bin / "python"), "-c", twelve], tmp_path)
    _run([str(bin / "hayase"), "init", "shop"], tmp_path)
    shop = tmp_path / "shop"
    for command in (["check"], ["append", "events", "events.ndjson"], ["run", "pipeline.yaml", "--until-idle"]):
        _run([str(bin / "hayase"), *command], shop)
    assert _run([str(bin / "hayase"), "streams", "tail", "totals"], shop)
    demo = _run([str(bin / "hayase"), "demo", "--fast", "--plain"], tmp_path)
    assert "everything adds up" in demo


def _uv() -> str:
    return shutil.which("uv") or str(Path(sys.executable).with_name("uv"))


def _run(command: list[str], directory: Path) -> str:
    """Run a command outside of the checkout's environment and return what it printed."""
    variables = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    variables |= {
        "UV_SYSTEM_CERTS": "true",
        "HAYASE_CLASS_ARCHIVE": "0",
    }  # no archive for an environment that is removed
    done = subprocess.run(command, cwd=directory, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout
