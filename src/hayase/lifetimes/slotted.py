"""Columns by slot: values of tuples, put and taken by slot numbers, in memory that follows the slots in use.

Values of fixed width stand in an array by slot. Texts stand in one arena in the order in which they came; when half of
it is garbage it is rewritten. Anything else is kept as Arrow arrays, rewritten likewise.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa

from hayase.core.keys import flags, values

__all__ = ["SlottedColumn", "grown", "slotted_column"]

_LEAST = 4096
"""Garbage of fewer texts' bytes, or values, is not worth a rewrite."""


class SlottedColumn(Protocol):
    """Values of one type by slot."""

    def put(self, slots: np.ndarray, column: pa.Array, capacity: int) -> None:
        """Set the values of distinct slots, all below `capacity`."""

    def take(self, slots: np.ndarray) -> pa.Array:
        """The values of slots, in any order and as often as they are named."""

    def release(self, slots: np.ndarray) -> None:
        """Forget values."""


def slotted_column(kind: pa.DataType) -> SlottedColumn:
    """A column for values of a type."""
    if pa.types.is_boolean(kind) or pa.types.is_decimal128(kind):
        return _Fixed(kind)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _Texts(kind)
    if pa.types.is_primitive(kind) and kind.bit_width in (8, 16, 32, 64):
        return _Fixed(kind)
    return _Others(kind)


def grown(array: np.ndarray, capacity: int) -> np.ndarray:
    """The array itself, or a larger one that begins with it; what is new is not set."""
    if len(array) >= capacity:
        return array
    larger = np.empty((max(capacity, 2 * len(array)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


def _bitmap(valid: np.ndarray) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


class _Fixed:
    """Values of 1, 2, 4, 8 or 16 bytes; booleans take a byte. Whether they are there is kept from the first null on."""

    __slots__ = ("_cells", "_kind", "_valid")

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._cells: np.ndarray
        if pa.types.is_decimal128(kind):
            self._cells = np.empty((0, 2), np.int64)
        else:
            width = 1 if pa.types.is_boolean(kind) else kind.bit_width // 8
            self._cells = np.empty(0, f"i{width}")
        self._valid: np.ndarray | None = None

    def put(self, slots: np.ndarray, column: pa.Array, capacity: int) -> None:
        self._cells = grown(self._cells, capacity)
        self._cells[slots] = self._raw(column)
        valid = flags(column)
        if self._valid is None and len(valid):
            self._valid = np.ones(len(self._cells), np.bool_)
        if self._valid is not None:
            self._valid = grown(self._valid, capacity)
            self._valid[slots] = valid if len(valid) else True

    def _raw(self, column: pa.Array) -> np.ndarray:
        if pa.types.is_boolean(self._kind):
            return column.fill_null(False).to_numpy(zero_copy_only=False).view(np.int8)
        if self._cells.ndim == 2:
            return values(column, np.int64, 2).reshape(-1, 2)
        return values(column, self._cells.dtype.type)

    def take(self, slots: np.ndarray) -> pa.Array:
        cells = self._cells[slots]
        validity = None if self._valid is None else _bitmap(self._valid[slots])
        if pa.types.is_boolean(self._kind):
            cells = np.packbits(cells, bitorder="little")
        return pa.Array.from_buffers(self._kind, len(slots), [validity, pa.py_buffer(cells)])

    def release(self, slots: np.ndarray) -> None:
        pass


class _Texts:
    """Strings or binaries: where each begins in the arena, and its length, -1 for a null."""

    __slots__ = ("_arena", "_garbage", "_kind", "_lengths", "_starts", "_used")

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._arena = np.empty(0, np.uint8)
        self._used = self._garbage = 0
        self._starts = np.empty(0, np.int64)
        self._lengths = np.empty(0, np.int32)

    def put(self, slots: np.ndarray, column: pa.Array, capacity: int) -> None:
        if not len(slots):
            return
        if len(self._starts) < capacity:
            known = len(self._lengths)
            self._starts, self._lengths = grown(self._starts, capacity), grown(self._lengths, capacity)
            self._lengths[known:] = -1
        _, at, data = column.buffers()
        ends = np.frombuffer(at, np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)
        size = int(ends[-1] - ends[0])
        self._arena = grown(self._arena, self._used + size)
        if size:
            self._arena[self._used : self._used + size] = np.frombuffer(data, np.uint8, size, int(ends[0]))
        lengths, valid = np.diff(ends), flags(column)
        if len(valid):
            self._garbage += int(lengths[~valid].sum())
            lengths[~valid] = -1
        self._starts[slots] = ends[:-1] + (self._used - ends[0])
        self._lengths[slots] = lengths
        self._used += size

    def take(self, slots: np.ndarray) -> pa.Array:
        lengths = self._lengths[slots]
        ends = np.zeros(len(slots) + 1, np.int64)
        np.cumsum(np.maximum(lengths, 0), out=ends[1:])
        data = self._copied(slots, ends[1:])
        buffers = [_bitmap(lengths >= 0), pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)]
        return pa.Array.from_buffers(self._kind, len(slots), buffers)

    def _copied(self, slots: np.ndarray, ends: np.ndarray) -> np.ndarray:
        from hayase.lifetimes import tuples_loops

        data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        if len(data):
            tuples_loops.copy_texts(self._arena, self._starts[slots], ends, data)
        return data

    def release(self, slots: np.ndarray) -> None:
        self._garbage += int(np.maximum(self._lengths[slots], 0).sum())
        self._lengths[slots] = -1
        if 2 * self._garbage > self._used + _LEAST:
            alive = np.flatnonzero(self._lengths > 0)
            ends = np.cumsum(self._lengths[alive], dtype=np.int64)
            self._arena = self._copied(alive, ends)
            self._starts[alive] = ends - self._lengths[alive]
            self._used, self._garbage = len(self._arena), 0


class _Others:
    """Values that only Arrow knows: arrays one behind the other, and for each slot the place of its value in them."""

    __slots__ = ("_chunks", "_garbage", "_kind", "_places", "_used")

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._chunks: list[pa.Array] = []
        self._used = self._garbage = 0
        self._places = np.empty(0, np.int64)

    def put(self, slots: np.ndarray, column: pa.Array, capacity: int) -> None:
        if len(self._places) < capacity:
            known = len(self._places)
            self._places = grown(self._places, capacity)
            self._places[known:] = -1
        self._places[slots] = np.arange(self._used, self._used + len(slots))
        self._used += len(slots)
        self._chunks.append(column)
        while len(self._chunks) > 1 and 2 * len(self._chunks[-1]) > len(self._chunks[-2]):
            self._chunks[-2:] = [pa.concat_arrays(self._chunks[-2:])]

    def take(self, slots: np.ndarray) -> pa.Array:
        taken = pa.chunked_array(self._chunks, self._kind).take(pa.array(self._places[slots]))
        whole = taken.combine_chunks()
        return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)

    def release(self, slots: np.ndarray) -> None:
        self._places[slots] = -1
        self._garbage += len(slots)
        if 2 * self._garbage > self._used + _LEAST:
            alive = np.flatnonzero(self._places >= 0)
            self._chunks = [self.take(alive)] if len(alive) else []
            self._places[alive] = np.arange(len(alive))
            self._used, self._garbage = len(alive), 0
