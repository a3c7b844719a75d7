"""The process of the SQL server: it is started again when it ends by itself, and ends with its owner."""

from __future__ import annotations

import queue
import subprocess
import sys
from pathlib import Path

from hayase.wire.sql_process import KeptProcess


def start() -> subprocess.Popen[bytes]:
    """A process that ends when its standard input does, as the server."""
    return subprocess.Popen([sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)


def test_a_process_that_is_killed_is_started_again_after_growing_pauses(tmp_path: Path) -> None:
    lines: queue.Queue[str] = queue.Queue()
    started: queue.Queue[subprocess.Popen[bytes]] = queue.Queue()

    def starting() -> subprocess.Popen[bytes]:
        process = start()
        started.put(process)
        return process

    with KeptProcess(starting, tmp_path / "sql.log", lines.put):
        for pause in ("0.5", "1"):
            started.get(timeout=60).kill()
            told = lines.get(timeout=60)
            assert f"has ended (-9) and starts again in {pause} s; see {tmp_path / 'sql.log'}" in told
        last = started.get(timeout=60)
    assert last.returncode == 0
    assert lines.empty()


def test_an_owner_that_ends_during_a_pause_starts_nothing(tmp_path: Path) -> None:
    lines: queue.Queue[str] = queue.Queue()
    with KeptProcess(start, tmp_path / "sql.log", lines.put) as kept:
        first = kept.process
        first.kill()
        lines.get(timeout=60)
    assert kept.process is first
