"""A TCP proxy between Hayase and a server: it drops connections, all of them or at a certain request.

A request is known by its name, which a reader finds in the bytes that a client sends: of Kafka by the key of the API, of PostgreSQL
by its text. A connection is dropped before the request reaches the server, or behind it, so that only the answer is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from servers.process import free_port

__all__ = ["Proxy", "Trap", "kafka_requests", "postgres_requests"]

Reader = Callable[[bytes], Collection[str]]
"""Takes what a client sends, piece by piece, and returns the names of the requests that begin in a piece."""
_KAFKA = {
    0: "Produce",
    1: "Fetch",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    28: "TxnOffsetCommit",
}


@dataclass
class Trap:
    """A request at which connections are dropped, once: in front of the server, or behind it if it `passes`."""

    request: str
    passes: bool
    struck: threading.Event = field(default_factory=threading.Event)


def kafka_requests() -> Reader:
    """Name the requests of Hayase's clients; those of others have no name."""
    waiting, rest = bytearray(), 0

    def seen(data: bytes) -> list[str]:
        nonlocal rest
        names = []
        waiting.extend(data)
        while True:
            passed = min(rest, len(waiting))
            del waiting[:passed]
            rest -= passed
            if rest or len(waiting) < 14:
                return names
            size, api, _, _, length = struct.unpack(">ihhih", waiting[:14])
            if len(waiting) < 14 + max(length, 0):
                return names
            if waiting[14 : 14 + max(length, 0)] == b"hayase":
                names.append(_KAFKA.get(api, str(api)))
            rest = size + 4

    return seen


def postgres_requests() -> Reader:
    """Name the statements that begin and end a transaction, and copies."""
    return lambda data: [name for name in ("BEGIN", "COPY", "COMMIT") if name.encode() in data]


class Proxy:
    """Takes connections at `port` of 127.0.0.1 and connects each to `target`, a port there too."""

    def __init__(self, requests: Callable[[], Reader], target: int = 0):
        self.port, self.target = free_port(), target
        self._requests = requests
        self._links: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._trap: Trap | None = None
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True).start()
        self._call(asyncio.start_server(self._serve, "127.0.0.1", self.port))

    def drop(self) -> None:
        """Drop all connections; new ones are taken."""
        self._call(self._dropped())

    def arm(self, trap: Trap | None) -> None:
        """Drop all connections when a request comes; None: do not any more."""
        self._trap = trap

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _dropped(self) -> None:
        for client, server in self._links:
            client.transport.abort()
            server.close()  # what it was sent gets there

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        link = (writer, server)
        self._links.add(link)
        ways = [
            asyncio.ensure_future(self._pass_on(reader, server, self._requests())),
            asyncio.ensure_future(self._pass_on(server_reader, writer, None)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        self._links.discard(link)
        for way in ways:
            way.cancel()
        for end in link:
            end.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Reader | None) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                trap, names = self._trap, () if seen is None else seen(data)
                if trap is not None and trap.request in names and not trap.struck.is_set():
                    trap.struck.set()
                    if trap.passes:
                        writer.write(data)
                        await writer.drain()
                    await self._dropped()
                    return
                writer.write(data)
                await writer.drain()
