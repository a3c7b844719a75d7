"""Compiled loops of session windows, compiled on import (see `hayase.core.machine_code`).

A line of `sessions` is a key: whether its session is open, the times of the session's first and last tuple, and its first and
last member; members are numbers in a linked list, -1 for none.
"""

from __future__ import annotations

from typing import Any

from hayase.core import loop_types as types
from hayase.core.machine_code import compiled

__all__ = ["FIRST", "IS_OPEN", "LAST", "START", "TAIL", "extend", "members"]

IS_OPEN, START, LAST, FIRST, TAIL = range(5)
_i64, _none = types.int64, types.void


def _readonly(kind: Any) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


@compiled(
    _i64,
    *(_i64[:, ::1], _i64[::1], _readonly(_i64), _readonly(_i64), _readonly(_i64), _i64, _i64[:, ::1]),
)
def extend(sessions: Any, following: Any, keys: Any, times: Any, numbers: Any, gap: Any, ended: Any) -> Any:
    """Add tuples in time order to the sessions of their keys; a tuple with the number -1 is no member.

    `ended` gets (key, start, last, first member) of the sessions that a later tuple has ended. Returns how many these are.
    """
    count = 0
    for row in range(len(keys)):
        key, time, number = keys[row], times[row], numbers[row]
        if sessions[key, IS_OPEN] and time - sessions[key, LAST] >= gap:
            ended[count, 0], ended[count, 1] = key, sessions[key, START]
            ended[count, 2], ended[count, 3] = sessions[key, LAST], sessions[key, FIRST]
            count += 1
            sessions[key, IS_OPEN] = 0
        if not sessions[key, IS_OPEN]:
            sessions[key, IS_OPEN], sessions[key, START] = 1, time
            sessions[key, FIRST] = sessions[key, TAIL] = -1
        sessions[key, LAST] = time
        if number >= 0:
            following[number] = -1
            if sessions[key, FIRST] < 0:
                sessions[key, FIRST] = number
            else:
                following[sessions[key, TAIL]] = number
            sessions[key, TAIL] = number
    return count


@compiled(_i64, _readonly(_i64), _readonly(_i64), _i64[:, ::1])
def members(firsts: Any, following: Any, found: Any) -> Any:
    """Write every member of lists, given the first of each, after the position of its list. Returns their number."""
    count = 0
    for row in range(len(firsts)):
        member = firsts[row]
        while member >= 0:
            found[count, 0], found[count, 1] = row, member
            count += 1
            member = following[member]
    return count
