"""The connection class for uvicorn: limits on the size and the time of request headers, and on the number of connections.

httptools parses requests much faster than h11, but accepts headers of any length, and uvicorn waits for them without limit.
Here a connection is closed when the headers of its next request are not complete within so many bytes or seconds. When there
are too many connections, each new one replaces an idle one: the longest idle of the client that has most connections.
Without httptools, h11 is used, which has limits of its own.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

__all__ = ["HEAD_SECONDS", "MOST_HEAD", "connection_kind", "most_connections"]

MOST_HEAD = 64 << 10
"""Bytes of a request line and headers; shorter ones that are still too long are answered with 414 or 431."""
HEAD_SECONDS = 10.0
IDLE_SECONDS = 5
"""Seconds for the next request on a connection whose last request is answered."""
MOST_CONNECTIONS = 1000
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def most_connections() -> int:
    """Return the limit of connections: 1,000, or half of the files that this process may open if that is less."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else max(16, min(MOST_CONNECTIONS, files // 2))


def _longest_waiting(connections: Iterable[Any]) -> Any | None:
    """Return the idle connection to close first, or None if none is idle."""
    clients = Counter(connection.host for connection in connections)
    idle = [connection for connection in connections if connection.cycle is None or connection.cycle.response_complete]
    return min(idle, key=lambda connection: (-clients[connection.host], connection.since), default=None)


@cache
def connection_kind() -> Any:
    """Return the class of connections for uvicorn's `http` option."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:
        return "h11"

    class Bounded(HttpToolsProtocol):
        """A connection with limits on the headers of a request."""

        _head = 0
        _late: asyncio.TimerHandle | None = None
        host, since = "", 0.0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.host, self.since = (self.client or ("",))[0], self.loop.time()
            if len(self.connections) > most_connections():
                self.connections.discard(self)
                waiting = _longest_waiting(self.connections)
                if waiting is None:
                    transport.write(_FULL)
                    transport.close()
                    return
                self.connections.discard(waiting)
                waiting.transport.abort()
                self.connections.add(self)
            self._expect()

        def connection_lost(self, exc: Exception | None) -> None:
            self._complete()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            self.since = self.loop.time()
            if self._late is not None:
                self._head += len(data)
                if self._head > MOST_HEAD + len(data):  # this piece may contain a part of the body
                    self.transport.abort()
                    return
            super().data_received(data)

        def on_message_begin(self) -> None:
            if self._late is None:
                self._expect()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._complete()
            super().on_headers_complete()

        def _expect(self) -> None:
            self._late = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

        def _complete(self) -> None:
            self._head = 0
            if self._late is not None:
                self._late.cancel()
                self._late = None

    return Bounded
