"""The compiled loops of `hayase.windows.row_windows`; compiled on import, like `hayase.core.key_loops`."""

from __future__ import annotations

from typing import Any

from numba import types

from hayase.core.key_loops import compiled

__all__ = ["due", "group", "number", "put"]

_i64, _none = types.int64, types.void


def _given(kind: Any) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


@compiled(_none, _given(_i64), _i64[::1], _i64[::1], _nrt=False)
def number(keys: Any, counts: Any, numbers: Any) -> None:
    """Number rows within their keys, from 0 on, and count them."""
    for row in range(len(keys)):
        numbers[row] = counts[keys[row]]
        counts[keys[row]] += 1


@compiled(_i64, _given(_i64), _i64[::1], _i64[::1], _i64[::1], _i64[::1], _nrt=False)
def group(keys: Any, ends: Any, places: Any, grouped: Any, found: Any) -> Any:
    """Bring the rows of each key together, in their order: the place of each row, the keys by place, and each key once.
    How many there are. `ends` is 0 for all keys, also later."""
    made = 0
    for row in range(len(keys)):
        key = keys[row]
        if ends[key] == 0:
            found[made] = key
            made += 1
        ends[key] += 1
    start = 0
    for at in range(made):
        key = found[at]
        stop = start + ends[key]
        ends[key] = start
        for place in range(start, stop):
            grouped[place] = key
        start = stop
    for row in range(len(keys)):
        key = keys[row]
        places[row] = ends[key]
        ends[key] += 1
    for at in range(made):
        ends[found[at]] = 0
    return made


@compiled(_none, _given(_i64), _given(_i64), _i64[::1], _nrt=False)
def put(values: Any, places: Any, placed: Any) -> None:
    """Each value at its place."""
    for row in range(len(values)):
        placed[places[row]] = values[row]


@compiled(_i64, _given(_i64), _given(_i64), _given(_i64), _i64, _i64[::1], _i64[::1], _nrt=False)
def due(keys: Any, numbers: Any, time: Any, slide: Any, newest: Any, rows: Any) -> Any:
    """The rows with which a window moves; of several of a key at one instant the last. `newest` is -1 for all keys."""
    made = 0
    for row in range(len(keys)):
        if (numbers[row] + 1) % slide == 0:
            before = newest[keys[row]]
            if before >= 0 and time[rows[before]] == time[row]:
                rows[before] = -1 - rows[before]
            newest[keys[row]] = made
            rows[made] = row
            made += 1
    kept = 0
    for at in range(made):
        row = rows[at]
        if row >= 0:
            newest[keys[row]] = -1
            rows[kept] = row
            kept += 1
    return kept
