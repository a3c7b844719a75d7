"""Compiled loops of the negative-tuple join, compiled on import (see `hayase.core.machine_code`).

They allocate nothing, so that Numba does not have to count references (`_nrt=False`).
"""

from __future__ import annotations

from typing import Any

from hayase.core import loop_types as types
from hayase.core.key_loops import prefetch
from hayase.core.machine_code import compiled

__all__ = ["emptied", "join"]

_AHEAD = 16
_i64, _flag = types.int64, types.boolean
_line, _grid = _i64[::1], _i64[:, ::1]


def _readonly(kind: Any) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


_HEAD, _TAIL, _LENGTH = 0, 1, 2


@compiled(
    types.UniTuple(_i64, 3),
    _grid,
    *(_readonly(_i64), _readonly(_flag), _readonly(_i64), _readonly(_i64), _line, _grid, _line) * 2,
    *(_i64, _i64, _line, _line, _line),
    _nrt=False,
)
def join(
    words: Any,
    left_time: Any, left_plus: Any, left_tag: Any, left_key: Any, left_slot: Any, left_links: Any, left_tags: Any,
    right_time: Any, right_plus: Any, right_tag: Any, right_key: Any, right_slot: Any, right_links: Any, right_tags: Any,
    i: Any, j: Any, causes: Any, lefts: Any, rights: Any,
) -> Any:  # fmt: skip
    """Process the signed rows of both sides in time order: add a plus to its side's list, remove a minus from it, and pair
    each with every row of the other side's list.

    The words of a key are the head, tail and length of its list, left then right. `links` are the next and previous slot in a
    list, `tags` the tags by slot. A plus has its slot; that of a minus is searched here, from the oldest on. Starts at rows i
    and j; returns the rows at which to continue if there was no room for all pairs, and the number of pairs (-1: a minus has
    no plus). The cause of a pair is the position of a row, those of the right after those of the left.
    """
    count = 0
    while i < len(left_time) or j < len(right_time):
        is_left = j == len(right_time) or (i < len(left_time) and left_time[i] <= right_time[j])
        if is_left:
            prefetch(words, left_key[min(i + _AHEAD, len(left_time) - 1)])
            plus, key, tag, slot, links, tags = (
                left_plus[i],
                left_key[i],
                left_tag[i],
                left_slot[i],
                left_links,
                left_tags,
            )
        else:
            prefetch(words, right_key[min(j + _AHEAD, len(right_time) - 1)])
            plus, key, tag, slot = right_plus[j], right_key[j], right_tag[j], right_slot[j]
            links, tags = right_links, right_tags
        own, other = (0, 3) if is_left else (3, 0)
        if count + words[key, other + _LENGTH] > len(causes):
            return i, j, count
        if plus:
            tags[slot] = tag
            tail = words[key, own + _TAIL]
            links[slot, 0] = -1
            links[slot, 1] = tail
            if tail < 0:
                words[key, own + _HEAD] = slot
            else:
                links[tail, 0] = slot
            words[key, own + _TAIL] = slot
            words[key, own + _LENGTH] += 1
        else:
            slot = words[key, own + _HEAD]
            while slot >= 0 and tags[slot] != tag:
                slot = links[slot, 0]
            if slot < 0:
                return i, j, -1
            after, before = links[slot, 0], links[slot, 1]
            if before < 0:
                words[key, own + _HEAD] = after
            else:
                links[before, 0] = after
            if after < 0:
                words[key, own + _TAIL] = before
            else:
                links[after, 1] = before
            words[key, own + _LENGTH] -= 1
        partner = words[key, other + _HEAD]
        if is_left:
            left_slot[i] = slot
            while partner >= 0:
                causes[count] = i
                lefts[count] = slot
                rights[count] = partner
                count += 1
                partner = right_links[partner, 0]
            i += 1
        else:
            right_slot[j] = slot
            while partner >= 0:
                causes[count] = len(left_time) + j
                lefts[count] = partner
                rights[count] = slot
                count += 1
                partner = left_links[partner, 0]
            j += 1
    return i, j, count


@compiled(_i64, _readonly(_flag), _readonly(_i64), _grid, _line, _i64, _nrt=False)
def emptied(plus: Any, keys: Any, words: Any, found: Any, count: Any) -> Any:
    """Append the keys of minuses that have no tuples left to `found`, each once; return the new number of entries.

    The length on the left of such a key becomes -1.
    """
    for row in range(len(keys)):
        key = keys[row]
        if not plus[row] and words[key, _LENGTH] == 0 and words[key, 3 + _LENGTH] == 0:
            words[key, _LENGTH] = -1
            found[count] = key
            count += 1
    return count
