"""The compiled loops of `hayase.lifetimes.answers`; compiled on import, like `hayase.core.key_loops`."""

from __future__ import annotations

from typing import Any

from numba import types

from hayase.core.key_loops import compiled
from hayase.core.times import END

__all__ = ["equal_before", "previous", "succeed"]

_i64, _f64, _flag = types.int64, types.float64, types.boolean


def _given(kind: Any) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


@compiled(
    types.UniTuple(_i64, 2),
    *(_given(_i64), _given(_flag), _given(_i64), _i64[::1], _i64[::1], _i64[::1], _i64[::1]),
    _nrt=False,
)
def previous(lanes: Any, there: Any, rows: Any, newest: Any, before: Any, later: Any, first: Any) -> Any:
    """For each answer the one before it in its lane, -1 if it is the first. Which of them are to be compared: with the
    one before, and with the open row of the lane (`rows`); how many of both. `newest` is -1 for all lanes, also later."""
    many = some = 0
    for at in range(len(lanes)):
        lane = lanes[at]
        last = before[at] = newest[lane]
        newest[lane] = at
        if there[at]:
            if last < 0 and rows[lane] >= 0:
                first[some] = at
                some += 1
            elif last >= 0 and there[last]:
                later[many] = at
                many += 1
    for at in range(len(lanes)):
        newest[lanes[at]] = -1
    return many, some


@compiled(_i64, _given(_i64), _given(_f64), _flag, _given(_i64), _i64[::1], _nrt=False)
def equal_before(whole: Any, real: Any, is_real: Any, before: Any, answers: Any) -> Any:
    """Keep the answers whose value, one of two views, is the one before: NaN is one value. How many."""
    kept = 0
    for each in range(len(answers)):
        at = answers[each]
        last = before[at]
        same = whole[at] == whole[last]
        if is_real:
            same = real[at] == real[last] or (real[at] != real[at] and real[last] != real[last])
        answers[kept] = at
        kept += same
    return kept


@compiled(
    types.UniTuple(_i64, 2),
    *(_given(_i64), _given(_i64), _given(_flag), _given(_flag), _i64[::1], _i64[::1], _i64),
    *(_i64[::1], _i64[::1], _i64[:, ::1]),
    _nrt=False,
)
def succeed(
    lanes: Any, time: Any, there: Any, same: Any, rows: Any, newest: Any, first: Any, made: Any, end: Any, closed: Any
) -> Any:
    """Each answer that is not the same as the one before ends that one's row and, if it is there, begins its own.

    `rows` are the ids of the open rows by lane, -1 for none; new ones are numbered from `first` on. `made` are the answers
    that begin a row, which lives until `end`; `closed` are the lane, id and end of rows of earlier steps. Both are
    counted. `newest` is -1 for all lanes, also later.
    """
    making = closing = 0
    for at in range(len(lanes)):
        if same[at]:
            continue
        lane = lanes[at]
        own = newest[lane]
        if own >= 0:
            end[own] = time[at]
            newest[lane] = -1
        elif rows[lane] >= 0:
            closed[0, closing], closed[1, closing], closed[2, closing] = lane, rows[lane], time[at]
            rows[lane] = -1
            closing += 1
        if there[at]:
            newest[lane] = making
            made[making], end[making] = at, END
            making += 1
    for own in range(making):
        if end[own] == END:
            lane = lanes[made[own]]
            rows[lane] = first + own
            newest[lane] = -1
    return making, closing
