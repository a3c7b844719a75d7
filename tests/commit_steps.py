"""Runs of a pipeline in this process that stop at every durable step of every commit, so that a test can ask the home there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from unittest import mock

import hayase as hy
from hayase.engine.local import InProcess
from hayase.streams import durable
from relation_shop import purchase

__all__ = ["bought_in", "run_asking"]


def bought_in(number: int, seconds: Sequence[int]) -> list[dict[str, object]]:
    """The purchases of an append: one for each second, of that amount, in the minute of the append."""
    return [purchase(100 * number + at, 60 * number + second, second) for at, second in enumerate(sorted(seconds))]


def run_asking(pipeline: hy.Pipeline, appended: Sequence[Sequence[int]], ask: Callable[[], None]) -> None:
    """Append and process purchases, one append after the other; call `ask` behind every step of the disk."""
    asking = False

    def at_step(step: str) -> None:
        nonlocal asking
        if not asking and step.startswith("after "):
            asking = True
            ask()
            asking = False

    with pipeline.home.lock(), closing(InProcess(pipeline.home, lambda: 0, tasks=1)) as runner:
        for number, seconds in enumerate(appended):
            pipeline.append("purchases", bought_in(number, seconds))
            with mock.patch.object(durable, "reached", at_step):
                runner.run_until_idle()
