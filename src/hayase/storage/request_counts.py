"""How many requests this process has made to stores, by verb: repeats count too, since object stores charge for each."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

__all__ = ["count", "counts"]

_lock = threading.Lock()
_counts: Counter[str] = Counter()


def count(verb: str) -> None:
    """Count one request."""
    with _lock:
        _counts[verb] += 1


def counts() -> Mapping[str, int]:
    """Return the number of requests by verb; empty if this process has not used a store."""
    with _lock:
        return dict(_counts)
