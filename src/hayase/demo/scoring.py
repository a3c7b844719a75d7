"""The operation of the demo: how risky is an order? Some orders are more than it can bear.

`mended` is the same without the faults: `hayase ops update scores --from-file ...` puts it in place while the shop runs.
"""

from __future__ import annotations

import os
import time
from typing import Any

__all__ = ["risk", "score"]


def risk(order: dict[str, Any]) -> int:
    """From 0 to 99: expensive orders, and those that only fill a basket, are less to be trusted."""
    return int(min(99, order["amount"] // 500 + (20 if order["type"] == "basket" else 0)))


def score(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The score of one order. A function of yours may do worse than this one; the pipeline goes on."""
    (order,) = records
    if order["item"] == "cursed mirror":
        raise ValueError("nobody can say what a cursed mirror is worth")
    if order["item"] == "paper dragon":
        os._exit(13)  # the process is gone
    if order["item"] == "endless scarf":
        time.sleep(3600)  # it does not come back within the time limit
    return {"uuid": order["uuid"], "user_id": order["user_id"], "score": risk(order)}
