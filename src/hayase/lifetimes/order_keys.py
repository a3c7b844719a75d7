"""Order keys: the columns by which rows are ordered, encoded so that comparing bytes compares rows.

A column begins with a byte that places NULLs before or after all values. Then follows the value: a number as big-endian bytes
of fixed width, with the sign bit flipped; a text with an end mark, and zero bytes escaped. The bytes of a descending column
are inverted. No key is a proper prefix of another one. -0.0 equals 0.0, and NaN is greater than all other numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.data_classes import dataclass
from hayase.core.keys import is_text, raw_values, validity
from hayase.lifetimes.plans import Order

__all__ = ["OrderKeys", "order_keys", "places_in_order"]

_ALL = np.empty(0, np.bool_)


@dataclass(frozen=True, slots=True)
class OrderKeys:
    """The keys of rows, as binaries, and how many bytes of each belong to the listed columns (the others decide ties)."""

    keys: pa.Array
    listed: np.ndarray


def order_keys(rows: pa.RecordBatch, order: Sequence[Order], listed: int) -> OrderKeys:
    """Return the keys of rows for an order, of which the first `listed` columns are those that the query lists."""
    from hayase.lifetimes import order_keys_loops as loops

    count = rows.num_rows
    columns = [rows.column(entry.column) for entry in order]
    sizes = np.zeros(count, np.int64)
    listed_sizes = sizes
    parts: list[tuple[Order, np.ndarray, np.ndarray | None, np.ndarray]] = []
    for place, (entry, column) in enumerate(zip(order, columns)):
        if place == listed:
            listed_sizes = sizes.copy()
        valid = validity(column)
        if is_text(column.type):
            column = column.cast(pa.binary())
            ends, letters = _text(column)
            loops.measure_texts(ends, letters, valid, sizes)
            parts.append((entry, letters, ends, valid))
        else:
            values = _sortable(column)
            sizes += 1 + values.shape[1]
            parts.append((entry, values, None, valid))
    if listed >= len(order):
        listed_sizes = sizes
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    written, at = np.empty(int(offsets[-1]), np.uint8), offsets[:-1].copy()
    for entry, values, text_ends, valid in parts:
        if text_ends is None:
            loops.write_values(values, valid, entry.nulls_first, entry.descending, written, at)
        else:
            loops.write_texts(text_ends, values, valid, entry.nulls_first, entry.descending, written, at)
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(written)]
    return OrderKeys(pa.Array.from_buffers(pa.binary(), count, buffers), listed_sizes.astype(np.int32))


def places_in_order(rows: pa.RecordBatch, times: np.ndarray, order: Sequence[Order]) -> np.ndarray:
    """Return the places of rows, which are in the order of their times, with the order between those of equal times."""
    places = np.arange(len(times))
    if not (times[1:] == times[:-1]).any():
        return places
    columns = {"time": pa.array(times), "keys": order_keys(rows, order, 0).keys, "place": pa.array(places)}
    by = pc.SortOptions([(name, "ascending") for name in columns])
    return np.asarray(pc.sort_indices(pa.table(columns), options=by), np.int64)


def _text(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the texts of a column and their bytes."""
    _, ends, data = column.buffers()
    places = np.frombuffer(ends, np.int32, len(column) + 1, 4 * column.offset) if ends else np.zeros(1, np.int32)
    return places, np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)


def _sortable(column: pa.Array) -> np.ndarray:
    """Return the bytes of every value of a column of fixed width, such that they compare as the values do."""
    kind = column.type
    if pa.types.is_decimal(kind):
        words = raw_values(column.cast(pa.decimal128(38, kind.scale)), np.uint64, 2).reshape(-1, 2)
        return _big_endian(np.ascontiguousarray(np.stack((words[:, 1] ^ _SIGN, words[:, 0]), axis=1)), len(column))
    if pa.types.is_floating(kind):
        with np.errstate(invalid="ignore"):
            numbers = raw_values(column.cast(pa.float64()), np.float64) + 0.0  # -0.0 becomes 0.0
        numbers[np.isnan(numbers)] = np.nan
        bits = numbers.view(np.uint64)
        return _big_endian(np.where(bits >> np.uint64(63), ~bits, bits | _SIGN), len(column))
    if pa.types.is_boolean(kind):
        return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), np.uint8).reshape(-1, 1)
    if kind == pa.uint64():
        return _big_endian(raw_values(column, np.uint64), len(column))
    whole = pc.cast(column.view(pa.int32()) if kind == pa.date32() else column, pa.int64())
    return _big_endian(raw_values(whole, np.uint64) ^ _SIGN, len(column))


_SIGN = np.uint64(1 << 63)


def _big_endian(words: np.ndarray, count: int) -> np.ndarray:
    return np.ascontiguousarray(words.astype(">u8")).view(np.uint8).reshape(count, -1 if count else 8)
