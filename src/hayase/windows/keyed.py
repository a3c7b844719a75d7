"""State per key as rows of 8-byte words: one row per slot of a key index, and when it was last written.

The row of a slot lies in one piece, so that a key that is not in the cache costs one miss, however many totals it has.
Word 0 is the version at which the key's tuple was last written (`NOTED` while a loop collects the keys of a batch); the
others are the kernel's own. Floats are kept as their bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hayase.core.keys import KeyIndex, encode, hashes

__all__ = ["NOTED", "KeyedAccumulators"]

NOTED = -(2**63)
"""Stands in word 0 of a slot that the running loop has already taken note of."""


class KeyedAccumulators:
    """Accumulators of `width` words, zero at first, for every key that was ever inserted."""

    __slots__ = ("_index", "_words")

    def __init__(self, width: int) -> None:
        self._index = KeyIndex()
        self._words = np.zeros((1024, width + 1), np.int64)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def nbytes(self) -> int:
        """Bytes set aside for keys and accumulators."""
        return self._index.nbytes + self._words.nbytes

    @property
    def words(self) -> np.ndarray:
        """The rows, int64[slots, 1 + width]; valid until the next insertion."""
        return self._words

    def slots(self, keys: Sequence[pa.Array], rows: int, *, insert: bool = True) -> np.ndarray:
        """The slot of each of `rows` keys; with `insert` there is a row for every one of them afterwards, else -1."""
        encoded = encode(keys, rows)
        slots = self._index.slots(encoded, hashes(encoded), insert)
        if len(self._index) > len(self._words):
            larger = np.zeros((max(2 * len(self._words), len(self._index)), self._words.shape[1]), np.int64)
            larger[: len(self._words)] = self._words
            self._words = larger
        return slots

    def put(self, slots: np.ndarray, values: np.ndarray, version: int) -> None:
        """Set accumulators (int64[width, n]) as written at `version`, but never over what was written later."""
        from hayase.windows import keyed_loops

        keyed_loops.put(self._words, slots, values, version)

    def gather(self, slots: np.ndarray, version: int) -> np.ndarray:
        """The accumulators of distinct slots, int64[width, n], which count as written at `version` from now on."""
        from hayase.windows import keyed_loops

        values = np.empty((self._words.shape[1] - 1, len(slots)), np.int64)
        keyed_loops.gather(self._words, slots, version, values)
        return values

    def unchanged(self, slots: np.ndarray, version: int) -> np.ndarray:
        """Positions in `slots` of those last written at or before `version`, each slot once; `gather` must follow."""
        from hayase.windows import keyed_loops

        positions = np.empty(len(slots), np.int64)
        return positions[: keyed_loops.unchanged(self._words, slots, version, positions)]
