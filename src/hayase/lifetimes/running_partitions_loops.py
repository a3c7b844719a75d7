"""Compiled loops of `hayase.lifetimes.running_partitions`, compiled on import (see `hayase.core.machine_code`).

The records of a partition that a frame by time may still contain are in a linked list, oldest first.
"""

from __future__ import annotations

from typing import Any

from hayase.core import loop_types as types
from hayase.core.machine_code import compiled, njit
from hayase.lifetimes.running_partitions import (
    AT,
    COUNT,
    DROPPED,
    FIRST_PEER,
    FREE,
    FREE_SEQUENCES,
    GROUPS,
    HEADS,
    LATEST,
    NEWEST,
    NEXT,
    NONE,
    OLDEST,
    OLDEST_NUMBER,
    PEER,
    SEQUENCE,
)  # fmt: skip

__all__ = ["last_peers", "place", "release_members"]

_i64, _none, _flag = types.int64, types.void, types.boolean
_line, _grid = _i64[::1], _i64[:, ::1]
_readonly = types.Array(_i64, 1, "C", readonly=True)


@njit(_nrt=False)
def _begin(table: Any, state: Any, sequences: Any, dropped: Any, key: Any) -> None:
    """Give a key a new sequence; its old one is dropped."""
    if table[key, SEQUENCE] != NONE:
        dropped[state[DROPPED]] = table[key, SEQUENCE]
        state[DROPPED] += 1
    state[FREE_SEQUENCES] -= 1
    table[key, SEQUENCE] = sequences[state[FREE_SEQUENCES]]


@njit(_nrt=False)
def _forget(table: Any, members: Any, state: Any, key: Any, ranges: Any) -> None:
    """Free the records of a key."""
    slot = table[key, OLDEST]
    while slot != NONE:
        after = members[slot, NEXT]
        members[slot, NEXT] = state[FREE]
        state[FREE] = slot
        slot = after
    table[key, OLDEST] = table[key, NEWEST] = NONE
    for at in range(ranges):
        table[key, HEADS + 2 * at] = NONE


@njit(_nrt=False)
def _enter(table: Any, members: Any, state: Any, key: Any, now: Any, number: Any, ranges: Any) -> Any:
    """Add a record to the list of its key, move the frames, free what is in none; return the first number in a frame."""
    slot = state[FREE]
    state[FREE] = members[slot, NEXT]
    members[slot, AT], members[slot, NEXT] = now, NONE
    if table[key, NEWEST] == NONE:
        table[key, OLDEST], table[key, OLDEST_NUMBER] = slot, number
    else:
        members[table[key, NEWEST], NEXT] = slot
    table[key, NEWEST] = slot
    least = number
    for at in range(len(ranges)):
        head, first = table[key, HEADS + 2 * at], table[key, HEADS + 2 * at + 1]
        if head == NONE:
            head, first = slot, number
        while members[head, AT] < now - ranges[at]:
            head = members[head, NEXT]
            first += 1
        table[key, HEADS + 2 * at], table[key, HEADS + 2 * at + 1] = head, first
        least = min(least, first)
    while table[key, OLDEST_NUMBER] < least:
        oldest = table[key, OLDEST]
        table[key, OLDEST] = members[oldest, NEXT]
        members[oldest, NEXT] = state[FREE]
        state[FREE] = oldest
        table[key, OLDEST_NUMBER] += 1
    return least


@compiled(
    _none, _grid, _grid, _line, _line, _line, _readonly, _readonly, _readonly, _readonly, _flag, _line, _line, _line, _line,
    _grid, _nrt=False,
)  # fmt: skip
def place(
    table: Any, members: Any, state: Any, sequences: Any, dropped: Any, keys: Any, times: Any, given: Any, ranges: Any,
    counted: Any, numbers: Any, firsts: Any, groups: Any, of: Any, lows: Any,
) -> None:  # fmt: skip
    """Add records in order to their partitions.

    For each record: `numbers` gets its number in its sequence `of`, `firsts` that of the first record with its time, `groups`
    the number of different times so far, and `lows` for each of the `ranges` the number of the first record in that frame.
    Unless numbers are `counted` for ever, a record with no other one in any frame begins a new sequence; the old one is
    `dropped`. Restored records have their numbers, `given`; a gap between them begins a new sequence too.
    """
    for row in range(len(keys)):
        key, now = keys[row], times[row]
        number = table[key, COUNT]
        if len(given) and given[row] != number:
            number = given[row]
            _forget(table, members, state, key, len(ranges))
            _begin(table, state, sequences, dropped, key)
        if table[key, SEQUENCE] == NONE:
            _begin(table, state, sequences, dropped, key)
        if len(ranges):
            least = _enter(table, members, state, key, now, number, ranges)
            if not counted and least == number and number > 0 and not len(given):
                number = 0
                table[key, OLDEST_NUMBER] = 0
                for at in range(len(ranges)):
                    table[key, HEADS + 2 * at + 1] = 0
                _begin(table, state, sequences, dropped, key)
            for at in range(len(ranges)):
                lows[at, row] = table[key, HEADS + 2 * at + 1]
        if table[key, LATEST] != now:
            table[key, LATEST] = now
            table[key, GROUPS] += 1
            table[key, FIRST_PEER] = number
        numbers[row], firsts[row], groups[row] = number, table[key, FIRST_PEER], table[key, GROUPS]
        of[row] = table[key, SEQUENCE]
        table[key, COUNT] = number + 1


@compiled(_none, _grid, _readonly, _readonly, _line, _nrt=False)
def last_peers(table: Any, keys: Any, times: Any, rows: Any) -> None:
    """Write for each record the row of the last one with its key and time."""
    for row in range(len(keys) - 1, -1, -1):
        key = keys[row]
        known = table[key, PEER]
        if known == NONE or times[known] != times[row]:
            table[key, PEER] = known = row
        rows[row] = known
    for row in range(len(keys)):
        table[keys[row], PEER] = NONE


@compiled(_none, _grid, _grid, _line, _readonly, _i64, _nrt=False)
def release_members(table: Any, members: Any, state: Any, keys: Any, ranges: Any) -> None:
    """Free the records of some keys."""
    for row in range(len(keys)):
        _forget(table, members, state, keys[row], ranges)
