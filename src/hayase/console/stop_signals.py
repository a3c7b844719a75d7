"""Ctrl-C and SIGTERM as a wish to stop: the first is granted in order, the second at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["Stopping"]


class Stopping:
    """Becomes true when somebody wants the command to stop.

    The second signal raises KeyboardInterrupt where the program is; a third ends the process.
    """

    def __init__(self) -> None:
        self._wanted = threading.Event()
        self._signals = 0

    def __bool__(self) -> bool:
        return self._wanted.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait that long, or until stopping is wanted; returns whether it is."""
        return self._wanted.wait(seconds)

    @contextlib.contextmanager
    def listening(self) -> Iterator[Stopping]:
        """Listen to signals inside; leave them as they were before."""
        before = {each: signal.signal(each, self._heard) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._wanted.set()
        if self._signals == 2:
            raise KeyboardInterrupt
        if self._signals > 2:
            os._exit(130)
