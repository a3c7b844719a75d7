"""The bodies of the frames between the processes of operations (`hayase.core.frames`): calls of a function, and its answers.

Data is Arrow IPC, the rest JSON or plain numbers. Nothing that comes from a process with user code is unpickled, and
rows from there are validated before use.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from hayase.core.frames import Garbled
from hayase.operations.outcomes import Failure, Outcomes, Request

__all__ = ["pack_answer", "pack_request", "unpack_answer", "unpack_failure", "unpack_request"]


def pack_request(request: Request) -> list[Any]:
    """Encode a request; the receiver must know the schema of its rows."""
    head = struct.pack("<Q??6x", len(request.starts), request.alone, request.careful)
    bounds = [array.astype("<i8", copy=False) for array in (request.starts, request.stops)]
    return [head, *bounds, request.rows.serialize()]


def unpack_request(body: bytes, schema: pa.Schema) -> Request:
    """Decode a request."""
    count, alone, careful = struct.unpack_from("<Q??", body)
    bounds = np.frombuffer(body, "<i8", 2 * count, 16)
    rows = pa.ipc.read_record_batch(pa.py_buffer(body).slice(16 + 16 * count), schema)
    return Request(rows, bounds[:count], bounds[count:], alone, careful)


def pack_answer(first: int, outcomes: Outcomes) -> list[Any]:
    """Encode the outcomes of a group of windows; `first` is the number of its first window."""
    failed = orjson.dumps([[at, failure.as_json()] for at, failure in outcomes.failures.items()])
    head = struct.pack("<QQQ", first, len(outcomes.counts), len(failed))
    batches = outcomes.rows.combine_chunks().to_batches() or [
        pa.RecordBatch.from_pylist([], schema=outcomes.rows.schema)
    ]
    numbers = [array.astype("<i8", copy=False) for array in (outcomes.counts, outcomes.nanoseconds)]
    return [head, *numbers, failed, batches[0].serialize()]


def unpack_answer(body: bytes, schema: pa.Schema, windows: int) -> tuple[int, Outcomes]:
    """Decode and validate the answer for a group among `windows` windows; raises `Garbled` if it is invalid."""
    try:
        first, count, size = struct.unpack_from("<QQQ", body)
        if count == 0 or first + count > windows:
            raise Garbled
        counts, nanoseconds = np.frombuffer(body, "<i8", 2 * count, 24).reshape(2, count)
        at = 24 + 16 * count
        failures = {int(number): Failure.from_json(failure) for number, failure in orjson.loads(body[at : at + size])}
        rows = pa.ipc.read_record_batch(pa.py_buffer(body).slice(at + size), schema)
        rows.validate(full=True)
    except (ValueError, TypeError, KeyError, struct.error, OSError, pa.ArrowException) as error:
        raise Garbled from error
    if (counts < 0).any() or (nanoseconds < 0).any() or counts.sum() != rows.num_rows:
        raise Garbled
    if any(not 0 <= at - first < count or counts[at - first] for at in failures):
        raise Garbled
    return first, Outcomes(pa.Table.from_batches([rows]), counts, failures, nanoseconds)


def unpack_failure(letter: bytes, body: bytes) -> Failure:
    """Decode the failure in a frame `!`; raises `Garbled` for any other frame."""
    try:
        if letter == b"!":
            return Failure.from_json(orjson.loads(body))
    except (ValueError, TypeError):
        pass
    raise Garbled
