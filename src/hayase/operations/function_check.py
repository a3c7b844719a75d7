"""The check of a function before its operation is accepted: its module loads, it works on a sample, its schema is known.

The function may fail for some windows of the sample, since poison records become dead letters, but for less than half
of them.
"""

from __future__ import annotations

import contextlib
import time as clock
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import replace

import numpy as np
import pyarrow as pa

from hayase.core.errors import DeclarationError
from hayase.core.schemas import arrow_schema, ddl
from hayase.operations.children import LOADING, Children, Limits
from hayase.operations.record_windows import WindowSpec
from hayase.operations.user_functions import OperationFunction

__all__ = ["MOST_SAMPLES", "check_function", "trials_within"]

MOST_SAMPLES = 20
"""Maximal number of sample windows that a function is called on."""
PATIENCE = 10.0
"""Seconds after which no further window is tried: a user is waiting."""
_UNTIL: ContextVar[float] = ContextVar("until", default=float("inf"))
"""When all trials in this context must have ended, by the monotonic clock."""


@contextlib.contextmanager
def trials_within(seconds: float) -> Iterator[None]:
    """Bound the total time of all trials inside: the imports and all windows together."""
    token = _UNTIL.set(clock.monotonic() + seconds)
    try:
        yield
    finally:
        _UNTIL.reset(token)


def check_function(
    function: OperationFunction,
    window: WindowSpec,
    reads: pa.Schema,
    writes: str | None = None,
    sample: pa.RecordBatch | None = None,
    limits: Limits | None = None,
    time: str | None = None,
) -> str:
    """Return the schema, as DDL, of the function's results: the declared one, else the one inferred by calling it on
    the sample.

    The column `time` of the output is left out, since Hayase fills it in.

    Everything runs in a child process. DeclarationError if the function cannot be loaded, or fails, or returns what
    does not fit, for half of the sample.
    """
    window.check(reads)
    declared = None
    if writes is not None:
        declared = pa.schema([field for field in arrow_schema(writes) if field.name != time])
    remaining = max(0.1, _UNTIL.get() - clock.monotonic())
    limits = limits or Limits()
    limits = replace(limits, seconds=min(limits.seconds, remaining))
    children = Children(function, reads, declared, limits, time, min(LOADING, remaining))
    try:
        children.check()
        if sample is None or not sample.num_rows:
            if declared is None:
                hint = 'declare it, like "name string, score double"'
                raise DeclarationError(f"the schema of what {function.name} gives is not known without a sample", hint)
            return ddl(declared)
        size = min(window.size, sample.num_rows) if window.unit == "count" else sample.num_rows
        starts = np.arange(0, sample.num_rows - size + 1, size)[:MOST_SAMPLES]
        good = _good(children, sample, starts, starts + size)
        return ddl(declared) if declared is not None else children.infer(sample, starts[good], starts[good] + size)
    finally:
        children.close()


def _good(children: Children, sample: pa.RecordBatch, starts: np.ndarray, stops: np.ndarray) -> list[int]:
    """Return the windows for which the function works, of those that there is time for."""
    good: list[int] = []
    failed: list[DeclarationError] = []
    until = min(clock.monotonic() + PATIENCE, _UNTIL.get())
    for at in range(len(starts)):
        try:
            _call(children, sample, starts[at : at + 1], stops[at : at + 1])
            good.append(at)
        except DeclarationError as error:
            failed.append(error)
        if 2 * len(failed) >= len(starts):
            raise failed[0]
        if clock.monotonic() > until:
            break
    if 2 * len(failed) >= len(failed) + len(good):
        raise failed[0]
    return good


def _call(children: Children, sample: pa.RecordBatch, start: np.ndarray, stop: np.ndarray) -> None:
    """Call the function on one window; DeclarationError if it fails."""
    if children.writes is None:
        children.infer(sample, start, stop)
        return
    for failure in children.call(sample, start, stop).failures.values():
        message = f"{children.function.name} failed for the sample: {failure.reason}{failure.place}"
        raise DeclarationError(f"{message}\n{failure.traceback}" if failure.traceback else message)
