"""Counters of the HTTP server: requests by route, method and status, their time, and those in progress."""

from __future__ import annotations

from collections import Counter, defaultdict

__all__ = ["HttpFigures"]


class HttpFigures:
    """The counters, changed in the thread of the event loop only."""

    def __init__(self) -> None:
        self.running = 0
        """Requests in progress, including streams of events."""
        self.listening = 0
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
