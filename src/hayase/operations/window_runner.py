"""The loop inside a child process: calls a function on one window after the other and returns results in groups.

Converting and sending results has a cost per group, so a group is what some milliseconds produce (`GroupLength`): one
window of a slow function, thousands of a fast one. The current window is noted before it begins, so that the parent knows
which window is to blame if the process ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.operations.outcomes import Failure, Outcomes, Request
from hayase.operations.result_rows import fit_results
from hayase.operations.user_functions import Function, Returned, Window, failure_of
from hayase.streams.json_columns import python_columns

__all__ = ["GROUP", "IDLE", "GroupLength", "answers", "results_for", "run"]

IDLE = -1
"""Noted instead of a window: no window is being processed."""
GROUP = -2
"""Noted instead of a window, less the number of the group's last window: the whole group is being processed or handed over."""
FIRST_GROUP, LONGER, LONGEST_GROUP = 4_000_000, 2_000_000, 256_000_000
"""Nanoseconds after which the first group of a process is handed over, by how many the next may take longer, and the most."""


@dataclass(slots=True)
class GroupLength:
    """Nanoseconds after which a group is handed over, which grows with every group of a process.

    Handing a group over costs about a millisecond of two processes; if the process ends, the windows of its last group are
    called again. The sum of both is least if a group is as long as the square root of the time between two losses, times
    a constant: that is how long a group is after that time if each is longer than the one before by the same amount.
    """

    nanoseconds: int = FIRST_GROUP

    def grow(self) -> None:
        """Let the next group take longer."""
        self.nanoseconds = min(self.nanoseconds + LONGER, LONGEST_GROUP)


def answers(
    function: Function,
    schema: pa.Schema,
    request: Request,
    note: Any,
    ignored: str | None = None,
    relieve: Callable[[], None] = lambda: None,
    length: GroupLength | None = None,
) -> Iterator[Outcomes]:
    """Call the function on each window and yield the results in groups of adjacent windows; exceptions become failures.

    The field `ignored` is dropped from results. `note` is two int64 numbers: the current window, and since when
    (`time.monotonic_ns`). With `alone` every window is a group, and stays noted until its results are handed over.
    Numbers in failures count from the first window of the request. `length` grows with every group.

    On MemoryError, `relieve` is called to make room for the remaining work, and the group is handed over at once. With
    `careful` the iteration ends with the first group in which a window failed; the failed window is its last. Windows
    that run concurrently share the elapsed time equally.
    """
    process, length = os.getpid(), length or GroupLength()
    windows = _Windows(function.takes, request)
    results: list[Returned] = []
    durations: list[int] = []
    failures: dict[int, Failure] = {}
    first, at, count, clock = 0, 0, len(request.starts), time.monotonic_ns
    alone, careful = request.alone, request.careful
    together = 1 if alone or careful else function.together
    began = clock()
    while at < count:
        note[1] = now = clock()
        short = False
        if together == 1:
            note[0] = at
            try:
                results.append(function.on(windows[at]))
            except BaseException as error:
                short = isinstance(error, MemoryError)
                if short:
                    relieve()
                short = short or careful
                results.append([])
                failures[at] = failure_of(error)
            ended = clock()
            durations.append(ended - now)
            at += 1
        else:
            concurrent = range(at, min(at + together, count))
            note[0] = GROUP - concurrent[-1]
            for number, result in zip(concurrent, function.on_several([windows[number] for number in concurrent])):
                if isinstance(result, BaseException):
                    short = short or isinstance(result, MemoryError)
                    if short:
                        relieve()
                    failures[number], result = failure_of(result), []
                results.append(result)
            ended = clock()
            durations += [(ended - now) // len(concurrent)] * len(concurrent)
            at = concurrent[-1] + 1
        if os.getpid() != process:  # the function has forked, and this is the forked process
            os._exit(0)
        if alone or short or at == count or ended - began > length.nanoseconds:
            if not alone:
                note[1] = clock()
                note[0] = GROUP - (at - 1)
            table, counts = _fitted(results, schema, ignored, failures, first, note)
            yield Outcomes(table, counts, failures, np.array(durations, np.int64))
            if careful and failures:
                return
            length.grow()
            first, began = at, clock()
            results, durations, failures = [], [], {}


def _fitted(
    returned: list[Returned],
    schema: pa.Schema,
    ignored: str | None,
    failures: dict[int, Failure],
    first: int,
    note: Any,
) -> tuple[pa.Table, np.ndarray]:
    """Convert the results of a group. If the conversion itself raises, as objects with user-defined methods can,
    convert them one by one."""
    try:
        fitted = fit_results(returned, schema, ignored)
    except BaseException as error:
        if len(returned) == 1:
            failures[first] = failure_of(error)
            return schema.empty_table(), np.zeros(1, np.int64)
        parts = []
        for number, result in enumerate(returned, first):
            note[1] = time.monotonic_ns()
            note[0] = number
            parts.append(_fitted([result], schema, ignored, failures, number, note))
        return pa.concat_tables([table for table, _ in parts]), np.concatenate([counts for _, counts in parts])
    for number, reason in fitted.unfit.items():
        failures[first + number] = Failure("unfit", reason)
    return pa.Table.from_batches([fitted.rows]), fitted.counts


class _Windows:
    """The windows of a request as a function takes them. Records are created for each window, since a function may
    modify them."""

    def __init__(self, takes: str, request: Request) -> None:
        rows, starts, stops = request.rows, request.starts, request.stops
        self._rows, self._starts, self._stops = rows, starts.tolist(), stops.tolist()
        self._names = rows.schema.names
        overlap = len(starts) > 1 and bool((starts[1:] < np.maximum.accumulate(stops)[:-1]).any())
        nested = any(pa.types.is_nested(field.type) for field in rows.schema)
        self._records: list[tuple[Any, ...]] | None = None
        self._batches = takes == "batch"
        if not self._batches and not (overlap and nested):
            self._records = _tuples(rows)

    def __getitem__(self, at: int) -> Window:
        start, stop = self._starts[at], self._stops[at]
        if self._records is not None:
            names = self._names
            return [dict(zip(names, values)) for values in self._records[start:stop]]
        rows = self._rows.slice(start, stop - start)
        if self._batches:
            return rows
        return [dict(zip(self._names, values)) for values in _tuples(rows)]


def _tuples(rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
    if not rows.num_columns:
        return [()] * rows.num_rows
    return list(zip(*python_columns(rows)))


def results_for(function: Function, request: Request, note: Any) -> Iterator[Returned]:
    """Yield what the function returns for each window, unconverted; raises what it raises."""
    windows = _Windows(function.takes, request)
    for at in range(len(request.starts)):
        note[1] = time.monotonic_ns()
        note[0] = at
        yield function.on(windows[at])


def run(function: Function, schema: pa.Schema, request: Request) -> Outcomes:
    """Like `answers`, but in this process and at once: for trusted functions, and to measure the cost of isolation."""
    tables, counts, durations = [schema.empty_table()], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    failures: dict[int, Failure] = {}
    for outcomes in answers(function, schema, request, [0, 0]):
        tables.append(outcomes.rows)
        counts.append(outcomes.counts)
        durations.append(outcomes.nanoseconds)
        failures.update(outcomes.failures)
    return Outcomes(pa.concat_tables(tables), np.concatenate(counts), failures, np.concatenate(durations))
