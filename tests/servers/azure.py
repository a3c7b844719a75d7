"""Azure's blob storage: Azurite, Microsoft's emulator, from npm.

This is the newest release that runs with Node 20.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import urllib.request
from email.utils import formatdate
from pathlib import Path

from servers.parts import GET, fetch, find, run
from servers.process import Missing, Server, free_port, port_open

__all__ = ["Azure", "fetch_azure"]

_VERSION = "3.35.0"
_NAME = f"azurite-{_VERSION}"
_PROGRAM = "node_modules/azurite/dist/src/blob/main.js"
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that every Azurite has; its key is no secret."""
_API = "2021-08-06"


def fetch_azure() -> None:
    """Install Azurite, if it is not in the user's cache."""
    fetch(_NAME, _build)


def _build(directory: Path) -> None:
    if (npm := shutil.which("npm")) is None:
        raise Missing("Node 20 or newer is missing, which runs the Azure server; Debian, Ubuntu: apt-get install npm")
    run([npm, "install", "--prefix", str(directory), "--omit=dev", "--no-audit", "--no-fund", f"azurite@{_VERSION}"])


class Azure(Server):
    """Blob storage. Clients take `environment_of_clients`; whoever needs a container creates it."""

    name = "Azure"
    scheme = "az"

    def __init__(self) -> None:
        parts, node = find(_NAME), shutil.which("node")
        if parts is None or node is None:
            raise Missing(f"there is no Azurite {_VERSION} in the user's cache, or no Node; {GET}")
        super().__init__()
        self._node, self._program = node, parts / _PROGRAM
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def environment_of_clients(self) -> dict[str, str]:
        """The variables by which clients of Azure find the server and log in."""
        return {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": self.url,
            "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
        }

    def create_bucket(self, name: str) -> None:
        """Create an empty container."""
        heads = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _API}
        signed = ["PUT", *[""] * 11, *(f"{head}:{value}" for head, value in heads.items())]
        text = "\n".join([*signed, f"/{_ACCOUNT}/{_ACCOUNT}/{name}", "restype:container"])
        signature = base64.b64encode(hmac.digest(base64.b64decode(_KEY), text.encode(), hashlib.sha256)).decode()
        heads |= {"Authorization": f"SharedKey {_ACCOUNT}:{signature}", "Content-Type": ""}
        address = f"{self.url}/{_ACCOUNT}/{name}?restype=container"
        with urllib.request.urlopen(urllib.request.Request(address, b"", heads, method="PUT")) as answer:
            assert answer.status == 201

    def command(self) -> list[str]:
        return [
            self._node, str(self._program), "--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--location", "data",
            "--skipApiVersionCheck", "--disableTelemetry", "--silent",
        ]  # fmt: skip

    def answers(self) -> bool:
        return port_open(self.port)
