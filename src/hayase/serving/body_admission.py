"""Bodies on their way in: counted while they come, and shed, the slowest first, when there are too many.

A request whose body is not complete costs a little memory and no thread, so it does not count among those that are being
answered. When more bodies are on their way than are taken at once, the client that sends most of them loses its slowest:
who sends slowly, or many at once, makes room for the others.
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

_FRESH = 1.0
"""Seconds in which a body is not called slow."""


class Incoming:
    """The bodies that are on their way to a server; for the loop's thread only."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._open: dict[Body, None] = {}
        self._bytes = 0

    @property
    def count(self) -> int:
        """Requests whose body is not complete."""
        return len(self._open)

    def begin(self, body: Body) -> None:
        """Take a request whose body is to come, in the place of a slower one if need be; a problem if there is none."""
        if len(self._open) >= self._most:
            slowest = self._slowest()
            if slowest is None:
                raise busy(f"{self._most} bodies are on their way, which is the limit; try again")
            slowest.shed()
        self._open[body] = None

    def add(self, size: int) -> None:
        """Count bytes that have come; a problem if all bodies together hold too many."""
        self._bytes += size
        if self._bytes > self._most_bytes:
            raise busy("the bodies of all requests take too much memory; try again")

    def complete(self, body: Body) -> None:
        """Count a body no longer as being on its way."""
        self._open.pop(body, None)

    def end(self, body: Body) -> None:
        """Forget a request."""
        self._open.pop(body, None)
        self._bytes -= body.size

    def _slowest(self) -> Body | None:
        clients = Counter(each.client for each in self._open)
        slow = [each for each in self._open if each.age() > _FRESH]
        return min(slow, key=lambda each: (-clients[each.client], each.size / each.age()), default=None)


class Body:
    """What a route receives of a request: its body, which ends with a problem when it is too long or was shed."""

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
        """Seconds since it began."""
        return self._loop.time() - self._began

    def shed(self) -> None:
        """Give its place to another."""
        self._incoming.complete(self)
        if self._shed is not None and not self._shed.done():
            self._shed.set_result(None)


def too_long(limit: int) -> Problem:
    """The problem of a body of more bytes than are taken."""
    return Problem(413, f"the body is longer than {limit:,} bytes; send it in parts")


def _too_slow() -> Problem:
    return Problem(408, "the body came more slowly than those of others, for which there was no room; send it faster")
