"""The operation of the demo without its faults: it scores every order. To be installed while the shop runs.

Orders that became dead letters before can be processed again: `hayase dead replay --stage scores`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["score"]

DOUBTFUL = ("cursed mirror", "paper dragon", "endless scarf")


def score(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the score of one order, as `scoring.score` does; an order that cannot be scored gets the highest risk."""
    (order,) = records
    doubtful = order["item"] in DOUBTFUL or order["amount"] is None
    risk = 99 if doubtful else min(99, order["amount"] // 500 + (20 if order["type"] == "basket" else 0))
    return {"uuid": order["uuid"], "user_id": order["user_id"], "score": risk}
