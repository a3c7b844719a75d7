"""A REST catalog of Iceberg: the server of Iceberg's own tests, with the catalog in an SQLite file and the data in a directory.

It listens at all addresses of the machine, and has no option for that.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from servers.maven import java, maven
from servers.parts import GET, fetch, find
from servers.process import Missing, Server, port_open

__all__ = ["IcebergCatalog", "environment_of_clients", "fetch_iceberg"]

_POM = Path(__file__).with_name("iceberg.xml")
_NAME = f"iceberg-rest-1.10.0-{hashlib.sha256(_POM.read_bytes()).hexdigest()[:8]}"


def fetch_iceberg() -> None:
    """Get the server (82 MB) with Maven, if it is not in the user's cache."""
    fetch(_NAME, _copy_jars)


def _copy_jars(directory: Path) -> None:
    shutil.copy(_POM, directory / "pom.xml")
    maven(directory, "copy-dependencies")


def environment_of_clients(port: int) -> dict[str, str]:
    """The variables by which pyiceberg finds the catalog at a port, under the name `prod`; it reads them when it is imported."""
    return {"PYICEBERG_CATALOG__PROD__TYPE": "rest", "PYICEBERG_CATALOG__PROD__URI": f"http://127.0.0.1:{port}"}


class IcebergCatalog(Server):
    """A catalog; clients find it by the variables of `environment_of_clients`."""

    name = "Iceberg"

    def __init__(self, port: int) -> None:
        self._java = java()
        jars = find(_NAME)
        if jars is None:
            raise Missing(f"there is no REST catalog of Iceberg in the user's cache; {GET}")
        super().__init__()
        self._jars = jars
        self.port = port
        (self.directory / "warehouse").mkdir()
        self.environment = {
            "CATALOG_WAREHOUSE": (self.directory / "warehouse").as_uri(),
            "CATALOG_URI": f"jdbc:sqlite:file:{self.directory}/catalog.db",
            "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
            "CATALOG_REST_PORT": str(self.port),
        }

    def command(self) -> list[str]:
        return [*self._java, "-cp", f"{self._jars}/*", "org.apache.iceberg.rest.RESTCatalogServer"]

    def answers(self) -> bool:
        return port_open(self.port)
