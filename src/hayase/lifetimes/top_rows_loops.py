"""Compiled loops of `hayase.lifetimes.top_rows`, compiled on import (see `hayase.core.machine_code`).

The live tuples of a group are in four zones, one after the other: the rows that OFFSET skips, those that are shown, those that
are shown because they tie with the last of these, and the rest. The first three are in a treap, ordered by keys and ids, and in a
list in the same order; of the rest, which a pairing heap holds, only the first must be known. A tuple that comes or goes moves at
most one tuple over each border; only ties move together. If no tuple ever ends, the rest is not kept: it goes into a chain of
tuples to drop.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hayase.core import loop_types as types
from hayase.core.machine_code import compiled, njit
from hayase.core.times import END
from hayase.lifetimes.top_rows import (
    CHAIN,
    CLOSED,
    COPY,
    DROPPED,
    ENDED,
    HEAP,
    NOW,
    OPENED,
    REST,
    SHOW,
    SHOWN,
    SHOWN_LAST,
    SKIP,
    SKIPPED,
    SKIPPED_LAST,
    STARTED,
    TIE,
    UNTOUCHED,
    ZONE,
)
from hayase.lifetimes.treaps import FIRST, HEAD, LEFT, NEXT, NONE, PARENT, PREVIOUS, RIGHT, SHORT
from hayase.lifetimes.treaps_loops import insert, is_before, remove

__all__ = ["dropped_slots", "place", "sweep"]

_i64, _i32, _u8, _flag, _none = types.int64, types.int32, types.uint8, types.boolean, types.void
_line, _grid = _i64[::1], _i64[:, ::1]


def _readonly(kind: Any) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


_KEYS = (_i64[::1], _i32[::1], _u8[::1], _i32[::1], _i64[::1])
"""The cells, lengths and arena of the keys (`slot_columns.Texts`), the bytes of listed columns, and the ids; by slot."""


@njit(_nrt=False)
def _is_tied(nodes: Any, cells: Any, arena: Any, listed: Any, one: Any, other: Any) -> Any:
    """Return whether two tuples are equal in the listed columns."""
    size = listed[one]
    if size != listed[other]:
        return False
    differing = np.uint64(nodes[one, HEAD] ^ nodes[other, HEAD])
    if size < SHORT:
        return size == 0 or differing >> np.uint64(8 * (SHORT - size)) == 0
    if differing != 0:
        return False
    for byte in range(SHORT, size):  # noqa: SIM110  (Numba knows no generator here)
        if arena[cells[one] + byte] != arena[cells[other] + byte]:
            return False
    return True


@njit(_nrt=False)
def _join(nodes: Any, cells: Any, lengths: Any, arena: Any, ids: Any, one: Any, other: Any) -> Any:
    """Join two heaps and return the root. In a heap, LEFT is a node's first child, RIGHT its next sibling, and PARENT its
    previous sibling or, for a first child, its parent."""
    if is_before(nodes, cells, lengths, arena, ids, other, one):
        one, other = other, one
    child = nodes[one, LEFT]
    nodes[other, RIGHT] = child
    if child != NONE:
        nodes[child, PARENT] = other
    nodes[other, PARENT] = one
    nodes[one, LEFT] = other
    return one


@njit(_nrt=False)
def _join_children(nodes: Any, cells: Any, lengths: Any, arena: Any, ids: Any, slot: Any) -> Any:
    """Join the children of a node, first in pairs, then the pairs from the last to the first; return the root."""
    at, pairs = nodes[slot, LEFT], NONE
    while at != NONE:
        one, other = at, nodes[at, RIGHT]
        at = NONE
        if other != NONE:
            at = nodes[other, RIGHT]
            one = _join(nodes, cells, lengths, arena, ids, one, other)
        nodes[one, RIGHT] = pairs
        pairs = one
    root = NONE
    while pairs != NONE:
        following = nodes[pairs, RIGHT]
        root = pairs if root == NONE else _join(nodes, cells, lengths, arena, ids, root, pairs)
        pairs = following
    if root != NONE:
        nodes[root, RIGHT] = nodes[root, PARENT] = NONE
    return root


@njit(_nrt=False)
def _push(nodes: Any, groups: Any, group: Any, cells: Any, lengths: Any, arena: Any, ids: Any, slot: Any) -> None:
    """Add a tuple to the heap of its group."""
    nodes[slot, LEFT] = nodes[slot, RIGHT] = nodes[slot, PARENT] = NONE
    root = groups[group, HEAP]
    groups[group, HEAP] = slot if root == NONE else _join(nodes, cells, lengths, arena, ids, root, slot)


@njit(_nrt=False)
def _pull(nodes: Any, groups: Any, group: Any, cells: Any, lengths: Any, arena: Any, ids: Any, slot: Any) -> None:
    """Remove a tuple from the heap of its group."""
    joined = _join_children(nodes, cells, lengths, arena, ids, slot)
    if groups[group, HEAP] == slot:
        groups[group, HEAP] = joined
        return
    before, after = nodes[slot, PARENT], nodes[slot, RIGHT]
    nodes[before, LEFT if nodes[before, LEFT] == slot else RIGHT] = after
    if after != NONE:
        nodes[after, PARENT] = before
    if joined != NONE:
        groups[group, HEAP] = _join(nodes, cells, lengths, arena, ids, groups[group, HEAP], joined)


@njit(_nrt=False)
def _put_aside(
    nodes: Any, groups: Any, group: Any, cells: Any, lengths: Any, arena: Any, ids: Any, lasting: Any, state: Any, slot: Any
) -> None:  # fmt: skip
    """Put a tuple behind those that are shown: into the heap of its group or, if all last, into the chain of those to drop."""
    if lasting:
        nodes[slot, NEXT] = state[DROPPED]
        state[DROPPED] = slot
    else:
        _push(nodes, groups, group, cells, lengths, arena, ids, slot)


@njit(inline="always", _nrt=False)
def _is_shown(zone: Any) -> Any:
    return SHOW <= zone <= TIE


@njit(_nrt=False)
def _move(nodes: Any, touched: Any, state: Any, slot: Any, zone: Any) -> None:
    """Put a tuple into a zone. If that shows or hides it, note it in the chain of touched tuples."""
    was_shown = _is_shown(nodes[slot, ZONE])
    nodes[slot, ZONE] = zone
    if was_shown != _is_shown(zone) and touched[slot] == UNTOUCHED:
        touched[slot] = state[CHAIN]
        state[CHAIN] = slot


@njit(_nrt=False)
def _enter(
    nodes: Any, groups: Any, group: Any, cells: Any, lengths: Any, arena: Any, listed: Any, ids: Any,
    limit: Any, offset: Any, ties: Any, lasting: Any, touched: Any, state: Any, slot: Any,
) -> None:  # fmt: skip
    """Add a tuple, and move at most one tuple over each border of its group's zones, and ties."""
    nodes[slot, ZONE] = REST
    last = groups[group, SHOWN_LAST]
    if groups[group, SHOWN] == limit and not is_before(nodes, cells, lengths, arena, ids, slot, last):
        if ties and _is_tied(nodes, cells, arena, listed, last, slot):
            insert(nodes, groups, group, cells, lengths, arena, ids, slot)
            _move(nodes, touched, state, slot, TIE)
        else:
            _put_aside(nodes, groups, group, cells, lengths, arena, ids, lasting, state, slot)
        return
    insert(nodes, groups, group, cells, lengths, arena, ids, slot)
    before = nodes[slot, PREVIOUS]
    zone = nodes[before, ZONE] if before != NONE else SKIP if offset > 0 else SHOW
    _move(nodes, touched, state, slot, zone)
    if zone == SKIP:
        groups[group, SKIPPED] += 1
        if before == groups[group, SKIPPED_LAST]:
            groups[group, SKIPPED_LAST] = slot
        if groups[group, SKIPPED] <= offset:
            return
        first = groups[group, SKIPPED_LAST]
        groups[group, SKIPPED_LAST] = nodes[first, PREVIOUS]
        groups[group, SKIPPED] -= 1
        _move(nodes, touched, state, first, SHOW)
        if groups[group, SHOWN] == 0:
            groups[group, SHOWN_LAST] = first
    elif before == last:
        groups[group, SHOWN_LAST] = slot
    groups[group, SHOWN] += 1
    if groups[group, SHOWN] > limit:
        last = groups[group, SHOWN_LAST]
        remaining = nodes[last, PREVIOUS]
        groups[group, SHOWN_LAST] = remaining
        groups[group, SHOWN] -= 1
        if ties and _is_tied(nodes, cells, arena, listed, remaining, last):
            _move(nodes, touched, state, last, TIE)
            return
        while last != NONE:
            following = nodes[last, NEXT]
            remove(nodes, groups, group, last)
            _move(nodes, touched, state, last, REST)
            _put_aside(nodes, groups, group, cells, lengths, arena, ids, lasting, state, last)
            last = following


@njit(_nrt=False)
def _leave(
    nodes: Any, groups: Any, group: Any, cells: Any, lengths: Any, arena: Any, listed: Any, ids: Any,
    limit: Any, offset: Any, ties: Any, touched: Any, state: Any, slot: Any,
) -> None:  # fmt: skip
    """Remove a tuple, and move at most one tuple over each border of its group's zones, and ties."""
    zone, before = nodes[slot, ZONE], nodes[slot, PREVIOUS]
    if zone == REST:
        _pull(nodes, groups, group, cells, lengths, arena, ids, slot)
        return
    remove(nodes, groups, group, slot)
    _move(nodes, touched, state, slot, REST)
    if zone == TIE:
        return
    if zone == SHOW:
        groups[group, SHOWN] -= 1
        if groups[group, SHOWN_LAST] == slot:
            groups[group, SHOWN_LAST] = before if groups[group, SHOWN] > 0 else NONE
    else:
        groups[group, SKIPPED] -= 1
        if groups[group, SKIPPED_LAST] == slot:
            groups[group, SKIPPED_LAST] = before
        if groups[group, SHOWN] == 0:
            return
        last = groups[group, SKIPPED_LAST]
        first = nodes[last, NEXT] if last != NONE else groups[group, FIRST]
        _move(nodes, touched, state, first, SKIP)
        groups[group, SKIPPED_LAST] = first
        groups[group, SKIPPED] += 1
        groups[group, SHOWN] -= 1
        if groups[group, SHOWN] == 0:
            groups[group, SHOWN_LAST] = NONE
    last = groups[group, SHOWN_LAST] if groups[group, SHOWN] > 0 else groups[group, SKIPPED_LAST]
    more = nodes[last, NEXT] if last != NONE else groups[group, FIRST]
    was_tied = more != NONE
    if not was_tied:
        more = groups[group, HEAP]
        if more == NONE:
            return
        _pull(nodes, groups, group, cells, lengths, arena, ids, more)
        insert(nodes, groups, group, cells, lengths, arena, ids, more)
    _move(nodes, touched, state, more, SHOW)
    groups[group, SHOWN_LAST] = more
    groups[group, SHOWN] += 1
    if ties and not was_tied:
        tied = groups[group, HEAP]
        while tied != NONE and _is_tied(nodes, cells, arena, listed, more, tied):
            _pull(nodes, groups, group, cells, lengths, arena, ids, tied)
            insert(nodes, groups, group, cells, lengths, arena, ids, tied)
            _move(nodes, touched, state, tied, TIE)
            tied = groups[group, HEAP]


@compiled(
    _none, _grid, _grid, _line, *_KEYS, _i64, _i64, _flag, _flag, _line, _line, _readonly(_i64), _readonly(_i64),
    _nrt=False,
)  # fmt: skip
def place(
    nodes: Any, groups: Any, group_of: Any, cells: Any, lengths: Any, arena: Any, listed: Any, ids: Any,
    limit: Any, offset: Any, ties: Any, lasting: Any, touched: Any, state: Any, removed: Any, added: Any,
) -> None:  # fmt: skip
    """Remove and add tuples that other workers have already shown or hidden."""
    for slot in removed:
        _leave(
            nodes, groups, group_of[slot], cells, lengths, arena, listed, ids, limit, offset, ties, touched, state, slot
        )  # fmt: skip
    for slot in added:
        _enter(
            nodes, groups, group_of[slot], cells, lengths, arena, listed, ids, limit, offset, ties, lasting, touched,
            state, slot,
        )  # fmt: skip
    while state[CHAIN] != NONE:
        slot = state[CHAIN]
        state[CHAIN] = touched[slot]
        touched[slot] = UNTOUCHED


@compiled(
    _flag, _grid, _grid, _line, *_KEYS, _i64, _i64, _flag, _flag, _line, _line,
    *(_readonly(_i64),) * 4, _i64, _grid, _grid, _nrt=False,
)  # fmt: skip
def sweep(
    nodes: Any, groups: Any, group_of: Any, cells: Any, lengths: Any, arena: Any, listed: Any, ids: Any,
    limit: Any, offset: Any, ties: Any, lasting: Any, touched: Any, state: Any,
    starts: Any, started: Any, ends: Any, ended: Any, earlier: Any, opened: Any, closed: Any,
) -> Any:  # fmt: skip
    """Go through the instants of a step, as far as there is room for what appears and ends; return whether all were done.

    All ends and starts of an instant are applied before tuples are shown or hidden. `opened` gets lines of slot, start and end;
    `closed` gets lines of the copy and its end. A copy number below `earlier` is that of a copy of an earlier step; the others
    are copies opened now, in order. The positions are in `state`, and a call goes on where the last one ended.
    """
    while True:
        if state[CHAIN] == NONE:
            now = END
            if state[ENDED] < len(ends):
                now = ends[state[ENDED]]
            if state[STARTED] < len(starts):
                now = min(now, starts[state[STARTED]])
            if now == END:
                return True
            state[NOW] = now
            while state[ENDED] < len(ends) and ends[state[ENDED]] == now:
                slot = ended[state[ENDED]]
                _leave(
                    nodes, groups, group_of[slot], cells, lengths, arena, listed, ids, limit, offset, ties, touched,
                    state, slot,
                )  # fmt: skip
                state[ENDED] += 1
            while state[STARTED] < len(starts) and starts[state[STARTED]] == now:
                slot = started[state[STARTED]]
                _enter(
                    nodes, groups, group_of[slot], cells, lengths, arena, listed, ids, limit, offset, ties, lasting,
                    touched, state, slot,
                )  # fmt: skip
                state[STARTED] += 1
        while state[CHAIN] != NONE:
            if state[OPENED] == opened.shape[1] or state[CLOSED] == closed.shape[1]:
                return False
            slot = state[CHAIN]
            state[CHAIN] = touched[slot]
            touched[slot] = UNTOUCHED
            shown, copy = _is_shown(nodes[slot, ZONE]), nodes[slot, COPY]
            if shown and copy == NONE:
                nodes[slot, COPY] = earlier + state[OPENED]
                opened[0, state[OPENED]] = slot
                opened[1, state[OPENED]] = state[NOW]
                opened[2, state[OPENED]] = END
                state[OPENED] += 1
            elif not shown and copy != NONE:
                nodes[slot, COPY] = NONE
                if copy < earlier:
                    closed[0, state[CLOSED]] = copy
                    closed[1, state[CLOSED]] = state[NOW]
                    state[CLOSED] += 1
                else:
                    opened[2, copy - earlier] = state[NOW]


@compiled(_i64, _grid, _i64, _line, _nrt=False)
def dropped_slots(nodes: Any, first: Any, slots: Any) -> Any:
    """Write the slots of the chain of dropped tuples; return how many there are."""
    count = 0
    while first != NONE:
        slots[count] = first
        first = nodes[first, NEXT]
        count += 1
    return count
