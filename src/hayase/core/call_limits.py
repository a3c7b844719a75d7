"""Time limits of calls in this process: a call that takes too long is interrupted by an exception in its own thread.

Many calls in a row are watched at once, by their progress: a limit costs next to nothing for each of them, and a call that does
not end is noticed after the limit and at most two fifths of it.

In the main thread a timer of the system looks, whose signal interrupts also what waits or computes in C and heeds signals: a
pause, a socket, a lock, a regular expression. In other threads another thread looks, and the exception comes with the next
statement in Python. Nothing interrupts code in C that neither returns nor heeds signals.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hayase.core.data_classes import dataclass

__all__ = ["Overdue", "watched"]

_LOOKS = 5
"""Looks at the progress of calls within their limit."""


class Overdue(BaseException):
    """A call took longer than its limit. Not an Exception, so that the function that was called does not handle it."""


@dataclass(slots=True, eq=False)
class _Calls:
    """Calls of one thread that are watched: their progress and limit, and since when, as far as was seen, nothing has changed."""

    progress: Callable[[], int]
    seconds: float
    seen: int
    since: float
    ended: bool = False

    def are_overdue(self) -> bool:
        """Look at the progress: whether there was none for longer than the limit. Then the time counts anew."""
        now, done = time.monotonic(), self.progress()
        if done == self.seen and now - self.since <= self.seconds:
            return False
        overdue = done == self.seen
        self.seen, self.since = done, now
        return overdue and not self.ended


@contextmanager
def watched(progress: Callable[[], int], seconds: float) -> Iterator[None]:
    """Raise `Overdue` in this thread, out of the block, when `progress` has returned the same number for longer than that."""
    calls = _Calls(progress, seconds, progress(), time.monotonic())
    in_main = threading.current_thread() is threading.main_thread()
    with _watched_by_timer(calls) if in_main else _watched_by_thread(calls):
        try:
            yield
        finally:
            calls.ended = True


@contextmanager
def _watched_by_timer(calls: _Calls) -> Iterator[None]:
    """Look at calls of the main thread. A timer that somebody else has set goes on afterwards."""

    def look(number: int, frame: object) -> None:
        if calls.are_overdue():
            raise Overdue

    handler = signal.signal(signal.SIGALRM, look)
    before, again = signal.setitimer(signal.ITIMER_REAL, calls.seconds / _LOOKS, calls.seconds / _LOOKS)
    began = time.monotonic()
    try:
        yield
    finally:
        calls.ended = True  # so that a signal that comes now raises nothing
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
        if before:
            signal.setitimer(signal.ITIMER_REAL, max(before - (time.monotonic() - began), 1e-3), again)


@contextmanager
def _watched_by_thread(calls: _Calls) -> Iterator[None]:
    """Look at calls of another thread."""
    watcher = _watcher()
    thread = threading.get_ident()
    watcher.add(calls, thread)
    try:
        yield
    finally:
        calls.ended = True
        watcher.remove(calls, thread)


class _Watcher:
    """A thread that looks at the calls of others. It sleeps when there was nothing to look at for a while."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: dict[_Calls, int] = {}
        self._pause = math.inf
        self._used = self._sleeps = False

    def start(self) -> None:
        threading.Thread(target=self._run, name="call limits", daemon=True).start()

    def add(self, calls: _Calls, thread: int) -> None:
        with self._changed:
            self._calls[calls] = thread
            self._used = True
            if self._sleeps or calls.seconds / _LOOKS < self._pause:
                self._pause = min(self._pause, calls.seconds / _LOOKS)
                self._changed.notify()

    def remove(self, calls: _Calls, thread: int) -> None:
        """Forget calls that have ended, and an exception that is on its way."""
        with self._changed:
            self._calls.pop(calls, None)
            _raise_in(thread, None)

    def _run(self) -> None:
        with self._changed:
            while True:
                self._sleeps = not self._used and not self._calls
                self._used = False
                self._changed.wait(None if self._sleeps else self._pause)
                for calls, thread in list(self._calls.items()):
                    if calls.ended:  # its thread was interrupted when it was about to say so
                        del self._calls[calls]
                    elif calls.are_overdue():
                        _raise_in(thread, Overdue)


_watchers: dict[int, _Watcher] = {}
"""The watcher of this process, by its id: a forked process has another one."""


def _watcher() -> _Watcher:
    watcher = _watchers.get(os.getpid())
    if watcher is None:
        watcher = _watchers.setdefault(os.getpid(), _Watcher())
        watcher.start()
    return watcher


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Let a thread raise an exception with its next statement; None takes back one that it has not raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), None if error is None else ctypes.py_object(error)
    )
