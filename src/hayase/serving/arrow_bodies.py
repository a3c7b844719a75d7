"""Reads Arrow streams in request bodies, with limits that hold before anything is decoded: a few bytes can claim a billion rows.

The headers of all messages are read first. They contain the number of rows, the number of values of every column and, for
compressed buffers, their decompressed sizes. A body over a limit, or with an encoding that is not supported, is a problem
before memory is allocated for it. How often a long value of a dictionary is referenced is known only from the data; it is
measured before the column is expanded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.data_classes import dataclass
from hayase.serving.problems import Problem

__all__ = ["BodyLimits", "read_arrow"]

_HINT = "write one with pyarrow.ipc.new_stream"
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_CONTINUED = 0xFFFFFFFF
_INTERVALS = (pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME, pa.lib.Type_INTERVAL_MONTH_DAY_NANO)
"""No column type of a stream takes them, and pyarrow has no class for the first two."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits of a body: rows, values in all columns together (items of lists count), and decoded bytes."""

    rows: int
    values: int
    bytes: int


def read_arrow(body: bytes, most: BodyLimits) -> pa.Table:
    """Return the table in a body; a problem if it is not an Arrow stream, exceeds a limit, or has an unsupported encoding."""
    try:
        _measure(body, most)
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            for field in reader.schema:
                _check_type(field.type, field.name, top=True)
            table = reader.read_all()
        table.validate(full=True)
    except (struct.error, IndexError, pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise Problem(400, f"the body is not an Arrow stream: {error}; {_HINT}") from None
    total = sum(_expanded_size(column) for column in table.columns)
    if total > most.bytes:
        raise _too_much(f"{total:,} bytes once it is decoded", f"{most.bytes:,} bytes")
    return table


def _too_much(actual: str, limit: str) -> Problem:
    return Problem(413, f"the body holds {actual}, and at most {limit} are taken; send it in parts")


# -- headers ------------------------------------------------------------------------------------------------------------
def _measure(body: bytes, most: BodyLimits) -> None:
    """Add up the sizes that the message headers claim; a problem if they exceed a limit."""
    rows = values = size = 0
    for header, start in _messages(body):
        kind = header.byte(1)
        if kind not in (_DICTIONARY, _BATCH):
            continue
        batch = header.table(2)
        batch = batch.table(1) if kind == _DICTIONARY else batch
        rows += batch.long(0) if kind == _BATCH else 0
        values += sum(length for length, _ in batch.pairs(1))
        compressed = batch.has(3)
        for offset, length in batch.pairs(2):
            size += _decoded_length(body, start + offset, length) if compressed else length
        if rows > most.rows:
            raise _too_much(f"{rows:,} rows or more", f"{most.rows:,} rows")
        if values > most.values:
            raise _too_much(f"{values:,} values or more", f"{most.values:,} values")
        if size > most.bytes:
            raise _too_much(f"{size:,} bytes or more once it is decoded", f"{most.bytes:,} bytes")


def _decoded_length(body: bytes, start: int, length: int) -> int:
    """Return the decompressed size of a buffer, which it begins with; -1 says that it is not compressed."""
    if length < 8:
        return 0
    (claimed,) = struct.unpack_from("<q", body, start)
    if claimed < -1:
        raise ValueError("a buffer of a negative length")
    return length if claimed == -1 else claimed


def _messages(body: bytes) -> Iterator[tuple[_FlatTable, int]]:
    """Yield the header of every message, and the position where its data begin."""
    at = 0
    while at + 4 <= len(body):
        (length,) = struct.unpack_from("<I", body, at)
        at += 4
        if length == _CONTINUED:
            (length,) = struct.unpack_from("<I", body, at)
            at += 4
        if length == 0:
            return
        if at + length > len(body):
            raise ValueError("it is cut off in a header")
        (root,) = struct.unpack_from("<I", body, at)
        header = _FlatTable(body, at + root, at + length)
        at += length
        yield header, at
        data = header.long(3)
        if data < 0 or at + data > len(body):
            raise ValueError("it is cut off in a message")
        at += data


class _FlatTable:
    """A flatbuffers table: its fields by their number in Arrow's schema of messages (Message.fbs)."""

    __slots__ = ("_at", "_body", "_end", "_size", "_vtable")

    def __init__(self, body: bytes, at: int, end: int):
        self._body, self._at, self._end = body, at, end
        (back,) = self._unpack("<i", at)
        self._vtable = at - back
        (self._size,) = self._unpack("<H", self._vtable)

    def _unpack(self, form: str, at: int) -> tuple[int, ...]:
        if not 0 <= at <= self._end - struct.calcsize(form):
            raise ValueError("a header points outside of itself")
        return struct.unpack_from(form, self._body, at)

    def _position(self, number: int) -> int:
        entry = 4 + 2 * number
        if entry + 2 > self._size:
            return 0
        (offset,) = self._unpack("<H", self._vtable + entry)
        return self._at + offset if offset else 0

    def has(self, number: int) -> bool:
        return self._position(number) != 0

    def byte(self, number: int) -> int:
        at = self._position(number)
        return self._unpack("<B", at)[0] if at else 0

    def long(self, number: int) -> int:
        at = self._position(number)
        return self._unpack("<q", at)[0] if at else 0

    def table(self, number: int) -> _FlatTable:
        at = self._position(number)
        if not at:
            raise ValueError("a header without what it should say")
        return _FlatTable(self._body, at + self._unpack("<I", at)[0], self._end)

    def pairs(self, number: int) -> Iterator[tuple[int, int]]:
        """Yield a vector of structs of two longs: the nodes or the buffers of a record batch."""
        at = self._position(number)
        if not at:
            return
        start = at + self._unpack("<I", at)[0]
        (count,) = self._unpack("<I", start)
        if start + 4 + 16 * count > self._end:
            raise ValueError("a header points outside of itself")
        for index in range(count):
            first, second = struct.unpack_from("<qq", self._body, start + 4 + 16 * index)
            if first < 0 or second < 0:
                raise ValueError("a header with a negative length")
            yield first, second


# -- types --------------------------------------------------------------------------------------------------------------
def _check_type(kind: pa.DataType, column: str, top: bool = False) -> None:
    """Refuse unsupported encodings: one that references the same data many times can expand to any size."""
    types = pa.types
    if top and types.is_dictionary(kind) and not types.is_nested(kind.value_type):
        _check_type(kind.value_type, column)
        return
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        _check_type(kind.value_type, column)
        return
    if types.is_map(kind) or types.is_struct(kind):
        for at in range(kind.num_fields):
            _check_type(kind.field(at).type, column)
        return
    if top and (types.is_string_view(kind) or types.is_binary_view(kind)):
        return
    taken = (
        (types.is_primitive(kind) and kind.id not in _INTERVALS) or types.is_null(kind) or types.is_boolean(kind)
        or types.is_decimal(kind) or types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind)
        or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    )  # fmt: skip
    if not taken:
        raise Problem(
            422, f'column "{column}" of the Arrow stream is encoded as {kind}, which is not taken here; write it as plain '
            "values, texts or lists",
        )  # fmt: skip


def _expanded_size(column: pa.ChunkedArray) -> int:
    """Return the bytes of a column once every reference in it is replaced by its value."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return sum(_dictionary_bytes(chunk) for chunk in column.chunks)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return sum(_view_bytes(chunk) for chunk in column.chunks)
    return int(column.nbytes)


def _view_bytes(chunk: pa.Array) -> int:
    """Return the bytes that views reference; a view has 16 bytes and begins with the length of its value."""
    lengths = np.frombuffer(chunk.buffers()[1] or b"", np.int32)[::4]
    return int(lengths[chunk.offset : chunk.offset + len(chunk)].astype(np.int64).clip(0).sum())


def _dictionary_bytes(chunk: pa.DictionaryArray) -> int:
    kind = chunk.dictionary.type
    if pa.types.is_fixed_size_binary(kind):
        return len(chunk) * int(kind.byte_width)
    if not (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    ):
        return len(chunk) * 32
    lengths = pc.binary_length(chunk.dictionary).cast(pa.int64())
    return pc.sum(lengths.take(chunk.indices)).as_py() or 0
