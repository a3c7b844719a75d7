"""The cache of machine code: what shares an entry, what does not, compiling ahead, and loops without Numba."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

LOOPS = """
from hayase.core import loop_types as types
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
logging.getLogger("hayase.core.loop_compiler").addHandler(compiled)
logging.getLogger("hayase.core.loop_compiler").setLevel("INFO")
import number_loops
print(number_loops.scaled(7), number_loops.doubled(7), len(compiled.buffer))
"""
AHEAD = """
from hayase.core.loop_compiler import compiled_ahead
progress = []
with compiled_ahead(lambda done, of: progress.append((done, of))):
    import number_loops
print(number_loops.scaled(7), number_loops.doubled(7), progress)
"""


def _run(
    directory: Path, cache: Path, program: str = IMPORT, factor: int = 3, loops: str = LOOPS, **variables: str
) -> str:
    directory.mkdir(exist_ok=True)
    (directory / "number_loops.py").write_text(loops)
    (directory / "factors.py").write_text(f"FACTOR = {factor}\n")
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
    """Also through another module of loops in between."""
    scaled = "def scaled(number):\n    return number * FACTOR"
    loops = LOOPS.replace(scaled, "def scaled(number):\n    return multiplied(number)")
    loops = loops.replace("from factors import FACTOR", "from middle_loops import multiplied")
    (tmp_path / "middle_loops.py").write_text("from inner_loops import multiplied\n")
    for factor in (3, 5):
        inner = f"from numba import njit\n@njit\ndef multiplied(number):\n    return number * {factor}\n"
        (tmp_path / "inner_loops.py").write_text(inner)
        assert _run(tmp_path, tmp_path / "cache", loops=loops) == f"{7 * factor} 14 2"


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


KINDS = """
import numpy as np
from hayase.core import loop_types as types
from hayase.core.machine_code import compiled, njit

_i64, _f64, _flag, _readonly = types.int64, types.float64, types.boolean, types.Array(types.int64, 1, "C", readonly=True)
PAIR = np.dtype([("key", np.int64), ("half", np.int32)])

@njit(inline="always")
def _wrapped(number, factor):
    return np.int64(np.uint64(number) * np.uint64(factor))

@compiled(types.UniTuple(_i64, 2), _readonly, _i64, _i64[:, ::1])
def spread(numbers, factor, grid):
    for row in range(len(numbers)):
        grid[row, 1] = _wrapped(numbers[row], factor) + grid.shape[1]
    return len(numbers), -factor

@compiled(types.Tuple((_i64, _flag)), _f64[::1], _f64, _flag)
def largest(numbers, least, strict):
    at = -1
    for row in range(len(numbers)):
        if numbers[row] > least or (not strict and numbers[row] == least):
            at, least = row, numbers[row]
    return at, at >= 0

@compiled(types.void, types.Array(types.from_dtype(PAIR), 1, "C"), types.uint8[::1], types.int32)
def halve(pairs, flags, add):
    for row in range(len(pairs)):
        pairs[row].half = pairs[row].key // 2 + add
        flags[row] = pairs[row].key % 2 != 0

@compiled(_flag, _i64)
def is_even(number):
    return number % 2 == 0

@compiled(_i64[::1], _i64)
def listed(count):
    return np.arange(count)
"""
USE = """
import sys
import numpy as np
from hayase.core import machine_code
if %r:
    machine_code.do_without_numba()
import number_loops as loops
numbers = np.array([1, -2, 2**62]); numbers.flags.writeable = False
grid = np.zeros((3, 2), np.int64)
print(loops.spread(numbers, 7, grid), grid.tolist())
print(loops.largest(np.array([0.5, 2.5, np.nan]), 0.5, True), loops.largest(np.empty(0), 0.0, False))
pairs, flags = np.zeros(2, loops.PAIR), np.zeros(2, np.uint8)
pairs["key"] = [5, -5]
print(loops.halve(pairs, flags, np.int32(3)), pairs.tolist(), flags.tolist(), loops.is_even(3), loops.is_even(np.int64(4)))
for wrong in (numbers, np.zeros((4, 4), np.int64)[:, ::2], np.zeros((1, 2), np.int32), np.zeros(3, np.int64)):
    try:
        loops.spread(numbers, 1, wrong)
    except TypeError:
        print("refused")
%s
print("numba" in sys.modules, file=sys.stderr)
"""


def _use(directory: Path, cache: Path, without_numba: bool, more: str = "") -> tuple[str, str]:
    """Return what a program prints that calls loops of all kinds, and whether Numba was loaded."""
    directory.mkdir(exist_ok=True)
    (directory / "number_loops.py").write_text(KINDS)
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(directory)}
    command = [sys.executable, "-B", "-c", USE % (without_numba, more)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr.strip()


def test_loops_give_the_same_without_numba(tmp_path: Path) -> None:
    by_numba, loaded = _use(tmp_path / "one", tmp_path / "cache", without_numba=False)
    assert loaded == "True"
    assert by_numba.splitlines()[0] == "(3, -7) [[0, 9], [0, -12], [0, -4611686018427387902]]"
    assert by_numba.count("refused") == 4
    assert _use(tmp_path / "one", tmp_path / "cache", without_numba=True) == (by_numba, "False")


def test_a_loop_without_object_code_is_left_to_numba_and_so_are_all_after_it(tmp_path: Path) -> None:
    by_numba, _ = _use(tmp_path / "one", tmp_path / "cache", without_numba=True)  # nothing is compiled yet
    assert by_numba == _use(tmp_path / "one", tmp_path / "cache", without_numba=False)[0]
    more = (
        "even = loops.is_even; print(loops.listed(3), even(4), type(loops.is_even).__name__)"  # the result is allocated
    )
    printed, loaded = _use(tmp_path / "one", tmp_path / "cache", without_numba=True, more=more)
    assert printed == by_numba + "[0 1 2] True CPUDispatcher\n"
    assert loaded == "True"


@pytest.mark.parametrize(
    "damage", [lambda _: b"", lambda code: code[:-100], lambda code: code.replace(b"\n", b"\n!", 1)]
)
def test_damaged_object_code_is_left_to_numba(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    by_numba, _ = _use(tmp_path / "one", tmp_path / "cache", without_numba=False)
    for file in (tmp_path / "cache").rglob("spread*.object"):
        file.write_bytes(damage(file.read_bytes()))
    assert _use(tmp_path / "one", tmp_path / "cache", without_numba=True) == (by_numba, "True")


SHOP = """
import sys
from pathlib import Path
from hayase.demo.events import Shop
from hayase.demo.shop_pipeline import fill_blocklist, shop_pipeline
from hayase.lifetimes.compilation import COMMON, loop_modules
pipeline = shop_pipeline(Path(sys.argv[1]))
fill_blocklist(pipeline)
for number in range(40):
    tick = Shop(10).tick(number)
    pipeline.append("orders", tick.orders)
    pipeline.append("lines", tick.lines)
pipeline.run_until_idle(spark=False)
print(*(set(loop_modules()) & set(sys.modules)) - set(COMMON), set(COMMON) < set(loop_modules()))
"""


def test_the_demo_needs_common_loops_only(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SHOP, str(tmp_path / "shop")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["True"]


PREPARED = """
import sys
from hayase.lifetimes import compilation
compilation.COMMON = ("number_loops",)
compilation.loop_modules = lambda: ["number_loops", "other_loops"]
progress = []
compilation.compile_%s(lambda done, of: progress.append((done, of)))
print(progress, "other_loops" in sys.modules)
"""


def _prepare(directory: Path, how: str) -> str:
    """Return the progress of compiling two modules with two loops each, one of them common, and whether the other is loaded."""
    (directory / "other_loops.py").write_text(LOOPS)
    return _run(directory, directory / "cache", PREPARED % how)


def test_while_a_process_compiles_behind_only_common_loops_are_waited_for(tmp_path: Path) -> None:
    lock = tmp_path / "cache" / "hayase" / "machine-code" / "behind.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert _prepare(tmp_path, "ahead") == "[(0, 2), (1, 2), (2, 2)] False"
        assert _prepare(tmp_path, "common") == "[] False"  # and nothing is started: one compiles already
    assert _prepare(tmp_path, "ahead") == "[(0, 2), (1, 2), (2, 2)] True"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert _prepare(tmp_path, "ahead") == "[] True"


STARTED = """
import subprocess
from hayase.lifetimes import compilation
compilation.COMMON = ("number_loops",)
compilation.loop_modules = lambda: ["number_loops", "other_loops"]
started = []
subprocess.Popen = lambda command, pass_fds, **rest: started.append((command[-1], compilation.is_compiled_behind()))
compilation.compile_common()
print(started, compilation.is_compiled_behind())
compilation.compile_ahead()
compilation.compile_common()
print(len(started))
"""


def test_a_process_that_compiles_behind_is_started_with_the_lock_if_loops_are_missing(tmp_path: Path) -> None:
    (tmp_path / "other_loops.py").write_text(LOOPS)
    started, again = _run(tmp_path, tmp_path / "cache", STARTED).splitlines()
    assert started == "[('hayase.lifetimes.compilation', True)] False"
    assert again == "1"
    (tmp_path / "nowhere").touch()  # without a cache nobody can compile for others
    assert _run(tmp_path, tmp_path / "nowhere", STARTED).splitlines() == ["[] False", "0"]
