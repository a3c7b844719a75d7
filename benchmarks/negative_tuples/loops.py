"""Compiled loops of the negative-tuple operators, compiled on import (see `hayase.core.machine_code`).

A group (a value of a set operation, a key of an aggregate) is a row of words. The loops allocate nothing, so that Numba does
not have to count references (`_nrt=False`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hayase.core import loop_types as types
from hayase.core.key_loops import prefetch
from hayase.core.machine_code import compiled, njit

__all__ = ["COUNT", "MEAN", "ROWS", "SUM", "aggregate", "emptied", "insert", "merge", "multiset"]

ROWS, COUNT, SUM, MEAN = 0, 1, 2, 3
"""What a call of an aggregate returns: the number of rows or of values, their sum, their mean."""

_AHEAD = 16
_MIX, _STEP = np.int64(-7046029254386353131), np.int64(-4417276706812531889)
_i64, _f64, _flag = types.int64, types.float64, types.boolean
_line, _grid = _i64[::1], _i64[:, ::1]


def _readonly(kind: Any, dimensions: int = 1) -> Any:
    return types.Array(kind, dimensions, "C", readonly=True)


@compiled(types.void, _readonly(_i64), _readonly(_i64), _line)
def merge(first: Any, second: Any, order: Any) -> None:
    """Write the order that merges two adjacent ascending sequences; of equal elements the first sequence's come first."""
    i = j = 0
    for at in range(len(order)):
        if j == len(second) or (i < len(first) and first[i] <= second[j]):
            order[at] = i
            i += 1
        else:
            order[at] = len(first) + j
            j += 1


@compiled(_i64, _grid, _i64, _i64, _i64, _readonly(_i64), _readonly(_i64), _readonly(_i64))
def insert(lines: Any, count: Any, first: Any, length: Any, end: Any, id: Any, slot: Any) -> Any:
    """Insert (end, id, slot) into lines ordered by (end, id), one after the other, searching from the earliest end on.

    A tuple came `length` before its end, when all tuples that had ended by then were gone: `first` is the first line that
    was not, and its new value is returned.
    """
    for row in range(len(end)):
        while first < count and lines[first, 0] <= end[row] - length:
            first += 1
        at = first
        while at > 0 and (lines[at - 1, 0] > end[row] or (lines[at - 1, 0] == end[row] and lines[at - 1, 1] > id[row])):
            at -= 1
        while at < count and (lines[at, 0] < end[row] or (lines[at, 0] == end[row] and lines[at, 1] < id[row])):
            at += 1
        for behind in range(count, at, -1):
            for part in range(3):
                lines[behind, part] = lines[behind - 1, part]
        lines[at, 0] = end[row]
        lines[at, 1] = id[row]
        lines[at, 2] = slot[row]
        count += 1
    return first


# ---------------------------------------------------------------------------------------------------- groups


@compiled(
    _i64, _readonly(_flag), _readonly(_i64), _grid, _i64, _i64, _i64, _line, _i64,
    _nrt=False,
)  # fmt: skip
def emptied(plus: Any, groups: Any, words: Any, mark: Any, one: Any, other: Any, found: Any, count: Any) -> Any:
    """Append the groups that a minus has emptied to `found`, each once, and return the new number of entries.

    Their words `one` and `other` are 0, and `mark` becomes 0. `found` holds `count` groups already.
    """
    for row in range(len(groups)):
        prefetch(words, groups[min(row + _AHEAD, len(groups) - 1)])
        group = groups[row]
        if not plus[row] and words[group, one] == 0 and words[group, other] == 0 and words[group, mark] != 0:
            words[group, mark] = 0
            found[count] = group
            count += 1
    return count


# ---------------------------------------------------------------------------------------------------- multisets


@njit(inline="always")
def _copies(rule: Any, left: Any, right: Any) -> Any:
    """Return the number of copies of a row in the result; the rules are numbered as in `plans.Rule`."""
    if rule == 0:
        return min(left, 1)
    if rule == 1:
        return 1 if left > 0 and right == 0 else 0
    if rule == 2:
        return max(left - right, 0)
    if rule == 3:
        return 1 if left > 0 and right > 0 else 0
    if rule == 4:
        return min(left, right)
    return left


@compiled(
    _i64,
    *(_i64, _grid, _line),
    *(_readonly(_i64), _readonly(_flag), _readonly(_i64)) * 2,
    *(_line, _flag[::1], _line),
    _nrt=False,
)
def multiset(
    rule: Any, words: Any, serial: Any,
    left_time: Any, left_plus: Any, left_group: Any, right_time: Any, right_plus: Any, right_group: Any,
    events: Any, pluses: Any, tags: Any,
) -> Any:  # fmt: skip
    """Count every signed row of both sides in time order; when the number of copies changes, one appears or ends.

    The words of a group are its counts on the left and right and its serial number. Returns the number of results; the event
    is the position of a row, those of the right after those of the left. The n-th copy of a group always has the same tag.
    """
    count = i = j = 0
    while i < len(left_time) or j < len(right_time):
        if j == len(right_time) or (i < len(left_time) and left_time[i] <= right_time[j]):
            side, event, plus, group = 0, i, left_plus[i], left_group[i]
            prefetch(words, left_group[min(i + _AHEAD, len(left_time) - 1)])
            i += 1
        else:
            side, event, plus, group = 1, len(left_time) + j, right_plus[j], right_group[j]
            prefetch(words, right_group[min(j + _AHEAD, len(right_time) - 1)])
            j += 1
        if words[group, 2] == 0:
            words[group, 2] = serial[0]
            serial[0] += 1
        before = _copies(rule, words[group, 0], words[group, 1])
        words[group, side] += 1 if plus else -1
        after = _copies(rule, words[group, 0], words[group, 1])
        if after != before:
            events[count] = event
            pluses[count] = after > before
            tags[count] = words[group, 2] * _MIX + max(after, before) * _STEP
            count += 1
    return count


# ---------------------------------------------------------------------------------------------------- aggregates


@njit(inline="always")
def _evaluate(program: Any, words: Any, group: Any, values: Any, numbers: Any, there: Any, at: Any) -> None:
    """Write the current values of all calls into one column of the results."""
    for call in range(len(program)):
        kind, argument = program[call, 0], program[call, 1]
        there[call, at] = True
        if kind == ROWS:
            values[call, at] = words[group, 1]
        else:
            count, total = words[group, 2 + 2 * argument], words[group, 3 + 2 * argument]
            if kind == COUNT:
                values[call, at] = count
            elif count == 0:
                there[call, at] = False
                values[call, at] = 0
            elif kind == SUM:
                values[call, at] = total
            else:
                numbers[call, at] = total / count


@compiled(
    types.UniTuple(_i64, 2),
    *(_readonly(_i64, 2), _grid, _line),
    *(_readonly(_flag), _readonly(_i64), _readonly(_i64, 2), _readonly(_flag, 2)),
    *(_line, _flag[::1], _line, _grid, _f64[:, ::1], _flag[:, ::1]),
    _nrt=False,
)
def aggregate(
    program: Any, words: Any, serial: Any,
    plus: Any, groups: Any, arguments: Any, valid: Any,
    events: Any, pluses: Any, tags: Any, values: Any, numbers: Any, there: Any,
) -> Any:  # fmt: skip
    """Add every signed row to its group: the group's old row ends and a new one appears, unless they are equal.

    The words of a group are the tag of its row, its number of tuples, and for each argument the number of values and their
    sum. Returns the number of results and of sums that exceeded 64 bits. `numbers` is the same memory as `values`.
    """
    count = overflows = 0
    for row in range(len(groups)):
        prefetch(words, groups[min(row + _AHEAD, len(groups) - 1)])
        group = groups[row]
        old = count
        if words[group, 1] > 0:
            _evaluate(program, words, group, values, numbers, there, count)
            events[count] = row
            pluses[count] = False
            tags[count] = words[group, 0]
            count += 1
        by = 1 if plus[row] else -1
        words[group, 1] += by
        for argument in range(len(arguments)):
            if valid[argument, row]:
                words[group, 2 + 2 * argument] += by
                total = words[group, 3 + 2 * argument]
                add = by * arguments[argument, row]
                if ((total ^ (total + add)) & (add ^ (total + add))) < 0:
                    overflows += 1
                words[group, 3 + 2 * argument] = total + add
        if words[group, 1] == 0:
            continue
        _evaluate(program, words, group, values, numbers, there, count)
        if count > old:
            same = True
            for call in range(len(program)):
                same &= values[call, old] == values[call, count] and there[call, old] == there[call, count]
            if same:
                count = old
                continue
        events[count] = row
        pluses[count] = True
        tags[count] = serial[0]
        words[group, 0] = serial[0]
        serial[0] += 1
        count += 1
    return count, overflows
