"""Compiled loops of `hayase.lifetimes.over_rows`, compiled on import (see `hayase.core.machine_code`).

The live tuples of a partition are in a doubly linked list.
"""

from __future__ import annotations

from typing import Any

from hayase.core import loop_types as types
from hayase.core.machine_code import compiled
from hayase.core.times import END
from hayase.lifetimes.over_rows import CLOSED, COPY, NEXT, NONE, OPENED, PREVIOUS, VALUE

__all__ = ["compare", "count_members", "link", "list_members", "unlink"]

_i64, _none = types.int64, types.void
_line, _grid = _i64[::1], _i64[:, ::1]
_readonly = types.Array(_i64, 1, "C", readonly=True)


@compiled(_none, _grid, _line, _readonly, _readonly, _nrt=False)
def link(words: Any, firsts: Any, groups: Any, slots: Any) -> None:
    """Put tuples into the lists of their partitions."""
    for row in range(len(slots)):
        slot, first = slots[row], firsts[groups[row]]
        words[slot, PREVIOUS], words[slot, NEXT] = NONE, first
        if first != NONE:
            words[first, PREVIOUS] = slot
        firsts[groups[row]] = slot


@compiled(_none, _grid, _line, _readonly, _readonly, _nrt=False)
def unlink(words: Any, firsts: Any, groups: Any, slots: Any) -> None:
    """Take tuples out of the lists of their partitions."""
    for row in range(len(slots)):
        before, after = words[slots[row], PREVIOUS], words[slots[row], NEXT]
        if before != NONE:
            words[before, NEXT] = after
        else:
            firsts[groups[row]] = after
        if after != NONE:
            words[after, PREVIOUS] = before


@compiled(_none, _grid, _line, _line, _line, _readonly, _readonly, _line, _nrt=False)
def count_members(words: Any, firsts: Any, start: Any, end: Any, groups: Any, times: Any, counts: Any) -> None:
    """Count the tuples of a partition that are alive at an instant, for each snapshot."""
    for snapshot in range(len(groups)):
        slot = firsts[groups[snapshot]]
        counts[snapshot] = 0
        while slot != NONE:
            counts[snapshot] += start[slot] <= times[snapshot] < end[slot]
            slot = words[slot, NEXT]


@compiled(_none, _grid, _line, _line, _line, _readonly, _readonly, _line, _line, _nrt=False)
def list_members(
    words: Any, firsts: Any, start: Any, end: Any, groups: Any, times: Any, slots: Any, snapshots: Any
) -> None:
    """Write the slots of the tuples that are alive at each snapshot, and the number of the snapshot."""
    at = 0
    for snapshot in range(len(groups)):
        slot = firsts[groups[snapshot]]
        while slot != NONE:
            if start[slot] <= times[snapshot] < end[slot]:
                slots[at], snapshots[at] = slot, snapshot
                at += 1
            slot = words[slot, NEXT]


@compiled(
    _none, _grid, _readonly, *(_readonly,) * 6, _i64, _line, _grid, _grid, _nrt=False
)  # fmt: skip
def compare(
    words: Any, times: Any, slots: Any, values: Any, member_ends: Any, ended: Any, ended_ends: Any, position: Any,
    earlier: Any, state: Any, opened: Any, closed: Any,
) -> None:  # fmt: skip
    """Go through snapshots and compare the values of every tuple with those that it has: close and open copies.

    Before the tuples of a snapshot come those that end then. `member_ends` and `ended_ends` are where the tuples of a snapshot
    end in `slots` and `ended`. `opened` gets lines of slot, start, end and the place of the values; `closed` lines of the copy
    and its end. Copy numbers below `earlier` are those of earlier steps.
    """
    member = leaving = 0
    for snapshot in range(len(times)):
        now = times[snapshot]
        while leaving < ended_ends[snapshot] or member < member_ends[snapshot]:
            leaves = leaving < ended_ends[snapshot]
            slot = ended[leaving] if leaves else slots[member]
            value = NONE if leaves else values[member]
            copy = words[slot, COPY]
            if copy != NONE and (leaves or words[slot, VALUE] != value):
                if copy < earlier:
                    closed[0, state[CLOSED]] = copy
                    closed[1, state[CLOSED]] = now
                    state[CLOSED] += 1
                else:
                    opened[2, copy - earlier] = now
                copy = words[slot, COPY] = NONE
            if leaves:
                leaving += 1
                continue
            if copy == NONE:
                words[slot, COPY], words[slot, VALUE] = earlier + state[OPENED], value
                opened[0, state[OPENED]] = slot
                opened[1, state[OPENED]] = now
                opened[2, state[OPENED]] = END
                opened[3, state[OPENED]] = position[member]
                state[OPENED] += 1
            member += 1
