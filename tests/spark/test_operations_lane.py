"""Operations on Spark: beside the main lane, changed while they run, hurt by their own functions, on a pool that grows."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import hayase as hy
import marking
from hayase.core.stages import MAIN
from hayase.engine.batch.gate import FileGate
from hayase.engine.batch.lane_governor import governor_statuses
from hayase.engine.definition.governor_dial import set_dial
from hayase.engine.definition.operation_changes import add_operation, remove_operation, update_operation
from hayase.engine.spark import lane
from hayase.engine.spark.lanes import Lanes
from hayase.engine.spark.runner import run_lanes

pytestmark = pytest.mark.spark
HERE = str(Path(marking.__file__).parent)


def shop(home: Path) -> hy.Pipeline:
    p = hy.Pipeline("shop", home=home, buckets=2)
    p.stream("events", schema="at bigint not null, user string, amount bigint", time="at", time_unit="us", slack=5)
    return p


def events(first: int, last: int) -> list[dict[str, Any]]:
    dice = random.Random(first)
    amounts = (None, 1, 2, 3, marking.RAISE, marking.EXIT)
    return [{"at": at, "user": dice.choice("abc"), "amount": dice.choice(amounts)} for at in range(first, last)]


def until(condition: Callable[[], bool], lanes: Lanes, patience: float = 1200.0) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        lanes.check()
        assert time.monotonic() < deadline, "the lanes make no progress"
        time.sleep(0.02)


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(str, rows))


@pytest.mark.usefixtures("spark")
def test_what_goes_from_lane_to_lane_is_what_it_is_without_spark(tmp_path: Path) -> None:
    pipelines = []
    for name in ("with", "without"):
        p = shop(tmp_path / name)
        p.query("known", "select user, amount from events where amount is not null")
        p.operation(marking.mark, reads="known", writes="marks", schema=marking.MARKS, attempts=2, pause=0)
        p.operation(
            marking.count, reads=["marks"], writes="counts", key="user", window=4, schema="n bigint, users string"
        )
        p.query("totals", "select users, sum(n) as n from counts group by users")
        p.append("events", events(0, 400))
        p.finish("events")
        p.apply()
        pipelines.append(p)
    with_spark, without = pipelines
    viewed: list[dict[str, Any]] = []

    @with_spark.view("counts")
    def look(records: list[dict[str, Any]]) -> None:
        viewed.extend(records)

    with_spark.run_until_idle()
    without.run_until_idle(spark=False)
    assert texts(viewed) == texts(with_spark.results("counts").rows())
    for name in ("marks", "counts"):
        one, other = (texts(each.results(name).rows()) for each in pipelines)
        assert one == other, name
        assert one
    assert with_spark.query("totals").intervals() == without.query("totals").intervals()
    letters = [
        sorted((row["stage"], row["stream"], row["offset"] is None, row["record"], row["attempts"]) for row in letters)
        for letters in (each.dead_letters() for each in pipelines)
    ]
    assert letters[0] == letters[1]
    assert {row[-1] for row in letters[0]} == {2}
    for figures in with_spark.progress().totals.values():
        assert figures.read == figures.processed + figures.dead + figures.waiting


def test_operations_come_change_and_go_while_others_do_not_notice(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = shop(tmp_path)
    p.query("copies", "select user, amount from events")
    p.append("events", events(0, 50))
    p.apply()
    options = {"reads": "events", "attempts": 1, "schema": marking.MARKS}
    with run_lanes(p.home, session=spark) as lanes:
        until(lanes.is_idle, lanes)  # no lane of operations yet
        monkeypatch.setattr(lane, "task_slots", lambda session: 5)  # an executor has come
        until(lambda: FileGate(p.home.gate(MAIN)).feedback().slots == 5, lanes)
        add_operation(p.home, "steady", {**options, "function": "marking:mark"}, HERE)
        add_operation(p.home, "marks", {**options, "function": "marking:mark"}, HERE)
        for number in range(1, 13):
            p.append("events", events(50 * number, 50 * number + 50))
            if number == 6:
                until(lambda: len(p.results("marks").rows()) > 0, lanes)
                update_operation(p.home, "marks", {"function": "marking:mark_better"}, HERE)
            time.sleep(0.1)
        until(lanes.is_idle, lanes)
        with pytest.raises(hy.HayaseError):
            update_operation(p.home, "marks", {"function": "marking:nowhere"}, HERE)
        remove_operation(p.home, "marks")
        p.append("events", events(650, 700))
        until(lanes.is_idle, lanes)
    good = [each for number in range(14) for each in events(50 * number, 50 * number + 50)]
    good = [each for each in good if each["amount"] not in marking.BAD]
    steady = [{name: row[name] for name in ("at", "user", "amount")} for row in p.results("steady").rows()]
    assert Counter(map(str, steady)) == Counter(map(str, good)), "whatever happened to the other"
    rows = _rows(p, "marks")
    marked = [{name: row[name] for name in ("at", "user", "amount")} for row in rows]
    assert Counter(map(str, marked)) == Counter(str(each) for each in good if each["at"] < 650)
    old, new = ([row["at"] for row in rows if (row["mark"] == "better") is better] for better in (False, True))
    assert old, "some under the old version"
    assert new, "some under the new one"
    assert max(old) < min(new), "and the change between two batches"
    copies = p.results("copies").table().num_rows
    assert copies == 700


def test_the_dial_reaches_lanes_that_run(spark: SparkSession, tmp_path: Path) -> None:
    p = shop(tmp_path)
    p.query("copies", "select user, amount from events")
    p.operation(marking.mark, reads="events", writes="marks", schema=marking.MARKS, attempts=1)
    p.append("events", events(0, 50))
    p.apply()

    def dials() -> set[float | None]:
        seen = governor_statuses(p.home)
        return {status.u for status in seen} if len(seen) == 2 else set()

    with run_lanes(p.home, session=spark) as lanes:
        until(lambda: dials() == {0.97}, lanes)
        set_dial(p.home, 0.25)
        p.append("events", events(50, 100))
        until(lambda: dials() == {0.25}, lanes)
        until(lanes.is_idle, lanes)
    assert p.results("copies").table().num_rows == 100
    processed = [each for first in (0, 50) for each in events(first, first + 50) if each["amount"] not in marking.BAD]
    assert len(p.results("marks").rows()) == len(processed)


def _rows(p: hy.Pipeline, name: str) -> list[dict[str, Any]]:
    """The records of a stream that is no longer declared."""
    from hayase.streams import StreamLog

    log = StreamLog.open(p.home.path, name)
    return [row for piece in log.read(0, log.index().next) for row in piece.rows.to_pylist()]


# ------------------------------------------------------------------------------------------------ a pool that grows

DRIVER = """
import sys, time
from pathlib import Path
import hayase as hy
from hayase.engine.spark.runner import run_lanes
from hayase.engine.spark.session import open_session, task_slots

home, master = Path(sys.argv[1]), sys.argv[2]
p = hy.Pipeline("pool", home=home, buckets=4)
p.stream("queue", schema="at bigint not null", time="at", time_unit="us")
p.operation("waiting:wait", reads="queue", writes="done", schema="pid bigint, began double, ended double")
p.apply()
session = open_session(master, settings={"spark.executor.memory": "512m"})
sent = 0
with run_lanes(p.home, session=session) as lanes:
    while not ((home / "enough").exists() and lanes.is_idle()):
        lanes.check()
        (home / "slots").write_text(str(task_slots(session)))
        if lanes.is_idle():
            p.append("queue", [{"at": at} for at in range(sent, sent + 40)])
            sent += 40
        time.sleep(0.1)
"""
WAITING = """
import os, time

def wait(records):
    began = time.time()
    time.sleep(0.02)
    return {"pid": os.getppid(), "began": began, "ended": time.time()}
"""


@contextmanager
def spark_process(kind: str, *arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A master or a worker of a cluster on this machine."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", *arguments]
    with log.open("ab") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.long
def test_a_slot_that_is_added_while_it_runs_is_used(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(WAITING)
    (tmp_path / "driver.py").write_text(DRIVER)
    home, log = tmp_path / "home", tmp_path / "cluster.log"
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    worker = ["--webui-port", "0", "--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work"), master]
    with (
        spark_process("master.Master", "--port", str(port), "--webui-port", "0", log=log),
        spark_process("worker.Worker", *worker, log=log),
    ):
        command = [sys.executable, str(tmp_path / "driver.py"), str(home), master]
        driver = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
        log_of_done = hy.Pipeline("pool", home=home)

        def wait(condition: Callable[[], bool]) -> None:
            while not condition():
                assert driver.poll() is None, log.read_text()[-2000:]
                time.sleep(0.1)

        try:
            wait(lambda: _most_at_once(log_of_done) > 0)
            assert _most_at_once(log_of_done) <= 2
            with spark_process("worker.Worker", *worker, log=log):
                wait(lambda: _most_at_once(log_of_done) == 4)
                assert (home / "slots").read_text() == "4"
                (home / "enough").touch()
                assert driver.wait() == 0
        finally:
            driver.kill()
            driver.wait()
    assert _most_at_once(log_of_done) == 4, "as many functions at once as there are slots in the end"


def _most_at_once(p: hy.Pipeline) -> int:
    """The greatest number of functions that ran at the same time."""
    if not (p.home.path / "streams" / "done" / "stream.json").exists():
        return 0
    rows = _rows(p, "done")
    moments = sorted([(row["began"], 1) for row in rows] + [(row["ended"], -1) for row in rows])
    return max(accumulate(change for _, change in moments), default=0)
