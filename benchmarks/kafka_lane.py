"""The same records through a lane: from a topic of Kafka, from a file, from the log alone; read in map tasks without the log; and
fetched only.

Records have 1,000 users and are a millisecond apart. They stand in a topic of four partitions, one after the other in turn, and
in a file of NDJSON. The query counts and sums for each user, a row for each record. Slack covers what partitions are apart when
a backlog is read.
"""

from __future__ import annotations

import contextlib
import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psutil

from benchmarks.measure import cpu_seconds, until_idle, warm_lane
from hayase import Kafka, Pipeline
from hayase.connectors.source import SourceSetting
from hayase.connectors.status import directory_of, pause, resume
from hayase.connectors.supervision import Connectors
from hayase.core.clock import now_us
from hayase.core.connector_data import declared_source
from hayase.core.declarations import StreamDeclaration
from hayase.core.stages import MAIN
from hayase.engine.batch.gate import FileGate, Grants
from hayase.streams import StreamLog
from hayase.streams.records import Conformed

__all__ = ["PARTITIONS", "Topic", "direct", "fetched", "fill", "from_file", "from_kafka", "lane_alone", "lines"]

SEED, USERS, PARTITIONS = 7, 1_000, 4
SCHEMA = "time timestamp, user string, item bigint, amount double"
TOTALS = "select user, count(*) as n, sum(amount) as total from orders group by user"
SLACK = "10 minutes"
_START = np.datetime64("2026-01-01T00:00:00", "ms")
PATIENCE = 300.0


@dataclass(frozen=True)
class Topic:
    """A topic, and how many messages it has."""

    brokers: str
    name: str
    messages: int

    def source(self) -> dict[str, Any]:
        return {"brokers": self.brokers, "topic": self.name}


def lines(count: int) -> list[bytes]:
    """Return orders as JSON, in the order of their times."""
    random = np.random.default_rng(SEED)
    times = np.datetime_as_string(_START + np.arange(count), unit="ms")
    users, items = random.integers(0, USERS, count).tolist(), random.integers(0, 100_000, count).tolist()
    amounts = random.integers(1, 100_000, count).tolist()
    return [
        b'{"time":"%bZ","user":"user%06d","item":%d,"amount":%d.%02d}'
        % (moment.encode(), user, item, *divmod(amount, 100))
        for moment, user, item, amount in zip(times.tolist(), users, items, amounts)
    ]


def fill(brokers: str, topic: str, values: list[bytes]) -> None:
    """Write messages to the partitions of a topic in turn."""
    from confluent_kafka import Producer

    producer = Producer({
        "bootstrap.servers": brokers, "linger.ms": 50, "batch.size": 1_000_000, "queue.buffering.max.messages": 1_000_000,
    })  # fmt: skip
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            while len(producer) > 500_000:
                producer.poll(0.05)
            producer.poll(0)
    if producer.flush(PATIENCE):
        raise RuntimeError("Kafka did not take all messages")


def _pipeline(home: str, topic: Topic | None) -> Pipeline:
    p = Pipeline("connectors", home=home)
    source = None if topic is None else Kafka(**topic.source())
    p.stream("orders", SCHEMA, time="time", slack=SLACK, source=source)
    p.query("spend", TOTALS)
    return p


@contextlib.contextmanager
def _running(session: Any, topic: Topic | None) -> Iterator[tuple[Pipeline, Any]]:
    """A pipeline that runs; its source, if it has one, is paused and its process is up."""
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as home:
        p = _pipeline(home, topic)
        if topic is None:
            with warm_lane(p, session) as lane:
                yield p, lane
            return
        pause(p.home, "sources", "orders")
        with p.home.lock(), warm_lane(p, session) as lane, Connectors(p.home):
            status = directory_of(p.home, "sources", "orders") / "status.json"
            _wait(lane, lambda: status.exists() and orjson.loads(status.read_bytes())["state"] == "paused")
            yield p, lane


def _wait(lane: Any, done: Callable[[], object], pause: float = 0.02) -> None:
    until = time.monotonic() + PATIENCE
    while not done():
        lane.check()
        if time.monotonic() > until:
            raise TimeoutError("the source did not get on")
        time.sleep(pause)


def from_kafka(session: Any, topic: Topic) -> dict[str, float]:
    """Read a whole topic; the time begins when its first records are in the stream, and those do not count."""
    with _running(session, topic) as (p, lane):
        log = StreamLog.ensure(p.home.path, p.declaration.stream("orders"))
        source = _source_process()
        resume(p.home, "sources", "orders")
        _wait(lane, lambda: log.index().next, pause=0.002)
        began, first, before, own = time.perf_counter(), log.index().next, cpu_seconds(), _cpu(source)
        _wait(lane, lambda: log.index().next >= topic.messages)
        appended, own = time.perf_counter() - began, _cpu(source) - own
        p.finish("orders")
        until_idle(lane)
        seconds, cpu = time.perf_counter() - began, cpu_seconds() - before
        _check(p, topic.messages)
    count = max(topic.messages - first, 1)  # a small topic may come in one append
    return {
        "records_per_second": count / seconds,
        "appended_per_second": count / appended,
        "cpu_microseconds_per_record": 1e6 * cpu / count,
        "cpu_microseconds_per_record_of_the_source": 1e6 * own / count,
    }


def from_file(session: Any, path: Path, count: int) -> dict[str, float]:
    """Append a file to the same pipeline."""
    with _running(session, None) as (p, lane):
        began, before = time.perf_counter(), cpu_seconds()
        p.append("orders", path)
        appended = time.perf_counter() - began
        p.finish("orders")
        until_idle(lane)
        seconds, cpu = time.perf_counter() - began, cpu_seconds() - before
        _check(p, count)
    return {
        "records_per_second": count / seconds,
        "appended_per_second": count / appended,
        "cpu_microseconds_per_record": 1e6 * cpu / count,
    }


def lane_alone(session: Any, path: Path, count: int) -> float:
    """Return the seconds of the same lane for records that are in the log already."""
    with _running(session, None) as (p, lane):
        gate = FileGate(p.home.gate(MAIN))
        gate.set(Grants(open=False))
        p.append("orders", path)
        p.finish("orders")
        began = time.perf_counter()
        gate.set(Grants())
        until_idle(lane)
        seconds = time.perf_counter() - began
        _check(p, count)
    return seconds


@contextlib.contextmanager
def _collecting_as_a_source() -> Iterator[None]:
    """The garbage collector waits as in the process of a source."""
    from hayase.connectors.worker import YOUNG

    before = gc.get_threshold()
    gc.set_threshold(YOUNG, 10, 10)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@_collecting_as_a_source()
def fetched(topic: Topic) -> dict[str, float]:
    """Fetch a whole topic and throw it away: the CPU time of the client and of the broker, which no source in Python does without.
    No other process may run below this one than the broker."""
    from confluent_kafka import Consumer, TopicPartition

    from hayase.connectors.kafka_source import AT_ONCE, BACKOFF  # needs the client of Kafka

    consumer = Consumer({
        "bootstrap.servers": topic.brokers, "group.id": "fetched", "enable.auto.commit": False,
        "enable.auto.offset.store": False, "fetch.queue.backoff.ms": BACKOFF,
    })  # fmt: skip
    try:
        consumer.assign([TopicPartition(topic.name, number, 0) for number in range(PARTITIONS)])
        began, own, all_of_it, count = time.perf_counter(), time.process_time(), cpu_seconds(), 0
        while count < topic.messages:
            count += len(consumer.consume(AT_ONCE, PATIENCE))
        own, all_of_it = time.process_time() - own, cpu_seconds() - all_of_it
        return {
            "records_per_second": count / (time.perf_counter() - began),
            "cpu_microseconds_per_record_of_the_client": 1e6 * own / count,
            "cpu_microseconds_per_record_of_the_broker": 1e6 * max(0.0, all_of_it - own) / count,
        }
    finally:
        consumer.close()


def direct(session: Any, topic: Topic) -> float:
    """Return the seconds in which map tasks, one for each partition, read and decode a whole topic, and write nothing."""
    context = session.sparkContext
    began = time.perf_counter()
    read = context.parallelize(range(PARTITIONS), PARTITIONS).map(lambda number: read_partition(topic, number)).sum()
    seconds = time.perf_counter() - began
    if read != topic.messages:
        raise RuntimeError(f"map tasks read {read:,} of {topic.messages:,} messages")
    return seconds


@_collecting_as_a_source()
def read_partition(topic: Topic, number: int) -> int:
    """Read and decode a partition as the source does, and return how many records it has."""
    from hayase.connectors.kafka_source import KafkaSource  # needs the client of Kafka

    stream = StreamDeclaration("orders", SCHEMA, "time")
    declared = declared_source("orders", {"kafka": topic.source()})
    source, partition, count = KafkaSource(SourceSetting(stream, declared.values, "direct", now_us)), str(number), 0
    try:
        at, end = source.starts()[partition], source.ends()[partition]
        while at < end:
            for portion in source.read({partition: at}, 1.0):
                if isinstance(portion.records, Conformed):
                    at, count = portion.next, count + portion.records.rows.num_rows
    finally:
        source.close()
    return count


def _check(p: Pipeline, count: int) -> None:
    """Every record is in the stream, and every result in the query's."""
    orders, spend = (StreamLog.open(p.home.path, name).index().next for name in ("orders", "spend"))
    letters = p.dead_letters()
    if orders != count or spend < count or letters:
        raise RuntimeError(f"{orders:,} of {count:,} records, {spend:,} results, {len(letters):,} dead letters")


def _source_process() -> psutil.Process:
    for child in psutil.Process().children():
        if "hayase.connectors.worker" in child.cmdline():
            return child
    raise RuntimeError("the source has no process")


def _cpu(process: psutil.Process) -> float:
    return sum(process.cpu_times()[:2])
