"""The whole shop on Spark: killed twice, an operation changed while it runs, and every output what plain Python says."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from campaign.processes import kill_tree
from hayase.core.stages import MAIN, OPERATIONS
from hayase.demo import scoring_fix
from hayase.demo.events import FAULTY_ITEMS
from hayase.demo.result_check import check_results
from hayase.demo.sender import Sent
from hayase.demo.shop_pipeline import shop_pipeline
from hayase.engine.commit.manifests import Commits, Manifest
from hayase.engine.definition.definitions import latest_version
from hayase.engine.home import Home

pytestmark = [pytest.mark.spark, pytest.mark.long]  # `make test` runs the demo whole, and kills pipelines elsewhere
PATIENCE = 1200.0
HAYASE = str(Path(sys.executable).with_name("hayase"))
DEMO = """
import sys
from pathlib import Path
from hayase.demo.runner import Options, run_demo
options = Options(home=Path(sys.argv[1]), plain=True, fast=True, ticks=int(sys.argv[2]), keep=sys.argv[3] == "keep")
sys.exit(not run_demo(options))
"""


@contextlib.contextmanager
def demo(home: Path, ticks: int, end: str) -> Iterator[subprocess.Popen[bytes]]:
    """The demo at work; whatever is left of it in the end is killed and cleared away."""
    scratch = tempfile.mkdtemp(
        prefix="hayase-kill-", dir="/tmp"
    )  # not under the test's own folder: paths of sockets must be short
    child = subprocess.Popen(
        [sys.executable, "-c", DEMO, str(home), str(ticks), end],
        env={**os.environ, "TMPDIR": scratch},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield child
    finally:
        kill_tree(child)
        shutil.rmtree(scratch, ignore_errors=True)


def until(condition: Callable[[], bool], child: subprocess.Popen[bytes]) -> None:
    """Wait for a condition, with few looks, while the child lives."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert child.poll() is None, f"the demo ended with {child.returncode}"
        assert time.monotonic() < deadline, "the demo makes no progress"
        time.sleep(0.1)


def committed(home: Path, lane: str) -> Manifest:
    return Commits(Home(home), lane).latest()


def hayase(*words: str) -> None:
    done = subprocess.run([HAYASE, *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(3600)
def test_a_shop_that_is_killed_and_changed_gives_what_plain_python_does(tmp_path: Path) -> None:
    with demo(tmp_path, 50, "keep") as child:
        until(lambda: committed(tmp_path, OPERATIONS).version >= 1, child)
    killed_at = committed(tmp_path, MAIN).version
    with demo(tmp_path, 90, "keep") as child:
        until(lambda: committed(tmp_path, MAIN).version > killed_at, child)
        hayase("ops", "update", "scores", "--from-file", scoring_fix.__file__, "--home", str(tmp_path))
        changed = latest_version(Home(tmp_path))
        until(lambda: committed(tmp_path, OPERATIONS).offset.definition == changed, child)
        hayase("dead", "replay", "--stage", "scores", "--yes", "--home", str(tmp_path))
    with demo(tmp_path, 130, "close") as child:  # goes on from the files, and checks the results
        assert child.wait(PATIENCE) == 0

    pipeline = shop_pipeline(tmp_path)
    report = check_results(pipeline, Sent(), pipeline.progress().totals)
    assert {each.name for each in report.outputs if each.good is None} == {"scores"}
    assert [each for each in report.outputs if each.good is False] == []
    assert report.good

    orders = pipeline.results("orders").table().to_pylist()
    refused = [each["offset"] for each in pipeline.dead_letters() if each["stage"] == "scores"]
    unbearable = {at for at, each in enumerate(orders) if each["item"] in FAULTY_ITEMS or each["amount"] is None}
    assert len(set(refused)) == len(refused)
    assert set(refused) < unbearable, "those of before the change, and none of after it"
    wanted = Counter((each["time"], *scoring_fix.score([each]).values()) for each in orders)
    assert Counter(tuple(row.values()) for row in pipeline.results("scores").rows()) == wanted
