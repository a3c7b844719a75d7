"""Columns by slot: the values of tuples, written and read by slot number, in memory proportional to the slots in use.

Values of fixed width and short texts are in an array by slot. Longer texts are in one arena, in the order of arrival; it is
rewritten when half of it is garbage. All other types are kept as Arrow arrays and rewritten in the same way.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa

from hayase.core.errors import HayaseError
from hayase.core.keys import raw_values, validity

__all__ = ["SlottedColumn", "Texts", "grown", "slotted_column"]

_LEAST = 4096
"""Less garbage than this (bytes of text, or values) does not cause a rewrite."""
_LARGEST = 2**31 - 1
"""The bytes of text that one Arrow array can hold."""


class SlottedColumn(Protocol):
    """Values of one type by slot."""

    def put(self, slots: np.ndarray, column: pa.Array, capacity: int) -> None:
        """Set the values of distinct slots, all below `capacity`."""

    def take(self, slots: np.ndarray) -> pa.Array:
        """Return the values of slots, in any order and with repetitions."""

    def release(self, slots: np.ndarray) -> None:
        """Free the values of slots."""


def slotted_column(kind: pa.DataType) -> SlottedColumn:
    """Return an empty column for values of a type."""
    if pa.types.is_boolean(kind) or pa.types.is_decimal128(kind):
        return _Fixed(kind)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return Texts(kind)
    if pa.types.is_primitive(kind) and kind.bit_width in (8, 16, 32, 64):
        return _Fixed(kind)
    return _Others(kind)


def grown(array: np.ndarray, capacity: int) -> np.ndarray:
    """Return the array, or a copy enlarged to at least `capacity`, whose new part is not initialised."""
    if len(array) >= capacity:
        return array
    larger = np.empty((max(capacity, 2 * len(array)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


def _bitmap(valid: np.ndarray) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


class _Fixed:
    """Values of 1, 2, 4, 8 or 16 bytes; booleans take a byte. Validity is kept from the first null on."""

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
        valid = validity(column)
        if self._valid is None and len(valid):
            self._valid = np.ones(len(self._cells), np.bool_)
        if self._valid is not None:
            self._valid = grown(self._valid, capacity)
            self._valid[slots] = valid if len(valid) else True

    def _raw(self, column: pa.Array) -> np.ndarray:
        if pa.types.is_boolean(self._kind):
            return column.fill_null(False).to_numpy(zero_copy_only=False).view(np.int8)
        if self._cells.ndim == 2:
            return raw_values(column, np.int64, 2).reshape(-1, 2)
        return raw_values(column, self._cells.dtype.type)

    def take(self, slots: np.ndarray) -> pa.Array:
        cells = self._cells[slots]
        validity = None if self._valid is None else _bitmap(self._valid[slots])
        if pa.types.is_boolean(self._kind):
            cells = np.packbits(cells, bitorder="little")
        return pa.Array.from_buffers(self._kind, len(slots), [validity, pa.py_buffer(cells)])

    def release(self, slots: np.ndarray) -> None:
        pass


class Texts:
    """Strings or binaries: the length of each (-1: null), and its bytes if they are at most eight, else its place in the
    arena."""

    __slots__ = ("_arena", "_cells", "_garbage", "_kind", "_lengths", "_used")

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._arena = np.empty(0, np.uint8)
        self._used = self._garbage = 0
        self._cells = np.empty(0, np.int64)
        self._lengths = np.empty(0, np.int32)

    def put(self, slots: np.ndarray, column: pa.Array, capacity: int) -> None:
        from hayase.lifetimes import tuples_loops

        if not len(slots):
            return
        if len(self._cells) < capacity:
            known = len(self._lengths)
            self._cells, self._lengths = grown(self._cells, capacity), grown(self._lengths, capacity)
            self._lengths[known:] = -1
        _, at, data = column.buffers()
        ends = np.frombuffer(at, np.int32, len(column) + 1, 4 * column.offset)
        size = int(ends[-1]) - int(ends[0])
        letters = np.frombuffer(data, np.uint8, size, int(ends[0])) if size else np.empty(0, np.uint8)
        self._arena = grown(self._arena, self._used + size)
        self._used = tuples_loops.put_texts(
            ends,
            letters,
            validity(column),
            np.ascontiguousarray(slots),
            self._cells,
            self._lengths,
            self._arena,
            self._used,
        )

    def take(self, slots: np.ndarray) -> pa.Array:
        from hayase.lifetimes import tuples_loops

        slots = np.ascontiguousarray(slots)
        ends = np.empty(len(slots) + 1, np.int32)
        size, nulls = tuples_loops.text_ends(self._lengths, slots, ends)
        if size > _LARGEST:
            raise HayaseError(
                f"{len(slots)} texts of a step have {size} bytes, and a column holds at most {_LARGEST}; use smaller batches"
            )
        letters = np.empty(size, np.uint8)
        tuples_loops.take_texts(self._cells, self._lengths, self._arena, slots, ends, letters)
        validity = _bitmap(self._lengths[slots] >= 0) if nulls else None
        return pa.Array.from_buffers(self._kind, len(slots), [validity, pa.py_buffer(ends), pa.py_buffer(letters)])

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The cells, the lengths and the arena, for loops that read values by slot; valid until the next `put` or `release`."""
        return self._cells, self._lengths, self._arena

    def release(self, slots: np.ndarray) -> None:
        from hayase.lifetimes import tuples_loops

        self._garbage += tuples_loops.release_texts(self._lengths, np.ascontiguousarray(slots))
        if 2 * self._garbage > self._used + _LEAST:
            self._arena, old = np.empty(self._used - self._garbage, np.uint8), self._arena
            self._used, self._garbage = tuples_loops.move_texts(self._cells, self._lengths, old, self._arena), 0


class _Others:
    """Values of other Arrow types: arrays one after the other, and for each slot the place of its value in them."""

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
