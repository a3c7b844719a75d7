"""Compiled loops of treaps (`hayase.lifetimes.treaps`), for the loops of operators that keep tuples in order.

A tree is a line of `trees`: its root and its first node. A node is a line of `nodes`, by the slot of its tuple. The key of a
tuple is in `cells`, `lengths` and `arena` (`slot_columns.Texts`); tuples with equal keys are ordered by their ids.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hayase.core import loop_types as types
from hayase.core.machine_code import compiled, njit
from hayase.lifetimes.treaps import FIRST, HEAD, LEFT, NEXT, NONE, PARENT, PREVIOUS, RIGHT, ROOT, SHORT

__all__ = ["insert", "is_before", "read_heads", "remove"]

_i64, _i32, _u8, _none = types.int64, types.int32, types.uint8, types.void


def _readonly(kind: Any) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


@compiled(_none, _readonly(_i32), _readonly(_u8), _i64[::1], _nrt=False)
def read_heads(ends: Any, letters: Any, heads: Any) -> None:
    """Write the first eight bytes of every key as a number that compares as the bytes do."""
    for row in range(len(heads)):
        word = np.uint64(0)
        for byte in range(SHORT):
            at = ends[row] + byte
            word = (word << np.uint64(8)) | np.uint64(letters[at] if at < ends[row + 1] else 0)
        heads[row] = np.int64(word ^ np.uint64(1 << 63))


@njit(inline="always", _nrt=False)
def _priority(slot: Any) -> Any:
    """Return a number that looks random, by which the treap is a heap."""
    word = (np.uint64(slot) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    return (word ^ (word >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)


@njit(_nrt=False)
def is_before(nodes: Any, cells: Any, lengths: Any, arena: Any, ids: Any, one: Any, other: Any) -> Any:
    """Return whether a tuple comes before another one. Keys of up to eight bytes are equal if their heads are."""
    if nodes[one, HEAD] != nodes[other, HEAD]:
        return nodes[one, HEAD] < nodes[other, HEAD]
    if lengths[one] > SHORT:
        a, b = cells[one], cells[other]
        for byte in range(SHORT, min(lengths[one], lengths[other])):
            if arena[a + byte] != arena[b + byte]:
                return arena[a + byte] < arena[b + byte]
    return ids[one] < ids[other]


@njit(_nrt=False)
def _rotate_up(nodes: Any, slot: Any) -> None:
    """Exchange a node of the treap with its parent."""
    parent = nodes[slot, PARENT]
    above = nodes[parent, PARENT]
    side, other = (LEFT, RIGHT) if nodes[parent, LEFT] == slot else (RIGHT, LEFT)
    inner = nodes[slot, other]
    nodes[parent, side] = inner
    if inner != NONE:
        nodes[inner, PARENT] = parent
    nodes[slot, other] = parent
    nodes[parent, PARENT] = slot
    nodes[slot, PARENT] = above
    if above != NONE:
        nodes[above, LEFT if nodes[above, LEFT] == parent else RIGHT] = slot


@njit(_nrt=False)
def insert(
    nodes: Any, trees: Any, tree: Any, cells: Any, lengths: Any, arena: Any, ids: Any, slot: Any
) -> None:  # fmt: skip
    """Add a tuple to the treap and the list of a tree."""
    nodes[slot, LEFT] = nodes[slot, RIGHT] = nodes[slot, PARENT] = NONE
    before = after = NONE
    at, side = trees[tree, ROOT], LEFT
    while at != NONE:
        nodes[slot, PARENT] = at
        if is_before(nodes, cells, lengths, arena, ids, slot, at):
            after, side = at, LEFT
        else:
            before, side = at, RIGHT
        at = nodes[at, side]
    nodes[slot, PREVIOUS], nodes[slot, NEXT] = before, after
    if before != NONE:
        nodes[before, NEXT] = slot
    else:
        trees[tree, FIRST] = slot
    if after != NONE:
        nodes[after, PREVIOUS] = slot
    parent = nodes[slot, PARENT]
    if parent != NONE:
        nodes[parent, side] = slot
        while parent != NONE and _priority(slot) < _priority(parent):
            _rotate_up(nodes, slot)
            parent = nodes[slot, PARENT]
    if parent == NONE:
        trees[tree, ROOT] = slot


@njit(_nrt=False)
def remove(nodes: Any, trees: Any, tree: Any, slot: Any) -> None:
    """Remove a tuple from the treap and the list of a tree."""
    while nodes[slot, LEFT] != NONE and nodes[slot, RIGHT] != NONE:
        left, right = nodes[slot, LEFT], nodes[slot, RIGHT]
        child = left if _priority(left) < _priority(right) else right
        _rotate_up(nodes, child)
        if nodes[child, PARENT] == NONE:
            trees[tree, ROOT] = child
    child = nodes[slot, LEFT] if nodes[slot, LEFT] != NONE else nodes[slot, RIGHT]
    parent = nodes[slot, PARENT]
    if child != NONE:
        nodes[child, PARENT] = parent
    if parent == NONE:
        trees[tree, ROOT] = child
    else:
        nodes[parent, LEFT if nodes[parent, LEFT] == slot else RIGHT] = child
    before, after = nodes[slot, PREVIOUS], nodes[slot, NEXT]
    if before != NONE:
        nodes[before, NEXT] = after
    else:
        trees[tree, FIRST] = after
    if after != NONE:
        nodes[after, PREVIOUS] = before
