"""The compiled loops of the leaves of a plan; compiled on import, like `hayase.core.key_loops`.

Queues of equal keys are lists through arrays: for a key its first and last member, for a member the next one, -1 for
none.
"""

from __future__ import annotations

from typing import Any

from numba import types

from hayase.core.key_loops import compiled, prefetch
from hayase.core.times import END

__all__ = ["count_up", "drop_first", "join_queue", "move_partitions", "put_back", "ranks", "take_away"]

_AHEAD = 16
_i64, _u8, _flag, _none = types.int64, types.uint8, types.boolean, types.void


def _given(kind: Any) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


@compiled(_none, _i64, _i64[::1])
def count_up(first: int, numbers: Any) -> None:
    """The numbers from the first on."""
    for at in range(len(numbers)):
        numbers[at] = first + at


@compiled(_none, _given(_i64), _given(_i64), _i64[::1])
def ranks(all_offsets: Any, offsets: Any, ranks: Any) -> None:
    """The place of each offset among all, of which they are a subsequence."""
    at = 0
    for row in range(len(offsets)):
        while all_offsets[at] != offsets[row]:
            at += 1
        ranks[row] = at


@compiled(
    types.UniTuple(_i64, 5),
    *(_i64[:, ::1], _i64[:, ::1], _i64, _i64, _i64, _i64, _i64, _i64),
    *(_given(_i64), _given(_i64), _given(_i64), _i64[::1]),
    *(_i64[:, ::1], _i64[:, ::1], _i64[::1], _u8[::1]),
)
def move_partitions(
    keys: Any, members: Any, free: int, held: int, row_base: int, place_base: int, count: int, slide: int,
    slots: Any, times: Any, ids: Any, numbers: Any,
    appeared: Any, closed: Any, withdrawn: Any, settled: Any,
) -> Any:  # fmt: skip
    """Let every row of a step join its partition, which moves at multiples of the slide.

    A line of `keys` is a partition: how many tuples came, how many are held, the first and last of them. A line of
    `members` is a tuple: its id (below zero if it only counts), the next, its row and its place in `appeared`, both
    numbered through all steps; `held` of the lines are in use, and `free` begins the list of the others. `numbers` gets
    each row's number within its partition. `appeared` gets (row or -1, id, start, end) of each that appears, `closed`
    (id, end) of those that appeared in earlier steps, `withdrawn` the ids of earlier steps that end before they appear.
    `settled` is set for rows that have appeared or never will. Returns the lengths of the three, `free` and `held`.
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
    *(_i64[:, ::1], _i64[:, ::1], _i64, _i64, _i64, _i64, _given(_i64), _given(_i64), _given(_i64)),
)
def put_back(
    keys: Any, members: Any, free: int, held: int, count: int, slide: int, slots: Any, ids: Any, numbers: Any
) -> Any:  # fmt: skip
    """Let tuples of earlier steps join their partitions, each in the order of numbers, and let go those that have ended
    since; returns `free` and `held`."""
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


@compiled(_i64, _i64[:, ::1], _i64[::1], _given(_i64), _given(_i64))
def join_queue(queues: Any, following: Any, keys: Any, slots: Any) -> Any:
    """Put slots at the ends of their keys' queues; a line of `queues` is the first and the last slot. Returns how many
    queues were empty."""
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


@compiled(_i64, _i64[:, ::1], _i64[::1], _given(_i64))
def drop_first(queues: Any, following: Any, keys: Any) -> Any:
    """Take the first slot off the queue of each key, once for every time that the key is named. Returns how many queues
    are empty now."""
    emptied = 0
    for row in range(len(keys)):
        key = keys[row]
        queues[key, 0] = following[queues[key, 0]]
        if queues[key, 0] < 0:
            emptied += 1
    return emptied


@compiled(_i64, _i64[:, ::1], _i64[::1], _given(_i64), _given(_i64), _i64[::1])
def take_away(queues: Any, following: Any, keys: Any, slots: Any, taken: Any) -> Any:
    """Changes in log order: a row with a slot joins its key's queue, one with -1 takes the first slot off it, which is
    noted in `taken` (-1 if there is none, and -2 for a row that joins). Returns by how many more queues are filled."""
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
