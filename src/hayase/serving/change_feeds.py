"""The newest changes of a query, read and written as events once for all who listen at its end.

A listener begins with a reader of its own, and joins the feed of its query when it has read everything. After a commit, the first
who asks the feed lets it read on, the others wait for that, and all get the same bytes. A listener that reads too slowly to find
what it needs goes on with a reader of its own. So a feed drops nobody, and no event: it only saves work.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any, NamedTuple

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.engine.results.live_results import Changes, Cursor, Live
from hayase.serving.commit_signal import UNCHANGED
from hayase.serving.json_rows import json_text, plain_rows

__all__ = ["AT_ONCE", "KEPT_EVENTS", "ChangeEvent", "ChangeFeed", "ChangeFeeds", "Listener", "read_events", "read_on"]

AT_ONCE = 500
"""Changes that are read and sent at once."""
KEPT_EVENTS = 5_000
KEPT_BYTES = 4 << 20
"""How much of the newest events a feed keeps."""
_TEXTS = 16
"""Cursors for which a feed keeps the events behind them as one text."""


class ChangeEvent(NamedTuple):
    """A change as a server-sent event, and the cursor behind it."""

    cursor: Cursor
    text: bytes


def read_events(changes: Changes) -> list[ChangeEvent]:
    """Read the next changes as events; none if there are none yet."""
    cursors, rows = changes.read(AT_ONCE)
    if not cursors:
        return []
    signs = rows.column("__appears").to_pylist()
    plain = plain_rows(rows.select(rows.column_names[3:]))
    return [
        ChangeEvent(
            cursor,
            b"id: %s\nevent: change\ndata: %s\n\n"
            % (str(cursor).encode(), json_text({"time": time, "change": "+" if sign else "-", "row": row})),
        )
        for cursor, time, sign, row in zip(cursors, changes.times(rows), signs, plain)
    ]


def read_on(changes: Changes) -> tuple[list[ChangeEvent], bool]:
    """Read the next changes, `AT_ONCE` of them or a few more, and return whether these are all."""
    events: list[ChangeEvent] = []
    while len(events) < AT_ONCE:
        more = read_events(changes)
        if not more:
            return events, True
        events += more
    return events, False


class ChangeFeed:
    """The newest events of one query; used in the thread of the event loop only. `run` runs work in another thread."""

    def __init__(self, changes: Changes, run: Callable[..., Awaitable[tuple[list[ChangeEvent], bool]]]):
        self._changes, self._run = changes, run
        self._events: deque[ChangeEvent] = deque()
        self._numbers = {changes.cursor: 0}
        """How many events came before each cursor; those of cursors before the oldest kept event are dropped."""
        self._dropped = self._bytes = 0
        self._after: dict[Cursor, tuple[Cursor, bytes]] = {}
        """What comes after cursors, as one text, until there are new events."""
        self._reading: asyncio.Task[None] | None = None
        self._seen: object = None
        self._seen_at = float("-inf")
        self.listeners = 0

    def after(self, cursor: Cursor) -> tuple[Cursor, bytes] | None:
        """Return the events behind a cursor, at most `AT_ONCE`, as one text, and the cursor behind them; None if the feed does
        not know the cursor."""
        text = self._after.get(cursor)
        if text is None:
            number = self._numbers.get(cursor)
            if number is None:
                return None
            first = number - self._dropped
            events = list(islice(self._events, first, first + AT_ONCE))
            text = events[-1].cursor if events else cursor, b"".join(event.text for event in events)
            if len(self._after) < _TEXTS:
                self._after[cursor] = text
        return text

    async def next(self, cursor: Cursor, commit: object, moment: float) -> tuple[Cursor, bytes] | None:
        """Return the events behind a cursor as `after` does. At the end, changes are read first, unless all of this commit were
        read less than `UNCHANGED` seconds ago. A feed whose query was reset is a problem."""
        known = self.after(cursor)
        if known is None or known[1] or (self._seen is commit and moment < self._seen_at + UNCHANGED):
            return known
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(commit, moment))
        await asyncio.shield(self._reading)
        return self.after(cursor)

    async def _read(self, commit: object, moment: float) -> None:
        try:
            events, is_all = await self._run(read_on, self._changes)
            self._add(events)
            if is_all:
                self._seen, self._seen_at = commit, moment
        finally:
            self._reading = None

    def _add(self, events: list[ChangeEvent]) -> None:
        self._after = {} if events else self._after
        for event in events:
            self._events.append(event)
            self._bytes += len(event.text)
            self._numbers[event.cursor] = self._dropped + len(self._events)
        while len(self._events) > KEPT_EVENTS or (self._bytes > KEPT_BYTES and len(self._events) > AT_ONCE):
            del self._numbers[next(iter(self._numbers))]  # the cursor before the oldest event
            self._bytes -= len(self._events.popleft().text)
            self._dropped += 1


@dataclass(slots=True)
class Listener:
    """One who listens to the changes of a query: at `cursor`, by a reader of its own or in a feed."""

    results: Live
    cursor: Cursor
    changes: Changes | None
    feed: ChangeFeed | None = None


class ChangeFeeds:
    """The feeds of all queries that somebody listens to; used in the thread of the event loop only."""

    def __init__(self, run: Callable[..., Awaitable[Any]]):
        self._run = run
        self._feeds: dict[StreamDeclaration, ChangeFeed] = {}

    def __len__(self) -> int:
        return len(self._feeds)

    async def next(self, listener: Listener, commit: object, moment: float) -> bytes:
        """Return the next events of a listener; empty if there are none yet. `commit` is the last one, `moment` a clock in
        seconds. A cursor that is no longer valid is a problem."""
        if listener.feed is not None:
            known = await listener.feed.next(listener.cursor, commit, moment)
            if known is not None:
                listener.cursor, text = known
                return text
            self.leave(listener)
            listener.changes = await self._run(listener.results.changes_from, listener.cursor)
        assert listener.changes is not None
        events = await self._run(read_events, listener.changes)
        if not events:
            self._join(listener)
            return b""
        listener.cursor = events[-1].cursor
        return b"".join(event.text for event in events)

    def _join(self, listener: Listener) -> None:
        """Let a listener that has read everything go on in the feed, if that knows its cursor; the first one is the feed."""
        assert listener.changes is not None
        declaration = listener.results.log.declaration
        feed = self._feeds.get(declaration)
        if feed is None:
            listener.cursor = listener.changes.cursor  # that of the query as it is now
            feed = self._feeds[declaration] = ChangeFeed(listener.changes, self._run)
        if feed.after(listener.cursor) is not None:
            listener.feed, listener.changes = feed, None
            feed.listeners += 1

    def leave(self, listener: Listener) -> None:
        """Take a listener out of its feed, which ends with its last listener."""
        feed, listener.feed = listener.feed, None
        if feed is None:
            return
        feed.listeners -= 1
        declaration = listener.results.log.declaration
        if not feed.listeners and self._feeds.get(declaration) is feed:
            del self._feeds[declaration]
