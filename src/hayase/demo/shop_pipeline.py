"""The shop's pipeline: two streams, and one of everything that Hayase can make of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hayase.demo import access, scoring
from hayase.demo.events import BLOCKED, SLACK
from hayase.pipeline import Pipeline
from hayase.tables import Counter, MapCounter, ORSet, Register

__all__ = ["SPREE", "fill_blocklist", "shop_pipeline"]

SPREE = 100_000
"""Yen in ten minutes: whoever spends as much is on a spree."""
SPREES = """
select user_id, count(*) as orders, sum(amount) as spent
from orders [Range 10 minutes]
where type = 'purchase'
group by user_id
having sum(amount) >= 100000
"""
REVENUE = """
select count(*) as orders, sum(amount) as revenue, max(amount) as largest
from orders [Range 1 minute, 10 minutes, 1 hour Slide 1 minute]
where type = 'purchase'
"""
RULES = """
source: orders
rules:
  - when: .type == "purchase"
    tables:
      purchases:
        key: .user_id
        columns:
          orders: "1"
          total: .amount
          last_purchase_time: .time
          by_day: "{(.time[:10]): .amount}"
          basket: {remove: .item}
  - when: .type == "basket"
    tables:
      purchases: {key: .user_id, columns: {basket: {add: .item}}}
"""


def shop_pipeline(home: Path, clock: Callable[[], int] | None = None) -> Pipeline:
    """The pipeline, declared as anybody would."""
    p = Pipeline("shop", home=home, clock=clock)
    p.stream(
        "orders",
        schema="time timestamp, uuid string, type string, user_id string, item string, amount bigint",
        time="time",
        id="uuid",
        slack=SLACK,
    )
    p.stream("lines", schema="time timestamp, line string", time="time", slack=SLACK)
    p.query("spree", SPREES)
    p.query("revenue", REVENUE)
    p.table(
        "purchases", key="user_id", fold_after="6 hours",
        orders=Counter(), total=Counter(), last_purchase_time=Register(), by_day=MapCounter(), basket=ORSet(),
    )  # fmt: skip
    p.rules(text=RULES)
    p.table("blocklist", key="address", reason=Register())
    traffic = p.job("traffic", reads="lines", every="1 second")
    traffic.map(access.parse, schema="address string, status int", key="address")
    traffic.reduce(key="address", hits="count(*)")
    blocked = p.job("blocked", reads="traffic", every="1 second")
    blocked.merge("blocklist", access.refuse, schema="address string, hits bigint, reason string", key="address")
    p.operation(
        scoring.score, reads="orders", writes="scores", schema="uuid string, user_id string, score int",
        attempts=2, pause="10 ms", time_limit="500 ms",
    )  # fmt: skip
    return p


def fill_blocklist(pipeline: Pipeline) -> int:
    """Load the blocklist, as `hayase groups load` does from a file; how many addresses it has."""
    rows = [{"address": address, "reason": reason} for address, reason in BLOCKED.items()]
    rows += [{"address": f"172.16.{n // 250}.{n % 250}", "reason": "was rude in 2019"} for n in range(5_000)]
    pipeline.table("blocklist").load(rows)
    return len(rows)
