"""The compiled loops of the negative-tuple operators; compiled on import, like `hayase.core.key_loops`.

Groups (values of a multiset, keys of a join or an aggregate) stand in one open-addressed table by their 64-bit hash, each
with a row of words; a group that has become empty leaves the table at once and its row is used again. `meta` counts:
rows of words ever used, rows waiting to be used again, and serial numbers given out. The loops make no arrays, so that
Numba need not count references (`_nrt`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from hayase.core.key_loops import compiled, prefetch

__all__ = [
    "COUNT",
    "FREED",
    "MEAN",
    "ROWS",
    "SERIAL",
    "SUM",
    "USED",
    "aggregate",
    "fill",
    "insert",
    "join",
    "merge",
    "multiset",
]

USED, FREED, SERIAL = 0, 1, 2
ROWS, COUNT, SUM, MEAN = 0, 1, 2, 3
"""What a call of an aggregate gives: how many rows, how many values, their sum, their mean."""

_AHEAD = 16
_MIX, _STEP = np.int64(-7046029254386353131), np.int64(-4417276706812531889)
_i64, _u64, _f64, _flag = types.int64, types.uint64, types.float64, types.boolean
_line, _grid = _i64[::1], _i64[:, ::1]


def _given(kind: Any, dimensions: int = 1) -> Any:
    return types.Array(kind, dimensions, "C", readonly=True)


@compiled(types.void, _given(_i64), _given(_i64), _line)
def merge(first: Any, second: Any, order: Any) -> None:
    """The order that merges two ascending sequences standing one behind the other; the first goes first where equal."""
    i = j = 0
    for at in range(len(order)):
        if j == len(second) or (i < len(first) and first[i] <= second[j]):
            order[at] = i
            i += 1
        else:
            order[at] = len(first) + j
            j += 1


@compiled(_i64, _grid, _i64, _i64, _i64, _given(_i64), _given(_i64), _given(_i64))
def insert(lines: Any, count: Any, first: Any, length: Any, end: Any, id: Any, slot: Any) -> Any:
    """Put (end, id, slot) into lines ordered by (end, id), one after the other, looking from the earliest end on.

    When a tuple came, `length` before its end, those ended by then were gone: `first` is the first line that was not,
    and is returned as it is after all of them.
    """
    for row in range(len(end)):
        while first < count and lines[first, 0] <= end[row] - length:
            first += 1
        at = first
        while at > 0 and (lines[at - 1, 0] > end[row] or (lines[at - 1, 0] == end[row] and lines[at - 1, 1] > id[row])):
            at -= 1
        while at < count and (lines[at, 0] < end[row] or (lines[at, 0] == end[row] and lines[at, 1] < id[row])):
            at += 1
        for behind in range(count, at, -1):
            for part in range(3):
                lines[behind, part] = lines[behind - 1, part]
        lines[at, 0] = end[row]
        lines[at, 1] = id[row]
        lines[at, 2] = slot[row]
        count += 1
    return first


# ---------------------------------------------------------------------------------------------------- groups


@njit(inline="always")
def _place(table: Any, hashes: Any, wanted: Any) -> Any:
    """Where a hash stands in the table, or where it would."""
    mask = len(table) - 1
    at = np.int64(wanted) & mask
    while table[at] != 0 and hashes[table[at] - 1] != wanted:
        at = (at + 1) & mask
    return at


@njit(inline="always")
def _enter(table: Any, hashes: Any, free: Any, meta: Any, at: Any, wanted: Any) -> Any:
    """A new group at a place of the table; its words are those of whatever had them before."""
    if meta[FREED] > 0:
        meta[FREED] -= 1
        group = free[meta[FREED]]
    else:
        group = meta[USED]
        meta[USED] += 1
    hashes[group] = wanted
    table[at] = group + 1
    return group


@njit(inline="always")
def _leave(table: Any, hashes: Any, free: Any, meta: Any, at: Any) -> None:
    """Take the group at a place out of the table; those behind it move up, so that none is cut off from its hash."""
    mask = len(table) - 1
    free[meta[FREED]] = table[at] - 1
    meta[FREED] += 1
    hole = at
    at = (at + 1) & mask
    while table[at] != 0:
        home = np.int64(hashes[table[at] - 1]) & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            table[hole] = table[at]
            hole = at
        at = (at + 1) & mask
    table[hole] = 0


@compiled(types.void, _line, _given(_i64), _u64[::1])
def fill(table: Any, groups: Any, hashes: Any) -> None:
    """Enter groups (each plus one) into an empty table."""
    mask = len(table) - 1
    for group in groups:
        at = np.int64(hashes[group - 1]) & mask
        while table[at] != 0:
            at = (at + 1) & mask
        table[at] = group


# ---------------------------------------------------------------------------------------------------- multisets


@njit(inline="always")
def _copies(rule: Any, left: Any, right: Any) -> Any:
    """How often a row is in the result; the rules are numbered as in `plans.Rule`."""
    if rule == 0:
        return min(left, 1)
    if rule == 1:
        return 1 if left > 0 and right == 0 else 0
    if rule == 2:
        return max(left - right, 0)
    if rule == 3:
        return 1 if left > 0 and right > 0 else 0
    if rule == 4:
        return min(left, right)
    return left


@compiled(
    _i64,
    *(_i64, _line, _u64[::1], _grid, _line, _line),
    *(_given(_i64), _given(_flag), _given(_u64)) * 2,
    *(_line, _flag[::1], _line),
    _nrt=False,
)
def multiset(
    rule: Any, table: Any, hashes: Any, words: Any, free: Any, meta: Any,
    left_time: Any, left_plus: Any, left_hash: Any, right_time: Any, right_plus: Any, right_hash: Any,
    events: Any, pluses: Any, tags: Any,
) -> Any:  # fmt: skip
    """Count every signed row of both sides in time order; when the number of copies changes, one comes or goes.

    The words of a group: how often left, how often right, its serial number. Returns how many results there are; the
    event is the row's position, the right's behind the left's. The n-th copy of a group always has the same tag.
    """
    found = i = j = 0
    mask = len(table) - 1
    while i < len(left_time) or j < len(right_time):
        if j == len(right_time) or (i < len(left_time) and left_time[i] <= right_time[j]):
            side, event, plus, wanted = 0, i, left_plus[i], left_hash[i]
            prefetch(table, np.int64(left_hash[min(i + _AHEAD, len(left_time) - 1)]) & mask)
            i += 1
        else:
            side, event, plus, wanted = 1, len(left_time) + j, right_plus[j], right_hash[j]
            prefetch(table, np.int64(right_hash[min(j + _AHEAD, len(right_time) - 1)]) & mask)
            j += 1
        at = _place(table, hashes, wanted)
        group = table[at] - 1
        if group < 0:
            group = _enter(table, hashes, free, meta, at, wanted)
            words[group, 0] = 0
            words[group, 1] = 0
            words[group, 2] = meta[SERIAL]
            meta[SERIAL] += 1
        before = _copies(rule, words[group, 0], words[group, 1])
        words[group, side] += 1 if plus else -1
        after = _copies(rule, words[group, 0], words[group, 1])
        if after != before:
            events[found] = event
            pluses[found] = after > before
            tags[found] = words[group, 2] * _MIX + max(after, before) * _STEP
            found += 1
        if words[group, 0] == 0 and words[group, 1] == 0:
            _leave(table, hashes, free, meta, at)
    return found


# ---------------------------------------------------------------------------------------------------- aggregates


@njit(inline="always")
def _evaluate(program: Any, words: Any, group: Any, values: Any, numbers: Any, there: Any, at: Any) -> None:
    """The values of all calls as they are now, into one column of the results."""
    for call in range(len(program)):
        kind, argument = program[call, 0], program[call, 1]
        there[call, at] = True
        if kind == ROWS:
            values[call, at] = words[group, 1]
        else:
            count, total = words[group, 2 + 2 * argument], words[group, 3 + 2 * argument]
            if kind == COUNT:
                values[call, at] = count
            elif count == 0:
                there[call, at] = False
                values[call, at] = 0
            elif kind == SUM:
                values[call, at] = total
            else:
                numbers[call, at] = total / count


@compiled(
    types.UniTuple(_i64, 2),
    *(_given(_i64, 2), _line, _u64[::1], _grid, _line, _line),
    *(_given(_flag), _given(_u64), _given(_i64, 2), _given(_flag, 2)),
    *(_line, _flag[::1], _line, _grid, _f64[:, ::1], _flag[:, ::1]),
    _nrt=False,
)
def aggregate(
    program: Any, table: Any, hashes: Any, words: Any, free: Any, meta: Any,
    plus: Any, hashed: Any, arguments: Any, valid: Any,
    events: Any, pluses: Any, tags: Any, values: Any, numbers: Any, there: Any,
) -> Any:  # fmt: skip
    """Bring every signed row into its group: the group's old row goes, a new one comes, unless they are equal.

    The words of a group: the tag of its row, how many tuples it has, and per argument how many values and their sum.
    Returns how many results there are and how many sums left 64 bits. `numbers` is the same memory as `values`.
    """
    found = overflows = 0
    mask = len(table) - 1
    for row in range(len(hashed)):
        prefetch(table, np.int64(hashed[min(row + _AHEAD, len(hashed) - 1)]) & mask)
        at = _place(table, hashes, hashed[row])
        group = table[at] - 1
        if group < 0:
            group = _enter(table, hashes, free, meta, at, hashed[row])
            for word in range(words.shape[1]):
                words[group, word] = 0
        old = found
        if words[group, 1] > 0:
            _evaluate(program, words, group, values, numbers, there, found)
            events[found] = row
            pluses[found] = False
            tags[found] = words[group, 0]
            found += 1
        by = 1 if plus[row] else -1
        words[group, 1] += by
        for argument in range(len(arguments)):
            if valid[argument, row]:
                words[group, 2 + 2 * argument] += by
                total = words[group, 3 + 2 * argument]
                add = by * arguments[argument, row]
                if ((total ^ (total + add)) & (add ^ (total + add))) < 0:
                    overflows += 1
                words[group, 3 + 2 * argument] = total + add
        if words[group, 1] == 0:
            _leave(table, hashes, free, meta, at)
            continue
        _evaluate(program, words, group, values, numbers, there, found)
        if found > old:
            same = True
            for call in range(len(program)):
                same &= values[call, old] == values[call, found] and there[call, old] == there[call, found]
            if same:
                found = old
                continue
        events[found] = row
        pluses[found] = True
        tags[found] = meta[SERIAL]
        words[group, 0] = meta[SERIAL]
        meta[SERIAL] += 1
        found += 1
    return found, overflows


# ---------------------------------------------------------------------------------------------------- joins

_HEAD, _TAIL, _LENGTH = 0, 1, 2


@compiled(
    types.UniTuple(_i64, 3),
    *(_line, _u64[::1], _grid, _line, _line),
    *(_given(_i64), _given(_flag), _given(_i64), _given(_u64), _line, _grid, _line) * 2,
    *(_i64, _i64, _line, _line, _line),
    _nrt=False,
)
def join(
    table: Any, hashes: Any, words: Any, free: Any, meta: Any,
    left_time: Any, left_plus: Any, left_tag: Any, left_hash: Any, left_slot: Any, left_links: Any, left_tags: Any,
    right_time: Any, right_plus: Any, right_tag: Any, right_hash: Any, right_slot: Any, right_links: Any, right_tags: Any,
    i: Any, j: Any, causes: Any, lefts: Any, rights: Any,
) -> Any:  # fmt: skip
    """Take the signed rows of both sides in time order: enter a plus into its own side's list, take a minus out of it,
    and meet every row of the other side's list.

    The words of a group are the head, tail and length of its list, left then right. `links` are the next and previous
    slot in a list, `tags` whose slot it is. A plus has its slot; that of a minus is found here, from the oldest on.
    Starts at rows i and j and returns those from which to go on, if there was no room for all pairs, and their number
    (-1: a minus has no plus).
    A row's cause is its position, the right's behind the left's.
    """
    found = 0
    mask = len(table) - 1
    while i < len(left_time) or j < len(right_time):
        is_left = j == len(right_time) or (i < len(left_time) and left_time[i] <= right_time[j])
        if is_left:
            prefetch(table, np.int64(left_hash[min(i + _AHEAD, len(left_time) - 1)]) & mask)
            plus, wanted, tag, slot, links, tags = (
                left_plus[i],
                left_hash[i],
                left_tag[i],
                left_slot[i],
                left_links,
                left_tags,
            )
        else:
            prefetch(table, np.int64(right_hash[min(j + _AHEAD, len(right_time) - 1)]) & mask)
            plus, wanted, tag, slot = right_plus[j], right_hash[j], right_tag[j], right_slot[j]
            links, tags = right_links, right_tags
        own, other = (0, 3) if is_left else (3, 0)
        at = _place(table, hashes, wanted)
        group = table[at] - 1
        if group < 0:
            group = _enter(table, hashes, free, meta, at, wanted)
            for side in (0, 3):
                words[group, side + _HEAD] = -1
                words[group, side + _TAIL] = -1
                words[group, side + _LENGTH] = 0
        if found + words[group, other + _LENGTH] > len(causes):
            return i, j, found
        if plus:
            tags[slot] = tag
            tail = words[group, own + _TAIL]
            links[slot, 0] = -1
            links[slot, 1] = tail
            if tail < 0:
                words[group, own + _HEAD] = slot
            else:
                links[tail, 0] = slot
            words[group, own + _TAIL] = slot
            words[group, own + _LENGTH] += 1
        else:
            slot = words[group, own + _HEAD]
            while slot >= 0 and tags[slot] != tag:
                slot = links[slot, 0]
            if slot < 0:
                return i, j, -1
            after, before = links[slot, 0], links[slot, 1]
            if before < 0:
                words[group, own + _HEAD] = after
            else:
                links[before, 0] = after
            if after < 0:
                words[group, own + _TAIL] = before
            else:
                links[after, 1] = before
            words[group, own + _LENGTH] -= 1
        partner = words[group, other + _HEAD]
        if is_left:
            left_slot[i] = slot
            while partner >= 0:
                causes[found] = i
                lefts[found] = slot
                rights[found] = partner
                found += 1
                partner = right_links[partner, 0]
            i += 1
        else:
            right_slot[j] = slot
            while partner >= 0:
                causes[found] = len(left_time) + j
                lefts[found] = partner
                rights[found] = slot
                found += 1
                partner = left_links[partner, 0]
            j += 1
        if words[group, _LENGTH] == 0 and words[group, 3 + _LENGTH] == 0:
            _leave(table, hashes, free, meta, at)
    return i, j, found
