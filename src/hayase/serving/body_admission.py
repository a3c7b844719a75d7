"""Admission of request bodies: counts them while they arrive, and sheds the slowest when there are too many.

A request whose body is not complete costs a little memory and no thread, so it does not count as a running request. When too
many bodies are incomplete, the slowest body of the client that sends most of them is refused: a client that sends slowly, or
many bodies at once, makes room for the others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from hayase.serving.problems import Problem, busy

__all__ = ["Body", "Incoming", "too_long"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

FRESH_SECONDS = 1.0
"""Seconds after its start in which a body is not considered slow."""


class Incoming:
    """The incomplete bodies of a server; used in the thread of the event loop only."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._open: dict[Body, None] = {}
        self._bytes = 0

    @property
    def count(self) -> int:
        """The number of requests whose body is not complete."""
        return len(self._open)

    def begin(self, body: Body) -> None:
        """Admit a request with a body, if necessary in place of a slower one; a problem if no body is slow."""
        if len(self._open) >= self._most:
            slowest = self._slowest()
            if slowest is None:
                raise busy(f"{self._most} bodies are on their way, which is the limit; try again")
            slowest.shed()
        self._open[body] = None

    def add(self, size: int) -> None:
        """Count received bytes; a problem if all bodies together are too large."""
        self._bytes += size
        if self._bytes > self._most_bytes:
            raise busy("the bodies of all requests take too much memory; try again")

    def complete(self, body: Body) -> None:
        """Remove a body from the incomplete ones."""
        self._open.pop(body, None)

    def end(self, body: Body) -> None:
        """Release the memory count of a request that has ended."""
        self._open.pop(body, None)
        self._bytes -= body.size

    def _slowest(self) -> Body | None:
        clients = Counter(body.client for body in self._open)
        slow = [body for body in self._open if body.age() > FRESH_SECONDS]
        return min(slow, key=lambda body: (-clients[body.client], body.size / body.age()), default=None)


class Body:
    """The `receive` function of a request; it raises a problem when the body is too long or was shed."""

    __slots__ = ("_began", "_incoming", "_limit", "_loop", "_receive", "_shed", "client", "size")

    def __init__(self, receive: Receive, client: str, limit: int, incoming: Incoming, expected: bool):
        self._receive, self._limit, self._incoming, self.client = receive, limit, incoming, client
        self._loop = asyncio.get_running_loop()
        self._began, self.size = self._loop.time(), 0
        self._shed: asyncio.Future[None] | None = self._loop.create_future() if expected else None

    async def __call__(self) -> Message:
        if self._shed is None:
            return await self._receive()
        if self._shed.done():
            raise _too_slow()
        message = await self._next(self._shed)
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            self.size += size
            self._incoming.add(size)
            if self.size > self._limit:
                raise too_long(self._limit)
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._shed = None
            self._incoming.complete(self)
        return message

    async def _next(self, shed: asyncio.Future[None]) -> Message:
        coming = asyncio.ensure_future(self._receive())
        try:
            both: set[asyncio.Future[Any]] = {coming, shed}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                raise _too_slow()
            return coming.result()
        finally:
            coming.cancel()

    def age(self) -> float:
        """Return the seconds since the body began."""
        return self._loop.time() - self._began

    def shed(self) -> None:
        """Refuse the body, to make room for another."""
        self._incoming.complete(self)
        if self._shed is not None and not self._shed.done():
            self._shed.set_result(None)


def too_long(limit: int) -> Problem:
    """Return the problem for a body that is too long."""
    return Problem(413, f"the body is longer than {limit:,} bytes; send it in parts")


def _too_slow() -> Problem:
    return Problem(408, "the body came more slowly than those of others, for which there was no room; send it faster")
