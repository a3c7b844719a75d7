"""Keys: the canonical encoding of key columns, its hash, the bucket of a hash, and an exact index of keys.

Two rows have the same bytes if and only if their keys are equal in SQL, where NULL equals NULL, -0.0 equals 0.0 and all NaNs
are equal. Signed integers of all widths are encoded alike, and so are both float types. The encoding of a row is that of its
columns one after the other, little-endian and in whole 8-byte words:

- boolean, integer, date, timestamp: the value as int64; float: as float64; decimal: its 16 bytes; NULL: zeros;
- string, binary: four bytes of length, the bytes, zeros up to a whole word; NULL: the length -1;
- struct, list: like a binary, whose bytes encode the values inside (`hayase.core.nested_keys`);
- then, only if a column of fixed width is NULL, one word in which bit i is set if column i is NULL.

The hash is XXH64 of these bytes with seed 0. Encoding and hash decide where state is on disk, so they never change.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError

__all__ = [
    "EncodedKeys",
    "KeyIndex",
    "buckets",
    "check_atomic_key",
    "check_key_type",
    "check_order_type",
    "deal",
    "decode",
    "encode",
    "fixed_column",
    "hashes",
    "is_atomic",
    "is_key_type",
    "is_text",
    "raw_values",
    "split",
    "text_column",
    "validity",
]

_MOST_COLUMNS = 64
_MOST_SLOTS = 2**32 - 2
_GOLDEN = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio: the upper halves of its multiples are spread evenly."""
_NO_FLAGS = np.empty(0, np.bool_)


@dataclass(frozen=True, slots=True)
class EncodedKeys:
    """The encoding of n rows: row i is `data[offsets[i]:offsets[i + 1]]`, always a multiple of eight bytes.

    `single` is set if every row is known to be one word.
    """

    offsets: np.ndarray
    data: np.ndarray
    single: bool = False

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def words(self) -> np.ndarray:
        """The same bytes as 8-byte words."""
        return self.data.view(np.uint64)


def check_key_type(kind: pa.DataType) -> None:
    """Refuse a type whose values have no canonical bytes.

    >>> check_key_type(pa.map_(pa.string(), pa.int64()))
    Traceback (most recent call last):
    hayase.core.errors.DeclarationError: a map<string, int64> cannot be a key; use its atomic parts as key columns
    """
    if pa.types.is_list(kind):
        check_key_type(kind.value_type)
    elif pa.types.is_struct(kind) and 0 < kind.num_fields <= _MOST_COLUMNS:
        for at in range(kind.num_fields):
            check_key_type(kind.field(at).type)
    elif not is_atomic(kind):
        raise DeclarationError(f"a {kind} cannot be a key", "use its atomic parts as key columns")


def check_atomic_key(kind: pa.DataType) -> None:
    """Refuse a type for keys that are compared outside of queries: ids of records, keys of jobs and operations."""
    if not is_atomic(kind):
        raise DeclarationError(f"a {kind} cannot be a key here", "use its atomic parts as key columns")


def check_order_type(kind: pa.DataType) -> None:
    """Refuse a type by whose values rows cannot be ordered.

    >>> check_order_type(pa.list_(pa.int64()))
    Traceback (most recent call last):
    hayase.core.errors.DeclarationError: rows cannot be ordered by a list<item: int64>; use its atomic parts
    """
    if not is_atomic(kind):
        raise DeclarationError(f"rows cannot be ordered by a {kind}", "use its atomic parts")


def is_atomic(kind: pa.DataType) -> bool:
    """Return whether values of a type have no parts: booleans, numbers, texts, binaries and times."""
    return is_text(kind) or _is_whole(kind) or bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_key_type(kind: pa.DataType) -> bool:
    """Return whether values of a type can be keys."""
    try:
        check_key_type(kind)
    except DeclarationError:
        return False
    return True


def encode(columns: Sequence[pa.Array], rows: int | None = None) -> EncodedKeys:
    """Return the canonical encoding of key columns; without columns all `rows` have the empty key.

    >>> encode([pa.array([7, None]), pa.array(["ab", ""])]).offsets.tolist()
    [0, 16, 40]
    """
    from hayase.core import key_loops

    if len(columns) > _MOST_COLUMNS:
        raise DeclarationError(f"{len(columns)} key columns are too many", f"use at most {_MOST_COLUMNS}")
    count = len(columns[0]) if columns else (rows or 0)
    parts = [_part(column) for column in columns]
    if len(parts) == 1 and isinstance(parts[0], _Fixed) and not len(parts[0].valid):
        width = parts[0].width * 8
        offsets = np.arange(0, count * width + 1, width, dtype=np.int64)
        return EncodedKeys(offsets, parts[0].words.view(np.uint8), single=width == 8)

    sizes = np.full(count, sum(part.width for part in parts if isinstance(part, _Fixed)), np.int64)
    nulls = np.zeros(count, np.uint64)
    for at, part in enumerate(parts):
        if isinstance(part, _Text):
            key_loops.text_words(part.starts, part.valid, sizes)
        elif len(part.valid):
            nulls |= np.left_shift((~part.valid).astype(np.uint64), np.uint64(at))
    some_null = bool(nulls.any())
    if some_null:
        sizes += nulls != 0
    ends = np.zeros(count + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    words, cursor = np.zeros(ends[-1], np.uint64), ends[:-1].copy()
    for part in parts:
        if isinstance(part, _Text):
            key_loops.place_text(words.view(np.uint8), cursor, part.starts, part.data, part.valid)
        else:
            key_loops.place_fixed(words, cursor, part.words, part.width, part.valid)
    if some_null:
        key_loops.place_nulls(words, cursor, nulls)
    return EncodedKeys(ends << 3, words.view(np.uint8))


def decode(encoded: EncodedKeys, kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """Return the key columns of an encoding: the inverse of `encode`, up to equality in SQL.

    >>> decode(encode([pa.array([7, None]), pa.array(["ab", ""])]), [pa.int64(), pa.string()])[1].to_pylist()
    ['ab', '']
    """
    from hayase.core import key_loops, nested_keys

    cursor, count = encoded.offsets[:-1] >> 3, len(encoded)
    parts: list[tuple[np.ndarray, np.ndarray | None]] = []
    for kind in kinds:
        if is_text(kind) or pa.types.is_nested(kind):
            ends = np.zeros(count + 1, np.int64)
            there = np.empty(count, np.bool_)
            key_loops.text_ends(encoded.data, cursor, ends, there)
            data = np.empty(ends[-1], np.uint8)
            key_loops.take_text(encoded.data, cursor, ends, there, data)
            parts.append((data, ends))
            parts.append((there, None))
        else:
            words = np.empty((count, 2 if pa.types.is_decimal(kind) else 1), np.int64)
            key_loops.take_fixed(encoded.words, cursor, words)
            parts.append((words, None))
    nulls = np.zeros(count, np.uint64)
    key_loops.take_nulls(encoded.offsets, encoded.words, cursor, nulls)
    columns, left = [], iter(parts)
    for at, kind in enumerate(kinds):
        words, ends_or_none = next(left)
        if ends_or_none is not None and pa.types.is_nested(kind):
            columns.append(nested_keys.from_texts(kind, words, ends_or_none, next(left)[0]))
        elif ends_or_none is not None:
            columns.append(text_column(kind, words, ends_or_none, next(left)[0]))
        else:
            columns.append(fixed_column(kind, words, (nulls >> np.uint64(at)) & np.uint64(1) == 0))
    return columns


def fixed_column(kind: pa.DataType, words: np.ndarray, there: np.ndarray) -> pa.Array:
    """Return a column of fixed width from canonical words, int64[n, words per row]; NULL where `there` is false."""
    validity = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    if pa.types.is_decimal(kind):
        wide = pa.decimal128(38, kind.scale)
        pairs = pa.Array.from_buffers(wide, len(there), [validity, pa.py_buffer(np.ascontiguousarray(words))])
        return pairs if kind == wide else pairs.cast(kind)
    line = np.ascontiguousarray(words[:, 0])
    if pa.types.is_boolean(kind):
        line = np.packbits(line != 0, bitorder="little")
    elif pa.types.is_floating(kind):
        line = line.view(np.float64).astype(kind.to_pandas_dtype(), copy=False)
    elif kind.bit_width < 64:
        line = line.astype(f"i{kind.bit_width // 8}")
    return pa.Array.from_buffers(kind, len(there), [validity, pa.py_buffer(line)])


def text_column(kind: pa.DataType, data: np.ndarray, ends: np.ndarray, there: np.ndarray) -> pa.Array:
    """Return a column of strings or binaries: row i is `data[ends[i]:ends[i + 1]]`, NULL where `there` is false."""
    validity = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    large = ends[-1] >= 2**31
    buffers = [validity, pa.py_buffer(ends if large else ends.astype(np.int32)), pa.py_buffer(data)]
    if kind in (pa.string(), pa.binary()) and not large:
        return pa.Array.from_buffers(kind, len(there), buffers)
    return pa.Array.from_buffers(pa.large_binary() if large else pa.binary(), len(there), buffers).cast(kind)


def hashes(encoded: EncodedKeys) -> np.ndarray:
    """Return XXH64 with seed 0 of every row."""
    from hayase.core import key_loops

    result = np.empty(len(encoded), np.uint64)
    key_loops.hash_rows(encoded.offsets, encoded.words, result)
    return result


def buckets(columns: Sequence[pa.Array], count: int) -> np.ndarray:
    """Return the bucket of every row, int32 below `count`; it depends on the key only."""
    from hayase.core import key_loops

    hashed = hashes(encode(columns))
    result = np.empty(len(hashed), np.int32)
    key_loops.to_buckets(hashed, count, result)
    return result


def split(batch: pa.RecordBatch, key_columns: Sequence[str], count: int) -> list[tuple[int, pa.RecordBatch]]:
    """Return the non-empty buckets with their rows in input order; without key columns all rows are in bucket 0.

    >>> [(bucket, part.num_rows) for bucket, part in split(pa.record_batch({"a": [1, 2, 1, 2]}), ["a"], 1)]
    [(0, 4)]
    """
    if batch.num_rows == 0:
        return []
    if count == 1 or not key_columns:
        return [(0, batch)]
    return _split(batch, buckets([batch.column(name) for name in key_columns], count), count)


def deal(batch: pa.RecordBatch, start: int, count: int) -> list[tuple[int, pa.RecordBatch]]:
    """Return the non-empty buckets with their rows in input order; rows go to the buckets in turn, from bucket `start` on.

    No bucket gets two rows more than another. Every round begins with another bucket, which looks random, so that rows that
    recur at regular intervals do not share a bucket either.

    >>> [(bucket, part.num_rows) for bucket, part in deal(pa.record_batch({"a": [1, 2, 3, 4, 5]}), 7, 4)]
    [(0, 2), (1, 1), (2, 1), (3, 1)]
    """
    if batch.num_rows == 0:
        return []
    if count == 1:
        return [(0, batch)]
    places = np.arange(batch.num_rows, dtype=np.uint64)
    turns = places // np.uint64(count) * np.uint64(_GOLDEN) >> np.uint64(32)
    return _split(batch, ((places + turns + np.uint64(start)) % np.uint64(count)).astype(np.int32), count)


def _split(batch: pa.RecordBatch, chosen: np.ndarray, count: int) -> list[tuple[int, pa.RecordBatch]]:
    from hayase.core import key_loops

    rows, ends = np.empty(len(chosen), np.int64), np.zeros(count, np.int64)
    key_loops.order_by_bucket(chosen, ends, rows)
    starts = np.concatenate(([0], ends[:-1]))
    filled = np.flatnonzero(ends > starts)
    if len(filled) == 1:
        return [(int(filled[0]), batch)]
    ordered = batch.take(pa.array(rows))
    return [(int(bucket), ordered.slice(starts[bucket], ends[bucket] - starts[bucket])) for bucket in filled]


def raw_values(column: pa.Array, kind: type, per_row: int = 1) -> np.ndarray:
    """Return the raw values of a column of fixed width, `per_row` of them per row; values of nulls are undefined."""
    return _viewed(column, kind, column.offset * per_row, len(column) * per_row)


def validity(column: pa.Array) -> np.ndarray:
    """Return the validity of each value as bytes; empty if there are no nulls."""
    return column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else _NO_FLAGS


class KeyIndex:
    """An exact map from keys to slots 0, 1, 2, ... in the order of first occurrence.

    Open addressing over (upper half of the hash, slot). The bytes of keys are in one arena and are compared in full, so
    colliding hashes never merge keys. A key costs its bytes and about 60 more, or 40 in all if all keys are single words,
    which are in the arena by slot. The slot of a dropped key is reused.
    """

    __slots__ = ("_arena", "_free", "_garbage", "_meta", "_places", "_single", "_table", "_tags")

    def __init__(self) -> None:
        self._table = np.zeros(1024, np.uint64)
        self._tags = np.empty(1024, np.uint32)
        self._free = np.empty(1024, np.int64)
        self._arena = np.empty(1024, np.uint64)
        self._places = np.empty((0, 2), np.int64)  # begin and end of keys in the arena, unless they are single words
        self._meta = np.zeros(3, np.int64)  # see `key_loops.TOP`
        self._garbage = 0  # unused words of the arena
        self._single = True

    def __len__(self) -> int:
        """Return the number of keys."""
        return int(self._meta[0] - self._meta[1])

    @property
    def capacity(self) -> int:
        """The upper bound of all slots."""
        return int(self._meta[0])

    @property
    def nbytes(self) -> int:
        """The bytes allocated; the part that is not used yet is not backed by memory."""
        return sum(array.nbytes for array in (self._table, self._tags, self._free, self._arena, self._places))

    def slots(self, encoded: EncodedKeys, hashed: np.ndarray, insert: bool = True) -> np.ndarray:
        """Return the slot of every row's key, int64.

        A new key gets the slot that was dropped last or else the next one; -1 if `insert` is false.
        """
        from hayase.core import key_loops

        result = np.empty(len(encoded), np.int64)
        if self._single and not encoded.single and len(encoded):
            self._spread()
        done = 0
        while True:
            done = key_loops.find(
                self._single, self._table, self._tags, self._places, self._arena, self._free, self._meta,
                encoded.offsets, encoded.words, hashed, done, insert, result,
            )  # fmt: skip
            if done == len(encoded):
                return result
            self._make_room(int(encoded.offsets[done + 1] - encoded.offsets[done]) >> 3)

    def drop(self, slots: np.ndarray) -> None:
        """Drop the keys of distinct slots, which are reused."""
        from hayase.core import key_loops

        key_loops.drop(self._table, self._tags, self._free, self._meta, slots)
        if not self._single:
            self._garbage += int((self._places[slots, 1] - self._places[slots, 0]).sum())
            self._places[slots] = 0

    def keep(self, slots: np.ndarray) -> None:
        """Drop all keys except those of some distinct slots, which become the slots 0, 1, 2, ... in this order.

        Most of the memory is kept for new keys.
        """
        from hayase.core import key_loops

        numbers = np.full(self.capacity, -1, np.int64)
        numbers[slots] = np.arange(len(slots))
        room = max(1024, len(slots), self.capacity // 2)
        kept = self.encoded(slots)
        self._arena = _grown(kept.words, len(kept.words), max(len(kept.words), len(self._arena) // 2, room))
        if not self._single:
            self._places = np.empty((room, 2), np.int64)
            self._places[: len(slots)] = np.stack((kept.offsets[:-1] >> 3, kept.offsets[1:] >> 3), axis=1)
        self._tags, self._free = _grown(self._tags[slots], len(slots), room), np.empty(room, np.int64)
        self._meta[:] = len(slots), 0, len(kept.words)
        self._garbage = 0
        entries, self._table = self._table, np.zeros(1 << (8 * room // 3).bit_length(), np.uint64)
        key_loops.fill_table(entries, numbers, self._table)

    def encoded(self, slots: np.ndarray) -> EncodedKeys:
        """Return the keys of some slots."""
        from hayase.core import key_loops

        if self._single:
            return EncodedKeys(np.arange(0, 8 * len(slots) + 1, 8), self._arena[slots].view(np.uint8), single=True)
        offsets = np.zeros(len(slots) + 1, np.int64)
        np.cumsum(self._places[slots, 1] - self._places[slots, 0], out=offsets[1:])
        words = np.empty(offsets[-1], np.uint64)
        key_loops.copy_keys(self._places, self._arena, np.ascontiguousarray(slots), offsets, words)
        return EncodedKeys(offsets << 3, words.view(np.uint8))

    def _spread(self) -> None:
        """Switch to a layout in which keys need not be single words."""
        top = self.capacity
        self._places = np.empty((len(self._tags), 2), np.int64)
        self._places[:top, 0], self._places[:top, 1] = np.arange(top), np.arange(1, top + 1)
        free = self._free[: self._meta[1]]
        self._places[free] = 0
        self._meta[2], self._garbage = top, len(free)
        self._single = False

    def _make_room(self, words: int) -> None:
        """Double whatever is full, for at least one more key of `words` words."""
        from hayase.core import key_loops

        top, freed, used = self._meta.tolist()
        if top >= _MOST_SLOTS:
            raise MemoryError(f"{top} keys in one bucket; use more buckets")
        if not freed and top == len(self._tags):
            self._tags, self._free = _grown(self._tags, top, 2 * top), np.empty(2 * top, np.int64)
            if self._single:
                self._arena = _grown(self._arena, top, 2 * top)
            else:
                self._places = _grown(self._places, top, 2 * top)
        if top - freed >= (len(self._table) * 3) >> 3:
            entries, self._table = self._table, np.zeros(2 * len(self._table), np.uint64)
            key_loops.fill_table(entries, np.empty(0, np.int64), self._table)
        if not self._single and used + words > len(self._arena):
            if 2 * self._garbage > used:
                self._rewrite()
            used = int(self._meta[2])
            if used + words > len(self._arena):
                self._arena = _grown(self._arena, used, max(2 * len(self._arena), used + words))

    def _rewrite(self) -> None:
        """Remove unused words from the arena."""
        kept = self.encoded(np.arange(self.capacity))  # a dropped slot has no words
        self._places[: self.capacity] = np.stack((kept.offsets[:-1] >> 3, kept.offsets[1:] >> 3), axis=1)
        self._arena[: len(kept.words)] = kept.words
        self._meta[2], self._garbage = len(kept.words), 0


def _grown(array: np.ndarray, used: int, size: int) -> np.ndarray:
    larger = np.empty((size, *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A column of `width` words per row; `valid` is empty if there are no nulls."""

    words: np.ndarray
    width: int
    valid: np.ndarray


@dataclass(frozen=True, slots=True)
class _Text:
    """A column of byte strings; `valid` is empty if there are no nulls."""

    starts: np.ndarray
    data: np.ndarray
    valid: np.ndarray


def _part(column: pa.Array) -> _Fixed | _Text:
    """Return a column as the loops take it: canonical words, or bytes with their starts."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    check_key_type(column.type)
    kind, valid = column.type, validity(column)
    if pa.types.is_nested(kind):
        from hayase.core import nested_keys

        return _Text(*nested_keys.to_texts(column), valid)
    if is_text(kind):
        column = column.cast(pa.binary())
        starts = _viewed(column, np.int32, column.offset, len(column) + 1).astype(np.int64)
        data = column.buffers()[2]
        return _Text(starts, np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8), valid)
    if pa.types.is_decimal(kind):
        column = column.cast(pa.decimal128(38, kind.scale))
        return _Fixed(raw_values(column, np.uint64, 2), 2, valid)
    if pa.types.is_floating(kind):
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
            numbers = raw_values(column.cast(pa.float64()), np.float64) + 0.0  # -0.0 becomes 0.0
        numbers[np.isnan(numbers)] = np.nan
        return _Fixed(numbers.view(np.uint64), 1, valid)
    if kind != pa.uint64():
        column = pc.cast(column.view(pa.int32()) if kind == pa.date32() else column, pa.int64())
    return _Fixed(raw_values(column, np.uint64), 1, valid)


def _viewed(column: pa.Array, kind: type, first: int, count: int) -> np.ndarray:
    source = column.buffers()[1]
    if source is None or not len(column):
        return np.zeros(count, kind)
    return np.require(np.frombuffer(source, kind, count, first * np.dtype(kind).itemsize), requirements="A")


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is a string or binary type."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        or pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )  # fmt: skip


def _is_whole(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_boolean(kind) or pa.types.is_integer(kind) or kind == pa.date32() or pa.types.is_timestamp(kind)
        or kind == pa.time64("us") or pa.types.is_duration(kind)
    )  # fmt: skip
