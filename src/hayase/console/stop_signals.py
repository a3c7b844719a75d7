"""Handles Ctrl-C and SIGTERM: the first asks the command to stop in order, the second interrupts it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["Stopping"]


class Stopping:
    """Becomes true at the first signal.

    The second signal raises KeyboardInterrupt in the main thread; a third ends the process with exit code 130.
    """

    def __init__(self) -> None:
        self._requested = threading.Event()
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
            os._exit(130)
