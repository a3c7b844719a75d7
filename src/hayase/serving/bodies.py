"""Reads the bodies of requests: records as JSON, NDJSON or Arrow, and other JSON without loss of digits.

The Content-Type alone decides how a body is read. Forms cannot send the types accepted here, and pages of other origins only
after a CORS preflight request, which is refused.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pyarrow as pa
from pydantic import BaseModel, ValidationError

from hayase.core.abandonment import abandonable
from hayase.core.declarations import StreamDeclaration
from hayase.core.numbers import exact_loads
from hayase.serving.arrow_bodies import BodyLimits, read_arrow
from hayase.serving.problems import Problem
from hayase.streams.file_formats import Format, read_records
from hayase.streams.record_text import record_text
from hayase.streams.records import Conformed, Origin, conform, conform_rows
from hayase.tables.payloads import json_bytes

__all__ = ["ARROW", "BODY_LIMITS", "JSON", "NDJSON", "content_type", "exact_json", "read_as", "records_in"]

JSON = "application/json"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
BODY_LIMITS = BodyLimits(rows=200_000, values=4_000_000, bytes=64 << 20)
"""The limits of a body."""
_AT_ONCE = 16_384
"""Records that are converted between two checks whether the client still waits."""
_Model = TypeVar("_Model", bound=BaseModel)
_ALIASES = {"application/ndjson": NDJSON, "application/jsonl": NDJSON}


def content_type(headers: Mapping[str, str], allowed: tuple[str, ...]) -> str:
    """Return the type of a body; a problem if it is not among those allowed."""
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "the body is compressed; send it as it is", {"Accept-Encoding": "identity"})
    header = headers.get("content-type")
    kind, _, parameters = (header or "").partition(";")
    kind = kind.strip().lower()
    kind = _ALIASES.get(kind, kind)
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if kind not in allowed or (charset and charset not in ("utf-8", "utf8")):
        actual = f'"{header}"' if header else "missing"
        raise Problem(
            415,
            f"the Content-Type is {actual}; send {' or '.join(allowed)}, in UTF-8",
            {"Accept-Post": ", ".join(allowed)},
        )
    return kind


def exact_json(body: bytes, what: str = "the body") -> Any:
    """Parse JSON; numbers keep all their digits. A problem if it is not JSON."""
    try:
        return exact_loads(body)
    except ValueError as error:  # not UTF-8, or not JSON
        raise Problem(400, f"{what} is not JSON: {error}") from None


def read_as(body: bytes, model: type[_Model]) -> _Model:
    """Parse a JSON body as a model; a problem that lists what does not fit."""
    value = exact_json(body)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        details = (f"{'.'.join(map(str, item['loc'])) or 'body'}: {item['msg']}" for item in error.errors()[:10])
        raise Problem(422, "; ".join(details)) from None


def records_in(
    body: bytes,
    kind: str,
    declaration: StreamDeclaration,
    now: int,
    most: BodyLimits = BODY_LIMITS,
    check: Callable[[], None] = lambda: None,
) -> Conformed:
    """Return the records of a body, divided into those that fit the stream's schema and those that do not.

    A body that exceeds `most` is a problem before it is parsed. `check` is called now and then, also inside of a record with many
    values, and raises if the client no longer waits.
    """
    with abandonable(check):
        return _records_in(body, kind, declaration, now, most, check)


def _records_in(
    body: bytes, kind: str, declaration: StreamDeclaration, now: int, most: BodyLimits, check: Callable[[], None]
) -> Conformed:
    if kind == ARROW:
        table = read_arrow(body, most)
        check()
        parts = (conform(table.slice(at, _AT_ONCE), declaration, now) for at in _steps(table.num_rows))
    elif kind == NDJSON:
        _check_size(body, body.count(b"\n"), most)
        chunks = read_records(io.BytesIO(body), Format("ndjson"), declaration, lambda: now)
        parts = (chunk.conformed for chunk in chunks)
    else:
        _check_size(body, 0, most)
        value = exact_json(body)
        rows = value if isinstance(value, list) else [value]
        _check_rows(len(rows), most)
        check()
        parts = (_conform_rows(rows[at : at + _AT_ONCE], declaration, now) for at in _steps(len(rows)))
    done: list[Conformed] = []
    for part in parts:
        check()
        done.append(part)
    if len(done) == 1:
        return done[0]
    tables = [declaration.arrow_schema.empty_table(), *(part.rows for part in done)]
    return Conformed(pa.concat_tables(tables), tuple(refusal for part in done for refusal in part.refused))


def _steps(count: int) -> range:
    return range(0, max(count, 1), _AT_ONCE)


def _conform_rows(rows: list[Any], declaration: StreamDeclaration, now: int) -> Conformed:
    return conform_rows(rows, declaration, now, Origin(lambda places: [_text(rows[place]) for place in places]))


def _check_size(body: bytes, lines: int, most: BodyLimits) -> None:
    """Refuse JSON that would need much more memory than its bytes, without parsing it. Brackets and commas inside strings are
    counted too; a legitimate body would need a great many of them to be refused."""
    objects = body.count(b"{") + body.count(b"[")
    _check_rows(lines, most)
    if objects > 4 * most.rows:
        raise Problem(
            413,
            f"the body has {objects:,} objects and arrays, and at most {4 * most.rows:,} are taken; send it in parts",
        )
    values = body.count(b",") + objects
    if values > most.values:
        raise Problem(
            413, f"the body has about {values:,} values, and at most {most.values:,} are taken; send it in parts"
        )


def _check_rows(count: int, most: BodyLimits) -> None:
    if count > most.rows:
        raise Problem(413, f"the body has {count:,} records, and at most {most.rows:,} are taken; send it in parts")


def _text(row: Any) -> str:
    """Return a refused record as text, as it was sent where JSON can express that."""
    try:
        return json_bytes(row).decode()
    except (TypeError, ValueError):  # lone surrogates, integers beyond 64 bits
        return record_text(row)
