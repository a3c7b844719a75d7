"""Work that may be abandoned: long loops ask now and then whether anybody still waits for their result.

Whoever starts the work gives a function that raises if not; it holds for the current thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["OFTEN", "abandonable", "check_abandoned", "is_abandonable"]

OFTEN = 4096
"""How many values a loop processes between two checks."""
_check: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def abandonable(check: Callable[[], None]) -> Iterator[None]:
    """Let `check_abandoned` call `check` while the context is open."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def is_abandonable() -> bool:
    """Return whether the current work can be abandoned."""
    return _check.get() is not None


def check_abandoned() -> None:
    """Raise what the check raises if nobody waits for the current work any more; without a check do nothing."""
    if (check := _check.get()) is not None:
        check()
