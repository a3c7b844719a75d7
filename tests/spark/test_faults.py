"""Whole process trees killed with `kill -9` at seeded moments, and an executor of a cluster: every event counts once.

`HAYASE_KILLS` says how often the first test kills; `make test-kill` sets it to 20.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kill
import psutil
import pytest

import hayase as hy
import marking
from hayase.core.stages import MAIN
from hayase.engine.home import Home
from hayase.engine.manifests import Commits
from shop import check, check_windowed, expected

pytestmark = [pytest.mark.spark, pytest.mark.kill]
KILLS = int(os.environ.get("HAYASE_KILLS", "5"))
PATIENCE = 120.0


def until(condition: Callable[[], bool], child: subprocess.Popen[bytes]) -> bool:
    """Wait for a condition while a child lives; whether it came true. A child that fails, or hangs, fails the test."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        code = child.poll()
        if code is not None:
            assert code == 0, f"the driver ended with {code}"
            return False
        assert time.monotonic() < deadline, "the driver makes no progress"
        time.sleep(0.01)
    return True


def tree(child: subprocess.Popen[bytes]) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(child.pid)
        return [process, *process.children(recursive=True)]
    return []


def command_of(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return " ".join(process.cmdline())
    return ""


def kill_tree(child: subprocess.Popen[bytes]) -> None:
    processes = tree(child)
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    child.wait()
    psutil.wait_procs(processes, timeout=20)


@contextlib.contextmanager
def driver(home: Path, chunks: int, master: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """The program at work; whatever is left of it in the end is killed and cleared away."""
    scratch = tempfile.mkdtemp(prefix="hayase-kill-")  # not under the test's own folder: paths of sockets must be short
    command = [sys.executable, str(Path(kill.__file__)), str(home), str(chunks), *([master] if master else [])]
    child = subprocess.Popen(
        command,
        env={**os.environ, "TMPDIR": scratch, "SPARK_WORKER_DIR": f"{scratch}/work"},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield child
    finally:
        kill_tree(child)
        shutil.rmtree(scratch, ignore_errors=True)


def version(home: Path) -> int:
    return Commits(Home(home), MAIN).latest().version


def check_whole(home: Path, chunks: int) -> None:
    pipeline, events = kill.pipeline_at(home), kill.events(chunks)
    check(pipeline, expected(events, kill.SLACK, finished=True), kill.MODELLED)
    check_windowed(pipeline, events, kill.SLACK, home.with_name(f"{home.name}-unkilled"))
    check_marks(pipeline, [each.row() for each in events])


def check_marks(pipeline: hy.Pipeline, events: list[dict[str, Any]]) -> None:
    """Every good event is marked once, every bad one is in the dead letters once."""
    good = [each for each in events if each["amount"] not in marking.BAD]
    marks = [{name: row[name] for name in ("at", "user", "amount")} for row in pipeline.results("marks").rows()]
    assert Counter(map(str, marks)) == Counter(map(str, good))
    letters = [row["offset"] for row in pipeline.dead_letters() if row["stage"] == "marks"]
    assert sorted(letters) == [offset for offset, each in enumerate(events) if each["amount"] in marking.BAD]


@pytest.mark.timeout(90 + 60 * KILLS)
def test_the_whole_tree_killed_at_seeded_moments(tmp_path: Path) -> None:
    seed, chunks = random.Random(2026), 5 * KILLS
    for _ in range(KILLS):
        with driver(tmp_path, chunks) as child:
            aim = version(tmp_path) + seed.randint(1, 4)
            moment = seed.random() * 0.3
            if not until(lambda aim=aim: version(tmp_path) >= aim, child):  # type: ignore[misc]
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(moment)
    with driver(tmp_path, chunks) as child:
        until(lambda: False, child)
    check_whole(tmp_path, chunks)


@pytest.mark.timeout(300)
def test_an_executor_of_a_cluster_killed_and_then_everything(tmp_path: Path) -> None:
    chunks = 12
    with driver(tmp_path, chunks, "local-cluster[2,1,1024]") as child:
        assert until(lambda: version(tmp_path) >= 2, child)
        executors = [each for each in tree(child) if "CoarseGrainedExecutorBackend" in command_of(each)]
        assert len(executors) == 2
        executors[0].kill()
        before = version(tmp_path)
        assert until(lambda: version(tmp_path) >= before + 2, child), "it goes on with the other executor"
    with driver(tmp_path, chunks, "local-cluster[2,1,1024]") as child:
        until(lambda: False, child)  # goes on from the files, and ends by itself
    check_whole(tmp_path, chunks)
