"""The servers of connector rounds: three nodes of Kafka and a PostgreSQL, behind proxies, and small disks for targets.

They are started once and serve all rounds of a process; a round has topics, tables and directories of its own.
"""

from __future__ import annotations

import atexit
import functools
import json
import logging
import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg2
from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from campaign.live import can_mount
from campaign.proxy import Proxy, Trap, kafka_requests, postgres_requests
from servers.kafka import Kafka
from servers.postgres import PASSWORD, USER, Postgres
from servers.process import PATIENCE, unprivileged

__all__ = ["Endpoints", "SmallDisk", "endpoints"]

TABLESPACE = "small"
PARTITION_END = -191
"""The code with which a client says that it has read a partition to its end."""


class SmallDisk:
    """A file system with little room that can be filled; an ordinary directory where nothing can be mounted."""

    def __init__(self, path: Path, owner: int | None = None, size: str = "24m"):
        self.path, self._filler = path, path / "filler"
        path.mkdir(parents=True, exist_ok=True)
        self.is_small = can_mount()
        if self.is_small:
            user = "" if owner is None else f",uid={owner},gid={owner}"
            command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700{user}", "none", str(path)]
            subprocess.run(command, check=True)
        elif owner is not None:
            os.chown(path, owner, owner)

    def fill(self) -> None:
        """Leave no byte."""
        with self._filler.open("ab", buffering=0) as filler:
            size = 2**20
            while size:
                try:
                    filler.write(bytes(size))
                except OSError:
                    size //= 4

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        if self.is_small:
            subprocess.run(["umount", "--lazy", str(self.path)], check=False)


class Endpoints:
    """Kafka, PostgreSQL and a small disk. Hayase reaches the servers through `kafka_proxies` and `postgres_proxy`."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        try:
            self.kafka_proxies = [Proxy(kafka_requests) for _ in range(3)]
            self.kafka = Kafka(nodes=3, advertised=[proxy.port for proxy in self.kafka_proxies])
            self._stack.callback(self.kafka.close)
            for proxy, address in zip(self.kafka_proxies, self.kafka.bootstrap.split(",")):
                proxy.target = int(address.rpartition(":")[2])
            self.brokers = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.kafka_proxies)
            self.postgres = Postgres(wal_sender_timeout="5s")
            self._stack.callback(self.postgres.close)
            self.kafka.start(wait=False)
            self.postgres.start()
            self.postgres_proxy = Proxy(postgres_requests, self.postgres.port)
            self.table_disk = SmallDisk(self.postgres.directory / "small", unprivileged())
            self._stack.callback(self.table_disk.close)
            self.postgres.execute(f"CREATE TABLESPACE {TABLESPACE} LOCATION '{self.table_disk.path}'")
            directory = Path(tempfile.mkdtemp(prefix="hayase-lake-"))
            self._stack.callback(shutil.rmtree, directory, ignore_errors=True)
            self.lake_disk = SmallDisk(directory / "lake")
            self._stack.callback(self.lake_disk.close)
            self.kafka.wait()
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        self._stack.close()

    @property
    def dsn(self) -> str:
        """The connection string of Hayase: through the proxy."""
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.postgres_proxy.port}/postgres"

    @property
    def small_dsn(self) -> str:
        """The same for tables that are created on the small disk."""
        return f"{self.dsn}?options=-c%20default_tablespace%3D{TABLESPACE}"

    def heal(self) -> None:
        """Bring back what is away."""
        for proxy in (*self.kafka_proxies, self.postgres_proxy):
            proxy.arm(None)
        self.lake_disk.free()
        self.table_disk.free()
        self.kafka.start()
        if not self.postgres.running:
            self.postgres.start()

    def trap_kafka(self, request: str, passes: bool) -> Trap:
        """Drop the connections to a broker at a request of Hayase's; it must be disarmed by `heal`."""
        trap = Trap(request, passes)
        for proxy in self.kafka_proxies:
            proxy.arm(trap)
        return trap

    def trap_postgres(self, request: str, passes: bool) -> Trap:
        trap = Trap(request, passes)
        self.postgres_proxy.arm(trap)
        return trap

    # ------------------------------------------------------------------------------------------------------------ Kafka

    def client(self) -> dict[str, Any]:
        """The settings of a client of the round's own."""
        return {**self.kafka.client(), "logger": _quiet(), "error_cb": lambda error: None}

    def create_topics(self, *names: str) -> None:
        for name in names:
            self.kafka.create_topic(name, 3)

    def remove_topics(self, *names: str) -> None:
        admin = AdminClient(self.client())  # as long as its answers are awaited
        for future in admin.delete_topics(list(names)).values():
            with suppress(Exception):  # the next round has others
                future.result(PATIENCE)

    def unstable(self, topic: str) -> dict[int, tuple[int, int]]:
        """Partitions with an open transaction: the end of what is committed, and the end."""
        admin = AdminClient(self.client())
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(3)}
        ends = []
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
            answers = admin.list_offsets(asked, isolation_level=level)
            ends.append({place.partition: answer.result(PATIENCE).offset for place, answer in answers.items()})
        stable, whole = ends
        return {number: (end, whole[number]) for number, end in stable.items() if end != whole[number]}

    def messages(self, topic: str) -> list[Any]:
        """All committed messages of a topic, as JSON."""
        consumer = Consumer({
            **self.client(), "group.id": uuid4().hex, "isolation.level": "read_committed",
            "enable.partition.eof": True, "enable.auto.commit": False,
        })  # fmt: skip
        consumer.assign([TopicPartition(topic, number, 0) for number in range(3)])
        values, ended, deadline = [], set(), time.monotonic() + PATIENCE
        with closing(consumer):
            while len(ended) < 3:
                assert time.monotonic() < deadline, f"topic {topic} cannot be read to its end"
                for message in consumer.consume(1000, 0.5):
                    if message.error() is None:
                        values.append(json.loads(message.value()))
                    elif message.error().code() == PARTITION_END:
                        ended.add(message.partition())
        return values

    # ------------------------------------------------------------------------------------------------------- PostgreSQL

    def rows(self, query: str) -> Counter[tuple[Any, ...]]:
        """The rows of a query; asked again while the server is away."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return Counter(self.postgres.execute(query))
            except psycopg2.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def drop_slot(self, slot: str) -> bool:
        """Drop a slot as soon as nobody uses it; False if it was not there."""
        deadline = time.monotonic() + PATIENCE
        end = f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{slot}' AND active"
        drop = f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{slot}'"
        while time.monotonic() < deadline:
            with suppress(psycopg2.Error):
                return bool(self.postgres.execute(end, drop))
        raise AssertionError(f"slot {slot} cannot be dropped")


@functools.cache
def endpoints() -> Endpoints:
    """The servers of this process."""
    started = Endpoints()
    atexit.register(started.close)
    return started


@functools.cache
def _quiet() -> Any:
    """A logger that says nothing of brokers that are away."""
    logger = logging.getLogger("campaign.kafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
