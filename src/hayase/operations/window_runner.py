"""A function on one window after the other, results handed over in groups: the loop that runs inside the process.

Fitting results to a schema and sending them has a price per group; a group is therefore what a few milliseconds give: of
a slow function one window, of a quick one hundreds. Which window is under work is noted before it begins, so that
whoever watches can tell whose fault it is when the process ends there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from hayase.operations.outcomes import Failure, Outcomes, Request
from hayase.operations.result_rows import fit_results
from hayase.operations.user_functions import Function, Given, Window, failure_of
from hayase.streams.typed_columns import python_values

__all__ = ["GROUP", "IDLE", "answers", "given_for", "run"]

IDLE = -1
"""Noted instead of a window: nothing is under work."""
GROUP = -2
"""Noted instead of a window, less its number: all of the group that ends with it is under work, or is handed over."""
GROUP_NANOSECONDS = 4_000_000
"""A group that has taken as long is handed over."""


def answers(
    function: Function,
    schema: pa.Schema,
    request: Request,
    note: Any,
    ignored: str | None = None,
    relieve: Callable[[], None] = lambda: None,
) -> Iterator[Outcomes]:
    """What the function gives for each window, in groups of neighbours; exceptions are failures.

    A field that is `ignored` is left out of what it gives. `note` is two int64 numbers: which window is under work, and since
    when (`time.monotonic_ns`). With `alone` every window is a group, and stays noted until its results are handed over. The
    numbers in failures count from the first window.
    At a want of memory it is `relieve` that makes room for what is left to do, and the group is handed over at once. To be
    `careful` is to end with the first group in which a window failed, which is then its last. Windows that are under work at
    the same time share the time that takes.
    """
    process = os.getpid()
    windows = _Windows(function.takes, request)
    given: list[Given] = []
    took: list[int] = []
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
                given.append(function.on(windows[at]))
            except BaseException as error:
                short = isinstance(error, MemoryError)
                if short:
                    relieve()
                short = short or careful
                given.append([])
                failures[at] = failure_of(error)
            took.append(clock() - now)
            at += 1
        else:
            several = range(at, min(at + together, count))
            note[0] = GROUP - several[-1]
            for number, found in zip(several, function.on_several([windows[number] for number in several])):
                if isinstance(found, BaseException):
                    short = short or isinstance(found, MemoryError)
                    if short:
                        relieve()
                    failures[number], found = failure_of(found), []
                given.append(found)
            took += [(clock() - now) // len(several)] * len(several)
            at = several[-1] + 1
        if os.getpid() != process:  # the function has forked, and this is not the process that was asked
            os._exit(0)
        if alone or short or at == count or now - began > GROUP_NANOSECONDS:
            if not alone:
                note[1] = clock()
                note[0] = GROUP - (at - 1)
            table, counts = _fitted(given, schema, ignored, failures, first, note)
            yield Outcomes(table, counts, failures, np.array(took, np.int64))
            if careful and failures:
                return
            first, began = at, clock()
            given, took, failures = [], [], {}


def _fitted(
    given: list[Given], schema: pa.Schema, ignored: str | None, failures: dict[int, Failure], first: int, note: Any
) -> tuple[pa.Table, np.ndarray]:
    """The results of a group, fitted; if that itself raises, as values with a will of their own can, one by one."""
    try:
        fitted = fit_results(given, schema, ignored)
    except BaseException as error:
        if len(given) == 1:
            failures[first] = failure_of(error)
            return schema.empty_table(), np.zeros(1, np.int64)
        parts = []
        for number, each in enumerate(given, first):
            note[1] = time.monotonic_ns()
            note[0] = number
            parts.append(_fitted([each], schema, ignored, failures, number, note))
        return pa.concat_tables([table for table, _ in parts]), np.concatenate([counts for _, counts in parts])
    for number, reason in fitted.unfit.items():
        failures[first + number] = Failure("unfit", reason)
    return pa.Table.from_batches([fitted.rows]), fitted.counts


class _Windows:
    """Windows of rows as a function takes them. Records are made anew for each: a function may change its own."""

    def __init__(self, takes: str, request: Request) -> None:
        rows, starts, stops = request.rows, request.starts, request.stops
        self._rows, self._starts, self._stops = rows, starts.tolist(), stops.tolist()
        self._names = rows.schema.names
        overlap = len(starts) > 1 and bool((starts[1:] < np.maximum.accumulate(stops)[:-1]).any())
        nested = any(pa.types.is_nested(each.type) for each in rows.schema)
        self._records: list[tuple[Any, ...]] | None = None
        self._batches = takes == "batch"
        if not self._batches and not (overlap and nested):
            self._records = _tuples(rows)

    def __getitem__(self, at: int) -> Window:
        start, stop = self._starts[at], self._stops[at]
        if self._records is not None:
            names = self._names
            return [dict(zip(names, each)) for each in self._records[start:stop]]
        rows = self._rows.slice(start, stop - start)
        if self._batches:
            return rows
        return [dict(zip(self._names, each)) for each in _tuples(rows)]


def _tuples(rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
    if not rows.num_columns:
        return [()] * rows.num_rows
    return list(zip(*map(python_values, rows.columns)))


def given_for(function: Function, request: Request, note: Any) -> Iterator[Given]:
    """What the function itself gives for each window; raises what it raises."""
    windows = _Windows(function.takes, request)
    for at in range(len(request.starts)):
        note[1] = time.monotonic_ns()
        note[0] = at
        yield function.on(windows[at])


def run(function: Function, schema: pa.Schema, request: Request) -> Outcomes:
    """The same in this process, all at once: for functions that are trusted, and to measure what isolation costs."""
    tables, counts, took = [schema.empty_table()], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    failures: dict[int, Failure] = {}
    for each in answers(function, schema, request, [0, 0]):
        tables.append(each.rows)
        counts.append(each.counts)
        took.append(each.nanoseconds)
        failures.update(each.failures)
    return Outcomes(pa.concat_tables(tables), np.concatenate(counts), failures, np.concatenate(took))
