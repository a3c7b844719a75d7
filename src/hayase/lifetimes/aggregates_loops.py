"""Compiled loops of `hayase.lifetimes.aggregates`: the sweep over a step, exact and compensated sums, pairing heaps.

Numba recompiles a function only when its own file changes, so everything that the sweep calls is in this file.
The loops allocate nothing, so that Numba does not have to count references (`_nrt=False`); counting costs more than the
sweep itself. The inner functions take
named tuples of arrays. The entry points take the arrays one by one and pack them: 36 arrays cost a call from Python 1 us
one by one and 6 to 14 us as six named tuples, which Numba also refuses if an array is writable where another call had a
read-only one.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hayase.core import loop_types as types
from hayase.core.key_loops import prefetch
from hayase.core.machine_code import compiled, njit
from hayase.lifetimes.accumulators import (
    ABOVE,
    ANY,
    ARGUMENT,
    AT,
    AVERAGE,
    BELOW,
    BEST,
    BITS64,
    COUNT,
    COUNTED,
    DECIMAL,
    DISTINCT,
    DOUBT,
    EXACT,
    EXTREME,
    FLOAT,
    FORM,
    GREATEST,
    HIGH,
    HOW_MANY,
    KIND,
    LANES,
    LIMIT,
    LINE,
    LINK,
    LOW,
    NANS,
    NUMBER,
    OF,
    PARTS,
    READS,
    ROOT,
    ROW,
    SAMPLE,
    SIDE,
    SIZE,
    SQUARES,
    SUM,
    TEXT,
    TO,
    VARIANCE,
    VERSION,
)  # fmt: skip
from hayase.lifetimes.relations import OPEN

__all__ = ["attach", "copy_texts", "describe_texts", "detach", "gather", "put", "sweep", "unchanged"]

NOTED = -(2**63)
"""While a loop runs, the version word of a group that it has touched is this plus the group's position in `noted`."""

_LIMIT_HIGH, _LIMIT_LOW = np.int64(10**38 >> 64), np.uint64(10**38 & (2**64 - 1))
_FLOOR_HIGH, _FLOOR_LOW = np.int64(-(10**38) >> 64), np.uint64(-(10**38) & (2**64 - 1))
_AHEAD = 16
_LANES = LANES
_LANE = np.int64(2**32 - 1)
_UNITS = np.array([2.0 ** (32 * lane - 1074) if 32 * lane - 1074 < 1024 else math.inf for lane in range(_LANES)])
_EPSILON = 2.0**-53
_ALL_BUT_SIGN = np.int64(2**63 - 1)
_HUGE = 2.0**480
"""Numbers of at least this size are left out of the sum of squares; while a group has any, its variance is infinite."""

_i64, _f64, _i32, _u8, _flag = types.int64, types.float64, types.int32, types.uint8, types.boolean
_words, _floats, _halves = _i64[:, ::1], _f64[:, ::1], _i32[:, ::1]


def _readonly(kind: Any, dimensions: int) -> Any:
    return types.Array(kind, dimensions, "C", readonly=True)


_list, _table = _readonly(_i64, 1), _readonly(_i64, 2)


class Groups(NamedTuple):
    """The groups, by slot: a row of 8-byte words, the same memory as floats, and the heads of its list and heaps."""

    words: Any
    floats: Any
    anchors: Any


class Cells(NamedTuple):
    """The live tuples, by slot: a row of words, the same memory as floats and as 32-bit halves.

    Also the bytes of texts, and the number of live tuples of each (group, value) pair of a distinct count.
    """

    words: Any
    floats: Any
    halves: Any
    texts: Any
    pairs: Any


class Arguments(NamedTuple):
    """The arguments of new tuples: lines of words, the same memory as floats, and validity masks.

    `mask_of[argument]` is the line of its mask in `valid`, or -1 if the argument has no NULLs.
    """

    lines: Any
    floats: Any
    valid: Any
    mask_of: Any


class Plan(NamedTuple):
    """What `accumulators.Layout` says: its shape, and the program of its accumulators."""

    endless: Any
    list_link: Any
    first_link: Any
    base: Any
    width: Any
    accumulators: Any


class Calls(NamedTuple):
    """The program of the calls, and the scale of each."""

    lines: Any
    scales: Any


class Values(NamedTuple):
    """Rows of results, by column: words, the same memory as floats, and whether each call has a value (is not NULL)."""

    words: Any
    floats: Any
    present: Any


@njit(inline="always")
def _groups(words: Any, anchors: Any) -> Any:
    return Groups(words, words.view(np.float64), anchors)


@njit(inline="always")
def _cells(words: Any, texts: Any, pairs: Any) -> Any:
    return Cells(words, words.view(np.float64), words.view(np.int32), texts, pairs)


@njit(inline="always")
def _arguments(lines: Any, valid: Any, mask_of: Any) -> Any:
    return Arguments(lines, lines.view(np.float64), valid, mask_of)


@njit(inline="always")
def _plan(shape: Any, accumulators: Any) -> Any:
    return Plan(shape[0] != 0, shape[1], shape[2], shape[3], shape[4], accumulators)


@njit(inline="always")
def _values(words: Any, present: Any) -> Any:
    return Values(words, words.view(np.float64), present)


# ---------------------------------------------------------------------------------------------- exact sums


@njit(inline="always")
def _sign_extend(low: Any, high: Any, top: Any, parts: int) -> Any:
    """Return the three words of a signed number whose low `parts` words are set."""
    if parts == 1:
        high = low >> 63
    if parts < 3:
        top = high >> 63
    return low, high, top


@njit(inline="always")
def _add_words(low: Any, high: Any, top: Any, add_low: Any, add_high: Any, add_top: Any) -> Any:
    """Add two numbers of three words."""
    new_low = np.uint64(low) + np.uint64(add_low)
    carry = np.uint64(1) if new_low < np.uint64(low) else np.uint64(0)
    half = np.uint64(high) + np.uint64(add_high)
    over = np.uint64(1) if half < np.uint64(high) else np.uint64(0)
    new_high = half + carry
    if new_high < carry:
        over += np.uint64(1)
    return np.int64(new_low), np.int64(new_high), top + add_top + np.int64(over)


@njit(inline="always")
def _negate(low: Any, high: Any, top: Any) -> Any:
    """Negate a number of three words."""
    return _add_words(~low, ~high, ~top, np.int64(1), np.int64(0), np.int64(0))


@njit(inline="always")
def _fits(low: Any, high: Any, top: Any, limit: int) -> Any:
    """Return whether a sum is within its limit."""
    if limit == ANY:
        return True
    if limit == BITS64:
        return high == low >> 63 and top == high
    if top != high >> 63:
        return False
    if high > _LIMIT_HIGH or (high == _LIMIT_HIGH and np.uint64(low) >= _LIMIT_LOW):
        return False
    return not (high < _FLOOR_HIGH or (high == _FLOOR_HIGH and np.uint64(low) <= _FLOOR_LOW))


@njit(inline="always")
def _load_sum(words: Any, group: int, at: int, parts: int) -> Any:
    """Read the exact sum of a group as three words."""
    low = words[group, at + 1]
    high = words[group, at + 2] if parts > 1 else np.int64(0)
    top = words[group, at + 3] if parts > 2 else np.int64(0)
    return _sign_extend(low, high, top, parts)


@njit(inline="always")
def _store_sum(words: Any, group: int, at: int, parts: int, low: Any, high: Any, top: Any) -> None:
    """Write the exact sum of a group."""
    words[group, at + 1] = low
    if parts > 1:
        words[group, at + 2] = high
    if parts > 2:
        words[group, at + 3] = top


@njit(_nrt=False)
def _to_float(low: Any, high: Any, top: Any) -> Any:
    """Round a number of three words to a float."""
    if high == low >> 63 and top == high:
        return np.float64(low)
    negative = top < 0
    if negative:
        low, high, top = _negate(low, high, top)
    size = np.float64(np.uint64(low))
    if high != 0 or top != 0:
        size = np.float64(np.uint64(top)) * 2.0**128 + (np.float64(np.uint64(high)) * 2.0**64 + size)
    return -size if negative else size


# ---------------------------------------------------------------------------------------------- sums of floats


@njit(inline="always")
def _two_sum(one: Any, other: Any) -> Any:
    """Return a sum and its rounding error (Knuth)."""
    total = one + other
    part = total - one
    return total, (one - (total - part)) + (other - part)


@njit(inline="always")
def _split(number: Any) -> Any:
    """Split a float into two of half the digits each (Veltkamp)."""
    scaled = number * 134217729.0
    high = scaled - (scaled - number)
    return high, number - high


@njit(inline="always")
def _two_product(one: Any, other: Any) -> Any:
    """Return a product and its rounding error (Dekker)."""
    product = one * other
    one_high, one_low = _split(one)
    other_high, other_low = _split(other)
    rest = one_low * other_low - (((product - one_high * other_high) - one_low * other_high) - one_high * other_low)
    return product, rest if math.isfinite(rest) else 0.0


@njit(inline="always")
def _add_compensated(floats: Any, group: int, at: int, number: Any, rest: Any) -> None:
    """Add `number + rest`, where `rest` is its rounding error, to the sum in two doubles at word `at`."""
    total, lost = _two_sum(floats[group, at], number)
    lost += floats[group, at + 1] + rest
    high = total + lost
    floats[group, at] = high
    floats[group, at + 1] = lost - (high - total)


@njit(_nrt=False, forceinline=True)
def _add_endless(floats: Any, group: int, at: int, squares: int, number: Any) -> None:
    """Add a number that is never removed; a sum that is not finite stays so, as in IEEE 754."""
    total = floats[group, at + HIGH] + number
    if math.isfinite(total):
        _add_compensated(floats, group, at + HIGH, number, 0.0)
    else:
        floats[group, at + HIGH] = total
        floats[group, at + LOW] = 0.0
    if squares > 0:
        product, rest = _two_product(number, number)
        total = floats[group, at + squares] + product
        if math.isfinite(total):
            _add_compensated(floats, group, at + squares, product, rest)
        else:
            floats[group, at + squares] = total
            floats[group, at + squares + 1] = 0.0


@njit(_nrt=False, forceinline=True)
def _add_float(words: Any, floats: Any, group: int, at: int, squares: int, number: Any, sign: int) -> None:
    """Add a number (sign 1) or remove it (sign -1), after the group's count has been updated.

    Numbers that are not finite are only counted. DOUBT bounds the rounding error of the sum of absolute values, and
    2**-50 times DOUBT that of the sum itself. When the last finite number is removed, all sums become exactly 0.
    """
    if math.isnan(number):
        words[group, at + NANS] += sign
        return
    if math.isinf(number):
        words[group, at + (ABOVE if number > 0 else BELOW)] += sign
        return
    finite = words[group, at] - words[group, at + NANS] - words[group, at + ABOVE] - words[group, at + BELOW]
    if finite == 0:
        for word in range(HIGH, DOUBT + 1):
            floats[group, at + word] = 0.0
        for word in range(squares, squares + (4 if squares > 0 else 0)):
            floats[group, at + word] = 0.0
        return
    _add_compensated(floats, group, at + HIGH, sign * number, 0.0)
    before = floats[group, at + SIZE]
    after = before + sign * abs(number)
    floats[group, at + SIZE] = after
    floats[group, at + DOUBT] += _EPSILON * max(before, after)
    if squares > 0 and abs(number) >= _HUGE:
        words[group, at + squares + 3] += sign
    elif squares > 0:
        product, rest = _two_product(number, number)
        before = floats[group, at + squares]
        _add_compensated(floats, group, at + squares, sign * product, sign * rest)
        floats[group, at + squares + 2] += _EPSILON * max(before, floats[group, at + squares])


@njit(_nrt=False)
def _add_to_lanes(lanes: Any, line: int, bits: Any) -> None:
    """Add a finite float, passed as its bits, to an exact sum in 32-bit lanes."""
    exponent = (bits >> 52) & 2047
    digits = bits & (2**52 - 1)
    if exponent > 0:
        digits |= 2**52
        exponent -= 1
    sign = -1 if bits < 0 else 1
    lane, shift = exponent >> 5, exponent & 31
    low = (digits & _LANE) << shift
    high = (digits >> 32) << shift
    lanes[line, lane] += sign * (low & _LANE)
    lanes[line, lane + 1] += sign * ((low >> 32) + (high & _LANE))
    lanes[line, lane + 2] += sign * (high >> 32)


@njit(_nrt=False)
def _propagate_carries(lanes: Any, line: int) -> None:
    """Move what exceeds 32 bits in a lane to the next one."""
    for lane in range(_LANES - 1):
        lanes[line, lane + 1] += lanes[line, lane] >> 32
        lanes[line, lane] &= _LANE


@njit(_nrt=False)
def _drain_lanes(lanes: Any, line: int) -> Any:
    """Return the sum in lanes as two doubles, and clear the lanes."""
    _propagate_carries(lanes, line)
    negative = lanes[line, _LANES - 1] < 0
    if negative:
        for lane in range(_LANES):
            lanes[line, lane] = -lanes[line, lane]
        _propagate_carries(lanes, line)
    high = low = 0.0
    taken = 0
    for lane in range(_LANES - 1, -1, -1):
        digits = lanes[line, lane]
        if digits != 0 and taken < 6:
            high, lost = _two_sum(high, digits * _UNITS[lane])
            low += lost
        taken += digits != 0 or taken > 0
        lanes[line, lane] = 0
    if not math.isfinite(high):
        high, low = math.inf, 0.0
    total = high + low
    low -= total - high
    if not math.isfinite(total):
        total, low = math.inf, 0.0
    return (-total, -low) if negative else (total, low)


@njit(inline="always")
def _is_null(halves: Any, slot: int, argument: int) -> Any:
    """Return whether an argument of a live tuple is NULL."""
    return (halves[slot, 1 + (argument >> 5)] >> (argument & 31)) & 1 == 1


@njit(_nrt=False)
def _recompute_sums(groups: Any, cells: Any, plan: Any, group: int, number: int, lanes: Any, float_lanes: Any) -> None:
    """Recompute the float sums of accumulator `number` from the group's tuples.

    The sums are exact up to one final rounding, so they do not depend on the order of the tuples.
    """
    program, floats, halves = plan.accumulators, groups.floats, cells.halves
    at, squares = program[number, AT], program[number, SQUARES]
    cell, argument = plan.base + program[number, LINE], program[number, ARGUMENT]
    slot = groups.anchors[group, 0]
    while slot >= 0:
        value = cells.floats[slot, cell]
        if math.isfinite(value) and not _is_null(halves, slot, argument):
            _add_to_lanes(lanes, 1 if value < 0 else 0, cells.words[slot, cell] & _ALL_BUT_SIGN)
            if squares > 0 and abs(value) < _HUGE:
                float_lanes[3, 0], float_lanes[3, 1] = _two_product(value, value)
                _add_to_lanes(lanes, 2, lanes[3, 0])
                _add_to_lanes(lanes, 2, lanes[3, 1])
        slot = halves[slot, plan.list_link]
    for lane in range(_LANES):
        above, below = lanes[0, lane], lanes[1, lane]
        lanes[0, lane], lanes[1, lane] = above - below, above + below
    floats[group, at + HIGH], floats[group, at + LOW] = _drain_lanes(lanes, 0)
    floats[group, at + SIZE], float_lanes[3, 0] = _drain_lanes(lanes, 1)
    floats[group, at + DOUBT] = 0.0
    if squares > 0:
        floats[group, at + squares], floats[group, at + squares + 1] = _drain_lanes(lanes, 2)
        floats[group, at + squares + 2] = 0.0


@njit(_nrt=False, forceinline=True)
def _needs_recomputation(words: Any, floats: Any, group: int, at: int, squares: int) -> Any:
    """Return whether the float sums of a group are too inexact.

    Normally that happens only after as many tuples as a recomputation reads; earlier if a large number was removed and
    left its rounding error behind.
    """
    finite = words[group, at] - words[group, at + NANS] - words[group, at + ABOVE] - words[group, at + BELOW]
    if finite == 0:
        return False
    tolerance = _EPSILON * max(8192, 16 * finite)
    size = floats[group, at + SIZE]
    if not (math.isfinite(size) and math.isfinite(floats[group, at + HIGH])):
        return True
    if floats[group, at + DOUBT] > tolerance * size:
        return True
    if squares > 0:
        return floats[group, at + squares + 2] > tolerance * floats[group, at + squares]
    return False


@njit(_nrt=False)
def _variance(words: Any, floats: Any, group: int, at: int, squares: int, endless: bool, sample: int) -> Any:
    """Return the variance from the sums of numbers and of squares, in two doubles each; a spread within their error is 0."""
    count = words[group, at]
    high, low = floats[group, at + HIGH], floats[group, at + LOW]
    square, square_low = floats[group, at + squares], floats[group, at + squares + 1]
    if math.isnan(high) or math.isnan(square) or math.isinf(high):
        return math.nan
    if not endless and words[group, at + NANS] + words[group, at + ABOVE] + words[group, at + BELOW] > 0:
        return math.nan
    if count == 1:
        return 0.0
    if math.isinf(square) or (not endless and words[group, at + squares + 3] > 0):
        return math.inf
    mean = high / count
    product, rest = _two_product(mean, np.float64(count))
    mean_low = (((high - product) - rest) + low) / count
    product, rest = _two_product(high, mean)
    rest += high * mean_low + low * mean
    spread, lost = _two_sum(square, -product)
    spread += lost + (square_low - rest)
    if endless:
        noise = square * (count + 64.0) * 2.0**-102
    else:
        noise = square * 2.0**-98 + 2.0**-48 * (
            floats[group, at + squares + 2] + 2.0 * abs(mean) * floats[group, at + DOUBT]
        )
    if spread <= noise:
        return 0.0
    return spread / (count - sample)


# ---------------------------------------------------------------------------------------------- order and heaps


@njit(_nrt=False)
def _compare_texts(arena: Any, start: int, length: int, other: int, other_length: int) -> Any:
    """Compare two texts by their bytes: negative, zero or positive."""
    for at in range(min(length, other_length)):
        one, two = arena[start + at], arena[other + at]
        if one != two:
            return np.int64(one) - np.int64(two)
    return length - other_length


@njit(inline="always")
def _order_key(bits: Any) -> Any:
    """Map the bits of a float to an int64 with the same order; the only NaN that occurs comes last."""
    return bits ^ ((bits >> 63) & _ALL_BUT_SIGN)


@njit(_nrt=False, forceinline=True)
def _compare(rows: Any, one: int, at: int, others: Any, two: int, other: int, form: int, arena: Any) -> Any:
    """Compare the value at word `at` of a row with that at word `other` of another row: negative, zero or positive."""
    first, second = rows[one, at], others[two, other]
    if form == FLOAT:
        first, second = _order_key(first), _order_key(second)
    elif form == DECIMAL:
        first, second = rows[one, at + 1], others[two, other + 1]
    if first != second:
        return -1 if first < second else 1
    if form == DECIMAL:
        low, other_low = np.uint64(rows[one, at]), np.uint64(others[two, other])
        if low != other_low:
            return -1 if low < other_low else 1
    if form == TEXT:
        return _compare_texts(
            arena, rows[one, at + 1], rows[one, at + 2], others[two, other + 1], others[two, other + 2]
        )
    return 0


@njit(_nrt=False, forceinline=True)
def _meld(cells: Any, one: int, two: int, link: int, cell: int, form: int, most: int) -> Any:
    """Join two trees of a pairing heap (Fredman et al. 1986) and return the root; the links are child, next and back."""
    halves = cells.halves
    comparison = _compare(cells.words, one, cell, cells.words, two, cell, form, cells.texts)
    if comparison < 0 if most else comparison > 0:
        one, two = two, one
    child = halves[one, link]
    halves[two, link + 1] = child
    halves[two, link + 2] = one
    if child >= 0:
        halves[child, link + 2] = two
    halves[one, link] = two
    return one


@njit(_nrt=False, forceinline=True)
def _push(cells: Any, root: int, slot: int, link: int, cell: int, form: int, most: int) -> Any:
    """Insert a cell into a heap and return the new root."""
    halves = cells.halves
    halves[slot, link] = -1
    halves[slot, link + 1] = -1
    halves[slot, link + 2] = -1
    return slot if root < 0 else _meld(cells, root, slot, link, cell, form, most)


@njit(_nrt=False, forceinline=True)
def _remove(cells: Any, root: int, slot: int, link: int, cell: int, form: int, most: int) -> Any:
    """Remove a cell from a heap and return the new root, or -1. Its children are joined in pairs, then the pairs."""
    halves = cells.halves
    paired = -1
    child = halves[slot, link]
    while child >= 0:
        partner = halves[child, link + 1]
        following = -1
        tree = child
        if partner >= 0:
            following = halves[partner, link + 1]
            tree = _meld(cells, child, partner, link, cell, form, most)
        halves[tree, link + 1] = paired
        paired = tree
        child = following
    below = -1
    while paired >= 0:
        following = halves[paired, link + 1]
        halves[paired, link + 1] = -1
        below = paired if below < 0 else _meld(cells, below, paired, link, cell, form, most)
        paired = following
    if below >= 0:
        halves[below, link + 1] = -1
        halves[below, link + 2] = -1
    if slot == root:
        return below
    back, following = halves[slot, link + 2], halves[slot, link + 1]
    if halves[back, link] == slot:
        halves[back, link] = following
    else:
        halves[back, link + 1] = following
    if following >= 0:
        halves[following, link + 2] = back
    return root if below < 0 else _meld(cells, root, below, link, cell, form, most)


# ---------------------------------------------------------------------------------------------- live tuples


@njit(_nrt=False, forceinline=True)
def _link_tuple(groups: Any, cells: Any, plan: Any, group: int, slot: int, arguments: Any, row: int) -> None:
    """Fill the cell of a new tuple and link it to the list and heaps of its group."""
    halves, program = cells.halves, plan.accumulators
    halves[slot, 0] = group
    for half in range(1, plan.first_link):
        halves[slot, half] = 0
    for argument in range(len(arguments.mask_of)):
        mask = arguments.mask_of[argument]
        if mask >= 0 and not arguments.valid[mask, row]:
            halves[slot, 1 + (argument >> 5)] |= np.int32(1) << np.int32(argument & 31)
    for line in range(plan.width):
        cells.words[slot, plan.base + line] = arguments.lines[line, row]
    links = plan.list_link
    if links >= 0:
        head = groups.anchors[group, 0]
        halves[slot, links] = head
        halves[slot, links + 1] = -1
        if head >= 0:
            halves[head, links + 1] = slot
        groups.anchors[group, 0] = slot
    for number in range(len(program)):
        side = program[number, SIDE]
        if side >= 0 and not _is_null(halves, slot, program[number, ARGUMENT]):
            groups.anchors[group, side] = _push(
                cells, groups.anchors[group, side], slot, program[number, LINK], plan.base + program[number, LINE],
                program[number, FORM], program[number, GREATEST],
            )  # fmt: skip


@njit(_nrt=False, forceinline=True)
def _unlink_tuple(groups: Any, cells: Any, plan: Any, group: int, slot: int) -> None:
    """Remove a cell from the list and heaps of its group and mark it as unused."""
    halves, program = cells.halves, plan.accumulators
    links = plan.list_link
    if links >= 0:
        following, back = halves[slot, links], halves[slot, links + 1]
        if back >= 0:
            halves[back, links] = following
        else:
            groups.anchors[group, 0] = following
        if following >= 0:
            halves[following, links + 1] = back
    for number in range(len(program)):
        side = program[number, SIDE]
        if side >= 0 and not _is_null(halves, slot, program[number, ARGUMENT]):
            groups.anchors[group, side] = _remove(
                cells, groups.anchors[group, side], slot, program[number, LINK], plan.base + program[number, LINE],
                program[number, FORM], program[number, GREATEST],
            )  # fmt: skip
    halves[slot, 0] = -1


@compiled(
    types.void, _words, _halves, _words, _readonly(_u8, 1), _i64[::1], _list, _list,
    _table, _readonly(_flag, 2), _list, _list, _table,
    _nrt=False,
)  # fmt: skip
def attach(
    words: Any, anchors: Any, cell_words: Any, texts: Any, pairs: Any, slots: Any, group_of: Any,
    lines: Any, valid: Any, mask_of: Any, shape: Any, program: Any,
) -> None:  # fmt: skip
    """Index restored tuples; the restored accumulators include them already."""
    groups, cells, plan = _groups(words, anchors), _cells(cell_words, texts, pairs), _plan(shape, program)
    arguments = _arguments(lines, valid, mask_of)
    for row in range(len(slots)):
        _link_tuple(groups, cells, plan, group_of[row], slots[row], arguments, row)
        for number in range(len(program)):
            if program[number, KIND] == DISTINCT and not _is_null(cells.halves, slots[row], program[number, ARGUMENT]):
                pairs[lines[program[number, LINE], row]] += 1


@compiled(types.void, _words, _halves, _words, _readonly(_u8, 1), _i64[::1], _list, _list, _table, _nrt=False)
def detach(
    words: Any, anchors: Any, cell_words: Any, texts: Any, pairs: Any, slots: Any, shape: Any, program: Any
) -> None:
    """Remove tuples from the indexes that ended while another worker ran; the accumulators exclude them already."""
    groups, cells, plan = _groups(words, anchors), _cells(cell_words, texts, pairs), _plan(shape, program)
    for row in range(len(slots)):
        slot = slots[row]
        group = cells.halves[slot, 0]
        if group >= 0:
            for number in range(len(program)):
                if program[number, KIND] == DISTINCT and not _is_null(cells.halves, slot, program[number, ARGUMENT]):
                    pairs[cell_words[slot, plan.base + program[number, LINE]]] -= 1
            _unlink_tuple(groups, cells, plan, group, slot)


# ---------------------------------------------------------------------------------------------- values of a group


@njit(_nrt=False, forceinline=True)
def _float_sum(groups: Any, plan: Any, group: int, at: int) -> Any:
    """Return the sum of a NUMBER accumulator, with its NaNs and infinities."""
    words = groups.words
    if not plan.endless:
        if words[group, at + NANS] > 0 or (words[group, at + ABOVE] > 0 and words[group, at + BELOW] > 0):
            return math.nan
        if words[group, at + ABOVE] > 0:
            return math.inf
        if words[group, at + BELOW] > 0:
            return -math.inf
    return groups.floats[group, at + HIGH]


@njit(_nrt=False, forceinline=True)
def _evaluate(groups: Any, cells: Any, plan: Any, calls: Any, values: Any, group: int, row: int) -> Any:
    """Write the values of a group's calls to a row of `values`; return the call whose sum is out of range, or -1."""
    words, program, lines = groups.words, plan.accumulators, calls.lines
    beyond = -1
    for call in range(len(lines)):
        reads, of, to = lines[call, READS], lines[call, OF], lines[call, TO]
        if of < 0:
            values.words[to, row] = words[group, COUNTED]
            values.present[call, row] = True
            continue
        kind, at = program[of, KIND], program[of, AT]
        if reads == HOW_MANY:
            values.words[to, row] = words[group, at]
            values.present[call, row] = True
            continue
        present = False
        width = 1
        if kind == EXTREME:
            form = program[of, FORM]
            width = 2 if form == DECIMAL else 3 if form == TEXT else 1
            if plan.endless:
                present = words[group, at] > 0
                if present:
                    for part in range(width):
                        values.words[to + part, row] = words[group, at + 1 + part]
            else:
                root = groups.anchors[group, program[of, SIDE]]
                present = root >= 0
                if present:
                    for part in range(width):
                        values.words[to + part, row] = cells.words[root, plan.base + program[of, LINE] + part]
        elif kind == EXACT:
            present = words[group, at] > 0
            if present:
                low, high, top = _load_sum(words, group, at, program[of, PARTS])
                if reads == AVERAGE:
                    mean = _to_float(low, high, top) / words[group, at]
                    values.floats[to, row] = mean if calls.scales[call] == 1.0 else mean / calls.scales[call]
                elif _fits(low, high, top, program[of, LIMIT]):
                    values.words[to, row] = low
                    if program[of, FORM] == DECIMAL:
                        values.words[to + 1, row] = high
                else:
                    present = False
                    beyond = call
            width = 2 if reads == SUM and program[of, FORM] == DECIMAL else 1
        else:
            count = words[group, at]
            present = count > 0
            value = 0.0
            if reads == VARIANCE:
                sample = lines[call, SAMPLE]
                present = count > sample
                if present:
                    value = _variance(words, groups.floats, group, at, program[of, SQUARES], plan.endless, sample)
                    if lines[call, ROOT]:
                        value = math.sqrt(value)
            elif present:
                value = _float_sum(groups, plan, group, at)
                if reads == AVERAGE:
                    value /= count
            values.floats[to, row] = math.nan if math.isnan(value) else value + 0.0
        values.present[call, row] = present
        if not present:
            for part in range(width):
                values.words[to + part, row] = 0
    return beyond


@njit(_nrt=False, forceinline=True)
def _rows_equal(values: Any, row: int, others: Any, other: int, program: Any, calls: Any, texts: Any) -> Any:
    """Return whether two rows have equal values."""
    for call in range(len(calls.lines)):
        if values.present[call, row] != others.present[call, other]:
            return False
        reads, of, to = calls.lines[call, READS], calls.lines[call, OF], calls.lines[call, TO]
        form = program[of, FORM] if reads in (SUM, BEST) else FLOAT
        if values.words[to, row] != others.words[to, other]:
            return False
        if form == DECIMAL and values.words[to + 1, row] != others.words[to + 1, other]:
            return False
        if form == TEXT and values.words[to + 1, row] != others.words[to + 1, other]:
            place, length = values.words[to + 1, row], values.words[to + 2, row]
            if _compare_texts(texts, place, length, others.words[to + 1, other], others.words[to + 2, other]) != 0:
                return False
    return True


# ---------------------------------------------------------------------------------------------- the sweep


@njit(_nrt=False, forceinline=True)
def _find_overflow(words: Any, program: Any, group: int, arguments: Any, row: int) -> Any:
    """Return the accumulator whose sum a new tuple would take out of its range, or farther out of it; -1 if none."""
    for number in range(len(program)):
        if program[number, KIND] != EXACT or program[number, LIMIT] == ANY:
            continue
        mask = arguments.mask_of[program[number, ARGUMENT]]
        if mask >= 0 and not arguments.valid[mask, row]:
            continue
        line, parts, limit = program[number, LINE], program[number, PARTS], program[number, LIMIT]
        wide = program[number, FORM] == DECIMAL
        add_low, add_high, add_top = _sign_extend(
            arguments.lines[line, row],
            arguments.lines[line + 1, row] if wide else np.int64(0),
            np.int64(0),
            2 if wide else 1,
        )
        low, high, top = _load_sum(words, group, program[number, AT], parts)
        new_low, new_high, new_top = _add_words(low, high, top, add_low, add_high, add_top)
        if not _fits(new_low, new_high, new_top, limit):
            is_zero = add_low == 0 and add_high == 0
            if _fits(low, high, top, limit) or ((top < 0) == (add_top < 0) and not is_zero):
                return number
    return -1


@njit(_nrt=False, forceinline=True)
def _add_exact(words: Any, group: int, at: int, parts: int, low: Any, high: Any, wide: bool, sign: int) -> None:
    """Add an integer or decimal to the exact sum of a group (sign 1) or subtract it (sign -1)."""
    low, high, top = _sign_extend(low, high, np.int64(0), 2 if wide else 1)
    if sign < 0:
        low, high, top = _negate(low, high, top)
    old_low, old_high, old_top = _load_sum(words, group, at, parts)
    low, high, top = _add_words(old_low, old_high, old_top, low, high, top)
    _store_sum(words, group, at, parts, low, high, top)


@njit(_nrt=False, forceinline=True)
def _note(
    groups: Any, cells: Any, plan: Any, calls: Any, carried: Any, noted: Any, noting: int, group: int, row: int
) -> Any:
    """Note that the step touches a group, and keep in `carried` the values of its open row; return the number noted."""
    words = groups.words
    if words[group, VERSION] >= 0:
        if words[group, ROW] >= 0:
            _evaluate(groups, cells, plan, calls, carried, group, noting)
        words[group, VERSION] = NOTED + noting
        noted[0, noting] = group
        noted[1, noting] = row
        noting += 1
    return noting


@njit(_nrt=False, forceinline=True)
def _remove_tuple(groups: Any, cells: Any, plan: Any, group: int, slot: int) -> None:
    """Subtract an ended tuple from the accumulators of its group and unlink it."""
    words, program = groups.words, plan.accumulators
    words[group, COUNTED] -= 1
    for number in range(len(program)):
        if _is_null(cells.halves, slot, program[number, ARGUMENT]):
            continue
        kind, at, cell = program[number, KIND], program[number, AT], plan.base + program[number, LINE]
        if kind == COUNT:
            words[group, at] -= 1
        elif kind == EXACT:
            words[group, at] -= 1
            wide = program[number, FORM] == DECIMAL
            high = cells.words[slot, cell + 1] if wide else np.int64(0)
            _add_exact(words, group, at, program[number, PARTS], cells.words[slot, cell], high, wide, -1)
        elif kind == NUMBER:
            words[group, at] -= 1
            _add_float(words, groups.floats, group, at, program[number, SQUARES], cells.floats[slot, cell], -1)
        elif kind == DISTINCT:
            pair = cells.words[slot, cell]
            cells.pairs[pair] -= 1
            if cells.pairs[pair] == 0:
                words[group, at] -= 1
    _unlink_tuple(groups, cells, plan, group, slot)


@njit(_nrt=False, forceinline=True)
def _add_tuple(
    groups: Any, cells: Any, plan: Any, group: int, arguments: Any, row: int, fresh: Any, bringing: int
) -> Any:
    """Add a new tuple to the accumulators of its group; return the number of entries in `fresh`."""
    words, program = groups.words, plan.accumulators
    words[group, COUNTED] += 1
    for number in range(len(program)):
        mask = arguments.mask_of[program[number, ARGUMENT]]
        if mask >= 0 and not arguments.valid[mask, row]:
            continue
        kind, at, line = program[number, KIND], program[number, AT], program[number, LINE]
        if kind == COUNT:
            words[group, at] += 1
        elif kind == EXACT:
            words[group, at] += 1
            wide = program[number, FORM] == DECIMAL
            high = arguments.lines[line + 1, row] if wide else np.int64(0)
            _add_exact(words, group, at, program[number, PARTS], arguments.lines[line, row], high, wide, 1)
        elif kind == NUMBER:
            words[group, at] += 1
            if plan.endless:
                _add_endless(groups.floats, group, at, program[number, SQUARES], arguments.floats[line, row])
            else:
                _add_float(words, groups.floats, group, at, program[number, SQUARES], arguments.floats[line, row], 1)
        elif kind == DISTINCT:
            pair = arguments.lines[line, row]
            cells.pairs[pair] += 1
            if cells.pairs[pair] == 1:
                words[group, at] += 1
                fresh[bringing] = row * len(program) + number
                bringing += 1
        elif plan.endless:
            form = program[number, FORM]
            width = 2 if form == DECIMAL else 3 if form == TEXT else 1
            for part in range(width):
                cells.words[0, part] = arguments.lines[line + part, row]
            better = words[group, at] == 0
            if not better:
                comparison = _compare(cells.words, 0, 0, words, group, at + 1, form, cells.texts)
                better = comparison > 0 if program[number, GREATEST] else comparison < 0
            words[group, at] += 1
            if better:
                for part in range(width):
                    words[group, at + 1 + part] = cells.words[0, part]
    return bringing


@compiled(
    types.UniTuple(_i64, 6),
    *(_words, _halves, _words, _readonly(_u8, 1), _i64[::1]),
    *(_list, _list, _list, _table, _readonly(_flag, 2), _list, _list, _i64[::1]),
    *(_list, _table, _table, _readonly(_f64, 1), _i64, _i64, _flag),
    *(_words, _flag[:, ::1], _words, _flag[:, ::1]),
    *(_words, _words, _words, _words, _i64[::1], _i64[::1], _words),
    _nrt=False,
)
def sweep(
    words: Any, anchors: Any, cell_words: Any, texts: Any, pairs: Any,
    starts: Any, group_of: Any, slots: Any, lines: Any, valid: Any, mask_of: Any, ends: Any, ended: Any,
    shape: Any, program: Any, call_lines: Any, scales: Any, birth: int, first: int, keyless: bool,
    out: Any, out_present: Any, before: Any, before_present: Any,
    rows: Any, noted: Any, closed: Any, spoiled: Any, beyond: Any, fresh: Any, lanes: Any,
) -> Any:  # fmt: skip
    """Go through the instants of a step: at each, process the ends, then the starts, then emit rows of the groups touched.

    `starts`, `group_of` and `slots` describe the new tuples; `ends` and `ended` (overwritten) those that end. `birth` is
    the instant at which the row of an aggregate without keys appears (OPEN: not in this step). Fills:

    - `rows`: start, end, group and new tuple (or -1) of every row that appears; row i has the id `first + i`, and its
      values are in `out`. `before` gets the values that touched groups had before the step;
    - `noted`: the groups touched, each with the new tuple that touched it first (-1: an end);
    - `closed`: ids and ends of rows of earlier steps; `spoiled`: new tuples and the accumulator that each would overflow;
    - `beyond`: rows whose sum is out of range; `fresh`: new tuples that bring a new value to a distinct count.

    Returns the number of entries: rows, noted, closed, spoiled, beyond, fresh. `lanes` is scratch space.
    """
    groups, cells, plan = _groups(words, anchors), _cells(cell_words, texts, pairs), _plan(shape, program)
    arguments, calls = _arguments(lines, valid, mask_of), Calls(call_lines, scales)
    values, carried = _values(out, out_present), _values(before, before_present)
    float_lanes = lanes.view(np.float64)
    halves = cells.halves
    emitted = noting = closing = spoiling = overdue = bringing = 0
    start = end = 0
    exact = False
    numeric = False
    for number in range(len(program)):
        exact |= program[number, KIND] == EXACT and program[number, LIMIT] != ANY
        numeric |= program[number, KIND] == NUMBER and not plan.endless
    while start < len(starts) or end < len(ends) or birth != OPEN:
        instant = birth
        if start < len(starts):
            instant = min(instant, starts[start])
        if end < len(ends):
            instant = min(instant, ends[end])
        first_end, first_start = end, start
        while end < len(ends) and ends[end] == instant:
            if end + _AHEAD < len(ended):
                prefetch(cell_words, ended[end + _AHEAD])
                near = ended[end + _AHEAD // 2]
                for half in range(plan.first_link, 2 * plan.base):
                    prefetch(cell_words, np.int64(max(halves[near, half], 0)))
            slot = ended[end]
            end += 1
            group = np.int64(halves[slot, 0])
            if group >= 0:
                noting = _note(groups, cells, plan, calls, carried, noted, noting, group, -1)
                _remove_tuple(groups, cells, plan, group, slot)
                ended[end - 1] = -1 - group
        while start < len(starts) and starts[start] == instant:
            row = start
            start += 1
            if row + _AHEAD < len(starts):
                prefetch(words, group_of[row + _AHEAD])
                prefetch(words, group_of[row + _AHEAD] + 1)
                if not plan.endless:
                    near = group_of[row + _AHEAD // 2]
                    for side in range(anchors.shape[1]):
                        prefetch(cell_words, np.int64(max(anchors[near, side], 0)))
            group = group_of[row]
            culprit = _find_overflow(words, program, group, arguments, row) if exact else -1
            if culprit >= 0:
                spoiled[0, spoiling] = row
                spoiled[1, spoiling] = culprit
                spoiling += 1
                if not plan.endless:
                    halves[slots[row], 0] = -1
                continue
            noting = _note(groups, cells, plan, calls, carried, noted, noting, group, row)
            bringing = _add_tuple(groups, cells, plan, group, arguments, row, fresh, bringing)
            if not plan.endless:
                _link_tuple(groups, cells, plan, group, slots[row], arguments, row)
        last = np.int64(-1)
        touched = (end - first_end) + (start - first_start)
        for place in range(touched + (1 if instant == birth else 0)):
            row = -1
            if place < end - first_end:
                group = -1 - ended[first_end + place]
            elif place < touched:
                row = first_start + place - (end - first_end)
                group = group_of[row]
            else:
                group = np.int64(0)
                noting = _note(groups, cells, plan, calls, carried, noted, noting, group, -1)
            if group < 0 or group == last or words[group, VERSION] >= 0:
                continue
            last = group
            if numeric:
                for number in range(len(program)):
                    if program[number, KIND] == NUMBER and _needs_recomputation(
                        words, groups.floats, group, program[number, AT], program[number, SQUARES]
                    ):
                        _recompute_sums(groups, cells, plan, group, number, lanes, float_lanes)
            alive = words[group, COUNTED] > 0 or (keyless and (instant == birth or words[group, ROW] >= 0))
            open_row = words[group, ROW]
            out_of_range = -1
            if alive:
                out_of_range = _evaluate(groups, cells, plan, calls, values, group, emitted)
                if open_row >= first:
                    if _rows_equal(values, emitted, values, open_row - first, program, calls, texts):
                        continue
                elif open_row >= 0 and _rows_equal(
                    values, emitted, carried, words[group, VERSION] - NOTED, program, calls, texts
                ):
                    continue
            if open_row >= first:
                rows[1, open_row - first] = instant
            elif open_row >= 0:
                closed[0, closing] = open_row
                closed[1, closing] = instant
                closing += 1
            words[group, ROW] = -1
            if alive:
                words[group, ROW] = first + emitted
                rows[0, emitted] = instant
                rows[1, emitted] = OPEN
                rows[2, emitted] = group
                rows[3, emitted] = row
                if out_of_range >= 0:
                    beyond[overdue] = emitted * len(call_lines) + out_of_range
                    overdue += 1
                emitted += 1
        if instant == birth:
            birth = OPEN
    return emitted, noting, closing, spoiling, overdue, bringing


# ---------------------------------------------------------------------------------------------- groups as state


@compiled(_i64, _words, _list, _table, _list, _i64)
def put(words: Any, slots: Any, values: Any, places: Any, version: int) -> Any:
    """Set words that were written at `version`, except in groups written later; return by how many the live groups grow."""
    gained = 0
    for row in range(len(slots)):
        if row + _AHEAD < len(slots):
            prefetch(words, slots[row + _AHEAD])
        slot = slots[row]
        if version >= words[slot, VERSION]:
            gained -= words[slot, ROW] >= 0
            words[slot, VERSION] = version
            for part in range(len(values)):
                words[slot, places[part]] = values[part, row]
            gained += words[slot, ROW] >= 0
    return gained


@compiled(types.void, _words, _list, _list, _i64, _words)
def gather(words: Any, slots: Any, places: Any, version: int, values: Any) -> None:
    """Copy the words at `places` of some groups into `values` and mark the groups as written at `version`."""
    for row in range(len(slots)):
        if row + _AHEAD < len(slots):
            prefetch(words, slots[row + _AHEAD])
            prefetch(words, slots[row + _AHEAD] + 1)
        slot = slots[row]
        words[slot, VERSION] = version
        for part in range(len(values)):
            values[part, row] = words[slot, places[part]]


@compiled(_i64, _words, _list, _i64, _i64[::1])
def unchanged(words: Any, slots: Any, version: int, positions: Any) -> Any:
    """Put the positions of live groups last written at or before `version` into `positions`, each group once."""
    count = 0
    for row in range(len(slots)):
        slot = slots[row]
        if slot >= 0 and words[slot, ROW] >= 0 and 0 <= words[slot, VERSION] <= version:
            words[slot, VERSION] = NOTED
            positions[count] = row
            count += 1
    return count


# ---------------------------------------------------------------------------------------------- texts


@compiled(types.void, _readonly(_u8, 1), _list, _readonly(_flag, 1), _i64, _words)
def describe_texts(arena: Any, starts: Any, valid: Any, base: int, lines: Any) -> None:
    """Fill lines with the first eight bytes (as an int64 of the same order), the place and the length of each text.

    The texts are in the arena, one after the other, from `base` on.
    """
    for row in range(len(starts) - 1):
        at = base + starts[row] - starts[0]
        length = starts[row + 1] - starts[row]
        if len(valid) > 0 and not valid[row]:
            length = 0
        prefix = np.uint64(0)
        for part in range(8):
            byte = np.uint64(arena[at + part]) if part < length else np.uint64(0)
            prefix = (prefix << np.uint64(8)) | byte
        lines[0, row] = np.int64(prefix ^ np.uint64(2**63))
        lines[1, row] = at
        lines[2, row] = length


@compiled(types.void, _readonly(_u8, 1), _list, _list, _u8[::1])
def copy_texts(arena: Any, places: Any, ends: Any, copy: Any) -> None:
    """Copy texts one after the other; text i ends at `ends[i + 1]`."""
    for row in range(len(places)):
        place = places[row]
        for part in range(ends[row + 1] - ends[row]):
            copy[ends[row] + part] = arena[place + part]
