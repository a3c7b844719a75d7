"""Google Cloud Storage: fake-gcs-server over a directory, built by Go.

It has the JSON interface, and of the XML interface, which obstore uses, only what reads: tests put objects by
JSON, and outputs cannot be tested with it.
"""

from __future__ import annotations

import json
import shutil
import urllib.request
from pathlib import Path

from servers.parts import GET, fetch, find, run
from servers.process import Missing, Server, free_port, port_open

__all__ = ["GoogleStorage", "fetch_gcs"]

_VERSION = "v1.56.1"
_NAME = f"fake-gcs-server-{_VERSION}"
_MODULE = f"github.com/fsouza/fake-gcs-server@{_VERSION}"


def fetch_gcs() -> None:
    """Build the server, if it is not in the user's cache."""
    fetch(_NAME, _build)


def _build(directory: Path) -> None:
    if (go := shutil.which("go")) is None:
        raise Missing(
            "Go 1.25 or newer is missing, which builds the server of Google's storage; get it from https://go.dev/dl"
        )
    run(
        [go, "install", _MODULE],
        environment={"GOBIN": str(directory), "GOFLAGS": "-buildvcs=false", "CGO_ENABLED": "0"},
    )


class GoogleStorage(Server):
    """Objects for reading. Clients take `environment_of_clients`; whoever needs a bucket creates it."""

    name = "GCS"
    scheme = "gs"

    def __init__(self) -> None:
        parts = find(_NAME)
        if parts is None:
            raise Missing(f"there is no fake-gcs-server {_VERSION} in the user's cache; {GET}")
        super().__init__()
        self._program = parts / "fake-gcs-server"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        (self.directory / "data").mkdir()

    @property
    def environment_of_clients(self) -> dict[str, str]:
        """The variables by which clients of Google's storage find the server; it asks nobody who they are."""
        return {"GOOGLE_BASE_URL": self.url, "GOOGLE_SKIP_SIGNATURE": "true"}

    def create_bucket(self, name: str) -> None:
        """Create an empty bucket."""
        about, kind = json.dumps({"name": name}).encode(), {"Content-Type": "application/json"}
        with urllib.request.urlopen(
            urllib.request.Request(f"{self.url}/storage/v1/b?project=tests", about, kind)
        ) as answer:
            assert answer.status == 200

    def command(self) -> list[str]:
        return [
            str(self._program), "-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port), "-public-host",
            f"127.0.0.1:{self.port}", "-filesystem-root", "data", "-log-level", "warn",
        ]  # fmt: skip

    def answers(self) -> bool:
        return port_open(self.port)
