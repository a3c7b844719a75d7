"""Spark's Python interpreters on a busy machine: whether they start at all, and what becomes of one whose JVM has ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hayase.engine.spark import session

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


def test_a_python_that_starts_slowly_is_told_from_one_that_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_warm", None)  # as for a cluster
    for python, starts in (
        (sys.executable, True),
        (_executable(tmp_path / "slow", f'sleep 0.5; exec {sys.executable} "$@"'), True),
        (_executable(tmp_path / "without-pyspark", f'exec {sys.executable} -S "$@"'), False),
        (str(tmp_path / "none"), False),
    ):
        monkeypatch.setenv("PYSPARK_PYTHON", python)
        assert session.python_starts() == starts
    monkeypatch.setenv("PYSPARK_PYTHON", _executable(tmp_path / "stuck", "exec sleep 100"))
    assert not session.python_starts(patience=0.1)


def test_a_daemon_whose_jvm_ends_while_it_imports_ends_too() -> None:
    """The orphan holds the other end of the pipe: `run` returns when it has ended."""
    subprocess.run([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, timeout=600, check=True)
