"""Shared by all routes: threads for work that touches the disk, deadlines for bodies, answers with their headers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

import xxhash
from starlette.requests import Request
from starlette.responses import Response

from hayase.core.times import instant_text
from hayase.serving.bodies import JSON
from hayase.serving.freshness import VERSIONS, versions_text
from hayase.serving.guard import Limits
from hayase.serving.problems import Problem, busy
from hayase.serving.server_figures import HttpFigures
from hayase.serving.service import CommittedStatus

__all__ = ["Abandoned", "RequestWorkers", "answer", "event_headers", "is_known"]

_T = TypeVar("_T")
_time_text = lru_cache(maxsize=256)(instant_text)


class Abandoned(Exception):
    """The client has gone or the time is over: the work is abandoned."""


class RequestWorkers:
    """Runs the work of requests in threads, so that the event loop never blocks.

    Health checks have a thread of their own, and so have the figures of the pipeline, changes of operations, which run trials,
    and trials of queries: none of them waits for other requests, nor they for it.
    """

    def __init__(self, limits: Limits):
        self.limits = limits
        self.figures = HttpFigures()
        self.stopping = asyncio.Event()
        self.at_stop: list[Callable[[], None]] = []
        """What wakes those who wait for something else than `stopping`."""
        self._pool = ThreadPoolExecutor(limits.threads, "serving")
        self._health = ThreadPoolExecutor(1, "health")
        self._changes = ThreadPoolExecutor(1, "changes")
        self._looks = ThreadPoolExecutor(1, "figures")
        self._trials = ThreadPoolExecutor(1, "trials")
        self._room = asyncio.Condition()
        self._at_work = 0

    def stop(self) -> None:
        """End the streams of events; called in the thread of the event loop."""
        self.stopping.set()
        for wake in self.at_stop:
            wake()

    def close(self) -> None:
        """Wait for the threads to end, once no request is left."""
        for pool in (self._pool, self._health, self._changes, self._looks, self._trials):
            pool.shutdown()

    async def run(self, work: Callable[..., _T], *arguments: Any) -> _T:
        """Run work in a thread and return its result; a problem if it takes too long. Work not begun by then is cancelled."""
        return await self._run(self._pool, work, *arguments)

    async def run_health(self, work: Callable[..., _T], *arguments: Any) -> _T:
        """As `run`, in the thread of health checks, which answers while all others are busy."""
        return await self._run(self._health, work, *arguments)

    async def run_change(self, work: Callable[..., _T], *arguments: Any) -> _T:
        """As `run`, in the thread of changes that run trials."""
        return await self._run(self._changes, work, *arguments)

    async def run_look(self, work: Callable[..., _T], *arguments: Any) -> _T:
        """As `run`, in the thread that computes the figures of the pipeline."""
        return await self._run(self._looks, work, *arguments)

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[..., _T], *arguments: Any) -> _T:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await loop.run_in_executor(pool, work, *arguments)
        except TimeoutError:
            raise self._too_long() from None

    def _too_long(self) -> Problem:
        return busy(
            f"this took longer than {self.limits.seconds:g} seconds; ask for less, or try again. An append that ends like "
            "this may have been made: repeat it with the same Idempotency-Key"
        )

    async def run_body(self, request: Request, size: int, work: Callable[..., _T], *arguments: Any) -> _T:
        """Run work on a body of `size` bytes once the bodies being processed leave room for it; return its result.

        The work receives, before its arguments, a function to call now and then, which raises `Abandoned` when the time is over
        or the client has gone. The room is released only when the work has ended.
        """
        try:
            async with asyncio.timeout(self.limits.seconds):
                await self._take_room(size)
                return await self._watched(
                    request, self._pool, lambda running: self._release_room_after(running, size), work, *arguments
                )
        except (TimeoutError, Abandoned):
            raise self._too_long() from None

    async def run_trial(self, request: Request, work: Callable[..., _T], *arguments: Any) -> _T:
        """Run the trial of a query once no other one runs. The work receives, before its arguments, a function as in
        `run_body`."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await self._watched(request, self._trials, lambda running: None, work, *arguments)
        except (TimeoutError, Abandoned):
            raise self._too_long() from None

    async def _watched(
        self,
        request: Request,
        pool: ThreadPoolExecutor,
        begun: Callable[[Future[Any]], None],
        work: Callable[..., _T],
        *arguments: Any,
    ) -> _T:
        """Run work, which is abandoned when the client disconnects or the caller is cancelled; `begun` gets its future."""
        gone = threading.Event()

        def check() -> None:
            if gone.is_set():
                raise Abandoned

        running = pool.submit(work, check, *arguments)
        begun(running)
        done, left = asyncio.wrap_future(running), asyncio.ensure_future(_disconnected(request))
        try:
            both: set[asyncio.Future[Any]] = {done, left}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                raise Abandoned
            return await done
        finally:
            gone.set()
            left.cancel()
            done.cancel()

    async def _take_room(self, size: int) -> None:
        async with self._room:
            await self._room.wait_for(lambda: not self._at_work or self._at_work + size <= self.limits.work)
            self._at_work += size

    def _release_room_after(self, running: Future[Any], size: int) -> None:
        loop = asyncio.get_running_loop()

        async def give_back() -> None:
            async with self._room:
                self._at_work -= size
                self._room.notify_all()

        def ended(_: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop has ended meanwhile
                loop.call_soon_threadsafe(lambda: asyncio.ensure_future(give_back()))

        running.add_done_callback(ended)

    async def body(self, request: Request) -> bytes:
        """Return the body of a request; a problem if it does not arrive in time."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await request.body()
        except TimeoutError:
            raise Problem(
                408, f"the body did not arrive within {self.limits.seconds:g} seconds; send it faster"
            ) from None


async def _disconnected(request: Request) -> None:
    """Wait until the client disconnects; its body is already complete."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def answer(request: Request, body: bytes, now: CommittedStatus, stage: str | None = None) -> Response:
    """Return a JSON answer with `ETag` and the headers of the last commit, or 304 if the client has this content already."""
    tag = f'"{xxhash.xxh3_128_hexdigest(body)}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Hayase-State": now.state}
    if now.manifest.version:
        headers[VERSIONS] = versions_text(now.manifest)
        headers["Hayase-Committed-At"] = _time_text(now.manifest.committed_at)
    clock = None if stage is None else now.clock(stage)
    if clock is not None:
        headers["Hayase-Clock"] = _time_text(clock)
    if request.method == "GET" and is_known(tag, request.headers.get("if-none-match")):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=JSON)


def event_headers(now: CommittedStatus) -> dict[str, str]:
    """Return the headers of a stream of events that begins now."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Hayase-State": now.state}
    return headers | ({VERSIONS: versions_text(now.manifest)} if now.manifest.version else {})


def is_known(tag: str, known: str | None) -> bool:
    """Whether a client has the content with this tag already, as its header `If-None-Match` says.

    >>> is_known('"a"', 'W/"a", "b"'), is_known('"a"', '"b"'), is_known('"a"', "*"), is_known('"a"', None)
    (True, False, True, False)
    """
    return known is not None and (
        known.strip() == "*" or tag in [part.strip().removeprefix("W/") for part in known.split(",")]
    )
