"""What all routes share: threads for work that touches the disk, bodies that arrive in time, and labelled answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

import xxhash
from starlette.requests import Request
from starlette.responses import Response

from hayase.core.times import instant_text
from hayase.serving.bodies import JSON
from hayase.serving.figures import HttpFigures
from hayase.serving.guard import Limits
from hayase.serving.problems import Problem, busy
from hayase.serving.service import Moment

__all__ = ["Desk", "answer"]

_T = TypeVar("_T")
_time_text = lru_cache(maxsize=256)(instant_text)


class Desk:
    """Where requests are worked on; the loop only waits, so it always has time for everybody."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.figures = HttpFigures()
        self.stopping = asyncio.Event()
        self._pool = ThreadPoolExecutor(limits.threads, "serving")

    def stop(self) -> None:
        """End what would go on for ever; to be called in the loop's thread."""
        self.stopping.set()

    def close(self) -> None:
        """Wait for the threads, once no request is left."""
        self._pool.shutdown()

    async def run(self, work: Callable[..., _T], *arguments: Any) -> _T:
        """What comes of some work, done in a thread; a problem if it takes too long."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await loop.run_in_executor(self._pool, work, *arguments)
        except TimeoutError:
            raise busy(
                f"this took longer than {self.limits.seconds:g} seconds; ask for less, or try again. An append that ends like "
                "this may have been made: repeat it with the same Idempotency-Key"
            ) from None

    async def body(self, request: Request) -> bytes:
        """The body of a request; a problem if it does not arrive in time."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await request.body()
        except TimeoutError:
            raise Problem(
                408, f"the body did not arrive within {self.limits.seconds:g} seconds; send it faster"
            ) from None


def answer(request: Request, body: bytes, now: Moment, stage: str | None = None) -> Response:
    """An answer with its labels, or that nothing changed."""
    tag = f'"{xxhash.xxh3_128_hexdigest(body)}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Hayase-State": now.state}
    if now.manifest.version:
        headers["Hayase-Committed-At"] = _time_text(now.manifest.committed_at)
    clock = None if stage is None else now.clock(stage)
    if clock is not None:
        headers["Hayase-Clock"] = _time_text(clock)
    known = request.headers.get("if-none-match") if request.method == "GET" else None
    if known is not None and (
        known.strip() == "*" or tag in [each.strip().removeprefix("W/") for each in known.split(",")]
    ):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=JSON)
