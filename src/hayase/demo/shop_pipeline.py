"""The shop's pipeline: two streams, and one of everything that Hayase can compute from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import hayase as hy
from hayase.demo import access, scoring
from hayase.demo.events import BLOCKED, SLACK

__all__ = ["SPREE", "fill_blocklist", "shop_pipeline"]

SPREE = 100_000
"""Yen: a customer who spends as much within ten minutes is on a spree; the query `spree` has the same number."""


def shop_pipeline(home: Path, clock: Callable[[], int] | None = None) -> hy.Pipeline:
    """Declare the pipeline in a home; `clock` gives the wall-clock time in microseconds, for tests."""
    p = hy.Pipeline("shop", home=home, clock=clock)

    # Two streams. Records may be up to 30 seconds late; later ones become dead letters of the stages that need order.
    orders = "time timestamp, uuid string, type string, user_id string, item string, amount bigint"
    p.stream("orders", schema=orders, time="time", id="uuid", slack=SLACK)
    p.stream("lines", schema="time timestamp, line string", time="time", slack=SLACK)

    # Two continuous queries. Their results are exact at every instant of event time.
    p.query(
        "spree",
        """
        select user_id, count(*) as orders, sum(amount) as spent
        from orders [Range 10 minutes]
        where type = 'purchase'
        group by user_id
        having sum(amount) >= 100000
        """,
    )
    p.query(
        "revenue",
        """
        select count(*) as orders, sum(amount) as revenue, max(amount) as largest
        from orders [Range 1 minute, 10 minutes, 1 hour Slide 1 minute]
        where type = 'purchase'
        """,
    )

    # A conflict-free table of customers, updated by rules: late and repeated orders give the same rows.
    p.table(
        "purchases",
        key="user_id",
        fold_after="6 hours",
        orders=hy.Counter(),
        total=hy.Counter(),
        last_purchase_time=hy.Register(),
        by_day=hy.MapCounter(),
        basket=hy.ORSet(),
    )
    p.rules(
        text="""
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
    )

    # Two MapReduce jobs: count requests by address each second, and merge the counts with a stored blocklist.
    p.table("blocklist", key="address", reason=hy.Register())
    traffic = p.job("traffic", reads="lines", every="1 second")
    traffic.map(access.parse, schema="address string, status int", key="address")
    traffic.reduce(key="address", hits="count(*)")
    blocked = p.job("blocked", reads="traffic", every="1 second")
    blocked.merge("blocklist", access.refuse, schema="address string, hits bigint, reason string", key="address")

    # An operation: a Python function in a process of its own, tried twice, for at most half a second.
    scores = "uuid string, user_id string, score int"
    p.operation(
        scoring.score, reads="orders", writes="scores", schema=scores, attempts=2, pause="10 ms", time_limit="500 ms"
    )
    return p


def fill_blocklist(pipeline: hy.Pipeline) -> int:
    """Load the blocklist, as `hayase groups load` does from a file; return the number of addresses."""
    rows = [{"address": address, "reason": reason} for address, reason in BLOCKED.items()]
    rows += [{"address": f"172.16.{n // 250}.{n % 250}", "reason": "was rude in 2019"} for n in range(5_000)]
    pipeline.table("blocklist").load(rows)
    return len(rows)
