"""Routes of streams: their declarations, and appends, which are durable before they are answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import orjson
from fastapi import Header
from starlette.requests import Request
from starlette.responses import Response

from hayase.core.declarations import StreamDeclaration
from hayase.core.times import BEGINNING, instant_text
from hayase.serving.bodies import ARROW, JSON, NDJSON, content_type, records_in
from hayase.serving.json_rows import json_text
from hayase.serving.parameters import Name, append_key
from hayase.serving.route_support import RequestWorkers, answer
from hayase.serving.service import CommittedStatus, Service

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
        index = self.service.log(declared).index()
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
        })  # fmt: skip

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
        return await self.desk.run_body(request, len(body), self._append, declared, body, kind, key)

    def _append(
        self,
        check: Callable[[], None],
        declared: StreamDeclaration,
        body: bytes,
        kind: str,
        key: tuple[str, int] | None,
    ) -> Response:
        conformed = records_in(body, kind, declared, self.service.clock(), check=check)
        check()  # from here on the append is carried out, even if the client has gone
        done = self.service.append(declared, conformed, key)
        refusals = [
            {"record": _short(refusal.record), "reason": refusal.reason} for refusal in conformed.refused[:_REFUSALS]
        ]
        placed = done.next > done.first
        return Response(
            json_text({
                "accepted": done.accepted,
                "refused": done.refused,
                "first": done.first if placed else None,
                "next": done.next if placed else None,
                "repeated": done.repeated,
                "refusals": refusals,
            }),
            media_type=JSON,
            headers={"Cache-Control": "no-store"} | ({"Idempotency-Replayed": "true"} if done.repeated else {}),
        )  # fmt: skip


def _short(record: str) -> str:
    return record if len(record) <= _QUOTED else record[:_QUOTED] + "…"
