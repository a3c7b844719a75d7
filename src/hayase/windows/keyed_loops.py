"""The compiled loops of `hayase.windows.keyed`; compiled on import, like `hayase.core.key_loops`."""

from __future__ import annotations

from typing import Any

from numba import njit, types

from hayase.core.key_loops import compiled, prefetch
from hayase.windows.keyed import NOTED

__all__ = ["gather", "put", "unchanged"]

_AHEAD = 16
_i64 = types.int64


def _given(kind: Any, dimensions: int) -> Any:
    return types.Array(kind, dimensions, "C", readonly=True)


@njit(inline="always")
def _ask_ahead(words: Any, slots: Any, row: int) -> None:
    """Ask for what a later row needs: the line where its slot begins and, as it may reach there, that of the next."""
    slot = max(slots[min(row + _AHEAD, len(slots) - 1)], 0)
    prefetch(words, slot)
    prefetch(words, slot + 1)


@compiled(types.void, _i64[:, ::1], _given(_i64, 1), _given(_i64, 2), _i64)
def put(words: Any, slots: Any, values: Any, version: int) -> None:
    """Take over values written at `version` where nothing newer stands."""
    for row in range(len(slots)):
        _ask_ahead(words, slots, row)
        slot = slots[row]
        if version >= words[slot, 0]:
            words[slot, 0] = version
            for part in range(len(values)):
                words[slot, part + 1] = values[part, row]


@compiled(types.void, _i64[:, ::1], _given(_i64, 1), _i64, _i64[:, ::1])
def gather(words: Any, slots: Any, version: int, values: Any) -> None:
    """Copy the accumulators of some slots and mark them as written at `version`."""
    for row in range(len(slots)):
        _ask_ahead(words, slots, row)
        slot = slots[row]
        words[slot, 0] = version
        for part in range(len(values)):
            values[part, row] = words[slot, part + 1]


@compiled(_i64, _i64[:, ::1], _given(_i64, 1), _i64, _i64[::1])
def unchanged(words: Any, slots: Any, version: int, positions: Any) -> Any:
    """Positions of slots last written at or before `version`; each is noted, so that it comes once."""
    found = 0
    for row in range(len(slots)):
        _ask_ahead(words, slots, row)
        slot = slots[row]
        if slot >= 0 and words[slot, 0] != NOTED and words[slot, 0] <= version:
            words[slot, 0] = NOTED
            positions[found] = row
            found += 1
    return found
