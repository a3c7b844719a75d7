"""Fan-out of server-sent events: an event is built once and given to all listeners, each with a bounded queue.

A listener that does not read fast enough is dropped: its queue is replaced by an event `dropped` that says so, and its stream
ends. A browser then connects again by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import orjson

__all__ = ["HEARTBEAT", "FanOut", "event"]

QUEUED = 16
"""Events that may wait for one listener."""
HEARTBEAT = b": still here\n\n"


def event(kind: str, data: bytes) -> bytes:
    """Return a server-sent event; the data are JSON on one line.

    >>> event("pipeline", b"{}")
    b'event: pipeline\\ndata: {}\\n\\n'
    """
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), data)


_DROPPED = event(
    "dropped", orjson.dumps({"detail": f"{QUEUED} events waited to be read; connect again for the newest one"})
)


class FanOut:
    """The listeners of one stream of events; used in the thread of the event loop only."""

    def __init__(self, queued: int = QUEUED) -> None:
        self._queued = queued
        self._listeners: dict[asyncio.Queue[bytes | None], None] = {}

    def __len__(self) -> int:
        return len(self._listeners)

    def send(self, data: bytes) -> None:
        """Give an event to all listeners; those with a full queue are dropped."""
        for queue in [*self._listeners]:
            try:
                queue.put_nowait(data)
            except asyncio.QueueFull:
                self._end(queue, _DROPPED)

    def close(self) -> None:
        """End the streams of all listeners."""
        for queue in [*self._listeners]:
            self._end(queue)

    async def listen(self, first: bytes, heartbeat: float) -> AsyncIterator[bytes]:
        """Yield `first`, then events as they are sent, and a comment after `heartbeat` seconds without one."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(self._queued)
        queue.put_nowait(first)
        self._listeners[queue] = None
        try:
            while True:
                try:
                    async with asyncio.timeout(heartbeat):
                        data = await queue.get()
                except TimeoutError:
                    yield HEARTBEAT
                    continue
                if data is None:
                    return
                yield data
        finally:
            self._listeners.pop(queue, None)

    def _end(self, queue: asyncio.Queue[bytes | None], last: bytes | None = None) -> None:
        self._listeners.pop(queue, None)
        while not queue.empty():
            queue.get_nowait()
        if last is not None:
            queue.put_nowait(last)
        queue.put_nowait(None)
