"""The last append of each producer of a log, by which a repeated append is recognised.

Segments name their producers in the trailer, so this is rebuilt from them; before retention removes segments, it is
saved in `producers.json`. Only the last append of each producer is kept: sequences increase, so all earlier ones are
repeats.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import orjson

from hayase.core.errors import StreamError
from hayase.streams import durable
from hayase.streams.log_index import Entry, Listing, is_trimmed
from hayase.streams.sealed import read_sealed, seal
from hayase.streams.segments import Produced, read_trailer

__all__ = ["FOLDED", "Producers", "folded_as_bytes", "folded_in", "last_of_each"]

FOLDED = "producers.json"
"""The file for producers whose segments were removed; its offsets are those of the stream."""


def last_of_each(appends: Iterable[Produced]) -> tuple[Produced, ...]:
    """Return the append with the greatest sequence of every producer."""
    last: dict[str, Produced] = {}
    for append in appends:
        if append.producer not in last or last[append.producer].sequence < append.sequence:
            last[append.producer] = append
    return tuple(last.values())


class Producers:
    """The last append of every producer of one log, up to offset `upto`; use it only under the writers' lock."""

    def __init__(self, directory: Path, stream: str):
        self._directory, self._stream = directory, stream
        self._last: dict[str, Produced] = {}
        self._base: str | None = None
        self._begun = False
        self.upto = 0
        """All appends before this offset are known."""

    def refresh(self, listing: Listing) -> None:
        """Read the appends of other writers from a listing."""
        if not self._begun or listing.base != self._base:  # a new base: the log was trimmed or cleared
            self._last = {append.producer: append for append in self._folded(listing)}
            self._begun, self._base, self.upto = True, listing.base, listing.index.start
        for entry in reversed(listing.index.entries):
            if entry.next <= self.upto:
                break
            self._take(self.of(entry))
        self.upto = listing.index.next

    def add(self, appends: Iterable[Produced], first: int, next_: int) -> None:
        """Add an append of this writer at [first, next_)."""
        if self.upto == first:
            self._take(appends)
            self.upto = next_

    def last(self, producer: str) -> Produced | None:
        """Return the last append of a producer, with its offsets in the stream; None if there is none."""
        return self._last.get(producer)

    def of(self, entry: Entry) -> list[Produced]:
        """Return the appends named in a segment, with offsets in the stream."""
        trailer = read_trailer(self._directory / entry.name, self._stream)
        return [append.moved(entry.first) for append in trailer.producers]

    def fold(self, entries: Iterable[Entry], listing: Listing) -> None:
        """Save the producers of segments that are about to be removed. The file is always written: its presence shows
        that nothing is missing."""
        folded = self._folded(listing)
        kept = last_of_each([*folded, *(append for entry in entries for append in self.of(entry))])
        if kept != tuple(folded) or not (self._directory / FOLDED).exists():
            durable.write_atomic(self._directory / FOLDED, folded_as_bytes(kept))

    def _take(self, appends: Iterable[Produced]) -> None:
        self._last.update((append.producer, append) for append in last_of_each([*self._known(appends), *appends]))

    def _known(self, appends: Iterable[Produced]) -> list[Produced]:
        return [self._last[append.producer] for append in appends if append.producer in self._last]

    def _folded(self, listing: Listing) -> list[Produced]:
        return folded_in(self._directory, self._stream, listing)


def folded_as_bytes(kept: Iterable[Produced]) -> bytes:
    """Return the content of `FOLDED`."""
    rows = [[append.producer, append.sequence, append.first, append.next] for append in kept]
    return seal("producers", orjson.dumps({"producers": rows}))


def folded_in(directory: Path, stream: str, listing: Listing) -> list[Produced]:
    """Return the saved producers of removed segments; StreamError if retention has removed segments and the file is missing."""
    path = directory / FOLDED
    remedy = (
        f"put back a copy from a backup, or run `hayase home repair {directory.parent.parent}` if no producer will repeat "
        "an append whose records retention has removed"
    )
    try:
        return [Produced(*row) for row in orjson.loads(read_sealed(path, "producers", remedy))["producers"]]
    except FileNotFoundError:
        if is_trimmed(listing):
            raise StreamError(stream, f'the producers {path} of stream "{stream}" are missing', remedy) from None
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise StreamError(stream, f"the producers {path} cannot be read: {error}", remedy) from error
