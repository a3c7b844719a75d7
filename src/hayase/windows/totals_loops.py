"""The compiled loop of `hayase.windows.totals`; compiled on import, like `hayase.core.key_loops`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from hayase.core.key_loops import compiled, prefetch
from hayase.windows.keyed import NOTED
from hayase.windows.totals import DECIMAL, FLOAT, INTEGER

__all__ = ["accumulate"]

_LIMIT_HIGH, _LIMIT_LOW = np.int64(10**38 >> 64), np.uint64(10**38 & (2**64 - 1))
_FLOOR_HIGH, _FLOOR_LOW = np.int64(-(10**38) >> 64), np.uint64(-(10**38) & (2**64 - 1))
_AHEAD = 16
_i64, _f64, _flag = types.int64, types.float64, types.boolean


def _given(kind: Any, dimensions: int) -> Any:
    return types.Array(kind, dimensions, "C", readonly=True)


@njit(inline="always")
def _decimal_sum(low: Any, high: Any, add_low: Any, add_high: Any) -> Any:
    """The 128-bit sum, and whether it still has at most 38 digits."""
    new_low = np.uint64(low) + np.uint64(add_low)
    new_high = high + add_high + (1 if new_low < np.uint64(low) else 0)
    fits = ((high ^ new_high) & (add_high ^ new_high)) >= 0
    if new_high > _LIMIT_HIGH or (new_high == _LIMIT_HIGH and new_low >= _LIMIT_LOW):
        fits = False
    if new_high < _FLOOR_HIGH or (new_high == _FLOOR_HIGH and new_low <= _FLOOR_LOW):
        fits = False
    return np.int64(new_low), new_high, fits


@compiled(
    types.UniTuple(_i64, 2),
    *(_i64[:, ::1], _f64[:, ::1], _given(_i64, 1)),
    *(_given(_i64, 2), _given(_i64, 2), _given(_f64, 2), _given(_flag, 2)),
    *(_i64[:, ::1], _f64[:, ::1], _i64[::1], _i64[::1], _i64[::1]),
)
def accumulate(
    words: Any, floats: Any, slots: Any,
    program: Any, integers: Any, numbers: Any, valid: Any,
    totals: Any, float_totals: Any, noted: Any, refused: Any, culprits: Any,
) -> Any:  # fmt: skip
    """Add every row to its slot and write down the totals after it; returns how many rows were noted and refused.

    A line of `program` is an accumulator: kind, first word, its line of arguments or -1, their line in `valid` or -1.
    `floats`, `numbers` and `float_totals` are the same memory as `words`, `integers` and `totals`. `noted` gets the
    first row of every slot, `refused` the rows whose addition would overflow and `culprits` the accumulator that would.
    """
    noting = refusing = 0
    exact = False
    for each in range(len(program)):
        exact |= program[each, 0] == INTEGER or program[each, 0] == DECIMAL
    for row in range(len(slots)):
        ahead = slots[min(row + _AHEAD, len(slots) - 1)]  # its words begin in one cache line and may end in the next
        prefetch(words, ahead)
        prefetch(words, ahead + 1)
        slot = slots[row]
        culprit = -1
        for each in range(len(program) if exact else 0):
            kind, at, argument, flag = program[each, 0], program[each, 1], program[each, 2], program[each, 3]
            if kind == INTEGER and (flag < 0 or valid[flag, row]):
                old, add = words[slot, at + 1], integers[argument, row]
                new = old + add
                if ((old ^ new) & (add ^ new)) < 0:
                    culprit = each
            elif kind == DECIMAL and (flag < 0 or valid[flag, row]):
                low, high, fits = _decimal_sum(
                    words[slot, at + 1], words[slot, at + 2], integers[argument, row], integers[argument + 1, row]
                )
                if not fits:
                    culprit = each
        if culprit >= 0:
            refused[refusing] = row
            culprits[refusing] = culprit
            refusing += 1
            continue
        if words[slot, 0] != NOTED:
            words[slot, 0] = NOTED
            noted[noting] = row
            noting += 1
        for each in range(len(program)):
            kind, at, argument, flag = program[each, 0], program[each, 1], program[each, 2], program[each, 3]
            there = flag < 0 or valid[flag, row]
            if there:
                words[slot, at] += 1
            totals[at - 1, row] = words[slot, at]
            if kind == INTEGER:
                if there:
                    words[slot, at + 1] += integers[argument, row]
                totals[at, row] = words[slot, at + 1]
            elif kind == FLOAT:
                old = floats[slot, at + 1]
                if there:
                    add = numbers[argument, row]
                    new = old + add
                    if np.isfinite(new):
                        if abs(old) >= abs(add):
                            floats[slot, at + 2] += (old - new) + add
                        else:
                            floats[slot, at + 2] += (add - new) + old
                    floats[slot, at + 1] = new
                    old = new
                float_totals[at, row] = old + floats[slot, at + 2] if np.isfinite(old) else old
            elif kind == DECIMAL:
                if there:
                    low, high, fits = _decimal_sum(
                        words[slot, at + 1], words[slot, at + 2], integers[argument, row], integers[argument + 1, row]
                    )
                    words[slot, at + 1] = low
                    words[slot, at + 2] = high
                totals[at, row] = words[slot, at + 1]
                totals[at + 1, row] = words[slot, at + 2]
    return noting, refusing
