"""Compiled loops of `hayase.lifetimes.order_keys`, compiled on import (see `hayase.core.machine_code`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from hayase.core import loop_types as types
from hayase.core.machine_code import compiled, njit

__all__ = ["measure_texts", "write_texts", "write_values"]

_i64, _i32, _u8, _flag, _none = types.int64, types.int32, types.uint8, types.boolean, types.void


def _readonly(kind: Any, dimensions: int = 1) -> Any:
    return types.Array(kind, dimensions, "C", readonly=True)


@njit(inline="always")
def _is_null(valid: Any, row: Any) -> Any:
    return len(valid) > 0 and not valid[row]


@compiled(_none, _readonly(_i32), _readonly(_u8), _readonly(_flag), _i64[::1], _nrt=False)
def measure_texts(ends: Any, letters: Any, valid: Any, sizes: Any) -> None:
    """Add the size of each encoded text: a byte for NULL, the text with its zero bytes doubled, and two bytes at the end."""
    for row in range(len(sizes)):
        sizes[row] += 1
        if _is_null(valid, row):
            continue
        sizes[row] += ends[row + 1] - ends[row] + 2
        for at in range(ends[row], ends[row + 1]):
            sizes[row] += letters[at] == 0


@compiled(_none, _readonly(_i32), _readonly(_u8), _readonly(_flag), _flag, _flag, _u8[::1], _i64[::1], _nrt=False)
def write_texts(
    ends: Any, letters: Any, valid: Any, nulls_first: bool, descending: bool, written: Any, places: Any
) -> None:
    """Append encoded texts at the places of their rows, which move on."""
    invert = np.uint8(255 if descending else 0)
    for row in range(len(places)):
        place = places[row]
        null = _is_null(valid, row)
        written[place] = null != nulls_first
        place += 1
        if not null:
            for at in range(ends[row], ends[row + 1]):
                written[place] = letters[at] ^ invert
                place += 1
                if letters[at] == 0:
                    written[place] = np.uint8(255) ^ invert
                    place += 1
            written[place] = invert
            written[place + 1] = invert
            place += 2
        places[row] = place


@compiled(_none, _readonly(_u8, 2), _readonly(_flag), _flag, _flag, _u8[::1], _i64[::1], _nrt=False)
def write_values(values: Any, valid: Any, nulls_first: bool, descending: bool, written: Any, places: Any) -> None:
    """Append values of fixed width at the places of their rows, which move on. All NULLs have the same bytes."""
    invert = np.uint8(255 if descending else 0)
    width = values.shape[1]
    for row in range(len(places)):
        place = places[row]
        null = _is_null(valid, row)
        written[place] = null != nulls_first
        for byte in range(width):
            written[place + 1 + byte] = np.uint8(0) if null else values[row, byte] ^ invert
        places[row] = place + 1 + width
