"""Batches of rows as bytes, and back: the bodies of messages and the segments of state."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["from_body", "to_body"]

_END_OF_STREAM = 8
"""The bytes that end an Arrow stream."""


def to_body(rows: pa.RecordBatch) -> pa.Buffer:
    """A batch as the bytes of an Arrow stream, in memory of exactly that size: a sink that grows copies what it has."""
    body = pa.allocate_buffer(rows.schema.serialize().size + pa.ipc.get_record_batch_size(rows) + _END_OF_STREAM)
    with pa.ipc.new_stream(pa.FixedSizeBufferWriter(body), rows.schema) as writer:
        writer.write_batch(rows)
    return body


def from_body(body: pa.Buffer) -> pa.RecordBatch:
    """The batch in the bytes of an Arrow stream, without copying it."""
    return pa.ipc.open_stream(body).read_next_batch()
