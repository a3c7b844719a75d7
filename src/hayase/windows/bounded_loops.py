"""Compiled loops of `hayase.windows.bounded_panes` and `hayase.windows.session_folds`, compiled on import.

The arrays of panes are those of `panes_loops`. A line of `sessions` is a key (see below).
"""

from __future__ import annotations

from typing import Any

from hayase.core import loop_types as types
from hayase.core.machine_code import compiled
from hayase.windows.panes_loops import (
    CAUSE,
    CAUSED,
    FIRST,
    KEY,
    LAST,
    LATEST,
    NEXT,
    OLDEST,
    PANE,
    TIME,
    TURNED,
)  # fmt: skip

__all__ = ["group_sessions", "turn_every"]

IS_OPEN, BEGAN, LATE, ORIGIN, GROUP, COUNT = range(6)
"""Fields of a key: whether its session is open; the times of its first and last tuple; the first tuple; its group in this step,
-1 if there is none; its number of tuples."""
OF_KEY, START, END_OF, CAUSED_BY, GOES_ON, IS_OVER = range(6)
"""Fields of a group, the tuples of a session in one step: its key; the times of the session's first and last tuple; its first
tuple; whether it continues a session of earlier steps; whether the session has ended."""

_i64, _none = types.int64, types.void


def _readonly(kind: Any) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


@compiled(
    types.UniTuple(_i64, 2),
    *(
        _i64[:, ::1],
        _readonly(_i64),
        _readonly(_i64),
        _readonly(_i64),
        _i64,
        _i64,
        _i64[::1],
        _i64[:, ::1],
        _i64[:, ::1],
    ),
)
def group_sessions(
    sessions: Any, keys: Any, times: Any, causes: Any, gap: Any, clock: Any, group: Any, groups: Any, ended: Any
) -> Any:
    """Group tuples in time order by key and session; the lines of `groups` are the fields above. Sessions that a tuple or the
    clock ends are closed.

    The lines of `ended` are key, start, last time and cause of sessions of earlier steps that end without another tuple of
    their own, but before one of their key. Returns the numbers of groups and of these.
    """
    count = ending = 0
    for row in range(len(keys)):
        key, time = keys[row], times[row]
        at = sessions[key, GROUP]
        if sessions[key, IS_OPEN] and time - sessions[key, LATE] >= gap:
            if at < 0:
                ended[0, ending], ended[1, ending] = key, sessions[key, BEGAN]
                ended[2, ending], ended[3, ending] = sessions[key, LATE], sessions[key, ORIGIN]
                ending += 1
            else:
                groups[END_OF, at], groups[IS_OVER, at] = sessions[key, LATE], 1
            sessions[key, IS_OPEN] = 0
            at = -1
        if at < 0:
            at = count
            count += 1
            groups[OF_KEY, at], groups[GOES_ON, at], groups[IS_OVER, at] = key, sessions[key, IS_OPEN], 0
            if not sessions[key, IS_OPEN]:
                sessions[key, IS_OPEN], sessions[key, BEGAN], sessions[key, ORIGIN] = 1, time, causes[row]
                sessions[key, COUNT] = 0
            sessions[key, GROUP] = at
            groups[START, at], groups[CAUSED_BY, at] = sessions[key, BEGAN], sessions[key, ORIGIN]
        sessions[key, LATE] = time
        sessions[key, COUNT] += 1
        group[row] = at
    for at in range(count):
        key = groups[OF_KEY, at]
        if not groups[IS_OVER, at]:
            groups[END_OF, at] = sessions[key, LATE]
            if sessions[key, LATE] + gap < clock:
                groups[IS_OVER, at] = 1
                sessions[key, IS_OPEN] = 0
        sessions[key, GROUP] = -1
    return count, ending


@compiled(
    types.UniTuple(_i64, 5),
    *(_i64[:, ::1], _i64, _i64, _i64, _i64, _i64, _i64, _i64, _i64, _i64, _i64, _i64),
    *(_i64[:, ::1], _i64[::1], _i64[::1], _i64, _i64[:, ::1]),
)
def turn_every(
    entries: Any, base: Any, entered: Any, entering: Any, left: Any, now: Any, until: Any, width: Any, length: Any,
    slide: Any, block: Any, stop: Any, reach: Any, places: Any, filled: Any, count_filled: Any, turns: Any,
) -> Any:  # fmt: skip
    """Write a turn at every multiple of the slide up to `until` for every key whose window is not empty then.

    `now` is the last multiple of earlier calls. With a `block`, windows start at its multiples and grow by the slide. `filled`
    are the keys whose window is not empty, `places` where they are in it (-1: not). Returns the number of turns, the new
    `entered`, `left` and `now`, and the number of filled keys; it stops before `turns` would overflow (`stop`), and must be
    called again unless `now` plus the slide is beyond `until` or nothing is filled and nothing enters.
    """
    count = 0
    while True:
        if count_filled > 0:
            following = now + slide
        elif entered < entering:
            following = -(-(entries[PANE, entered] * width) // slide) * slide
        else:
            break
        if following > until or count + count_filled + (entering - entered) > stop:
            break
        now = following
        while entered < entering and -(-(entries[PANE, entered] * width) // slide) * slide <= now:
            key = entries[KEY, entered]
            reach[LAST, key] = base + entered
            if reach[FIRST, key] < 0:
                reach[FIRST, key] = base + entered
                places[key] = count_filled
                filled[count_filled] = key
                count_filled += 1
            entered += 1
        while left < entered:
            if block > 0:
                leaves = -(-(entries[PANE, left] * width) // block) * block + slide
            else:
                leaves = -(-(entries[PANE, left] * width + length) // slide) * slide
            if leaves > now:
                break
            key = entries[KEY, left]
            if reach[LAST, key] == base + left:
                reach[FIRST, key] = -1
                count_filled -= 1
                other = filled[count_filled]
                filled[places[key]] = other
                places[other] = places[key]
                places[key] = -1
            else:
                reach[FIRST, key] = entries[NEXT, left]
            left += 1
        for at in range(count_filled):
            key = filled[at]
            turns[TIME, count], turns[TURNED, count] = now, key
            turns[OLDEST, count], turns[LATEST, count] = reach[FIRST, key], reach[LAST, key]
            turns[CAUSED, count] = entries[CAUSE, reach[LAST, key] - base]
            count += 1
    return count, entered, left, now, count_filled
