"""Compiled loops of `hayase.lifetimes.asof_joins`, compiled on import (see `hayase.core.machine_code`).

The live tuples of a key are in two treaps: those of the left side by the column that is compared, those of the right side by their
order, which begins with the column that it is compared with. A left tuple meets a suffix of the right ones and shows the first of
these. A right tuple is met by a prefix of the left ones; those of them that do not meet the right tuple before it show it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hayase.core import loop_types as types
from hayase.core.machine_code import compiled, njit
from hayase.core.times import END
from hayase.lifetimes.asof_joins import (
    CHAIN,
    CLOSED,
    COPY,
    GONE,
    LEFT_ENDED,
    LEFT_STARTED,
    MATCH,
    NOW,
    OPENED,
    RIGHT_ENDED,
    RIGHT_STARTED,
    UNTOUCHED,
)
from hayase.lifetimes.treaps import FIRST, HEAD, LEFT, NEXT, NONE, PREVIOUS, RIGHT, ROOT, SHORT
from hayase.lifetimes.treaps_loops import insert, remove

__all__ = ["place", "sweep"]

_i64, _i32, _u8, _flag, _none = types.int64, types.int32, types.uint8, types.boolean, types.void
_line, _grid = _i64[::1], _i64[:, ::1]
_given = types.Array(_i64, 1, "C", readonly=True)
_SIDE = (_grid, _grid, _line, _line, _i32[::1], _u8[::1], _line)
"""The nodes, trees and groups of tuples; the cells, lengths and arena of their keys; their ids."""
_SIGN = np.uint64(1 << 63)


@njit(_nrt=False)
def _meets(
    nodes: Any, cells: Any, lengths: Any, arena: Any, right_nodes: Any, right_cells: Any, right_arena: Any,
    strict: Any, left: Any, right: Any,
) -> Any:  # fmt: skip
    """Return whether the key of a left tuple is before the beginning of a right one's key or, unless strict, equal to it.

    Neither the key of the left tuple nor that of the column in the right one is a proper prefix of the other.
    """
    one, other = np.uint64(nodes[left, HEAD]) ^ _SIGN, np.uint64(right_nodes[right, HEAD]) ^ _SIGN
    size = lengths[left]
    if size < SHORT:
        shift = np.uint64(8 * (SHORT - size))
        one, other = one >> shift, other >> shift
    if one != other:
        return one < other
    if size > SHORT:
        a, b = cells[left], right_cells[right]
        for byte in range(SHORT, size):
            if arena[a + byte] != right_arena[b + byte]:
                return arena[a + byte] < right_arena[b + byte]
    return not strict


@njit(_nrt=False)
def _match(
    nodes: Any, group_of: Any, cells: Any, lengths: Any, arena: Any,
    right_nodes: Any, right_trees: Any, right_cells: Any, right_arena: Any, strict: Any, left: Any,
) -> Any:  # fmt: skip
    """Return the first right tuple that a left one meets."""
    found = NONE
    if group_of[left] == NONE:
        return found
    at = right_trees[group_of[left], ROOT]
    while at != NONE:
        if _meets(nodes, cells, lengths, arena, right_nodes, right_cells, right_arena, strict, left, at):
            found, at = at, right_nodes[at, LEFT]
        else:
            at = right_nodes[at, RIGHT]
    return found


@njit(_nrt=False)
def _touch(touched: Any, state: Any, slot: Any) -> None:
    """Add a left tuple to the chain of those whose match may have changed at this instant."""
    if touched[slot] == UNTOUCHED:
        touched[slot] = state[CHAIN]
        state[CHAIN] = slot


@njit(_nrt=False)
def _touch_range(
    nodes: Any, trees: Any, cells: Any, lengths: Any, arena: Any,
    right_nodes: Any, right_cells: Any, right_arena: Any, strict: Any, touched: Any, state: Any, group: Any, right: Any,
) -> None:  # fmt: skip
    """Touch the left tuples that show a right one: those that meet it, but not the one before it."""
    before = right_nodes[right, PREVIOUS]
    first = trees[group, FIRST]
    if before != NONE:
        first = NONE
        at = trees[group, ROOT]
        while at != NONE:
            if _meets(nodes, cells, lengths, arena, right_nodes, right_cells, right_arena, strict, at, before):
                at = nodes[at, RIGHT]
            else:
                first, at = at, nodes[at, LEFT]
    while first != NONE and _meets(
        nodes, cells, lengths, arena, right_nodes, right_cells, right_arena, strict, first, right
    ):
        _touch(touched, state, first)
        first = nodes[first, NEXT]


@njit(_nrt=False)
def _enter_left(
    nodes: Any, trees: Any, group_of: Any, cells: Any, lengths: Any, arena: Any, ids: Any,
    touched: Any, state: Any, slot: Any,
) -> None:  # fmt: skip
    nodes[slot, MATCH] = nodes[slot, COPY] = NONE
    if group_of[slot] != NONE:
        insert(nodes, trees, group_of[slot], cells, lengths, arena, ids, slot)
    _touch(touched, state, slot)


@njit(_nrt=False)
def _leave_left(nodes: Any, trees: Any, group_of: Any, touched: Any, state: Any, slot: Any) -> None:
    nodes[slot, MATCH] = GONE
    if group_of[slot] != NONE:
        remove(nodes, trees, group_of[slot], slot)
    _touch(touched, state, slot)


@compiled(_none, *_SIDE, *_SIDE, _flag, _line, _line, _given, _given, _given, _given, _nrt=False)
def place(
    nodes: Any, trees: Any, group_of: Any, cells: Any, lengths: Any, arena: Any, ids: Any,
    right_nodes: Any, right_trees: Any, right_group_of: Any, right_cells: Any, right_lengths: Any, right_arena: Any,
    right_ids: Any, strict: Any, touched: Any, state: Any,
    left_removed: Any, left_added: Any, right_removed: Any, right_added: Any,
) -> None:  # fmt: skip
    """Remove and add tuples of steps that other workers have run, and note what left tuples show now."""
    for slot in left_removed:
        _leave_left(nodes, trees, group_of, touched, state, slot)
    for slot in right_removed:
        _touch_range(
            nodes, trees, cells, lengths, arena, right_nodes, right_cells, right_arena, strict, touched, state,
            right_group_of[slot], slot,
        )  # fmt: skip
        remove(right_nodes, right_trees, right_group_of[slot], slot)
    for slot in right_added:
        insert(right_nodes, right_trees, right_group_of[slot], right_cells, right_lengths, right_arena, right_ids, slot)
        _touch_range(
            nodes, trees, cells, lengths, arena, right_nodes, right_cells, right_arena, strict, touched, state,
            right_group_of[slot], slot,
        )  # fmt: skip
    for slot in left_added:
        _enter_left(nodes, trees, group_of, cells, lengths, arena, ids, touched, state, slot)
    while state[CHAIN] != NONE:
        slot = state[CHAIN]
        state[CHAIN] = touched[slot]
        touched[slot] = UNTOUCHED
        if nodes[slot, MATCH] != GONE:
            nodes[slot, MATCH] = _match(
                nodes, group_of, cells, lengths, arena, right_nodes, right_trees, right_cells, right_arena, strict, slot
            )


@njit(inline="always", _nrt=False)
def _next_instant(
    state: Any, left_starts: Any, left_ends: Any, right_starts: Any, right_ends: Any
) -> Any:  # fmt: skip
    now = END
    if state[LEFT_STARTED] < len(left_starts):
        now = min(now, left_starts[state[LEFT_STARTED]])
    if state[LEFT_ENDED] < len(left_ends):
        now = min(now, left_ends[state[LEFT_ENDED]])
    if state[RIGHT_STARTED] < len(right_starts):
        now = min(now, right_starts[state[RIGHT_STARTED]])
    if state[RIGHT_ENDED] < len(right_ends):
        now = min(now, right_ends[state[RIGHT_ENDED]])
    return now


@njit(_nrt=False)
def _show(
    nodes: Any, group_of: Any, cells: Any, lengths: Any, arena: Any,
    right_nodes: Any, right_trees: Any, right_cells: Any, right_arena: Any, strict: Any, shows_alone: Any,
    state: Any, slot: Any, earlier: Any, opened: Any, closed: Any,
) -> None:  # fmt: skip
    """Compare what a left tuple shows with what it should show, and close and open copies accordingly."""
    match, copy = NONE, nodes[slot, COPY]
    is_shown = nodes[slot, MATCH] != GONE
    if is_shown:
        match = _match(
            nodes, group_of, cells, lengths, arena, right_nodes, right_trees, right_cells, right_arena, strict, slot
        )
        is_shown = shows_alone or match != NONE
        if is_shown and copy != NONE and match == nodes[slot, MATCH]:
            return
        nodes[slot, MATCH] = match
    if copy != NONE:
        nodes[slot, COPY] = NONE
        if copy < earlier:
            closed[0, state[CLOSED]] = copy
            closed[1, state[CLOSED]] = state[NOW]
            state[CLOSED] += 1
        else:
            opened[3, copy - earlier] = state[NOW]
    if is_shown:
        nodes[slot, COPY] = earlier + state[OPENED]
        opened[0, state[OPENED]] = slot
        opened[1, state[OPENED]] = match
        opened[2, state[OPENED]] = state[NOW]
        opened[3, state[OPENED]] = END
        state[OPENED] += 1


@compiled(
    _flag, *_SIDE, *_SIDE, _flag, _flag, _line, _line, *(_given,) * 8, _i64, _grid, _grid, _nrt=False
)  # fmt: skip
def sweep(
    nodes: Any, trees: Any, group_of: Any, cells: Any, lengths: Any, arena: Any, ids: Any,
    right_nodes: Any, right_trees: Any, right_group_of: Any, right_cells: Any, right_lengths: Any, right_arena: Any,
    right_ids: Any, strict: Any, shows_alone: Any, touched: Any, state: Any,
    left_starts: Any, left_started: Any, left_ends: Any, left_ended: Any,
    right_starts: Any, right_started: Any, right_ends: Any, right_ended: Any,
    earlier: Any, opened: Any, closed: Any,
) -> Any:  # fmt: skip
    """Go through the instants of a step, as far as there is room for what appears and ends; return whether all were done.

    All ends and starts of an instant are applied before anything is compared. `opened` gets lines of left slot, right slot (NONE:
    none), start and end; `closed` gets lines of the copy and its end. A copy number below `earlier` is that of a copy of an
    earlier step; the others are copies opened now, in order. The positions are in `state`; a call continues the one before.
    """
    while True:
        if state[CHAIN] == NONE:
            now = _next_instant(state, left_starts, left_ends, right_starts, right_ends)
            if now == END:
                return True
            state[NOW] = now
            while state[LEFT_ENDED] < len(left_ends) and left_ends[state[LEFT_ENDED]] == now:
                _leave_left(nodes, trees, group_of, touched, state, left_ended[state[LEFT_ENDED]])
                state[LEFT_ENDED] += 1
            while state[RIGHT_ENDED] < len(right_ends) and right_ends[state[RIGHT_ENDED]] == now:
                slot = right_ended[state[RIGHT_ENDED]]
                _touch_range(
                    nodes, trees, cells, lengths, arena, right_nodes, right_cells, right_arena, strict, touched, state,
                    right_group_of[slot], slot,
                )  # fmt: skip
                remove(right_nodes, right_trees, right_group_of[slot], slot)
                state[RIGHT_ENDED] += 1
            while state[RIGHT_STARTED] < len(right_starts) and right_starts[state[RIGHT_STARTED]] == now:
                slot = right_started[state[RIGHT_STARTED]]
                insert(
                    right_nodes, right_trees, right_group_of[slot], right_cells, right_lengths, right_arena, right_ids,
                    slot,
                )  # fmt: skip
                _touch_range(
                    nodes, trees, cells, lengths, arena, right_nodes, right_cells, right_arena, strict, touched, state,
                    right_group_of[slot], slot,
                )  # fmt: skip
                state[RIGHT_STARTED] += 1
            while state[LEFT_STARTED] < len(left_starts) and left_starts[state[LEFT_STARTED]] == now:
                slot = left_started[state[LEFT_STARTED]]
                _enter_left(nodes, trees, group_of, cells, lengths, arena, ids, touched, state, slot)
                state[LEFT_STARTED] += 1
        while state[CHAIN] != NONE:
            if state[OPENED] == opened.shape[1] or state[CLOSED] == closed.shape[1]:
                return False
            slot = state[CHAIN]
            state[CHAIN] = touched[slot]
            touched[slot] = UNTOUCHED
            _show(
                nodes, group_of, cells, lengths, arena, right_nodes, right_trees, right_cells, right_arena, strict,
                shows_alone, state, slot, earlier, opened, closed,
            )  # fmt: skip
