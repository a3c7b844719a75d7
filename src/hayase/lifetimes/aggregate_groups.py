"""The groups of an aggregate: an index of keys and a row of words per group.

A group with an open row is alive. One without is written as a tombstone and removed from the index once such groups are
the majority. The words of a group are contiguous, so that a group that is not in the CPU cache costs one miss.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hayase.core.keys import KeyIndex, decode, encode, hashes
from hayase.lifetimes.accumulators import GROUP_WORDS, ROW

__all__ = ["Groups"]

SPARE_TUPLES = 1024


class Groups:
    """Numbered groups of equal keys. `anchors` are the heads of their lists and heaps, -1 if empty."""

    def __init__(self, kinds: Sequence[pa.DataType], width: int, anchors: int) -> None:
        assert width >= GROUP_WORDS
        self._kinds = list(kinds)
        self._index = KeyIndex()
        self._decoded: list[pa.Array] = []
        self.words = np.zeros((SPARE_TUPLES, width), np.int64)
        self.anchors = np.empty((SPARE_TUPLES, anchors), np.int32)
        self.alive = 0
        self._known = 0

    def __len__(self) -> int:
        """Return the number of groups, including those that are not alive."""
        return len(self._index)

    def slots(self, keys: Sequence[pa.Array], rows: int, *, insert: bool = True) -> np.ndarray:
        """Return the number of each row's group; a new group is added, or -1 is returned if `insert` is false."""
        encoded = encode(keys, rows)
        slots = self._index.slots(encoded, hashes(encoded), insert)
        self._make_room()
        return slots

    def keys(self, slots: np.ndarray) -> list[pa.Array]:
        """Return the key columns of groups. If `slots` has as many entries as there are groups, all are decoded once."""
        if not self._kinds:
            return []
        if len(slots) < len(self):
            return decode(self._index.encoded(slots), self._kinds)
        if not self._decoded or len(self._decoded[0]) < len(self):
            self._decoded = decode(self._index.encoded(np.arange(len(self))), self._kinds)
        chosen = pa.array(slots)
        return [column.take(chosen) for column in self._decoded]

    def put(self, slots: np.ndarray, values: np.ndarray, places: np.ndarray, version: int) -> None:
        """Set the words at `places` (int64[places, n]) as written at `version`, except in groups written later."""
        from hayase.lifetimes import aggregates_loops

        self.alive += aggregates_loops.put(self.words, slots, values, places, version)

    def gather(self, slots: np.ndarray, places: np.ndarray, version: int) -> np.ndarray:
        """Return the words at `places` of distinct groups, which count as written at `version` from now on."""
        from hayase.lifetimes import aggregates_loops

        values = np.empty((len(places), len(slots)), np.int64)
        aggregates_loops.gather(self.words, slots, places, version, values)
        return values

    def unchanged(self, slots: np.ndarray, version: int) -> np.ndarray:
        """Return the positions in `slots` of live groups last written at or before `version`, each once.

        `gather` must follow.
        """
        from hayase.lifetimes import aggregates_loops

        positions = np.empty(len(slots), np.int64)
        return positions[: aggregates_loops.unchanged(self.words, slots, version, positions)]

    def shed(self, spare: int) -> np.ndarray | None:
        """Drop the groups that are not alive, if there are more of them than live groups and `spare`.

        Returns the new number of each old group, -1 for those dropped, or None if nothing changed.
        """
        if len(self) <= 2 * self.alive + spare + SPARE_TUPLES:
            return None
        kept = np.flatnonzero(self.words[: len(self), ROW] >= 0)
        numbers = np.full(len(self), -1, np.int64)
        numbers[kept] = np.arange(len(kept))
        encoded = self._index.encoded(kept)
        self._index = KeyIndex()
        self._index.slots(encoded, hashes(encoded))
        self._decoded = []
        self.words, self.anchors = self.words[kept], self.anchors[kept]
        self._known = len(kept)
        return numbers

    def _make_room(self) -> None:
        """Allocate words for all groups of the index; new groups have zeros and no row, list or heap."""
        known, groups = self._known, len(self._index)
        if groups > len(self.words):
            words = np.zeros((max(2 * len(self.words), groups), self.words.shape[1]), np.int64)
            words[:known] = self.words[:known]
            anchors = np.empty((len(words), self.anchors.shape[1]), np.int32)
            anchors[:known] = self.anchors[:known]
            self.words, self.anchors = words, anchors
        self.words[known:groups, ROW] = -1
        self.anchors[known:groups] = -1
        self._known = groups
