"""Routes of queries: their texts, snapshots in pages, sampled lifetimes, and changes as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated

import numpy as np
import orjson
import pyarrow as pa
from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from hayase.core.declarations import StreamDeclaration
from hayase.core.schemas import ddl
from hayase.engine.results.lifespans import own_columns
from hayase.engine.results.live_results import Cursor
from hayase.serving.change_feeds import ChangeFeeds, Listener
from hayase.serving.commit_signal import UNCHANGED, CommitSignal
from hayase.serving.fan_out import HEARTBEAT
from hayase.serving.json_rows import json_text, lifetime_rows, plain_rows
from hayase.serving.parameters import Limit, Name, instant_of, time_of
from hayase.serving.problems import Problem, busy, problem_of
from hayase.serving.route_support import RequestWorkers, answer, event_headers
from hayase.serving.service import CommittedStatus, Service

__all__ = ["QueryRoutes"]

_HOUR = 3_600_000_000
"""The range of a timeline, in microseconds, if none is asked for."""


class QueryRoutes:
    """The handlers. Their docstrings are the descriptions in OpenAPI."""

    def __init__(self, service: Service, desk: RequestWorkers):
        self.service, self.desk = service, desk
        self.feeds = ChangeFeeds(desk.run)
        self.commits = CommitSignal(service.status)
        desk.at_stop.append(self.commits.wake)

    async def queries(self, request: Request) -> Response:
        """All queries, with their texts and the columns of their rows."""
        now = self.service.committed_status()
        queries = await self.desk.run(self.service.queries, now)
        descriptions = [
            {
                "name": name,
                "text": text,
                "schema": _row_schema(output),
                "kind": "relation" if output.lifetimes else "stream",
            }
            for name, (text, output) in queries.items()
        ]
        return answer(request, orjson.dumps({"queries": descriptions}), now)

    async def query(
        self,
        request: Request,
        query: Name,
        at: Annotated[str | None, Query(max_length=64, description="A time; by default, the latest final one.")] = None,
        lifetimes: Annotated[
            bool, Query(description="Add `valid_from` and `valid_to` (null as long as it is not known) to the rows.")
        ] = False,
        after: Annotated[str | None, Query(max_length=200, description="The `next` of the page before.")] = None,
        limit: Limit = 1000,
    ) -> Response:
        """The rows that are valid at a time. The cost depends on their number, not on how many there were before."""
        now = self.service.committed_status()
        if after is not None and at is not None:
            raise Problem(422, "the page behind another one is of the same time; send only `after`")
        cursor = None if after is None else Cursor.from_text(after)
        limit = min(limit, self.desk.limits.page)
        body = await self.desk.run(self._query, query, at, cursor, limit, lifetimes, now)
        return answer(request, body, now, query)

    def _query(
        self, name: str, at: str | None, after: Cursor | None, limit: int, lifetimes: bool, now: CommittedStatus
    ) -> bytes:
        results = self.service.query(name, now)
        if at is not None:
            instant_of(at, results.log.declaration.time_scale)  # raises a problem if it is not a time
        page = results.page(None if at is None else time_of(at), after=after, limit=limit, with_lifetimes=lifetimes)
        return json_text({
            "query": name,
            "at": page.at,
            "rows": plain_rows(page.rows),
            "next": None if page.next is None else str(page.next),
            "cursor": str(page.changes),
        })  # fmt: skip

    async def lifetimes(
        self,
        request: Request,
        query: Name,
        start: Annotated[
            str | None,
            Query(alias="from", max_length=64, description="A time; by default, an hour before the end of the range."),
        ] = None,
        end: Annotated[
            str | None, Query(alias="to", max_length=64, description="A time; at most, and by default, the final one.")
        ] = None,
        limit: Limit = 500,
        bins: Annotated[int, Query(ge=1, le=1000, description="Parts of the range for which rows are counted.")] = 100,
    ) -> Response:
        """Rows whose lifetimes touch a range of event time, as a timeline draws them: all of them, or an even sample.

        Records of a query that gives a stream are instants. Of more rows than `limit`, the longest are given, and an even
        sample of the others.
        """
        now = self.service.committed_status()
        limit = min(limit, self.desk.limits.page)
        body = await self.desk.run(self._lifetimes, query, start, end, limit, bins, now)
        return answer(request, body, now, query)

    def _lifetimes(
        self, name: str, start: str | None, end: str | None, limit: int, bins: int, now: CommittedStatus
    ) -> bytes:
        results = self.service.timeline(name, now)
        scale, known = results.log.declaration.time_scale, results.bounds()
        asked = [None if text is None else instant_of(text, scale) for text in (start, end)]
        if known is None:
            nothing = dict.fromkeys(("start", "end", "start_us", "end_us", "first_us", "final_us"))
            empty = {"matching": 0, "complete": True, "density": [0] * bins, "rows": []}
            return json_text({"query": name, **nothing, **empty})
        first, final = known
        until = final if asked[1] is None else min(asked[1], final)
        since = max(until - _HOUR, min(first, until - 1)) if asked[0] is None else asked[0]
        if since >= until:
            raise Problem(422, "the range is empty: `from` must be before `to`, and before what is final")
        sample = results.sample(since, until, limit, bins)
        begin, stop = results.times(np.array([since, until]))
        times = results.times(sample.starts), results.times(sample.ends)
        return json_text({
            "query": name,
            "start": begin, "end": stop, "start_us": since, "end_us": until, "first_us": first, "final_us": final,
            "matching": sample.matching,
            "complete": sample.complete,
            "density": sample.density.tolist(),
            "rows": lifetime_rows(sample.rows, sample.starts, sample.ends, *times),
        })  # fmt: skip

    async def changes(
        self,
        request: Request,
        query: Name,
        since: Annotated[
            str | None,
            Query(
                alias="from",
                max_length=200,
                description="The `cursor` of a snapshot, the id of an event, `start` or `now` (the default).",
            ),
        ] = None,
        wait: Annotated[
            float | None,
            Query(
                ge=0, le=86_400, description="End after so many seconds; with 0, after the changes that are final now."
            ),
        ] = None,
        last_event_id: Annotated[
            str | None,
            Header(max_length=200, description="The id of the last event received; takes precedence over `from`."),
        ] = None,
    ) -> Response:
        """Changes of a query as server-sent events, for as long as you listen.

        An event `change` is a row that appears (`+`) or disappears (`-`). Changes are sent in the order of event time, once they
        are final; at one time, rows disappear before others appear. The records of a query that gives a stream are sent in the
        order of its log. The id of an event is a cursor: a client that reconnects with it, as browsers do, receives every change
        once. An event `gone` ends the stream when the cursor is no longer valid. Changes are read once for all who listen at the
        end.
        """
        now = self.service.committed_status()
        if self.desk.figures.listening >= self.desk.limits.listeners:
            raise busy(f"{self.desk.limits.listeners} listen already, which is the limit; try again later")
        listener = await self.desk.run(self._listener, query, last_event_id or since, now)
        return StreamingResponse(
            self._events(listener, wait), media_type="text/event-stream",
            headers=event_headers(now),
        )  # fmt: skip

    def _listener(self, name: str, since: str | None, now: CommittedStatus) -> Listener:
        results = self.service.growing(name, now)
        if since == "start":
            changes = results.changes_from_start()
        else:
            changes = results.changes_from(None if since in (None, "now") else Cursor.from_text(since))
        return Listener(results, changes.cursor, changes)

    async def _events(self, listener: Listener, wait: float | None) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        began = spoken = loop.time()
        ends = float("inf") if wait is None else began + wait
        self.desk.figures.listening += 1
        try:
            yield b"retry: 1000\n\n"
            if self.desk.figures.listening > self.desk.limits.listeners:  # several clients connected at the same time
                return
            with self.commits.listening():
                while not self.desk.stopping.is_set():
                    woken = self.commits.next()
                    try:
                        text = await self.feeds.next(listener, self.service.status.now, loop.time())
                    except Exception as error:
                        yield b"event: gone\ndata: " + problem_of(error).body + b"\n\n"
                        return
                    if text:
                        yield text
                        spoken = loop.time()
                        continue
                    if loop.time() >= ends:
                        return
                    if loop.time() >= spoken + self.desk.limits.heartbeat:
                        yield HEARTBEAT
                        spoken = loop.time()
                    await _done(woken, min(ends, spoken + self.desk.limits.heartbeat) - loop.time())
        finally:
            self.desk.figures.listening -= 1
            self.feeds.leave(listener)


async def _done(future: asyncio.Future[None], seconds: float) -> None:
    """Wait until a signal is given; for less than `UNCHANGED` seconds, by which it is, with a timer."""
    if seconds >= UNCHANGED:
        await future
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await future


def _row_schema(output: StreamDeclaration) -> str:
    names = own_columns(output) if output.lifetimes else output.arrow_schema.names
    return ddl(pa.schema([output.arrow_schema.field(name).with_name(output.shown_name(name)) for name in names]))
