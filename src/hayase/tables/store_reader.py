"""What a table says about itself and about its keys, in one view of its store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from hayase.tables.entries import behind, split
from hayase.tables.payloads import pack, unpack
from hayase.tables.rows import Entry
from hayase.tables.stores import FACT, GENERATION, MARK, MARKER, PAYLOAD, ROW, View, marker_in_key

__all__ = ["COUNTS", "FOLDED_BEFORE", "GENERATION", "Counts", "about_keys", "behind_all", "counts", "folded_before", "generation",
           "grouped", "keyed", "mark", "payloads", "runs", "uncounted"]  # fmt: skip

FOLDED_BEFORE, COUNTS = FACT + b"folded_before", FACT + b"counts"
_MIDDLE = 2**63
_SAMPLE = 10_000


class Counts(NamedTuple):
    """How many rows have a snapshot, and how many payloads there were when the batch with this marker was the newest."""

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
    """What the table was begun as."""
    found = view.get(GENERATION)
    return None if found is None else found.decode()


def folded_before(view: View) -> int | None:
    """The event time before which payloads may be folded."""
    found = view.get(FOLDED_BEFORE)
    return None if found is None else int.from_bytes(found, "big") - _MIDDLE


def counts(view: View) -> Counts:
    """The counts as they were last written."""
    found = view.get(COUNTS)
    return Counts() if found is None else Counts.from_bytes(found)


def runs(view: View) -> list[tuple[bytes, bytes, int]]:
    """The runs of the last batches, oldest first: key in the store, marker of the batch, number of entries."""
    found = view.scan(MARKER, behind_all(MARKER))
    return [(key, marker_in_key(key), int.from_bytes(value, "big")) for key, value in found]


def payloads(view: View) -> int:
    """About how many payloads there are."""
    known = counts(view)
    return known.payloads + sum(number for _, marker, number in runs(view) if marker > known.marker)


def about_keys(view: View) -> int:
    """About how many keys there are: those with a snapshot are counted, the others estimated from the first payloads."""
    seen = keys = snapshots = 0
    for key, entries in grouped(view, PAYLOAD, behind_all(PAYLOAD)):
        seen, keys = seen + len(entries), keys + 1
        snapshots += view.get(ROW + key) is not None
        if seen >= _SAMPLE:
            break
    new, there = keys - snapshots, payloads(view) if seen >= _SAMPLE else seen
    return counts(view).rows + (new * max(there, seen) // seen if new else 0)


# ---------------------------------------------------------------------------------------------------- keys


def behind_all(prefix: bytes) -> bytes:
    """Where the range of a prefix ends."""
    end = behind(prefix)
    assert end is not None, "the first byte of a key is a letter"
    return end


def mark(key: bytes, version: bytes) -> bytes:
    """Where it is noted that an entry is in the snapshot of its row."""
    return MARK + version + key


def uncounted(view: View, key: bytes, newest: bytes, entries: Sequence[Entry]) -> Sequence[Entry]:
    """Of the entries of a key, in order, those that are not in its snapshot, whose newest version is given."""
    if not entries or entries[0][0] > newest:
        return entries
    late = [version for version, _ in entries if version <= newest]
    marks = view.get_many([mark(key, version) for version in late])
    return [entry for entry, found in zip(entries, marks) if found is None] + list(entries[len(late) :])


def grouped(view: View, start: bytes, stop: bytes) -> Iterator[tuple[bytes, list[Entry]]]:
    """The payloads in a range of the store, by key."""
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


def keyed(view: View, start: bytes, stop: bytes | None, most: int) -> Iterator[tuple[bytes, bytes | None, list[Entry]]]:
    """The first keys in a range of key bytes: each with its snapshot and its payloads, in order. They are all of them, or at
    least so many that `most` have a snapshot.

    No payloads are looked for behind these: of keys without any, a fold may have left a great many deletions to pass over.
    """
    last = behind_all(ROW) if stop is None else ROW + stop
    rows = list(islice(view.scan(ROW + start, last), most))
    if len(rows) == most:
        last = behind_all(rows[-1][0])
    end = behind_all(PAYLOAD) if last == behind_all(ROW) else PAYLOAD + last[1:]
    snapshots, payloads = iter(rows), grouped(view, PAYLOAD + start, end)
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
