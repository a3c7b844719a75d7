"""Kafka without ZooKeeper (KRaft): one node or several, each broker and controller in one process; plaintext, or SASL over TLS.

The jars come from Maven Central, as `kafka.xml` pins them. Every topic is replicated to up to three nodes, and with three nodes a
write needs two of them: one may be lost. Sessions are short, so that a node that is killed is soon replaced.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from base64 import b64encode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp
from typing import Self
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic

from servers.certificates import Certificates, write_certificates
from servers.maven import java, maven
from servers.parts import GET, fetch, find
from servers.process import PATIENCE, Missing, Server, free_port

__all__ = ["MECHANISMS", "PASSWORD", "USER", "Broker", "Kafka", "fetch_kafka"]

USER, PASSWORD = "shop", "only-for-tests"
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *_SCRAM)
_POM = Path(__file__).with_name("kafka.xml")
_VERSION = re.findall(r"<version>([\w.]+)</version>", _POM.read_text(encoding="utf-8"))[1]
_NAME = f"kafka-{_VERSION}-{hashlib.sha256(_POM.read_bytes()).hexdigest()[:8]}"


def fetch_kafka() -> None:
    """Get Kafka's jars with Maven, if they are not in the user's cache."""
    fetch(_NAME, _copy_jars)


def _copy_jars(directory: Path) -> None:
    shutil.copy(_POM, directory / "pom.xml")
    maven(directory, "copy-dependencies")


class Broker(Server):
    """One node of Kafka: a broker and a controller."""

    name = "Kafka"

    def __init__(self, node: int, settings: dict[str, str], cluster: str) -> None:
        self._java = java()
        self._jars = find(_NAME)
        if self._jars is None:
            raise Missing(f"there is no Kafka {_VERSION} in the user's cache; {GET}")
        super().__init__()
        self.node = node
        self._cluster = cluster
        self._settings = settings | {"node.id": str(node), "log.dirs": str(self.directory / "data")}

    def prepare(self) -> None:
        properties = "".join(f"{key}={value}\n" for key, value in self._settings.items())
        (self.directory / "server.properties").write_text(properties, encoding="utf-8")
        credentials = [
            part for mechanism in _SCRAM for part in ("--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]")
        ]
        self.run([
            *self._run("kafka.tools.StorageTool"), "format", "--cluster-id", self._cluster, "--config", "server.properties",
            *credentials,
        ])  # fmt: skip

    def command(self) -> list[str]:
        return [*self._run("kafka.Kafka"), "server.properties"]

    def answers(self) -> bool:
        return "Kafka Server started" in self.log_text()

    def _run(self, program: str) -> list[str]:
        return [
            *self._java,
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            "-cp", f"{self._jars}/*", program,
        ]  # fmt: skip


class Kafka:
    """A cluster of one node or more. What is done to it is done to all nodes; `brokers` are the nodes one by one.

    With `secured`, clients log in by SASL (`MECHANISMS`) over TLS; nodes trust each other. `advertised` are the ports at which
    clients are told to find the nodes: those of proxies.
    """

    def __init__(self, nodes: int = 1, secured: bool = False, advertised: Sequence[int] = ()) -> None:
        ports = [(free_port(), free_port(), free_port()) for _ in range(nodes)]
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, (_, port, _) in enumerate(ports, 1))
        cluster = b64encode(uuid4().bytes, b"ab").decode().rstrip("=")
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port, _, _ in ports)
        self.brokers: list[Broker] = []
        self.directory = Path(mkdtemp(prefix="hayase-kafka-"))
        self.certificates = write_certificates(self.directory) if secured else None
        shared = _settings(nodes, voters) | (_security(self.certificates) if self.certificates else {})
        try:
            for node, node_ports in enumerate(ports, 1):
                told = advertised[node - 1] if advertised else node_ports[0]
                self.brokers.append(Broker(node, shared | _listeners(*node_ports, told, secured), cluster))
        except BaseException:
            self.close()
            raise

    def client(self, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
        """Return the settings of a client; `mechanism` counts only for a secured cluster."""
        settings = {"bootstrap.servers": self.bootstrap}
        if self.certificates is not None:
            settings |= {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": mechanism,
                "sasl.username": USER,
                "sasl.password": PASSWORD,
                "ssl.ca.location": str(self.certificates.authority),
            }
        return settings

    def create_topic(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """Create a topic; names of settings are written with underscores."""
        renamed = {name.replace("_", "."): value for name, value in settings.items()}
        admin = AdminClient(self.client())
        created = admin.create_topics([NewTopic(topic, partitions, config=renamed)], operation_timeout=PATIENCE)
        created[topic].result(PATIENCE)

    def start(self, wait: bool = True) -> Self:
        """Start the nodes that do not run; by default wait until they answer."""
        with ThreadPoolExecutor(len(self.brokers)) as pool:  # every node formats its directory when it first starts
            list(pool.map(lambda broker: broker.running or broker.start(wait=False), self.brokers))
        if wait:
            self.wait()
        return self

    def wait(self) -> None:
        for broker in self.brokers:
            broker.wait()

    def stop(self) -> None:
        for broker in self.brokers:
            broker.stop()

    def kill(self) -> None:
        for broker in self.brokers:
            broker.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        for broker in self.brokers:
            broker.pause()

    def resume(self) -> None:
        for broker in self.brokers:
            broker.resume()

    def close(self) -> None:
        for broker in self.brokers:
            broker.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *error: object) -> None:
        self.close()


def _settings(nodes: int, voters: str) -> dict[str, str]:
    """Return the settings that all nodes of a cluster share."""
    copies, needed = str(min(nodes, 3)), "2" if nodes >= 3 else "1"
    return {
        "process.roles": "broker,controller",
        "controller.quorum.voters": voters,
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": needed,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": needed,
        "transaction.state.log.num.partitions": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "group.initial.rebalance.delay.ms": "0",
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": "4194304",  # 128 MiB by default, half of the memory here
    }


def _listeners(port: int, controller_port: int, node_port: int, told: int, secured: bool) -> dict[str, str]:
    """Return where a node listens: for clients, who are told another port, for the other nodes' controllers and for their
    brokers."""
    listening = {"CLIENTS": port, "CONTROLLER": controller_port, "NODES": node_port}
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:{number}" for name, number in listening.items()),
        "advertised.listeners": f"CLIENTS://127.0.0.1:{told},NODES://127.0.0.1:{node_port}",
        "listener.security.protocol.map": (
            f"CLIENTS:{'SASL_SSL' if secured else 'PLAINTEXT'},CONTROLLER:PLAINTEXT,NODES:PLAINTEXT"
        ),
        "inter.broker.listener.name": "NODES",
        "controller.listener.names": "CONTROLLER",
    }


def _security(certificates: Certificates) -> dict[str, str]:
    """Return the settings by which clients log in over TLS."""
    store = certificates.key.with_name("server.pem")
    store.touch(mode=0o600)
    store.write_bytes(certificates.key.read_bytes() + certificates.certificate.read_bytes())
    login = "org.apache.kafka.common.security"
    return {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.clients.ssl.keystore.type": "PEM",
        "listener.name.clients.ssl.keystore.location": str(store),
        "listener.name.clients.plain.sasl.jaas.config": f'{login}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
        **{
            f"listener.name.clients.{name.lower()}.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;"
            for name in _SCRAM
        },
    }
