"""Routes of streams: their declarations and newest records, and appends, which are durable before they are answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import orjson
import pyarrow as pa
from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import Response

from hayase.core.declarations import StreamDeclaration
from hayase.core.times import BEGINNING, END, duration_text, instant_text
from hayase.serving.bodies import ARROW, JSON, NDJSON, content_type, records_in
from hayase.serving.freshness import VERSIONS, versions_text
from hayase.serving.json_rows import json_text, plain_rows
from hayase.serving.parameters import Limit, Name, append_key
from hayase.serving.problems import Problem
from hayase.serving.route_support import RequestWorkers, answer
from hayase.serving.service import CommittedStatus, Service
from hayase.streams.records import Conformed

__all__ = ["StreamRoutes"]

_REFUSALS = 100
"""How many refused records the answer to an append quotes; all of them are in the dead letters."""
_QUOTED = 1000
"""How many characters of a refused record are quoted."""


class StreamRoutes:
    """The handlers. Their docstrings are the descriptions in OpenAPI."""

    def __init__(self, service: Service, desk: RequestWorkers):
        self.service, self.desk = service, desk

    async def streams(self, request: Request) -> Response:
        """The names of all streams that take records."""
        now = self.service.committed_status()
        names = await self.desk.run(lambda: list(self.service.streams(now)))
        return answer(request, orjson.dumps({"streams": names}), now)

    async def stream(self, request: Request, stream: Name) -> Response:
        """The declaration of a stream, and the offsets of its log."""
        now = self.service.committed_status()
        return answer(request, await self.desk.run(self._stream, stream, now), now)

    def _stream(self, name: str, now: CommittedStatus) -> bytes:
        declared = self.service.stream(name, now)
        log = self.service.log(declared)
        index = log.index()
        clock, written = index.clock, log.last_written()
        if index.running_max > BEGINNING and not index.finished:
            clock = max(clock, index.running_max - declared.slack)
        return orjson.dumps({
            "name": declared.name,
            "schema": declared.schema,
            "time": declared.time,
            "time_unit": declared.time_unit,
            "id": declared.id,
            "first": index.start,
            "next": index.next,
            "latest": instant_text(index.running_max) if index.running_max > BEGINNING else None,
            "finished": index.finished,
            "slack": duration_text(declared.slack),
            "clock": instant_text(clock) if BEGINNING < clock < END else None,
            "written_at": None if written is None else instant_text(written),
        })  # fmt: skip

    async def records(
        self,
        request: Request,
        stream: Name,
        before: Annotated[int | None, Query(ge=0, lt=2**62, description="Only records with smaller offsets.")] = None,
        limit: Limit = 50,
    ) -> Response:
        """The newest records of a stream, newest first; also of what jobs and operations write."""
        now = self.service.committed_status()
        limit = min(limit, self.desk.limits.page)
        return answer(request, await self.desk.run(self._records, stream, before, limit, now), now)

    def _records(self, name: str, before: int | None, limit: int, now: CommittedStatus) -> bytes:
        log, index = self.service.readable(name, now)
        start, next_ = (0, 0) if index is None else (index.start, index.next)
        end = next_ if before is None else max(start, min(before, next_))
        first = max(start, end - limit)
        pieces = log.read(first, end) if first < end else ()
        rows = [
            row for piece in pieces for row in plain_rows(log.declaration.shown(pa.Table.from_batches([piece.rows])))
        ]
        records = [{"offset": first + at, "record": row} for at, row in enumerate(rows)]
        older = first if first > start else None
        return json_text({"stream": name, "next": next_, "records": records[::-1], "older": older})

    async def append(
        self,
        request: Request,
        stream: Name,
        idempotency_key: Annotated[
            str | None,
            Header(
                description="Any text, a different one for each request. A repeated request with the same key adds nothing "
                "and is answered like the first. It is remembered as long as the stream."
            ),
        ] = None,
        hayase_producer: Annotated[
            str | None,
            Header(
                description="Instead of a key: the name of a sender that counts its requests. Only its last is remembered."
            ),
        ] = None,
        hayase_sequence: Annotated[
            str | None, Header(description="The number of the request, above that of the sender's last one.")
        ] = None,
        dry_run: Annotated[bool, Query(description="Only say what would be accepted and refused.")] = False,
    ) -> Response:
        """Append records: a JSON object or an array of them, NDJSON, or an Arrow stream.

        They are durable before the answer is sent. A record that does not fit the schema becomes a dead letter, without affecting
        the others; the answer has the reason.
        """
        now = self.service.committed_status()
        kind = content_type(request.headers, (JSON, NDJSON, ARROW))
        key = append_key(request.headers)
        declared = await self.desk.run(self.service.stream, stream, now)
        body = await self.desk.body(request)
        work = self._try_append if dry_run else self._append
        return await self.desk.run_body(request, len(body), work, declared, body, kind, key, now)

    def _append(
        self,
        check: Callable[[], None],
        declared: StreamDeclaration,
        body: bytes,
        kind: str,
        key: tuple[str, int] | None,
        now: CommittedStatus,
    ) -> Response:
        conformed = records_in(body, kind, declared, self.service.clock(), check=check)
        check()  # from here on the append is carried out, even if the client has gone
        done = self.service.append(declared, conformed, key)
        placed = done.next > done.first
        first, next_ = (done.first, done.next) if placed else (None, None)
        told = _appended(conformed, done.accepted, done.refused, first, next_, done.repeated)
        told.headers[VERSIONS] = versions_text(now.manifest, {declared.name: done.next} if placed else {})
        return told

    def _try_append(
        self,
        check: Callable[[], None],
        declared: StreamDeclaration,
        body: bytes,
        kind: str,
        key: tuple[str, int] | None,
        now: CommittedStatus,
    ) -> Response:
        conformed = records_in(body, kind, declared, self.service.clock(), check=check)
        if self.service.log(declared).index().finished:
            raise Problem(409, f'stream "{declared.name}" is finished; it accepts no more records')
        return _appended(conformed, conformed.rows.num_rows, len(conformed.refused), None, None, False)


def _appended(
    conformed: Conformed, accepted: int, refused: int, first: int | None, next_: int | None, repeated: bool
) -> Response:
    refusals = [
        {"record": _short(refusal.record), "reason": refusal.reason} for refusal in conformed.refused[:_REFUSALS]
    ]
    told = {"accepted": accepted, "refused": refused, "first": first, "next": next_, "repeated": repeated}
    return Response(
        json_text({**told, "refusals": refusals}),
        media_type=JSON,
        headers={"Cache-Control": "no-store"} | ({"Idempotency-Replayed": "true"} if repeated else {}),
    )


def _short(record: str) -> str:
    return record if len(record) <= _QUOTED else record[:_QUOTED] + "…"
