"""The operation of the demo: it scores how risky an order is. It fails on some orders, to show what happens then.

`scoring_fix` is a version without the faults; `hayase ops update scores --from-file ...` installs it while the shop runs.
"""

from __future__ import annotations

import os
import time
from typing import Any

__all__ = ["risk", "score"]


def risk(order: dict[str, Any]) -> int:
    """Return the risk from 0 to 99: expensive orders and orders that only fill a basket are riskier."""
    return int(min(99, order["amount"] // 500 + (20 if order["type"] == "basket" else 0)))


def score(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the score of one order. Whatever this function does, the pipeline goes on."""
    (order,) = records
    if order["item"] == "cursed mirror":
        raise ValueError("nobody can say what a cursed mirror is worth")
    if order["item"] == "paper dragon":
        os._exit(13)  # the process is gone
    if order["item"] == "endless scarf":
        time.sleep(3600)  # exceeds the time limit
    return {"uuid": order["uuid"], "user_id": order["user_id"], "score": risk(order)}
