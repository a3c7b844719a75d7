"""The operation of the demo, mended: it bears every order. To be put in place while the shop runs.

Orders that are dead letters by then can be given to it once more: `hayase dead replay --stage scores`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["score"]

DOUBTFUL = ("cursed mirror", "paper dragon", "endless scarf")


def score(records: list[dict[str, Any]]) -> dict[str, Any]:
    """As before; what cannot be scored is not to be trusted at all."""
    (order,) = records
    doubtful = order["item"] in DOUBTFUL or order["amount"] is None
    risk = 99 if doubtful else min(99, order["amount"] // 500 + (20 if order["type"] == "basket" else 0))
    return {"uuid": order["uuid"], "user_id": order["user_id"], "score": risk}
