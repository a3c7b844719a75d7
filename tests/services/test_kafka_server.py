"""The Kafka of the tests: records and transactions, nodes that are lost and come back, log-in over TLS."""

from __future__ import annotations

import time
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from servers.kafka import MECHANISMS, Kafka
from servers.process import PATIENCE


def send(kafka: Kafka, topic: str, values: list[str], **settings: str) -> None:
    producer = Producer(kafka.client() | settings)
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(PATIENCE) == 0


def values_of(kafka: Kafka, topic: str, count: int, mechanism: str = "SCRAM-SHA-256") -> list[str]:
    """The first values of a topic with one partition, of committed transactions only, and that no more follow."""
    consumer = Consumer(
        kafka.client(mechanism)
        | {"group.id": uuid4().hex, "isolation.level": "read_committed", "enable.partition.eof": "true"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []
    deadline = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            if (error := message.error()) is None:
                values.append(message.value().decode())
            elif error.name() == "_PARTITION_EOF" and len(values) >= count:
                break
    finally:
        consumer.close()
    return values


def test_records_are_produced_and_consumed(kafka: Kafka) -> None:
    kafka.create_topic("plain")
    send(kafka, "plain", ["1", "2", "3"])
    assert values_of(kafka, "plain", 3) == ["1", "2", "3"]


def test_an_aborted_transaction_is_not_seen(kafka: Kafka) -> None:
    kafka.create_topic("transactions")
    producer = Producer(kafka.client() | {"transactional.id": "test"})
    producer.init_transactions(PATIENCE)
    for value, ends in (
        ("1", producer.commit_transaction),
        ("2", producer.abort_transaction),
        ("3", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce("transactions", value)
        assert producer.flush(PATIENCE) == 0
        ends(PATIENCE)
    assert values_of(kafka, "transactions", 2) == ["1", "3"]


def test_a_broker_that_is_killed_comes_back_with_its_records(kafka: Kafka) -> None:
    kafka.create_topic("killed")
    send(kafka, "killed", ["1"])
    kafka.kill()
    kafka.start()
    send(kafka, "killed", ["2"])
    assert values_of(kafka, "killed", 2) == ["1", "2"]


def test_one_node_of_three_may_be_lost(three_brokers: Kafka) -> None:
    three_brokers.create_topic("replicated")
    send(three_brokers, "replicated", ["1"], acks="all")
    leader = _partition(three_brokers, "replicated").leader
    lost = three_brokers.brokers[leader - 1]
    lost.kill()
    send(three_brokers, "replicated", ["2"], acks="all")
    assert values_of(three_brokers, "replicated", 2) == ["1", "2"]
    lost.start()
    deadline = time.monotonic() + PATIENCE
    while len(_partition(three_brokers, "replicated").isrs) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert sorted(_partition(three_brokers, "replicated").isrs) == [1, 2, 3]


def _partition(kafka: Kafka, topic: str):
    return AdminClient(kafka.client()).list_topics(topic, timeout=PATIENCE).topics[topic].partitions[0]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_clients_log_in_over_tls(secured_kafka: Kafka, mechanism: str) -> None:
    topic = f"secured-{mechanism}"
    secured_kafka.create_topic(topic)
    send(secured_kafka, topic, ["1"], **{"sasl.mechanism": mechanism})
    assert values_of(secured_kafka, topic, 1, mechanism) == ["1"]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"sasl.password": "wrong"}, "_AUTHENTICATION"), ({"security.protocol": "SASL_PLAINTEXT"}, "_ALL_BROKERS_DOWN")],
    ids=["wrong password", "without TLS"],
)
def test_other_clients_are_refused(secured_kafka: Kafka, settings: dict[str, str], reason: str) -> None:
    errors: list[str] = []
    client = Consumer(
        secured_kafka.client()
        | settings
        | {"group.id": uuid4().hex, "error_cb": lambda error: errors.append(error.name())}
    )
    client.subscribe(["refused"])
    deadline = time.monotonic() + PATIENCE
    while reason not in errors and time.monotonic() < deadline:
        client.poll(0.1)
    client.close()
    assert reason in errors
