"""Functions that the benchmarks of operations call: how long each takes and how it fails is all there is to them."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

__all__ = ["SERVICE", "SHORT", "lasting", "newer", "older", "poisonous", "serve", "trivial"]

SERVICE = 0.02
"""Seconds that `serve` sleeps, which costs no CPU time: many workers fit on few cores."""
SHORT = 0.001
"""Seconds that the others sleep."""

Window = list[dict[str, Any]]


def trivial(records: Window) -> dict[str, Any]:
    """As little as a function can do."""
    return {"number": records[-1]["number"]}


def serve(records: Window) -> dict[str, Any]:
    """A slow one."""
    time.sleep(SERVICE)
    return {"number": records[-1]["number"]}


def lasting(records: Window) -> dict[str, Any]:
    """One that takes as many milliseconds as the record says, which costs no CPU time."""
    time.sleep(float(records[-1]["kind"]) / 1000)
    return {"number": records[-1]["number"]}


def poisonous(records: Window) -> dict[str, Any]:
    """A quick one that fails in every way, as the record says."""
    record = records[-1]
    time.sleep(SHORT)
    match record["kind"]:
        case "raise":
            raise ValueError(f"poison {record['number']}")
        case "exit":
            os._exit(3)
        case "fault":
            ctypes.string_at(0)
        case "hang":
            time.sleep(3600)
    return {"number": record["number"]}


def older(records: Window) -> dict[str, Any]:
    """What an operation is before it is changed."""
    time.sleep(SHORT)
    return {"number": records[-1]["number"], "version": "older"}


def newer(records: Window) -> dict[str, Any]:
    """What it is afterwards."""
    time.sleep(SHORT)
    return {"number": records[-1]["number"], "version": "newer"}
