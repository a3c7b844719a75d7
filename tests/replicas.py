"""A replica in this process whose follower looks when it is told to, and a client of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from hayase.core.addresses import Address, listening
from hayase.core.clock import now_us
from hayase.engine.home import Home
from hayase.serving import Limits, Status, create_app
from hayase.serving.follower import Follower
from hayase.serving.replica_service import ReplicaService
from hayase.serving.server import served_at

__all__ = ["Replica", "replica_of"]


@dataclass
class Replica:
    """A replica that is being served."""

    status: Status
    follower: Follower
    http: httpx.Client

    def get(self, path: str) -> httpx.Response:
        return self.http.get(path)

    def newest(self, path: str) -> httpx.Response:
        """Let the follower look, then ask."""
        self.follower.look()
        return self.http.get(path)


@contextlib.contextmanager
def replica_of(home: Path, limits: Limits | None = None) -> Iterator[Replica]:
    """Serve a home at a free port."""
    status = Status()
    app = create_app(ReplicaService(Home(home), now_us, status), limits=limits)
    with listening(Address("127.0.0.1", 0), is_secured=False) as listener, served_at(listener, app):
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with httpx.Client(base_url=url, trust_env=False) as http:
            yield Replica(status, Follower(Home(home), status), http)
