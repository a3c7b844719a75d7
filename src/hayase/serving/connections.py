"""Connections: uvicorn's, with a bound on what a client may send before it is a request.

httptools parses requests much faster than h11 does, but takes headers without end, and uvicorn waits for them for ever.
Here a connection is closed whose next request is not complete up to its body after so many bytes or seconds. Where there
is no httptools, h11 does the work, which has a bound of its own.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

__all__ = ["HEAD_SECONDS", "MOST_HEAD", "connection_kind"]

MOST_HEAD = 64 << 10
"""Bytes of a request line and headers; what is shorter than this and still too long is told so (414, 431)."""
HEAD_SECONDS = 30.0


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

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._expect()

        def connection_lost(self, exc: Exception | None) -> None:
            self._complete()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
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
