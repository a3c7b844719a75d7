"""Conversion of a stream's records into the JSON documents that rules read.

A time becomes ISO text that jq's date functions read (`2026-01-31T09:30:00Z`, a fraction only if there is one), NaN and
infinity become null, bytes become base64. A column is converted when a rule first reads it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from hayase.core.schemas import is_json
from hayase.core.times import instant_text
from hayase.streams.json_columns import json_values
from hayase.streams.typed_columns import python_values
from hayase.tables.jq import Events

__all__ = ["events_of"]

_DAY = 86_400_000_000
_EPOCH = date(1970, 1, 1)


def events_of(batch: pa.RecordBatch) -> Events:
    """Return the records of a batch as events.

    >>> events_of(pa.RecordBatch.from_pydict({"day": [date(2026, 1, 31)], "user": ["taro"]})).values()
    [{'day': '2026-01-31', 'user': 'taro'}]
    """
    columns = {
        field.name: partial(json_values if is_json(field) else _documents, column)
        for field, column in zip(batch.schema, batch.columns)
    }
    return Events.of_columns(columns, batch.num_rows)


def _documents(column: pa.Array) -> Sequence[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _instants(column)
    if pa.types.is_nested(kind) or pa.types.is_temporal(kind) or pa.types.is_binary(kind):
        return [_plain(value) for value in python_values(column)]
    return python_values(column)


def _instants(column: pa.Array) -> Sequence[str | None]:
    """Convert times to ISO texts by lookups: a column has few days, and a day has a fixed number of seconds."""
    if column.null_count or not len(column):
        texts = iter(_instants(column.drop_null()) if len(column) > column.null_count else ())
        return [next(texts) if valid else None for valid in column.is_valid().to_pylist()]
    zone = "Z" if column.type.tz else ""
    micros = column.cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
    days, of_day = np.divmod(micros, _DAY)
    seconds, parts = np.divmod(of_day, 1_000_000)
    unique_days, which = np.unique(days, return_inverse=True)
    try:
        dates = [(_EPOCH + timedelta(days=day)).isoformat() for day in unique_days.tolist()]
    except OverflowError:  # beyond Python's calendar
        return [instant_text(time) for time in micros.tolist()]
    clock = _clock(zone)
    if not parts.any():
        return [dates[day] + clock[second] for day, second in zip(which.tolist(), seconds.tolist())]
    plain = _clock("")
    return [
        dates[day] + (f"{plain[second]}.{part:06d}{zone}" if part else clock[second])
        for day, second, part in zip(which.tolist(), seconds.tolist(), parts.tolist())
    ]


@lru_cache(maxsize=2)
def _clock(zone: str) -> Sequence[str]:
    """Return the text of every second of a day."""
    return tuple(f"T{at // 3600:02d}:{at // 60 % 60:02d}:{at % 60:02d}{zone}" for at in range(86_400))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (str, bool, int, float, Decimal)) else str(value)
