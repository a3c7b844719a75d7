"""The compiled loops of `hayase.windows.panes`; compiled on import, like `hayase.core.key_loops`.

Arrays have one line per field (the names below) and a column per entry, chain or key. Entries are numbered for ever; the
entry `base` stands in column 0. -1 is none.
"""

from __future__ import annotations

from typing import Any

from numba import types

from hayase.core.key_loops import compiled

__all__ = ["arrange", "chain_up", "forget", "group", "turn"]

PANE, KEY, IN, PLACE, NEXT, CAUSE = range(6)
"""Of an entry: its pane and key, its chain and the place there, the key's next entry, and what it is ordered by."""
EPOCH, LENGTH, AFTER, GONE = range(4)
"""Of a chain: its epoch, how many entries it has, the key's next chain, and how many entries were forgotten."""
CHAIN, NEWEST, ALIVE = range(3)
"""Of a key: its newest chain and entry, and how many entries are there."""
FIRST, LAST = range(2)
"""Of a key in a window: the oldest entry in it, and the newest that has ever been in it."""
TIME, TURNED, CAUSED, OLDEST, LATEST = range(5)
"""Of a turn: when, of which key, what it is ordered by, and the entries from which to which the window reaches."""

_i64, _flag, _none = types.int64, types.boolean, types.void
_END = 2**62


def _given(kind: Any) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


@compiled(_i64, _given(_i64), _given(_i64), _i64, _flag[::1], _i64[::1], _i64[::1], _i64[:, ::1], _flag[::1])
def group(panes: Any, keys: Any, opened: Any, is_open: Any, newest: Any, group: Any, groups: Any, goes_on: Any) -> Any:
    """The groups of equal pane and key of rows in the order of time; a line of `groups` is pane, key and first row.

    A group goes on if its key is open and the pane is the one that is `opened`. `newest` is -1 for all keys, also later.
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
    """Rows in the order of their groups, in each as they came, and where groups start; whether they had been so."""
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
    *(_given(_i64), _given(_i64), _given(_i64), _i64),
    *(_i64[:, ::1], _i64, _i64, _i64[:, ::1], _i64[:, ::1], _i64[::1], _i64, _i64),
)
def chain_up(
    panes: Any, keys: Any, causes: Any, size: Any, entries: Any, base: Any, held: Any, chains: Any, of_keys: Any,
    free: Any, freed: Any, top: Any,
) -> Any:  # fmt: skip
    """Enter closed panes, in the order of panes, behind the `held` entries; each goes into its key's chain of its epoch.

    There is room for all. New chains are those freed last, then `top` and on; returns what is left of both.
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
    """A window's turns while the entries up to `entering` come into it and those up to `leaving` go: one for each key
    and instant, in the order of time. `marks` is -1 for all keys, also later."""
    made = 0
    while entered < entering or left < leaving:
        enters = leaves = _END
        if entered < entering:
            enters = -(-(entries[PANE, entered] * width) // slide) * slide
        if left < leaving:
            leaves = -(-(entries[PANE, left] * width + length) // slide) * slide
        now, begin = min(enters, leaves), made
        while entered < entering and -(-(entries[PANE, entered] * width) // slide) * slide == now:
            key = entries[KEY, entered]
            reach[LAST, key] = base + entered
            if reach[FIRST, key] < 0:
                reach[FIRST, key] = base + entered
            if marks[key] < begin:
                marks[key] = made
                turns[TURNED, made] = key
                made += 1
            entered += 1
        while left < leaving and -(-(entries[PANE, left] * width + length) // slide) * slide == now:
            key = entries[KEY, left]
            reach[FIRST, key] = -1 if reach[LAST, key] == base + left else entries[NEXT, left]
            if marks[key] < begin:
                marks[key] = made
                turns[TURNED, made] = key
                made += 1
            left += 1
        for at in range(begin, made):
            key = turns[TURNED, at]
            turns[TIME, at] = now
            turns[OLDEST, at], turns[LATEST, at] = reach[FIRST, key], reach[LAST, key]
            turns[CAUSED, at] = entries[CAUSE, reach[LAST, key] - base]
    for at in range(made):
        marks[turns[TURNED, at]] = -1
    return made


@compiled(
    types.UniTuple(_i64, 2),
    *(_i64[:, ::1], _i64, _i64, _i64, _i64[:, ::1], _i64[:, ::1], _i64[::1], _i64[::1]),
)
def forget(entries: Any, base: Any, oldest: Any, stop: Any, chains: Any, of_keys: Any, freed: Any, emptied: Any) -> Any:
    """Let entries go, the oldest; how many chains, and how many keys, have none left, and which."""
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
