"""An event that a signal handler may set.

`threading.Event` is not for that: a handler runs in the main thread, between any two steps of it. If that thread is waiting for
the event, it may hold the event's lock, for which `set` in the handler then waits for ever. `SimpleQueue.put` is made to be called
from handlers.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue

__all__ = ["SignalEvent"]


class SignalEvent:
    """Is set once, by a signal handler or a thread; any number of threads may wait for it."""

    def __init__(self) -> None:
        self._set = False
        self._wakings: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Set it, and wake who waits."""
        self._set = True
        self._wakings.put(None)

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._set

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for a time, or until it is set; return whether it is set."""
        if not self._set:
            try:
                self._wakings.get(timeout=None if seconds is None else max(0.0, seconds))
            except Empty:
                return self._set
            self._wakings.put(None)  # for the next one who waits
        return self._set
