"""What a reader of dead letters keeps in memory, so that asking again costs only what has come since: the newest letters, and
groups of letters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.streams import Piece

__all__ = ["KEPT_BYTES", "KEPT_LETTERS", "KeptGroups", "RecentLetters"]

KEPT_LETTERS = 4_096
KEPT_BYTES = 8 << 20
"""How much of the newest letters is held in memory."""
_MOST_FILTERS = 16

_Groups = TypeVar("_Groups")


class RecentLetters:
    """The newest letters of a log, which is only ever extended; safe to share between threads. `read` reads the log."""

    def __init__(self, read: Callable[[int, int], Iterator[Piece]]):
        self._read = read
        self._turn = threading.Lock()
        self._first = self._end = 0
        self._rows: pa.RecordBatch | None = None

    def newest_first(self, start: int, end: int, first: int, before: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the letters from number `first` to below `before`, the newest batch first, each with its first number. The log
        holds letters from `start` to below `end`. Older letters than those in memory are read only if they are asked for."""
        low, rows = self._until(start, end)
        if rows is not None and before > low:
            begin = max(first, low)
            yield begin, rows.slice(begin - low, before - begin)
            before = begin
        if first < before:
            yield from reversed([(piece.first, piece.rows) for piece in self._read(first, before)])

    def _until(self, start: int, end: int) -> tuple[int, pa.RecordBatch | None]:
        """Read the letters that have come, and return the number of the first one in memory, and all of them."""
        with self._turn:
            if end > self._end:
                first = max(start, self._end, end - KEPT_LETTERS)
                known = [] if self._rows is None or first > self._end else [self._rows]
                first = first - known[0].num_rows if known else first
                new = [piece.rows for piece in self._read(max(first, self._end), end)]
                rows = pa.concat_batches([*known, *new])
                kept = min(rows.num_rows, KEPT_LETTERS)
                while kept and rows.slice(rows.num_rows - kept).nbytes > KEPT_BYTES:
                    kept //= 2
                self._rows, self._first, self._end = rows.slice(rows.num_rows - kept), end - kept, end
            return self._first, self._rows


@dataclass(frozen=True, slots=True)
class _Kept(Generic[_Groups]):
    start: int
    settled: np.ndarray
    end: int
    groups: _Groups


class KeptGroups(Generic[_Groups]):
    """Groups of letters by filter, each with the state of the logs that it was made from; safe to share between threads."""

    def __init__(self) -> None:
        self._kept: dict[object, _Kept[_Groups]] = {}

    def get(self, wanted: object, start: int, settled: np.ndarray) -> tuple[int, _Groups] | None:
        """Return the groups of a filter and the number of the first letter that is not in them; None if older letters were
        removed or settled since."""
        kept = self._kept.get(wanted)
        if kept is None or kept.start != start or kept.settled is not settled:
            return None
        return kept.end, kept.groups

    def put(self, wanted: object, start: int, settled: np.ndarray, end: int, groups: _Groups) -> None:
        """Keep the groups of a filter; those of other filters go if there are too many."""
        others = {} if len(self._kept) >= _MOST_FILTERS else self._kept
        self._kept = {**others, wanted: _Kept(start, settled, end, groups)}
