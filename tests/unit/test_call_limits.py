"""Time limits of calls: who makes no progress is interrupted, in the main thread also while it waits; nobody else is."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable

import pytest

from hayase.core.call_limits import Overdue, watched


def spins() -> None:
    while True:
        pass


def waits() -> None:
    threading.Event().wait()


def backtracks() -> None:
    re.match(r"(a+)+b", "a" * 64)


def stubborn() -> None:
    """It handles everything once, and goes on."""
    try:
        spins()
    except BaseException:
        spins()


@pytest.mark.parametrize("call", [spins, waits, backtracks, stubborn, lambda: time.sleep(3600)])
def test_a_call_of_the_main_thread_that_does_not_end_is_interrupted(call: Callable[[], None]) -> None:
    with pytest.raises(Overdue), watched(lambda: 0, 0.05):
        call()


@pytest.mark.parametrize("call", [spins, stubborn])
def test_a_call_of_another_thread_that_does_not_end_is_interrupted(call: Callable[[], None]) -> None:
    overdue: list[bool] = []

    def run() -> None:
        for _ in range(3):
            try:
                with watched(lambda: 0, 0.05):
                    call()
            except Overdue:
                overdue.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert overdue == [True] * 3


def test_calls_that_make_progress_are_not_interrupted_however_long_all_of_them_take() -> None:
    results: list[float] = []
    with watched(lambda: len(results), 30.0), watched(lambda: len(results), 0.25):
        results.extend(map(_short, range(100)))
    assert len(results) == 100


def _short(number: int) -> float:
    time.sleep(0.005)
    return number


def test_a_timer_of_somebody_else_goes_on_afterwards() -> None:
    rang = threading.Event()
    before = signal.signal(signal.SIGALRM, lambda number, frame: rang.set())
    timer = signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with watched(lambda: 0, 30.0):
            pass
        with pytest.raises(Overdue), watched(lambda: 0, 0.1):
            spins()
        while not rang.wait(0.01):
            pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before)


def test_nothing_is_interrupted_after_the_block() -> None:
    for _ in range(20):
        try:
            with watched(lambda: 0, 0.001):
                time.sleep(0.0015)
        except Overdue:
            pass
    assert sum(range(100_000)) == 4_999_950_000


def test_a_forked_process_watches_its_own_calls() -> None:
    with watched(lambda: 0, 30.0):
        process = os.fork()
    if not process:
        status = 1
        try:
            with watched(lambda: 0, 0.05):
                spins()
        except Overdue:
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(process, 0)[1] == 0
