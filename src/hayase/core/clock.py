"""The wall clock. Only this module reads it; other code takes the time as an argument."""

from __future__ import annotations

import time

__all__ = ["now_us"]


def now_us() -> int:
    """Return the current time in microseconds since 1970, UTC."""
    return time.time_ns() // 1000
