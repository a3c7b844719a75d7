"""Compiled loops of `hayase.lifetimes.scalars`, compiled on import (see `hayase.core.machine_code`).

Ids of the first child are multiplied by `by`; those of the second by `factor`, plus `number`. At equal times the first child
comes first.
"""

from __future__ import annotations

from typing import Any

from hayase.core import loop_types as types
from hayase.core.machine_code import compiled

__all__ = ["merge_ends", "merge_starts"]

_i64, _i32 = types.int64, types.int32
_line = _i64[::1]
_readonly = types.Array(_i64, 1, "C", readonly=True)


@compiled(types.void, *(_readonly,) * 3, _i64, *(_readonly,) * 3, _i64, _i64, *(_line,) * 3, _i32[::1], _nrt=False)
def merge_starts(
    first: Any, first_end: Any, first_id: Any, by: int,
    second: Any, second_end: Any, second_id: Any, factor: int, number: int,
    start: Any, end: Any, id: Any, order: Any,
) -> None:  # fmt: skip
    """Merge tuples by start; `order` gets their positions, those of the second child after those of the first."""
    i = j = 0
    for at in range(len(order)):
        if j == len(second) or (i < len(first) and first[i] <= second[j]):
            start[at] = first[i]
            end[at] = first_end[i]
            id[at] = first_id[i] * by
            order[at] = i
            i += 1
        else:
            start[at] = second[j]
            end[at] = second_end[j]
            id[at] = second_id[j] * factor + number
            order[at] = len(first) + j
            j += 1


@compiled(types.void, *(_readonly,) * 2, _i64, *(_readonly,) * 2, _i64, _i64, *(_line,) * 2, _nrt=False)
def merge_ends(
    first: Any, first_id: Any, by: int, second: Any, second_id: Any, factor: int, number: int, end: Any, id: Any
) -> None:
    """Merge the ends of earlier tuples."""
    i = j = 0
    for at in range(len(end)):
        if j == len(second) or (i < len(first) and first[i] <= second[j]):
            end[at] = first[i]
            id[at] = first_id[i] * by
            i += 1
        else:
            end[at] = second[j]
            id[at] = second_id[j] * factor + number
            j += 1
