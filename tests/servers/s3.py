"""S3: Versity's gateway over a directory, built by Go.

This release holds a lock from the check of a conditional write until the object is in place, so that of several writers exactly one
wins; older releases check and then write. `tests/services/test_s3_server.py` tests it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from servers.parts import GET, fetch, find, run
from servers.process import Missing, Server, free_port, port_open

__all__ = ["S3", "fetch_s3"]

_VERSION = "v1.8.0"
_NAME = f"versitygw-{_VERSION}"
_MODULE = f"github.com/versity/versitygw/cmd/versitygw@{_VERSION}"
_KEY, _SECRET, _REGION = "shop", "only-for-tests", "us-east-1"


def fetch_s3() -> None:
    """Build the gateway (three minutes on two cores), if it is not in the user's cache."""
    fetch(_NAME, _build)


def _build(directory: Path) -> None:
    if (go := shutil.which("go")) is None:
        raise Missing("Go 1.21 or newer is missing, which builds the S3 server; get it from https://go.dev/dl")
    run(
        [go, "install", _MODULE],
        environment={"GOBIN": str(directory), "GOFLAGS": "-buildvcs=false", "CGO_ENABLED": "0"},
    )


class S3(Server):
    """An S3 server. Clients take `environment_of_clients`; whoever needs a bucket creates it."""

    name = "S3"
    scheme = "s3"

    def __init__(self) -> None:
        parts = find(_NAME)
        if parts is None:
            raise Missing(f"there is no versitygw {_VERSION} in the user's cache; {GET}")
        super().__init__()
        self._program = parts / "versitygw"
        self.environment = {"ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _SECRET}
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.data = self.directory / "data"
        self.data.mkdir()
        try:
            os.setxattr(self.data, "user.hayase", b"")  # where the gateway keeps what it knows of an object
        except OSError:
            self.close()
            raise Missing(
                f"{self.directory.parent} has no extended attributes; set TMPDIR to a directory that has"
            ) from None

    @property
    def environment_of_clients(self) -> dict[str, str]:
        """The variables by which clients of S3 find the server and log in."""
        return {
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_REGION": _REGION,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
        }

    def create_bucket(self, name: str) -> None:
        """Create an empty bucket: the gateway's buckets are directories."""
        (self.data / name).mkdir()

    def command(self) -> list[str]:
        return [
            str(self._program),
            "--port",
            f"127.0.0.1:{self.port}",
            "--region",
            _REGION,
            "--keep-alive",
            "posix",
            "data",
        ]

    def answers(self) -> bool:
        return port_open(self.port)
