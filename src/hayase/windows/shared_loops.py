"""Compiled loops of `hayase.windows.shared`: one lane of words through all levels of cycles, block by block.

The type of a lane decides how its words are combined: integers are added, keys (uint64) are maximised, and a lane of two
rows holds sums of floats and their rounding errors. Every loop is compiled once per type, without branches on it.

The slots of a level are kept as two streams, even and odd slots: with slide 2 all that a window reads and writes is adjacent
and can be vectorised; slide 1 is two such windows. A loop is compiled again only when its own file changes, so everything that a
loop calls is in this file.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from hayase.core import loop_types
from hayase.core.machine_code import compiled

__all__ = [
    "BLOCK", "FAN", "FAN_BITS", "FLOATS", "LEAST", "MARKS", "PLACES", "REACH", "SIGNED", "SPARSE", "advance_integers",
    "advance_keys", "advance_sums", "new_slots", "room", "tape",
]  # fmt: skip

FAN_BITS = 4
FAN = 1 << FAN_BITS
"""The number of slots of a cycle, and of cycles in a cycle one level up."""
BLOCK = 4096
"""The number of tuples per block: their values stay in the CPU cache from the first loop to the last."""
CARRY = 3 * FAN
"""The number of slots kept before a block, in whole cycles: a short window may reach back to them."""
DEPTH = 14
"""The greatest number of levels."""
SPARSE = 32
"""From this slide on, each answer looks up its own parts; below it they are computed for all slots of a level."""

VALUES, FORWARD, DOUBLED, TAPE, REACH, ROOM, MIDDLES, WIDTH, WIDEST, STREAM = range(10)
PLACES = 10
"""A line of `places` describes a level: the starts of its raw values, forward values, folds of the newest 2, 4, 8 and 16, and
tape in the lane's array; the number of tape slots that are still needed, and that it has; the start of its middles in the
array of middles, and the distance between the middles of two lengths; the number of slots that the widest of those folds
must cover, and the first stream for which they are needed (0: both)."""
START, COUNT, OLD, ORIGIN = range(4)
MARKS = 4
"""A line of `marks` describes the state of a level: the first slot of its raw values, their number, the newest slot before
this block, and the first slot of the tape."""
LENGTH, SLIDE, LONG, SHORT = range(4)
"""A line of `asked` describes a window: its length and slide, and which middles of the next level it reads (-1: none) while
its oldest cycle is one further back, and otherwise. Lines of a level's middles have the same form."""

ANY, RAW, OTHER_RAW, ANSWERS, RESULTS, TWOS, FOURS, EIGHTS, SIXTEENS = range(9)
"""Regions of memory that a loop writes and does not read: the raw values of each stream, the answers in a lane's words, the
lowered answers, the folds of the newest 2, 4, 8 and 16."""

SIGNED, FLOATS, LEAST = 1, 2, 4
"""The form of the values of a lane of keys, if they are not unsigned; LEAST asks for the minimum."""
_TOP, _ALL = np.uint64(1 << 63), np.uint64((1 << 64) - 1)
_INFINITY = np.uint64(0x7FF0000000000000)


def new_slots(level: int) -> int:
    """Return the greatest number of new slots of a level in a block."""
    return (BLOCK >> (FAN_BITS * level)) + 2


def room(level: int) -> int:
    """Return the number of slots for the raw values of a level."""
    return new_slots(level) + CARRY


def tape(level: int, reach: int) -> int:
    """Return the number of slots for the tape of a level: it is moved so seldom that each slot is copied at most once."""
    return reach + max(reach, 4 * new_slots(level)) + new_slots(level) + FAN


def _merged(older: Any, newer: Any) -> Any:
    raise NotImplementedError  # the compiled loops call the overload below


@overload(_merged)
def _merged_by_type(older: Any, newer: Any) -> Any:
    return _greater if older == types.uint64 else _added if older == types.int64 else _added_in_two_parts


def _greater(older: Any, newer: Any) -> Any:
    return max(older, newer)


def _added(older: Any, newer: Any) -> Any:
    return older + newer


def _added_in_two_parts(older: Any, newer: Any) -> Any:
    """Add sums with their accumulated rounding errors (Knuth's two-sum)."""
    total = older.real + newer.real
    taken = total - older.real
    return complex(total, (older.real - (total - taken)) + (newer.real - taken) + (older.imag + newer.imag))


def _places(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> list[Any]:
    """Return the addresses of an element, in one row or in two."""
    view = context.make_array(kind)(context, builder, array)
    rows = cgutils.unpack_tuple(builder, view.shape, kind.ndim)
    places = [index] if kind.ndim == 1 else [index, builder.add(rows[1], index)]
    return [builder.gep(view.data, [place]) for place in places]


def _scopes(builder: Any, region: int) -> list[Any]:
    """Return the alias scopes of the rows of a region of memory that a loop writes but never reads."""
    domain = builder.module.add_metadata(["hayase.windows.shared"])
    return [builder.module.add_metadata([f"region {region}, row {row}", domain]) for row in (0, 1)]


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator, unused-ignore]
def _at(context: Any, array: Any, index: Any, apart: Any) -> Any:
    """Read an element by an index that is never negative, without a check.

    The element is not in the region `apart`, so the compiler knows that writes there do not change it and can vectorise.
    """
    element = types.complex128 if array.ndim == 2 else array.dtype

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        parts = [builder.load(place) for place in _places(context, builder, signature.args[0], *arguments[:2])]
        if apart.literal_value:
            scopes = builder.module.add_metadata(_scopes(builder, apart.literal_value))
            for part in parts:
                part.set_metadata("noalias", scopes)
        if len(parts) == 1:
            return parts[0]
        pair = context.make_complex(builder, element)
        pair.real, pair.imag = parts
        return pair._getvalue()

    return element(array, types.int64, apart), generate


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator, unused-ignore]
def _write(context: Any, array: Any, index: Any, value: Any, region: Any) -> Any:
    """Write an element of a region, by an index that is never negative."""
    taken = types.complex128 if array.ndim == 2 else array.dtype

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        places, parts = _places(context, builder, signature.args[0], *arguments[:2]), [arguments[2]]
        if len(places) == 2:
            pair = context.make_complex(builder, taken, arguments[2])
            parts = [pair.real, pair.imag]
        stores = [builder.store(*pair_of) for pair_of in zip(parts, places)]
        if region.literal_value:
            scopes = _scopes(builder, region.literal_value)
            for row, store in enumerate(stores):
                store.set_metadata("alias.scope", builder.module.add_metadata([scopes[row]]))
                store.set_metadata("noalias", builder.module.add_metadata([scopes[1 - row]]))
        return context.get_dummy_value()

    return types.void(array, types.int64, taken, region), generate


def _lifted(lane: Any, value: Any, form: Any) -> Any:
    raise NotImplementedError


@overload(_lifted)
def _lifted_by_type(lane: Any, value: Any, form: Any) -> Any:
    return _to_key if value == types.uint64 else _as_it_is


def _as_it_is(lane: Any, value: Any, form: Any) -> Any:
    return value


def _to_key(lane: Any, value: Any, form: Any) -> Any:
    """Map a value to a key of the same order; NaN is the greatest."""
    if form & FLOATS:
        nan = value & (_TOP - np.uint64(1)) > _INFINITY
        value = _ALL if nan else value ^ (_ALL if value & _TOP else _TOP)
    elif form & SIGNED:
        value ^= _TOP
    return value ^ _ALL if form & LEAST else value


def _lowered(value: Any, form: Any) -> Any:
    raise NotImplementedError


@overload(_lowered)
def _lowered_by_type(value: Any, form: Any) -> Any:
    return _from_key if value == types.uint64 else _rounded if value == types.complex128 else _plain


def _plain(value: Any, form: Any) -> Any:
    return value


def _rounded(value: Any, form: Any) -> Any:
    """Round a sum: one that is not finite has no rest, and zero is never negative."""
    total = value.real + value.imag + 0.0
    return total if total == total else value.real


def _from_key(value: Any, form: Any) -> Any:
    if form & LEAST:
        value ^= _ALL
    if form & FLOATS:
        return value ^ (_TOP if value & _TOP else _ALL)
    return value ^ _TOP if form & SIGNED else value


@njit(inline="always")
def _placed(begin: int, half: int, slot: int) -> int:
    """Return the position of a slot in its stream."""
    return begin + (slot >> 1) + (slot & 1) * half


@njit
def _make_room(lane: Any, marks: Any, places: Any, level: int, more: int) -> None:
    """Move the tape of a level down if `more` slots do not fit."""
    used = marks[level, START] + marks[level, COUNT] - marks[level, ORIGIN]
    if used + more + FAN > places[level, ROOM]:
        gone = (used - min(places[level, REACH], used)) >> 1
        for stream in range(2):
            tape = places[level, TAPE] + stream * (places[level, ROOM] >> 1)
            for slot in range(((used + 1) >> 1) - gone):
                _write(lane, tape + slot, _at(lane, tape + gone + slot, ANY), ANY)
        marks[level, ORIGIN] += 2 * gone


@njit
def _turn(lane: Any, marks: Any, places: Any, level: int) -> None:
    """Compute the forward values of all slots, the backward values of full cycles, and their totals one level up."""
    values, forward, count = places[level, VALUES], places[level, FORWARD], marks[level, COUNT]
    half, tape_half = (forward - values) >> 1, places[level, ROOM] >> 1
    tape = places[level, TAPE] + ((marks[level, START] - marks[level, ORIGIN]) >> 1)
    full = count >> FAN_BITS
    last = level == len(marks) - 1
    above = marks[level, START] >> FAN_BITS
    into = upper_half = upper_start = fresh = 0
    if not last:
        into, upper_start = places[level + 1, VALUES], marks[level + 1, START]
        upper_half = (places[level + 1, FORWARD] - into) >> 1
        fresh = marks[level + 1, OLD] + 1
    for cycle in range(full):
        at = cycle << (FAN_BITS - 1)
        total = _at(lane, values + at, ANY)
        _write(lane, forward + at, total, ANY)
        back = _at(lane, _placed(values + at, half, FAN - 1), ANY)
        _write(lane, _placed(tape + at, tape_half, FAN - 1), back, ANY)
        for slot in range(1, FAN):
            total = _merged(total, _at(lane, _placed(values + at, half, slot), ANY))
            _write(lane, _placed(forward + at, half, slot), total, ANY)
            back = _merged(_at(lane, _placed(values + at, half, FAN - 1 - slot), ANY), back)
            _write(lane, _placed(tape + at, tape_half, FAN - 1 - slot), back, ANY)
        if not last and above + cycle >= fresh:
            _write(lane, _placed(into, upper_half, above + cycle - upper_start), total, ANY)
            marks[level + 1, COUNT] += 1
    at = full << FAN_BITS
    if at < count:
        total = _at(lane, values + (at >> 1), ANY)
        _write(lane, forward + (at >> 1), total, ANY)
        for slot in range(at + 1, count):
            total = _merged(total, _at(lane, _placed(values, half, slot), ANY))
            _write(lane, _placed(forward, half, slot), total, ANY)
    if places[level, WIDEST] > 1:
        _double(lane, marks, places, level)


@njit
def _double(lane: Any, marks: Any, places: Any, level: int) -> None:
    """Compute the folds of the newest 2, 4, 8 and 16 slots, as far as they are needed."""
    values, widest, count = places[level, VALUES], places[level, WIDEST], marks[level, COUNT]
    apart = places[level, FORWARD] - values
    half = apart >> 1
    for stream in range(places[level, STREAM], 2):
        twos = places[level, DOUBLED] + stream * half
        stop = (count + 1 - stream) >> 1
        older = values + half - 1 if stream == 0 else values
        newer = values + stream * half
        for slot in range(1 - stream, stop):
            fold = _merged(_at(lane, older + slot, TWOS), _at(lane, newer + slot, TWOS))
            _write(lane, twos + slot, fold, TWOS)
        if widest >= 4:
            for slot in range(1, stop):
                fold = _merged(_at(lane, twos + slot - 1, FOURS), _at(lane, twos + slot, FOURS))
                _write(lane, twos + apart + slot, fold, FOURS)
        fours = twos + apart
        if widest >= 8:
            for slot in range(3, stop):
                fold = _merged(_at(lane, fours + slot - 2, EIGHTS), _at(lane, fours + slot, EIGHTS))
                _write(lane, fours + apart + slot, fold, EIGHTS)
        eights = fours + apart
        if widest >= 16:
            for slot in range(7, stop):
                fold = _merged(_at(lane, eights + slot - 4, SIXTEENS), _at(lane, eights + slot, SIXTEENS))
                _write(lane, eights + apart + slot, fold, SIXTEENS)


@njit
def _short_answers(
    lane: Any, marks: Any, places: Any, level: int, length: int, slide: int, due: int, out: Any, to: int
) -> int:
    """Write the answers of a window no longer than a cycle, combined from folds of the newest 1, 2, 4, 8 and 16 slots.

    The oldest part is the narrowest, so that all parts are in the stream of the newest slot. Returns the next position.
    """
    start = marks[level, START]
    count = (start + marks[level, COUNT] - due + slide - 1) // slide
    apart = places[level, FORWARD] - places[level, VALUES]
    half = apart >> 1
    source, wide, rest, began = places[level, VALUES], 1, length, False
    while rest > 0:
        if length & wide:
            rest -= wide
            newest = due - start - rest
            if slide == 2:
                at = _placed(source, half, newest)
                if began:
                    for answer in range(count):
                        fold = _merged(_at(out, to + answer, ANY), _at(lane, at + answer, ANSWERS))
                        _write(out, to + answer, fold, ANSWERS)
                else:
                    for answer in range(count):
                        _write(out, to + answer, _at(lane, at + answer, ANSWERS), ANSWERS)
            else:
                for answer in range(count):
                    fold = _at(lane, _placed(source, half, newest + answer * slide), ANY)
                    _write(out, to + answer, _merged(_at(out, to + answer, ANY), fold) if began else fold, ANY)
            began = True
        source = places[level, DOUBLED] if wide == 1 else source + apart
        wide <<= 1
    return to + count


@njit
def _answers(
    lane: Any, marks: Any, places: Any, middles: Any, level: int, asked: Any, slide: int, due: int, out: Any, to: int
) -> int:
    """Write the answers of one window at slot `due` (absolute) and every slide from there on; return the next position."""
    length = asked[LENGTH]
    start = marks[level, START]
    stop = start + marks[level, COUNT]
    if due >= stop:
        return to
    if length <= FAN:
        return _short_answers(lane, marks, places, level, length, slide, due, out, to)
    forward, tape = places[level, FORWARD], places[level, TAPE]
    half, tape_half = (forward - places[level, VALUES]) >> 1, places[level, ROOM] >> 1
    behind = length - 1 + marks[level, ORIGIN]
    turn = (length - 1) & (FAN - 1)
    none = _at(middles, 0, ANY)
    longer, shorter = asked[LONG] >= 0, asked[SHORT] >= 0
    long_at = short_at = middle_half = old = 0
    if longer or shorter:
        old, middle_half = marks[level + 1, OLD], places[level + 1, WIDTH] >> 1
        long_at = places[level + 1, MIDDLES] + asked[LONG] * places[level + 1, WIDTH]
        short_at = places[level + 1, MIDDLES] + asked[SHORT] * places[level + 1, WIDTH]
    back, front = _placed(tape, tape_half, due - behind), _placed(forward, half, due - start)
    began = to
    while due < stop:
        cycle = due >> FAN_BITS
        begin = cycle << FAN_BITS
        long = _at(middles, _placed(long_at, middle_half, cycle - old), ANY) if longer else none
        short = _at(middles, _placed(short_at, middle_half, cycle - old), ANY) if shorter else none
        if slide == 2 and due - begin < 2 and begin + FAN <= stop:
            turned = turn - (due - begin)
            for slot in range(FAN >> 1):
                _write(out, to + slot, long if slot * 2 < turned else short, ANY)
            to += FAN >> 1
            due += FAN
        else:
            until = min(begin + FAN, stop)
            while due < until:
                middle = long if due - begin < turn else short
                if slide != 2:
                    older = _at(lane, _placed(tape, tape_half, due - behind), ANY)
                    middle = _merged(_merged(older, middle), _at(lane, _placed(forward, half, due - start), ANY))
                _write(out, to, middle, ANY)
                to += 1
                due += slide
    if slide == 2:  # the middles are written; now combine them with the ends, which are adjacent
        for slot in range(to - began):
            fold = _merged(_at(lane, back + slot, ANSWERS), _at(out, began + slot, ANY))
            _write(out, began + slot, _merged(fold, _at(lane, front + slot, ANSWERS)), ANSWERS)
    return to


@njit
def _folded(lane: Any, values: int, half: int, slot: int, wide: int) -> Any:
    """Fold 1, 2, 4, 8 or 16 slots in pairs, then in pairs of pairs."""
    total = _at(lane, _placed(values, half, slot), ANY)
    two = four = eight = total
    for at in range(1, wide):
        value = _at(lane, _placed(values, half, slot + at), ANY)
        if at & 1 == 0:
            two = value
            continue
        pair = _merged(two, value) if at > 1 else _merged(total, value)
        if at & 2 == 0:
            four = pair
            continue
        pair = _merged(four, pair)
        if at & 4 == 0:
            eight = pair
            continue
        pair = _merged(eight, pair)
        if at & 8 == 0:
            total = pair
            continue
        return _merged(total, pair)
    return total if wide == 1 or wide == 8 else four if wide == 2 else eight


@njit
def _sought(lane: Any, marks: Any, places: Any, length: int, due: int, parts: Any) -> Any:
    """Compute one answer from the parts of each level: of the oldest and newest cycle, and the part between one level up."""
    level, first, last = 0, due - length + 1, due
    total = _at(lane, 0, ANY)
    while True:
        values, start = places[level, VALUES], marks[level, START]
        half = (places[level, FORWARD] - values) >> 1
        rest = last - first + 1
        if rest <= FAN:
            wide, began = 1, False
            while wide <= rest:
                if rest & wide:
                    part = _folded(lane, values, half, first - start, wide)
                    total = _merged(total, part) if began else part
                    began = True
                    first += wide
                wide <<= 1
            break
        parts[level, 0] = _placed(places[level, TAPE], places[level, ROOM] >> 1, first - marks[level, ORIGIN])
        parts[level, 1] = _placed(places[level, FORWARD], half, last - start)
        first, last = (first >> FAN_BITS) + 1, (last >> FAN_BITS) - 1
        if first > last:
            total = _merged(_at(lane, parts[level, 0], ANY), _at(lane, parts[level, 1], ANY))
            break
        level += 1
    while level > 0:
        level -= 1
        total = _merged(_merged(_at(lane, parts[level, 0], ANY), total), _at(lane, parts[level, 1], ANY))
    return total


@njit
def _take_in(given: Any, begin: int, fresh: int, taken: Any, lane: Any, marks: Any, places: Any) -> None:
    """Lift the new values and write them into the two streams."""
    count, values = marks[0, COUNT], places[0, VALUES]
    half = (places[0, FORWARD] - values) >> 1
    marks[0, COUNT] += fresh
    if count & 1:
        _write(lane, values + half + (count >> 1), _lifted(lane, _at(given, begin, ANY), taken), ANY)
        count, begin, fresh = count + 1, begin + 1, fresh - 1
    even = values + (count >> 1)
    odd = even + half
    for pair in range(fresh >> 1):
        _write(lane, even + pair, _lifted(lane, _at(given, begin + 2 * pair, RAW), taken), RAW)
        _write(lane, odd + pair, _lifted(lane, _at(given, begin + 2 * pair + 1, OTHER_RAW), taken), OTHER_RAW)
    if fresh & 1:
        _write(lane, even + (fresh >> 1), _lifted(lane, _at(given, begin + fresh - 1, ANY), taken), ANY)


@njit
def _carry(lane: Any, marks: Any, places: Any, level: int) -> None:
    """Keep the raw values that the next block may need."""
    newest = marks[level, START] + marks[level, COUNT] - 1
    start = ((newest - FAN - 1) >> FAN_BITS) << FAN_BITS
    gone = (start - marks[level, START]) >> 1
    marks[level, START], marks[level, COUNT] = start, newest - start + 1
    if gone:
        for stream in range(2):
            values = places[level, VALUES] + stream * ((places[level, FORWARD] - places[level, VALUES]) >> 1)
            for slot in range((newest - start + 2) >> 1):
                _write(lane, values + slot, _at(lane, values + gone + slot, ANY), ANY)


def _advance(
    given: Any, taken: Any, form: Any, lane: Any, middles: Any, ready: Any, marks: Any, places: Any, asked: Any,
    bounds: Any, out: Any, to: Any,
) -> None:  # fmt: skip
    """Add all given values and write the answers that are due: those of line w of `asked` from out[to[w]] on.

    For a lane of keys, `taken` and `form` are the forms of the values and of the answers: SIGNED, FLOATS, LEAST, or keys (0).
    """
    levels = len(marks)
    parts = np.empty((DEPTH, 2), np.int64)
    begin = 0
    while begin < len(given):
        fresh = min(BLOCK, len(given) - begin)
        for level in range(levels):
            marks[level, OLD] = marks[level, START] + marks[level, COUNT] - 1
            _make_room(lane, marks, places, level, (fresh >> (FAN_BITS * level)) + 2)
        _take_in(given, begin, fresh, taken, lane, marks, places)
        for level in range(levels):
            _turn(lane, marks, places, level)
        for level in range(levels - 1, 0, -1):
            at, half = places[level, MIDDLES], places[level, WIDTH] >> 1
            for line in range(bounds[level], bounds[level + 1]):
                for stream in range(2):
                    due = marks[level, OLD] - 1 + stream
                    _answers(lane, marks, places, middles, level, asked[line], 2, due, middles, at + stream * half)
                at += places[level, WIDTH]
        old, end = marks[0, OLD], marks[0, START] + marks[0, COUNT]
        for line in range(bounds[1]):
            slide = asked[line, SLIDE]
            due = old + slide - (old + 1) % slide
            count, at = 0, to[line]
            if slide >= SPARSE:
                while due < end:
                    _write(ready, count, _sought(lane, marks, places, asked[line, LENGTH], due, parts), ANY)
                    count += 1
                    due += slide
            elif slide > 1:
                count = _answers(lane, marks, places, middles, 0, asked[line], slide, due, ready, 0)
            else:
                _answers(lane, marks, places, middles, 0, asked[line], 2, due, ready, 0)
                _answers(lane, marks, places, middles, 0, asked[line], 2, due + 1, ready, BLOCK >> 1)
                for pair in range(fresh >> 1):
                    other = _at(ready, (BLOCK >> 1) + pair, RESULTS)
                    _write(out, at + 2 * pair, _lowered(_at(ready, pair, RESULTS), form), RESULTS)
                    _write(out, at + 2 * pair + 1, _lowered(other, form), RESULTS)
                if fresh & 1:
                    _write(out, at + fresh - 1, _lowered(_at(ready, fresh >> 1, ANY), form), ANY)
                to[line] += fresh
            for row in range(count):
                _write(out, at + row, _lowered(_at(ready, row, RESULTS), form), RESULTS)
            to[line] += count
        for level in range(levels):
            _carry(lane, marks, places, level)
        begin += fresh


def _compiled(name: str, value: loop_types.Scalar, lane: loop_types.Array) -> Callable[..., Any]:
    """Compile `_advance` as a loop of that name, for a type of values that are taken and returned and a type of lanes."""
    function = FunctionType(_advance.__code__, globals(), name)
    function.__qualname__ = name  # by which the cache knows it
    line, table = loop_types.int64[::1], loop_types.int64[:, ::1]
    values = loop_types.Array(value, 1, readonly=True)
    return compiled(
        loop_types.void,
        *(values, loop_types.int64, loop_types.int64, lane, lane, lane, table, table, table, line, value[::1], line),
    )(function)


advance_integers = _compiled("advance_integers", loop_types.int64, loop_types.int64[::1])
advance_sums = _compiled("advance_sums", loop_types.float64, loop_types.float64[:, ::1])
advance_keys = _compiled("advance_keys", loop_types.uint64, loop_types.uint64[::1])
"""`_advance` for each type of lane. A lane of keys takes the bits of its values."""
