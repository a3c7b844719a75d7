"""Rows that wait, by key and arrival: records that the clock has not passed, and rows of windows that are not full yet.

Rows are kept in runs, sorted by key and, within a key, by arrival. The sizes of the runs halve from one to the next:
adding rows moves each of them a logarithmic number of times; taking rows costs these rows and a search per run,
independent of the size of the buffer.

Arrow counts the bytes of a text column with 32 bits. Therefore runs are merged only up to `MOST_BYTES`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.schemas import empty_rows

__all__ = ["MOST_BYTES", "RowBuffer", "ranges", "sort_order"]

MOST_BYTES = 1 << 30
"""Maximal size of one batch of rows."""


@dataclass(slots=True)
class _Run:
    """Sorted rows with their keys; `there` marks those that were not taken, `count` of them."""

    keys: np.ndarray
    rows: pa.RecordBatch
    there: np.ndarray
    count: int

    def remaining(self) -> tuple[np.ndarray, pa.RecordBatch]:
        """Return the keys and the rows that were not taken."""
        if self.count == len(self.keys):
            return self.keys, self.rows
        return self.keys[self.there], self.rows.filter(pa.array(self.there))


class RowBuffer:
    """Rows with integer keys; those of one key are in the order of their column `arrival`."""

    def __init__(self, schema: pa.Schema, arrival: str) -> None:
        self._schema, self._arrival = schema, arrival
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return sum(run.count for run in self._runs)

    def put(self, keys: np.ndarray, rows: pa.RecordBatch) -> None:
        """Add rows, sorted by key and arrival."""
        if len(keys):
            self._runs.append(_whole(keys, rows))
        while len(self._runs) > 1 and self._runs[-2].count <= 2 * self._runs[-1].count:
            if self._runs[-2].rows.nbytes + self._runs[-1].rows.nbytes > MOST_BYTES:
                break
            keys, rows = self._merged([run.remaining() for run in self._runs[-2:]])
            self._runs[-2:] = [_whole(keys, rows)]

    def take(self, keys: np.ndarray, keep: bool = False) -> tuple[np.ndarray, pa.RecordBatch]:
        """Return all rows of these distinct keys, sorted, and their keys. Remove them unless `keep` is true."""
        parts = []
        for run in self._runs:
            at = ranges(np.searchsorted(run.keys, keys), np.searchsorted(run.keys, keys, side="right"))
            at = at[run.there[at]]
            if len(at):
                parts.append((run.keys[at], run.rows.take(pa.array(at))))
                if not keep:
                    run.there[at] = False
                    run.count -= len(at)
        if not keep:
            self._runs = [_compact(run) for run in self._runs if run.count]
        return self._merged(parts)

    def take_up_to(self, key: int) -> list[pa.RecordBatch]:
        """Remove the rows with keys up to this one, and return them as sorted batches."""
        taken, kept = [], []
        for run in self._runs:
            cut = int(np.searchsorted(run.keys, key, side="right"))
            count = cut if run.count == len(run.keys) else int(run.there[:cut].sum())
            if count:
                taken.append(_Run(run.keys[:cut], run.rows.slice(0, cut), run.there[:cut], count).remaining()[1])
            if run.count > count:
                kept.append(_Run(run.keys[cut:], run.rows.slice(cut), run.there[cut:], run.count - count))
        self._runs = kept
        return taken

    def _merged(self, parts: list[tuple[np.ndarray, pa.RecordBatch]]) -> tuple[np.ndarray, pa.RecordBatch]:
        if not parts:
            return np.empty(0, np.int64), empty_rows(self._schema)
        keys = np.concatenate([part for part, _ in parts])
        rows = parts[0][1] if len(parts) == 1 else pa.concat_batches([batch for _, batch in parts])
        order = sort_order(keys, rows.column(self._arrival).to_numpy())
        return (keys, rows) if order is None else (keys[order], rows.take(pa.array(order)))


def _whole(keys: np.ndarray, rows: pa.RecordBatch) -> _Run:
    return _Run(keys, rows, np.ones(len(keys), np.bool_), len(keys))


def _compact(run: _Run) -> _Run:
    """Return the run without taken rows, if these are more than half of it."""
    return run if 2 * run.count >= len(run.keys) else _whole(*run.remaining())


def sort_order(keys: np.ndarray, arrivals: np.ndarray) -> np.ndarray | None:
    """Return the positions of rows sorted by key and arrival; None if they are sorted already."""
    later = keys[1:] > keys[:-1]
    if later.all():
        return None
    if bool(np.all(later | ((keys[1:] == keys[:-1]) & (arrivals[1:] > arrivals[:-1])))):
        return None
    order = np.argsort(
        keys, kind="stable"
    )  # merges sorted runs in one pass, which arrivals of many runs do not let lexsort do
    after, before = order[1:], order[:-1]
    if np.any((keys[after] == keys[before]) & (arrivals[after] < arrivals[before])):
        return np.lexsort((arrivals, keys))
    return order


def ranges(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Return the integers from each start to before its stop, one range after the other.

    >>> ranges(np.array([0, 7, 5]), np.array([2, 7, 8])).tolist()
    [0, 1, 5, 6, 7]
    """
    sizes = stops - starts
    ends = np.cumsum(sizes)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - sizes), sizes)
