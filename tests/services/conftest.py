"""Servers, started when a test first asks for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar
from uuid import uuid4

import pytest

from servers.azure import Azure
from servers.gcs import GoogleStorage
from servers.iceberg import IcebergCatalog, environment_of_clients
from servers.kafka import Kafka
from servers.postgres import Postgres
from servers.process import Missing, free_port
from servers.s3 import S3
from servers.schema_registry import SchemaRegistry

CATALOG_PORT = free_port()
os.environ.update(environment_of_clients(CATALOG_PORT))  # before a test imports pyiceberg
Started = TypeVar("Started", bound=AbstractContextManager[object])


@contextmanager
def server(build: Callable[[], Started]) -> Iterator[Started]:
    """A running server, or a skipped test that says what is missing."""
    try:
        built = build()
    except Missing as missing:
        pytest.skip(str(missing))
    with built:
        yield built


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """Kafka with one node. Who stops it starts it again; who needs a topic of its own creates it."""
    with server(Kafka) as started:
        yield started


@pytest.fixture(scope="session")
def secured_kafka() -> Iterator[Kafka]:
    """Kafka with one node, whose clients log in over TLS."""
    with server(lambda: Kafka(secured=True)) as started:
        yield started


@pytest.fixture(scope="session")
def three_brokers() -> Iterator[Kafka]:
    """Kafka with three nodes, of which one may be lost."""
    with server(lambda: Kafka(nodes=3)) as started:
        yield started


@pytest.fixture(scope="session")
def schema_registry() -> Iterator[SchemaRegistry]:
    """A registry of Avro schemas."""
    with server(SchemaRegistry) as started:
        yield started


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """PostgreSQL with logical replication. Who needs a table, a publication or a slot of its own creates it."""
    with server(Postgres) as started:
        yield started


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """An S3 server. Who needs a bucket of its own creates it."""
    with server(S3) as started:
        yield started


@pytest.fixture(scope="session")
def azure() -> Iterator[Azure]:
    """Azure's blob storage. Who needs a container of its own creates it."""
    with server(Azure) as started:
        yield started


@pytest.fixture(scope="session")
def gcs() -> Iterator[GoogleStorage]:
    """Google Cloud Storage, for reading. Who needs a bucket of its own creates it."""
    with server(GoogleStorage) as started:
        yield started


@pytest.fixture(scope="session")
def iceberg_catalog() -> Iterator[IcebergCatalog]:
    """A REST catalog of Iceberg. Who needs a namespace of its own creates it."""
    with server(lambda: IcebergCatalog(CATALOG_PORT)) as started:
        yield started


@pytest.fixture(params=["s3", "azure"])
def object_store(request: pytest.FixtureRequest) -> S3 | Azure | GoogleStorage:
    """Each kind of object store that can be written; a test that only reads also asks for `gcs`."""
    started: S3 | Azure | GoogleStorage = request.getfixturevalue(request.param)
    return started


@pytest.fixture
def bucket(object_store: S3 | Azure | GoogleStorage, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a new bucket; the variables of the environment lead to it."""
    name = f"b{uuid4().hex}"
    object_store.create_bucket(name)
    for variable, value in object_store.environment_of_clients.items():
        monkeypatch.setenv(variable, value)
    return f"{object_store.scheme}://{name}"
