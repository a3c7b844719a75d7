"""A small shop for tests of the commands that ask a home: a stream, two queries, a table, and a dead letter."""

from __future__ import annotations

from pathlib import Path

from hayase.pipeline import Pipeline

__all__ = ["PIPELINE", "order", "shop_in"]

PIPELINE = """
pipeline: shop
home: home
streams:
  orders: {schema: "time timestamp, id string, user string, amount double", time: time, id: id}
queries:
  spend: select user, sum(amount) as total from orders [Range 1 minute] group by user
  top: select user, sum(amount) as total from orders group by user order by total desc limit 10
  large: select user, amount from orders where amount > 5
tables:
  purchases: {key: user, columns: {total: Counter, last: Register}}
rules:
  source: orders
  branches:
    - tables: {purchases: {key: .user, columns: {total: .amount, last: .time}}}
"""


def order(second: int, user: str, amount: object) -> dict[str, object]:
    """An order at a second of the first minute of 2026."""
    return {"time": f"2026-01-01T00:00:{second:02d}Z", "id": f"{second}", "user": user, "amount": amount}


def shop_in(directory: Path) -> Pipeline:
    """Declare the shop in a directory, give it nine orders, of which one is refused, and run it."""
    (directory / "pipeline.yaml").write_text(PIPELINE)
    pipeline = Pipeline.from_file(directory / "pipeline.yaml")
    users = ("taro", "hana", "mei")
    pipeline.append("orders", [order(at, users[at % 3], at) for at in range(8)])
    pipeline.append("orders", [order(8, "taro", "a lot")])
    pipeline.run_until_idle(spark=False)
    return pipeline
