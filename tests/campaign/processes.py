"""The processes of a round: who is who in the tree below `hayase run`, signals to them, and whoever is left of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable

import psutil

__all__ = ["MARK", "alive", "belonging", "clear_away", "kill_tree", "parts", "recorders", "send", "tree"]

MARK = "HAYASE_CAMPAIGN"
"""The environment variable by which the processes of a round are known, also those whose parents are gone."""


def tree(process_id: int) -> list[psutil.Process]:
    """A process and all below it, parents first; nothing if it is gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(process_id)
        return [process, *process.children(recursive=True)]
    return []


PARTS = (
    "driver",
    "jvm",
    "fork server",
    "launcher",
    "daemon",
    "worker",
    "planner",
    "operation",
    "executor",
    "other",
)
"""What a process of a run is."""


def parts(process_id: int) -> dict[str, list[psutil.Process]]:
    """The processes of a running pipeline by what they do."""
    found: dict[str, list[psutil.Process]] = {name: [] for name in PARTS}
    kinds: dict[int, str] = {}
    for process in tree(process_id):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            kind = _kind(process, process_id, kinds.get(process.ppid(), ""))
            kinds[process.pid] = kind
            found[kind].append(process)
    return found


def _kind(process: psutil.Process, root: int, parent: str) -> str:
    """What a process is: by its name, which children of the fork server have set, else by its command."""
    command, name = " ".join(process.cmdline()), process.name()
    if process.pid == root:
        return "driver"
    if "CoarseGrainedExecutorBackend" in command:
        return "executor"
    if name.startswith("java"):
        return "jvm"
    if "operations.template" in command:
        return "operation"
    if "launcher.pyc" in command:
        return "launcher"
    if name == "hayase-planner" or "python_streaming_source_runner" in command:
        return "planner"
    if name == "hayase-workers" or "hayase.engine.spark.worker_daemon" in command:
        return "worker" if parent in ("daemon", "worker") else "daemon"
    if "hayase.engine.spark.fork_server" in command and parent == "driver":
        return "fork server"
    return "other"


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> int:
    """Send a signal to those that are there; returns to how many."""
    sent = 0
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.send_signal(number)
            sent += 1
    return sent


def kill_tree(child: subprocess.Popen[bytes]) -> None:
    """End a child and all below it, and wait until they are gone."""
    processes = tree(child.pid)
    send(processes, signal.SIGKILL)
    child.wait()
    psutil.wait_procs(processes, timeout=20)


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that still run; a zombie does not."""
    left = []
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if each.is_running() and each.status() != psutil.STATUS_ZOMBIE:
                left.append(each)
    return left


def belonging(mark: str) -> list[psutil.Process]:
    """Every process of a round, wherever it is in the tree of the machine."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found.append(process)
    return alive(found)


def recorders(found: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those of some processes that record a class archive, and all below them: they outlive a run on purpose, at the lowest
    priority, and nobody waits for them."""
    recording: list[psutil.Process] = []
    for each in found:
        with contextlib.suppress(psutil.Error):
            if "hayase.engine.spark.class_recorder" in each.cmdline():
                recording += tree(each.pid)
    return recording


def clear_away(mark: str, patience: float) -> list[str]:
    """Wait for the processes of a round to end by themselves; returns what had to be killed."""
    deadline = time.monotonic() + patience
    while (left := belonging(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    said = []
    for each in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            said.append(f"{each.pid}: {' '.join(each.cmdline())[:160]}")
            each.kill()
    psutil.wait_procs(left, timeout=20)
    return said
