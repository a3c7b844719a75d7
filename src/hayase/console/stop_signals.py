"""Handles Ctrl-C and SIGTERM: the first asks the command to stop in order, the second interrupts it. Before the lanes run, the
first interrupts."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

from hayase.core.signal_event import SignalEvent

__all__ = ["INTERRUPTED", "Stopping", "starting"]

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


@contextlib.contextmanager
def starting(say: Callable[[str], None], what: str = "Spark") -> Iterator[None]:
    """Inside the block `what` runs the pipeline starts: Ctrl-C says at once what happens, in one line, and raises
    KeyboardInterrupt, by which the program ends in order with exit code 130; another Ctrl-C ends the process."""
    text = f"stopping: {what} was still starting, and nothing was processed"
    interrupts = 0

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts > 1:
            os._exit(INTERRUPTED)
        say(text)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        if not interrupts:  # PySpark has replaced the handler
            say(text)
        raise
    finally:
        signal.signal(signal.SIGINT, before)


class Stopping:
    """Becomes true at the first signal.

    The second signal raises KeyboardInterrupt in the main thread; a third ends the process with exit code 130.
    """

    def __init__(self) -> None:
        self._requested = SignalEvent()
        self._signals = 0

    def __bool__(self) -> bool:
        return self._requested.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for a time or until the first signal; return whether there was a signal."""
        return self._requested.wait(seconds)

    @contextlib.contextmanager
    def listening(self) -> Iterator[Stopping]:
        """Handle signals inside the block; restore the handlers at its end."""
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._requested.set()
        if self._signals == 2:
            raise KeyboardInterrupt
        if self._signals > 2:
            os._exit(INTERRUPTED)
