"""Compiled loops of `hayase.lifetimes.answers`, compiled on import (see `hayase.core.machine_code`)."""

from __future__ import annotations

from typing import Any

from hayase.core import loop_types as types
from hayase.core.machine_code import compiled
from hayase.core.times import END

__all__ = ["equal_before", "previous", "succeed"]

_i64, _f64, _flag = types.int64, types.float64, types.boolean


def _readonly(kind: Any) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


@compiled(
    types.UniTuple(_i64, 2),
    *(_readonly(_i64), _readonly(_flag), _readonly(_i64), _i64[::1], _i64[::1], _i64[::1], _i64[::1]),
    _nrt=False,
)
def previous(lanes: Any, there: Any, rows: Any, newest: Any, before: Any, later: Any, first: Any) -> Any:
    """Write the previous answer of each answer's track into `before`, -1 for the first.

    `later` gets the answers to compare with the previous one, `first` those to compare with the open row of the track
    (`rows`). Returns the number of both. `newest` is -1 for all tracks before and after.
    """
    later_count = first_count = 0
    for at in range(len(lanes)):
        track = lanes[at]
        last = before[at] = newest[track]
        newest[track] = at
        if there[at]:
            if last < 0 and rows[track] >= 0:
                first[first_count] = at
                first_count += 1
            elif last >= 0 and there[last]:
                later[later_count] = at
                later_count += 1
    for at in range(len(lanes)):
        newest[lanes[at]] = -1
    return later_count, first_count


@compiled(_i64, _readonly(_i64), _readonly(_f64), _flag, _readonly(_i64), _i64[::1], _nrt=False)
def equal_before(whole: Any, real: Any, is_real: Any, before: Any, answers: Any) -> Any:
    """Keep the answers whose value equals the previous one, where NaN equals NaN; return how many.

    `whole` and `real` are two views of the values.
    """
    kept = 0
    for position in range(len(answers)):
        at = answers[position]
        last = before[at]
        same = whole[at] == whole[last]
        if is_real:
            same = real[at] == real[last] or (real[at] != real[at] and real[last] != real[last])
        answers[kept] = at
        kept += same
    return kept


@compiled(
    types.UniTuple(_i64, 2),
    *(_readonly(_i64), _readonly(_i64), _readonly(_flag), _readonly(_flag), _i64[::1], _i64[::1], _i64),
    *(_i64[::1], _i64[::1], _i64[:, ::1]),
    _nrt=False,
)
def succeed(
    lanes: Any, time: Any, there: Any, same: Any, rows: Any, newest: Any, first: Any, made: Any, end: Any, closed: Any
) -> Any:
    """Let each answer that differs from the previous one of its track end that one's row and, if `there`, begin its own.

    `rows` are the ids of the open rows by track, -1 for none; new rows are numbered from `first` on. `made` gets the answers
    that begin a row, `end` the ends of these rows, and `closed` the track, id and end of rows of earlier steps. Returns the
    number of rows begun and closed. `newest` is -1 for all tracks before and after.
    """
    making = closing = 0
    for at in range(len(lanes)):
        if same[at]:
            continue
        track = lanes[at]
        own = newest[track]
        if own >= 0:
            end[own] = time[at]
            newest[track] = -1
        elif rows[track] >= 0:
            closed[0, closing], closed[1, closing], closed[2, closing] = track, rows[track], time[at]
            rows[track] = -1
            closing += 1
        if there[at]:
            newest[track] = making
            made[making], end[making] = at, END
            making += 1
    for own in range(making):
        if end[own] == END:
            track = lanes[made[own]]
            rows[track] = first + own
            newest[track] = -1
    return making, closing
