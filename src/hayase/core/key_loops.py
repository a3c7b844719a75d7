"""Compiled loops of `hayase.core.keys`: encoding, hashing, bucketing and looking up keys.

Importing a module of loops loads their machine code, or compiles it (`hayase.core.machine_code`). Therefore `keys` imports this
module only when rows arrive. A key is a run of 8-byte words. A loop is compiled again only when its own file changes, so
everything that a loop calls is in its file.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hayase.core import loop_types as types
from hayase.core.machine_code import compiled, intrinsic, njit

__all__ = [
    "BLOCK",
    "FREED",
    "TOP",
    "USED",
    "copy_keys",
    "drop",
    "fill_table",
    "find",
    "hash_rows",
    "order_by_bucket",
    "place_fixed",
    "place_nulls",
    "place_text",
    "prefetch",
    "take_fixed",
    "take_nulls",
    "take_text",
    "text_ends",
    "text_words",
    "to_buckets",
]

BLOCK = 128
"""The number of rows looked up together, so that their cache misses overlap."""

TOP, FREED, USED = 0, 1, 2
"""The counters of an index: slots ever used, free slots among them, used words of its arena."""

_TAG = np.uint64(0xFFFFFFFF00000000)
_SLOT = np.uint64(0x00000000FFFFFFFF)
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


def _readonly(kind: Any, dimensions: int = 1) -> Any:
    """Return the type of an array that is only read; arrays over Arrow buffers are read-only."""
    return types.Array(kind, dimensions, "C", readonly=True)


_i64, _u64, _i32, _u32, _u8, _flag = types.int64, types.uint64, types.int32, types.uint32, types.uint8, types.boolean
_none, _pair = types.void, types.UniTuple


@intrinsic
def prefetch(context: Any, array: Any, index: Any) -> Any:
    """Prefetch the cache line of an element, or of its row if the array has two dimensions."""
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types
    from numba.core import cgutils

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        view = context.make_array(kind)(context, builder, arguments[0])
        indices = [arguments[1]] + [ir.Constant(ir.IntType(64), 0)] * (kind.ndim - 1)
        place = cgutils.get_item_pointer(context, builder, kind, view, indices)
        byte, flag = ir.IntType(8), ir.IntType(32)
        call = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte.as_pointer(), flag, flag, flag]),
            "llvm.prefetch.p0",
        )
        hints = [ir.Constant(flag, hint) for hint in (0, 3, 1)]  # to be read; keep it close; data
        builder.call(call, [builder.bitcast(place, byte.as_pointer()), *hints])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@njit(inline="always")
def _rotated(word: Any, left: int) -> Any:
    return (word << np.uint64(left)) | (word >> np.uint64(64 - left))


@njit(inline="always")
def _round(lane: Any, word: Any) -> Any:
    return _rotated(lane + word * _P2, 31) * _P1


@njit(inline="always")
def _merged(hashed: Any, lane: Any) -> Any:
    return (hashed ^ _round(np.uint64(0), lane)) * _P1 + _P4


@compiled(_none, _readonly(_i64), _readonly(_u64), _u64[::1])
def hash_rows(offsets: Any, words: Any, hashes: Any) -> None:
    """Compute XXH64 with seed 0 of every row; `offsets` are in bytes. Rows are whole words, so there are no tail bytes."""
    for row in range(len(offsets) - 1):
        at, stop = offsets[row] >> 3, offsets[row + 1] >> 3
        length = np.uint64((stop - at) << 3)
        if stop - at >= 4:
            one, two, three, four = _P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1
            while stop - at >= 4:
                one = _round(one, words[at])
                two = _round(two, words[at + 1])
                three = _round(three, words[at + 2])
                four = _round(four, words[at + 3])
                at += 4
            value = _rotated(one, 1) + _rotated(two, 7) + _rotated(three, 12) + _rotated(four, 18)
            value = _merged(_merged(_merged(_merged(value, one), two), three), four)
        else:
            value = _P5
        value += length
        while at < stop:
            value = _rotated(value ^ _round(np.uint64(0), words[at]), 27) * _P1 + _P4
            at += 1
        value = (value ^ (value >> np.uint64(33))) * _P2
        value = (value ^ (value >> np.uint64(29))) * _P3
        hashes[row] = value ^ (value >> np.uint64(32))


@compiled(_none, _readonly(_i64), _readonly(_flag), _i64[::1])
def text_words(starts: Any, valid: Any, words: Any) -> None:
    """Add to `words` the size of each text: four bytes of length and its bytes, padded to whole words."""
    for row in range(len(words)):
        length = starts[row + 1] - starts[row] if len(valid) == 0 or valid[row] else 0
        words[row] += (length + 11) >> 3


@compiled(_none, _u64[::1], _i64[::1], _readonly(_u64), _i64, _readonly(_flag))
def place_fixed(words: Any, cursor: Any, values: Any, width: int, valid: Any) -> None:
    """Write `width` words of each row at its cursor, zeros for a null, and advance the cursor."""
    for row in range(len(cursor)):
        at = cursor[row]
        for part in range(width):
            words[at + part] = values[row * width + part] if len(valid) == 0 or valid[row] else np.uint64(0)
        cursor[row] = at + width


@compiled(_none, _u8[::1], _i64[::1], _readonly(_i64), _readonly(_u8), _readonly(_flag))
def place_text(data: Any, cursor: Any, starts: Any, source: Any, valid: Any) -> None:
    """Write length and bytes of each text at its cursor (in words of zeroed `data`) and advance it; a null has length -1."""
    for row in range(len(cursor)):
        at = cursor[row] << 3
        if len(valid) == 0 or valid[row]:
            start = starts[row]
            length = starts[row + 1] - start
            for part in range(4):
                data[at + part] = (length >> (8 * part)) & 255
            for part in range(length):
                data[at + 4 + part] = source[start + part]
            cursor[row] += (length + 11) >> 3
        else:
            for part in range(4):
                data[at + part] = 255
            cursor[row] += 1


@compiled(_none, _u64[::1], _i64[::1], _readonly(_u64))
def place_nulls(words: Any, cursor: Any, nulls: Any) -> None:
    """Append the bits of null columns to the rows that have nulls in columns of fixed width."""
    for row in range(len(cursor)):
        if nulls[row] != 0:
            words[cursor[row]] = nulls[row]


@compiled(_none, _readonly(_u64), _i64[::1], _i64[:, ::1])
def take_fixed(words: Any, cursor: Any, values: Any) -> None:
    """Read the words of a column of fixed width at each row's cursor, and advance the cursor."""
    for row in range(len(cursor)):
        for part in range(values.shape[1]):
            values[row, part] = np.int64(words[cursor[row] + part])
        cursor[row] += values.shape[1]


@compiled(_none, _readonly(_u8), _readonly(_i64), _i64[::1], _flag[::1])
def text_ends(data: Any, cursor: Any, ends: Any, there: Any) -> None:
    """Write where each text, read at its cursor (in words of `data`), ends when they are stored one after the other."""
    for row in range(len(cursor)):
        at = cursor[row] << 3
        length = np.int64(0)
        for part in range(4):
            length |= np.int64(data[at + part]) << (8 * part)
        there[row] = length != 0xFFFFFFFF
        ends[row + 1] = ends[row] + (length if there[row] else 0)


@compiled(_none, _readonly(_u8), _i64[::1], _readonly(_i64), _readonly(_flag), _u8[::1])
def take_text(data: Any, cursor: Any, ends: Any, there: Any, copy: Any) -> None:
    """Copy the text at each cursor to its place in `copy`, and advance the cursor."""
    for row in range(len(cursor)):
        at = (cursor[row] << 3) + 4
        length = ends[row + 1] - ends[row]
        for part in range(length):
            copy[ends[row] + part] = data[at + part]
        cursor[row] += (length + 11) >> 3 if there[row] else 1


@compiled(_none, _readonly(_i64), _readonly(_u64), _readonly(_i64), _u64[::1])
def take_nulls(offsets: Any, words: Any, cursor: Any, nulls: Any) -> None:
    """Read the bits of null columns of the rows that have a word after their columns."""
    for row in range(len(cursor)):
        if cursor[row] < offsets[row + 1] >> 3:
            nulls[row] = words[cursor[row]]


@compiled(_none, _readonly(_i64, 2), _readonly(_u64), _readonly(_i64), _readonly(_i64), _u64[::1])
def copy_keys(places: Any, arena: Any, slots: Any, offsets: Any, words: Any) -> None:
    """Copy the keys of slots to their offsets (in words)."""
    for row in range(len(slots)):
        if row + 32 < len(slots):
            prefetch(places, slots[row + 32])
            prefetch(arena, places[slots[row + 16], 0])
        start = places[slots[row], 0]
        for part in range(offsets[row + 1] - offsets[row]):
            words[offsets[row] + part] = arena[start + part]


@compiled(_none, _readonly(_u64), _i64, _i32[::1])
def to_buckets(hashes: Any, count: int, buckets: Any) -> None:
    """Scale the upper half of each hash to `count`; the lower half stays evenly distributed within a bucket."""
    for row in range(len(hashes)):
        buckets[row] = ((hashes[row] >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32)


@compiled(_none, _readonly(_i32), _i64[::1], _i64[::1])
def order_by_bucket(buckets: Any, ends: Any, rows: Any) -> None:
    """Sort rows by bucket, stably (counting sort); `ends[b]` is the end of bucket b in `rows`."""
    for row in range(len(buckets)):
        ends[buckets[row]] += 1
    total = 0
    for bucket in range(len(ends)):
        total, ends[bucket] = total + ends[bucket], total
    for row in range(len(buckets)):
        rows[ends[buckets[row]]] = row
        ends[buckets[row]] += 1


@njit(inline="always")
def _same(arena: Any, start: Any, stop: Any, words: Any, at: Any, end: Any) -> Any:
    if stop - start != end - at:
        return False
    for part in range(stop - start):  # noqa: SIM110  (Numba knows no generator here)
        if arena[start + part] != words[at + part]:
            return False
    return True


@njit(inline="always")
def _home(entry: Any, mask: Any) -> Any:
    """Return the first place to try for an entry or a hash."""
    return (entry >> np.uint64(32)) & mask


@njit(inline="always")
def _is(single: Any, slot: Any, places: Any, arena: Any, words: Any, offsets: Any, row: Any) -> Any:
    """Return whether a row's key is that of a slot."""
    if single:
        return arena[slot] == words[row]
    return _same(arena, places[slot, 0], places[slot, 1], words, offsets[row] >> 3, offsets[row + 1] >> 3)


@njit(inline="always")
def _most(table: Any) -> Any:
    """Return the greatest number of keys in a table: with more, probe sequences get so long that they cost more than the
    memory of a larger table."""
    return (len(table) * 3) >> 3


@compiled(
    _i64,
    *(_flag, _u64[::1], _u32[::1], _i64[:, ::1], _u64[::1], _i64[::1], _i64[::1]),
    *(_readonly(_i64), _readonly(_u64), _readonly(_u64), _i64, _flag, _i64[::1]),
    _nrt=False,
)
def find(
    single: bool, table: Any, tags: Any, places: Any, arena: Any, free: Any, meta: Any,
    offsets: Any, words: Any, hashes: Any, begin: int, insert: bool, slots: Any,
) -> Any:  # fmt: skip
    """Find the slots of the rows from `begin` on; return the first row that was not processed because there was no room.

    A table entry is the upper half of a hash (the tag) and the slot plus one; zero is free. The entries of a block of rows are
    probed by tag first, so that cache misses overlap; then the key of each candidate is compared. If keys are `single` words,
    the key of a slot is its word of the arena.
    """
    mask = np.uint64(len(table) - 1)
    room = _most(table)
    for block in range(begin, len(hashes), BLOCK):
        stop = min(block + BLOCK, len(hashes))
        for row in range(block, stop):
            prefetch(table, np.int64(_home(hashes[row], mask)))
        for row in range(block, stop):
            place = _home(hashes[row], mask)
            tag = hashes[row] & _TAG
            entry = table[place]
            while entry != 0 and (entry & _TAG) != tag:
                place = (place + np.uint64(1)) & mask
                entry = table[place]
            if entry == 0:
                slots[row] = -1 - np.int64(place)  # no key before this place has the tag
            else:
                slots[row] = np.int64(entry & _SLOT) - 1
                if single:
                    prefetch(arena, slots[row])
                else:
                    prefetch(places, slots[row])
        if not single:
            for row in range(block, stop):
                if slots[row] >= 0:
                    prefetch(arena, places[slots[row], 0])
        for row in range(block, stop):
            slot = slots[row]
            if slot >= 0:
                if _is(single, slot, places, arena, words, offsets, row):
                    continue
                place = _home(hashes[row], mask)
            else:
                place = np.uint64(-1 - slot)
            tag = hashes[row] & _TAG
            slot = -1
            while table[place] != 0:
                if (table[place] & _TAG) == tag:
                    slot = np.int64(table[place] & _SLOT) - 1
                    if _is(single, slot, places, arena, words, offsets, row):
                        break
                    slot = -1
                place = (place + np.uint64(1)) & mask
            if slot < 0 and insert:
                length = 1 if single else (offsets[row + 1] - offsets[row]) >> 3
                if meta[TOP] - meta[FREED] >= room or (meta[FREED] == 0 and meta[TOP] == len(tags)):
                    return row
                if not single and meta[USED] + length > len(arena):
                    return row
                if meta[FREED] > 0:
                    meta[FREED] -= 1
                    slot = free[meta[FREED]]
                else:
                    slot = meta[TOP]
                    meta[TOP] += 1
                table[place] = tag | np.uint64(slot + 1)
                tags[slot] = tag >> np.uint64(32)
                if single:
                    arena[slot] = words[row]
                else:
                    places[slot, 0] = meta[USED]
                    places[slot, 1] = meta[USED] + length
                    for part in range(length):
                        arena[meta[USED] + part] = words[(offsets[row] >> 3) + part]
                    meta[USED] += length
            slots[row] = slot
    return len(hashes)


@compiled(_none, _u64[::1], _readonly(_u32), _i64[::1], _i64[::1], _readonly(_i64), _nrt=False)
def drop(table: Any, tags: Any, free: Any, meta: Any, slots: Any) -> None:
    """Remove the keys of distinct slots from the table; later entries of a probe sequence move up, so that none is lost."""
    mask = np.uint64(len(table) - 1)
    for at in range(len(slots)):
        if at + 32 < len(slots):
            prefetch(tags, slots[at + 32])
            prefetch(table, np.int64(np.uint64(tags[slots[at + 16]]) & mask))
        wanted = (np.uint64(tags[slots[at]]) << np.uint64(32)) | np.uint64(slots[at] + 1)
        place = _home(wanted, mask)
        while table[place] != wanted:
            place = (place + np.uint64(1)) & mask
        hole = place
        place = (place + np.uint64(1)) & mask
        while table[place] != 0:
            if ((place - _home(table[place], mask)) & mask) >= ((place - hole) & mask):
                table[hole] = table[place]
                hole = place
            place = (place + np.uint64(1)) & mask
        table[hole] = 0
        free[meta[FREED]] = slots[at]
        meta[FREED] += 1


@compiled(_none, _readonly(_u64), _readonly(_i64), _u64[::1])
def fill_table(entries: Any, numbers: Any, table: Any) -> None:
    """Copy the entries of another table into an empty one. `numbers` are the new numbers of slots, -1 to leave one out; if it
    is empty, slots keep their numbers."""
    mask = np.uint64(len(table) - 1)
    for entry in entries:
        if entry != 0:
            slot = np.int64(entry & _SLOT) - 1
            if len(numbers) > 0:
                slot = numbers[slot]
            if slot >= 0:
                place = _home(entry, mask)
                while table[place] != 0:
                    place = (place + np.uint64(1)) & mask
                table[place] = (entry & _TAG) | np.uint64(slot + 1)
