"""Order keys of live tuples by slot. The columns that only decide ties are part of a key only if the tuple ties with another one.

Most tuples differ from all others of their group in the listed columns. Encoding the other columns too would cost more than storing
the tuple: they are often the longest ones. So tuples are counted by group and listed columns. When a second one comes, both get
whole keys; a whole key is behind the listed part of itself, so nothing else changes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from hayase.core.keys import KeyIndex, encode, hashes
from hayase.lifetimes.order_keys import order_keys
from hayase.lifetimes.plans import Order
from hayase.lifetimes.slot_columns import Texts, grown

__all__ = ["SlotKeys"]

_NONE = -1


class SlotKeys:
    """The keys of tuples for an order, of which the first `listed` columns are those that the query lists."""

    def __init__(self, order: Sequence[Order], listed: int) -> None:
        self._order, self._listed = tuple(order), listed
        self._keys = Texts(pa.binary())
        self._listed_bytes = np.empty(0, np.int32)
        self._ties = _Ties() if 0 < listed < len(order) else None

    def put(
        self, slots: np.ndarray, groups: np.ndarray, rows: pa.RecordBatch, stored: Callable[[np.ndarray], pa.RecordBatch],
        capacity: int,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """Set the keys of tuples that come, by their groups; `stored` returns the rows of tuples that are there. Return the slots
        whose keys are new, and the first eight bytes of these keys as numbers."""
        if self._ties is None:
            return self._set(slots, rows, len(self._order), capacity)
        listed = order_keys(rows, self._order[: self._listed], self._listed).keys
        tied, alone = self._ties.add(slots, groups, listed, capacity)
        if tied is None:
            return self._write(slots, listed, np.diff(_ends(listed)), capacity)
        untied = ~tied
        listed = listed.filter(pa.array(untied))
        parts = [
            self._write(slots[untied], listed, np.diff(_ends(listed)), capacity),
            self._set(slots[tied], rows.filter(pa.array(tied)), len(self._order), capacity),
        ]
        if len(alone):
            self._keys.release(alone)
            parts.append(self._set(alone, stored(alone), len(self._order), capacity))
        changed, heads = zip(*parts)
        return np.concatenate(changed), np.concatenate(heads)

    def _set(
        self, slots: np.ndarray, rows: pa.RecordBatch, columns: int, capacity: int
    ) -> tuple[np.ndarray, np.ndarray]:
        keys = order_keys(rows, self._order[:columns], self._listed)
        return self._write(slots, keys.keys, keys.listed, capacity)

    def _write(
        self, slots: np.ndarray, keys: pa.Array, listed: np.ndarray, capacity: int
    ) -> tuple[np.ndarray, np.ndarray]:
        from hayase.lifetimes import treaps_loops

        self._listed_bytes = grown(self._listed_bytes, capacity)
        self._listed_bytes[slots] = listed
        self._keys.put(slots, keys, capacity)
        heads = np.empty(len(slots), np.int64)
        if len(slots):
            treaps_loops.read_heads(_ends(keys), np.frombuffer(keys.buffers()[2], np.uint8), heads)
        return slots, heads

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The cells, lengths and arena of the keys (`Texts.parts`), and how many bytes of each are of listed columns."""
        return *self._keys.parts, self._listed_bytes

    def release(self, slots: np.ndarray) -> None:
        """Free the keys of slots."""
        self._keys.release(slots)
        if self._ties is not None:
            self._ties.remove(slots)


def _ends(keys: pa.Array) -> np.ndarray:
    return np.frombuffer(keys.buffers()[1], np.int32, len(keys) + 1, 4 * keys.offset)


class _Ties:
    """Tuples by rank, which is their group and their listed columns: how many there are, and which one if it is alone."""

    def __init__(self) -> None:
        self._ranks = KeyIndex()
        self._count = np.empty(0, np.int64)
        self._alone = np.empty(0, np.int64)
        self._rank_of = np.empty(0, np.int64)

    def add(
        self, slots: np.ndarray, groups: np.ndarray, listed: pa.Array, capacity: int
    ) -> tuple[np.ndarray | None, np.ndarray]:
        """Count tuples. Return which of them tie with others, None if none does, and the tuples that were alone until now."""
        encoded = encode([pa.array(groups), listed], len(slots))
        ranks = self._ranks.slots(encoded, hashes(encoded))
        known = len(self._count)
        self._count, self._alone = (grown(array, self._ranks.capacity) for array in (self._count, self._alone))
        self._count[known:], self._alone[known:] = 0, _NONE
        self._rank_of = grown(self._rank_of, capacity)
        self._rank_of[slots] = ranks
        np.add.at(self._count, ranks, 1)
        tied = self._count[ranks] > 1
        if not tied.any():
            self._alone[ranks] = slots
            return None, slots[:0]
        self._alone[ranks[~tied]] = slots[~tied]
        shared = np.unique(ranks[tied])
        alone = self._alone[shared]
        self._alone[shared] = _NONE
        return tied, alone[alone != _NONE]

    def remove(self, slots: np.ndarray) -> None:
        """Forget tuples. One that is alone again keeps its whole key."""
        ranks = self._rank_of[slots]
        np.subtract.at(self._count, ranks, 1)
        empty = np.unique(ranks[self._count[ranks] == 0])
        self._alone[empty] = _NONE
        self._ranks.drop(empty)
