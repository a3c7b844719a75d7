"""The compiled loops of `hayase.lifetimes.joins`; compiled on import, like `hayase.core.key_loops`.

All tables are lines of int64:

- `nodes`, by a tuple's slot: the next and the previous tuple of its key and side, its end, its key (-1: none);
- `book`, by key: for each side the first and last tuple alive, their number, whether any was at the last instant;
- `shown`, by a tuple's slot: the row of this step in which it is shown by itself (-1: none); what is known of such rows
  of earlier steps, twice the number of the latest and one more if that has ended (-1: none); its partners;
- `pool`, pairs that are kept: for each side the next and the previous pair of the same tuple, then both tuples, the
  pair's number, and whether its end is to be told;
- results: `rows` of left slot, right slot (-1: none), start and end; `told` ends of earlier rows, as number, end, the
  slot that was shown by itself (-1: a pair) and its side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from hayase.core.key_loops import compiled, prefetch
from hayase.lifetimes.joins import (
    ACCOMPANIED,
    COUNT,
    END,
    FIRST,
    FRESH,
    KEY,
    LAST,
    MARK,
    NEVER,
    NEXT,
    PARTNERS,
    PREVIOUS,
    RIGHT,
    THERE,
)
from hayase.lifetimes.relations import OPEN

__all__ = ["apart", "close_pairs", "drop_pairs", "enter", "keep_pairs", "leave", "meet", "order_ties", "watch"]

AFTER, BEFORE, TUPLE, NUMBER, TOLD = 0, 1, 4, 6, 7
_AHEAD = 8
_LATEST = np.int64(2**63 - 1)
_i64, _flag, _none = types.int64, types.boolean, types.void
_line, _lines = _i64[::1], _i64[:, ::1]
_given = types.Array(_i64, 1, "C", readonly=True)


@njit
def _room(lines: Any, used: Any, wanted: Any) -> Any:
    """The lines, or a larger copy of them that has room for so many more."""
    if used + wanted <= len(lines):
        return lines
    larger = np.empty((max(2 * len(lines), used + wanted), lines.shape[1]), np.int64)
    for at in range(used):
        for part in range(lines.shape[1]):
            larger[at, part] = lines[at, part]
    return larger


# ---------------------------------------------------------------------------------------------------- tuples by key


@njit(inline="always")
def _enter(nodes: Any, book: Any, side: Any, slot: Any) -> None:
    """Put a tuple behind the others of its key."""
    key = nodes[slot, KEY]
    if key < 0:
        return
    last = book[key, side + LAST]
    nodes[slot, NEXT] = -1
    nodes[slot, PREVIOUS] = last
    if last < 0:
        book[key, side + FIRST] = slot
    else:
        nodes[last, NEXT] = slot
    book[key, side + LAST] = slot
    book[key, side + COUNT] += 1


@njit(inline="always")
def _leave(nodes: Any, book: Any, side: Any, slot: Any) -> None:
    """Take a tuple out of those of its key."""
    key = nodes[slot, KEY]
    if key < 0:
        return
    after, before = nodes[slot, NEXT], nodes[slot, PREVIOUS]
    if before < 0:
        book[key, side + FIRST] = after
    else:
        nodes[before, NEXT] = after
    if after < 0:
        book[key, side + LAST] = before
    else:
        nodes[after, PREVIOUS] = before
    book[key, side + COUNT] -= 1


@compiled(_none, _given, _lines, _lines, _i64, _line)
def enter(slots: Any, nodes: Any, book: Any, side: int, reach: Any) -> None:
    """Tuples that were there before this step."""
    for slot in slots:
        _enter(nodes, book, side, slot)
        key = nodes[slot, KEY]
        if key >= 0:
            book[key, side + THERE] = 1
            if side == RIGHT and nodes[slot, END] != OPEN:
                reach[key] = max(reach[key], nodes[slot, END])


@compiled(_none, _given, _lines, _lines, _i64)
def leave(slots: Any, nodes: Any, book: Any, side: int) -> None:
    """Tuples that were gone before this step."""
    for slot in slots:
        _leave(nodes, book, side, slot)
        key = nodes[slot, KEY]
        if key >= 0 and book[key, side + COUNT] == 0:
            book[key, side + THERE] = 0


# ---------------------------------------------------------------------------------------------------- rows of one tuple


@njit(inline="always")
def _show(slot: Any, side: Any, now: Any, end: Any, shown: Any, rows: Any, count: Any) -> Any:
    """From now on a tuple is shown by itself, until an end that is known or open. There must be room."""
    rows[count, 0] = slot if side == 0 else -1
    rows[count, 1] = -1 if side == 0 else slot
    rows[count, 2] = now
    rows[count, 3] = end
    if end == OPEN:
        shown[slot, FRESH] = count
    return count + 1


@njit(inline="always")
def _hide(slot: Any, side: Any, now: Any, shown: Any, rows: Any, told: Any, telling: Any) -> Any:
    """A tuple is no longer shown: a row of this step gets its end, of an earlier one it is told. There must be room."""
    fresh, mark = shown[slot, FRESH], shown[slot, MARK]
    if fresh >= 0:
        rows[fresh, 3] = now
        shown[slot, FRESH] = -1
    elif mark >= 0 and mark & 1 == 0:
        told[telling, 0] = mark >> 1
        told[telling, 1] = now
        told[telling, 2] = slot
        told[telling, 3] = side
        shown[slot, MARK] = mark + 1
        telling += 1
    return telling


@njit(inline="always")
def _is_shown(slot: Any, shown: Any) -> Any:
    mark = shown[slot, MARK]
    return shown[slot, FRESH] >= 0 or (mark >= 0 and mark & 1 == 0)


# ---------------------------------------------------------------------------------------------------- the sweep by keys


@njit
def _probe(
    slot: Any, side: Any, now: Any, clock: Any, nodes: Any, others: Any, book: Any, rows: Any, count: Any
) -> Any:
    """Pairs of a tuple that comes now with all of its key that are there on the other side."""
    theirs = RIGHT - side
    key = nodes[slot, KEY]
    rows = _room(rows, count, book[key, theirs + COUNT])
    mine, other = nodes[slot, END], book[key, theirs + FIRST]
    here, there = (0, 1) if side == 0 else (1, 0)
    while other >= 0:
        end, later = min(mine, others[other, END]), max(mine, others[other, END])
        rows[count, here] = slot
        rows[count, there] = other
        rows[count, 2] = now
        rows[count, 3] = OPEN if later == OPEN and end >= clock else end
        count += 1
        other = others[other, NEXT]
    return rows, count


@njit
def _turn(
    side: Any, rule: Any, now: Any, leaving: Any, joining: Any, coming: Any, nodes: Any, others: Any, begun: Any,
    book: Any, reach: Any, shown: Any, rows: Any, count: Any, told: Any, telling: Any,
) -> Any:  # fmt: skip
    """What an instant as a whole changes for the tuples of one side: an end and a start at one time are no change.

    `leaving` and `joining` are possible partners, `coming` the side's own new tuples. A tuple that is accompanied up to
    its end for certain, by one that ends no sooner, has a row of known end.
    """
    theirs = RIGHT - side
    for turn in range(len(leaving) + len(joining)):
        partner = leaving[turn] if turn < len(leaving) else joining[turn - len(leaving)]
        key = others[partner, KEY]
        if key < 0:
            continue
        there = 1 if book[key, theirs + COUNT] > 0 else 0
        if there == book[key, theirs + THERE]:
            continue
        book[key, theirs + THERE] = there
        showing = (there == 1) == (rule == ACCOMPANIED)
        wanted = book[key, side + COUNT]
        if showing:
            rows = _room(rows, count, wanted)
        else:
            told = _room(told, telling, wanted)
        slot = book[key, side + FIRST]
        while slot >= 0:
            if begun[slot] != now:
                if showing:
                    end = nodes[slot, END]
                    sure = rule == ACCOMPANIED and end <= reach[key]
                    count = _show(slot, side, now, end if sure else OPEN, shown, rows, count)
                else:
                    telling = _hide(slot, side, now, shown, rows, told, telling)
            slot = nodes[slot, NEXT]
    rows = _room(rows, count, len(coming))
    for slot in coming:
        key = nodes[slot, KEY]
        there = 1 if key >= 0 and book[key, theirs + COUNT] > 0 else 0
        if (there == 1) == (rule == ACCOMPANIED):
            end = nodes[slot, END]
            sure = key < 0 or (rule == ACCOMPANIED and end <= reach[key])
            count = _show(slot, side, now, end if sure else OPEN, shown, rows, count)
    return rows, count, told, telling


@compiled(
    types.Tuple((_lines, _lines, _flag)),
    *(_given, _given, _given, _given, _line, _i64, _i64),
    *(_lines, _lines, _given, _given, _lines, _line, _lines, _lines),
    *(_flag, _i64, _i64, _i64),
)
def meet(
    new_left: Any, new_right: Any, gone_left: Any, gone_right: Any, cursor: Any, clock: int, limit: int,
    left: Any, right: Any, left_start: Any, right_start: Any, book: Any, reach: Any, left_shown: Any, right_shown: Any,
    paired: bool, left_rule: int, right_rule: int, expected: int,
) -> Any:  # fmt: skip
    """Go through a step in time order: tuples leave, tuples come and, if `paired`, meet those of their key.

    Returns rows, told ends, and whether the step is done. More rows than the limit are a reason to return between two
    instants; the next call goes on at the cursor. With rules there must be no limit, since rows may still get their end.
    """
    at_left, at_right, out_left, out_right = cursor[0], cursor[1], cursor[2], cursor[3]
    rows, told = np.empty((expected, 4), np.int64), np.empty((16, 4), np.int64)
    count = telling = 0
    done = True
    while True:
        now = _LATEST
        if out_left < len(gone_left):
            now = left[gone_left[out_left], END]
        if out_right < len(gone_right):
            now = min(now, right[gone_right[out_right], END])
        if at_left < len(new_left):
            now = min(now, left_start[new_left[at_left]])
        if at_right < len(new_right):
            now = min(now, right_start[new_right[at_right]])
        if now == _LATEST:
            break
        if count > limit:
            done = False
            break
        was_left, was_right, was_out_left, was_out_right = at_left, at_right, out_left, out_right
        while out_left < len(gone_left) and left[gone_left[out_left], END] == now:
            _leave(left, book, 0, gone_left[out_left])
            if left_rule != NEVER:
                told = _room(told, telling, 1)
                telling = _hide(gone_left[out_left], 0, now, left_shown, rows, told, telling)
            out_left += 1
        while out_right < len(gone_right) and right[gone_right[out_right], END] == now:
            _leave(right, book, RIGHT, gone_right[out_right])
            if right_rule != NEVER:
                told = _room(told, telling, 1)
                telling = _hide(gone_right[out_right], RIGHT, now, right_shown, rows, told, telling)
            out_right += 1
        # The right first: of one tuple a side, the pairs are then found in the order of (left, right).
        while at_right < len(new_right) and right_start[new_right[at_right]] == now:
            prefetch(book, max(right[new_right[min(at_right + _AHEAD, len(new_right) - 1)], KEY], 0))
            slot = new_right[at_right]
            key = right[slot, KEY]
            if paired and key >= 0 and book[key, COUNT] > 0:
                rows, count = _probe(slot, RIGHT, now, clock, right, left, book, rows, count)
            _enter(right, book, RIGHT, slot)
            if key >= 0 and right[slot, END] != OPEN:
                reach[key] = max(reach[key], right[slot, END])
            at_right += 1
        while at_left < len(new_left) and left_start[new_left[at_left]] == now:
            prefetch(book, max(left[new_left[min(at_left + _AHEAD, len(new_left) - 1)], KEY], 0))
            slot = new_left[at_left]
            key = left[slot, KEY]
            if paired and key >= 0 and book[key, RIGHT + COUNT] > 0:
                rows, count = _probe(slot, 0, now, clock, left, right, book, rows, count)
            _enter(left, book, 0, slot)
            at_left += 1
        if left_rule != NEVER:
            rows, count, told, telling = _turn(
                0, left_rule, now, gone_right[was_out_right:out_right], new_right[was_right:at_right],
                new_left[was_left:at_left], left, right, left_start, book, reach, left_shown, rows, count, told, telling,
            )  # fmt: skip
        if right_rule != NEVER:
            rows, count, told, telling = _turn(
                RIGHT, right_rule, now, gone_left[was_out_left:out_left], new_left[was_left:at_left],
                new_right[was_right:at_right], right, left, right_start, book, reach, right_shown,
                rows, count, told, telling,
            )  # fmt: skip
    cursor[0], cursor[1], cursor[2], cursor[3] = at_left, at_right, out_left, out_right
    return rows[:count], told[:telling], done


@compiled(
    types.Tuple((_i64, _flag)),
    *(_given, _given, _given, _given, _line, _i64, _lines, _lines, _given, _given, _lines, _lines),
    _nrt=False,
)
def pairs(
    new_left: Any, new_right: Any, gone_left: Any, gone_right: Any, cursor: Any, clock: int,
    left: Any, right: Any, left_start: Any, right_start: Any, book: Any, rows: Any,
) -> Any:  # fmt: skip
    """As `meet`, where no tuple is ever shown by itself: returns the number of rows, and whether the step is done.

    If a probe finds no room the next call goes on with it, at the cursor. The loop makes no array, so that Numba need not
    count references to those it has: that would cost more than the sweep.
    """
    at_left, at_right, out_left, out_right = cursor[0], cursor[1], cursor[2], cursor[3]
    leaves_left = left[gone_left[out_left], END] if out_left < len(gone_left) else _LATEST
    leaves_right = right[gone_right[out_right], END] if out_right < len(gone_right) else _LATEST
    comes_left = left_start[new_left[at_left]] if at_left < len(new_left) else _LATEST
    comes_right = right_start[new_right[at_right]] if at_right < len(new_right) else _LATEST
    count = 0
    done = True
    while True:
        leaving, coming = min(leaves_left, leaves_right), min(comes_left, comes_right)
        if leaving <= coming:
            if leaving == _LATEST:
                break
            if leaves_left <= leaves_right:
                if out_left + 2 * _AHEAD < len(gone_left):
                    prefetch(left, gone_left[out_left + 2 * _AHEAD])
                    prefetch(book, max(left[gone_left[out_left + _AHEAD], KEY], 0))
                _leave(left, book, 0, gone_left[out_left])
                out_left += 1
                leaves_left = left[gone_left[out_left], END] if out_left < len(gone_left) else _LATEST
            else:
                if out_right + 2 * _AHEAD < len(gone_right):
                    prefetch(right, gone_right[out_right + 2 * _AHEAD])
                    prefetch(book, max(right[gone_right[out_right + _AHEAD], KEY], 0))
                _leave(right, book, RIGHT, gone_right[out_right])
                out_right += 1
                leaves_right = right[gone_right[out_right], END] if out_right < len(gone_right) else _LATEST
        elif comes_left <= comes_right:
            slot = new_left[at_left]
            if at_left + _AHEAD < len(new_left):
                prefetch(book, max(left[new_left[at_left + _AHEAD], KEY], 0))
            key, mine = left[slot, KEY], left[slot, END]
            if key >= 0:
                if count + book[key, RIGHT + COUNT] > len(rows):
                    done = False
                    break
                other = book[key, RIGHT + FIRST]
                while other >= 0:
                    end, later = min(mine, right[other, END]), max(mine, right[other, END])
                    rows[count, 0] = slot
                    rows[count, 1] = other
                    rows[count, 2] = comes_left
                    rows[count, 3] = OPEN if later == OPEN and end >= clock else end
                    count += 1
                    other = right[other, NEXT]
                _enter(left, book, 0, slot)
            at_left += 1
            comes_left = left_start[new_left[at_left]] if at_left < len(new_left) else _LATEST
        else:
            slot = new_right[at_right]
            if at_right + _AHEAD < len(new_right):
                prefetch(book, max(right[new_right[at_right + _AHEAD], KEY], 0))
            key, mine = right[slot, KEY], right[slot, END]
            if key >= 0:
                if count + book[key, COUNT] > len(rows):
                    done = False
                    break
                other = book[key, FIRST]
                while other >= 0:
                    end, later = min(mine, left[other, END]), max(mine, left[other, END])
                    rows[count, 0] = other
                    rows[count, 1] = slot
                    rows[count, 2] = comes_right
                    rows[count, 3] = OPEN if later == OPEN and end >= clock else end
                    count += 1
                    other = left[other, NEXT]
                _enter(right, book, RIGHT, slot)
            at_right += 1
            comes_right = right_start[new_right[at_right]] if at_right < len(new_right) else _LATEST
    cursor[0], cursor[1], cursor[2], cursor[3] = at_left, at_right, out_left, out_right
    return count, done


# ---------------------------------------------------------------------------------------------------- pairs that are kept


@njit(inline="always")
def _keep(line: Any, pool: Any, firsts: Any, side: Any) -> None:
    """Put a pair before the others of its tuple on one side (0 or 1)."""
    slot = pool[line, TUPLE + side]
    first = firsts[slot]
    pool[line, 2 * side + AFTER] = first
    pool[line, 2 * side + BEFORE] = -1
    if first >= 0:
        pool[first, 2 * side + BEFORE] = line
    firsts[slot] = line


@njit(inline="always")
def _drop(line: Any, pool: Any, firsts: Any, side: Any) -> None:
    """Take a pair out of those of its tuple on one side (0 or 1)."""
    after, before = pool[line, 2 * side + AFTER], pool[line, 2 * side + BEFORE]
    if before < 0:
        firsts[pool[line, TUPLE + side]] = after
    else:
        pool[before, 2 * side + AFTER] = after
    if after >= 0:
        pool[after, 2 * side + BEFORE] = before


@njit(inline="always")
def _free(line: Any, pool: Any, spare: Any) -> None:
    """Give a line back; `spare` holds the first spare line, the number of lines ever used, and of those in use."""
    pool[line, NUMBER] = spare[0]
    spare[0] = line
    spare[2] -= 1


@njit(inline="always")
def _take(pool: Any, spare: Any) -> Any:
    """A line that is free. There must be room."""
    line = spare[0]
    if line >= 0:
        spare[0] = pool[line, NUMBER]
    else:
        line = spare[1]
        spare[1] += 1
    spare[2] += 1
    return line


@njit(inline="always")
def _join(
    left: Any, right: Any, number: Any, is_told: Any, pool: Any, spare: Any,
    left_first: Any, right_first: Any, left_shown: Any, right_shown: Any, counted: Any,
) -> None:  # fmt: skip
    line = _take(pool, spare)
    pool[line, TUPLE] = left
    pool[line, TUPLE + 1] = right
    pool[line, NUMBER] = number
    pool[line, TOLD] = is_told
    _keep(line, pool, left_first, 0)
    _keep(line, pool, right_first, 1)
    if counted:
        left_shown[left, PARTNERS] += 1
        right_shown[right, PARTNERS] += 1


@compiled(_none, _given, _given, _given, _given, _lines, _line, _line, _line, _lines, _lines, _flag)
def keep_pairs(
    lefts: Any, rights: Any, numbers: Any, is_told: Any, pool: Any, spare: Any,
    left_first: Any, right_first: Any, left_shown: Any, right_shown: Any, counted: bool,
) -> None:  # fmt: skip
    """Take up pairs, by the slots of their tuples; if `counted`, they are partners from now on. There must be room."""
    for at in range(len(lefts)):
        _join(
            lefts[at], rights[at], numbers[at], is_told[at], pool, spare,
            left_first, right_first, left_shown, right_shown, counted,
        )  # fmt: skip


@compiled(_none, _given, _i64, _lines, _line, _line, _line, _lines, _lines, _flag)
def drop_pairs(
    slots: Any, side: int, pool: Any, spare: Any, left_first: Any, right_first: Any, left_shown: Any, right_shown: Any,
    counted: bool,
) -> None:  # fmt: skip
    """Forget the pairs of tuples (of side 0 or 1) that were gone before this step."""
    for slot in slots:
        line = left_first[slot] if side == 0 else right_first[slot]
        while line >= 0:
            after = pool[line, 2 * side + AFTER]
            _drop(line, pool, left_first, 0)
            _drop(line, pool, right_first, 1)
            if counted:
                left_shown[pool[line, TUPLE], PARTNERS] -= 1
                right_shown[pool[line, TUPLE + 1], PARTNERS] -= 1
            _free(line, pool, spare)
            line = after


@compiled(_lines, _given, _given, _lines, _lines, _lines, _line, _line, _line)
def close_pairs(
    gone_left: Any, gone_right: Any, left: Any, right: Any, pool: Any, spare: Any, left_first: Any, right_first: Any
) -> Any:
    """The ends of the pairs of tuples that leave in this step, in no order; the pairs are forgotten."""
    told = np.empty((spare[2], 4), np.int64)
    telling = 0
    for turn in range(len(gone_left) + len(gone_right)):
        side = 0 if turn < len(gone_left) else 1
        line = left_first[gone_left[turn]] if side == 0 else right_first[gone_right[turn - len(gone_left)]]
        while line >= 0:
            after = pool[line, 2 * side + AFTER]
            _drop(line, pool, left_first, 0)
            _drop(line, pool, right_first, 1)
            told[telling, 0] = pool[line, NUMBER]
            told[telling, 1] = min(left[pool[line, TUPLE], END], right[pool[line, TUPLE + 1], END])
            told[telling, 2] = -1
            told[telling, 3] = -1
            telling += 1
            _free(line, pool, spare)
            line = after
    return told[:telling]


# ---------------------------------------------------------------------------------------------------- the sweep by pairs


@njit
def _part(
    slot: Any, side: Any, now: Any, pool: Any, spare: Any, left_first: Any, right_first: Any,
    left_shown: Any, right_shown: Any, told: Any, telling: Any, touched: Any, touching: Any,
) -> Any:  # fmt: skip
    """A tuple (of side 0 or 1) leaves now, and with it its pairs; their other tuples have a partner less."""
    line = left_first[slot] if side == 0 else right_first[slot]
    while line >= 0:
        after = pool[line, 2 * side + AFTER]
        _drop(line, pool, left_first, 0)
        _drop(line, pool, right_first, 1)
        left_shown[pool[line, TUPLE], PARTNERS] -= 1
        right_shown[pool[line, TUPLE + 1], PARTNERS] -= 1
        if pool[line, TOLD] == 1:
            told = _room(told, telling, 1)
            told[telling, 0] = pool[line, NUMBER]
            told[telling, 1] = now
            told[telling, 2] = -1
            told[telling, 3] = -1
            telling += 1
        touched = _room(touched, touching, 1)
        touched[touching, 0] = pool[line, TUPLE + 1 - side]
        touched[touching, 1] = 1 - side
        touching += 1
        _free(line, pool, spare)
        line = after
    return told, telling, touched, touching


@njit
def _look(
    slot: Any, side: Any, rule: Any, now: Any, nodes: Any, shown: Any, rows: Any, count: Any, told: Any, telling: Any
) -> Any:
    """Show or hide a tuple as its partners at this instant ask for."""
    if rule != NEVER and nodes[slot, END] > now:
        wanted = (shown[slot, PARTNERS] > 0) == (rule == ACCOMPANIED)
        if wanted and not _is_shown(slot, shown):
            rows = _room(rows, count, 1)
            count = _show(slot, side, now, nodes[slot, END] if nodes[slot, KEY] < 0 else OPEN, shown, rows, count)
        elif not wanted:
            told = _room(told, telling, 1)
            telling = _hide(slot, side, now, shown, rows, told, telling)
    return rows, count, told, telling


@compiled(
    types.Tuple((_lines, _lines)),
    *(_given, _given, _given, _given, _lines, _given),
    *(_lines, _lines, _given, _given, _lines, _line, _line, _line, _lines, _lines),
    *(_i64, _i64, _flag),
)
def watch(
    new_left: Any, new_right: Any, gone_left: Any, gone_right: Any, pairs: Any, numbers: Any,
    left: Any, right: Any, left_start: Any, right_start: Any, pool: Any, spare: Any, left_first: Any, right_first: Any,
    left_shown: Any, right_shown: Any, left_rule: int, right_rule: int, paired: bool,
) -> Any:  # fmt: skip
    """Go through a step in time order, with pairs (lines like rows, in the order of their starts) already found.

    Keeps the pairs that are alive and counts the partners of each tuple. Returns the rows of tuples shown by themselves
    and the told ends, those of pairs only if these are `paired` results. There must be room for all pairs.
    """
    rows, told, touched = np.empty((16, 4), np.int64), np.empty((16, 4), np.int64), np.empty((16, 2), np.int64)
    count = telling = at_left = at_right = out_left = out_right = at = 0
    while True:
        now = _LATEST
        if out_left < len(gone_left):
            now = left[gone_left[out_left], END]
        if out_right < len(gone_right):
            now = min(now, right[gone_right[out_right], END])
        if at_left < len(new_left):
            now = min(now, left_start[new_left[at_left]])
        if at_right < len(new_right):
            now = min(now, right_start[new_right[at_right]])
        if now == _LATEST:
            break
        touching = 0
        while out_left < len(gone_left) and left[gone_left[out_left], END] == now:
            slot = gone_left[out_left]
            told, telling, touched, touching = _part(
                slot, 0, now, pool, spare, left_first, right_first, left_shown, right_shown,
                told, telling, touched, touching,
            )  # fmt: skip
            told = _room(told, telling, 1)
            telling = _hide(slot, 0, now, left_shown, rows, told, telling)
            out_left += 1
        while out_right < len(gone_right) and right[gone_right[out_right], END] == now:
            slot = gone_right[out_right]
            told, telling, touched, touching = _part(
                slot, 1, now, pool, spare, left_first, right_first, left_shown, right_shown,
                told, telling, touched, touching,
            )  # fmt: skip
            told = _room(told, telling, 1)
            telling = _hide(slot, RIGHT, now, right_shown, rows, told, telling)
            out_right += 1
        while at < len(pairs) and pairs[at, 2] == now:
            _join(
                pairs[at, 0], pairs[at, 1], numbers[at], 1 if paired and pairs[at, 3] == OPEN else 0, pool, spare,
                left_first, right_first, left_shown, right_shown, True,
            )  # fmt: skip
            touched = _room(touched, touching, 2)
            touched[touching, 0], touched[touching, 1] = pairs[at, 0], 0
            touched[touching + 1, 0], touched[touching + 1, 1] = pairs[at, 1], 1
            touching += 2
            at += 1
        while at_left < len(new_left) and left_start[new_left[at_left]] == now:
            rows, count, told, telling = _look(
                new_left[at_left], 0, left_rule, now, left, left_shown, rows, count, told, telling
            )
            at_left += 1
        while at_right < len(new_right) and right_start[new_right[at_right]] == now:
            rows, count, told, telling = _look(
                new_right[at_right], RIGHT, right_rule, now, right, right_shown, rows, count, told, telling
            )
            at_right += 1
        for each in range(touching):
            if touched[each, 1] == 0:
                rows, count, told, telling = _look(
                    touched[each, 0], 0, left_rule, now, left, left_shown, rows, count, told, telling
                )
            else:
                rows, count, told, telling = _look(
                    touched[each, 0], RIGHT, right_rule, now, right, right_shown, rows, count, told, telling
                )
    return rows[:count], told[:telling]


# ---------------------------------------------------------------------------------------------------- order


@compiled(_lines, types.Array(_i64, 2, "C", readonly=True))
def apart(rows: Any) -> Any:
    """The columns of rows, one after the other."""
    columns = np.empty((4, len(rows)), np.int64)
    for at in range(len(rows)):
        for part in range(4):
            columns[part, at] = rows[at, part]
    return columns


@njit
def _precedes(lines: Any, one: Any, other: Any) -> Any:
    return lines[one, 0] < lines[other, 0] or (lines[one, 0] == lines[other, 0] and lines[one, 1] <= lines[other, 1])


@njit
def _rise(lines: Any, at: Any, stop: Any) -> Any:
    """Where the run that begins at a line ends."""
    at += 1
    while at < stop and _precedes(lines, at - 1, at):
        at += 1
    return at


@njit
def _merged(lines: Any, spare: Any, count: Any) -> Any:
    """Lines sorted by their first two numbers, in one of the two tables: neighbouring runs are merged until there is
    but one (what a probe finds is a run already)."""
    while _rise(lines, 0, count) < count:
        put = 0
        while put < count:
            left, middle = put, _rise(lines, put, count)
            right, end = middle, _rise(lines, middle, count) if middle < count else count
            while put < end:
                if right == end or (left < middle and _precedes(lines, left, right)):
                    at = left
                    left += 1
                else:
                    at = right
                    right += 1
                for part in range(3):
                    spare[put, part] = lines[at, part]
                put += 1
        lines, spare = spare, lines
    return lines


@compiled(_line, _given, _given, _given)
def order_ties(times: Any, ones: Any, twos: Any) -> Any:
    """The order by time, one and two, of what is in the order of time already; empty if it is in the whole order."""
    order = np.empty(0, np.int64)
    lines = spare = np.empty((0, 3), np.int64)
    begin = 0
    while begin < len(times):
        stop, is_sorted = begin + 1, True
        while stop < len(times) and times[stop] == times[begin]:
            if ones[stop] < ones[stop - 1] or (ones[stop] == ones[stop - 1] and twos[stop] < twos[stop - 1]):
                is_sorted = False
            stop += 1
        if not is_sorted:
            if len(order) == 0:
                order = np.empty(len(times), np.int64)
                for at in range(len(times)):
                    order[at] = at
            lines, spare = _room(lines, 0, stop - begin), _room(spare, 0, stop - begin)
            for at in range(begin, stop):
                lines[at - begin, 0], lines[at - begin, 1], lines[at - begin, 2] = ones[at], twos[at], at
            found = _merged(lines, spare, stop - begin)
            for at in range(begin, stop):
                order[at] = found[at - begin, 2]
        begin = stop
    return order
