"""What comes in during a connector round: orders through Kafka, changes of a table of PostgreSQL, files with log records.

All three go on while a fault strikes. What was sent is known: orders by their acknowledgement, changes of the table by triggers
that write each into a table of its own, in the same transaction.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg2
from confluent_kafka import KafkaException, Producer

from campaign.connector_endpoints import Endpoints
from servers.process import PATIENCE

__all__ = ["Traffic"]

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_KEYS = 60


@dataclass
class Traffic:
    """Sends chunk by chunk: an hour of event time each, of which the stream has everything before the next begins."""

    endpoints: Endpoints
    name: str
    files: Path
    seed: int
    chunks: int = 0
    sent: Counter[int] = field(default_factory=Counter)
    """Orders that were acknowledged, by their number."""
    unknown: set[int] = field(default_factory=set)
    """Orders of transactions of which it is not known whether they were committed."""
    logged: Counter[int] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._orders = self._logs = 0
        self._threads: list[threading.Thread] = []
        self._settings = {**self.endpoints.client(), "client.id": "traffic"}
        self._producer = Producer({
            **self._settings, "enable.idempotence": True, "message.timeout.ms": 900_000, "linger.ms": 5
        })  # fmt: skip
        self.files.mkdir(parents=True)
        self._create_table()

    def begin(self, orders: int, transactions: int, logs: int) -> None:
        """Send a chunk; it goes on while this returns."""
        dice = random.Random(f"traffic {self.seed} {self.chunks}")
        base = EPOCH + timedelta(hours=self.chunks)
        self.chunks += 1
        works = (
            (self._send_orders, (base, orders, random.Random(dice.random()))),
            (self._change_table, (transactions, random.Random(dice.random()))),
            (self._write_files, (base, logs, random.Random(dice.random()))),
        )
        for work, arguments in works:
            thread = threading.Thread(target=self._noting, args=(work, *arguments), daemon=True)
            thread.start()
            self._threads.append(thread)

    def join(self) -> None:
        """Wait until everything is sent."""
        deadline = time.monotonic() + PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            assert not thread.is_alive(), "what a chunk sends is not acknowledged"
        self._threads = []
        assert not self.failed, self.failed

    def _noting(self, work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except Exception as error:
            self.failed.append(f"{work.__name__}: {type(error).__name__}: {error}")

    # ------------------------------------------------------------------------------------------------------------ Kafka

    def _send_orders(self, base: datetime, count: int, dice: random.Random) -> None:
        """Some messages alone, some in transactions, of which some are aborted."""
        while count > 0:
            size = min(count, dice.randrange(1, 40))
            count -= size
            orders = [self._order(base, dice) for _ in range(size)]
            if dice.random() < 0.75:
                for order in orders:
                    self._producer.produce(self.name, **_message(order), on_delivery=self._acknowledged)
                    self._producer.poll(0)
                time.sleep(dice.uniform(0.0, 0.2))
            else:
                self._send_transaction(orders, abort=dice.random() < 0.4)
        assert self._producer.flush(PATIENCE) == 0

    def _order(self, base: datetime, dice: random.Random) -> dict[str, Any]:
        self._orders += 1
        at = base + timedelta(milliseconds=100 * (self._orders % 6000))
        return {
            "time": f"{at:%Y-%m-%dT%H:%M:%S.%f}Z", "id": self._orders, "user": f"u{dice.randrange(9)}",
            "amount": dice.randrange(1000),
        }  # fmt: skip

    def _acknowledged(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(f"an order was not taken: {error}")
        else:
            self.sent[json.loads(message.value())["id"]] += 1

    def _send_transaction(self, orders: list[dict[str, Any]], abort: bool) -> None:
        producer = Producer({**self._settings, "transactional.id": f"{self.name}-{orders[0]['id']}"})
        numbers = {order["id"] for order in orders}
        try:
            producer.init_transactions(PATIENCE)
            producer.begin_transaction()
            for order in orders:
                producer.produce(self.name, **_message(order))
            if abort:
                producer.flush(PATIENCE)
                producer.abort_transaction(PATIENCE)
                return
            self.unknown |= numbers
            producer.commit_transaction(PATIENCE)
        except KafkaException:  # its fault, not Hayase's: what is in the topic counts
            self.unknown |= numbers
            return
        self.unknown -= numbers
        self.sent.update(numbers)

    # ------------------------------------------------------------------------------------------------------- PostgreSQL

    def _create_table(self) -> None:
        name = self.name
        self.endpoints.postgres.execute(
            f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text, n bigint)",
            f"CREATE TABLE {name}_audit (op text, id bigint, name text, n bigint)",
            f"""CREATE FUNCTION {name}_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF TG_OP = 'TRUNCATE' THEN INSERT INTO {name}_audit SELECT '-', id, name, n FROM {name}; RETURN NULL; END IF;
                IF TG_OP <> 'INSERT' THEN INSERT INTO {name}_audit VALUES ('-', OLD.id, OLD.name, OLD.n); END IF;
                IF TG_OP <> 'DELETE' THEN INSERT INTO {name}_audit VALUES ('+', NEW.id, NEW.name, NEW.n); END IF;
                RETURN NULL; END $$""",
            f"CREATE TRIGGER rows AFTER INSERT OR UPDATE OR DELETE ON {name} FOR EACH ROW EXECUTE FUNCTION {name}_note()",
            f"CREATE TRIGGER whole BEFORE TRUNCATE ON {name} EXECUTE FUNCTION {name}_note()",
            f"INSERT INTO {name} SELECT number, repeat('x', 100), number FROM generate_series(1, 20) AS number",
        )

    def _change_table(self, transactions: int, dice: random.Random) -> None:
        """Change the table; where the server goes away, a transaction is lost or committed, and the next follows later."""
        deadline = time.monotonic() + PATIENCE
        while transactions > 0 and time.monotonic() < deadline:
            with suppress(psycopg2.Error), closing(psycopg2.connect(self.endpoints.postgres.dsn)) as connection:
                while transactions > 0:
                    transactions -= 1
                    with connection.cursor() as cursor:
                        for _ in range(dice.randrange(1, 6)):
                            cursor.execute(*self._statement(dice))
                    connection.rollback() if dice.random() < 0.1 else connection.commit()
                    time.sleep(dice.uniform(0.0, 0.02))
            time.sleep(0.1)

    def _statement(self, dice: random.Random) -> tuple[str, tuple[Any, ...]]:
        number, other, n = dice.randrange(_KEYS), dice.randrange(_KEYS), dice.randrange(1000)
        table, kind = self.name, dice.random()
        if kind < 0.6:
            text = f"INSERT INTO {table} VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET n = excluded.n"
            return text, (number, f"name{n}" + "y" * dice.randrange(300), n)
        if kind < 0.75:
            return f"UPDATE {table} SET n = n + 1 WHERE id %% 7 = %s", (number % 7,)
        if kind < 0.85:
            text = f"UPDATE {table} SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM {table} WHERE id = %s)"
            return text, (other, number, other)
        if kind < 0.99:
            return f"DELETE FROM {table} WHERE id = %s", (number,)
        return f"TRUNCATE {table}", ()

    # ------------------------------------------------------------------------------------------------------------ files

    def _write_files(self, base: datetime, count: int, dice: random.Random) -> None:
        while count > 0:
            size = min(count, dice.randrange(1, 30))
            count -= size
            lines = []
            for _ in range(size):
                self._logs += 1
                at = base + timedelta(milliseconds=100 * (self._logs % 6000))
                record = {"time": f"{at:%Y-%m-%dT%H:%M:%S.%f}Z", "id": self._logs, "level": dice.choice("abc")}
                lines.append(json.dumps(record))
                self.logged[self._logs] += 1
            path = self.files / f"{dice.randrange(10**6):06}-{self._logs}.ndjson"
            draft = path.with_suffix(".part")
            draft.write_text("\n".join(lines) + "\n")
            draft.rename(path)
            time.sleep(dice.uniform(0.0, 0.2))


def _message(order: dict[str, Any]) -> dict[str, Any]:
    return {"key": order["user"], "value": json.dumps(order)}
