"""Reads the facts, markers, marks, snapshots and payloads of a table from a view of its store."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from hayase.tables.entries import prefix_end, split
from hayase.tables.entry_blocks import EntryBlock
from hayase.tables.payloads import pack, unpack
from hayase.tables.rows import Entry
from hayase.tables.stores import FACT, GENERATION, MARK, MARKER, PAYLOAD, ROW, View, marker_in_key

__all__ = [
    "COUNTS",
    "FOLDED_BEFORE",
    "GENERATION",
    "Counts",
    "approximate_keys",
    "blocks_in_range",
    "counts",
    "end_of_prefix",
    "folded_before",
    "generation",
    "mark",
    "new_payloads",
    "newest_marker",
    "not_in_snapshot",
    "payloads",
    "payloads_by_key",
    "payloads_of_keys",
    "runs",
]  # fmt: skip

FOLDED_BEFORE, COUNTS = FACT + b"folded_before", FACT + b"counts"
_MIDDLE = 2**63
SAMPLE_ROWS = 10_000
_FEWEST_AT_ONCE, _MOST_AT_ONCE = 64, 4_000
"""How many payloads are read before they are folded together; more no longer fit the processor's cache."""


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


def blocks_in_range(
    view: View, start: bytes, stop: bytes | None, most: int
) -> Iterator[tuple[list[bytes], list[bytes | None], EntryBlock]]:
    """Yield the first keys in a range of key bytes in order, many at a time, with their snapshots and their payloads: all keys,
    or at least until `most` of them had a snapshot.

    The scan of payloads stops there, because a fold may have left a great many deletions beyond, which would be slow to skip.
    """
    last = end_of_prefix(ROW) if stop is None else ROW + stop
    rows = [(stored[1:], value) for stored, value in islice(view.scan(ROW + start, last), most)]
    if len(rows) == most:
        last = end_of_prefix(ROW + rows[-1][0])
    end = end_of_prefix(PAYLOAD) if last == end_of_prefix(ROW) else PAYLOAD + last[1:]
    at = 0
    for keys, block in _payload_blocks(view.scan(PAYLOAD + start, end), most):
        until = bisect_right(rows, keys[-1], at, key=itemgetter(0))
        yield _with_snapshots(keys, block, rows[at:until])
        at = until
    if at < len(rows):
        snapshots: list[bytes | None] = [value for _, value in rows[at:]]
        counts = len(snapshots)
        yield [key for key, _ in rows[at:]], snapshots, EntryBlock([], [], [0] * (counts + 1), [0] * counts)


def _with_snapshots(
    keys: list[bytes], block: EntryBlock, rows: Sequence[tuple[bytes, bytes]]
) -> tuple[list[bytes], list[bytes | None], EntryBlock]:
    """Merge the keys of payloads with those of snapshots."""
    if not rows:
        return keys, [None] * len(keys), block
    snapshots = dict(rows)
    only = snapshots.keys() - set(keys)
    if only:
        places = {key: row for row, key in enumerate(keys)}
        keys = sorted([*keys, *only])
        following, starts, cuts = block.size, [block.size], list[int]()
        for key in reversed(keys):  # a key without payloads begins where the next one does
            row = places.get(key)
            following = following if row is None else block.starts[row]
            starts.append(following)
            cuts.append(0 if row is None else block.cuts[row])
        block = EntryBlock(block.stored, block.values_of_entries, starts[::-1], cuts[::-1])
    return keys, [snapshots.get(key) for key in keys], block


def _payload_blocks(items: Iterator[tuple[bytes, bytes]], first: int) -> Iterator[tuple[list[bytes], EntryBlock]]:
    """Yield all payloads of some keys at a time: about as many payloads as `first` to begin with, then more and more."""
    ahead: tuple[bytes, bytes] | None = next(items, None)
    size = min(max(first, _FEWEST_AT_ONCE), _MOST_AT_ONCE)
    while ahead is not None:
        stored, values = [ahead[0]], [ahead[1]]
        for entry, value in islice(items, size - 1):
            stored.append(entry)
            values.append(value)
        head, ahead = PAYLOAD + split(stored[-1][1:], values[-1])[0], None
        for entry, value in items:
            if not entry.startswith(head):
                ahead = entry, value
                break
            stored.append(entry)
            values.append(value)
        block = EntryBlock.of(stored, values)
        yield [stored[start][1:cut] for start, cut in zip(block.starts, block.cuts)], block
        size = min(2 * size, _MOST_AT_ONCE)


def payloads_of_keys(view: View, keys: Sequence[bytes], end: bytes | None) -> Iterator[tuple[int, EntryBlock]]:
    """Yield the payloads of keys, which are in order, before `end`, many keys at a time: how many keys, and their payloads."""
    heads = [PAYLOAD + key for key in keys]
    ranges = [(head, end_of_prefix(head) if end is None else head + end) for head in heads]
    stored, values, starts, cuts = list[bytes](), list[bytes](), [0], list[int]()
    for head, items in zip(heads, view.scan_each(ranges)):
        for entry, value in items:
            stored.append(entry)
            values.append(value)
        starts.append(len(stored))
        cuts.append(len(head))
        if len(stored) >= _MOST_AT_ONCE:
            yield len(cuts), EntryBlock(stored, values, starts, cuts)
            stored, values, starts, cuts = [], [], [0], []
    if cuts:
        yield len(cuts), EntryBlock(stored, values, starts, cuts)


def new_payloads(view: View, keys: Sequence[bytes], newest: Sequence[bytes], block: EntryBlock) -> EntryBlock:
    """Return a block without the entries that are in the snapshots of their rows; `newest` has the snapshots' newest versions."""
    kept: list[bool] | None = None
    for row, version in enumerate(newest):
        if version and block.count(row) and block.first_version(row) <= version:
            entries = block.entries(row)
            new = {version for version, _ in not_in_snapshot(view, keys[row], version, entries)}
            kept = kept or [True] * block.size
            start = block.starts[row]
            kept[start : start + len(entries)] = [version in new for version, _ in entries]
    return block if kept is None else block.where(kept)
