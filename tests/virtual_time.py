"""An event loop whose time passes when nothing else can happen, so that tests of waiting do not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["BEGIN", "run_in_virtual_time"]

BEGIN = 100.0


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now = BEGIN
        select = self._selector.select  # type: ignore[attr-defined]

        def wait(timeout: float | None) -> Any:
            if timeout:
                self._now += timeout
            return select(0 if timeout is not None else None)

        self._selector.select = wait  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now


def run_in_virtual_time(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run work in an event loop whose time begins at `BEGIN`."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(work())
