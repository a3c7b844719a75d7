"""Wakes all who wait for a commit together, in one turn of the event loop, and the less often the more they are.

Between two wake-ups there are at least `PACE` seconds for each listener. So the time that it takes to wake listeners and to send
them what is new is a bounded share of a core, however many they are and however fast batches follow each other; a single listener
is woken at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from hayase.serving.service import Status

__all__ = ["PACE", "UNCHANGED", "CommitSignal"]

PACE = 0.006
UNCHANGED = 1.0
"""Seconds after which listeners are woken although nothing was committed."""


class CommitSignal:
    """The signal; used in the thread of the event loop only. The pipeline's threads call it by `status`."""

    def __init__(self, status: Status, pace: float = PACE):
        self._status, self._pace = status, pace
        self._listeners = 0
        self._woken = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._unsubscribe: Callable[[], None] | None = None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Count a listener inside the block."""
        loop = asyncio.get_running_loop()
        if not self._listeners:
            self._unsubscribe = self._status.subscribe(lambda: _call_soon(loop, self.committed))
            self._schedule(loop.time() + UNCHANGED)
        self._listeners += 1
        try:
            yield
        finally:
            self._listeners -= 1
            if not self._listeners:
                assert self._unsubscribe is not None
                self._unsubscribe()
                self._cancel()

    def next(self) -> asyncio.Future[None]:
        """Return what is done at the next wake-up; ask for it before looking at what was committed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return future

    def committed(self) -> None:
        """Wake the listeners as soon as they may be woken."""
        if self._listeners:
            self._schedule(self._woken + self._pace * self._listeners)

    def wake(self) -> None:
        """Wake the listeners now."""
        self._cancel()
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
        if self._listeners:
            self._woken = asyncio.get_running_loop().time()
            self._schedule(self._woken + UNCHANGED)

    def _schedule(self, when: float) -> None:
        """Wake the listeners at a time, unless they will be woken before."""
        if self._timer is not None and self._timer.when() <= when:
            return
        self._cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self.wake)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _call_soon(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the event loop has ended
        loop.call_soon_threadsafe(work)
