"""Connections: uvicorn's, with a bound on what a client may send before it is a request.

httptools parses requests much faster than h11 does, but takes headers without end, and uvicorn waits for them for ever.
Here a connection is closed whose next request is not complete up to its body after so many bytes or seconds. When there are
more connections than can be had, one that waits for nothing but its client is closed for each new one: the longest waiting
of the client that has most. Where there is no httptools, h11 does the work, which has bounds of its own.
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
"""Bytes of a request line and headers; what is shorter than this and still too long is told so (414, 431)."""
HEAD_SECONDS = 10.0
IDLE_SECONDS = 5
"""For the next request on a connection that has had its answer."""
_MOST = 1000
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def most_connections() -> int:
    """At once; half of the files that this process may have open, if that is less."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if files == resource.RLIM_INFINITY else max(16, min(_MOST, files // 2))


def _longest_waiting(connections: Iterable[Any]) -> Any | None:
    """Of connections without a request, the one to close first."""
    clients = Counter(connection.host for connection in connections)
    idle = [connection for connection in connections if connection.cycle is None or connection.cycle.response_complete]
    return min(idle, key=lambda each: (-clients[each.host], each.since), default=None)


@cache
def connection_kind() -> Any:
    """The class of connections, as uvicorn takes it."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:
        return "h11"

    class Bounded(HttpToolsProtocol):
        """A connection that does not wait for a head for ever."""

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
                if self._head > MOST_HEAD + len(data):  # of this piece a body may be a part
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
