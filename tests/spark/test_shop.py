"""The whole shop on Spark: killed twice, an operation changed while it runs, and every output what plain Python says."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_faults import kill_tree, until

from hayase.core.stages import MAIN, OPERATIONS
from hayase.demo import judge, mended
from hayase.demo.books import Sent, books_of
from hayase.demo.declaring import shop_pipeline
from hayase.engine.definitions import latest_version
from hayase.engine.home import Home
from hayase.engine.manifests import Commits, Manifest

pytestmark = [pytest.mark.spark, pytest.mark.kill]
HAYASE = str(Path(sys.executable).with_name("hayase"))


@contextlib.contextmanager
def demo(home: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """The demo at work; whatever is left of it in the end is killed and cleared away."""
    scratch = tempfile.mkdtemp(prefix="hayase-kill-")  # not under the test's own folder: paths of sockets must be short
    command = [HAYASE, "demo", "--plain", "--home", str(home), *options]
    child = subprocess.Popen(
        command, env={**os.environ, "TMPDIR": scratch}, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield child
    finally:
        kill_tree(child)
        shutil.rmtree(scratch, ignore_errors=True)


def committed(home: Path, lane: str) -> Manifest:
    return Commits(Home(home), lane).latest()


def hayase(*words: str) -> None:
    done = subprocess.run([HAYASE, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(300)
def test_a_shop_that_is_killed_and_changed_gives_what_plain_python_does(tmp_path: Path) -> None:
    with demo(tmp_path, "--keep") as child:
        assert until(lambda: committed(tmp_path, OPERATIONS).version >= 3, child)
    killed_at = committed(tmp_path, MAIN).version
    with demo(tmp_path, "--keep") as child:
        assert until(lambda: committed(tmp_path, MAIN).version >= killed_at + 2, child)
        hayase("ops", "update", "scores", "--from-file", mended.__file__, "--home", str(tmp_path))
        changed = latest_version(Home(tmp_path))
        assert until(lambda: committed(tmp_path, OPERATIONS).offset.definition == changed, child)
    with demo(tmp_path, "--fast") as child:  # goes on from the files, and makes the books
        until(lambda: False, child)

    pipeline = shop_pipeline(tmp_path)
    books = books_of(pipeline, Sent(), pipeline.progress().totals)
    assert {each.name for each in books.outputs if each.good is None} == {"scores"}
    assert [each for each in books.outputs if each.good is False] == []
    assert books.good

    orders = pipeline.results("orders").table().to_pylist()
    refused = [each["offset"] for each in pipeline.dead_letters() if each["stage"] == "scores"]
    unbearable = {at for at, each in enumerate(orders) if each["item"] in judge.UNBEARABLE or each["amount"] is None}
    assert len(set(refused)) == len(refused)
    assert set(refused) < unbearable, "those of before the change, and none of after it"
    hayase("dead", "replay", "--stage", "scores", "--yes", "--home", str(tmp_path))
    pipeline.run_until_idle(spark=False)
    wanted = Counter((each["time"], *mended.score([each]).values()) for each in orders)
    assert Counter(tuple(row.values()) for row in pipeline.results("scores").rows()) == wanted
