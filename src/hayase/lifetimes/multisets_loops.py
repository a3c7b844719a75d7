"""Compiled loops of `hayase.lifetimes.multisets`, compiled on import (see `hayase.core.machine_code`).

A value is a row of four words: its live tuples on the left and on the right, its open copies in the result, and the newest of
these. Each copy refers to the one below it, so that the copies of a value form a stack.
"""

from __future__ import annotations

from typing import Any

from hayase.core import loop_types as types
from hayase.core.key_loops import prefetch
from hayase.core.machine_code import compiled, njit
from hayase.core.times import END
from hayase.lifetimes.multisets import (
    COALESCE,
    DISTINCT,
    EXCEPT,
    EXCEPT_ALL,
    HEAD,
    INTERSECT,
    LEFT,
    NONE,
    OPENED,
    RIGHT,
)

__all__ = ["count", "keep", "push", "sweep", "unlink", "unused_values"]

_AHEAD = 16
_MARK = NONE - 1
_i64 = types.int64
_line, _grid = _i64[::1], _i64[:, ::1]
_readonly = types.Array(_i64, 1, "C", readonly=True)


@njit(inline="always")
def _wanted(rule: Any, left: Any, right: Any) -> Any:
    """Return the number of copies of a row in the result."""
    if rule == COALESCE:
        return left
    if rule == DISTINCT:
        return min(left, 1)
    if rule == EXCEPT:
        return 1 if left > 0 and right == 0 else 0
    if rule == EXCEPT_ALL:
        return max(left - right, 0)
    if rule == INTERSECT:
        return 1 if left > 0 and right > 0 else 0
    return min(left, right)


@njit(inline="always")
def _apply(
    words: Any, side: Any, by: Any, times: Any, values: Any, at: Any, now: Any, touched: Any, causes: Any, touching: Any
) -> Any:
    """Count the events of one side at `now`; return the position of its next event and the number of values touched."""
    while at < len(times) and times[at] == now:
        prefetch(words, values[min(at + _AHEAD, len(values) - 1)])
        words[values[at], side] += by
        touched[touching] = values[at]
        causes[touching] = at if side == LEFT and by > 0 else NONE
        touching += 1
        at += 1
    return at, touching


@compiled(types.UniTuple(_i64, 2), _i64, _grid, _line, *(_readonly,) * 8, *(_line,) * 9)
def sweep(
    rule: Any, words: Any, below: Any,
    left_start: Any, left_value: Any, right_start: Any, right_value: Any,
    left_end: Any, left_ended: Any, right_end: Any, right_ended: Any,
    touched: Any, causes: Any,
    opened: Any, opened_start: Any, opened_end: Any, opened_below: Any, opened_cause: Any, closed: Any, closed_end: Any,
) -> Any:  # fmt: skip
    """Go through the instants of a step; return how many copies were opened, and how many of earlier steps were closed.

    At each instant all ends and starts are counted first; then copies of every value touched are opened or closed, the newest
    first, to reach the number required by the rule. A copy number below `len(below)` is the slot of a copy of an earlier step;
    the others are copies opened now, in order. `opened_cause` is the row of the left input that opened a copy, or -1.
    `touched` and `causes` must have room for all events.
    """
    earlier = len(below)
    a = b = c = d = opening = closing = 0
    while True:
        now = END
        if a < len(left_end):
            now = min(now, left_end[a])
        if b < len(right_end):
            now = min(now, right_end[b])
        if c < len(left_start):
            now = min(now, left_start[c])
        if d < len(right_start):
            now = min(now, right_start[d])
        if now == END:
            return opening, closing
        touching = 0
        a, touching = _apply(words, LEFT, -1, left_end, left_ended, a, now, touched, causes, touching)
        b, touching = _apply(words, RIGHT, -1, right_end, right_ended, b, now, touched, causes, touching)
        c, touching = _apply(words, LEFT, 1, left_start, left_value, c, now, touched, causes, touching)
        d, touching = _apply(words, RIGHT, 1, right_start, right_value, d, now, touched, causes, touching)
        for at in range(touching):
            value = touched[at]
            wanted = _wanted(rule, words[value, LEFT], words[value, RIGHT])
            while words[value, OPENED] > wanted:
                copy = words[value, HEAD]
                if copy < earlier:
                    words[value, HEAD] = below[copy]
                    closed[closing] = copy
                    closed_end[closing] = now
                    closing += 1
                else:
                    words[value, HEAD] = opened_below[copy - earlier]
                    opened_end[copy - earlier] = now
                words[value, OPENED] -= 1
            while words[value, OPENED] < wanted:
                opened[opening] = value
                opened_start[opening] = now
                opened_end[opening] = END
                opened_below[opening] = words[value, HEAD]
                opened_cause[opening] = causes[at]
                words[value, HEAD] = earlier + opening
                words[value, OPENED] += 1
                opening += 1


@compiled(types.void, _grid, _readonly, _i64, _i64)
def count(words: Any, values: Any, side: Any, by: Any) -> None:
    """Add `by` to the count of a side for every value, as often as it occurs."""
    for value in values:
        words[value, side] += by


@compiled(_i64, _grid, _readonly, _line)
def unused_values(words: Any, values: Any, gone: Any) -> Any:
    """Put those of the values that have neither tuples nor copies into `gone`, each once, and mark them; return how many."""
    count_gone = 0
    for row in range(len(values)):
        prefetch(words, values[min(row + _AHEAD, len(values) - 1)])
        value = values[row]
        if words[value, LEFT] == 0 and words[value, RIGHT] == 0 and words[value, HEAD] == NONE:
            words[value, HEAD] = _MARK
            gone[count_gone] = value
            count_gone += 1
    return count_gone


@compiled(types.void, _grid, _line, *(_readonly,) * 3, _i64)
def keep(words: Any, below: Any, opened: Any, opened_below: Any, slots: Any, earlier: Any) -> None:
    """Assign slots to the copies that a sweep opened (-1: closed again). A copy below an open one is open."""
    for at in range(len(opened)):
        if slots[at] >= 0:
            under = opened_below[at]
            below[slots[at]] = under if under < earlier else slots[under - earlier]
            words[opened[at], HEAD] = slots[at]


@compiled(types.void, _grid, _line, _readonly, _readonly)
def push(words: Any, below: Any, values: Any, slots: Any) -> None:
    """Push copies, oldest first, onto the stacks of their values."""
    for at in range(len(slots)):
        value = values[at]
        below[slots[at]] = words[value, HEAD]
        words[value, HEAD] = slots[at]
        words[value, OPENED] += 1


@compiled(types.void, _grid, _line, _readonly, types.Array(types.boolean, 1, "C", readonly=True))
def unlink(words: Any, below: Any, values: Any, gone: Any) -> None:
    """Pop copies that have ended, marked by slot in `gone`, from their stacks; they are always the newest ones known."""
    for value in values:
        while words[value, HEAD] != NONE and gone[words[value, HEAD]]:
            words[value, HEAD] = below[words[value, HEAD]]
            words[value, OPENED] -= 1
