"""Rows that wait, by number: what a window by count holds back until it is full, for each key.

They lie in runs, each sorted by number, whose sizes fall by half from one to the next. To put rows in moves each of them a
logarithmic number of times; to take out those of some numbers costs these rows and a search per run, not all that wait.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

__all__ = ["Shelf", "nothing", "ranges"]


@dataclass(slots=True)
class _Run:
    number: np.ndarray
    rows: pa.RecordBatch
    there: np.ndarray
    count: int


class Shelf:
    """Rows by number; those of one number keep the order in which they were put in."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return sum(run.count for run in self._runs)

    def put(self, number: np.ndarray, rows: pa.RecordBatch) -> None:
        """Put rows in, sorted by number."""
        if not len(number):
            return
        self._runs.append(_Run(number, rows, np.ones(len(number), np.bool_), len(number)))
        while len(self._runs) > 1 and self._runs[-2].count <= 2 * self._runs[-1].count:
            self._runs[-2:] = [_merged(self._runs[-2:])]

    def take(self, numbers: np.ndarray, keep: bool = False) -> tuple[np.ndarray, pa.RecordBatch]:
        """All rows of these distinct numbers, sorted by number, and out of the shelf unless they are to be kept there."""
        found = [(np.empty(0, np.int64), nothing(self._schema))]
        for run in self._runs:
            at = ranges(np.searchsorted(run.number, numbers), np.searchsorted(run.number, numbers, side="right"))
            at = at[run.there[at]]
            if len(at):
                found.append((run.number[at], run.rows.take(pa.array(at))))
                if not keep:
                    run.there[at] = False
                    run.count -= len(at)
        if not keep:
            self._runs = [_compact(run) for run in self._runs if run.count]
        number = np.concatenate([each for each, _ in found])
        order = np.argsort(number, kind="stable")
        rows = found[-1][1] if len(found) == 2 else pa.concat_batches([each for _, each in found])
        return number[order], rows.take(pa.array(order))


def nothing(schema: pa.Schema) -> pa.RecordBatch:
    """No rows."""
    return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in schema], schema=schema)


def _compact(run: _Run) -> _Run:
    """The run without what is gone, if that is more than half of it."""
    if 2 * run.count >= len(run.number):
        return run
    return _Run(run.number[run.there], run.rows.filter(pa.array(run.there)), np.ones(run.count, np.bool_), run.count)


def _merged(runs: list[_Run]) -> _Run:
    number = np.concatenate([run.number[run.there] for run in runs])
    order = np.argsort(number, kind="stable")
    rows = pa.concat_batches([run.rows.filter(pa.array(run.there)) for run in runs]).take(pa.array(order))
    return _Run(number[order], rows, np.ones(len(order), np.bool_), len(order))


def ranges(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """The numbers from each start to before its stop, one range after the other.

    >>> ranges(np.array([0, 7, 5]), np.array([2, 7, 8])).tolist()
    [0, 1, 5, 6, 7]
    """
    sizes = stops - starts
    ends = np.cumsum(sizes)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - sizes), sizes)
