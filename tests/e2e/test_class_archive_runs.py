"""The class archive with real JVMs, each in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hayase.core.user_cache import user_cache

SESSION = """
from pathlib import Path
from hayase.engine.spark.session import local_master, open_session
session = open_session(local_master(1), log=Path("spark.log"))
arguments = session.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
print("archive" if any("SharedArchiveFile" in argument for argument in arguments) else "plain", session.range(3).count())
"""
ARCHIVE = """
from hayase.engine.spark.class_archive import class_archive
from hayase.engine.spark.session import java_build
archive = class_archive(java_build(), {})
"""


def _python(program: str, directory: Path, **environment: str) -> str:
    """Run a program with class archives of its own and return what it printed: nothing else may be on the terminal."""
    machine_code, cache = user_cache("machine-code"), directory / "cache" / "hayase"
    if machine_code is not None and not cache.exists():
        cache.mkdir(parents=True)
        (cache / "machine-code").symlink_to(machine_code)  # loops need not be compiled again
    variables = os.environ | {"XDG_CACHE_HOME": str(directory / "cache")} | environment
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=directory, env=variables, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.mark.spark
@pytest.mark.long
def test_a_jvm_that_does_not_start_with_the_archive_is_started_without_it(tmp_path: Path) -> None:
    java = shutil.which("java") or str(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
    fake = tmp_path / "java-home" / "bin" / "java"
    fake.parent.mkdir(parents=True)
    fake.write_text(f'#!/bin/sh\ncase "$*" in *SharedArchiveFile*) exit 134;; esac\nexec {java} "$@"\n')
    fake.chmod(0o755)
    home = {"JAVA_HOME": str(fake.parent.parent)}
    record = (
        'draft = archive.directory / "draft"; draft.write_bytes(b"classes"); archive.take(draft); print(archive.file)'
    )
    recorded = Path(_python(ARCHIVE + record, tmp_path, **home).strip())
    assert recorded.exists()
    assert _python(SESSION, tmp_path, **home) == "plain 3\n"
    assert not recorded.exists()


@pytest.mark.spark
@pytest.mark.long
def test_an_archive_is_recorded_once_and_used(tmp_path: Path) -> None:
    record = (
        "from hayase.engine.spark.class_recorder import record; print(record(archive), record(archive), archive.file)"
    )
    first, second, path = _python(ARCHIVE + record, tmp_path).split()
    assert (first, second) == ("True", "True")
    assert _python(SESSION, tmp_path) == "archive 3\n"
    archive = Path(path)
    archive.write_bytes(b"noise")  # of the right name, but nothing that a JVM can use
    archive.rename(archive.with_name(f"{archive.name.partition('-')[0]}-5.jsa"))
    assert _python(SESSION, tmp_path) == "archive 3\n"
