"""Who appended what last: the memory by which a repeated append is recognised.

Segments carry their producers in the trailer, so the memory is rebuilt from them; what retention removes is folded into
`producers.json` first. Only the last append of each producer is kept: sequences grow, so all before it are repeats.
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
"""The file for producers whose segments are gone; its offsets are the stream's."""


def last_of_each(appends: Iterable[Produced]) -> tuple[Produced, ...]:
    """The append with the greatest sequence of every producer."""
    last: dict[str, Produced] = {}
    for each in appends:
        if each.producer not in last or last[each.producer].sequence < each.sequence:
            last[each.producer] = each
    return tuple(last.values())


class Producers:
    """The last append of every producer of one log, up to offset `upto`; to be used under the writers' lock."""

    def __init__(self, directory: Path, stream: str):
        self._directory, self._stream = directory, stream
        self._last: dict[str, Produced] = {}
        self._base: str | None = None
        self._begun = False
        self.upto = 0
        """Appends before this offset are known."""

    def refresh(self, listing: Listing) -> None:
        """Learn what other writers have appended."""
        if not self._begun or listing.base != self._base:  # a new base: something was folded, or everything cleared
            self._last = {each.producer: each for each in self._folded(listing)}
            self._begun, self._base, self.upto = True, listing.base, listing.index.start
        for entry in reversed(listing.index.entries):
            if entry.next <= self.upto:
                break
            self._take(self.of(entry))
        self.upto = listing.index.next

    def add(self, appends: Iterable[Produced], first: int, next_: int) -> None:
        """Learn an append of this writer's own, at [first, next_)."""
        if self.upto == first:
            self._take(appends)
            self.upto = next_

    def last(self, producer: str) -> Produced | None:
        """The last append of a producer, with its place in the stream."""
        return self._last.get(producer)

    def of(self, entry: Entry) -> list[Produced]:
        """The appends that a segment remembers, placed in the stream."""
        trailer = read_trailer(self._directory / entry.name, self._stream)
        return [each.moved(entry.first) for each in trailer.producers]

    def fold(self, entries: Iterable[Entry], listing: Listing) -> None:
        """Make durable what segments remember that are about to be removed. The file is written in any case: that it is
        there tells that nothing is missing."""
        folded = self._folded(listing)
        kept = last_of_each([*folded, *(each for entry in entries for each in self.of(entry))])
        if kept != tuple(folded) or not (self._directory / FOLDED).exists():
            durable.write_atomic(self._directory / FOLDED, folded_as_bytes(kept))

    def _take(self, appends: Iterable[Produced]) -> None:
        self._last.update((each.producer, each) for each in last_of_each([*self._known(appends), *appends]))

    def _known(self, appends: Iterable[Produced]) -> list[Produced]:
        return [self._last[each.producer] for each in appends if each.producer in self._last]

    def _folded(self, listing: Listing) -> list[Produced]:
        return folded_in(self._directory, self._stream, listing)


def folded_as_bytes(kept: Iterable[Produced]) -> bytes:
    """The content of `FOLDED`."""
    rows = [[each.producer, each.sequence, each.first, each.next] for each in kept]
    return seal("producers", orjson.dumps({"producers": rows}))


def folded_in(directory: Path, stream: str, listing: Listing) -> list[Produced]:
    """What is remembered of removed segments; the file must be there where retention has removed some."""
    path = directory / FOLDED
    remedy = (
        f"put back a copy from a backup, or run `hayase home repair {directory.parent.parent}` if no producer will repeat "
        "an append whose records retention has removed"
    )
    try:
        return [Produced(*each) for each in orjson.loads(read_sealed(path, "producers", remedy))["producers"]]
    except FileNotFoundError:
        if is_trimmed(listing):
            raise StreamError(stream, f'the producers {path} of stream "{stream}" are missing; {remedy}') from None
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise StreamError(stream, f"the producers {path} cannot be read: {error}; {remedy}") from error
