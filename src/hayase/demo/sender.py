"""Sends the events of the shop to its streams, in a thread, tick by tick."""

from __future__ import annotations

import threading
import time

from hayase.core.data_classes import dataclass
from hayase.demo.events import TICK, Shop
from hayase.pipeline import Pipeline

__all__ = ["Sender", "Sent"]

SPEED = 60
"""How much faster event time runs than the wall clock."""
SENT_TWICE = 10
"""One of this many appends is sent twice, as by a client that got no answer."""


@dataclass(slots=True)
class Sent:
    """How many records were sent, accepted and refused, and how many repeated appends were recognised."""

    records: int = 0
    accepted: int = 0
    refused: int = 0
    repeats: int = 0


class Sender(threading.Thread):
    """Sends ticks at the speed of the shop. Ticks that an earlier run has sent are recognised by their producer and sequence
    and sent without waiting."""

    def __init__(self, pipeline: Pipeline, at_once: int | None = None):
        """With `at_once`, send this many ticks without waiting, and no more."""
        super().__init__(name="shop", daemon=True)
        self._pipeline, self._at_once = pipeline, at_once
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self.sent = Sent()

    def run(self) -> None:
        """Send until `finish` is called or all ticks are sent."""
        every = TICK.total_seconds() / SPEED
        due, tick = time.monotonic(), 0
        try:
            while not self._stopping.is_set() and tick != self._at_once:
                new = self._send(tick)
                tick += 1
                if new and self._at_once is None:
                    due = max(due + every, time.monotonic() - 1)
                    self._stopping.wait(max(0.0, due - time.monotonic()))
        except Exception as error:  # raised by `finish`, in the thread of the caller
            self._error = error

    def _send(self, number: int) -> bool:
        """Send a tick; return whether it was new to a stream."""
        tick, new = Shop().tick(number), False
        for stream, events in (("orders", tick.orders), ("lines", tick.lines)):
            answer = self._pipeline.append(stream, events, producer="shop", sequence=number)
            new |= not answer.repeated
            self.sent.records += len(events)
            self.sent.accepted += answer.accepted
            self.sent.refused += answer.refused
            if number % SENT_TWICE == 0:
                again = self._pipeline.append(stream, events, producer="shop", sequence=number)
                self.sent.repeats += again.repeated
        return new

    @property
    def is_through(self) -> bool:
        """Whether the thread has ended: all is sent, or an append failed."""
        return not self.is_alive()

    @property
    def has_failed(self) -> bool:
        """Whether an append failed; `finish` raises its error."""
        return self._error is not None

    def finish(self) -> Sent:
        """Stop sending and finish both streams; return the counts."""
        self._stopping.set()
        self.join()
        if self._error is not None:
            raise self._error
        for stream in ("orders", "lines"):
            self._pipeline.finish(stream)
        return self.sent
