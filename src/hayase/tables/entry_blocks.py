"""Entries of many rows at once, and the updates of a column in them, for folds by compiled loops.

A fold object by object costs microseconds for each update. Here the entries are joined into two byte arrays, in which loops
(`hayase.core.entry_loops`) find the updates of each column and fold them. What a loop is not sure about is left to the methods of
the column type: numbers beyond 64 bits, unusual values, damaged bytes. So results and errors are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, compress, pairwise
from typing import NamedTuple

import numpy as np

from hayase.tables.entries import split
from hayase.tables.payloads import Amount, text_from

__all__ = ["COMPILED_ENTRIES", "EntryBlock", "RowUpdates"]

COMPILED_ENTRIES = 1_000
"""From so many entries on, loops are used; to load them costs a process as much as the folds of many thousands of entries."""


class EntryBlock:
    """Entries of rows, as a store has them (with their kind in front), in its order; a row may have none."""

    def __init__(self, stored: list[bytes], values: list[bytes], starts: list[int], cuts: list[int]):
        """`starts` says where each row begins, and the last one ends; `cuts` how many bytes come before the versions of a row."""
        self.stored, self.values_of_entries, self.starts, self.cuts = stored, values, starts, cuts

    @classmethod
    def of(cls, stored: list[bytes], values: list[bytes]) -> EntryBlock:
        """Divide entries into rows; DamagedPayload if an entry is malformed."""
        block = cls(stored, values, [], [])
        if not block.is_large or not block._find_rows():
            head = b""
            for at, entry in enumerate(stored):
                if not head or not entry.startswith(head):
                    head = entry[:1] + split(entry[1:], values[at])[0]
                    block.starts.append(at)
                    block.cuts.append(len(head))
        block.starts.append(len(stored))
        return block

    def _find_rows(self) -> bool:
        """Divide entries into rows by a loop; return False if an entry is malformed."""
        from hayase.core.entry_loops import find_rows

        starts, cuts = np.empty((2, self.size), np.int64)
        rows = find_rows(self.entry_bytes, self.places, self.values, self.value_places, starts, cuts)
        if rows >= 0:
            self.starts, self.cuts = starts[:rows].tolist(), cuts[:rows].tolist()
        return bool(rows >= 0)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.cuts)

    @property
    def size(self) -> int:
        """The number of entries."""
        return len(self.stored)

    @property
    def is_large(self) -> bool:
        """Whether compiled loops are worth it."""
        return self.size >= COMPILED_ENTRIES

    def count(self, row: int) -> int:
        """Return how many entries a row has."""
        return self.starts[row + 1] - self.starts[row]

    def first_version(self, row: int) -> bytes:
        """Return the version of the first entry of a row that has any."""
        return self.stored[self.starts[row]][self.cuts[row] :]

    def entries(self, row: int) -> list[tuple[bytes, bytes]]:
        """Return the entries of a row: version with the number of the source, and value."""
        start, end, cut = self.starts[row], self.starts[row + 1], self.cuts[row]
        return [
            (stored[cut:], value) for stored, value in zip(self.stored[start:end], self.values_of_entries[start:end])
        ]

    def part(self, first: int, last: int) -> EntryBlock:
        """Return some consecutive rows."""
        if first == 0 and last == len(self):
            return self
        low, high = self.starts[first], self.starts[last]
        starts = [start - low for start in self.starts[first : last + 1]]
        return EntryBlock(self.stored[low:high], self.values_of_entries[low:high], starts, self.cuts[first:last])

    def where(self, kept: Sequence[bool]) -> EntryBlock:
        """Return the block with some of its entries."""
        if all(kept):
            return self
        ahead = [0, *accumulate(kept)]
        stored, values = list(compress(self.stored, kept)), list(compress(self.values_of_entries, kept))
        return EntryBlock(stored, values, [ahead[start] for start in self.starts], self.cuts)

    def before(self, end: bytes) -> EntryBlock:
        """Return the block with the entries whose versions are less."""
        cuts = (self.cuts[row] for row in range(len(self)) for _ in range(self.count(row)))
        return self.where([stored[cut:] < end for stored, cut in zip(self.stored, cuts)])

    # -- joined, for loops ----------------------------------------------------------------------------------------------
    @cached_property
    def entry_bytes(self) -> np.ndarray:
        return _joined(self.stored)

    @cached_property
    def places(self) -> np.ndarray:
        return _places(self.stored)

    @cached_property
    def data(self) -> bytes:
        """The values of all entries."""
        return b"".join(self.values_of_entries)

    @cached_property
    def values(self) -> np.ndarray:
        return np.frombuffer(self.data, np.uint8)

    @cached_property
    def value_places(self) -> np.ndarray:
        return _places(self.values_of_entries)

    @cached_property
    def rows(self) -> np.ndarray:
        """The row of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def versions(self, entries: np.ndarray) -> list[bytes]:
        """Return the versions of entries without the number of the source: the events."""
        cuts = np.array(self.cuts, np.int64)[self.rows[entries]]
        return [self.stored[entry][cut:-1] for entry, cut in zip(entries.tolist(), cuts.tolist())]

    def updates(self, columns: int) -> list[RowUpdates] | None:
        """Return the updates of each column; None if an entry is malformed."""
        from hayase.core.entry_loops import count_updates, find_updates

        counts, places = np.zeros(columns, np.int64), self.value_places
        total = count_updates(self.values, places, counts)
        if total < 0:
            return None
        entry_of, numbers, starts, ends = np.empty((4, total), np.int64)
        bounds = [0, *accumulate(counts.tolist())]
        find_updates(self.values, places, np.array(bounds[:-1]), entry_of, numbers, starts, ends)
        return [
            RowUpdates(self, entry_of[low:high], numbers[low:high], starts[low:high], ends[low:high])
            for low, high in pairwise(bounds)
        ]


class RowUpdates(NamedTuple):
    """The updates of one column in a block: of each its entry, the position of its number, and the bounds of its delta."""

    block: EntryBlock
    entry: np.ndarray
    number: np.ndarray
    start: np.ndarray
    end: np.ndarray

    def has_any(self) -> list[bool]:
        """Return which rows have updates."""
        return (np.bincount(self.block.rows[self.entry], minlength=len(self.block)) > 0).tolist()

    def payloads(self) -> list[list[tuple[bytes, bytes]]]:
        """Return the versions and deltas of each row."""
        block, data = self.block, self.block.data
        rows: list[list[tuple[bytes, bytes]]] = [[] for _ in range(len(block))]
        of_row = block.rows[self.entry].tolist()
        bounds = zip(block.versions(self.entry), self.number.tolist(), self.start.tolist(), self.end.tolist())
        for row, (event, number, start, end) in zip(of_row, bounds):
            rows[row].append((event + _number(data, number), data[start:end]))
        return rows

    def latest(self, head: bytes) -> list[tuple[bytes, bytes] | None]:
        """Return of each row the version and the body of the update with the greatest version; None if the loop is not sure, and
        two empty texts for a row without updates."""
        from hayase.core.entry_loops import find_latest

        block = self.block
        best, doubt = np.full(len(block), -1), np.zeros(len(block), bool)
        find_latest(
            block.entry_bytes, block.places, np.array(block.cuts, np.int64), block.rows, head[0], head[1],
            block.values, self.entry, self.number, self.start, self.end, best, doubt,
        )  # fmt: skip
        data = block.data
        results: list[tuple[bytes, bytes] | None] = [None if each else (b"", b"") for each in doubt.tolist()]
        chosen = np.flatnonzero((best >= 0) & ~doubt)
        update = best[chosen]
        bounds = [each.tolist() for each in (chosen, self.number[update], self.start[update] + 2, self.end[update])]
        for event, row, number, start, end in zip(block.versions(self.entry[update]), *bounds):
            results[row] = event + _number(data, number), data[start:end]
        return results

    def best(self, head: bytes, *, greatest: bool) -> list[bytes | None]:
        """Return of each row the least or the greatest body; None if the loop is not sure, empty for a row without updates."""
        from hayase.core.entry_loops import find_best

        block, data = self.block, self.block.data
        best, doubt = np.full(len(block), -1), np.zeros(len(block), bool)
        find_best(
            block.rows, head[0], head[1], greatest, block.values, self.entry, self.start, self.end, best, doubt
        )  # fmt: skip
        starts, ends = np.append(self.start + 2, 0)[best].tolist(), np.append(self.end, 0)[best].tolist()
        return [None if unsure else data[start:end] for unsure, start, end in zip(doubt.tolist(), starts, ends)]

    def sums(self, head: bytes) -> list[Amount | None]:
        """Return the sum of the amounts of each row; None if the loop is not sure."""
        values, rows, doubt = self.block.values, self.block.rows[self.entry], np.zeros(len(self.block), bool)
        if len(rows):
            foreign = (self.end - self.start < 3) | (values[self.start] != head[0])
            foreign |= values[np.minimum(self.start + 1, len(values) - 1)] != head[1]
            doubt[rows[foreign]] = True
        return _sums(values, self.start + 2, self.end, rows, doubt)

    def sums_by_key(self, head: bytes) -> list[dict[bytes, Amount] | None]:
        """Return the sums of the amounts of each row by the keys of maps; None if the loop is not sure. ValueError if
        a key is malformed."""
        from hayase.core.entry_loops import count_changes, find_changes, group_changes

        block, data = self.block, self.block.data
        doubt = np.zeros(len(block), bool)
        most = count_changes(block.values, self.start, self.end)
        row_of, key_starts, key_ends, starts, ends = np.empty((5, most), np.int64)
        found = find_changes(
            block.rows, head[0], head[1], block.values, self.entry, self.start, self.end,
            row_of, key_starts, key_ends, starts, ends, doubt,
        )  # fmt: skip
        row_of, key_starts, key_ends = row_of[:found], key_starts[:found], key_ends[:found]
        slots = np.full(1 << (2 * found).bit_length(), -1)
        firsts, latest, groups, group_rows, group_keys = np.empty((5, found), np.int64)
        keys, count = group_changes(
            row_of, block.values, key_starts, key_ends, slots, firsts, latest, groups, group_rows, group_keys
        )
        first = firsts[:keys]
        texts = [data[start:end] for start, end in zip(key_starts[first].tolist(), key_ends[first].tolist())]
        for text in texts:
            text_from(text)
        sums = _sums(block.values, starts[:found], ends[:found], groups, np.zeros(count, bool))
        states: list[dict[bytes, Amount] | None] = [None if each else {} for each in doubt.tolist()]
        for row, key, amount in zip(group_rows[:count].tolist(), group_keys[:count].tolist(), sums):
            state = states[row]
            if amount is None:
                states[row] = None
            elif state is not None:
                state[texts[key]] = amount
        return states


def _sums(
    values: np.ndarray, starts: np.ndarray, ends: np.ndarray, groups: np.ndarray, doubt: np.ndarray
) -> list[Amount | None]:
    from hayase.core.entry_loops import add_amounts

    sums, scales = np.zeros((2, len(doubt)), np.int64)
    add_amounts(values, starts, ends, groups, sums, scales, doubt)
    amounts: list[Amount | None] = list(zip(sums.tolist(), scales.tolist()))
    for group in np.flatnonzero(doubt).tolist():
        amounts[group] = None
    return amounts


def _number(data: bytes, at: int) -> bytes:
    """Return the number of an update that begins at a position."""
    return data[at : at + (1 if data[at] < 240 else 5)]


def _joined(parts: Sequence[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(parts), np.uint8)


def _places(parts: Sequence[bytes]) -> np.ndarray:
    """Return where each part begins in the joined bytes, and where the last one ends."""
    places = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)), out=places[1:])
    return places
