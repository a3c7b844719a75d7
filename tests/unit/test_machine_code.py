"""The cache of machine code: what shares an entry, what does not, and compiling ahead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LOOPS = """
from numba import types
from hayase.core.machine_code import compiled
from factors import FACTOR

@compiled(types.int64, types.int64)
def scaled(number):
    return number * FACTOR

@compiled(types.int64, types.int64)
def doubled(number):
    return number * 2
"""
IMPORT = """
import logging
from logging.handlers import BufferingHandler
compiled = BufferingHandler(100)
logging.getLogger("hayase.core.machine_code").addHandler(compiled)
logging.getLogger("hayase.core.machine_code").setLevel("INFO")
import number_loops
print(number_loops.scaled(7), number_loops.doubled(7), len(compiled.buffer))
"""
AHEAD = """
from hayase.core.machine_code import compiled_ahead
progress = []
with compiled_ahead(lambda done, of: progress.append((done, of))):
    import number_loops
print(number_loops.scaled(7), number_loops.doubled(7), progress)
"""


def _run(
    directory: Path, cache: Path, program: str = IMPORT, factor: int = 3, loops: str = LOOPS, factors: str = "",
    **variables: str,
) -> str:  # fmt: skip
    directory.mkdir(exist_ok=True)
    (directory / "number_loops.py").write_text(loops)
    (directory / "factors.py").write_text(factors or f"FACTOR = {factor}\n")
    path = os.pathsep.join([str(directory), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": path} | variables
    command = [sys.executable, "-B", "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_checkouts_with_the_same_source_share_machine_code(tmp_path: Path) -> None:
    assert _run(tmp_path / "one", tmp_path / "cache") == "21 14 2"
    assert _run(tmp_path / "other", tmp_path / "cache") == "21 14 0"


def test_a_loop_is_compiled_again_when_a_constant_that_its_module_imports_changes(tmp_path: Path) -> None:
    assert _run(tmp_path / "one", tmp_path / "cache") == "21 14 2"
    assert _run(tmp_path / "one", tmp_path / "cache", factor=5) == "35 14 2"
    assert _run(tmp_path / "other", tmp_path / "cache") == "21 14 0"


def test_a_loop_is_compiled_again_when_a_loop_that_its_module_imports_changes(tmp_path: Path) -> None:
    scaled = "def scaled(number):\n    return number * FACTOR"
    for factor in (3, 5):
        inner = f"from numba import njit\n@njit\ndef multiplied(number):\n    return number * {factor}\n"
        loops = LOOPS.replace(scaled, "def scaled(number):\n    return multiplied(number)")
        loops = loops.replace("from factors import FACTOR", "from factors import multiplied")
        assert _run(tmp_path, tmp_path / "cache", loops=loops, factors=inner) == f"{7 * factor} 14 2"


def test_loops_are_compiled_ahead_on_all_cores_and_then_loaded(tmp_path: Path) -> None:
    assert _run(tmp_path / "one", tmp_path / "cache", AHEAD) == "21 14 [(0, 2), (1, 2), (2, 2)]"
    assert _run(tmp_path / "one", tmp_path / "cache", AHEAD) == "21 14 []"


@pytest.mark.parametrize("program", [IMPORT, AHEAD])
def test_loops_work_where_the_cache_cannot_be_written(tmp_path: Path, program: str) -> None:
    (tmp_path / "cache").touch()  # a file
    assert _run(tmp_path / "one", tmp_path / "cache", program).startswith("21 14 ")
    nowhere = {"NUMBA_CACHE_LOCATOR_CLASSES": "IPythonCacheLocator"}  # which has no place for a file
    assert _run(tmp_path / "one", tmp_path / "cache", program, **nowhere).startswith("21 14 ")


def test_old_versions_of_a_module_are_removed(tmp_path: Path) -> None:
    versions = tmp_path / "cache" / "hayase" / "machine-code"
    for number in range(9):
        (versions / f"number_loops-{number}").mkdir(parents=True)
        os.utime(versions / f"number_loops-{number}", (number, number))
    (versions / "other_loops-1").mkdir()
    _run(tmp_path / "one", tmp_path / "cache")
    kept = {path.name for path in versions.iterdir()}
    assert {"number_loops-8", "other_loops-1"} < kept
    assert not {"number_loops-0", "number_loops-1"} & kept
    assert len(kept) == 9


def test_a_version_in_use_is_not_removed_because_it_was_compiled_first(tmp_path: Path) -> None:
    assert _run(tmp_path / "one", tmp_path / "cache") == "21 14 2"
    versions = tmp_path / "cache" / "hayase" / "machine-code"
    [used] = versions.glob("number_loops-*")
    os.utime(used, (0, 0))
    for number in range(7):
        other = versions / f"number_loops-{number}"
        other.mkdir()
        os.utime(other, (100 + number, 100 + number))
    assert _run(tmp_path / "one", tmp_path / "cache") == "21 14 0"  # it is used again
    assert _run(tmp_path / "one", tmp_path / "cache", factor=5) == "35 14 2"  # a ninth version
    assert used.exists()
