"""A buffer of rows by group number: what windows by count hold back until they are full.

Rows are kept in runs, each sorted by number, whose sizes halve from one to the next. Adding rows moves each of them a
logarithmic number of times; taking the rows of some numbers costs these rows and a search per run, independent of the
size of the buffer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

__all__ = ["RowBuffer", "nothing", "ranges"]


@dataclass(slots=True)
class _Run:
    number: np.ndarray
    rows: pa.RecordBatch
    there: np.ndarray
    count: int


class RowBuffer:
    """Rows by number; those of one number keep the order in which they were added."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return sum(run.count for run in self._runs)

    def put(self, number: np.ndarray, rows: pa.RecordBatch) -> None:
        """Add rows, sorted by number."""
        if not len(number):
            return
        self._runs.append(_Run(number, rows, np.ones(len(number), np.bool_), len(number)))
        while len(self._runs) > 1 and self._runs[-2].count <= 2 * self._runs[-1].count:
            self._runs[-2:] = [_merged(self._runs[-2:])]

    def take(self, numbers: np.ndarray, keep: bool = False) -> tuple[np.ndarray, pa.RecordBatch]:
        """Return all rows of these distinct numbers, sorted by number, and remove them unless `keep` is true."""
        parts = [(np.empty(0, np.int64), nothing(self._schema))]
        for run in self._runs:
            at = ranges(np.searchsorted(run.number, numbers), np.searchsorted(run.number, numbers, side="right"))
            at = at[run.there[at]]
            if len(at):
                parts.append((run.number[at], run.rows.take(pa.array(at))))
                if not keep:
                    run.there[at] = False
                    run.count -= len(at)
        if not keep:
            self._runs = [_compact(run) for run in self._runs if run.count]
        number = np.concatenate([part for part, _ in parts])
        order = np.argsort(number, kind="stable")
        rows = parts[-1][1] if len(parts) == 2 else pa.concat_batches([batch for _, batch in parts])
        return number[order], rows.take(pa.array(order))


def nothing(schema: pa.Schema) -> pa.RecordBatch:
    """Return an empty batch."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _compact(run: _Run) -> _Run:
    """Return the run without removed rows, if these are more than half of it."""
    if 2 * run.count >= len(run.number):
        return run
    return _Run(run.number[run.there], run.rows.filter(pa.array(run.there)), np.ones(run.count, np.bool_), run.count)


def _merged(runs: list[_Run]) -> _Run:
    number = np.concatenate([run.number[run.there] for run in runs])
    order = np.argsort(number, kind="stable")
    rows = pa.concat_batches([run.rows.filter(pa.array(run.there)) for run in runs]).take(pa.array(order))
    return _Run(number[order], rows, np.ones(len(order), np.bool_), len(order))


def ranges(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Return the integers from each start to before its stop, one range after the other.

    >>> ranges(np.array([0, 7, 5]), np.array([2, 7, 8])).tolist()
    [0, 1, 5, 6, 7]
    """
    sizes = stops - starts
    ends = np.cumsum(sizes)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - sizes), sizes)
