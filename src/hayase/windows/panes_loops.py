"""Compiled loops of `hayase.windows.panes`, compiled on import (see `hayase.core.machine_code`).

Arrays have one line per field (named below) and one column per entry, chain or key. Numbers of entries are never reused;
entry `base` is in column 0. -1 is none.
"""

from __future__ import annotations

from typing import Any

from hayase.core import loop_types as types
from hayase.core.machine_code import compiled

__all__ = ["arrange", "chain_up", "forget", "group", "turn"]

PANE, KEY, IN, PLACE, NEXT, CAUSE = range(6)
"""Fields of an entry: its pane and key, its chain and place there, the key's next entry, and the tuple that caused it."""
EPOCH, LENGTH, AFTER, GONE = range(4)
"""Fields of a chain: its epoch, its number of entries, the key's next chain, and the number of entries dropped."""
CHAIN, NEWEST, ALIVE = range(3)
"""Fields of a key: its newest chain and entry, and its number of entries."""
FIRST, LAST = range(2)
"""Fields of a key in a window: the oldest entry in it, and the newest that has ever been in it."""
TIME, TURNED, CAUSED, OLDEST, LATEST = range(5)
"""Fields of a turn: its time, its key, the tuple that caused it, and the oldest and newest entry in the window."""

_i64, _flag, _none = types.int64, types.boolean, types.void
_END = 2**62


def _readonly(kind: Any) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


@compiled(_i64, _readonly(_i64), _readonly(_i64), _i64, _flag[::1], _i64[::1], _i64[::1], _i64[:, ::1], _flag[::1])
def group(panes: Any, keys: Any, opened: Any, is_open: Any, newest: Any, group: Any, groups: Any, goes_on: Any) -> Any:
    """Group rows in time order by pane and key; the lines of `groups` are pane, key and first row. Returns their number.

    A group continues an open pane if its key is open and its pane is `opened`. `newest` is -1 for all keys before and after.
    """
    count = 0
    for row in range(len(keys)):
        key = keys[row]
        at = newest[key]
        if at < 0 or groups[0, at] != panes[row]:
            at = count
            count += 1
            newest[key] = at
            groups[0, at], groups[1, at], groups[2, at] = panes[row], key, row
            goes_on[at] = is_open[key] and panes[row] == opened
        group[row] = at
    for at in range(count):
        newest[groups[1, at]] = -1
    return count


@compiled(_flag, _i64[::1], _i64[::1], _i64[::1])
def arrange(group: Any, starts: Any, order: Any) -> Any:
    """Order rows by group, in input order within each, and set the starts of groups; return whether they were ordered."""
    sorted_already = True
    for row in range(len(group)):
        starts[group[row] + 1] += 1
        if row and group[row] < group[row - 1]:
            sorted_already = False
    for at in range(1, len(starts)):
        starts[at] += starts[at - 1]
    if sorted_already:
        return True
    for row in range(len(group)):
        at = group[row]
        order[starts[at]] = row
        starts[at] += 1
    for at in range(len(starts) - 1, 0, -1):
        starts[at] = starts[at - 1]
    starts[0] = 0
    return False


@compiled(
    types.UniTuple(_i64, 2),
    *(_readonly(_i64), _readonly(_i64), _readonly(_i64), _i64),
    *(_i64[:, ::1], _i64, _i64, _i64[:, ::1], _i64[:, ::1], _i64[::1], _i64, _i64),
)
def chain_up(
    panes: Any, keys: Any, causes: Any, size: Any, entries: Any, base: Any, held: Any, chains: Any, of_keys: Any,
    free: Any, freed: Any, top: Any,
) -> Any:  # fmt: skip
    """Append closed panes, ordered by pane, after the `held` entries; each is appended to its key's chain of its epoch.

    There must be room for all. New chains are those freed last, then `top` and on; returns the new `freed` and `top`.
    """
    for row in range(len(keys)):
        key, at, epoch = keys[row], held + row, panes[row] // size
        chain = of_keys[CHAIN, key]
        if chain < 0 or chains[EPOCH, chain] != epoch:
            if freed > 0:
                freed -= 1
                new = free[freed]
            else:
                new = top
                top += 1
            if chain >= 0:
                chains[AFTER, chain] = new
            chains[EPOCH, new], chains[LENGTH, new], chains[AFTER, new], chains[GONE, new] = epoch, 0, -1, 0
            of_keys[CHAIN, key] = new
            chain = new
        before = of_keys[NEWEST, key]
        if before >= 0:
            entries[NEXT, before - base] = base + at
        of_keys[NEWEST, key] = base + at
        of_keys[ALIVE, key] += 1
        entries[PANE, at], entries[KEY, at], entries[CAUSE, at] = panes[row], key, causes[row]
        entries[IN, at], entries[PLACE, at], entries[NEXT, at] = chain, chains[LENGTH, chain], -1
        chains[LENGTH, chain] += 1
    return freed, top


@compiled(
    _i64,
    *(_i64[:, ::1], _i64, _i64, _i64, _i64, _i64, _i64, _i64, _i64, _i64[:, ::1], _i64[::1], _i64[:, ::1]),
)
def turn(
    entries: Any, base: Any, entered: Any, entering: Any, left: Any, leaving: Any, width: Any, length: Any, slide: Any,
    reach: Any, marks: Any, turns: Any,
) -> Any:  # fmt: skip
    """Write the turns of a window while the entries up to `entering` enter it and those up to `leaving` leave it.

    There is one per key and instant, in time order; returns their number. `marks` is -1 for all keys before and after.
    """
    count = 0
    while entered < entering or left < leaving:
        enters = leaves = _END
        if entered < entering:
            enters = -(-(entries[PANE, entered] * width) // slide) * slide
        if left < leaving:
            leaves = -(-(entries[PANE, left] * width + length) // slide) * slide
        now, begin = min(enters, leaves), count
        while entered < entering and -(-(entries[PANE, entered] * width) // slide) * slide == now:
            key = entries[KEY, entered]
            reach[LAST, key] = base + entered
            if reach[FIRST, key] < 0:
                reach[FIRST, key] = base + entered
            if marks[key] < begin:
                marks[key] = count
                turns[TURNED, count] = key
                count += 1
            entered += 1
        while left < leaving and -(-(entries[PANE, left] * width + length) // slide) * slide == now:
            key = entries[KEY, left]
            reach[FIRST, key] = -1 if reach[LAST, key] == base + left else entries[NEXT, left]
            if marks[key] < begin:
                marks[key] = count
                turns[TURNED, count] = key
                count += 1
            left += 1
        for at in range(begin, count):
            key = turns[TURNED, at]
            turns[TIME, at] = now
            turns[OLDEST, at], turns[LATEST, at] = reach[FIRST, key], reach[LAST, key]
            turns[CAUSED, at] = entries[CAUSE, reach[LAST, key] - base]
    for at in range(count):
        marks[turns[TURNED, at]] = -1
    return count


@compiled(
    types.UniTuple(_i64, 2),
    *(_i64[:, ::1], _i64, _i64, _i64, _i64[:, ::1], _i64[:, ::1], _i64[::1], _i64[::1]),
)
def forget(entries: Any, base: Any, oldest: Any, stop: Any, chains: Any, of_keys: Any, freed: Any, emptied: Any) -> Any:
    """Drop the oldest entries; `freed` and `emptied` get the chains and keys that have none left. Returns their numbers."""
    chains_freed = keys_emptied = 0
    for at in range(oldest, stop):
        key, chain = entries[KEY, at], entries[IN, at]
        chains[GONE, chain] += 1
        if chains[GONE, chain] == chains[LENGTH, chain]:
            freed[chains_freed] = chain
            chains_freed += 1
            if of_keys[CHAIN, key] == chain:
                of_keys[CHAIN, key] = -1
        if of_keys[NEWEST, key] == base + at:
            of_keys[NEWEST, key] = -1
        of_keys[ALIVE, key] -= 1
        if of_keys[ALIVE, key] == 0:
            emptied[keys_emptied] = key
            keys_emptied += 1
    return chains_freed, keys_emptied
