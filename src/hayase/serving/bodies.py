"""Bodies of requests: records as JSON, NDJSON or Arrow, and other JSON with its numbers in full.

Bodies are judged by their Content-Type alone. None of the types here can be sent by a form, or by a page from elsewhere
without the browser asking first, which it does in vain.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, TypeVar

import pyarrow as pa
from pydantic import BaseModel, ValidationError

from hayase.core.declarations import StreamDeclaration
from hayase.serving.problems import Problem
from hayase.streams.formats import Format, read_records
from hayase.streams.record_text import record_text
from hayase.streams.records import Conformed, Origin, conform, conform_rows
from hayase.tables.payloads import json_bytes

__all__ = ["ARROW", "JSON", "NDJSON", "content_type", "exact_json", "read_as", "records_in"]

JSON = "application/json"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
_Model = TypeVar("_Model", bound=BaseModel)
_ALSO = {"application/ndjson": NDJSON, "application/jsonl": NDJSON}


def content_type(headers: Mapping[str, str], allowed: tuple[str, ...]) -> str:
    """The type of a body, one of those that are allowed here; a problem otherwise."""
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "the body is compressed; send it as it is", {"Accept-Encoding": "identity"})
    header = headers.get("content-type")
    kind, _, parameters = (header or "").partition(";")
    kind = kind.strip().lower()
    kind = _ALSO.get(kind, kind)
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if kind not in allowed or (charset and charset not in ("utf-8", "utf8")):
        given = f'"{header}"' if header else "missing"
        raise Problem(
            415,
            f"the Content-Type is {given}; send {' or '.join(allowed)}, in UTF-8",
            {"Accept-Post": ", ".join(allowed)},
        )
    return kind


def exact_json(body: bytes, what: str = "the body") -> Any:
    """JSON whose numbers keep all their digits; a problem if it is none."""
    try:
        return json.loads(body.decode(), parse_float=_decimal, parse_constant=_refuse)
    except RecursionError:
        raise Problem(400, f"{what} is nested too deep; make it flatter") from None
    except ValueError as error:  # not UTF-8, not JSON, or a number longer than Python takes
        raise Problem(400, f"{what} is not JSON: {error}") from None


def read_as(body: bytes, model: type[_Model]) -> _Model:
    """What a body asks for; a problem if that is not clear."""
    found = exact_json(body)
    try:
        return model.model_validate(found)
    except ValidationError as error:
        told = (f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in error.errors()[:10])
        raise Problem(422, "; ".join(told)) from None


def _decimal(text: str) -> float | Decimal:
    """A float where it says the same, which it nearly always does."""
    number = float(text)
    return number if repr(number) == text else Decimal(text)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not a number in JSON")


def records_in(body: bytes, kind: str, declaration: StreamDeclaration, now: int) -> Conformed:
    """The records of a body, divided into those that fit the stream and those that do not."""
    if kind == ARROW:
        return conform(_arrow(body), declaration, now)
    if kind == NDJSON:
        chunks = [each.conformed for each in read_records(io.BytesIO(body), Format("ndjson"), declaration, lambda: now)]
        if not chunks:
            return Conformed(declaration.arrow_schema.empty_table())
        rows = pa.concat_tables([each.rows for each in chunks])
        return Conformed(rows, tuple(one for each in chunks for one in each.refused))
    found = exact_json(body)
    rows = found if isinstance(found, list) else [found]
    return conform_rows(rows, declaration, now, Origin(lambda at: [_text(rows[each]) for each in at]))


def _text(row: Any) -> str:
    """A refused record as it was, as far as JSON can be written again."""
    try:
        return json_bytes(row).decode()
    except (TypeError, ValueError):  # halves of characters, whole numbers past 64 bits
        return record_text(row)


def _arrow(body: bytes) -> pa.Table:
    try:
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Problem(400, f"the body is no Arrow stream: {error}; write one with pyarrow.ipc.new_stream") from None
    return table
