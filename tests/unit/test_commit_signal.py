"""Waking those who wait for a commit: together, at once when they are few, and the less often the more they are."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from unittest import mock

from hayase.engine.commit.manifests import Manifest
from hayase.serving import Status, commit_signal
from hayase.serving.commit_signal import CommitSignal
from virtual_time import BEGIN, run_in_virtual_time


async def woken_at(signal: CommitSignal) -> float:
    await signal.next()
    return round(asyncio.get_running_loop().time() - BEGIN, 6)


def test_all_are_woken_by_a_commit_in_any_thread_and_each_once() -> None:
    async def work() -> None:
        status = Status()
        signal = CommitSignal(status)
        with signal.listening():
            waiting = [asyncio.create_task(woken_at(signal)) for _ in range(20)]
            await asyncio.sleep(0)
            thread = threading.Thread(target=lambda: status.committed(Manifest(version=1)))
            thread.start()
            thread.join()
            assert await asyncio.gather(*waiting) == [0.0] * 20

    run_in_virtual_time(work)


def test_the_more_listen_the_less_often_they_are_woken() -> None:
    async def work() -> None:
        signal = CommitSignal(Status(), pace=0.01)
        with contextlib.ExitStack() as stack:
            for _ in range(50):
                stack.enter_context(signal.listening())
            times = []
            for _ in range(4):
                waiting = asyncio.create_task(woken_at(signal))
                await asyncio.sleep(0)
                for _ in range(5):  # several commits are one
                    signal.committed()
                times.append(await waiting)
            assert times == [0.0, 0.5, 1.0, 1.5]

    run_in_virtual_time(work)


def test_listeners_are_woken_now_and_then_without_a_commit_and_not_after_they_left() -> None:
    async def work() -> None:
        status = Status()
        signal = CommitSignal(status)
        with signal.listening():
            assert [await woken_at(signal), await woken_at(signal)] == [1.0, 2.0]
        with mock.patch.object(commit_signal.asyncio, "get_running_loop") as asked:
            status.committed(Manifest(version=1))
            signal.committed()
        asked.assert_not_called()
        with signal.listening():
            assert await woken_at(signal) == 3.0

    run_in_virtual_time(work)


def test_one_that_is_cancelled_does_not_disturb_the_others() -> None:
    async def work() -> None:
        signal = CommitSignal(Status())
        with signal.listening():
            gone, stays = asyncio.create_task(woken_at(signal)), asyncio.create_task(woken_at(signal))
            await asyncio.sleep(0)
            gone.cancel()
            signal.wake()
            assert await stays == 0.0
            assert (await asyncio.gather(gone, return_exceptions=True))[0].__class__ is asyncio.CancelledError

    run_in_virtual_time(work)
