"""The index of a stream's log, derived from the names of the files in its directory.

    {first}-{next}-{running maximum}-{clock}.seg     records [first, next); if first == next, only a clock
    {start}-{start}-{running maximum}-{clock}.base   all records before `start` are removed

Offsets have 20 decimal digits; times have 16 hexadecimal ones, shifted by 2**63 so that names sort by value. The running
maximum is the greatest event time of all records before `next`; in a finished stream, the time up to which it is known if
that is greater. The clock is that of the file's writer.
At each offset, the file that reaches furthest counts; files that it covers are obsolete.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from hayase.core.data_classes import dataclass
from hayase.core.times import BEGINNING, END

__all__ = [
    "Broken",
    "Entry",
    "Index",
    "Listing",
    "arrange",
    "base_behind_gaps",
    "base_name",
    "extend",
    "is_clock",
    "is_trimmed",
    "reaches",
    "segment_name",
]

_NAME = re.compile(r"(\d{20})-(\d{20})-([0-9a-f]{16})-([0-9a-f]{16})\.(seg|base)")
_BIAS = 2**63
_Placed: TypeAlias = tuple[int, int, int, int, str]
"""First offset, minus the next offset, running maximum, clock, name: sorts as `arrange` needs it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Records [first, next) in one file; `before` is the running maximum of event time before them."""

    first: int
    next: int
    before: int
    running_max: int
    clock: int
    name: str


@dataclass(frozen=True, slots=True)
class Index:
    """A consistent view of a log: the records [start, next), without gaps."""

    entries: tuple[Entry, ...]
    start: int
    next: int
    running_max: int
    clock: int

    @property
    def finished(self) -> bool:
        """Whether the stream is finished."""
        return self.clock >= END

    def position(self, offset: int) -> int:
        """Return the position in `entries` of the one with the record at an offset in [start, next)."""
        return bisect_right(self.entries, offset, key=lambda entry: entry.first) - 1

    def clock_at(self, offset: int) -> int:
        """Return the greatest clock that was written with records before an offset."""
        return max((entry.clock for entry in self.entries if entry.next <= offset), default=BEGINNING)

    def holding(self, offset: int) -> Entry:
        """Return the entry with the record at an offset in [start, next)."""
        return self.entries[self.position(offset)]


@dataclass(frozen=True, slots=True)
class Listing:
    """An index and the other files of the directory: the base, clock-only files, obsolete files."""

    index: Index
    base: str | None = None
    clocks: tuple[str, ...] = ()
    obsolete: tuple[str, ...] = ()


class Broken(Exception):
    """A listing in which records are missing or files overlap."""


def segment_name(first: int, next_: int, running_max: int, clock: int) -> str:
    """Return the name of a segment at its place in the log.

    >>> segment_name(0, 3, 5, BEGINNING)
    '00000000000000000000-00000000000000000003-8000000000000005-4000000000000000.seg'
    """
    return f"{first:020d}-{next_:020d}-{running_max + _BIAS:016x}-{clock + _BIAS:016x}.seg"


def base_name(start: int, running_max: int, clock: int) -> str:
    """Return the name of the file that makes a log start at `start`."""
    return f"{start:020d}-{start:020d}-{running_max + _BIAS:016x}-{clock + _BIAS:016x}.base"


@lru_cache(maxsize=65_536)
def _placed(name: str) -> _Placed | None:
    part = _NAME.fullmatch(name)
    return part and (int(part[1]), -int(part[2]), int(part[3], 16) - _BIAS, int(part[4], 16) - _BIAS, name)


def is_clock(name: str) -> bool:
    """Return whether a file of a log carries only a clock."""
    placed = _placed(name)
    return placed is not None and placed[0] == -placed[1] and name.endswith(".seg")


def is_trimmed(listing: Listing) -> bool:
    """Return whether retention has removed records from a log. The base of a trimmed log keeps their running maximum;
    that of a cleared log does not."""
    placed = _placed(listing.base) if listing.base else None
    return placed is not None and placed[2] > BEGINNING


def reaches(name: str) -> int:
    """Return the offset up to which a file of a log describes records; 0 for any other file.

    >>> reaches(segment_name(3, 7, 5, BEGINNING)), reaches("stream.json")
    (7, 0)
    """
    placed = _placed(name)
    return -placed[1] if placed else 0


def arrange(names: Iterable[str]) -> Listing:
    """Return the listing of file names; raises Broken if they leave a gap or overlap.

    >>> arrange([segment_name(0, 3, 5, BEGINNING), segment_name(3, 4, 5, 2)]).index.next
    4
    """
    placed = [file for file in map(_placed, names) if file]
    bases = sorted(file for file in placed if file[-1].endswith(".base"))
    start, _, running_max, clock, base = bases[-1] if bases else (0, 0, BEGINNING, BEGINNING, None)
    begun = Listing(Index((), start, start, running_max, clock), base, (), tuple(name for *_, name in bases[:-1]))
    return _continued(begun, [file for file in placed if file[-1].endswith(".seg")])


def base_behind_gaps(names: Collection[str]) -> str:
    """Return the name of a base that makes a log with gaps consistent again: the log then starts after the last gap.

    >>> names = [segment_name(0, 3, 5, BEGINNING), segment_name(4, 6, 9, BEGINNING)]
    >>> arrange([*names, base_behind_gaps(names)]).index.start
    4
    """
    placed = sorted(file for file in map(_placed, names) if file)
    for start in sorted({first for first, *_ in placed}):
        before = [file for file in placed if -file[1] <= start]
        running_max = max((file[2] for file in before), default=BEGINNING)
        base = base_name(start, running_max, max((file[3] for file in before), default=BEGINNING))
        try:
            arrange([*names, base])
        except Broken:
            continue
        return base
    raise Broken("files overlap")


def extend(listing: Listing, added: Iterable[str], removed: Collection[str]) -> Listing | None:
    """Return the listing after files were added and removed, if the log only grew; None otherwise.

    >>> listing = arrange([segment_name(0, 3, 5, BEGINNING)])
    >>> extend(listing, [segment_name(3, 4, 5, 2)], []).index.next
    4
    """
    placed = [file for file in map(_placed, added) if file]
    if any(first < listing.index.next or name.endswith(".base") for first, *_, name in placed):
        return None
    if not all(name in listing.clocks or not _placed(name) for name in removed):
        return None
    if not placed and not removed:
        return listing
    removed_clocks = [file[3] for file in map(_placed, removed) if file]
    if removed_clocks and max(removed_clocks) > max((file[3] for file in placed), default=BEGINNING):
        return None  # the stream was reopened: a clock was removed without a greater one
    remaining = tuple(name for name in listing.clocks if name not in removed)
    return _continued(replace(listing, clocks=remaining), placed)


def _continued(listing: Listing, segments: list[_Placed]) -> Listing:
    start, at = listing.index.start, listing.index.next
    running_max, clock = listing.index.running_max, listing.index.clock
    entries, clocks, obsolete = list(listing.index.entries), list(listing.clocks), list(listing.obsolete)
    # Sorted: at each offset, the file that reaches furthest comes first.
    for first, reach, latest, file_clock, name in sorted(segments):
        next_ = -reach
        if first > at:
            raise Broken(f"records {at} to {first - 1} are missing before {name}")
        if first == next_ >= start:
            clocks.append(name)
            running_max, clock = max(running_max, latest), max(clock, file_clock)
        elif next_ <= at:
            obsolete.append(name)
        elif first == at:
            entries.append(Entry(first, next_, running_max, latest, file_clock, name))
            at, running_max, clock = next_, latest, max(clock, file_clock)
        else:
            raise Broken(f"{name} begins inside the records of {entries[-1].name if entries else listing.base}")
    index = Index(tuple(entries), start, at, running_max, clock)
    return Listing(index, listing.base, tuple(clocks), tuple(obsolete))
