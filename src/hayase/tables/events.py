"""Records of a stream as the JSON documents that rules see.

A time is ISO text, as jq's date functions read it (`2026-01-31T09:30:00Z`, a fraction only if there is one); a number that
JSON has no form for (NaN, infinity) is null; bytes are base64. Columns are turned when a rule first asks for them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hayase.streams.columns import python_values
from hayase.tables.jq import Events

__all__ = ["events_of"]


def events_of(batch: pa.RecordBatch) -> Events:
    """The records of a batch as events.

    >>> events_of(pa.RecordBatch.from_pydict({"day": [date(2026, 1, 31)], "user": ["taro"]})).values()
    [{'day': '2026-01-31', 'user': 'taro'}]
    """
    columns = {name: partial(_documents, column) for name, column in zip(batch.schema.names, batch.columns)}
    return Events.of_columns(columns, batch.num_rows)


def _documents(column: pa.Array) -> Sequence[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _instants(column)
    if pa.types.is_nested(kind) or pa.types.is_temporal(kind) or pa.types.is_binary(kind):
        return [_plain(each) for each in python_values(column)]
    return python_values(column)


def _instants(column: pa.Array) -> Sequence[str | None]:
    """ISO texts of many times; one past the calendar is the text of its microseconds."""
    zone = "Z" if column.type.tz else ""
    try:
        micros = column.cast(pa.timestamp("us"))
        seconds = pc.floor_temporal(micros, unit="second")
        texts = pc.strftime(seconds.cast(pa.timestamp("s")), format="%Y-%m-%dT%H:%M:%S").to_pylist()
        if pc.all(pc.equal(seconds, micros)).as_py() in (True, None):
            return [None if text is None else text + zone for text in texts]
        parts = pc.subtract(micros.cast(pa.int64()), seconds.cast(pa.int64())).to_pylist()
    except pa.ArrowException:
        return [None if each is None else str(_plain(each)) for each in python_values(column)]
    return [
        None if text is None else f"{text}.{part:06d}{zone}" if part else text + zone
        for text, part in zip(texts, parts, strict=True)
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, (str, bool, int, float, Decimal)) else str(value)
