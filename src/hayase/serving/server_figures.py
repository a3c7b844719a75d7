"""Figures of the server itself: requests by route, method and status, their time, and what is going on."""

from __future__ import annotations

from collections import Counter, defaultdict

__all__ = ["HttpFigures"]


class HttpFigures:
    """Counted in the thread of the server's loop only."""

    def __init__(self) -> None:
        self.running = 0
        """Requests at hand, those that listen to events among them."""
        self.listening = 0
        self.answered: Counter[tuple[str, str, int]] = Counter()
        """By method, route and status; an empty route is that of an address where nothing is."""
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)

    def begin(self) -> None:
        self.running += 1

    def end(self, method: str, route: str, status: int, seconds: float) -> None:
        self.running -= 1
        method = method if method in ("GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS") else "other"
        self.answered[method, route, status] += 1
        self.seconds[method, route] += seconds
