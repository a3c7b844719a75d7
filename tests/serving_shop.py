"""A small shop that is served: streams, queries of both kinds, and tables with simple and composite keys."""

from __future__ import annotations

import atexit
import contextlib
import functools
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from hayase.core.access import Access
from hayase.engine.local import InProcess
from hayase.serving import Limits, Server, Status, serving
from hayase.serving.service import State
from hayase.testing import Trial, at, trial

RULES = """
source: orders
branches:
  - condition: '.amount != null'
    tables:
      - tableName: purchases
        ops:
          - {key: .user, columnName: total, method: incr, paramJq: .amount}
          - {key: .user, columnName: last, method: set, paramJq: .time}
      - tableName: by_place
        ops:
          - {key: [.country, .number], columnName: orders, method: incr, paramJq: "1"}
"""

ORDERS = [
    {"time": at(1), "uuid": "a", "user": "taro", "country": "JP", "number": 5, "amount": 3.5},
    {"time": at(2), "uuid": "b", "user": "花子/../?#%", "country": "JP", "number": 7, "amount": 1.5},
    {"time": at(3), "uuid": "c", "user": "taro", "country": "US", "number": 5, "amount": 2.0},
    {"time": at(4), "uuid": "d", "user": "..", "country": "US", "number": 5, "amount": 0.1},
    {"time": at(5), "uuid": "e", "user": "5", "country": "", "number": None, "amount": 0.2},
]


def declare(shop: Trial) -> None:
    shop.stream(
        "orders", "time timestamp, uuid string, user string, country string, number bigint, amount double", id="uuid"
    )
    shop.stream("prices", "at bigint, item string, price decimal(38,10)", time="at", time_unit="ms")
    shop.query("spend", "select user, sum(amount) as spend from orders group by user")
    shop.query("recent", "select user, amount from orders [Range 10 seconds]")
    shop.query("large", "select user, amount from orders where amount > 1")
    shop.query("costs", "select item, price from prices")
    shop.table("purchases", key="user", total="Counter", last="Register")
    shop.table("by_place", key=["country", "number"], orders="Counter")
    shop.rules(text=RULES)


@dataclass
class Shop:
    """A home that is being served, and a client of it."""

    pipeline: Trial
    status: Status
    server: Server
    http: httpx.Client
    runner: InProcess

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.http.get(path, **more)

    def run(self) -> None:
        """Run the pipeline on what was appended; the server goes on meanwhile."""
        self.status.committed(self.runner.run_until_idle())


@functools.cache
def built() -> Path:
    """A home with the orders taken in, to be copied."""
    path = Path(tempfile.mkdtemp(prefix="hayase-shop-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    with trial("shop", home=path) as pipeline:
        declare(pipeline)
        pipeline.append("orders", ORDERS)
        pipeline.append("prices", [{"at": 1_000, "item": "tea", "price": "12345678901234567890.5"}])
        pipeline.run()
    return path


@contextlib.contextmanager
def shop(
    path: Path, *, token: str | None = None, limits: Limits | None = None, state: State = "running"
) -> Iterator[Shop]:
    """The shop with its orders taken in."""
    with trial("shop", home=path) as pipeline:
        declare(pipeline)
        if not (path / "commits").exists():
            shutil.copytree(built(), path, dirs_exist_ok=True)
        with contextlib.closing(InProcess(pipeline.home, pipeline.clock)) as runner:
            status = Status(state, None if state == "starting" else runner.manifest)  # it is told when it has recovered
            with serving(
                pipeline.home, "127.0.0.1:0", tables=runner.tables, status=status, access=Access(token), limits=limits,
                clock=pipeline.clock,
            ) as server, httpx.Client(base_url=server.url, trust_env=False) as http:  # fmt: skip
                yield Shop(pipeline, status, server, http, runner)
