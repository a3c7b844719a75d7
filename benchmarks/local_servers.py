"""The servers of `bench connectors`, those of `tests/servers`: Kafka, PostgreSQL, and the jars of Spark's own source for Kafka."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path
from typing import Any

__all__ = ["kafka", "postgres", "spark_kafka_jars"]

_TESTS = Path(__file__).resolve().parent.parent / "tests"
_POM = Path(__file__).with_name("plain_kafka.xml")


def _reach() -> None:
    if str(_TESTS) not in sys.path:
        sys.path.insert(0, str(_TESTS))


def kafka() -> Any:
    """Return a Kafka of one node, which is a context manager; its jars are fetched if they are missing."""
    _reach()
    from servers.kafka import Kafka, fetch_kafka  # type: ignore[import-not-found]

    fetch_kafka()
    return Kafka()


def postgres() -> Any:
    """Return a PostgreSQL that syncs every commit, which is a context manager; it is fetched if it is missing."""
    _reach()
    from servers.postgres import Postgres, fetch_postgres  # type: ignore[import-not-found]

    fetch_postgres()
    return Postgres(fsync="on")


def spark_kafka_jars() -> list[str]:
    """Return the jars of Spark's own source for Kafka, as `plain_kafka.xml` pins them; they are fetched if they are missing."""
    _reach()
    from servers.maven import maven  # type: ignore[import-not-found]
    from servers.parts import fetch, find  # type: ignore[import-not-found]

    name = f"spark-kafka-{hashlib.sha256(_POM.read_bytes()).hexdigest()[:8]}"

    def copy(directory: Path) -> None:
        shutil.copy(_POM, directory / "pom.xml")
        maven(directory, "copy-dependencies")

    fetch(name, copy)
    return sorted(str(path) for path in find(name).glob("*.jar"))
