"""Changes of a query as they become final: a blocking iterator, and one for `async for`.

Changes are read from a cursor on, in bounded memory. When all inputs are finished and everything is read, the iterator ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

from hayase.core.errors import HayaseError
from hayase.engine.results.lifespans import own_columns
from hayase.engine.results.live_results import Changes, Live
from hayase.engine.results.query_results import Change
from hayase.streams import StreamLog
from hayase.streams.json_columns import records

__all__ = ["ChangeTail"]

POLL = 0.05
"""Seconds between two looks at the log."""
PORTION = 1000
"""Changes that are read at once."""


class ChangeTail:
    """A reader of the changes of a query: (time, "+" or "-", row), from the earliest retained one or from now on. `timeout` is
    after how many seconds without a change it ends; by default it waits."""

    def __init__(self, log: StreamLog, start: Literal["earliest", "now"] = "earliest", timeout: float | None = None):
        if start not in ("earliest", "now"):
            raise HayaseError(f'changes cannot be followed from "{start}"; say "earliest" or "now"')
        self._live, self._timeout = Live(log), timeout
        self._changes: Changes | None = None
        if start == "now" and log.path.exists():
            self._changes = self._live.changes_from(None)

    def __iter__(self) -> Iterator[Change]:
        quiet_since = time.monotonic()
        while True:
            ended = self._has_ended()  # before reading: what was there then is read
            portion = self._portion()
            yield from portion
            moment = time.monotonic()
            if portion:
                quiet_since = moment
            elif ended or self._is_over(moment - quiet_since):
                return
            else:
                time.sleep(POLL)

    async def __aiter__(self) -> AsyncIterator[Change]:
        quiet_since = time.monotonic()
        while True:
            ended = self._has_ended()
            portion = await asyncio.to_thread(self._portion)
            for change in portion:
                yield change
            moment = time.monotonic()
            if portion:
                quiet_since = moment
            elif ended or self._is_over(moment - quiet_since):
                return
            else:
                await asyncio.sleep(POLL)

    def _is_over(self, quiet: float) -> bool:
        return self._timeout is not None and quiet >= self._timeout

    def _has_ended(self) -> bool:
        """Whether no further change can come: all inputs are finished."""
        return self._live.log.path.exists() and self._live.log.index().finished

    def _portion(self) -> list[Change]:
        if self._changes is None:
            if not self._live.log.path.exists():  # the stage that writes it has not begun
                return []
            self._changes = self._live.changes_from_oldest()
        _, changes = self._changes.read(PORTION)
        signs = ["+" if appears else "-" for appears in changes.column("__appears").to_pylist()]
        rows: list[dict[str, Any]] = records(changes.select(own_columns(self._live.log.declaration)))
        return list(zip(self._changes.times(changes), signs, rows, strict=True))
