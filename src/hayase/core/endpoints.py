"""Endpoints: the other side of a source or an output, as Python programs write it.

p.stream("orders", schema, source=hy.Kafka(brokers="localhost:9092", topic="orders"))
p.output("alerts", reads="spree", to=hy.Kafka(brokers="localhost:9092", topic="alerts"))
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = [
    "Delta", "Endpoint", "Files", "Iceberg", "Kafka", "Parquet", "Postgres", "PythonClass", "Spark", "Webhook",
]  # fmt: skip


class Endpoint(NamedTuple):
    """A kind, such as `kafka`, and its options, as in a pipeline file; they are checked where the endpoint is used."""

    kind: str
    options: dict[str, Any]

    @property
    def data(self) -> dict[str, Any]:
        """The plain data of a pipeline file."""
        return {self.kind: {name: value for name, value in self.options.items() if value is not None}}


def Files(path: str, **options: Any) -> Endpoint:  # noqa: N802 (reads like the kind)
    """Return the files of a directory, a pattern or an object store. All options are in docs/connectors-files.md."""
    return Endpoint("files", {"path": path, **options})


def Parquet(path: str, **options: Any) -> Endpoint:  # noqa: N802 (reads like the kind)
    """Return a directory of Parquet files. All options are in docs/connectors-files.md."""
    return Endpoint("parquet", {"path": path, **options})


def Delta(path: str, **options: Any) -> Endpoint:  # noqa: N802 (reads like the kind)
    """Return a Delta table. All options are in docs/connectors-files.md."""
    return Endpoint("delta", {"path": path, **options})


def Iceberg(table: str, **options: Any) -> Endpoint:  # noqa: N802 (reads like the kind)
    """Return an Iceberg table. All options are in docs/connectors-files.md."""
    return Endpoint("iceberg", {"table": table, **options})


def Webhook(url: str, **options: Any) -> Endpoint:  # noqa: N802 (reads like the kind)
    """Return a URL that gets requests. All options are in docs/connectors-files.md."""
    return Endpoint("webhook", {"url": url, **options})


def Spark(format: str, **options: Any) -> Endpoint:  # noqa: N802 (reads like the kind)
    """Return a streaming source of Spark, by its format. All options are in docs/connectors-files.md."""
    return Endpoint("spark", {"format": format, **options})


def Kafka(*, brokers: str, topic: str, **options: Any) -> Endpoint:  # noqa: N802 (reads like the kind)
    """Return a topic of Kafka. All options are in docs/connectors.md."""
    return Endpoint("kafka", {"brokers": brokers, "topic": topic, **options})


def Postgres(*, table: str, **options: Any) -> Endpoint:  # noqa: N802 (reads like the kind)
    """Return a table of PostgreSQL. All options are in docs/connectors-postgres.md."""
    return Endpoint("postgres", {"table": table, **options})


def PythonClass(place: str, **options: str) -> Endpoint:  # noqa: N802 (reads like the kind)
    """Return a source or a sink of your own: "module:Class", and options for it."""
    return Endpoint("python", {"class": place, "options": options})
