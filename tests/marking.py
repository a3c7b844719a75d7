"""Operations of the small shop: functions that fail in every way for some of the events."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from typing import Any

EXIT, RAISE, CRASH, HANG = 5, 8, 13, 21
"""Amounts for which `mark` ends its process, raises, faults and does not come back."""
BAD = (EXIT, RAISE, CRASH, HANG)
MARKS = "user string, amount bigint, mark string"


def mark(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The one record of a window, marked."""
    [record] = records
    amount = record["amount"]
    if amount == RAISE:
        raise ValueError("eight")
    if amount == EXIT:
        os._exit(7)
    if amount == CRASH:
        ctypes.string_at(0)
    if amount == HANG:
        time.sleep(3600)
    return {**record, "mark": "new" if amount is None else "old"}


def mark_better(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The same by another version."""
    return {**mark(records), "mark": "better"}


def count(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How many records a window has, and of whom."""
    return {"n": len(records), "users": ",".join(sorted({each["user"] or "" for each in records}))}
