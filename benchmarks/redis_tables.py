"""Redis as anybody would use it in place of a table: the three columns of figure 8, updated in pipelines of 1,000 events.

An event is HSET of the last time, INCRBYFLOAT of the total and HINCRBYFLOAT of the day's sum. That is less than a table
does: the last time is the one that came last, not the latest, a repeated event counts again, and nothing can be read as
of a time before. Checking versions would take a script per event and be slower.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["HOW_TO_GET_IT", "Updates", "feed", "missing", "server"]

HOW_TO_GET_IT = "there is no redis-server; `apt install redis-server` brings it, and it need not run as a service"
PER_PIPELINE = 1_000

Updates = tuple[Sequence[str], Sequence[str], Sequence[int], Sequence[str]]
"""Of each event the user, the time, the amount and the day."""


def missing() -> str | None:
    """Why the comparison cannot be made here, if so."""
    if shutil.which("redis-server") is None:
        return HOW_TO_GET_IT
    try:
        import redis  # noqa: F401
    except ImportError:
        return "there is no client for Redis; `pip install redis` brings it"
    return None


@contextmanager
def server(directory: Path, *, append_only: bool) -> Iterator[Any]:
    """A client of a fresh server on the loopback interface: in memory only, or with a log that is synced every second."""
    import redis

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = ["--appendonly", "yes", "--appendfsync", "everysec"] if append_only else ["--appendonly", "no"]
    options = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(directory), "--daemonize", "no"]
    process = subprocess.Popen(["redis-server", *options, *log], stdout=subprocess.DEVNULL)
    client = redis.Redis(host="127.0.0.1", port=port)
    try:
        _wait(client, process)
        yield client
    finally:
        client.close()
        process.terminate()
        process.wait()


def _wait(client: Any, process: subprocess.Popen[bytes]) -> None:
    import redis

    until = time.monotonic() + 20
    while True:
        try:
            client.ping()
            return
        except redis.ConnectionError:
            if process.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.02)


def feed(client: Any, updates: Updates) -> float:
    """Update by all events, one pipeline after the other; how many events a second."""
    users, times, amounts, days = updates
    began = time.perf_counter()
    for first in range(0, len(users), PER_PIPELINE):
        last = first + PER_PIPELINE
        pipeline = client.pipeline(transaction=False)
        for user, moment, amount, day in zip(
            users[first:last], times[first:last], amounts[first:last], days[first:last]
        ):
            pipeline.hset(f"purchase:{user}", "last_purchase_time", moment)
            pipeline.incrbyfloat(f"total:{user}", amount)
            pipeline.hincrbyfloat(f"by_day:{user}", day, amount)
        pipeline.execute()
    return len(users) / (time.perf_counter() - began)
