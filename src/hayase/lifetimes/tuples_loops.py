"""Compiled loops of `hayase.lifetimes.tuples` and `slot_columns`, compiled on import (see `hayase.core.machine_code`).

The map of ids uses open addressing over lines of (id, slot + 1); a line with slot 0 is free. Four consecutive ids share a
cache line, so that ids in order are cheap; groups of four are spread by a multiplication.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hayase.core import loop_types as types
from hayase.core.key_loops import prefetch
from hayase.core.machine_code import compiled, intrinsic, njit
from hayase.core.times import END

__all__ = [
    "enter", "in_order", "look_up", "move_texts", "place", "put_texts", "release_texts", "ring_enter", "ring_lowest",
    "ring_take_out", "take_out", "take_texts", "text_ends",
]  # fmt: skip

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_AHEAD = 16
_i64, _i32, _u8, _flag, _none = types.int64, types.int32, types.uint8, types.boolean, types.void


def _readonly(kind: Any) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


@njit(inline="always")
def _place(id: Any, mask: Any) -> Any:
    """Return the first line to try for an id."""
    group = (np.uint64(id) >> np.uint64(2)) * _SPREAD
    return np.int64((((group >> np.uint64(32)) << np.uint64(2)) | (np.uint64(id) & np.uint64(3))) & np.uint64(mask))


@njit(inline="always")
def _ask_ahead(table: Any, ids: Any, row: Any, mask: Any) -> None:
    prefetch(table, _place(ids[min(row + _AHEAD, len(ids) - 1)], mask))


@compiled(_i64, _i64[:, ::1], _readonly(_i64), _readonly(_i64))
def enter(table: Any, ids: Any, slots: Any) -> Any:
    """Add ids, or replace the slots of known ones; return how many are new. The table must have room."""
    mask = np.int64(len(table) - 1)
    new = 0
    for row in range(len(ids)):
        _ask_ahead(table, ids, row, mask)
        at = _place(ids[row], mask)
        while table[at, 1] != 0 and table[at, 0] != ids[row]:
            at = (at + 1) & mask
        if table[at, 1] == 0:
            new += 1
        table[at, 0] = ids[row]
        table[at, 1] = slots[row] + 1
    return new


@compiled(_none, _i64[:, ::1], _readonly(_i64), _i64[::1])
def look_up(table: Any, ids: Any, slots: Any) -> None:
    """Look up the slots of ids; -1 for unknown ids."""
    mask = np.int64(len(table) - 1)
    for row in range(len(ids)):
        _ask_ahead(table, ids, row, mask)
        at = _place(ids[row], mask)
        while table[at, 1] != 0 and table[at, 0] != ids[row]:
            at = (at + 1) & mask
        slots[row] = table[at, 1] - 1


@compiled(_i64, _i64[:, ::1], _readonly(_i64), _i64[::1])
def take_out(table: Any, ids: Any, slots: Any) -> Any:
    """Remove ids, closing gaps that would hide others, and write their slots, -1 for unknown ids; return how many were
    removed."""
    mask = np.int64(len(table) - 1)
    removed = 0
    for row in range(len(ids)):
        _ask_ahead(table, ids, row, mask)
        at = _place(ids[row], mask)
        while table[at, 1] != 0 and table[at, 0] != ids[row]:
            at = (at + 1) & mask
        slots[row] = table[at, 1] - 1
        if table[at, 1] == 0:
            continue
        removed += 1
        hole = at
        while True:
            at = (at + 1) & mask
            if table[at, 1] == 0:
                break
            home = _place(table[at, 0], mask)
            if ((at - home) & mask) >= ((at - hole) & mask):
                table[hole, 0] = table[at, 0]
                table[hole, 1] = table[at, 1]
                hole = at
        table[hole, 1] = 0
    return removed


@compiled(_i64, _i64[::1], _readonly(_i64), _readonly(_i64))
def ring_enter(ring: Any, ids: Any, slots: Any) -> Any:
    """Add ids to a ring that has room for them, or replace the slots of known ones; return how many are new."""
    mask = np.int64(len(ring) - 1)
    new = 0
    for row in range(len(ids)):
        at = ids[row] & mask
        new += ring[at] == 0
        ring[at] = slots[row] + 1
    return new


@compiled(_i64, _readonly(_i64), _i64, _i64, _nrt=False)
def ring_lowest(ring: Any, low: int, high: int) -> int:
    """Return the least id in a ring from `low` on; `high` if there is none below it."""
    mask = np.int64(len(ring) - 1)
    while low < high and ring[low & mask] == 0:
        low += 1
    return low


@compiled(_i64, _i64[::1], _i64, _i64, _readonly(_i64), _i64[::1])
def ring_take_out(ring: Any, low: int, high: int, ids: Any, slots: Any) -> Any:
    """Remove ids from a ring of ids in `[low, high)` and write their slots, -1 for unknown ids; return how many were
    removed."""
    mask = np.int64(len(ring) - 1)
    removed = 0
    for row in range(len(ids)):
        slots[row] = -1
        if low <= ids[row] < high:
            at = ids[row] & mask
            slots[row] = ring[at] - 1
            removed += ring[at] != 0
            ring[at] = 0
    return removed


@compiled(
    types.UniTuple(_i64, 3),
    *(_readonly(_i64), _readonly(_i64), _readonly(_i64), _readonly(_i64), _i64, _flag),
    *(_i64[::1], _i64[::1], _i64[::1], _flag[::1], _i64[:, ::1], _i64[:, ::1], _i64[:, ::1]),
)
def place(
    start: Any, end: Any, id: Any, slots: Any, clock: int, logged: bool,
    all_start: Any, all_end: Any, all_id: Any, all_logged: Any, brief: Any, known: Any, opened: Any,
) -> Any:  # fmt: skip
    """Write tuples to their slots, and separate those that end before the clock, those with a later known end, and open ones.

    `brief` and `known` get lines of (end, id, slot), `opened` lines of (id, slot). Returns the number of each.
    """
    ending = knowing = opening = 0
    for row in range(len(slots)):
        slot = slots[row]
        all_start[slot] = start[row]
        all_end[slot] = end[row]
        all_id[slot] = id[row]
        all_logged[slot] = logged
        if end[row] == END:
            opened[0, opening] = id[row]
            opened[1, opening] = slot
            opening += 1
        elif end[row] < clock:
            brief[0, ending] = end[row]
            brief[1, ending] = id[row]
            brief[2, ending] = slot
            ending += 1
        else:
            known[0, knowing] = end[row]
            known[1, knowing] = id[row]
            known[2, knowing] = slot
            knowing += 1
    return ending, knowing, opening


@compiled(_flag, _readonly(_i64), _readonly(_i64))
def in_order(end: Any, id: Any) -> Any:
    """Return whether pairs of (end, id) are in ascending order."""
    for row in range(1, len(end)):  # noqa: SIM110  (Numba knows no generator here)
        if end[row] <= end[row - 1] and (end[row] < end[row - 1] or id[row] <= id[row - 1]):
            return False
    return True


_SHORT = 8
"""The greatest number of bytes of a text that is stored in its cell."""


@intrinsic
def _copy(context: Any, target: Any, at: Any, source: Any, first: Any, count: Any) -> Any:
    """Copy `count` bytes from `source[first]` on to `target[at]` on, at once: Numba's loops copy one byte at a time."""
    from numba import types
    from numba.core import cgutils

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        places = []
        for array, index in ((0, 1), (2, 3)):
            kind = signature.args[array]
            view = context.make_array(kind)(context, builder, arguments[array])
            places.append(cgutils.get_item_pointer(context, builder, kind, view, [arguments[index]]))
        cgutils.raw_memcpy(builder, places[0], places[1], arguments[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


@compiled(
    _i64, _readonly(_i32), _readonly(_u8), _readonly(_flag), _readonly(_i64), _i64[::1], _i32[::1], _u8[::1], _i64, _nrt=False
)  # fmt: skip
def put_texts(ends: Any, letters: Any, valid: Any, slots: Any, cells: Any, lengths: Any, arena: Any, used: int) -> int:
    """Store adjacent texts in their slots; return how many bytes of the arena are used then."""
    short = cells.view(np.uint8)
    for row in range(len(slots)):
        slot, at = slots[row], ends[row] - ends[0]
        length = ends[row + 1] - ends[row]
        if len(valid) and not valid[row]:
            lengths[slot] = -1
            continue
        lengths[slot] = length
        if length <= _SHORT:
            _copy(short, _SHORT * slot, letters, at, length)
        else:
            cells[slot] = used
            _copy(arena, used, letters, at, length)
            used += length
    return used


@compiled(types.UniTuple(_i64, 2), _readonly(_i32), _readonly(_i64), _i32[::1], _nrt=False)
def text_ends(lengths: Any, slots: Any, ends: Any) -> Any:
    """Write the ends of the texts of slots when they are adjacent; return their total size and the number of nulls."""
    size = nulls = 0
    ends[0] = 0
    for row in range(len(slots)):
        length = lengths[slots[row]]
        nulls += length < 0
        size += max(length, 0)
        ends[row + 1] = size
    return size, nulls


@compiled(
    _none, _readonly(_i64), _readonly(_i32), _readonly(_u8), _readonly(_i64), _readonly(_i32), _u8[::1], _nrt=False
)
def take_texts(cells: Any, lengths: Any, arena: Any, slots: Any, ends: Any, letters: Any) -> None:
    """Copy the texts of slots one after the other."""
    short = cells.view(np.uint8)
    for row in range(len(slots)):
        slot, at = slots[row], ends[row]
        length = lengths[slot]
        if length <= _SHORT:
            if length > 0:
                _copy(letters, at, short, _SHORT * slot, length)
        else:
            _copy(letters, at, arena, cells[slot], length)


@compiled(_i64, _i32[::1], _readonly(_i64), _nrt=False)
def release_texts(lengths: Any, slots: Any) -> int:
    """Free the texts of slots; return how many bytes of the arena become garbage."""
    garbage = 0
    for slot in slots:
        garbage += lengths[slot] if lengths[slot] > _SHORT else 0
        lengths[slot] = -1
    return garbage


@compiled(_i64, _i64[::1], _readonly(_i32), _readonly(_u8), _u8[::1], _nrt=False)
def move_texts(cells: Any, lengths: Any, old: Any, new: Any) -> int:
    """Move all long texts into another arena; return how many bytes of it are used then."""
    used = 0
    for slot in range(len(lengths)):
        if lengths[slot] > _SHORT:
            _copy(new, used, old, cells[slot], lengths[slot])
            cells[slot] = used
            used += lengths[slot]
    return used
