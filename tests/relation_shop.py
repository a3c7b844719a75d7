"""A pipeline whose relations must agree with each other at every version, for tests of the reader of a home."""

from __future__ import annotations

from pathlib import Path

import hayase as hy

START = 1_767_225_600  # 2026-01-01T00:00:00Z
RULES = """
source: purchases
rules:
  - tables:
      by_user: {key: .user, columns: {n: '1', spent: .amount}}
      by_amount: {key: [.amount, .user], columns: {n: '1'}}
"""


def relation_shop(home: Path, *, slack: str = "0 s") -> hy.Pipeline:
    """Purchases, two queries and two tables over all of them, and a query that gives a stream."""
    pipeline = hy.Pipeline("shop", home, buckets=2, clock=lambda: START * 1_000_000)
    pipeline.stream(
        "purchases", "id bigint, moment timestamp, user string, amount bigint",
        time="moment", id="id", slack=slack, max_ahead=None,
    )  # fmt: skip
    pipeline.query("spend", "select user, sum(amount) as spent, count(*) as n from purchases group by user")
    pipeline.query("total", "select sum(amount) as spent, count(*) as n from purchases")
    pipeline.query("big", "select user, amount from purchases where amount > 5")
    pipeline.table("by_user", "user", n=hy.Counter(), spent=hy.Counter())
    pipeline.table("by_amount", ["amount", "user"], n=hy.Counter())
    pipeline.rules(text=RULES)
    return pipeline


def moment(second: int) -> str:
    """The event time of a purchase."""
    return f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}Z"


def purchase(number: int, second: int, amount: int) -> dict[str, object]:
    """A purchase by one of three users."""
    return {"id": number, "moment": moment(second), "user": f"u{amount % 3}", "amount": amount}


def purchases(first: int, count: int) -> list[dict[str, object]]:
    """Purchases, one each second; the amount is the number of the second."""
    return [purchase(second, second, second) for second in range(first, first + count)]
