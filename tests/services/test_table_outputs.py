"""The rows of a table in Kafka, PostgreSQL, Delta and a webhook: all rows first, then those of the keys that change."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from test_kafka_connectors import messages, process, run_stages, topic

import hayase as hy
from postgres_rows import new_name
from servers.kafka import Kafka
from servers.postgres import Postgres

RULES = """
source: orders
rules:
  - tables: {totals: {key: .user, columns: {total: .amount, last: .time, by_day: "{(.time[:10]): .amount}"}}}
"""


def shop(home: Path, to: Any) -> hy.Pipeline:
    p = hy.Pipeline("shop", home=home)
    p.stream("orders", "time timestamp, id string, user string, amount bigint", id="id", slack="1 day")
    p.table("totals", key="user", total="Counter", last="Register", by_day="MapCounter")
    p.rules(text=RULES)
    p.output("mart", reads="totals", to=to)
    return p


def orders(first: int, count: int, users: int = 20) -> list[dict[str, Any]]:
    return [
        {"time": f"2026-01-01T{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}Z", "id": f"e{at}", "user": f"u{at % users}",
         "amount": at}
        for at in range(first, first + count)
    ]  # fmt: skip


def totals(p: hy.Pipeline) -> dict[str, float]:
    return {row["user"]: row["total"] for row in p.table("totals").table().to_pylist()}


def test_postgres_has_the_rows_of_a_table(postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = new_name()
    monkeypatch.setenv("SHOP_DSN", postgres.dsn)
    p = shop(tmp_path / "home", hy.Postgres(dsn_env="SHOP_DSN", table=name, key="user"))

    def held() -> dict[str, float]:
        return dict(postgres.execute(f'SELECT "user", total FROM "{name}"'))

    for first, count in ((0, 100), (100, 3)):
        p.append("orders", orders(first, count))
        p.run_until_idle(spark=False)
        assert held() == totals(p)
    days = postgres.execute(f'SELECT by_day, last FROM "{name}" WHERE "user" = \'u1\'')
    assert days == [([["2026-01-01", totals(p)["u1"]]], "2026-01-01T00:01:41Z")]
    p.reset("totals", start="now")
    p.run_until_idle(spark=False)
    assert held() == totals(p) == {}
    p.append("orders", orders(103, 2))
    p.run_until_idle(spark=False)
    assert held() == totals(p) == {"u3": 103.0, "u4": 104.0}


def test_kafka_has_the_rows_of_a_table(kafka: Kafka, tmp_path: Path) -> None:
    name = topic(kafka, 1)
    p = shop(tmp_path / "home", hy.Kafka(brokers=kafka.bootstrap, topic=name, emit="upserts", key="user"))

    def held() -> dict[str | None, float]:
        found = dict(messages(kafka, name, 1))
        return {key: row["total"] for key, row in found.items() if row is not None}

    p.append("orders", orders(0, 100))
    p.run_until_idle(spark=False)
    assert len(messages(kafka, name, 1)) == 20
    p.append("orders", orders(100, 3))
    p.run_until_idle(spark=False)
    assert len(messages(kafka, name, 1)) == 23
    assert held() == totals(p)
    p.reset("totals", start="now")
    p.run_until_idle(spark=False)
    assert held() == totals(p) == {}
    p.append("orders", orders(103, 2))
    p.run_until_idle(spark=False)
    assert held() == totals(p) == {"u3": 103.0, "u4": 104.0}


def test_delta_has_the_rows_of_a_table(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    path = tmp_path / "delta"
    p = shop(tmp_path / "home", hy.Delta(str(path), emit="mirror", key="user"))
    for first, count in ((0, 100), (100, 3)):
        p.append("orders", orders(first, count))
        p.run_until_idle(spark=False)
        found = DeltaTable(str(path)).to_pyarrow_table()
        assert dict(zip(found["user"].to_pylist(), found["total"].to_pylist())) == totals(p)


@pytest.fixture
def hook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that keeps the bodies of requests."""
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", bodies
        server.shutdown()


def test_a_webhook_gets_the_rows_of_a_table(hook: tuple[str, list[dict[str, Any]]], tmp_path: Path) -> None:
    url, bodies = hook
    p = shop(tmp_path / "home", hy.Webhook(url, emit="rows", most=8))
    p.append("orders", orders(0, 100))
    p.run_until_idle(spark=False)
    assert [len(body["rows"]) for body in bodies] == [8, 8, 4]
    p.append("orders", orders(100, 3))
    p.run_until_idle(spark=False)
    assert [row["user"] for row in bodies[3]["rows"]] == ["u0", "u1", "u2"]
    assert {row["user"]: row["total"] for body in bodies for row in body["rows"]} == totals(p)


@pytest.mark.parametrize("seed", range(2))
def test_a_mirror_survives_kills(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The output is killed again and again while batches are committed: in the end PostgreSQL has the rows of the table."""
    dice, name = random.Random(seed), new_name()
    monkeypatch.setenv("SHOP_DSN", postgres.dsn)
    p = shop(tmp_path / "home", hy.Postgres(dsn_env="SHOP_DSN", table=name, key="user"))
    p.apply()
    sent = 0
    for _ in range(4):
        count = dice.randrange(100, 5_000)
        p.append("orders", orders(sent, count, users=3_000))
        sent += count
        run_stages(p)
        with process(p, "outputs", "mart") as child:
            time.sleep(dice.uniform(0.3, 2.5))
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
    p.run_until_idle(spark=False)
    assert dict(postgres.execute(f'SELECT "user", total FROM "{name}"')) == totals(p)
