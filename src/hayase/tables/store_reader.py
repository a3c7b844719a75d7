"""Reads the facts, markers, marks, snapshots and payloads of a table from a view of its store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from hayase.tables.entries import prefix_end, split
from hayase.tables.payloads import pack, unpack
from hayase.tables.rows import Entry
from hayase.tables.stores import FACT, GENERATION, MARK, MARKER, PAYLOAD, ROW, View, marker_in_key

__all__ = [
    "COUNTS",
    "FOLDED_BEFORE",
    "GENERATION",
    "Counts",
    "approximate_keys",
    "counts",
    "end_of_prefix",
    "folded_before",
    "generation",
    "mark",
    "newest_marker",
    "not_in_snapshot",
    "payloads",
    "payloads_by_key",
    "rows_in_range",
    "runs",
]  # fmt: skip

FOLDED_BEFORE, COUNTS = FACT + b"folded_before", FACT + b"counts"
_MIDDLE = 2**63
SAMPLE_ROWS = 10_000


class Counts(NamedTuple):
    """The number of rows with a snapshot, and the number of payloads when the batch with this marker was the newest."""

    rows: int = 0
    payloads: int = 0
    marker: bytes = b""

    def to_bytes(self) -> bytes:
        return pack([b"%d" % self.rows, b"%d" % self.payloads, self.marker])

    @classmethod
    def from_bytes(cls, data: bytes) -> Counts:
        rows, payloads, marker = unpack(data)
        return cls(int(rows), int(payloads), marker)


# ---------------------------------------------------------------------------------------------------- facts


def generation(view: View) -> str | None:
    """Return the generation of the table; None if it was never begun."""
    stored = view.get(GENERATION)
    return None if stored is None else stored.decode()


def folded_before(view: View) -> int | None:
    """Return the event time before which payloads may be folded; None if none is."""
    stored = view.get(FOLDED_BEFORE)
    return None if stored is None else int.from_bytes(stored, "big") - _MIDDLE


def counts(view: View) -> Counts:
    """Return the counts as last written."""
    stored = view.get(COUNTS)
    return Counts() if stored is None else Counts.from_bytes(stored)


def runs(view: View) -> list[tuple[bytes, bytes, int]]:
    """Return the runs of the last batches, oldest first: key in the store, marker of the batch, number of entries."""
    markers = view.scan(MARKER, end_of_prefix(MARKER))
    return [(key, marker_in_key(key), int.from_bytes(value, "big")) for key, value in markers]


def newest_marker(view: View) -> bytes:
    """The marker of the newest batch that is in; empty if there is none."""
    return max((marker for _, marker, _ in runs(view)), default=b"")


def payloads(view: View) -> int:
    """Return the approximate number of payloads."""
    counted = counts(view)
    return counted.payloads + sum(number for _, marker, number in runs(view) if marker > counted.marker)


def approximate_keys(view: View) -> int:
    """Return the approximate number of keys: those with a snapshot are counted, others estimated from the first payloads."""
    seen = keys = snapshots = 0
    for key, entries in payloads_by_key(view, PAYLOAD, end_of_prefix(PAYLOAD)):
        seen, keys = seen + len(entries), keys + 1
        snapshots += view.get(ROW + key) is not None
        if seen >= SAMPLE_ROWS:
            break
    new, there = keys - snapshots, payloads(view) if seen >= SAMPLE_ROWS else seen
    return counts(view).rows + (new * max(there, seen) // seen if new else 0)


# ---------------------------------------------------------------------------------------------------- keys


def end_of_prefix(prefix: bytes) -> bytes:
    """Return the end of the range of keys with a prefix."""
    end = prefix_end(prefix)
    assert end is not None, "the first byte of a key is a letter"
    return end


def mark(key: bytes, version: bytes) -> bytes:
    """Return the store key of the mark that an entry is in the snapshot of its row."""
    return MARK + version + key


def not_in_snapshot(view: View, key: bytes, newest: bytes, entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return those entries of a key, given in order, that are not in its snapshot; `newest` is the snapshot's newest version."""
    if not entries or entries[0][0] > newest:
        return entries
    late = [version for version, _ in entries if version <= newest]
    marks = view.get_many([mark(key, version) for version in late])
    return [entry for entry, mark_value in zip(entries, marks) if mark_value is None] + list(entries[len(late) :])


def payloads_by_key(view: View, start: bytes, stop: bytes) -> Iterator[tuple[bytes, list[Entry]]]:
    """Yield the payloads in a range of the store, payloads_by_key by key."""
    head, cut = b"", 0
    entries: list[Entry] = []
    for stored, value in view.scan(start, stop):
        if not entries or not stored.startswith(head):
            if entries:
                yield head[1:], entries
            key, version = split(stored[1:], value)
            head, cut, entries = PAYLOAD + key, len(key) + 1, [(version, value)]
        else:
            entries.append((stored[cut:], value))
    if entries:
        yield head[1:], entries


def rows_in_range(
    view: View, start: bytes, stop: bytes | None, most: int
) -> Iterator[tuple[bytes, bytes | None, list[Entry]]]:
    """Yield the first keys in a range of key bytes, each with its snapshot and its payloads, in order: all keys, or at least
    until `most` of them had a snapshot.

    The scan of payloads stops there, because a fold may have left a great many deletions beyond, which would be slow to skip.
    """
    last = end_of_prefix(ROW) if stop is None else ROW + stop
    rows = list(islice(view.scan(ROW + start, last), most))
    if len(rows) == most:
        last = end_of_prefix(rows[-1][0])
    end = end_of_prefix(PAYLOAD) if last == end_of_prefix(ROW) else PAYLOAD + last[1:]
    snapshots, payloads = iter(rows), payloads_by_key(view, PAYLOAD + start, end)
    row, group = next(snapshots, None), next(payloads, None)
    while row is not None or group is not None:
        if group is None or (row is not None and row[0][1:] < group[0]):
            assert row is not None
            yield row[0][1:], row[1], []
            row = next(snapshots, None)
        elif row is None or group[0] < row[0][1:]:
            yield group[0], None, group[1]
            group = next(payloads, None)
        else:
            yield group[0], row[1], group[1]
            row, group = next(snapshots, None), next(payloads, None)
