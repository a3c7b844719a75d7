"""Routes of tables: their declarations and sizes, rows by key, by many keys, and by prefix."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hayase.core.times import duration_text, instant_text
from hayase.serving.bodies import JSON, content_type, exact_json
from hayase.serving.parameters import (
    Limit,
    Name,
    column_names,
    cursor_bytes,
    cursor_text,
    instant_of,
    key_in,
    refuse_unknown,
    whole_key,
)
from hayase.serving.problems import Problem
from hayase.serving.route_support import RequestWorkers, answer
from hayase.serving.service import CommittedStatus, Service
from hayase.tables.payloads import json_bytes

__all__ = ["TableRoutes"]

AsOf = Annotated[str | None, Query(max_length=64, description="An event time: only updates up to it count.")]
Columns = Annotated[str | None, Query(max_length=4096, description="Some columns, separated by commas.")]


class TableRoutes:
    """The handlers. Their docstrings are the descriptions in OpenAPI."""

    def __init__(self, service: Service, desk: RequestWorkers):
        self.service, self.desk = service, desk
        self.shortcut = Route("/tables/{table}/{key:path}", self.get)

    async def tables(self, request: Request) -> Response:
        """The names of all tables."""
        now = self.service.committed_status()
        names = await self.desk.run(self.service.table_names, now)
        return answer(request, orjson.dumps({"tables": names}), now)

    async def table(self, request: Request, table: Name) -> Response:
        """The declaration of a table, its approximate size, and how far back it can be read."""
        now = self.service.committed_status()
        return answer(request, await self.desk.run(self._table, table, now), now, table)

    def _table(self, name: str, now: CommittedStatus) -> bytes:
        table = self.service.table(name, now)
        declared, info, clock = table.declaration, table.info(), now.clock(name)
        return orjson.dumps({
            "name": declared.name,
            "key": declared.key,
            "columns": [{"name": column, "type": kind} for column, kind in declared.columns],
            "fold_after": duration_text(declared.fold_after),
            "horizon": duration_text(declared.horizon),
            "keys": info.keys,
            "payloads": info.payloads,
            "bytes": info.bytes,
            "readable_from": None if info.folded_before is None else instant_text(info.folded_before - 1),
            "clock": None if clock is None else instant_text(clock),
        })  # fmt: skip

    async def get(self, request: Request) -> Response:
        """The row of a key, now or as of an event time."""
        request.scope["route"] = self.shortcut  # FastAPI sets it for its own routes
        now = self.service.committed_status()
        name = request.path_params["table"]
        asked = request.query_params if request.scope["query_string"] else {}
        if asked:
            refuse_unknown(asked, ("columns", "as_of", "json"))
        raw: bytes = request.scope["raw_path"]
        if raw.count(b"/") < 3 or len(name) > 64:  # a name with an encoded slash in it
            raise Problem(404, "there is no table of that name; GET /tables lists them")
        key = key_in(raw, _flag(asked.get("json")))
        columns, as_of = column_names(asked.get("columns")), asked.get("as_of")
        instant = None if as_of is None else instant_of(as_of)
        if self.service.reads_at_once:
            body = self._get(name, key, columns, instant, now)
        else:
            body = await self.desk.run(self._get, name, key, columns, instant, now)
        return answer(request, body, now, name)

    def _get(
        self, name: str, key: tuple[Any, ...], columns: list[str] | None, as_of: int | None, now: CommittedStatus
    ) -> bytes:
        table = self.service.table(name, now)
        row = table.get(whole_key(key, table.declaration.key), columns=columns, as_of=as_of)
        if row is None:
            raise _no_such_key(name, key, as_of)
        return json_bytes({"key": key, "row": row})

    async def payloads(
        self,
        request: Request,
        table: Name,
        key: Annotated[str, Path(description="The parts of the key, each a segment.", examples=["taro"])],
        as_json: Annotated[
            bool, Query(alias="json", description="Read every segment of the key as a JSON value.")
        ] = False,
        as_of: AsOf = None,
        limit: Limit = 100,
    ) -> Response:
        """The updates behind a row that are not folded yet, newest first: by which method of which event, and what each gives."""
        now = self.service.committed_status()
        raw: bytes = request.scope["raw_path"]
        parts = key_in(raw, as_json)
        instant = None if as_of is None else instant_of(as_of)
        body = await self.desk.run(self._payloads, table, parts, instant, min(limit, self.desk.limits.page), now)
        return answer(request, body, now, table)

    def _payloads(self, name: str, key: tuple[Any, ...], as_of: int | None, limit: int, now: CommittedStatus) -> bytes:
        table = self.service.table(name, now)
        folded, updates = table.updates(whole_key(key, table.declaration.key), as_of=as_of)
        if not folded and not updates:
            raise _no_such_key(name, key, as_of)
        told = [
            {
                "column": update.column, "type": update.type, "method": update.method,
                "time": instant_text(update.version.time), "event": update.version.id, "update": update.version.update,
                "alone": update.alone,
            }
            for update in reversed(updates[-limit:])
        ]  # fmt: skip
        return json_bytes({"key": key, "folded": folded, "payloads": told, "more": len(updates) > limit})

    async def get_many(self, request: Request, table: Name) -> Response:
        """The rows of many keys, all from one state of the table."""
        now = self.service.committed_status()
        content_type(request.headers, (JSON,))
        body = await self.desk.body(request)
        return answer(request, await self.desk.run(self._get_many, table, body, now), now, table)

    def _get_many(self, name: str, body: bytes, now: CommittedStatus) -> bytes:
        table = self.service.table(name, now)
        keys, columns, as_of = _keys_asked(exact_json(body), self.desk.limits.page)
        whole = [whole_key(parts, table.declaration.key) for parts in keys]
        rows = table.get_many(whole, columns=columns, as_of=as_of)
        return json_bytes({"rows": [{"key": key, "row": row} for key, row in zip(whole, rows)]})

    async def scan(
        self,
        request: Request,
        table: Name,
        prefix: Annotated[
            str | None,
            Query(max_length=4096, description="The first parts of the key, a JSON array.", examples=['["JP"]']),
        ] = None,
        text_prefix: Annotated[
            str | None, Query(max_length=1024, description="How the text of the next part begins.", examples=["ta"])
        ] = None,
        after: Annotated[str | None, Query(max_length=2048, description="The `next` of the page before.")] = None,
        limit: Limit = 100,
        columns: Columns = None,
        as_of: AsOf = None,
    ) -> Response:
        """Rows in the order of their keys: null, false, true, numbers, texts by code point."""
        now = self.service.committed_status()
        first = () if prefix is None else exact_json(prefix.encode(), "the prefix")
        if not isinstance(first, (list, tuple)):
            raise Problem(422, 'the prefix is a JSON array of parts, like ["JP"]')
        asked = {
            "after": cursor_bytes(after),
            "limit": min(limit, self.desk.limits.page),
            "columns": column_names(columns),
            "as_of": None if as_of is None else instant_of(as_of),
            "text_prefix": text_prefix,
        }
        return answer(request, await self.desk.run(self._scan, table, tuple(first), asked, now), now, table)

    def _scan(self, name: str, prefix: tuple[Any, ...], asked: dict[str, Any], now: CommittedStatus) -> bytes:
        table = self.service.table(name, now)
        if len(prefix) + (asked["text_prefix"] is not None) > len(table.declaration.key):
            raise Problem(
                422, f"a key of this table has {len(table.declaration.key)} parts, and the prefix asks for more"
            )
        page = table.scan(prefix, **asked)
        rows = [{"key": key, "row": row} for key, row in page.rows]
        return json_bytes({"rows": rows, "next": cursor_text(page.next)})


def _keys_asked(body: Any, most: int) -> tuple[list[Any], list[str] | None, int | None]:
    """Return the keys, columns and time in the body of a request for many keys."""
    if not isinstance(body, dict) or not isinstance(body.get("keys"), list):
        raise Problem(422, 'the body is an object with the list "keys", like {"keys": ["taro", "hanako"]}')
    refuse_unknown(body, ("keys", "columns", "as_of"))
    keys, columns, as_of = body["keys"], body.get("columns"), body.get("as_of")
    if len(keys) > most:
        raise Problem(422, f"{len(keys):,} keys are asked for; {most:,} fit into one request")
    if columns is not None and not (isinstance(columns, list) and all(isinstance(column, str) for column in columns)):
        raise Problem(422, '"columns" is a list of names')
    if isinstance(as_of, bool) or not isinstance(as_of, (str, int, type(None))):
        raise Problem(422, '"as_of" is a time: ISO text or microseconds')
    return keys, columns, None if as_of is None else instant_of(as_of)


def _no_such_key(name: str, key: tuple[Any, ...], as_of: int | None) -> Problem:
    shown = json_bytes(key).decode()
    when = "" if as_of is None else f" as of {instant_text(as_of)}"
    hint = ""
    if any(isinstance(part, str) and part.lstrip("-").isdigit() for part in key):
        hint = "; these parts are texts: for numbers write ?json=true"
    return Problem(404, f'table "{name}" has no key {shown}{when}{hint}')


def _flag(text: str | None) -> bool:
    if text in (None, "false"):
        return False
    if text == "true":
        return True
    raise Problem(422, '"json" is true or false')
