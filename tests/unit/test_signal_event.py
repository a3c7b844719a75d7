"""An event that a signal handler sets, at whatever moment of a wait the signal comes."""

from __future__ import annotations

import subprocess
import sys
import threading

from hayase.core.signal_event import SignalEvent

STEPS = 12
"""More than a wait has lines."""
INTERRUPTED = """
import sys
from hayase.core.signal_event import SignalEvent

for step in range(int(sys.argv[1])):
    event, lines = SignalEvent(), 0

    def trace(frame, kind, argument):
        global lines
        if kind == "line":
            lines += 1
            if lines == step + 1:
                event.set()
        return trace

    sys.settrace(trace)
    event.wait(0)
    sys.settrace(None)
    assert event.wait(0) == event.is_set() == (lines > step)
"""
"""A handler runs between two steps of the main thread; here it does so before one line of `wait` after the other. It is a process
of its own because it traces, and because it would never end if `set` waited for a lock that the wait holds."""


def test_a_handler_may_interrupt_a_wait_anywhere() -> None:
    subprocess.run([sys.executable, "-c", INTERRUPTED, str(STEPS)], check=True, timeout=300)


def test_all_who_wait_are_woken() -> None:
    event, woken = SignalEvent(), []
    threads = [threading.Thread(target=lambda: woken.append(event.wait())) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert not event.wait(0.0)
    event.set()
    event.set()
    for thread in threads:
        thread.join()
    assert woken == [True] * 5
    assert event.wait(-1)
