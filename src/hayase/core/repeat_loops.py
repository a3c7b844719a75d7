"""Compiled loop of `hayase.streams.repeats`, compiled on import (see `hayase.core.machine_code`)."""

from __future__ import annotations

from typing import Any

from hayase.core import loop_types as types
from hayase.core.machine_code import compiled

__all__ = ["find_repeats"]

_i64, _flag = types.int64, types.boolean
_line = types.Array(_i64, 1, "C", readonly=True)


@compiled(types.void, _line, _line, _line, _i64[::1], _flag[::1])
def find_repeats(slots: Any, times: Any, bounds: Any, known: Any, repeated: Any) -> None:
    """Take records in their order: `known` has, for the slot of each id, the event time of the first record with it. Set
    `repeated` where that is not before the bound; a record that is not before the bound itself is the first otherwise."""
    for row in range(len(slots)):
        if times[row] >= bounds[row]:
            if known[slots[row]] >= bounds[row]:
                repeated[row] = True
            else:
                known[slots[row]] = times[row]
