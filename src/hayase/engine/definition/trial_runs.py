"""A trial run: what an operation would give for the newest records if it were changed. Nothing is written to the home.

The function runs in a child process, as it would in a lane, within the operation's limits of time and memory and the limit of
all trials (`operation_trials.trials_within`). Other than the check before an update, which stops at the first reason to refuse
it, a trial run reports every window: its records with the results, or how the call failed.
"""

from __future__ import annotations

import tempfile
import time as clock
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import OperationDeclaration
from hayase.core.errors import DeclarationError
from hayase.engine.definition.definitions import Definition, latest
from hayase.engine.definition.operation_changes import edited_operation
from hayase.engine.definition.operation_trials import (
    check_function,
    newest_windows,
    readable_streams,
    remaining_seconds,
)
from hayase.engine.home import Home
from hayase.operations.children import LOADING, Children, Limits
from hayase.operations.operation_planner import function_of, given_schema, read_by, read_schema, window_of
from hayase.operations.outcomes import Failure
from hayase.operations.record_windows import WindowSpec
from hayase.operations.shipped_code import ship

__all__ = ["MOST_WINDOWS", "TrialRun", "TriedWindow", "try_update"]

MOST_WINDOWS = 100
"""How many windows a trial run may have."""
PATIENCE = 20.0
"""Seconds after which no further window is tried: a user is waiting."""


@dataclass(frozen=True, slots=True)
class TriedWindow:
    """The records of a window, the results of the function or its failure, and how many seconds it took."""

    records: pa.Table
    results: pa.Table
    failure: Failure | None
    seconds: float


@dataclass(frozen=True, slots=True)
class TrialRun:
    """What an operation gave for each window, oldest first; there was no time for `untried` further ones."""

    schema: str
    windows: tuple[TriedWindow, ...]
    untried: int

    @property
    def failed(self) -> int:
        """How many windows failed."""
        return sum(window.failure is not None for window in self.windows)

    @property
    def passes(self) -> bool:
        """Whether an update passes its check on these windows: less than half of them fail."""
        return not self.windows or 2 * self.failed < len(self.windows)


def try_update(
    home: Home,
    name: str,
    data: Mapping[str, Any],
    directory: str | None = None,
    *,
    windows: int = 20,
    anew: bool = False,
) -> TrialRun:
    """Return what an operation gives for its newest windows with the given fields changed, as by `update_operation`.

    With `anew` its results may have other columns than before. DeclarationError if the function cannot be loaded.
    """
    current = latest(home)
    if current is None:
        raise DeclarationError(f"no pipeline was declared in the home {home.path} yet", "declare one first")
    operation = edited_operation(current, name, data, directory)
    with tempfile.TemporaryDirectory(prefix="hayase-trial-") as scratch:
        place = home.path
        if operation.code is None:
            place = Path(scratch)
            operation = ship(operation, Home(place).code(""))
        return _run(home, current, operation, place, min(windows, MOST_WINDOWS), anew)


def _run(
    home: Home, current: Definition, operation: OperationDeclaration, place: Path, most: int, anew: bool
) -> TrialRun:
    """Run the function, whose code is in `place`, on the newest windows."""
    streams = readable_streams(home, current.declaration)
    names = read_by(operation, streams)
    unknown = [each for each in names if each not in streams]
    if unknown or not names:
        what = f'the stream "{unknown[0]}"' if unknown else f"any stream that {' or '.join(operation.reads)} matches"
        raise DeclarationError(f'operation "{operation.name}" cannot read {what}', "name a stream of the pipeline")
    read = [streams[each] for each in names]
    reads, window, time = read_schema(operation, read), window_of(operation, read), read[0].shown_name(read[0].time)
    window.check(reads)
    sample = newest_windows(home, read, reads, window, most)
    function, limits = function_of(operation, place), Limits(operation.time_limit / 1e6, operation.memory_limit)
    before = next(each.schema for each in current.declaration.operations if each.name == operation.name)
    schema = operation.schema if operation.schema is not None or anew else before
    until = clock.monotonic() + min(PATIENCE, remaining_seconds())
    if schema is None:
        schema = check_function(function, window, reads, None, sample, limits, time)
    loading = min(LOADING, max(0.1, until - clock.monotonic()))
    children = Children(function, reads, given_schema(schema, time), limits, time, loading)
    try:
        children.check()
        starts, stops = _bounds(sample, window, most)
        tried = () if sample is None else tuple(_tried(children, sample, starts, stops, until))
        return TrialRun(schema, tried, len(starts) - len(tried))
    finally:
        children.close()


def _bounds(sample: pa.RecordBatch | None, window: WindowSpec, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where each window of a sample begins and ends."""
    if sample is None or not sample.num_rows:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    size = min(window.size, sample.num_rows) if window.unit == "count" else sample.num_rows
    starts = np.arange(0, sample.num_rows - size + 1, size)[:most]
    return starts, starts + size


def _tried(
    children: Children, sample: pa.RecordBatch, starts: np.ndarray, stops: np.ndarray, until: float
) -> Iterator[TriedWindow]:
    """Call the function on one window after the other until the time is over."""
    limits = children.limits
    assert children.writes is not None
    nothing = children.writes.empty_table()
    for start, stop in zip(starts, stops, strict=True):
        left = until - clock.monotonic()
        if left <= 0:
            return
        children.limits = replace(limits, seconds=min(limits.seconds, left))
        outcomes = children.call(sample, np.array([start]), np.array([stop]))
        failure = outcomes.failures.get(0)
        if failure is not None and failure.kind == "time" and left < limits.seconds:
            return  # the trial is over, not the time of the window
        records = pa.Table.from_batches([sample.slice(start, stop - start)])
        seconds = float(outcomes.nanoseconds.sum()) / 1e9
        yield TriedWindow(records, nothing if failure is not None else outcomes.rows, failure, seconds)
