"""Compiled loops of the leaves of a plan, compiled on import (see `hayase.core.machine_code`).

The queues of equal keys are linked lists in arrays: for a key its first and last member, for a member the next one, -1 for
none.
"""

from __future__ import annotations

from typing import Any

from hayase.core import loop_types as types
from hayase.core.key_loops import prefetch
from hayase.core.machine_code import compiled
from hayase.core.times import END

__all__ = ["count_up", "drop_first", "join_queue", "move_partitions", "put_back", "ranks", "take_away"]

_AHEAD = 16
_i64, _u8, _flag, _none = types.int64, types.uint8, types.boolean, types.void


def _readonly(kind: Any) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


@compiled(_none, _i64, _i64[::1])
def count_up(first: int, numbers: Any) -> None:
    """Fill an array with consecutive numbers."""
    for at in range(len(numbers)):
        numbers[at] = first + at


@compiled(_none, _readonly(_i64), _readonly(_i64), _i64[::1])
def ranks(all_offsets: Any, offsets: Any, ranks: Any) -> None:
    """Write the position of each offset among all offsets, of which they are a subsequence."""
    at = 0
    for row in range(len(offsets)):
        while all_offsets[at] != offsets[row]:
            at += 1
        ranks[row] = at


@compiled(
    types.UniTuple(_i64, 5),
    *(_i64[:, ::1], _i64[:, ::1], _i64, _i64, _i64, _i64, _i64, _i64),
    *(_readonly(_i64), _readonly(_i64), _readonly(_i64), _i64[::1]),
    *(_i64[:, ::1], _i64[:, ::1], _i64[::1], _u8[::1]),
)
def move_partitions(
    keys: Any, members: Any, free: int, held: int, row_base: int, place_base: int, count: int, slide: int,
    slots: Any, times: Any, ids: Any, numbers: Any,
    appeared: Any, closed: Any, withdrawn: Any, settled: Any,
) -> Any:  # fmt: skip
    """Add every row of a step to its partition, whose window moves at multiples of the slide.

    A line of `keys` is a partition: the number of tuples that came, the number that are members, the first and last member.
    A line of `members` is a tuple: its id (negative if it is only counted), the next member, its row and its place in
    `appeared`, both numbered across all steps; `held` lines are in use, and `free` is the first of the others. Fills:

    - `numbers`: the number of each row within its partition;
    - `appeared`: (row or -1, id, start, end) of each tuple that appears;
    - `closed`: (id, end) of tuples that appeared in earlier steps;
    - `withdrawn`: ids of tuples of earlier steps that end before they appear;
    - `settled`: 1 for rows that have appeared or never will.

    Returns the lengths of `appeared`, `closed` and `withdrawn`, and the new `free` and `held`.
    """
    appearing = closing = withdrawing = 0
    for row in range(len(slots)):
        prefetch(keys, slots[min(row + _AHEAD, len(slots) - 1)])
        slot, time = slots[row], times[row]
        member = free
        free = members[member, 1]
        members[member, 0] = ids[row]
        members[member, 1] = -1
        members[member, 2] = row_base + row
        members[member, 3] = -1
        if keys[slot, 1] == 0:
            keys[slot, 2] = member
        else:
            members[keys[slot, 3], 1] = member
        keys[slot, 3] = member
        held += 1
        numbers[row] = keys[slot, 0]
        keys[slot, 0] += 1
        keys[slot, 1] += 1
        came = keys[slot, 0]
        if came % slide != 0:
            continue
        while keys[slot, 1] > count:
            number = came - keys[slot, 1]
            member = keys[slot, 2]
            id, place, origin = members[member, 0], members[member, 3] - place_base, members[member, 2] - row_base
            keys[slot, 2] = members[member, 1]
            keys[slot, 1] -= 1
            members[member, 1] = free
            free = member
            held -= 1
            if origin >= 0:
                settled[origin] = 1
            if id < 0:
                continue
            if number >= came - slide:
                if origin < 0:
                    withdrawn[withdrawing] = id
                    withdrawing += 1
            elif place >= 0:
                appeared[place, 3] = time
            else:
                closed[closing, 0] = id
                closed[closing, 1] = time
                closing += 1
        member = keys[slot, 2]
        if slide == 1:
            member = keys[slot, 3]
        else:
            for _ in range(max(keys[slot, 1] - slide, 0)):
                member = members[member, 1]
        while member >= 0:
            origin = members[member, 2] - row_base
            if origin >= 0:
                settled[origin] = 1
            if members[member, 0] >= 0:
                appeared[appearing, 0] = origin if origin >= 0 else -1
                appeared[appearing, 1] = members[member, 0]
                appeared[appearing, 2] = time
                appeared[appearing, 3] = END
                members[member, 3] = place_base + appearing
                appearing += 1
            member = members[member, 1]
    return appearing, closing, withdrawing, free, held


@compiled(
    types.UniTuple(_i64, 2),
    *(_i64[:, ::1], _i64[:, ::1], _i64, _i64, _i64, _i64, _readonly(_i64), _readonly(_i64), _readonly(_i64)),
)
def put_back(
    keys: Any, members: Any, free: int, held: int, count: int, slide: int, slots: Any, ids: Any, numbers: Any
) -> Any:  # fmt: skip
    """Add restored tuples to their partitions, each in the order of numbers, and remove those that have ended since.

    Returns the new `free` and `held`.
    """
    for row in range(len(slots)):
        slot = slots[row]
        if numbers[row] < keys[slot, 0]:
            continue
        member = free
        free = members[member, 1]
        members[member, 0] = ids[row]
        members[member, 1] = -1
        members[member, 2] = -1
        members[member, 3] = -1
        if keys[slot, 1] == 0:
            keys[slot, 2] = member
        else:
            members[keys[slot, 3], 1] = member
        keys[slot, 3] = member
        keys[slot, 0] = numbers[row] + 1
        keys[slot, 1] += 1
        held += 1
        moved = keys[slot, 0] // slide * slide
        while keys[slot, 1] > 0 and keys[slot, 0] - keys[slot, 1] < moved - count:
            member = keys[slot, 2]
            keys[slot, 2] = members[member, 1]
            keys[slot, 1] -= 1
            members[member, 1] = free
            free = member
            held -= 1
    return free, held


@compiled(_i64, _i64[:, ::1], _i64[::1], _readonly(_i64), _readonly(_i64))
def join_queue(queues: Any, following: Any, keys: Any, slots: Any) -> Any:
    """Append slots to the queues of their keys; a line of `queues` is the first and last slot. Returns the number of queues
    that were empty."""
    filled = 0
    for row in range(len(keys)):
        key, slot = keys[row], slots[row]
        following[slot] = -1
        if queues[key, 0] < 0:
            queues[key, 0] = slot
            filled += 1
        else:
            following[queues[key, 1]] = slot
        queues[key, 1] = slot
    return filled


@compiled(_i64, _i64[:, ::1], _i64[::1], _readonly(_i64))
def drop_first(queues: Any, following: Any, keys: Any) -> Any:
    """Remove the first slot from the queue of each key, once per occurrence of the key. Returns the number of queues that
    have become empty."""
    emptied = 0
    for row in range(len(keys)):
        key = keys[row]
        queues[key, 0] = following[queues[key, 0]]
        if queues[key, 0] < 0:
            emptied += 1
    return emptied


@compiled(_i64, _i64[:, ::1], _i64[::1], _readonly(_i64), _readonly(_i64), _i64[::1])
def take_away(queues: Any, following: Any, keys: Any, slots: Any, taken: Any) -> Any:
    """Apply changes in log order: a row with a slot is appended to its key's queue, one with -1 removes the first slot.

    `taken` gets the removed slot (-1 if there is none), or -2 for an appended row. Returns by how many the non-empty queues
    grow.
    """
    filled = 0
    for row in range(len(keys)):
        key, slot = keys[row], slots[row]
        if slot >= 0:
            following[slot] = -1
            if queues[key, 0] < 0:
                queues[key, 0] = slot
                filled += 1
            else:
                following[queues[key, 1]] = slot
            queues[key, 1] = slot
            taken[row] = -2
        else:
            taken[row] = queues[key, 0]
            if queues[key, 0] >= 0:
                queues[key, 0] = following[queues[key, 0]]
                if queues[key, 0] < 0:
                    filled -= 1
    return filled
