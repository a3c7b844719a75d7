"""Kafka in and out of a pipeline, with a real broker: every record once on both sides."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import hayase as hy
from hayase.connectors import kafka_source
from hayase.connectors.status import status_of
from hayase.core.errors import EndpointError, PositionMoved
from servers.kafka import PASSWORD, USER, Kafka
from servers.process import PATIENCE
from servers.schema_registry import SchemaRegistry

SCHEMA = "time timestamp, user string, amount bigint"


def topic(kafka: Kafka, partitions: int = 3, **settings: str) -> str:
    """A new topic."""
    name = f"t{uuid4().hex[:12]}"
    kafka.create_topic(name, partitions, **settings)
    return name


def order(number: int) -> dict[str, Any]:
    return {
        "time": f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z",
        "user": f"u{number % 7}",
        "amount": number,
    }


def send(kafka: Kafka, name: str, values: list[Any], **settings: Any) -> None:
    """Produce values, as JSON unless they are bytes, with their user as key."""
    producer = Producer({**kafka.client(), **settings})
    if "transactional.id" in settings:
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
    for value in values:
        key = value["user"] if isinstance(value, dict) else None
        producer.produce(name, value if isinstance(value, bytes) else json.dumps(value), key=key)
        producer.poll(0)
    if "transactional.id" in settings:
        producer.commit_transaction(PATIENCE)
    assert producer.flush(PATIENCE) == 0


def messages(kafka: Kafka, name: str, partitions: int) -> list[tuple[str | None, Any]]:
    """All committed messages of a topic, as key and value; those of one key in their order."""
    consumer = Consumer({
        **kafka.client(), "group.id": uuid4().hex, "isolation.level": "read_committed", "enable.partition.eof": True,
    })  # fmt: skip
    consumer.assign([TopicPartition(name, number, 0) for number in range(partitions)])
    found: list[tuple[str | None, Any]] = []
    open_partitions, deadline = partitions, time.monotonic() + PATIENCE
    try:
        while open_partitions and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is not None:
                open_partitions -= 1
                continue
            key, value = message.key(), message.value()
            found.append((None if key is None else key.decode(), None if value is None else json.loads(value)))
    finally:
        consumer.close()
    assert not open_partitions
    return found


def shop(
    kafka: Kafka, home: Path, orders: str, alerts: str | None = None, emit: str = "changes", **options: Any
) -> hy.Pipeline:
    p = hy.Pipeline("shop", home=home)
    p.stream("orders", SCHEMA, slack="1 day", source=hy.Kafka(brokers=kafka.bootstrap, topic=orders, **options))
    p.query("spend", "select user, sum(amount) as total from orders group by user")
    if alerts is not None:
        p.output("alerts", reads="spend", to=hy.Kafka(brokers=kafka.bootstrap, topic=alerts, emit=emit, key="user"))
    return p


def finished(p: hy.Pipeline) -> hy.Pipeline:
    p.finish("orders")
    p.run_until_idle(spark=False)
    return p


def shown(changes: list[tuple[Any, str, dict[str, Any]]]) -> list[str]:
    return sorted(f"{sign} {at:%H:%M:%S} {row['user']} {row['total']}" for at, sign, row in changes)


def told(found: list[tuple[str | None, Any]]) -> list[str]:
    return sorted(
        f"{one['change']} {one['time'][11:19]} {one['row']['user']} {one['row']['total']}" for _, one in found
    )


def test_messages_become_records_and_changes_become_messages(kafka: Kafka, tmp_path: Path) -> None:
    orders, alerts = topic(kafka), topic(kafka, 2)
    send(kafka, orders, [order(number) for number in range(500)])
    p = shop(kafka, tmp_path / "home", orders, alerts)
    p.run_until_idle(spark=False)
    send(kafka, orders, [order(number) for number in range(500, 600)])
    p.run_until_idle(spark=False)
    assert sorted(p.stream("orders").table().column("amount").to_pylist()) == list(range(600))
    finished(p)
    found = messages(kafka, alerts, 2)
    assert told(found) == shown(p.query("spend").changes())
    assert all(key == one["row"]["user"] for key, one in found)


def test_upserts_are_the_present_rows_also_after_a_reset(kafka: Kafka, tmp_path: Path) -> None:
    orders, upserts = topic(kafka), topic(kafka, 1)
    send(kafka, orders, [order(number) for number in range(50)])
    p = shop(kafka, tmp_path / "home", orders, upserts, "upserts")
    p.run_until_idle(spark=False)
    finished(p)

    def present() -> dict[str | None, Any]:
        return {key: value for key, value in dict(messages(kafka, upserts, 1)).items() if value is not None}

    expected = {row["user"]: row for row in p.query("spend").at()}
    assert present() == expected
    p.remove("spend")
    p.query("spend", "select user, sum(amount) as total from orders where user <> 'u3' group by user")
    p.reset("spend")
    p.run_until_idle(spark=False)
    assert present() == {user: row for user, row in expected.items() if user != "u3"}
    assert dict(messages(kafka, upserts, 1))["u3"] is None


def users(kafka: Kafka, home: Path, name: str) -> hy.Pipeline:
    p = hy.Pipeline("members", home=home)
    p.stream(
        "users", "op string, at timestamp, id string, name string, score double", time="at", changes="op", slack="1 day",
        source=hy.Kafka(
            brokers=kafka.bootstrap, topic=name, upserts=True, key_column="id", timestamp_column="at"
        ),
    )  # fmt: skip
    p.query("members", "select id, name, score from users")
    return p


def upsert(kafka: Kafka, name: str, sent: list[tuple[str | None, bytes | None, int]]) -> None:
    """Produce messages: key, value, and time in milliseconds."""
    producer = Producer(kafka.client())
    for key, value, at in sent:
        producer.produce(name, value, key=key, timestamp=at)
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0


def test_upserts_and_tombstones_are_the_changes_of_a_relation(kafka: Kafka, tmp_path: Path) -> None:
    name = topic(kafka, 1)
    start = 1_767_225_600_000
    upsert(kafka, name, [
        ("a", b'{"name": "Ann", "score": 1.5}', start),
        ("b", b'{"name": "Bob", "score": null}', start + 1_000),
        ("z", None, start + 1_500),
        ("a", b'{"name": "Anna", "score": 2.5}', start + 2_000),
        (None, b'{"name": "Nobody", "score": 0}', start + 2_000),
        ("b", b"{", start + 2_500),
    ])  # fmt: skip
    p = users(kafka, tmp_path / "home", name)
    p.run_until_idle(spark=False)
    reasons = [letter["reason"] for letter in p.dead_letters()]
    assert [reason.partition("offset ")[2][:4] for reason in reasons] == ["5: n", "4: a"]
    assert "without a key" in reasons[1]
    upsert(kafka, name, [
        ("b", None, start + 3_000),
        ("b", None, start + 3_000),
        ("a", b'{"name": "Ann", "score": 2.5}', start + 1_000),  # no earlier than the last change of its key
        ("c", b'{"name": "Cid", "score": 0}', start + 4_000),
    ])  # fmt: skip
    p.run_until_idle(spark=False)  # another source: the last rows come from the stream
    changes = [(row["op"], f"{row['at']:%S}", row["id"], row["name"]) for row in p.stream("users").rows()]
    assert changes == [
        ("+", "00", "a", "Ann"), ("+", "01", "b", "Bob"), ("-", "02", "a", "Ann"), ("+", "02", "a", "Anna"),
        ("-", "02", "a", "Anna"), ("+", "02", "a", "Ann"), ("-", "03", "b", "Bob"), ("+", "04", "c", "Cid"),
    ]  # fmt: skip
    p.finish("users")
    p.run_until_idle(spark=False)
    assert sorted((row["id"], row["name"], row["score"]) for row in p.query("members").at()) == [
        ("a", "Ann", 2.5),
        ("c", "Cid", 0.0),
    ]
    assert len(p.dead_letters()) == 2


@pytest.mark.parametrize("seed", range(2))
def test_upserts_survive_kills(kafka: Kafka, tmp_path: Path, seed: int) -> None:
    """The source is killed again and again while messages come in: the relation is what the topic says."""
    import random

    dice = random.Random(seed)
    name = topic(kafka, **{"cleanup.policy": "compact"})
    p = users(kafka, tmp_path / "home", name)
    p.apply()
    present: dict[str, str | None] = {}
    for round_ in range(4):
        sent: list[tuple[str | None, bytes | None, int]] = []
        for number in range(dice.randrange(500, 3_000)):
            key, value = f"k{dice.randrange(50)}", dice.choice([None, f"{round_}/{number}"])
            present[key] = value
            body = None if value is None else json.dumps({"name": value, "score": number}).encode()
            sent.append((key, body, 1_767_225_600_000 + dice.randrange(1_000_000)))
        upsert(kafka, name, sent)
        with process(p, "sources", "users") as child:
            time.sleep(dice.uniform(0.3, 2.5))
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
    p.run_until_idle(spark=False)
    p.finish("users")
    p.run_until_idle(spark=False)
    found = {row["id"]: row["name"] for row in p.query("members").at()}
    assert found == {key: value for key, value in present.items() if value is not None}
    assert not p.dead_letters()


def test_a_message_that_cannot_be_read_is_a_dead_letter_that_names_its_place(kafka: Kafka, tmp_path: Path) -> None:
    orders = topic(kafka, 1)
    send(kafka, orders, [order(1), b"{", b'{"time": "2026-01-01T00:00:00Z", "user": 1, "amount": "x"}', order(2)])
    p = shop(kafka, tmp_path / "home", orders)
    p.run_until_idle(spark=False)
    letters = p.dead_letters()
    assert [letter["kind"] for letter in letters] == ["unreadable", "schema"]
    assert letters[0]["reason"].startswith(f'topic "{orders}", partition 0, offset 1: not JSON')
    assert f'topic "{orders}", partition 0, offset 2' in letters[1]["reason"]
    p.replay(1, edit=lambda record: {**record, "user": "u1", "amount": 7})
    assert sorted(p.stream("orders").table().column("amount").to_pylist()) == [1, 2, 7]


def test_places_behind_aborted_messages_are_those_of_the_topic(kafka: Kafka, tmp_path: Path) -> None:
    orders = topic(kafka, 2)
    producer = Producer({**kafka.client(), "transactional.id": uuid4().hex})
    producer.init_transactions(PATIENCE)
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for partition in (0, 1, 0, 1):
            producer.produce(orders, b"no JSON", partition=partition)
        assert producer.flush(PATIENCE) == 0  # an abort would take back what is not sent
        end(PATIENCE)
    p = shop(kafka, tmp_path / "home", orders)
    p.run_until_idle(spark=False)
    places = sorted(letter["reason"].partition(": ")[0] for letter in p.dead_letters())
    # each transaction has two messages and a marker in a partition; the second one was aborted
    assert places == [f'topic "{orders}", partition {n}, offset {at}' for n in (0, 1) for at in (0, 1, 6, 7)]


def test_the_client_fetches_again_as_soon_as_its_queue_has_room(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []

    def consumer(settings: dict[str, Any]) -> Consumer:
        given.append(settings)
        return Consumer(settings)

    monkeypatch.setattr(kafka_source, "Consumer", consumer)
    orders = topic(kafka, 1)
    send(kafka, orders, [order(1)])
    shop(kafka, tmp_path / "home", orders).run_until_idle(spark=False)
    # by itself it pauses for a second, in which a queue that is read at 100 MB/s has long been empty
    assert [settings["fetch.queue.backoff.ms"] <= 50 for settings in given] == [True]


def test_columns_come_from_key_headers_partition_offset_and_timestamp(kafka: Kafka, tmp_path: Path) -> None:
    name = topic(kafka, 1)
    producer = Producer(kafka.client())
    producer.produce(name, b'{"n": 1}', key=b"k", headers=[("h", b"v")], timestamp=1_767_225_600_123)
    producer.flush(PATIENCE)
    p = hy.Pipeline("meta", home=tmp_path / "home")
    p.stream(
        "s", "at timestamp, n bigint, k string, h string, part int, place bigint", time="at",
        source=hy.Kafka(
            brokers=kafka.bootstrap, topic=name, timestamp_column="at", key_column="k", headers_column="h",
            partition_column="part", offset_column="place",
        ),
    )  # fmt: skip
    p.run_until_idle(spark=False)
    row = p.stream("s").table().to_pylist()[0]
    assert f"{row['at']:%Y-%m-%dT%H:%M:%S.%f}" == "2026-01-01T00:00:00.123000"
    assert (row["n"], row["k"], json.loads(row["h"]), row["part"], row["place"]) == (1, "k", {"h": "v"}, 0, 0)


@pytest.mark.parametrize(
    ("form", "values", "schema", "rows"),
    [
        ("csv", [b'2026-01-01T00:00:00Z,"a, b",1', b"2026-01-01T00:00:01Z,,2", b"x"], "time timestamp, a string, n bigint",
         [("a, b", 1), (None, 2)]),
        ("text", [b"hello", b"\xff", "wörld".encode()], "time timestamp, text string", [("hello",), ("wörld",)]),
    ],
)  # fmt: skip
def test_csv_and_text(
    kafka: Kafka, tmp_path: Path, form: str, values: list[bytes], schema: str, rows: list[Any]
) -> None:
    name = topic(kafka, 1)
    send(kafka, name, values)
    p = hy.Pipeline("formats", home=tmp_path / "home")
    more = {"timestamp_column": "time"} if form == "text" else {}
    p.stream("s", schema, source=hy.Kafka(brokers=kafka.bootstrap, topic=name, format=form, **more))
    p.run_until_idle(spark=False)
    found = [tuple(row.values())[1:] for row in p.stream("s").table().to_pylist()]
    assert found == rows
    assert len(p.dead_letters()) == 1


def test_avro_with_a_schema_registry(kafka: Kafka, schema_registry: SchemaRegistry, tmp_path: Path) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    name = topic(kafka, 1)
    fields = [
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "user", "type": "string"},
        {"name": "amount", "type": ["null", "long"], "default": None},
    ]
    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    at = datetime(2026, 1, 1, tzinfo=UTC)
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        written = AvroSerializer(client, schema)
        place = SerializationContext(name, MessageField.VALUE)
        values = [written({"time": at, "user": "taro", "amount": amount}, place) for amount in (1, None, 3)]
    assert all(isinstance(value, bytes) for value in values)
    send(kafka, name, [*values, b"{}", b"\0\0\0\x7f\xff"])
    p = hy.Pipeline("avro", home=tmp_path / "home")
    source = hy.Kafka(brokers=kafka.bootstrap, topic=name, format="avro", registry=schema_registry.url)
    p.stream("orders", SCHEMA, source=source)
    p.run_until_idle(spark=False)
    assert [(row["time"], row["user"], row["amount"]) for row in p.stream("orders").rows()] == [
        (at, "taro", 1), (at, "taro", None), (at, "taro", 3),
    ]  # fmt: skip
    reasons = [letter["reason"] for letter in p.dead_letters()]
    assert [reason.partition("offset ")[2][0] for reason in reasons] == ["3", "4"]
    assert "the number of a schema" in reasons[0]


def test_only_committed_transactions_are_read(kafka: Kafka, tmp_path: Path) -> None:
    orders = topic(kafka, 1)
    send(kafka, orders, [order(1)], **{"transactional.id": uuid4().hex})
    producer = Producer({**kafka.client(), "transactional.id": uuid4().hex})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce(orders, json.dumps(order(2)))
    producer.flush(PATIENCE)
    p = shop(kafka, tmp_path / "home", orders)
    p.run_until_idle(spark=False)  # ends at the last stable offset, though a message follows
    assert p.stream("orders").table().column("amount").to_pylist() == [1]
    producer.abort_transaction(PATIENCE)
    send(kafka, orders, [order(3)], **{"transactional.id": uuid4().hex})
    p.run_until_idle(spark=False)
    assert p.stream("orders").table().column("amount").to_pylist() == [1, 3]


def test_latest_begins_where_the_source_was_first_seen(kafka: Kafka, tmp_path: Path) -> None:
    orders = topic(kafka, 1)
    send(kafka, orders, [order(1)])
    p = shop(kafka, tmp_path / "home", orders, start="latest")
    p.run_until_idle(spark=False)
    send(kafka, orders, [order(2)])  # while no pipeline runs
    p.run_until_idle(spark=False)
    assert p.stream("orders").table().column("amount").to_pylist() == [2]


def test_messages_that_were_removed_are_an_error_unless_they_are_to_be_skipped(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka.admin import AdminClient

    monkeypatch.setattr("hayase.connectors.transfers.GIVE_UP", 0.1)
    orders = topic(kafka, 1)
    send(kafka, orders, [order(number) for number in range(10)])
    p = shop(kafka, tmp_path / "home", orders)
    p.run_until_idle(spark=False)
    send(kafka, orders, [order(number) for number in range(10, 30)])
    admin = AdminClient(kafka.client())
    removed = admin.delete_records([TopicPartition(orders, 0, 20)])
    next(iter(removed.values())).result(PATIENCE)
    with pytest.raises(EndpointError, match=r"messages 10 to 19 of partition 0 .* were removed .* missing: skip"):
        p.run_until_idle(spark=False)
    p = shop(kafka, tmp_path / "home", orders, missing="skip")
    p.run_until_idle(spark=False)
    assert p.stream("orders").table().column("amount").to_pylist() == [*range(10), *range(20, 30)]


def test_a_topic_that_does_not_exist_is_named(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hayase.connectors.transfers.GIVE_UP", 0.1)
    with pytest.raises(EndpointError, match='has no topic "nowhere"'):
        shop(kafka, tmp_path / "home", "nowhere").run_until_idle(spark=False)


def test_a_new_partition_is_found(kafka: Kafka, tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    orders = topic(kafka, 1)
    send(kafka, orders, [order(1)])
    p = shop(kafka, tmp_path / "home", orders)
    p.run_until_idle(spark=False)
    admin = AdminClient(kafka.client())
    next(iter(admin.create_partitions([NewPartitions(orders, 3)]).values())).result(PATIENCE)
    send(kafka, orders, [order(number) for number in range(2, 30)])
    p.run_until_idle(spark=False)
    assert sorted(p.stream("orders").table().column("amount").to_pylist()) == list(range(1, 30))


def test_positions_are_told_to_the_consumer_group(kafka: Kafka, tmp_path: Path) -> None:
    orders = topic(kafka, 1)
    send(kafka, orders, [order(number) for number in range(5)])
    shop(kafka, tmp_path / "home", orders, group="people").run_until_idle(spark=False)
    consumer = Consumer({**kafka.client(), "group.id": "people"})
    try:
        assert consumer.committed([TopicPartition(orders, 0)], PATIENCE)[0].offset == 5
    finally:
        consumer.close()


def test_log_in_over_tls(secured_kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert secured_kafka.certificates is not None
    orders, alerts = topic(secured_kafka), topic(secured_kafka, 1)
    send(secured_kafka, orders, [order(number) for number in range(20)])
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    secure = {
        "tls": True, "tls_ca": str(secured_kafka.certificates.authority), "sasl": "SCRAM-SHA-256", "username": USER,
        "password_env": "SHOP_PASSWORD",
    }  # fmt: skip
    p = hy.Pipeline("shop", home=tmp_path / "home")
    p.stream("orders", SCHEMA, slack="1 day", source=hy.Kafka(brokers=secured_kafka.bootstrap, topic=orders, **secure))
    p.output("copy", reads="orders", to=hy.Kafka(brokers=secured_kafka.bootstrap, topic=alerts, emit="rows", **secure))
    p.run_until_idle(spark=False)
    assert sorted(value["amount"] for _, value in messages(secured_kafka, alerts, 1)) == list(range(20))
    monkeypatch.setenv("SHOP_PASSWORD", "wrong")
    monkeypatch.setattr("hayase.connectors.transfers.GIVE_UP", 0.1)
    send(secured_kafka, orders, [order(21)])
    with pytest.raises(EndpointError, match="Kafka at"):
        p.run_until_idle(spark=False)
    definitions = [path.read_text() for path in (tmp_path / "home" / "definitions").glob("*.json")]
    assert definitions
    assert not any(PASSWORD in text for text in definitions)


def test_a_zombie_cannot_write(kafka: Kafka, tmp_path: Path) -> None:
    from hayase.connectors.transfers import OutputTransfer

    orders, alerts = topic(kafka, 1), topic(kafka, 1)
    send(kafka, orders, [order(number) for number in range(20)])
    p = shop(kafka, tmp_path / "home", orders)
    p.run_until_idle(spark=False)
    finished(p)
    declared = shop(kafka, tmp_path / "home", orders, alerts).declaration
    old = OutputTransfer(p.home, declared, declared.outputs[0])
    new = OutputTransfer(p.home, declared, declared.outputs[0])
    with pytest.raises(PositionMoved):
        old.step()
    while new.step():
        pass
    assert told(messages(kafka, alerts, 1)) == shown(p.query("spend").changes())
    old.close()
    new.close()


PROGRAM = """
import sys
from pathlib import Path
from hayase.connectors.worker import main
from hayase.engine.home import Home
main(Home(Path(sys.argv[1])), sys.argv[2], sys.argv[3], int(sys.argv[4]))
"""


@contextmanager
def process(p: hy.Pipeline, role: str, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a connector."""
    version = p.apply().version
    command = [sys.executable, "-c", PROGRAM, str(p.home.path), role, name, str(version)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        try:
            yield child
        finally:
            child.kill()


def wait_for(holds: Callable[[], bool], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_or_doubled_by_kills_and_a_broker_that_goes_and_comes_back(
    kafka: Kafka, tmp_path: Path, seed: int
) -> None:
    """Source and output are killed or paused again and again, the broker once, while messages come in."""
    import random

    dice = random.Random(seed)
    orders, alerts = topic(kafka), topic(kafka, 1)
    p = shop(kafka, tmp_path / "home", orders, alerts)
    p.apply()
    sent = 0
    for round_ in range(4):
        more = dice.randrange(50, 400)
        send(kafka, orders, [order(number) for number in range(sent, sent + more)])
        sent += more
        for role, name in (("sources", "orders"), ("outputs", "alerts")):
            with process(p, role, name) as child:
                time.sleep(dice.uniform(0.3, 2.5))
                if round_ == 1 and role == "sources":
                    kafka.brokers[0].kill()
                    time.sleep(dice.uniform(0.0, 1.0))
                    kafka.brokers[0].start()
                os.kill(child.pid, dice.choice([signal.SIGKILL, signal.SIGTERM]))
                child.wait()
        run_stages(p)
    p.run_until_idle(spark=False)
    assert sorted(p.stream("orders").table().column("amount").to_pylist()) == list(range(sent))
    finished(p)
    assert told(messages(kafka, alerts, 1)) == shown(p.query("spend").changes())


def run_stages(p: hy.Pipeline) -> None:
    """Run the stages, without sources and outputs."""
    from contextlib import closing

    from hayase.core.clock import now_us
    from hayase.engine.local import InProcess

    with p.home.lock(), closing(InProcess(p.home, now_us)) as runner:
        runner.run_until_idle()


def test_on_spark_a_pipeline_with_sources_and_outputs_goes_on_while_the_broker_is_away(
    kafka: Kafka, tmp_path: Path
) -> None:
    orders, alerts = topic(kafka), topic(kafka, 1)
    file = tmp_path / "pipeline.yaml"
    at = f'brokers: "{kafka.bootstrap}"'
    file.write_text(f"""
pipeline: shop
streams:
  orders: {{schema: "{SCHEMA}", time: time, slack: 1 day, from: {{kafka: {{{at}, topic: {orders}}}}}}}
queries:
  large: select time, user, amount from orders where amount % 2 = 0
outputs:
  alerts: {{reads: large, to: {{kafka: {{{at}, topic: {alerts}, emit: rows}}}}}}
""")
    send(kafka, orders, [order(number) for number in range(100)])
    program = [sys.executable, "-c", "from hayase.cli import main; main()", "run", str(file), "--plain"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    pipeline = hy.Pipeline.from_file(file)
    with subprocess.Popen(program, cwd=tmp_path, env=environment) as running:
        try:
            wait_for(lambda: running.poll() is not None or len(messages(kafka, alerts, 1)) == 50)
            assert running.poll() is None
            kafka.brokers[0].kill()
            wait_for(lambda: status_of(pipeline.home, "sources", pipeline.declaration.sources[0]).state == "retrying")
            assert running.poll() is None
            kafka.brokers[0].start()
            send(kafka, orders, [order(number) for number in range(100, 200)])
            wait_for(lambda: running.poll() is not None or len(messages(kafka, alerts, 1)) == 100)
        finally:
            running.send_signal(signal.SIGINT)
            assert running.wait(300) == 0
    assert sorted(value["amount"] for _, value in messages(kafka, alerts, 1)) == list(range(0, 200, 2))
