"""Compiled loops of `hayase.windows.folds`: partials of up to three words in regions of one pool.

A row of the pool is a slot of a sequence: its partial, the fold of its cycle up to it (forward), and the fold from it to the
end of the cycle (backward, once the cycle is full). The pool is an array of integers, viewed also as floats. The loops
allocate nothing, so that Numba does not have to count references (`_nrt=False`), which would take longer than the folds.
Numba recompiles a function only when its own file changes, so everything that a loop calls is in this file.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hayase.core import loop_types as types
from hayase.core.key_loops import prefetch
from hayase.core.machine_code import compiled, njit

__all__ = [
    "ADD", "ARG", "CYCLE", "CYCLE_BITS", "FIRST", "LAST", "LEVEL_WORDS", "MAX", "MOMENTS", "SUM", "append_rows",
    "combine_rows", "drop_keys", "fold_rows", "fold_runs", "held_rows", "kind_of", "order_floats", "put_word", "running_rows",
    "table_width", "take_word", "trim_keys", "unorder_floats",
]  # fmt: skip

ADD, SUM, MAX, MOMENTS, FIRST, LAST, ARG = range(7)
"""Parts of partials, by how two are combined: integers are added; a float sum and its rounding error are added (Knuth's
two-sum); the greater key is kept; count, mean and squares (Chan); the older value, if any; the newer value, if any; the value
of the greatest key, the oldest if keys are equal."""


def kind_of(*parts: int) -> int:
    """Return the number of a kind of partial, so that combining dispatches once and not for each part."""
    return sum((part + 1) << (4 * at) for at, part in enumerate(parts))


_ONE, _TWO, _THREE = kind_of(ADD), kind_of(ADD, ADD), kind_of(ADD, ADD, ADD)
_SUMMED, _GREATEST = kind_of(ADD, SUM), kind_of(ADD, MAX)
_SPREAD, _OLDEST, _NEWEST, _BESIDE = kind_of(MOMENTS), kind_of(FIRST), kind_of(LAST), kind_of(ARG)

CYCLE_BITS = 4
CYCLE = 1 << CYCLE_BITS
"""The number of slots of a cycle, and of cycles in a cycle one level up."""
SMALLEST = 4
"""The number of rows of the smallest region."""

COUNT = 0
"""The words of a key in the table: the length of its sequence, then for every level:"""
START, ROOM, BASE, KEEP = range(1, 5)
"""the start of its region in the pool and its number of rows (0: none), the slot of its first row, and the first slot that
may still be read."""
LEVEL_WORDS = 4

TOP = 0
"""The words of `heads`: the number of pool rows ever used, then for each size of regions a free one (-1: none)."""

_NEAR, _FAR = 8, 16
"""How many rows ahead the slots of another key are prefetched, and before that its line in the table."""
_ZERO = np.int64(0)
"""The argument 0 of helpers: for a literal Numba would compile each of them once more."""

_SIGN, _INFINITE = np.uint64(1 << 63), np.uint64(0x7FF0000000000000)
_i64, _u64, _f64 = types.int64, types.uint64, types.float64
_whole, _real = _i64[:, ::1], _f64[:, ::1]
_readonly = types.Array(_i64, 1, "C", readonly=True)


def table_width(levels: int) -> int:
    """Return the number of words per key in a table."""
    return 1 + LEVEL_WORDS * levels


@njit(_nrt=False, forceinline=True)
def _greater(first: Any, second: Any) -> Any:
    """Compare keys, which are unsigned."""
    return np.uint64(first) > np.uint64(second)


@njit(_nrt=False, forceinline=True)
def _combine(
    whole: Any, real: Any, row: int, to: int,
    older: Any, older_real: Any, older_row: int, a: int,
    newer: Any, newer_real: Any, newer_row: int, b: int,
    kind: int,
) -> None:  # fmt: skip
    """Combine two partials and write the result, which may overwrite either."""
    if kind == _SUMMED:
        count = older[older_row, a] + newer[newer_row, b]
        first, second = older_real[older_row, a + 1], newer_real[newer_row, b + 1]
        rest = older_real[older_row, a + 2] + newer_real[newer_row, b + 2]
        total = first + second
        taken = total - first
        whole[row, to] = count
        real[row, to + 1] = total
        real[row, to + 2] = (first - (total - taken)) + (second - taken) + rest
    elif kind == _GREATEST:
        count = older[older_row, a] + newer[newer_row, b]
        one, other = older[older_row, a + 1], newer[newer_row, b + 1]
        whole[row, to] = count
        whole[row, to + 1] = other if _greater(other, one) else one
    elif kind == _ONE:
        whole[row, to] = older[older_row, a] + newer[newer_row, b]
    elif kind in (_TWO, _THREE):
        for word in range(2 if kind == _TWO else 3):
            whole[row, to + word] = older[older_row, a + word] + newer[newer_row, b + word]
    else:
        _combine_others(whole, real, row, to, older, older_real, older_row, a, newer, newer_real, newer_row, b, kind)


@njit(_nrt=False)
def _combine_others(
    whole: Any, real: Any, row: int, to: int,
    older: Any, older_real: Any, older_row: int, a: int,
    newer: Any, newer_real: Any, newer_row: int, b: int,
    kind: int,
) -> None:  # fmt: skip
    """Do so for all other kinds."""
    if kind == _SPREAD:
        _combine_moments(whole, real, row, to, older, older_real, older_row, a, newer, newer_real, newer_row, b)
        return
    if kind == _BESIDE:
        take = older[older_row, a] == 0
        if newer[newer_row, b] != 0 and not take:
            take = _greater(newer[newer_row, b + 1], older[older_row, a + 1])
    else:
        take = older[older_row, a] == 0 if kind == _OLDEST else newer[newer_row, b] != 0
    words = 3 if kind == _BESIDE else 2
    if take:
        _copy(whole, row, to, newer, newer_row, b, words)
    else:
        _copy(whole, row, to, older, older_row, a, words)


@njit(_nrt=False, forceinline=True)
def _copy(whole: Any, row: int, word: int, source: Any, source_row: int, source_word: int, words: int) -> None:
    for offset in range(words):
        whole[row, word + offset] = source[source_row, source_word + offset]


@njit(_nrt=False)
def _combine_moments(
    whole: Any, real: Any, row: int, word: int,
    older: Any, older_real: Any, older_row: int, a: int,
    newer: Any, newer_real: Any, newer_row: int, b: int,
) -> None:  # fmt: skip
    """Combine count, mean and squares like `core.algebra`."""
    first, second = older[older_row, a], newer[newer_row, b]
    if first == 0:
        _copy(whole, row, word, newer, newer_row, b, 3)
    elif second == 0:
        _copy(whole, row, word, older, older_row, a, 3)
    else:
        mean, squares = older_real[older_row, a + 1], older_real[older_row, a + 2]
        other, more = newer_real[newer_row, b + 1], newer_real[newer_row, b + 2]
        count = first + second
        apart, share = other - mean, second / count
        whole[row, word] = count
        if np.isinf(apart):
            real[row, word + 1] = mean * (1.0 - share) + other * share
        else:
            real[row, word + 1] = mean + apart * share
        real[row, word + 2] = squares + more + apart * apart * (first * share)


@compiled(types.void, _whole, _real, _whole, _real, _whole, _real, _i64, _nrt=False)
def combine_rows(whole: Any, real: Any, older: Any, older_real: Any, newer: Any, newer_real: Any, kind: Any) -> None:
    """Combine older and newer partials row by row."""
    for row in range(len(whole)):
        _combine(whole, real, row, _ZERO, older, older_real, row, _ZERO, newer, newer_real, row, _ZERO, kind)


@compiled(types.void, _whole, _real, _whole, _real, _readonly, _i64, _nrt=False)
def fold_runs(whole: Any, real: Any, given: Any, given_real: Any, starts: Any, kind: Any) -> None:
    """Fold consecutive runs of rows into `whole`, which holds empty partials."""
    for run in range(len(starts)):
        stop = starts[run + 1] if run + 1 < len(starts) else len(given)
        for row in range(starts[run], stop):
            if row == starts[run]:
                _copy(whole, run, _ZERO, given, row, _ZERO, given.shape[1])
            else:
                _combine(whole, real, run, _ZERO, whole, real, run, _ZERO, given, given_real, row, _ZERO, kind)


@compiled(types.void, _whole, _real, _readonly, _whole, _real, _i64, _nrt=False)
def running_rows(totals: Any, totals_real: Any, keys: Any, rows: Any, rows_real: Any, kind: Any) -> None:
    """Add every row to the total of its key, one after the other, and replace it by that total."""
    for row in range(len(rows)):
        key = keys[row]
        _combine(
            totals, totals_real, key, _ZERO, totals, totals_real, key, _ZERO, rows, rows_real, row, _ZERO, kind
        )  # fmt: skip
        _copy(rows, row, _ZERO, totals, key, _ZERO, rows.shape[1])


@njit(_nrt=False)
def _size(room: int) -> int:
    """Return the number of a size of regions, from 1 on."""
    size = 1
    while SMALLEST << (size - 1) < room:
        size += 1
    return size


@njit(_nrt=False)
def _take(pool: Any, heads: Any, room: int) -> int:
    """Allocate a region of `room` rows; return its start, or -1 if the pool has to grow first."""
    size = _size(room)
    start = heads[size]
    if start >= 0:
        heads[size] = pool[start, 0]
    elif heads[TOP] + room <= len(pool):
        start = heads[TOP]
        heads[TOP] += room
    return start


@njit(_nrt=False)
def _give_back(pool: Any, heads: Any, start: int, room: int) -> None:
    """Free a region."""
    size = _size(room)
    pool[start, 0] = heads[size]
    heads[size] = start


@njit(_nrt=False)
def _make_room(pool: Any, heads: Any, table: Any, key: int, level: int, slot: int, more: int) -> bool:
    """Make room in the region of a level for its next slots; return False if the pool has to grow first.

    Slots that are no longer read are dropped here, so that the memory follows the live slots. A region is moved only after
    as many rows were written as are copied.
    """
    at = LEVEL_WORDS * level
    start, room, base = table[key, at + START], table[key, at + ROOM], table[key, at + BASE]
    if slot + more - base <= room:
        return True
    keep = max(base, min(table[key, at + KEEP], slot - 1))
    alive = slot - keep if room else 0
    wanted = SMALLEST
    while wanted < alive + max(alive, more):
        wanted *= 2
    if wanted != room:
        into = _take(pool, heads, wanted)
        if into < 0:
            return False
    else:
        into = start
    for row in range(alive):
        _copy(pool, into + row, _ZERO, pool, start + keep - base + row, _ZERO, pool.shape[1])
    if wanted != room and room:
        _give_back(pool, heads, start, room)
    table[key, at + START], table[key, at + ROOM], table[key, at + BASE] = into, wanted, slot - alive
    return True


@njit(_nrt=False)
def _make_rooms(pool: Any, heads: Any, table: Any, key: int, more: int) -> bool:
    """Make room in all levels of a key for `more` partials; return False if the pool has to grow first."""
    slot = table[key, COUNT]
    stop = slot + more
    level = 0
    while slot < stop:
        if not _make_room(pool, heads, table, key, level, slot, stop - slot):
            return False
        slot >>= CYCLE_BITS
        stop >>= CYCLE_BITS
        level += 1
    return True


@njit(_nrt=False)
def _finish_cycle(pool: Any, real: Any, table: Any, key: int, level: int, slot: int, words: int, kind: int) -> None:
    """Compute the backward values of a cycle that has got its last slot, and add its total to the levels above."""
    while True:
        at = LEVEL_WORDS * level
        base = table[key, at + BASE]
        here = table[key, at + START] + slot - base
        if level:
            below = table[key, at - LEVEL_WORDS + START] - table[key, at - LEVEL_WORDS + BASE]
            _copy(pool, here, _ZERO, pool, below + (slot << CYCLE_BITS) + CYCLE - 1, words, words)
            if slot & (CYCLE - 1) == 0 or slot == base:
                _copy(pool, here, words, pool, here, _ZERO, words)
            else:
                _combine(pool, real, here, words, pool, real, here - 1, words, pool, real, here, _ZERO, kind)
            if slot & (CYCLE - 1) != CYCLE - 1:
                break
        _copy(pool, here, 2 * words, pool, here, _ZERO, words)
        for back in range(here - 1, here - min(CYCLE, slot - base + 1), -1):
            _combine(pool, real, back, 2 * words, pool, real, back, _ZERO, pool, real, back + 1, 2 * words, kind)
        slot >>= CYCLE_BITS
        level += 1


@compiled(
    types.UniTuple(_i64, 2), _whole, _real, _i64[::1], _whole, _readonly, _whole, _real, _i64, _i64[::1], _i64, _nrt=False
)  # fmt: skip
def append_rows(
    pool: Any, real: Any, heads: Any, table: Any, keys: Any, given: Any, given_real: Any, kind: Any, positions: Any,
    row: Any,
) -> Any:  # fmt: skip
    """Append rows from `row` on, until all are appended, the table needs another level or the pool has to grow.

    Returns the next row, and the length of its sequence if the table has no level for it, else 0.
    """
    words = given.shape[1]
    most = np.int64(1) << (CYCLE_BITS * ((table.shape[1] - 1) // LEVEL_WORDS))
    while row < len(given):
        key = keys[row] if len(keys) else 0
        stop = row + 1 if len(keys) else len(given)
        while stop < len(given) and keys[stop] == key:
            stop += 1
        if stop + _FAR < len(keys):
            prefetch(table, keys[stop + _FAR])
            near = keys[stop + _NEAR]
            place = table[near, START] + table[near, COUNT] - table[near, BASE]
            prefetch(pool, place - 1)
            prefetch(pool, place)
        if table[key, COUNT] + stop - row >= most:
            return row, table[key, COUNT] + stop - row
        if not _make_rooms(
            pool, heads, table, key, stop - row
        ):  # for the whole run: it is appended as a whole or not at all
            return row, 0
        slot, base = table[key, COUNT], table[key, BASE]
        shift = table[key, START] - base
        table[key, COUNT] = slot + stop - row
        while row < stop:
            here = shift + slot
            positions[row] = slot
            _copy(pool, here, _ZERO, given, row, _ZERO, words)
            if slot & (CYCLE - 1) == 0 or slot == base:
                _copy(pool, here, words, given, row, _ZERO, words)
            else:
                _combine(pool, real, here, words, pool, real, here - 1, words, given, given_real, row, _ZERO, kind)
            if slot & (CYCLE - 1) == CYCLE - 1:
                _finish_cycle(pool, real, table, key, _ZERO, slot, words, kind)
            slot += 1
            row += 1
    return row, 0


@njit(_nrt=False)
def _fold_near(
    pool: Any, real: Any, shift: int, first: int, last: int, words: int, kind: int, out: Any, out_real: Any, row: int
) -> None:
    """Fold slots of one cycle."""
    if first & (CYCLE - 1) == 0:
        _copy(out, row, _ZERO, pool, shift + last, words, words)
    elif last & (CYCLE - 1) == CYCLE - 1:
        _copy(out, row, _ZERO, pool, shift + first, 2 * words, words)
    else:
        _copy(out, row, _ZERO, pool, shift + first, _ZERO, words)
        for slot in range(first + 1, last + 1):
            _combine(out, out_real, row, _ZERO, out, out_real, row, _ZERO, pool, real, shift + slot, _ZERO, kind)


@njit(_nrt=False)
def _fold_cycles(
    pool: Any, real: Any, table: Any, key: int, first: int, last: int, words: int, kind: int, sides: Any, out: Any,
    out_real: Any,
) -> None:  # fmt: skip
    """Fold full cycles of the lowest level."""
    level = 1
    while True:
        at = LEVEL_WORDS * level
        shift = table[key, at + START] - table[key, at + BASE]
        if first >> CYCLE_BITS == last >> CYCLE_BITS:
            _fold_near(pool, real, shift, first, last, words, kind, out, out_real, _ZERO)
            break
        one, other = shift + first, shift + last
        sides[level, 0], sides[level, 1] = one, other
        first, last = (first >> CYCLE_BITS) + 1, (last >> CYCLE_BITS) - 1
        if first > last:
            _combine(out, out_real, _ZERO, _ZERO, pool, real, one, 2 * words, pool, real, other, words, kind)
            break
        level += 1
    while level > 1:
        level -= 1
        _combine(out, out_real, _ZERO, _ZERO, pool, real, sides[level, 0], 2 * words, out, out_real, _ZERO, _ZERO, kind)
        _combine(out, out_real, _ZERO, _ZERO, out, out_real, _ZERO, _ZERO, pool, real, sides[level, 1], words, kind)


@compiled(
    types.void,
    *(_whole, _real, _whole, _readonly, _readonly, _readonly, _i64, _whole, _real, _whole, _whole, _real),
    _nrt=False,
)
def fold_rows(
    pool: Any, real: Any, table: Any, keys: Any, firsts: Any, lasts: Any, kind: Any, out: Any, out_real: Any, sides: Any,
    middle: Any, middle_real: Any,
) -> None:  # fmt: skip
    """Fold ranges of sequences into `out`; an empty range gives zeros.

    The full cycles between the first and the last cycle of a range are folded into `middle`, which is often reused for the
    next range: if windows move tuple by tuple, it changes twice per cycle. `sides` is scratch space, two rows per level.
    """
    words = out.shape[1]
    known, known_first, known_last = -1, 0, 0
    for row in range(len(out)):
        key = keys[row] if len(keys) else 0
        if row + _FAR < len(keys) and keys[row + _FAR] != key:
            prefetch(table, keys[row + _FAR])
            near = keys[row + _NEAR]
            if near < len(table):
                place = table[near, START] - table[near, BASE]
                prefetch(pool, place + max(firsts[row + _NEAR], table[near, BASE]))
                prefetch(pool, place + lasts[row + _NEAR])
        first, last = 0, -1
        if key < len(table):
            first, last = max(firsts[row], table[key, BASE]), min(lasts[row], table[key, COUNT] - 1)
        if first > last:
            for word in range(words):
                out[row, word] = 0
            continue
        shift = table[key, START] - table[key, BASE]
        begin, end = (first >> CYCLE_BITS) + 1, (last >> CYCLE_BITS) - 1
        if begin - end == 2:
            _fold_near(pool, real, shift, first, last, words, kind, out, out_real, row)
            continue
        one, other = shift + first, shift + last
        if begin > end:
            _combine(out, out_real, row, _ZERO, pool, real, one, 2 * words, pool, real, other, words, kind)
            continue
        if key != known or begin != known_first or end != known_last:
            _fold_cycles(pool, real, table, key, begin, end, words, kind, sides, middle, middle_real)
            known, known_first, known_last = key, begin, end
        _combine(out, out_real, row, _ZERO, pool, real, one, 2 * words, middle, middle_real, _ZERO, _ZERO, kind)
        _combine(out, out_real, row, _ZERO, out, out_real, row, _ZERO, pool, real, other, words, kind)


@compiled(types.void, _readonly, _readonly, _whole, _i64, _nrt=False)
def put_word(values: Any, places: Any, rows: Any, word: Any) -> None:
    """Write a word of all partials, value i into row `places[i]`; without places into row i."""
    if len(places):
        for row in range(len(values)):
            rows[places[row], word] = values[row]
    else:
        for row in range(len(values)):
            rows[row, word] = values[row]


@compiled(types.void, _whole, _i64, _readonly, _i64[::1], _nrt=False)
def take_word(rows: Any, word: Any, places: Any, values: Any) -> None:
    """The reverse of `put_word`."""
    if len(places):
        for row in range(len(values)):
            values[row] = rows[places[row], word]
    else:
        for row in range(len(values)):
            values[row] = rows[row, word]


@compiled(types.void, types.Array(_u64, 1, "C", readonly=True), types.boolean, _u64[::1], _nrt=False)
def order_floats(bits: Any, least: Any, keys: Any) -> None:
    """Map the bits of floats to keys of the same order, NaN last; inverted if `least`."""
    for row in range(len(bits)):
        key = bits[row]
        if key & ~_SIGN > _INFINITE:
            key = ~np.uint64(0)
        else:
            key = ~key if key & _SIGN else key | _SIGN
        keys[row] = ~key if least else key


@compiled(types.void, types.Array(_u64, 1, "C", readonly=True), types.boolean, _u64[::1], _nrt=False)
def unorder_floats(keys: Any, least: Any, bits: Any) -> None:
    """The reverse of `order_floats`."""
    for row in range(len(keys)):
        key = ~keys[row] if least else keys[row]
        bits[row] = key ^ _SIGN if key & _SIGN else ~key


@compiled(types.void, _whole, _readonly, _readonly, _nrt=False)
def trim_keys(table: Any, keys: Any, firsts: Any) -> None:
    """Note that slots before `firsts` are no longer read; on the levels above, slots before the next whole cycle."""
    for row in range(len(firsts)):
        key, first = keys[row] if len(keys) else 0, firsts[row]
        if row + _FAR < len(keys):
            prefetch(table, keys[row + _FAR])
        for at in range(0, table.shape[1] - 1, LEVEL_WORDS):
            table[key, at + KEEP] = max(table[key, at + KEEP], first)
            first = (first >> CYCLE_BITS) + 1


@compiled(types.void, _whole, _i64[::1], _whole, _readonly, _nrt=False)
def drop_keys(pool: Any, heads: Any, table: Any, keys: Any) -> None:
    """Free all regions of keys."""
    for row in range(len(keys)):
        key = keys[row]
        if row + _FAR < len(keys):
            prefetch(table, keys[row + _FAR])
            near = keys[row + _NEAR]
            prefetch(pool, table[near, START])
        for at in range(0, table.shape[1] - 1, LEVEL_WORDS):
            if table[key, at + ROOM]:
                _give_back(pool, heads, table[key, at + START], table[key, at + ROOM])
        for word in range(table.shape[1]):
            table[key, word] = 0


@compiled(_i64, _whole, _whole, _readonly, _i64[::1], _i64[::1], _whole, _nrt=False)
def held_rows(pool: Any, table: Any, keys: Any, of: Any, positions: Any, out: Any) -> Any:
    """Return the number of partials that may still be read and, unless `of` is empty, copy their keys, positions and words."""
    count = 0
    for key in keys:
        first = max(table[key, BASE], min(table[key, KEEP], table[key, COUNT] - 1))
        for slot in range(first, table[key, COUNT]):
            if len(of):
                of[count], positions[count] = key, slot
                _copy(out, count, _ZERO, pool, table[key, START] + slot - table[key, BASE], _ZERO, out.shape[1])
            count += 1
    return count
