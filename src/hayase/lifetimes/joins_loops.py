"""Compiled loops of `hayase.lifetimes.joins`, compiled on import (see `hayase.core.machine_code`).

The arrays that they work on:

- `nodes`, by slot of a tuple: records of the type NODE;
- `book`, by key, lines of int32: for each side the first and last live tuple, their number, and whether there was any
  at the last instant;
- `shown`, by slot of a tuple: the row of this step that shows the tuple by itself (-1: none); the same for earlier steps,
  as twice the number of the latest such row, plus one if that row has ended (-1: none); the number of its partners;
- `lines`, the pool of kept pairs, int32: for each side the next and the previous pair of the same tuple; both tuples; the
  lower and upper half of the pair's number, which is complemented if the pair's end is not reported;
- `free`: the first free line of the pool, the number of lines ever used, and the number of lines in use.

Results are `rows` of left slot, right slot (-1: none), start and end; and `closed` ends of earlier rows: number, end, the
slot that was shown by itself (-1: a pair), and its side.

The entry points take arrays one by one; where nothing is allocated, they pack them into named tuples, as in
`aggregates_loops`. Loops that allocate count references: there the helpers take arrays and are inlined by LLVM
(`forceinline`) without counting, since tuples, or inlining by Numba, would cost up to a fifth of a sweep.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hayase.core import loop_types as types
from hayase.core.key_loops import prefetch
from hayase.core.machine_code import compiled, njit
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
    "add_open_rows",
    "add_pairs",
    "clear_keys",
    "drop_pairs",
    "end_pairs",
    "link",
    "order_ties",
    "place",
    "set_ends",
    "sweep_inner",
    "sweep_outer",
    "sweep_residual",
    "to_columns",
    "unlink",
    "vacate",
]

AFTER, BEFORE, TUPLE, LOWER, UPPER = 0, 1, 4, 6, 7
_AHEAD = 8
_LATEST = np.int64(2**63 - 1)
_LOWER_HALF = np.int64(2**32 - 1)
_i64, _flag, _none = types.int64, types.boolean, types.void
_line, _lines, _short_lines = _i64[::1], _i64[:, ::1], types.int32[:, ::1]
_readonly = types.Array(_i64, 1, "C", readonly=True)
_nodes = types.Array(types.from_dtype(NODE), 1, "C")


class Arrivals(NamedTuple):
    """The tuples that come to one side, by start."""

    slots: Any
    starts: Any
    ends: Any
    ids: Any
    keys: Any


class Departures(NamedTuple):
    """The tuples that leave one side, by end."""

    slots: Any
    ends: Any


class Columns(NamedTuple):
    """The rows of an inner join, by column."""

    left: Any
    right: Any
    starts: Any
    ends: Any


@njit
def _reserve(lines: Any, used: Any, wanted: Any) -> Any:
    """Return the lines, or a larger copy if there is no room for `wanted` more."""
    if used + wanted <= len(lines):
        return lines
    larger = np.empty((max(2 * len(lines), used + wanted), lines.shape[1]), np.int64)
    for at in range(used):
        for part in range(lines.shape[1]):
            larger[at, part] = lines[at, part]
    return larger


# ---------------------------------------------------------------------------------------------------- tuples by key


@njit(inline="always")
def _link(nodes: Any, book: Any, side: Any, slot: Any) -> None:
    """Append a tuple to the chain of its key."""
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
def _unlink(nodes: Any, book: Any, side: Any, slot: Any) -> None:
    """Remove a tuple from the chain of its key."""
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
    """Initialise the record of a new tuple, in no chain yet and without pairs."""
    nodes[slot].next = -1
    nodes[slot].previous = -1
    nodes[slot].key = key
    nodes[slot].pair = -1
    nodes[slot].end = end
    nodes[slot].id = id


@compiled(_none, _readonly, _readonly, _readonly, _readonly, _nodes, _nrt=False)
def place(slots: Any, ends: Any, ids: Any, keys: Any, nodes: Any) -> None:
    """Initialise the records of new tuples."""
    for at in range(len(slots)):
        _place(nodes, slots[at], ends[at], ids[at], keys[at])


@compiled(_none, _readonly, _readonly, _nodes, _nrt=False)
def set_ends(slots: Any, ends: Any, nodes: Any) -> None:
    """Set the ends of tuples."""
    for at in range(len(slots)):
        prefetch(nodes, slots[min(at + 2 * _AHEAD, len(slots) - 1)])
        nodes[slots[at]].end = ends[at]


@compiled(_none, _readonly, _nodes, _short_lines, _i64, _line)
def link(slots: Any, nodes: Any, book: Any, side: int, reach: Any) -> None:
    """Append tuples that were alive before this step to the chains of their keys."""
    for slot in slots:
        _link(nodes, book, side, slot)
        key = nodes[slot].key
        if key >= 0:
            book[key, side + THERE] = 1
            if side == RIGHT and nodes[slot].end != OPEN:
                reach[key] = max(reach[key], nodes[slot].end)


@compiled(_none, _readonly, _nodes, _short_lines, _i64)
def unlink(slots: Any, nodes: Any, book: Any, side: int) -> None:
    """Remove tuples that ended before this step from the chains of their keys."""
    for slot in slots:
        _unlink(nodes, book, side, slot)
        key = nodes[slot].key
        if key >= 0 and book[key, side + COUNT] == 0:
            book[key, side + THERE] = 0


@njit(inline="always")
def _vacate(nodes: Any, book: Any, slot: Any, emptied: Any, count: Any) -> Any:
    """Mark the slot of a tuple that has left as unused; a key without tuples is appended to `emptied`.

    Returns the number of keys in `emptied`.
    """
    key = nodes[slot].key
    nodes[slot].key = NOBODY
    if key >= 0 and book[key, COUNT] == 0 and book[key, RIGHT + COUNT] == 0:
        emptied[count] = key
        count += 1
    return count


@compiled(_i64, _readonly, _nodes, _short_lines, _line, _i64, _nrt=False)
def vacate(gone: Any, nodes: Any, book: Any, emptied: Any, count: int) -> Any:
    """Do so for all tuples that have left a side."""
    for at in range(len(gone)):
        prefetch(nodes, gone[min(at + 2 * _AHEAD, len(gone) - 1)])
        prefetch(book, max(nodes[gone[min(at + _AHEAD, len(gone) - 1)]].key, 0))
        count = _vacate(nodes, book, gone[at], emptied, count)
    return count


@compiled(_i64, _short_lines, _line, _line, _i64, _nrt=False)
def clear_keys(book: Any, reach: Any, keys: Any, count: int) -> Any:
    """Of the first `count` keys keep those without tuples, each once, and reset their lines; return their number."""
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


@njit(_nrt=False, forceinline=True)
def _show(slot: Any, side: Any, now: Any, end: Any, shown: Any, rows: Any, count: Any) -> Any:
    """Append a row that shows a tuple by itself from now on, until a known end or OPEN. `rows` must have room."""
    rows[count, 0] = slot if side == 0 else -1
    rows[count, 1] = -1 if side == 0 else slot
    rows[count, 2] = now
    rows[count, 3] = end
    if end == OPEN:
        shown[slot, FRESH] = count
    return count + 1


@njit(_nrt=False, forceinline=True)
def _append_end(number: Any, now: Any, slot: Any, side: Any, closed: Any, closing: Any) -> Any:
    """Append the end of an earlier row. `closed` must have room."""
    closed[closing, 0] = number
    closed[closing, 1] = now
    closed[closing, 2] = slot
    closed[closing, 3] = side
    return closing + 1


@njit(_nrt=False, forceinline=True)
def _hide(slot: Any, side: Any, now: Any, shown: Any, rows: Any, closed: Any, closing: Any) -> Any:
    """End the row that shows a tuple by itself: in `rows` if it is of this step, else in `closed`, which must have room."""
    fresh, mark = shown[slot, FRESH], shown[slot, MARK]
    if fresh >= 0:
        rows[fresh, 3] = now
        shown[slot, FRESH] = -1
    elif mark >= 0 and mark & 1 == 0:
        closing = _append_end(mark >> 1, now, slot, side, closed, closing)
        shown[slot, MARK] = mark + 1
    return closing


@njit(inline="always")
def _is_shown(slot: Any, shown: Any) -> Any:
    mark = shown[slot, MARK]
    return shown[slot, FRESH] >= 0 or (mark >= 0 and mark & 1 == 0)


# ---------------------------------------------------------------------------------------------------- outer joins by key


@njit(_nrt=False, forceinline=True)
def _next_instant(
    new_left: Any, left_starts: Any, at_left: Any, gone_left: Any, left_nodes: Any, out_left: Any,
    new_right: Any, right_starts: Any, at_right: Any, gone_right: Any, right_nodes: Any, out_right: Any,
) -> Any:  # fmt: skip
    """Return the next instant at which a tuple comes or leaves, or _LATEST."""
    now = _LATEST
    if out_left < len(gone_left):
        now = left_nodes[gone_left[out_left]].end
    if out_right < len(gone_right):
        now = min(now, right_nodes[gone_right[out_right]].end)
    if at_left < len(new_left):
        now = min(now, left_starts[new_left[at_left]])
    if at_right < len(new_right):
        now = min(now, right_starts[new_right[at_right]])
    return now


@njit
def _probe(
    slot: Any, side: Any, now: Any, clock: Any, nodes: Any, others: Any, book: Any, rows: Any, count: Any
) -> Any:
    """Append the pairs of a new tuple with all live tuples of its key on the other side."""
    theirs = RIGHT - side
    key = nodes[slot].key
    rows = _reserve(rows, count, book[key, theirs + COUNT])
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


@njit(forceinline=True)
def _process_ends(
    gone: Any, out: Any, nodes: Any, shown: Any, side: Any, rule: Any, now: Any, book: Any, rows: Any, closed: Any,
    closing: Any,
) -> Any:  # fmt: skip
    """Remove the tuples of one side that end now from their chains, and end the rows that show them by themselves."""
    while out < len(gone) and nodes[gone[out]].end == now:
        _unlink(nodes, book, side, gone[out])
        if rule != NEVER:
            closed = _reserve(closed, closing, 1)
            closing = _hide(gone[out], side, now, shown, rows, closed, closing)
        out += 1
    return out, closed, closing


@njit(forceinline=True)
def _process_starts(
    new: Any, at: Any, nodes: Any, starts: Any, others: Any, side: Any, paired: Any, now: Any, clock: Any, book: Any,
    reach: Any, rows: Any, count: Any,
) -> Any:  # fmt: skip
    """Add the tuples of one side that start now to their chains and, if `paired`, emit their pairs."""
    while at < len(new) and starts[new[at]] == now:
        prefetch(book, max(nodes[new[min(at + _AHEAD, len(new) - 1)]].key, 0))
        slot = new[at]
        key = nodes[slot].key
        if paired and key >= 0 and book[key, RIGHT - side + COUNT] > 0:
            rows, count = _probe(slot, side, now, clock, nodes, others, book, rows, count)
        _link(nodes, book, side, slot)
        if side == RIGHT and key >= 0 and nodes[slot].end != OPEN:
            reach[key] = max(reach[key], nodes[slot].end)
        at += 1
    return at, rows, count


@njit
def _update_singles(
    side: Any, rule: Any, now: Any, leaving: Any, joining: Any, coming: Any, nodes: Any, others: Any, starts: Any,
    book: Any, reach: Any, shown: Any, rows: Any, count: Any, closed: Any, closing: Any,
) -> Any:  # fmt: skip
    """Show or hide the tuples of one side whose keys have gained or lost their partners at this instant as a whole.

    `leaving` and `joining` are the other side's tuples that end and start now, `coming` the side's own new tuples. A
    partner that ends and another that starts at one instant are not a change. A tuple that has a partner at least up to its
    own end for certain (`reach`) gets a row with a known end.
    """
    theirs = RIGHT - side
    for position in range(len(leaving) + len(joining)):
        partner = leaving[position] if position < len(leaving) else joining[position - len(leaving)]
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
            rows = _reserve(rows, count, wanted)
        else:
            closed = _reserve(closed, closing, wanted)
        slot = book[key, side + FIRST]
        while slot >= 0:
            if starts[slot] != now:
                if showing:
                    end = nodes[slot].end
                    sure = rule == ACCOMPANIED and end <= reach[key]
                    count = _show(slot, side, now, end if sure else OPEN, shown, rows, count)
                else:
                    closing = _hide(slot, side, now, shown, rows, closed, closing)
            slot = nodes[slot].next
    rows = _reserve(rows, count, len(coming))
    for slot in coming:
        key = nodes[slot].key
        there = 1 if key >= 0 and book[key, theirs + COUNT] > 0 else 0
        if (there == 1) == (rule == ACCOMPANIED):
            end = nodes[slot].end
            sure = key < 0 or (rule == ACCOMPANIED and end <= reach[key])
            count = _show(slot, side, now, end if sure else OPEN, shown, rows, count)
    return rows, count, closed, closing


@compiled(
    types.Tuple((_lines, _lines, _flag)),
    *(_nodes, _readonly, _lines, _readonly, _readonly, _i64) * 2,
    *(_line, _i64, _i64, _short_lines, _line, _flag, _i64),
)
def sweep_outer(
    left_nodes: Any, left_starts: Any, left_shown: Any, new_left: Any, gone_left: Any, left_rule: int,
    right_nodes: Any, right_starts: Any, right_shown: Any, new_right: Any, gone_right: Any, right_rule: int,
    cursor: Any, clock: int, limit: int, book: Any, reach: Any, paired: bool, expected: int,
) -> Any:  # fmt: skip
    """Join by key where tuples may be shown by themselves: go through a step in time order, ends before starts.

    Emits pairs only if `paired`. Returns rows, ends of earlier rows, and whether the step is finished. It returns early,
    between two instants, once there are more rows than `limit`; the next call continues at the cursor. With rules other
    than NEVER there must be no limit, since rows of the step may still get their ends. `expected` rows have room.
    """
    at_left, at_right, out_left, out_right = cursor[0], cursor[1], cursor[2], cursor[3]
    rows, closed = np.empty((expected, 4), np.int64), np.empty((16, 4), np.int64)
    count = closing = 0
    done = True
    while True:
        now = _next_instant(
            new_left, left_starts, at_left, gone_left, left_nodes, out_left,
            new_right, right_starts, at_right, gone_right, right_nodes, out_right,
        )  # fmt: skip
        if now == _LATEST:
            break
        if count > limit:
            done = False
            break
        was_left, was_right, was_out_left, was_out_right = at_left, at_right, out_left, out_right
        out_left, closed, closing = _process_ends(
            gone_left, out_left, left_nodes, left_shown, 0, left_rule, now, book, rows, closed, closing
        )
        out_right, closed, closing = _process_ends(
            gone_right, out_right, right_nodes, right_shown, RIGHT, right_rule, now, book, rows, closed, closing
        )
        # The right side first: with one tuple on each side, pairs are then found in the order of (left, right).
        at_right, rows, count = _process_starts(
            new_right,
            at_right,
            right_nodes,
            right_starts,
            left_nodes,
            RIGHT,
            paired,
            now,
            clock,
            book,
            reach,
            rows,
            count,
        )
        at_left, rows, count = _process_starts(
            new_left, at_left, left_nodes, left_starts, right_nodes, 0, paired, now, clock, book, reach, rows, count
        )
        if left_rule != NEVER:
            rows, count, closed, closing = _update_singles(
                0, left_rule, now, gone_right[was_out_right:out_right], new_right[was_right:at_right],
                new_left[was_left:at_left], left_nodes, right_nodes, left_starts, book, reach, left_shown,
                rows, count, closed, closing,
            )  # fmt: skip
        if right_rule != NEVER:
            rows, count, closed, closing = _update_singles(
                RIGHT, right_rule, now, gone_left[was_out_left:out_left], new_left[was_left:at_left],
                new_right[was_right:at_right], right_nodes, left_nodes, right_starts, book, reach, right_shown,
                rows, count, closed, closing,
            )  # fmt: skip
    cursor[0], cursor[1], cursor[2], cursor[3] = at_left, at_right, out_left, out_right
    return rows[:count], closed[:closing], done


# ---------------------------------------------------------------------------------------------------- inner joins by key


@njit(inline="always")
def _time(times: Any, at: Any) -> Any:
    """Return the time at a position, or _LATEST behind the last one."""
    return times[at] if at < len(times) else _LATEST


@njit(_nrt=False, forceinline=True)
def _depart(nodes: Any, gone: Any, at: Any, book: Any, side: Any, emptied: Any, count: Any) -> Any:
    """Remove a tuple from its chain; vacate its slot if `emptied` has room. Returns the number of keys in `emptied`."""
    if at + 2 * _AHEAD < len(gone.slots):
        prefetch(nodes, gone.slots[at + 2 * _AHEAD])
        prefetch(book, max(nodes[gone.slots[at + _AHEAD]].key, 0))
    _unlink(nodes, book, side, gone.slots[at])
    if len(emptied) > 0:
        count = _vacate(nodes, book, gone.slots[at], emptied, count)
    return count


@njit(_nrt=False, forceinline=True)
def _has_room(new: Any, at: Any, book: Any, theirs: Any, rows: Any, count: Any) -> Any:
    """Return whether `rows` has room for the pairs of a new tuple."""
    if at + _AHEAD < len(new.slots):
        prefetch(book, max(new.keys[at + _AHEAD], 0))
    return new.keys[at] < 0 or count + book[new.keys[at], theirs + COUNT] <= len(rows.left)


@njit(_nrt=False, forceinline=True)
def _arrive(
    new: Any, at: Any, side: Any, clock: Any, nodes: Any, others: Any, book: Any, rows: Any, count: Any,
    opens: Any, tied: Any, last: Any,
) -> Any:  # fmt: skip
    """Place a new tuple, append its pairs to the rows, and link it to its chain.

    `last` is (start, left id, right id) of the last row. Returns the number of rows, how many ends are open, whether rows
    of one start are out of the order of ids, and the new `last`.
    """
    slot, mine, id, key, now = new.slots[at], new.ends[at], new.ids[at], new.keys[at], new.starts[at]
    _place(nodes, slot, mine, id, key)
    if key >= 0:
        other = book[key, RIGHT - side + FIRST]
        while other >= 0:
            end, later = min(mine, others[other].end), max(mine, others[other].end)
            if later == OPEN and end >= clock:
                end = OPEN
                opens += 1
            rows.left[count] = slot if side == 0 else other
            rows.right[count] = other if side == 0 else slot
            rows.starts[count] = now
            rows.ends[count] = end
            left_id, right_id = (id, others[other].id) if side == 0 else (others[other].id, id)
            if last[0] == now and (last[1] > left_id or (last[1] == left_id and last[2] > right_id)):
                tied = np.int64(1)
            last = (now, left_id, right_id)
            count += 1
            other = others[other].next
        _link(nodes, book, side, slot)
    return count, opens, tied, last


@compiled(
    types.Tuple((_i64, _flag)),
    *(_readonly, _readonly, _readonly, _readonly, _readonly) * 2,
    *(_readonly, _readonly) * 2,
    *(_line, _i64, _nodes, _nodes, _short_lines, _line),
    *(_line, _line, _line, _line, _i64),
    _nrt=False,
)
def sweep_inner(
    left_slots: Any, left_starts: Any, left_ends: Any, left_ids: Any, left_keys: Any,
    right_slots: Any, right_starts: Any, right_ends: Any, right_ids: Any, right_keys: Any,
    gone_left_slots: Any, gone_left_ends: Any, gone_right_slots: Any, gone_right_ends: Any,
    cursor: Any, clock: int, left: Any, right: Any, book: Any, emptied: Any,
    lefts: Any, rights: Any, starts: Any, ends: Any, count: int,
) -> Any:  # fmt: skip
    """Join by key where no tuple is ever shown by itself; return the number of rows and whether the step is finished.

    Initialises the records of new tuples and, if `emptied` has room, vacates the slots of those that leave. The rows are
    appended to four columns, which hold `count` already. If a tuple's pairs find no room, the loop returns and the next
    call continues with that tuple at the cursor. The cursor also counts open ends and emptied keys, and says whether rows
    of one start are out of the order of ids. The loop allocates nothing, so that Numba does not have to count references;
    that would cost more than the sweep.
    """
    new_left = Arrivals(left_slots, left_starts, left_ends, left_ids, left_keys)
    new_right = Arrivals(right_slots, right_starts, right_ends, right_ids, right_keys)
    gone_left, gone_right = Departures(gone_left_slots, gone_left_ends), Departures(gone_right_slots, gone_right_ends)
    rows = Columns(lefts, rights, starts, ends)
    at_left, at_right, out_left, out_right = cursor[0], cursor[1], cursor[2], cursor[3]
    opens, tied, keys = cursor[OPENS], cursor[ARE_TIED], cursor[EMPTIED]
    last = (cursor[7], cursor[8], cursor[9])
    leaves_left, leaves_right = _time(gone_left.ends, out_left), _time(gone_right.ends, out_right)
    comes_left, comes_right = _time(new_left.starts, at_left), _time(new_right.starts, at_right)
    done = True
    while True:
        leaving, coming = min(leaves_left, leaves_right), min(comes_left, comes_right)
        if leaving <= coming:
            if leaving == _LATEST:
                break
            if leaves_left <= leaves_right:
                keys = _depart(left, gone_left, out_left, book, 0, emptied, keys)
                out_left += 1
                leaves_left = _time(gone_left.ends, out_left)
            else:
                keys = _depart(right, gone_right, out_right, book, RIGHT, emptied, keys)
                out_right += 1
                leaves_right = _time(gone_right.ends, out_right)
        elif (
            comes_right <= comes_left
        ):  # with one tuple on each side, pairs are then found in the order of (left, right)
            if not _has_room(new_right, at_right, book, 0, rows, count):
                done = False
                break
            count, opens, tied, last = _arrive(
                new_right, at_right, RIGHT, clock, right, left, book, rows, count, opens, tied, last
            )
            at_right += 1
            comes_right = _time(new_right.starts, at_right)
        else:
            if not _has_room(new_left, at_left, book, RIGHT, rows, count):
                done = False
                break
            count, opens, tied, last = _arrive(
                new_left, at_left, 0, clock, left, right, book, rows, count, opens, tied, last
            )
            at_left += 1
            comes_left = _time(new_left.starts, at_left)
    cursor[0], cursor[1], cursor[2], cursor[3] = at_left, at_right, out_left, out_right
    cursor[OPENS], cursor[ARE_TIED], cursor[EMPTIED] = opens, tied, keys
    cursor[7], cursor[8], cursor[9] = last[0], last[1], last[2]
    return count, done


# ---------------------------------------------------------------------------------------------------- kept pairs


@njit(inline="always")
def _number(lines: Any, line: Any) -> Any:
    """Return the number of a pair, complemented if its end is not reported."""
    return (np.int64(lines[line, UPPER]) << 32) | (np.int64(lines[line, LOWER]) & _LOWER_HALF)


@njit(inline="always")
def _link_pair(line: Any, lines: Any, nodes: Any, side: Any) -> None:
    """Put a pair before the other pairs of its tuple on one side (0 or 1)."""
    slot = lines[line, TUPLE + side]
    first = nodes[slot].pair
    lines[line, 2 * side + AFTER] = first
    lines[line, 2 * side + BEFORE] = -1
    if first >= 0:
        lines[first, 2 * side + BEFORE] = line
    nodes[slot].pair = line


@njit(inline="always")
def _unlink_pair(line: Any, lines: Any, nodes: Any, side: Any) -> None:
    """Remove a pair from the pairs of its tuple on one side (0 or 1)."""
    after, before = lines[line, 2 * side + AFTER], lines[line, 2 * side + BEFORE]
    if before < 0:
        nodes[lines[line, TUPLE + side]].pair = after
    else:
        lines[before, 2 * side + AFTER] = after
    if after >= 0:
        lines[after, 2 * side + BEFORE] = before


@njit(_nrt=False, forceinline=True)
def _remove_pair(line: Any, lines: Any, free: Any, left: Any, right: Any) -> None:
    """Remove a pair from both of its tuples and free its line, whose content stays readable except for AFTER."""
    _unlink_pair(line, lines, left, 0)
    _unlink_pair(line, lines, right, 1)
    lines[line, AFTER] = free[0]
    free[0] = line
    free[2] -= 1


@njit(_nrt=False, forceinline=True)
def _add_pair(
    slot: Any, other: Any, number: Any, reports_end: Any, lines: Any, free: Any, left: Any, right: Any
) -> None:
    """Keep a pair of a left and a right tuple, by their slots. The pool must have room."""
    line = free[0]
    if line >= 0:
        free[0] = lines[line, AFTER]
    else:
        line = free[1]
        free[1] += 1
    free[2] += 1
    stored = number if reports_end else ~number
    lines[line, TUPLE] = slot
    lines[line, TUPLE + 1] = other
    lines[line, LOWER] = stored & _LOWER_HALF
    lines[line, UPPER] = stored >> 32
    _link_pair(line, lines, left, 0)
    _link_pair(line, lines, right, 1)


@compiled(_none, _readonly, _readonly, _readonly, _flag, _short_lines, _line, _nodes, _nodes, _lines, _lines, _flag)
def add_pairs(
    lefts: Any, rights: Any, numbers: Any, paired: bool, lines: Any, free: Any,
    left: Any, right: Any, left_shown: Any, right_shown: Any, counted: bool,
) -> None:  # fmt: skip
    """Keep live pairs, by the slots of their tuples; if `counted`, they count as partners from now on.

    If pairs are results (`paired`), an open end is reported when it is known. The pool must have room.
    """
    for at in range(len(lefts)):
        is_open = left[lefts[at]].end == OPEN or right[rights[at]].end == OPEN
        _add_pair(lefts[at], rights[at], numbers[at], paired and is_open, lines, free, left, right)
        if counted:
            left_shown[lefts[at], PARTNERS] += 1
            right_shown[rights[at], PARTNERS] += 1


@compiled(
    types.UniTuple(_i64, 2),
    *(_readonly, _readonly, _readonly, _readonly, _short_lines, _line, _nodes, _nodes, _line, _line, _line),
    _nrt=False,
)
def add_open_rows(
    lefts: Any, rights: Any, ends: Any, numbers: Any, lines: Any, free: Any, left: Any, right: Any,
    kept_left: Any, kept_right: Any, kept_number: Any,
) -> Any:  # fmt: skip
    """Keep the pairs with an open end among the rows, to report their ends later. The pool must have room.

    The last three arrays get the ids of their tuples and their numbers. Returns how many there are, and the latest instant
    up to which one of them can live.
    """
    count = 0
    latest = -_LATEST
    for at in range(len(ends)):
        if ends[at] == OPEN and lefts[at] >= 0 and rights[at] >= 0:
            _add_pair(lefts[at], rights[at], numbers[at], True, lines, free, left, right)
            kept_left[count] = left[lefts[at]].id
            kept_right[count] = right[rights[at]].id
            kept_number[count] = numbers[at]
            count += 1
            latest = max(latest, min(left[lefts[at]].end, right[rights[at]].end))
    return count, latest


@compiled(_none, _readonly, _i64, _short_lines, _line, _nodes, _nodes, _lines, _lines, _flag)
def drop_pairs(
    slots: Any, side: int, lines: Any, free: Any, left: Any, right: Any, left_shown: Any, right_shown: Any,
    counted: bool,
) -> None:  # fmt: skip
    """Remove the pairs of tuples (of side 0 or 1) that ended before this step."""
    for slot in slots:
        line = left[slot].pair if side == 0 else right[slot].pair
        while line >= 0:
            after = lines[line, 2 * side + AFTER]
            _remove_pair(line, lines, free, left, right)
            if counted:
                left_shown[lines[line, TUPLE], PARTNERS] -= 1
                right_shown[lines[line, TUPLE + 1], PARTNERS] -= 1
            line = after


@njit(inline="always")
def _prefetch_pairs(nodes: Any, gone: Any, at: Any, lines: Any) -> None:
    """Prefetch the nodes and first pairs of tuples that leave soon."""
    if at + 2 * _AHEAD < len(gone):
        prefetch(nodes, gone[at + 2 * _AHEAD])
        prefetch(lines, max(nodes[gone[at + _AHEAD]].pair, 0))


@compiled(_i64, _readonly, _readonly, _nodes, _nodes, _short_lines, _line, _lines, _nrt=False)
def end_pairs(gone_left: Any, gone_right: Any, left: Any, right: Any, lines: Any, free: Any, closed: Any) -> Any:
    """Remove the pairs of tuples that leave in this step, put their ends into `closed` in time order, and return how many.

    `closed` must have room for all kept pairs.
    """
    closing = at_left = at_right = 0
    while at_left < len(gone_left) or at_right < len(gone_right):
        leaves_left = left[gone_left[at_left]].end if at_left < len(gone_left) else _LATEST
        leaves_right = right[gone_right[at_right]].end if at_right < len(gone_right) else _LATEST
        if leaves_left <= leaves_right:
            side, now, line = 0, leaves_left, left[gone_left[at_left]].pair
            at_left += 1
            _prefetch_pairs(left, gone_left, at_left, lines)
        else:
            side, now, line = 1, leaves_right, right[gone_right[at_right]].pair
            at_right += 1
            _prefetch_pairs(right, gone_right, at_right, lines)
        while line >= 0:
            after = lines[line, 2 * side + AFTER]
            _remove_pair(line, lines, free, left, right)
            closing = _append_end(_number(lines, line), now, -1, -1, closed, closing)
            line = after
    return closing


# ---------------------------------------------------------------------------------------------------- residual predicates


@njit
def _end_pairs_of(
    slot: Any, side: Any, now: Any, lines: Any, free: Any, left: Any, right: Any, left_shown: Any, right_shown: Any,
    closed: Any, closing: Any, touched: Any, touching: Any,
) -> Any:  # fmt: skip
    """Remove the pairs of a tuple (of side 0 or 1) that leaves now; their other tuples are appended to `touched`."""
    line = left[slot].pair if side == 0 else right[slot].pair
    while line >= 0:
        after = lines[line, 2 * side + AFTER]
        _remove_pair(line, lines, free, left, right)
        left_shown[lines[line, TUPLE], PARTNERS] -= 1
        right_shown[lines[line, TUPLE + 1], PARTNERS] -= 1
        if _number(lines, line) >= 0:
            closed = _reserve(closed, closing, 1)
            closing = _append_end(_number(lines, line), now, -1, -1, closed, closing)
        touched = _reserve(touched, touching, 1)
        touched[touching, 0] = lines[line, TUPLE + 1 - side]
        touched[touching, 1] = 1 - side
        touching += 1
        line = after
    return closed, closing, touched, touching


@njit
def _update_single(
    slot: Any, side: Any, rule: Any, now: Any, nodes: Any, shown: Any, rows: Any, count: Any, closed: Any, closing: Any
) -> Any:
    """Show or hide a tuple according to its number of partners at this instant."""
    if rule != NEVER and nodes[slot].end > now:
        wanted = (shown[slot, PARTNERS] > 0) == (rule == ACCOMPANIED)
        if wanted and not _is_shown(slot, shown):
            rows = _reserve(rows, count, 1)
            count = _show(slot, side, now, nodes[slot].end if nodes[slot].key < 0 else OPEN, shown, rows, count)
        elif not wanted:
            closed = _reserve(closed, closing, 1)
            closing = _hide(slot, side, now, shown, rows, closed, closing)
    return rows, count, closed, closing


@compiled(
    types.Tuple((_lines, _lines)),
    *(_nodes, _readonly, _lines, _readonly, _readonly, _i64) * 2,
    *(_lines, _readonly, _short_lines, _line, _flag),
)
def sweep_residual(
    left_nodes: Any, left_starts: Any, left_shown: Any, new_left: Any, gone_left: Any, left_rule: int,
    right_nodes: Any, right_starts: Any, right_shown: Any, new_right: Any, gone_right: Any, right_rule: int,
    pairs: Any, numbers: Any, lines: Any, free: Any, paired: bool,
) -> Any:  # fmt: skip
    """Go through a step in time order with pairs that satisfied a residual predicate (lines like rows, by start).

    Keeps the live pairs and counts the partners of every tuple. Returns the rows that show tuples by themselves and the
    ends of earlier rows; ends of pairs are among these only if pairs are results (`paired`). The pool must have room for
    all pairs.
    """
    rows, closed, touched = np.empty((16, 4), np.int64), np.empty((16, 4), np.int64), np.empty((16, 2), np.int64)
    count = closing = at_left = at_right = out_left = out_right = at = 0
    while True:
        now = _next_instant(
            new_left, left_starts, at_left, gone_left, left_nodes, out_left,
            new_right, right_starts, at_right, gone_right, right_nodes, out_right,
        )  # fmt: skip
        if now == _LATEST:
            break
        touching = 0
        while out_left < len(gone_left) and left_nodes[gone_left[out_left]].end == now:
            closed, closing, touched, touching = _end_pairs_of(
                gone_left[out_left], 0, now, lines, free, left_nodes, right_nodes, left_shown, right_shown,
                closed, closing, touched, touching,
            )  # fmt: skip
            closed = _reserve(closed, closing, 1)
            closing = _hide(gone_left[out_left], 0, now, left_shown, rows, closed, closing)
            out_left += 1
        while out_right < len(gone_right) and right_nodes[gone_right[out_right]].end == now:
            closed, closing, touched, touching = _end_pairs_of(
                gone_right[out_right], 1, now, lines, free, left_nodes, right_nodes, left_shown, right_shown,
                closed, closing, touched, touching,
            )  # fmt: skip
            closed = _reserve(closed, closing, 1)
            closing = _hide(gone_right[out_right], RIGHT, now, right_shown, rows, closed, closing)
            out_right += 1
        while at < len(pairs) and pairs[at, 2] == now:
            reports_end = paired and pairs[at, 3] == OPEN
            _add_pair(pairs[at, 0], pairs[at, 1], numbers[at], reports_end, lines, free, left_nodes, right_nodes)
            left_shown[pairs[at, 0], PARTNERS] += 1
            right_shown[pairs[at, 1], PARTNERS] += 1
            touched = _reserve(touched, touching, 2)
            touched[touching, 0], touched[touching, 1] = pairs[at, 0], 0
            touched[touching + 1, 0], touched[touching + 1, 1] = pairs[at, 1], 1
            touching += 2
            at += 1
        while at_left < len(new_left) and left_starts[new_left[at_left]] == now:
            rows, count, closed, closing = _update_single(
                new_left[at_left], 0, left_rule, now, left_nodes, left_shown, rows, count, closed, closing
            )
            at_left += 1
        while at_right < len(new_right) and right_starts[new_right[at_right]] == now:
            rows, count, closed, closing = _update_single(
                new_right[at_right], RIGHT, right_rule, now, right_nodes, right_shown, rows, count, closed, closing
            )
            at_right += 1
        for position in range(touching):
            slot = touched[position, 0]
            if touched[position, 1] == 0:
                rows, count, closed, closing = _update_single(
                    slot, 0, left_rule, now, left_nodes, left_shown, rows, count, closed, closing
                )
            else:
                rows, count, closed, closing = _update_single(
                    slot, RIGHT, right_rule, now, right_nodes, right_shown, rows, count, closed, closing
                )
    return rows[:count], closed[:closing]


# ---------------------------------------------------------------------------------------------------- order


@compiled(_lines, types.Array(_i64, 2, "C", readonly=True))
def to_columns(rows: Any) -> Any:
    """Transpose rows into their four columns."""
    columns = np.empty((4, len(rows)), np.int64)
    for at in range(len(rows)):
        for part in range(4):
            columns[part, at] = rows[at, part]
    return columns


@njit
def _precedes(lines: Any, one: Any, other: Any) -> Any:
    return lines[one, 0] < lines[other, 0] or (lines[one, 0] == lines[other, 0] and lines[one, 1] <= lines[other, 1])


@njit
def _run_end(lines: Any, at: Any, stop: Any) -> Any:
    """Return the end of the sorted run that begins at a line."""
    at += 1
    while at < stop and _precedes(lines, at - 1, at):
        at += 1
    return at


@njit
def _merge_sort(lines: Any, spare: Any, count: Any) -> Any:
    """Sort lines by their first two numbers and return one of the two tables.

    Neighbouring runs are merged until one is left; what a probe emits is a run already.
    """
    while _run_end(lines, 0, count) < count:
        put = 0
        while put < count:
            left, middle = put, _run_end(lines, put, count)
            right, end = middle, _run_end(lines, middle, count) if middle < count else count
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


@compiled(_line, _readonly, _readonly, _readonly)
def order_ties(times: Any, ones: Any, twos: Any) -> Any:
    """Return the order by (time, one, two) of lines that are in time order; empty if they are in that order already."""
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
            lines, spare = _reserve(lines, 0, stop - begin), _reserve(spare, 0, stop - begin)
            for at in range(begin, stop):
                lines[at - begin, 0], lines[at - begin, 1], lines[at - begin, 2] = ones[at], twos[at], at
            ordered = _merge_sort(lines, spare, stop - begin)
            for at in range(begin, stop):
                order[at] = ordered[at - begin, 2]
        begin = stop
    return order
