"""The compiled loops of `hayase.lifetimes.joins`; compiled on import, like `hayase.core.key_loops`.

- `nodes`, by a tuple's slot: records of the type NODE;
- `book`, by key, lines of int32: for each side the first and last tuple alive, their number, whether any was at the last
  instant;
- `shown`, by a tuple's slot: the row of this step in which it is shown by itself (-1: none); what is known of such rows
  of earlier steps, twice the number of the latest and one more if that has ended (-1: none); its partners;
- `pool`, pairs that are kept, lines of int32: for each side the next and the previous pair of the same tuple, then both
  tuples, the lower and upper half of the pair's number, that of one whose end is not to be told complemented;
- results: `rows` of left slot, right slot (-1: none), start and end; `told` ends of earlier rows, as number, end, the
  slot that was shown by itself (-1: a pair) and its side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import from_dtype, njit, types

from hayase.core.key_loops import compiled, prefetch
from hayase.core.times import BEGINNING
from hayase.lifetimes.joins import (
    ACCOMPANIED,
    ARE_TIED,
    COUNT,
    EMPTIED,
    FIRST,
    FRESH,
    LAST,
    MARK,
    NEVER,
    NOBODY,
    NODE,
    OPENS,
    PARTNERS,
    RIGHT,
    THERE,
)
from hayase.lifetimes.relations import OPEN

__all__ = [
    "apart",
    "close",
    "close_pairs",
    "drop_pairs",
    "empty_keys",
    "enter",
    "forsake",
    "keep_pairs",
    "keep_rows",
    "leave",
    "meet",
    "order_ties",
    "pairs",
    "place",
    "watch",
]

AFTER, BEFORE, TUPLE, LOWER, UPPER = 0, 1, 4, 6, 7
_AHEAD = 8
_LATEST = np.int64(2**63 - 1)
_LOWER_HALF = np.int64(2**32 - 1)
_i64, _flag, _none = types.int64, types.boolean, types.void
_line, _lines, _short_lines = _i64[::1], _i64[:, ::1], types.int32[:, ::1]
_given = types.Array(_i64, 1, "C", readonly=True)
_nodes = types.Array(from_dtype(NODE), 1, "C")


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
    key = nodes[slot].key
    if key < 0:
        return
    last = book[key, side + LAST]
    nodes[slot].next = -1
    nodes[slot].previous = last
    if last < 0:
        book[key, side + FIRST] = slot
    else:
        nodes[last].next = slot
    book[key, side + LAST] = slot
    book[key, side + COUNT] += 1


@njit(inline="always")
def _leave(nodes: Any, book: Any, side: Any, slot: Any) -> None:
    """Take a tuple out of those of its key."""
    key = nodes[slot].key
    if key < 0:
        return
    after, before = nodes[slot].next, nodes[slot].previous
    if before < 0:
        book[key, side + FIRST] = after
    else:
        nodes[before].next = after
    if after < 0:
        book[key, side + LAST] = before
    else:
        nodes[after].previous = before
    book[key, side + COUNT] -= 1


@njit(inline="always")
def _place(nodes: Any, slot: Any, end: Any, id: Any, key: Any) -> None:
    """Make the record of a tuple that has come, in no chain yet and without pairs."""
    nodes[slot].next = -1
    nodes[slot].previous = -1
    nodes[slot].key = key
    nodes[slot].pair = -1
    nodes[slot].end = end
    nodes[slot].id = id


@compiled(_none, _given, _given, _given, _given, _nodes, _nrt=False)
def place(slots: Any, ends: Any, ids: Any, keys: Any, nodes: Any) -> None:
    """Make records for tuples that have come."""
    for at in range(len(slots)):
        _place(nodes, slots[at], ends[at], ids[at], keys[at])


@compiled(_none, _given, _given, _nodes, _nrt=False)
def close(slots: Any, ends: Any, nodes: Any) -> None:
    """Tuples have got their ends."""
    for at in range(len(slots)):
        prefetch(nodes, slots[min(at + 2 * _AHEAD, len(slots) - 1)])
        nodes[slots[at]].end = ends[at]


@compiled(_none, _given, _nodes, _short_lines, _i64, _line)
def enter(slots: Any, nodes: Any, book: Any, side: int, reach: Any) -> None:
    """Tuples that were there before this step."""
    for slot in slots:
        _enter(nodes, book, side, slot)
        key = nodes[slot].key
        if key >= 0:
            book[key, side + THERE] = 1
            if side == RIGHT and nodes[slot].end != OPEN:
                reach[key] = max(reach[key], nodes[slot].end)


@compiled(_none, _given, _nodes, _short_lines, _i64)
def leave(slots: Any, nodes: Any, book: Any, side: int) -> None:
    """Tuples that were gone before this step."""
    for slot in slots:
        _leave(nodes, book, side, slot)
        key = nodes[slot].key
        if key >= 0 and book[key, side + COUNT] == 0:
            book[key, side + THERE] = 0


@njit(inline="always")
def _forsake(nodes: Any, book: Any, slot: Any, found: Any, count: Any) -> Any:
    """Nobody is in the slot of a tuple that is gone. A key that has no tuples now is put into `found`; returns how many
    are in it."""
    key = nodes[slot].key
    nodes[slot].key = NOBODY
    if key >= 0 and book[key, COUNT] == 0 and book[key, RIGHT + COUNT] == 0:
        found[count] = key
        count += 1
    return count


@compiled(_i64, _given, _nodes, _short_lines, _line, _i64, _nrt=False)
def forsake(gone: Any, nodes: Any, book: Any, found: Any, count: int) -> Any:
    """The same for all tuples of a side that are gone."""
    for at in range(len(gone)):
        prefetch(nodes, gone[min(at + 2 * _AHEAD, len(gone) - 1)])
        prefetch(book, max(nodes[gone[min(at + _AHEAD, len(gone) - 1)]].key, 0))
        count = _forsake(nodes, book, gone[at], found, count)
    return count


@compiled(_i64, _short_lines, _line, _line, _i64, _nrt=False)
def empty_keys(book: Any, reach: Any, keys: Any, count: int) -> Any:
    """Of the first `count` keys leave those that have no tuples, each once, and make their lines blank; how many."""
    kept = 0
    for at in range(count):
        key = keys[at]
        if book[key, COUNT] == 0 and book[key, RIGHT + COUNT] == 0:
            book[key, COUNT] = -1
            keys[kept] = key
            kept += 1
    for at in range(kept):
        key = keys[at]
        book[key, COUNT] = 0
        book[key, THERE] = 0
        book[key, RIGHT + THERE] = 0
        reach[key] = BEGINNING
    return kept


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
    key = nodes[slot].key
    rows = _room(rows, count, book[key, theirs + COUNT])
    mine, other = nodes[slot].end, book[key, theirs + FIRST]
    here, there = (0, 1) if side == 0 else (1, 0)
    while other >= 0:
        end, later = min(mine, others[other].end), max(mine, others[other].end)
        rows[count, here] = slot
        rows[count, there] = other
        rows[count, 2] = now
        rows[count, 3] = OPEN if later == OPEN and end >= clock else end
        count += 1
        other = others[other].next
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
        key = others[partner].key
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
                    end = nodes[slot].end
                    sure = rule == ACCOMPANIED and end <= reach[key]
                    count = _show(slot, side, now, end if sure else OPEN, shown, rows, count)
                else:
                    telling = _hide(slot, side, now, shown, rows, told, telling)
            slot = nodes[slot].next
    rows = _room(rows, count, len(coming))
    for slot in coming:
        key = nodes[slot].key
        there = 1 if key >= 0 and book[key, theirs + COUNT] > 0 else 0
        if (there == 1) == (rule == ACCOMPANIED):
            end = nodes[slot].end
            sure = key < 0 or (rule == ACCOMPANIED and end <= reach[key])
            count = _show(slot, side, now, end if sure else OPEN, shown, rows, count)
    return rows, count, told, telling


@compiled(
    types.Tuple((_lines, _lines, _flag)),
    *(_given, _given, _given, _given, _line, _i64, _i64),
    *(_nodes, _nodes, _given, _given, _short_lines, _line, _lines, _lines),
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
            now = left[gone_left[out_left]].end
        if out_right < len(gone_right):
            now = min(now, right[gone_right[out_right]].end)
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
        while out_left < len(gone_left) and left[gone_left[out_left]].end == now:
            _leave(left, book, 0, gone_left[out_left])
            if left_rule != NEVER:
                told = _room(told, telling, 1)
                telling = _hide(gone_left[out_left], 0, now, left_shown, rows, told, telling)
            out_left += 1
        while out_right < len(gone_right) and right[gone_right[out_right]].end == now:
            _leave(right, book, RIGHT, gone_right[out_right])
            if right_rule != NEVER:
                told = _room(told, telling, 1)
                telling = _hide(gone_right[out_right], RIGHT, now, right_shown, rows, told, telling)
            out_right += 1
        # The right first: of one tuple a side, the pairs are then found in the order of (left, right).
        while at_right < len(new_right) and right_start[new_right[at_right]] == now:
            prefetch(book, max(right[new_right[min(at_right + _AHEAD, len(new_right) - 1)]].key, 0))
            slot = new_right[at_right]
            key = right[slot].key
            if paired and key >= 0 and book[key, COUNT] > 0:
                rows, count = _probe(slot, RIGHT, now, clock, right, left, book, rows, count)
            _enter(right, book, RIGHT, slot)
            if key >= 0 and right[slot].end != OPEN:
                reach[key] = max(reach[key], right[slot].end)
            at_right += 1
        while at_left < len(new_left) and left_start[new_left[at_left]] == now:
            prefetch(book, max(left[new_left[min(at_left + _AHEAD, len(new_left) - 1)]].key, 0))
            slot = new_left[at_left]
            key = left[slot].key
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
    *(_given, _given, _given, _given, _given) * 2,
    *(
        _given,
        _given,
        _given,
        _given,
        _line,
        _i64,
        _nodes,
        _nodes,
        _short_lines,
        _line,
        _line,
        _line,
        _line,
        _line,
        _i64,
    ),
    _nrt=False,
)
def pairs(
    new_left: Any, start_left: Any, end_left: Any, id_left: Any, key_left: Any,
    new_right: Any, start_right: Any, end_right: Any, id_right: Any, key_right: Any,
    gone_left: Any, leave_left: Any, gone_right: Any, leave_right: Any, cursor: Any, clock: int,
    left: Any, right: Any, book: Any, keys: Any, lefts: Any, rights: Any, starts: Any, ends: Any, count: int,
) -> Any:  # fmt: skip
    """As `meet`, where no tuple is ever shown by itself: returns the number of rows, and whether the step is done.

    The records of new tuples are made here and, if there is room in `keys`, those that leave are forsaken. The rows are
    put into columns, where `count` are already. If a probe finds no room the next call goes on with it, at the cursor, which also
    says how many ends are open, whether rows of one start are not in the order of ids, and how many keys are emptied.
    The loop makes no array, so that Numba need not count references to those it has: that would cost more than the sweep.
    """
    at_left, at_right, out_left, out_right = cursor[0], cursor[1], cursor[2], cursor[3]
    opens, tied, emptied = cursor[OPENS], cursor[ARE_TIED], cursor[EMPTIED]
    last_time, last_left, last_right = cursor[7], cursor[8], cursor[9]
    leaves_left = leave_left[out_left] if out_left < len(gone_left) else _LATEST
    leaves_right = leave_right[out_right] if out_right < len(gone_right) else _LATEST
    comes_left = start_left[at_left] if at_left < len(new_left) else _LATEST
    comes_right = start_right[at_right] if at_right < len(new_right) else _LATEST
    done = True
    while True:
        leaving, coming = min(leaves_left, leaves_right), min(comes_left, comes_right)
        if leaving <= coming:
            if leaving == _LATEST:
                break
            if leaves_left <= leaves_right:
                if out_left + 2 * _AHEAD < len(gone_left):
                    prefetch(left, gone_left[out_left + 2 * _AHEAD])
                    prefetch(book, max(left[gone_left[out_left + _AHEAD]].key, 0))
                _leave(left, book, 0, gone_left[out_left])
                if len(keys) > 0:
                    emptied = _forsake(left, book, gone_left[out_left], keys, emptied)
                out_left += 1
                leaves_left = leave_left[out_left] if out_left < len(gone_left) else _LATEST
            else:
                if out_right + 2 * _AHEAD < len(gone_right):
                    prefetch(right, gone_right[out_right + 2 * _AHEAD])
                    prefetch(book, max(right[gone_right[out_right + _AHEAD]].key, 0))
                _leave(right, book, RIGHT, gone_right[out_right])
                if len(keys) > 0:
                    emptied = _forsake(right, book, gone_right[out_right], keys, emptied)
                out_right += 1
                leaves_right = leave_right[out_right] if out_right < len(gone_right) else _LATEST
        elif comes_right <= comes_left:  # of one tuple a side, pairs are then found in the order of (left, right)
            if at_right + _AHEAD < len(new_right):
                prefetch(book, max(key_right[at_right + _AHEAD], 0))
            slot, mine, id, key = new_right[at_right], end_right[at_right], id_right[at_right], key_right[at_right]
            if key >= 0 and count + book[key, COUNT] > len(lefts):
                done = False
                break
            _place(right, slot, mine, id, key)
            if key >= 0:
                other = book[key, FIRST]
                while other >= 0:
                    end, later = min(mine, left[other].end), max(mine, left[other].end)
                    if later == OPEN and end >= clock:
                        end = OPEN
                        opens += 1
                    lefts[count] = other
                    rights[count] = slot
                    starts[count] = comes_right
                    ends[count] = end
                    theirs = left[other].id
                    if last_time == comes_right and (last_left > theirs or (last_left == theirs and last_right > id)):
                        tied = 1
                    last_time, last_left, last_right = comes_right, theirs, id
                    count += 1
                    other = left[other].next
                _enter(right, book, RIGHT, slot)
            at_right += 1
            comes_right = start_right[at_right] if at_right < len(new_right) else _LATEST
        else:
            if at_left + _AHEAD < len(new_left):
                prefetch(book, max(key_left[at_left + _AHEAD], 0))
            slot, mine, id, key = new_left[at_left], end_left[at_left], id_left[at_left], key_left[at_left]
            if key >= 0 and count + book[key, RIGHT + COUNT] > len(lefts):
                done = False
                break
            _place(left, slot, mine, id, key)
            if key >= 0:
                other = book[key, RIGHT + FIRST]
                while other >= 0:
                    end, later = min(mine, right[other].end), max(mine, right[other].end)
                    if later == OPEN and end >= clock:
                        end = OPEN
                        opens += 1
                    lefts[count] = slot
                    rights[count] = other
                    starts[count] = comes_left
                    ends[count] = end
                    theirs = right[other].id
                    if last_time == comes_left and (last_left > id or (last_left == id and last_right > theirs)):
                        tied = 1
                    last_time, last_left, last_right = comes_left, id, theirs
                    count += 1
                    other = right[other].next
                _enter(left, book, 0, slot)
            at_left += 1
            comes_left = start_left[at_left] if at_left < len(new_left) else _LATEST
    cursor[0], cursor[1], cursor[2], cursor[3] = at_left, at_right, out_left, out_right
    cursor[OPENS], cursor[ARE_TIED], cursor[EMPTIED] = opens, tied, emptied
    cursor[7], cursor[8], cursor[9] = last_time, last_left, last_right
    return count, done


# ---------------------------------------------------------------------------------------------------- pairs that are kept


@njit(inline="always")
def _number(pool: Any, line: Any) -> Any:
    """The number of a pair, complemented if its end is not to be told."""
    return (np.int64(pool[line, UPPER]) << 32) | (np.int64(pool[line, LOWER]) & _LOWER_HALF)


@njit(inline="always")
def _keep(line: Any, pool: Any, nodes: Any, side: Any) -> None:
    """Put a pair before the others of its tuple on one side (0 or 1)."""
    slot = pool[line, TUPLE + side]
    first = nodes[slot].pair
    pool[line, 2 * side + AFTER] = first
    pool[line, 2 * side + BEFORE] = -1
    if first >= 0:
        pool[first, 2 * side + BEFORE] = line
    nodes[slot].pair = line


@njit(inline="always")
def _drop(line: Any, pool: Any, nodes: Any, side: Any) -> None:
    """Take a pair out of those of its tuple on one side (0 or 1)."""
    after, before = pool[line, 2 * side + AFTER], pool[line, 2 * side + BEFORE]
    if before < 0:
        nodes[pool[line, TUPLE + side]].pair = after
    else:
        pool[before, 2 * side + AFTER] = after
    if after >= 0:
        pool[after, 2 * side + BEFORE] = before


@njit(inline="always")
def _free(line: Any, pool: Any, spare: Any) -> None:
    """Give a line back; `spare` holds the first spare line, the number of lines ever used, and of those in use."""
    pool[line, AFTER] = spare[0]
    spare[0] = line
    spare[2] -= 1


@njit(inline="always")
def _join(left: Any, right: Any, number: Any, is_told: Any, pool: Any, spare: Any, lefts: Any, rights: Any) -> None:
    """Keep a pair of tuples, by their slots. There must be room."""
    line = spare[0]
    if line >= 0:
        spare[0] = pool[line, AFTER]
    else:
        line = spare[1]
        spare[1] += 1
    spare[2] += 1
    named = number if is_told else ~number
    pool[line, TUPLE] = left
    pool[line, TUPLE + 1] = right
    pool[line, LOWER] = named & _LOWER_HALF
    pool[line, UPPER] = named >> 32
    _keep(line, pool, lefts, 0)
    _keep(line, pool, rights, 1)


@compiled(_none, _given, _given, _given, _flag, _short_lines, _line, _nodes, _nodes, _lines, _lines, _flag)
def keep_pairs(
    lefts: Any, rights: Any, numbers: Any, paired: bool, pool: Any, spare: Any,
    left: Any, right: Any, left_shown: Any, right_shown: Any, counted: bool,
) -> None:  # fmt: skip
    """Take up pairs, by the slots of their tuples; if `counted`, they are partners from now on. Of `paired` results an
    end that is open is to be told. There must be room."""
    for at in range(len(lefts)):
        is_open = left[lefts[at]].end == OPEN or right[rights[at]].end == OPEN
        _join(lefts[at], rights[at], numbers[at], paired and is_open, pool, spare, left, right)
        if counted:
            left_shown[lefts[at], PARTNERS] += 1
            right_shown[rights[at], PARTNERS] += 1


@compiled(
    types.UniTuple(_i64, 2),
    *(_given, _given, _given, _given, _short_lines, _line, _nodes, _nodes, _line, _line, _line),
    _nrt=False,
)
def keep_rows(
    lefts: Any, rights: Any, ends: Any, numbers: Any, pool: Any, spare: Any, left: Any, right: Any,
    kept_left: Any, kept_right: Any, kept_number: Any,
) -> Any:  # fmt: skip
    """Take up the pairs with an open end among results, which is to be told; there must be room for them.

    The last three get the ids of their tuples and their numbers. Returns how many there are, and until when one of them
    lives at the latest.
    """
    count = 0
    latest = -_LATEST
    for at in range(len(ends)):
        if ends[at] == OPEN and lefts[at] >= 0 and rights[at] >= 0:
            _join(lefts[at], rights[at], numbers[at], True, pool, spare, left, right)
            kept_left[count] = left[lefts[at]].id
            kept_right[count] = right[rights[at]].id
            kept_number[count] = numbers[at]
            count += 1
            latest = max(latest, min(left[lefts[at]].end, right[rights[at]].end))
    return count, latest


@compiled(_none, _given, _i64, _short_lines, _line, _nodes, _nodes, _lines, _lines, _flag)
def drop_pairs(
    slots: Any,
    side: int,
    pool: Any,
    spare: Any,
    left: Any,
    right: Any,
    left_shown: Any,
    right_shown: Any,
    counted: bool,
) -> None:
    """Forget the pairs of tuples (of side 0 or 1) that were gone before this step."""
    for slot in slots:
        line = left[slot].pair if side == 0 else right[slot].pair
        while line >= 0:
            after = pool[line, 2 * side + AFTER]
            _drop(line, pool, left, 0)
            _drop(line, pool, right, 1)
            if counted:
                left_shown[pool[line, TUPLE], PARTNERS] -= 1
                right_shown[pool[line, TUPLE + 1], PARTNERS] -= 1
            _free(line, pool, spare)
            line = after


@compiled(_i64, _given, _given, _nodes, _nodes, _short_lines, _line, _lines, _nrt=False)
def close_pairs(gone_left: Any, gone_right: Any, left: Any, right: Any, pool: Any, spare: Any, told: Any) -> Any:
    """The ends of the pairs of tuples that leave in this step, in time order; the pairs are forgotten. Returns how many
    there are; in `told` there must be room for all that are kept."""
    telling = at_left = at_right = 0
    while at_left < len(gone_left) or at_right < len(gone_right):
        leaves_left = left[gone_left[at_left]].end if at_left < len(gone_left) else _LATEST
        leaves_right = right[gone_right[at_right]].end if at_right < len(gone_right) else _LATEST
        if leaves_left <= leaves_right:
            side, now, line = 0, leaves_left, left[gone_left[at_left]].pair
            at_left += 1
            if at_left + 2 * _AHEAD < len(gone_left):
                prefetch(left, gone_left[at_left + 2 * _AHEAD])
                prefetch(pool, max(left[gone_left[at_left + _AHEAD]].pair, 0))
        else:
            side, now, line = 1, leaves_right, right[gone_right[at_right]].pair
            at_right += 1
            if at_right + 2 * _AHEAD < len(gone_right):
                prefetch(right, gone_right[at_right + 2 * _AHEAD])
                prefetch(pool, max(right[gone_right[at_right + _AHEAD]].pair, 0))
        while line >= 0:
            after = pool[line, 2 * side + AFTER]
            _drop(line, pool, left, 0)
            _drop(line, pool, right, 1)
            told[telling, 0] = _number(pool, line)
            told[telling, 1] = now
            told[telling, 2] = -1
            told[telling, 3] = -1
            telling += 1
            _free(line, pool, spare)
            line = after
    return telling


# ---------------------------------------------------------------------------------------------------- the sweep by pairs


@njit
def _part(
    slot: Any, side: Any, now: Any, pool: Any, spare: Any, left: Any, right: Any,
    left_shown: Any, right_shown: Any, told: Any, telling: Any, touched: Any, touching: Any,
) -> Any:  # fmt: skip
    """A tuple (of side 0 or 1) leaves now, and with it its pairs; their other tuples have a partner less."""
    line = left[slot].pair if side == 0 else right[slot].pair
    while line >= 0:
        after = pool[line, 2 * side + AFTER]
        _drop(line, pool, left, 0)
        _drop(line, pool, right, 1)
        left_shown[pool[line, TUPLE], PARTNERS] -= 1
        right_shown[pool[line, TUPLE + 1], PARTNERS] -= 1
        if _number(pool, line) >= 0:
            told = _room(told, telling, 1)
            told[telling, 0] = _number(pool, line)
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
    if rule != NEVER and nodes[slot].end > now:
        wanted = (shown[slot, PARTNERS] > 0) == (rule == ACCOMPANIED)
        if wanted and not _is_shown(slot, shown):
            rows = _room(rows, count, 1)
            count = _show(slot, side, now, nodes[slot].end if nodes[slot].key < 0 else OPEN, shown, rows, count)
        elif not wanted:
            told = _room(told, telling, 1)
            telling = _hide(slot, side, now, shown, rows, told, telling)
    return rows, count, told, telling


@compiled(
    types.Tuple((_lines, _lines)),
    *(_given, _given, _given, _given, _lines, _given),
    *(_nodes, _nodes, _given, _given, _short_lines, _line, _lines, _lines),
    *(_i64, _i64, _flag),
)
def watch(
    new_left: Any, new_right: Any, gone_left: Any, gone_right: Any, pairs: Any, numbers: Any,
    left: Any, right: Any, left_start: Any, right_start: Any, pool: Any, spare: Any,
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
            now = left[gone_left[out_left]].end
        if out_right < len(gone_right):
            now = min(now, right[gone_right[out_right]].end)
        if at_left < len(new_left):
            now = min(now, left_start[new_left[at_left]])
        if at_right < len(new_right):
            now = min(now, right_start[new_right[at_right]])
        if now == _LATEST:
            break
        touching = 0
        while out_left < len(gone_left) and left[gone_left[out_left]].end == now:
            slot = gone_left[out_left]
            told, telling, touched, touching = _part(
                slot, 0, now, pool, spare, left, right, left_shown, right_shown,
                told, telling, touched, touching,
            )  # fmt: skip
            told = _room(told, telling, 1)
            telling = _hide(slot, 0, now, left_shown, rows, told, telling)
            out_left += 1
        while out_right < len(gone_right) and right[gone_right[out_right]].end == now:
            slot = gone_right[out_right]
            told, telling, touched, touching = _part(
                slot, 1, now, pool, spare, left, right, left_shown, right_shown,
                told, telling, touched, touching,
            )  # fmt: skip
            told = _room(told, telling, 1)
            telling = _hide(slot, RIGHT, now, right_shown, rows, told, telling)
            out_right += 1
        while at < len(pairs) and pairs[at, 2] == now:
            is_told = paired and pairs[at, 3] == OPEN
            _join(pairs[at, 0], pairs[at, 1], numbers[at], is_told, pool, spare, left, right)
            left_shown[pairs[at, 0], PARTNERS] += 1
            right_shown[pairs[at, 1], PARTNERS] += 1
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
