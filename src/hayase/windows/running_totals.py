"""`RunningTotals`: the fold over all partials of a key so far, after each of them.

Order: oldest first.   Laws needed: none; partials are combined one after the other, so results do not depend on batches.
Append: one combine per partial.   Space: one partial per key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from hayase.windows.partials import Lifting, Partials, as_rows, from_rows, objects

__all__ = ["RunningTotals"]

_HALVES = 3
"""The words of an exact sum in two halves of 32 bits, after the count."""
_HALF = np.int64((1 << 32) - 1)


class RunningTotals:
    """The total of each key (a dense code). A key that is new has an empty total.

    >>> from hayase.core.algebra import AGGREGATES
    >>> totals = RunningTotals(Lifting(AGGREGATES["sum"], [pa.int64()]))
    >>> running = totals.append(np.array([0, 1, 0]), totals.lifting.lift([pa.array([1, 5, 2])]))
    >>> totals.lifting.lower(running)[0].to_pylist()
    [1, 5, 3]
    """

    def __init__(self, lifting: Lifting) -> None:
        self.lifting = lifting
        self._rows = np.zeros((0, len(lifting.types_of_words)), np.int64)
        self._objects: list[Any] = []

    def append(self, keys: np.ndarray, partials: Partials) -> Partials:
        """Add partials in order and return the total of the key after each of them."""
        self._make_room(int(keys.max(initial=-1)) + 1)
        if not self.lifting.lanes:
            return self._append_objects(keys, partials)
        from hayase.windows.folds_loops import kind_of, running_rows

        rows = as_rows(partials)
        kind = kind_of(*self.lifting.parts)
        running_rows(self._rows, self._rows.view(np.float64), keys, rows, rows.view(np.float64), kind)
        if len(self.lifting.parts) == _HALVES:  # halves are added separately, and would overflow in the end
            self._rows[keys, 1] += self._rows[keys, 2] >> 32
            self._rows[keys, 2] &= _HALF
        return from_rows(rows, self.lifting)

    def _append_objects(self, keys: np.ndarray, partials: Partials) -> Partials:
        combine, running = self.lifting.aggregate.combine, []
        for key, partial in zip(keys.tolist(), partials.words[0]):
            self._objects[key] = combine(self._objects[key], partial)
            running.append(self._objects[key])
        return objects(running)

    def stored(self, keys: np.ndarray) -> list[pa.Array]:
        """Return the totals of some keys as columns of the state."""
        self._make_room(int(keys.max(initial=-1)) + 1)
        if not self.lifting.lanes:
            return self.lifting.stored(objects([self._objects[key] for key in keys.tolist()]))
        return self.lifting.stored(from_rows(np.ascontiguousarray(self._rows[keys]), self.lifting))

    def load(self, keys: np.ndarray, columns: Sequence[pa.Array]) -> None:
        """Restore the totals of distinct keys."""
        self._make_room(int(keys.max(initial=-1)) + 1)
        partials = self.lifting.restored(columns)
        if self.lifting.lanes:
            self._rows[keys] = as_rows(partials)
            return
        for key, partial in zip(keys.tolist(), partials.words[0]):
            self._objects[key] = partial

    def _make_room(self, count: int) -> None:
        if not self.lifting.lanes:
            missing = count - len(self._objects)
            self._objects += [self.lifting.aggregate.empty() for _ in range(missing)]
        elif count > len(self._rows):
            rows = np.zeros((max(count, 2 * len(self._rows)), self._rows.shape[1]), np.int64)
            rows[: len(self._rows)] = self._rows
            self._rows = rows
