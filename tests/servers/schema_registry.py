"""A schema registry for Avro: Apicurio Registry, whose `/apis/ccompat/v7` are the routes of Confluent's, with an H2 file."""

from __future__ import annotations

from pathlib import Path

import httpx

from servers.maven import java, maven
from servers.parts import GET, fetch, find
from servers.process import Missing, Server, free_port

__all__ = ["SchemaRegistry", "fetch_schema_registry"]

_VERSION = "2.6.13.Final"  # the newest complete release that runs on Java 17
_NAME = f"apicurio-registry-{_VERSION}"


def fetch_schema_registry() -> None:
    """Get Apicurio Registry (142 MB) with Maven, if it is not in the user's cache."""
    fetch(_NAME, _unpack)


def _unpack(directory: Path) -> None:
    maven(directory, "unpack", f"-Dartifact=io.apicurio:apicurio-registry-app:{_VERSION}:tar.gz:all")


class SchemaRegistry(Server):
    """A schema registry; clients take `url`."""

    name = "Registry"

    def __init__(self) -> None:
        self._java = java()
        self._parts = find(_NAME)
        if self._parts is None:
            raise Missing(f"there is no Apicurio Registry {_VERSION} in the user's cache; {GET}")
        super().__init__()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def command(self) -> list[str]:
        return [
            *self._java,
            "-Dquarkus.http.host=127.0.0.1",
            f"-Dquarkus.http.port={self.port}",
            "-Dquarkus.datasource.jdbc.initial-size=2",
            "-Dquarkus.datasource.jdbc.min-size=2",
            f"-Dquarkus.datasource.jdbc.url=jdbc:h2:file:{self.directory}/registry;WRITE_DELAY=0",  # what was answered is kept
            "-jar",
            f"{self._parts}/apicurio-registry-app-{_VERSION}-runner.jar",
        ]

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/subjects", trust_env=False, timeout=30).status_code == 200
        except httpx.TransportError:
            return False
