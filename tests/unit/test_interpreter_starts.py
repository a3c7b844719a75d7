"""Spark's Python interpreters on a busy machine: whether they start at all, and what becomes of one whose JVM has ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hayase.engine.spark.session import imports_pyspark

ORPHAN = """
import os, time
from hayase.engine.spark.worker_daemon import ending_with_parent

begun, begin = os.pipe()
if os.fork():
    os.read(begun, 1)
    os._exit(0)  # the parent ends while its child imports
with ending_with_parent():
    os.write(begin, b"1")
    while True:
        time.sleep(0.01)
"""


def _executable(path: Path, program: str) -> str:
    path.write_text(f"#!/bin/sh\n{program}\n")
    path.chmod(0o755)
    return str(path)


def test_a_python_that_starts_slowly_is_told_from_one_that_does_not(tmp_path: Path) -> None:
    assert imports_pyspark(sys.executable)
    assert imports_pyspark(_executable(tmp_path / "slow", f'sleep 0.5; exec {sys.executable} "$@"'))
    assert not imports_pyspark(_executable(tmp_path / "without-pyspark", f'exec {sys.executable} -S "$@"'))
    assert not imports_pyspark(str(tmp_path / "none"))
    assert not imports_pyspark(_executable(tmp_path / "stuck", "exec sleep 100"), patience=0.1)


def test_a_daemon_whose_jvm_ends_while_it_imports_ends_too() -> None:
    """The orphan holds the other end of the pipe: `run` returns when it has ended."""
    subprocess.run([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, timeout=600, check=True)
