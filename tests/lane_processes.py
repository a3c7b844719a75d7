"""The processes of a lane on Spark, for tests that kill them, and waiting for a lane."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import psutil

from hayase.engine.spark.fork_server import NAMES
from hayase.engine.spark.lanes import Lanes

__all__ = ["fork_servers", "planner", "until", "workers"]


def until(condition: Callable[[], bool], lane: Lanes, patience: float = 600.0) -> None:
    """Wait for a condition while the lane is well."""
    deadline = time.monotonic() + patience
    while not condition():
        lane.check()
        assert time.monotonic() < deadline, "the lane makes no progress"
        time.sleep(0.01)


def running(module: str) -> list[psutil.Process]:
    """The processes that run a module for Spark: forked by the fork server, which names them, or plain interpreters."""
    running = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            command = process.cmdline()  # a zombie has none
            if command and (process.name() == NAMES[module] or command[1:3] == ["-m", module]):
                running.append(process)
    return running


def planner(lane: Lanes) -> psutil.Process:
    """The planner of the lane: one that has just been killed may still be there, and the next one is started by Spark."""
    module = "pyspark.sql.streaming.python_streaming_source_runner"
    until(lambda: len(running(module)) == 1, lane)
    return running(module)[0]


def fork_servers() -> list[psutil.Process]:
    """The fork server, if there is one: a child of this process."""
    servers = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if "hayase.engine.spark.fork_server" in process.cmdline():
                servers.append(process)
    return servers


def workers() -> list[psutil.Process]:
    """The Python workers: forked by Spark's daemon."""
    daemons = running("hayase.engine.spark.worker_daemon")
    return [process for process in daemons if process.parent() in daemons]
