"""The compiled loops of `hayase.lifetimes.aggregates`: the sweep, exact and compensated sums, heaps.

Numba notices a change of no other file, so everything that the sweep calls stands here. `words`, `cells`, `lines` and
`out` are rows or lines of 8-byte words; their `float_` twins are the same memory. Nothing is allocated here, so that
Numba need not count references (`_nrt`), which would cost more than the sweep itself.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types

from hayase.core.key_loops import compiled, prefetch
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
"""From here on the version word of a group counts the groups that the running loop has taken note of."""

_LIMIT_HIGH, _LIMIT_LOW = np.int64(10**38 >> 64), np.uint64(10**38 & (2**64 - 1))
_FLOOR_HIGH, _FLOOR_LOW = np.int64(-(10**38) >> 64), np.uint64(-(10**38) & (2**64 - 1))
_AHEAD = 16
_LANES = LANES
_LANE = np.int64(2**32 - 1)
_UNITS = np.array([2.0 ** (32 * lane - 1074) if 32 * lane - 1074 < 1024 else math.inf for lane in range(_LANES)])
_EPSILON = 2.0**-53
_TURN = np.int64(2**63 - 1)
_HUGE = 2.0**480
"""The squares of such numbers are in no sum; while there are any, the variance is infinite."""

_i64, _f64, _i32, _u8, _flag = types.int64, types.float64, types.int32, types.uint8, types.boolean
_words, _floats, _halves = _i64[:, ::1], _f64[:, ::1], _i32[:, ::1]


def _given(kind: Any, dimensions: int) -> Any:
    return types.Array(kind, dimensions, "C", readonly=True)


_list, _table = _given(_i64, 1), _given(_i64, 2)


# ---------------------------------------------------------------------------------------------- exact sums


@njit(inline="always")
def _extended(low: Any, high: Any, top: Any, parts: int) -> Any:
    """Three words of a number of which `parts` are given."""
    if parts == 1:
        high = low >> 63
    if parts < 3:
        top = high >> 63
    return low, high, top


@njit(inline="always")
def _plus(low: Any, high: Any, top: Any, add_low: Any, add_high: Any, add_top: Any) -> Any:
    """The sum of two numbers of three words."""
    new_low = np.uint64(low) + np.uint64(add_low)
    carry = np.uint64(1) if new_low < np.uint64(low) else np.uint64(0)
    half = np.uint64(high) + np.uint64(add_high)
    over = np.uint64(1) if half < np.uint64(high) else np.uint64(0)
    new_high = half + carry
    if new_high < carry:
        over += np.uint64(1)
    return np.int64(new_low), np.int64(new_high), top + add_top + np.int64(over)


@njit(inline="always")
def _minus(low: Any, high: Any, top: Any) -> Any:
    """A number of three words, negated."""
    return _plus(~low, ~high, ~top, np.int64(1), np.int64(0), np.int64(0))


@njit(inline="always")
def _fits(low: Any, high: Any, top: Any, limit: int) -> Any:
    """Whether a sum is within its limit."""
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
def _held(words: Any, group: int, at: int, parts: int) -> Any:
    """The exact sum of a group."""
    low = words[group, at + 1]
    high = words[group, at + 2] if parts > 1 else np.int64(0)
    top = words[group, at + 3] if parts > 2 else np.int64(0)
    return _extended(low, high, top, parts)


@njit(inline="always")
def _keep(words: Any, group: int, at: int, parts: int, low: Any, high: Any, top: Any) -> None:
    words[group, at + 1] = low
    if parts > 1:
        words[group, at + 2] = high
    if parts > 2:
        words[group, at + 3] = top


@njit(_nrt=False)
def _as_float(low: Any, high: Any, top: Any) -> Any:
    """A number of three words, rounded."""
    if high == low >> 63 and top == high:
        return np.float64(low)
    negative = top < 0
    if negative:
        low, high, top = _minus(low, high, top)
    size = np.float64(np.uint64(low))
    if high != 0 or top != 0:
        size = np.float64(np.uint64(top)) * 2.0**128 + (np.float64(np.uint64(high)) * 2.0**64 + size)
    return -size if negative else size


# ---------------------------------------------------------------------------------------------- sums of floats


@njit(inline="always")
def _two_sum(one: Any, other: Any) -> Any:
    """A sum and what rounding took from it (Knuth)."""
    total = one + other
    part = total - one
    return total, (one - (total - part)) + (other - part)


@njit(inline="always")
def _split(number: Any) -> Any:
    scaled = number * 134217729.0
    high = scaled - (scaled - number)
    return high, number - high


@njit(inline="always")
def _two_product(one: Any, other: Any) -> Any:
    """A product and what rounding took from it (Dekker)."""
    product = one * other
    one_high, one_low = _split(one)
    other_high, other_low = _split(other)
    rest = one_low * other_low - (((product - one_high * other_high) - one_low * other_high) - one_high * other_low)
    return product, rest if math.isfinite(rest) else 0.0


@njit(inline="always")
def _accumulate(floats: Any, group: int, at: int, number: Any, rest: Any) -> None:
    """Add a number, and a small one that belongs to it, to the sum in two doubles at a word."""
    total, lost = _two_sum(floats[group, at], number)
    lost += floats[group, at + 1] + rest
    high = total + lost
    floats[group, at] = high
    floats[group, at + 1] = lost - (high - total)


@njit(_nrt=False, forceinline=True)
def _add_for_ever(floats: Any, group: int, at: int, squares: int, number: Any) -> None:
    """Add a number that never leaves: what is not finite stays, as IEEE 754 has it."""
    total = floats[group, at + HIGH] + number
    if math.isfinite(total):
        _accumulate(floats, group, at + HIGH, number, 0.0)
    else:
        floats[group, at + HIGH] = total
        floats[group, at + LOW] = 0.0
    if squares > 0:
        product, rest = _two_product(number, number)
        total = floats[group, at + squares] + product
        if math.isfinite(total):
            _accumulate(floats, group, at + squares, product, rest)
        else:
            floats[group, at + squares] = total
            floats[group, at + squares + 1] = 0.0


@njit(_nrt=False, forceinline=True)
def _add(words: Any, floats: Any, group: int, at: int, squares: int, number: Any, sign: int) -> None:
    """Add a number (sign 1) or take it away (-1); the group's count has changed already.

    What is not finite is only counted. What rounding may have done to the sum of sizes, and so 2**-50 times that to
    the sum itself, is the doubt; with the last number all of it goes.
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
    _accumulate(floats, group, at + HIGH, sign * number, 0.0)
    before = floats[group, at + SIZE]
    after = before + sign * abs(number)
    floats[group, at + SIZE] = after
    floats[group, at + DOUBT] += _EPSILON * max(before, after)
    if squares > 0 and abs(number) >= _HUGE:
        words[group, at + squares + 3] += sign
    elif squares > 0:
        product, rest = _two_product(number, number)
        before = floats[group, at + squares]
        _accumulate(floats, group, at + squares, sign * product, sign * rest)
        floats[group, at + squares + 2] += _EPSILON * max(before, floats[group, at + squares])


@njit(_nrt=False)
def _pour(lanes: Any, line: int, bits: Any) -> None:
    """Add a finite float, given as its bits, to a sum of 32-bit lanes that is wide enough for all of them."""
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
def _carry(lanes: Any, line: int) -> None:
    for lane in range(_LANES - 1):
        lanes[line, lane + 1] += lanes[line, lane] >> 32
        lanes[line, lane] &= _LANE


@njit(_nrt=False)
def _drained(lanes: Any, line: int) -> Any:
    """The sum in lanes as two doubles; the lanes are empty afterwards."""
    _carry(lanes, line)
    negative = lanes[line, _LANES - 1] < 0
    if negative:
        for lane in range(_LANES):
            lanes[line, lane] = -lanes[line, lane]
        _carry(lanes, line)
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


@njit(_nrt=False)
def _sum_anew(
    words: Any, floats: Any, anchors: Any, cells: Any, float_cells: Any, halves: Any, lanes: Any,
    float_lanes: Any, group: int, at: int, squares: int, cell: int, argument: int, links: int,
) -> None:  # fmt: skip
    """The sums of a group from its tuples, exact but for the last rounding and so whatever their order."""
    slot = anchors[group, 0]
    while slot >= 0:
        number = float_cells[slot, cell]
        if math.isfinite(number) and not halves[slot, 1 + (argument >> 5)] >> (argument & 31) & 1:
            _pour(lanes, 1 if number < 0 else 0, cells[slot, cell] & _TURN)
            if squares > 0 and abs(number) < _HUGE:
                float_lanes[3, 0], float_lanes[3, 1] = _two_product(number, number)
                _pour(lanes, 2, lanes[3, 0])
                _pour(lanes, 2, lanes[3, 1])
        slot = halves[slot, links]
    for lane in range(_LANES):
        above, below = lanes[0, lane], lanes[1, lane]
        lanes[0, lane], lanes[1, lane] = above - below, above + below
    floats[group, at + HIGH], floats[group, at + LOW] = _drained(lanes, 0)
    floats[group, at + SIZE], float_lanes[3, 0] = _drained(lanes, 1)
    floats[group, at + DOUBT] = 0.0
    if squares > 0:
        floats[group, at + squares], floats[group, at + squares + 1] = _drained(lanes, 2)
        floats[group, at + squares + 2] = 0.0


@njit(_nrt=False, forceinline=True)
def _is_doubtful(words: Any, floats: Any, group: int, at: int, squares: int) -> Any:
    """Whether a group's sums should be made anew: not before as many tuples have passed as that costs, unless something
    large has gone and left its rounding behind."""
    finite = words[group, at] - words[group, at + NANS] - words[group, at + ABOVE] - words[group, at + BELOW]
    if finite == 0:
        return False
    bearable = _EPSILON * max(8192, 16 * finite)
    size = floats[group, at + SIZE]
    if not (math.isfinite(size) and math.isfinite(floats[group, at + HIGH])):
        return True
    if floats[group, at + DOUBT] > bearable * size:
        return True
    if squares > 0:
        return floats[group, at + squares + 2] > bearable * floats[group, at + squares]
    return False


@njit(_nrt=False)
def _variance(words: Any, floats: Any, group: int, at: int, squares: int, endless: bool, sample: int) -> Any:
    """The variance, from the sums of numbers and squares in two doubles each; noise below their precision is nought."""
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
def _compared_texts(arena: Any, start: int, length: int, other: int, other_length: int) -> Any:
    """Negative, zero or positive, as bytes are ordered."""
    for at in range(min(length, other_length)):
        one, two = arena[start + at], arena[other + at]
        if one != two:
            return np.int64(one) - np.int64(two)
    return length - other_length


@njit(inline="always")
def _ordered(bits: Any) -> Any:
    """The bits of a float, turned so that integers are ordered like it; the one NaN there is comes last."""
    return bits ^ ((bits >> 63) & _TURN)


@njit(_nrt=False, forceinline=True)
def _compared(rows: Any, one: int, at: int, others: Any, two: int, other: int, form: int, arena: Any) -> Any:
    """How a value in word `at` of a row compares with one of another row: negative, zero or positive."""
    first, second = rows[one, at], others[two, other]
    if form == FLOAT:
        first, second = _ordered(first), _ordered(second)
    elif form == DECIMAL:
        first, second = rows[one, at + 1], others[two, other + 1]
    if first != second:
        return -1 if first < second else 1
    if form == DECIMAL:
        low, other_low = np.uint64(rows[one, at]), np.uint64(others[two, other])
        if low != other_low:
            return -1 if low < other_low else 1
    if form == TEXT:
        return _compared_texts(
            arena, rows[one, at + 1], rows[one, at + 2], others[two, other + 1], others[two, other + 2]
        )
    return 0


@njit(_nrt=False, forceinline=True)
def _meld(cells: Any, halves: Any, arena: Any, one: int, two: int, link: int, cell: int, form: int, most: int) -> Any:
    """Join two trees of a pairing heap (Fredman et al. 1986) and return the root; links are child, next and back."""
    compared = _compared(cells, one, cell, cells, two, cell, form, arena)
    if compared < 0 if most else compared > 0:
        one, two = two, one
    child = halves[one, link]
    halves[two, link + 1] = child
    halves[two, link + 2] = one
    if child >= 0:
        halves[child, link + 2] = two
    halves[one, link] = two
    return one


@njit(_nrt=False, forceinline=True)
def _push(cells: Any, halves: Any, arena: Any, root: int, slot: int, link: int, cell: int, form: int, most: int) -> Any:
    """Put a cell into a heap; the new root."""
    halves[slot, link] = -1
    halves[slot, link + 1] = -1
    halves[slot, link + 2] = -1
    return slot if root < 0 else _meld(cells, halves, arena, root, slot, link, cell, form, most)


@njit(_nrt=False, forceinline=True)
def _pull(cells: Any, halves: Any, arena: Any, root: int, slot: int, link: int, cell: int, form: int, most: int) -> Any:
    """Take a cell out of a heap; the new root, or -1. Its children are joined in pairs, then the pairs."""
    paired = -1
    child = halves[slot, link]
    while child >= 0:
        partner = halves[child, link + 1]
        following = -1
        tree = child
        if partner >= 0:
            following = halves[partner, link + 1]
            tree = _meld(cells, halves, arena, child, partner, link, cell, form, most)
        halves[tree, link + 1] = paired
        paired = tree
        child = following
    below = -1
    while paired >= 0:
        following = halves[paired, link + 1]
        halves[paired, link + 1] = -1
        below = paired if below < 0 else _meld(cells, halves, arena, below, paired, link, cell, form, most)
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
    return root if below < 0 else _meld(cells, halves, arena, root, below, link, cell, form, most)


# ---------------------------------------------------------------------------------------------- cells


@njit(inline="always")
def _is_null(halves: Any, slot: int, argument: int) -> Any:
    return (halves[slot, 1 + (argument >> 5)] >> (argument & 31)) & 1 == 1


@njit(_nrt=False, forceinline=True)
def _enter(
    anchors: Any, cells: Any, halves: Any, arena: Any, group: int, slot: int,
    lines: Any, valid: Any, known: Any, row: int, shape: Any, program: Any,
) -> None:  # fmt: skip
    """Fill a cell with a tuple and link it to its group's list and heaps."""
    halves[slot, 0] = group
    for half in range(1, shape[2]):
        halves[slot, half] = 0
    for argument in range(len(known)):
        if known[argument] >= 0 and not valid[known[argument], row]:
            halves[slot, 1 + (argument >> 5)] |= np.int32(1) << np.int32(argument & 31)
    for line in range(shape[4]):
        cells[slot, shape[3] + line] = lines[line, row]
    links = shape[1]
    if links >= 0:
        head = anchors[group, 0]
        halves[slot, links] = head
        halves[slot, links + 1] = -1
        if head >= 0:
            halves[head, links + 1] = slot
        anchors[group, 0] = slot
    for each in range(len(program)):
        if program[each, SIDE] >= 0 and not _is_null(halves, slot, program[each, ARGUMENT]):
            side = program[each, SIDE]
            anchors[group, side] = _push(
                cells, halves, arena, anchors[group, side], slot, program[each, LINK], shape[3] + program[each, LINE],
                program[each, FORM], program[each, GREATEST],
            )  # fmt: skip


@njit(_nrt=False, forceinline=True)
def _leave(anchors: Any, cells: Any, halves: Any, arena: Any, group: int, slot: int, shape: Any, program: Any) -> None:
    """Unlink a cell from its group's list and heaps; it is nobody's afterwards."""
    links = shape[1]
    if links >= 0:
        following, back = halves[slot, links], halves[slot, links + 1]
        if back >= 0:
            halves[back, links] = following
        else:
            anchors[group, 0] = following
        if following >= 0:
            halves[following, links + 1] = back
    for each in range(len(program)):
        if program[each, SIDE] >= 0 and not _is_null(halves, slot, program[each, ARGUMENT]):
            side = program[each, SIDE]
            anchors[group, side] = _pull(
                cells, halves, arena, anchors[group, side], slot, program[each, LINK], shape[3] + program[each, LINE],
                program[each, FORM], program[each, GREATEST],
            )  # fmt: skip
    halves[slot, 0] = -1


@compiled(
    types.void, _halves, _words, _halves, _given(_u8, 1), _i64[::1], _list, _list,
    _table, _given(_flag, 2), _list, _list, _table,
)  # fmt: skip
def attach(
    anchors: Any, cells: Any, halves: Any, arena: Any, pairs: Any, slots: Any, groups: Any,
    lines: Any, valid: Any, known: Any, shape: Any, program: Any,
) -> None:  # fmt: skip
    """Index restored tuples: their effect is in the accumulators already."""
    for row in range(len(slots)):
        _enter(anchors, cells, halves, arena, groups[row], slots[row], lines, valid, known, row, shape, program)
        for each in range(len(program)):
            if program[each, KIND] == DISTINCT and not _is_null(halves, slots[row], program[each, ARGUMENT]):
                pairs[lines[program[each, LINE], row]] += 1


@compiled(types.void, _halves, _words, _halves, _given(_u8, 1), _i64[::1], _list, _list, _table)
def detach(anchors: Any, cells: Any, halves: Any, arena: Any, pairs: Any, slots: Any, shape: Any, program: Any) -> None:
    """Forget tuples that ended elsewhere: their effect has gone from the accumulators already."""
    for row in range(len(slots)):
        slot = slots[row]
        group = halves[slot, 0]
        if group >= 0:
            for each in range(len(program)):
                if program[each, KIND] == DISTINCT and not _is_null(halves, slot, program[each, ARGUMENT]):
                    pairs[cells[slot, shape[3] + program[each, LINE]]] -= 1
            _leave(anchors, cells, halves, arena, group, slot, shape, program)


# ---------------------------------------------------------------------------------------------- the sweep


@njit(_nrt=False, forceinline=True)
def _evaluate(
    words: Any, floats: Any, anchors: Any, cells: Any, group: int, shape: Any, program: Any, calls: Any, scales: Any,
    out: Any, float_out: Any, there: Any, row: int,
) -> Any:  # fmt: skip
    """Write the values of a group's calls to a row of `out`; returns the call whose sum is out of range, or -1."""
    beyond = -1
    for call in range(len(calls)):
        reads, of, to = calls[call, READS], calls[call, OF], calls[call, TO]
        if of < 0:
            out[to, row] = words[group, COUNTED]
            there[call, row] = True
            continue
        kind, at = program[of, KIND], program[of, AT]
        if reads == HOW_MANY:
            out[to, row] = words[group, at]
            there[call, row] = True
            continue
        present = False
        width = 1
        if kind == EXTREME:
            form = program[of, FORM]
            width = 2 if form == DECIMAL else 3 if form == TEXT else 1
            if shape[0]:
                present = words[group, at] > 0
                if present:
                    for part in range(width):
                        out[to + part, row] = words[group, at + 1 + part]
            else:
                root = anchors[group, program[of, SIDE]]
                present = root >= 0
                if present:
                    for part in range(width):
                        out[to + part, row] = cells[root, shape[3] + program[of, LINE] + part]
        elif kind == EXACT:
            present = words[group, at] > 0
            if present:
                low, high, top = _held(words, group, at, program[of, PARTS])
                if reads == AVERAGE:
                    mean = _as_float(low, high, top) / words[group, at]
                    float_out[to, row] = mean if scales[call] == 1.0 else mean / scales[call]
                elif _fits(low, high, top, program[of, LIMIT]):
                    out[to, row] = low
                    if program[of, FORM] == DECIMAL:
                        out[to + 1, row] = high
                else:
                    present = False
                    beyond = call
            width = 2 if reads == SUM and program[of, FORM] == DECIMAL else 1
        else:
            count = words[group, at]
            present = count > 0
            value = 0.0
            if reads == VARIANCE:
                present = count > calls[call, SAMPLE]
                if present:
                    value = _variance(
                        words, floats, group, at, program[of, SQUARES], shape[0] != 0, calls[call, SAMPLE]
                    )
                    if calls[call, ROOT]:
                        value = math.sqrt(value)
            elif present:
                value = floats[group, at + HIGH]
                if not shape[0]:
                    if words[group, at + NANS] > 0 or (words[group, at + ABOVE] > 0 and words[group, at + BELOW] > 0):
                        value = math.nan
                    elif words[group, at + ABOVE] > 0:
                        value = math.inf
                    elif words[group, at + BELOW] > 0:
                        value = -math.inf
                if reads == AVERAGE:
                    value /= count
            float_out[to, row] = math.nan if math.isnan(value) else value + 0.0
        there[call, row] = present
        if not present:
            for part in range(width):
                out[to + part, row] = 0
    return beyond


@njit(_nrt=False, forceinline=True)
def _is_same(
    out: Any, there: Any, row: int, others: Any, others_there: Any, other: int, program: Any, calls: Any, arena: Any
) -> Any:
    """Whether two rows of values are equal."""
    for call in range(len(calls)):
        if there[call, row] != others_there[call, other]:
            return False
        reads, of, to = calls[call, READS], calls[call, OF], calls[call, TO]
        form = program[of, FORM] if reads in (SUM, BEST) else FLOAT
        if out[to, row] != others[to, other]:
            return False
        if form == DECIMAL and out[to + 1, row] != others[to + 1, other]:
            return False
        if form == TEXT and out[to + 1, row] != others[to + 1, other]:
            place, length = out[to + 1, row], out[to + 2, row]
            if _compared_texts(arena, place, length, others[to + 1, other], others[to + 2, other]) != 0:
                return False
    return True


@njit(_nrt=False, forceinline=True)
def _overflowing(words: Any, group: int, lines: Any, valid: Any, known: Any, row: int, program: Any) -> Any:
    """The accumulator whose sum a tuple would take out of its range, or farther out of it; -1 if there is none."""
    for each in range(len(program)):
        if program[each, KIND] != EXACT or program[each, LIMIT] == ANY:
            continue
        flag = known[program[each, ARGUMENT]]
        if flag >= 0 and not valid[flag, row]:
            continue
        line, parts, limit = program[each, LINE], program[each, PARTS], program[each, LIMIT]
        wide = program[each, FORM] == DECIMAL
        add_low, add_high, add_top = _extended(
            lines[line, row], lines[line + 1, row] if wide else np.int64(0), np.int64(0), 2 if wide else 1
        )
        low, high, top = _held(words, group, program[each, AT], parts)
        new_low, new_high, new_top = _plus(low, high, top, add_low, add_high, add_top)
        if not _fits(new_low, new_high, new_top, limit):
            nought = add_low == 0 and add_high == 0
            if _fits(low, high, top, limit) or ((top < 0) == (add_top < 0) and not nought):
                return each
    return -1


@njit(_nrt=False, forceinline=True)
def _apply_exact(words: Any, group: int, at: int, parts: int, low: Any, high: Any, wide: bool, sign: int) -> None:
    low, high, top = _extended(low, high, np.int64(0), 2 if wide else 1)
    if sign < 0:
        low, high, top = _minus(low, high, top)
    held_low, held_high, held_top = _held(words, group, at, parts)
    low, high, top = _plus(held_low, held_high, held_top, low, high, top)
    _keep(words, group, at, parts, low, high, top)


@compiled(
    types.UniTuple(_i64, 6),
    *(_words, _floats, _halves, _words, _floats, _halves, _given(_u8, 1), _i64[::1]),
    *(_list, _list, _list, _table, _given(_f64, 2), _given(_flag, 2), _list, _list, _i64[::1]),
    *(_list, _table, _table, _given(_f64, 1), _i64, _i64, _flag),
    *(_words, _floats, _flag[:, ::1], _words, _words, _floats, _flag[:, ::1]),
    *(_words, _words, _words, _i64[::1], _i64[::1], _words, _floats),
    _nrt=False,
)
def sweep(
    words: Any, floats: Any, anchors: Any, cells: Any, float_cells: Any, halves: Any, arena: Any, pairs: Any,
    starts: Any, groups: Any, slots: Any, lines: Any, float_lines: Any, valid: Any, known: Any, ends: Any, ended: Any,
    shape: Any, program: Any, calls: Any, scales: Any, birth: int, first: int, keyless: bool,
    out: Any, float_out: Any, there: Any, rows: Any, carried: Any, float_carried: Any, carried_there: Any,
    noted: Any, closed: Any, spoiled: Any, beyond: Any, fresh: Any, lanes: Any, float_lanes: Any,
) -> Any:  # fmt: skip
    """One sweep over the instants of a step: at each, the ends, then the starts, then the rows of the groups they touch.

    `rows` gets start, end, group and starting tuple (or -1) of every row that appears; its id is `first` and its place.
    `noted` gets the groups touched, each with the tuple that did it first (-1: an end), `closed` ids and ends of rows of
    earlier steps, `spoiled` tuples and the accumulator that would overflow, `beyond` rows whose sum is out of range,
    `fresh` tuples that bring a new value to a distinct count. Returns how many there are: rows, noted, closed, spoiled,
    beyond, fresh. `carried` are the values that groups had before the step; `ended` is overwritten; `lanes` are for sums
    made anew.
    """
    endless = shape[0] != 0
    base = shape[3]
    made = noting = closing = spoiling = overdue = bringing = 0
    start = end = 0
    exact = False
    numeric = False
    for each in range(len(program)):
        exact |= program[each, KIND] == EXACT and program[each, LIMIT] != ANY
        numeric |= program[each, KIND] == NUMBER and not endless
    while start < len(starts) or end < len(ends) or birth != OPEN:
        instant = birth
        if start < len(starts):
            instant = min(instant, starts[start])
        if end < len(ends):
            instant = min(instant, ends[end])
        first_end, first_start = end, start
        while end < len(ends) and ends[end] == instant:
            if end + _AHEAD < len(ended):
                prefetch(cells, ended[end + _AHEAD])
                near = ended[end + _AHEAD // 2]
                for half in range(shape[2], 2 * base):
                    prefetch(cells, np.int64(max(halves[near, half], 0)))
            slot = ended[end]
            end += 1
            group = np.int64(halves[slot, 0])
            if group < 0:
                continue
            if words[group, VERSION] >= 0:
                if words[group, ROW] >= 0:
                    _evaluate(
                        words, floats, anchors, cells, group, shape, program, calls, scales,
                        carried, float_carried, carried_there, noting,
                    )  # fmt: skip
                words[group, VERSION] = NOTED + noting
                noted[0, noting] = group
                noted[1, noting] = -1
                noting += 1
            words[group, COUNTED] -= 1
            for each in range(len(program)):
                if _is_null(halves, slot, program[each, ARGUMENT]):
                    continue
                kind, at, cell = program[each, KIND], program[each, AT], base + program[each, LINE]
                if kind == COUNT:
                    words[group, at] -= 1
                elif kind == EXACT:
                    words[group, at] -= 1
                    wide = program[each, FORM] == DECIMAL
                    _apply_exact(
                        words, group, at, program[each, PARTS], cells[slot, cell],
                        cells[slot, cell + 1] if wide else np.int64(0), wide, -1,
                    )  # fmt: skip
                elif kind == NUMBER:
                    words[group, at] -= 1
                    _add(words, floats, group, at, program[each, SQUARES], float_cells[slot, cell], -1)
                elif kind == DISTINCT:
                    pair = cells[slot, cell]
                    pairs[pair] -= 1
                    if pairs[pair] == 0:
                        words[group, at] -= 1
            _leave(anchors, cells, halves, arena, group, slot, shape, program)
            ended[end - 1] = -1 - group
        while start < len(starts) and starts[start] == instant:
            row = start
            start += 1
            if row + _AHEAD < len(starts):
                prefetch(words, groups[row + _AHEAD])
                prefetch(words, groups[row + _AHEAD] + 1)
                if not endless:
                    near = groups[row + _AHEAD // 2]
                    for side in range(anchors.shape[1]):
                        prefetch(cells, np.int64(max(anchors[near, side], 0)))
            group = groups[row]
            if exact:
                culprit = _overflowing(words, group, lines, valid, known, row, program)
                if culprit >= 0:
                    spoiled[0, spoiling] = row
                    spoiled[1, spoiling] = culprit
                    spoiling += 1
                    if not endless:
                        halves[slots[row], 0] = -1
                    continue
            if words[group, VERSION] >= 0:
                if words[group, ROW] >= 0:
                    _evaluate(
                        words, floats, anchors, cells, group, shape, program, calls, scales,
                        carried, float_carried, carried_there, noting,
                    )  # fmt: skip
                words[group, VERSION] = NOTED + noting
                noted[0, noting] = group
                noted[1, noting] = row
                noting += 1
            words[group, COUNTED] += 1
            for each in range(len(program)):
                flag = known[program[each, ARGUMENT]]
                if flag >= 0 and not valid[flag, row]:
                    continue
                kind, at, line = program[each, KIND], program[each, AT], program[each, LINE]
                if kind == COUNT:
                    words[group, at] += 1
                elif kind == EXACT:
                    words[group, at] += 1
                    wide = program[each, FORM] == DECIMAL
                    _apply_exact(
                        words, group, at, program[each, PARTS], lines[line, row],
                        lines[line + 1, row] if wide else np.int64(0), wide, 1,
                    )  # fmt: skip
                elif kind == NUMBER:
                    words[group, at] += 1
                    if endless:
                        _add_for_ever(floats, group, at, program[each, SQUARES], float_lines[line, row])
                    else:
                        _add(words, floats, group, at, program[each, SQUARES], float_lines[line, row], 1)
                elif kind == DISTINCT:
                    pair = lines[line, row]
                    pairs[pair] += 1
                    if pairs[pair] == 1:
                        words[group, at] += 1
                        fresh[bringing] = row * len(program) + each
                        bringing += 1
                elif endless:
                    form = program[each, FORM]
                    width = 2 if form == DECIMAL else 3 if form == TEXT else 1
                    for part in range(width):
                        cells[0, part] = lines[line + part, row]
                    better = words[group, at] == 0
                    if not better:
                        compared = _compared(cells, 0, 0, words, group, at + 1, form, arena)
                        better = compared > 0 if program[each, GREATEST] else compared < 0
                    words[group, at] += 1
                    if better:
                        for part in range(width):
                            words[group, at + 1 + part] = cells[0, part]
            if not endless:
                _enter(anchors, cells, halves, arena, group, slots[row], lines, valid, known, row, shape, program)
        last = np.int64(-1)
        touched = (end - first_end) + (start - first_start)
        for place in range(touched + (1 if instant == birth else 0)):
            row = -1
            if place < end - first_end:
                group = -1 - ended[first_end + place]
            elif place < touched:
                row = first_start + place - (end - first_end)
                group = groups[row]
            else:
                group = np.int64(0)
                if words[group, VERSION] >= 0:
                    words[group, VERSION] = NOTED + noting
                    noted[0, noting] = group
                    noted[1, noting] = -1
                    noting += 1
            if group < 0 or group == last or words[group, VERSION] >= 0:
                continue
            last = group
            if numeric:
                for each in range(len(program)):
                    at, squares = program[each, AT], program[each, SQUARES]
                    if program[each, KIND] == NUMBER and _is_doubtful(words, floats, group, at, squares):
                        _sum_anew(
                            words, floats, anchors, cells, float_cells, halves, lanes, float_lanes, group, at, squares,
                            base + program[each, LINE], program[each, ARGUMENT], shape[1],
                        )  # fmt: skip
            alive = words[group, COUNTED] > 0 or (keyless and (instant == birth or words[group, ROW] >= 0))
            open_row = words[group, ROW]
            off = -1
            if alive:
                off = _evaluate(
                    words, floats, anchors, cells, group, shape, program, calls, scales, out, float_out, there, made
                )
                if open_row >= first:
                    if _is_same(out, there, made, out, there, open_row - first, program, calls, arena):
                        continue
                elif open_row >= 0 and _is_same(
                    out, there, made, carried, carried_there, words[group, VERSION] - NOTED, program, calls, arena
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
                words[group, ROW] = first + made
                rows[0, made] = instant
                rows[1, made] = OPEN
                rows[2, made] = group
                rows[3, made] = row
                if off >= 0:
                    beyond[overdue] = made * len(calls) + off
                    overdue += 1
                made += 1
        if instant == birth:
            birth = OPEN
    return made, noting, closing, spoiling, overdue, bringing


# ---------------------------------------------------------------------------------------------- groups as state


@compiled(_i64, _words, _list, _table, _list, _i64)
def put(words: Any, slots: Any, values: Any, places: Any, version: int) -> Any:
    """Take over words written at `version` where nothing newer stands; returns how many more groups are alive."""
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
    """Copy some words of some groups and mark these as written at `version`."""
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
    """Positions of living groups last written at or before `version`; each comes once."""
    found = 0
    for row in range(len(slots)):
        slot = slots[row]
        if slot >= 0 and words[slot, ROW] >= 0 and 0 <= words[slot, VERSION] <= version:
            words[slot, VERSION] = NOTED
            positions[found] = row
            found += 1
    return found


# ---------------------------------------------------------------------------------------------- texts


@compiled(types.void, _given(_u8, 1), _list, _given(_flag, 1), _i64, _words)
def describe_texts(arena: Any, starts: Any, valid: Any, base: int, lines: Any) -> None:
    """First eight bytes (in an order that int64 has), place and length of texts that stand at `base` in the arena."""
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


@compiled(types.void, _given(_u8, 1), _list, _list, _u8[::1])
def copy_texts(arena: Any, places: Any, ends: Any, copy: Any) -> None:
    """Copy texts, one behind the other; text i ends at `ends[i + 1]`."""
    for row in range(len(places)):
        place = places[row]
        for part in range(ends[row + 1] - ends[row]):
            copy[ends[row] + part] = arena[place + part]
