"""The wall clock: the one place that reads it. Logic takes the time as an argument, and gets it from here at the edge."""

from __future__ import annotations

import time

__all__ = ["now_us"]


def now_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000
