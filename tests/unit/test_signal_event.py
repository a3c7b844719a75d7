"""An event that a signal handler sets, at whatever moment of a wait the signal comes."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import pytest

from hayase.core.signal_event import SignalEvent


@pytest.mark.timeout(20)
@pytest.mark.parametrize("step", range(12))
def test_a_handler_may_interrupt_a_wait_anywhere(step: int) -> None:
    """A handler runs between two steps of the main thread; here it does so before one line after the other of `wait`."""
    event, lines = SignalEvent(), 0

    def trace(frame: FrameType, kind: str, argument: object) -> Any:
        nonlocal lines
        if kind == "line":
            lines += 1
            if lines == step + 1:
                event.set()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        event.wait(0)
    finally:
        sys.settrace(before)
    assert event.wait(0) == event.is_set() == (lines > step)


def test_all_who_wait_are_woken() -> None:
    event, woken = SignalEvent(), []
    threads = [threading.Thread(target=lambda: woken.append(event.wait())) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert not event.wait(0.0)
    event.set()
    event.set()
    for thread in threads:
        thread.join(20)
    assert woken == [True] * 5
    assert event.wait(-1)
