"""Jobs on Spark: the monitor of the guide, killed and started again, finds in a log what a plain program does."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_faults import KILLS, kill_tree, until, version

import access_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kill]
DEATHS = max(2, KILLS // 4)


@contextlib.contextmanager
def driver(home: Path, chunks: int) -> Iterator[subprocess.Popen[bytes]]:
    """The program at work on Spark; whatever is left of it in the end is killed and cleared away."""
    scratch = tempfile.mkdtemp(prefix="hayase-kill-")  # not under the test's own folder: paths of sockets must be short
    command = [sys.executable, access_log.__file__, str(home), str(chunks)]
    child = subprocess.Popen(
        command, env={**os.environ, "TMPDIR": scratch}, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield child
    finally:
        kill_tree(child)
        shutil.rmtree(scratch, ignore_errors=True)


@pytest.mark.timeout(120 + 60 * DEATHS)
def test_a_monitor_that_is_killed_finds_what_a_plain_program_does(spark: SparkSession, tmp_path: Path) -> None:
    seed, chunks = random.Random(2010), 3 * DEATHS + 2
    access_log.monitor(tmp_path, buckets=2)
    for _ in range(DEATHS):
        with driver(tmp_path, chunks) as child:
            aim = version(tmp_path) + seed.randint(2, 5)
            assert until(lambda aim=aim: version(tmp_path) >= aim, child), "there is more to do"  # type: ignore[misc]
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(seed.random() * 0.3)
    access_log.work(tmp_path, chunks, session=spark)
    access_log.check(access_log.monitor(tmp_path, buckets=2), access_log.log_of(chunks))
