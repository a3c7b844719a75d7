"""Counters of the HTTP server: requests by route, method and status, their time, those in progress, and its processor time."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict

__all__ = ["THREADS", "HttpFigures", "processor_seconds"]

THREADS = ("serving", "health", "changes", "figures", "trials")
"""What the names of the server's threads begin with: that of the event loop, and those that work for it."""


class HttpFigures:
    """The counters, changed in the thread of the event loop only."""

    def __init__(self) -> None:
        self.running = 0
        """Requests in progress, including streams of events."""
        self.listening = 0
        self.sharing = 0
        """Requests that wait for the answer to an equal one."""
        self.answered: Counter[tuple[str, str, int]] = Counter()
        """Answers by method, route and status; the route of an unknown address is empty."""
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)

    def begin(self) -> None:
        self.running += 1

    def end(self, method: str, route: str, status: int, seconds: float) -> None:
        self.running -= 1
        method = method if method in ("GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS") else "other"
        self.answered[method, route, status] += 1
        self.seconds[method, route] += seconds


def processor_seconds() -> float | None:
    """Return the processor time of the server's threads in this process since they began; None where the system does not say."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return None
    total = 0.0
    for thread in threading.enumerate():
        if thread.ident is not None and thread.name.partition("_")[0] in THREADS and thread.is_alive():
            total += time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return total
