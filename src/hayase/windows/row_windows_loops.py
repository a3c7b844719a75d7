"""Compiled loops of `hayase.windows.row_windows`, compiled on import (see `hayase.core.machine_code`)."""

from __future__ import annotations

from typing import Any

from hayase.core import loop_types as types
from hayase.core.machine_code import compiled

__all__ = ["due", "group", "number", "put"]

_i64, _none = types.int64, types.void


def _readonly(kind: Any) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


@compiled(_none, _readonly(_i64), _i64[::1], _i64[::1], _nrt=False)
def number(keys: Any, counts: Any, numbers: Any) -> None:
    """Number rows within their keys, from 0 on, and count them."""
    for row in range(len(keys)):
        numbers[row] = counts[keys[row]]
        counts[keys[row]] += 1


@compiled(_i64, _readonly(_i64), _i64[::1], _i64[::1], _i64[::1], _i64[::1], _nrt=False)
def group(keys: Any, ends: Any, places: Any, grouped: Any, distinct: Any) -> Any:
    """Group rows by key, in input order within each: the place of each row, the keys by place, and each key once.

    Returns the number of keys. `ends` is 0 for all keys before and after.
    """
    count = 0
    for row in range(len(keys)):
        key = keys[row]
        if ends[key] == 0:
            distinct[count] = key
            count += 1
        ends[key] += 1
    start = 0
    for at in range(count):
        key = distinct[at]
        stop = start + ends[key]
        ends[key] = start
        for place in range(start, stop):
            grouped[place] = key
        start = stop
    for row in range(len(keys)):
        key = keys[row]
        places[row] = ends[key]
        ends[key] += 1
    for at in range(count):
        ends[distinct[at]] = 0
    return count


@compiled(_none, _readonly(_i64), _readonly(_i64), _i64[::1], _nrt=False)
def put(values: Any, places: Any, placed: Any) -> None:
    """Write each value to its place."""
    for row in range(len(values)):
        placed[places[row]] = values[row]


@compiled(_i64, _readonly(_i64), _readonly(_i64), _readonly(_i64), _i64, _i64[::1], _i64[::1], _nrt=False)
def due(keys: Any, numbers: Any, time: Any, slide: Any, newest: Any, rows: Any) -> Any:
    """Write the rows at which a window moves, only the last of several of a key at one instant; return their number.

    `newest` is -1 for all keys before and after.
    """
    count = 0
    for row in range(len(keys)):
        if (numbers[row] + 1) % slide == 0:
            before = newest[keys[row]]
            if before >= 0 and time[rows[before]] == time[row]:
                rows[before] = -1 - rows[before]
            newest[keys[row]] = count
            rows[count] = row
            count += 1
    kept = 0
    for at in range(count):
        row = rows[at]
        if row >= 0:
            newest[keys[row]] = -1
            rows[kept] = row
            kept += 1
    return kept
