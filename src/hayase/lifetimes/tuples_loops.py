"""The compiled loops of `hayase.lifetimes.tuples`; compiled on import, like `hayase.core.key_loops`.

The map of ids is open addressing over lines of (id, slot + 1); a slot of zero is free. Four ids that follow each other
lie in one cache line, so that ids that come in order are cheap; beyond that they are spread by a multiplication.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from hayase.core.key_loops import compiled, prefetch

__all__ = ["copy_texts", "enter", "look_up", "take_out"]

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_AHEAD = 16
_i64, _u8, _none = types.int64, types.uint8, types.void


def _given(kind: Any) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


@njit(inline="always")
def _place(id: Any, mask: Any) -> Any:
    group = (np.uint64(id) >> np.uint64(2)) * _SPREAD
    return np.int64((((group >> np.uint64(32)) << np.uint64(2)) | (np.uint64(id) & np.uint64(3))) & np.uint64(mask))


@njit(inline="always")
def _ask_ahead(table: Any, ids: Any, row: Any, mask: Any) -> None:
    prefetch(table, _place(ids[min(row + _AHEAD, len(ids) - 1)], mask))


@compiled(_i64, _i64[:, ::1], _given(_i64), _given(_i64))
def enter(table: Any, ids: Any, slots: Any) -> Any:
    """Put ids in, or give those that are there another slot; returns how many are new. There must be room."""
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


@compiled(_none, _i64[:, ::1], _given(_i64), _i64[::1])
def look_up(table: Any, ids: Any, slots: Any) -> None:
    """The slots of ids, -1 for those that are not there."""
    mask = np.int64(len(table) - 1)
    for row in range(len(ids)):
        _ask_ahead(table, ids, row, mask)
        at = _place(ids[row], mask)
        while table[at, 1] != 0 and table[at, 0] != ids[row]:
            at = (at + 1) & mask
        slots[row] = table[at, 1] - 1


@compiled(_i64, _i64[:, ::1], _given(_i64), _i64[::1])
def take_out(table: Any, ids: Any, slots: Any) -> Any:
    """Remove ids, leaving no gap that would hide others; their slots, -1 for those not there. Returns how many were."""
    mask = np.int64(len(table) - 1)
    found = 0
    for row in range(len(ids)):
        _ask_ahead(table, ids, row, mask)
        at = _place(ids[row], mask)
        while table[at, 1] != 0 and table[at, 0] != ids[row]:
            at = (at + 1) & mask
        slots[row] = table[at, 1] - 1
        if table[at, 1] == 0:
            continue
        found += 1
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
    return found


@compiled(_none, _given(_u8), _given(_i64), _given(_i64), _u8[::1])
def copy_texts(source: Any, starts: Any, stops: Any, target: Any) -> None:
    """Copy texts of `source`, which begin at `starts`, to `target`, where text i ends at `stops[i]`."""
    at = 0
    for row in range(len(starts)):
        shift = starts[row] - at
        prefetch(source, starts[min(row + _AHEAD, len(starts) - 1)])
        while at < stops[row]:
            target[at] = source[at + shift]
            at += 1
