"""Converts whole columns to their declared types: vectorised if all values fit, exact value by value if not.

A column is given as Python values, Arrow data or text (CSV). It is first converted as a whole. If that fails, it is
converted in blocks, and in a block that fails every value is converted alone by `hayase.streams.typed_values`, so that
one bad value costs one block. Values that only Arrow can represent (times beyond Python's calendar) are cast alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field
from datetime import date, datetime
from decimal import Decimal
from types import NoneType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.data_classes import dataclass
from hayase.core.numbers import fits_arrow
from hayase.core.schemas import is_json
from hayase.core.times import instant
from hayase.streams.typed_values import Unfit, converter_of, integer_range

__all__ = ["Fitted", "fit_arrow", "fit_json", "fit_text", "fit_values", "may_differ", "python_values"]

_BLOCK = 1024
_YEAR_2 = instant("0002-01-01T00:00:00Z")
_FAILURES = (pa.ArrowException, OverflowError, UnicodeError, ValueError, TypeError)
"""What Arrow raises for values that it does not accept; a conversion value by value always follows."""
_NOT_IN_PYTHON = (pa.ArrowException, ValueError, ArithmeticError, KeyError)
"""What is raised for a value that Arrow cannot convert to Python: a time beyond the calendar or in an unknown zone, a
decimal whose scale Arrow cannot print."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A column in its declared type, null where a value was refused, and the reasons by position."""

    column: pa.ChunkedArray
    reasons: dict[int, str] = field(default_factory=dict)


def fit_values(values: list[Any], target: pa.Field) -> Fitted:
    """Convert a column of Python values."""
    if is_json(target):
        return fit_json(values, target, parse=False)
    kinds = set(map(type, values)) - {NoneType}
    if kinds == {str} and _is_text_form(target.type):
        try:
            return fit_text(_chunked(pa.array(values, pa.string())), target, parse=False)
        except UnicodeError:
            pass  # a lone surrogate: reported value by value below
    return _by_blocks(
        len(values),
        lambda start, stop: _whole(values[start:stop], target.type),
        lambda start, stop: values[start:stop],
        target,
        parse=False,
    )


def fit_text(column: pa.ChunkedArray, target: pa.Field, parse: bool) -> Fitted:
    """Convert a column of text (valid UTF-8); with `parse`, as in CSV, numbers and booleans are text too."""
    if pa.types.is_string(target.type):
        return Fitted(column)
    return _by_blocks(
        len(column),
        lambda start, stop: _read(column.slice(start, stop - start), target.type, parse),
        lambda start, stop: column.slice(start, stop - start).to_pylist(),
        target,
        parse,
    )


def fit_arrow(column: pa.ChunkedArray, target: pa.Field, parse: bool = False) -> Fitted:
    """Convert a column of Arrow data of any type; bytes in a text column that are not UTF-8 are refused. A text for a json
    column is JSON text, as in CSV."""
    kind = column.type
    if is_json(target):
        return fit_json(python_values(column), target, parse=True)
    if pa.types.is_dictionary(kind):
        return fit_arrow(column.cast(kind.value_type), target, parse)
    if pa.types.is_null(kind):
        return Fitted(_chunked(pa.nulls(len(column), target.type)))
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return fit_values(python_values(column), target)
    if kind == target.type:
        return Fitted(column.cast(target.type))  # free; normalises the names of list items
    if _is_text(kind):
        if pa.types.is_string(target.type) or _is_text_form(target.type) or parse:
            return fit_text(column if pa.types.is_string(kind) else column.cast(pa.string()), target, parse)
    elif (cast := _cast_rule(kind, target.type)) is not None:
        return _bisected(column, target, cast)
    return fit_values(python_values(column), target)


def fit_json(values: list[Any], target: pa.Field, parse: bool) -> Fitted:
    """Convert values of a json column to their texts; with `parse`, a text is JSON text."""
    return _by_blocks(len(values), lambda start, stop: None, lambda start, stop: values[start:stop], target, parse)


def python_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Return the values as Python objects; one that Python cannot represent (a time beyond its calendar) becomes its text."""
    try:
        return column.to_pylist()
    except _NOT_IN_PYTHON:
        pass
    try:
        return [_python_value(value) for value in column]
    except KeyError:  # pyarrow has no class for the type, as for intervals of months
        return [_Unreadable(str(column.type))] * len(column)


class _Unreadable:
    """A value that only Arrow can represent; no column accepts it, error messages show it."""

    __slots__ = ("text",)

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _python_value(value: Any) -> Any:
    try:
        return value.as_py()
    except _NOT_IN_PYTHON as error:
        if isinstance(error, UnicodeError) and hasattr(value, "as_buffer"):
            return value.as_buffer().to_pybytes().decode("utf-8", "surrogateescape")
        return _Unreadable(f"{value.value} {value.type}" if hasattr(value, "value") else str(value.type))


def _chunked(array: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_text_form(kind: pa.DataType) -> bool:
    """Return whether values of a type may be text in every format, since JSON has no other form for them."""
    return (
        pa.types.is_timestamp(kind)
        or pa.types.is_date(kind)
        or pa.types.is_time(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_binary(kind)
    )


def _by_blocks(
    count: int,
    whole: Callable[[int, int], pa.Array | None],
    values: Callable[[int, int], list[Any]],
    target: pa.Field,
    parse: bool,
) -> Fitted:
    done = _attempt(whole, 0, count)
    if done is not None:
        return Fitted(_chunked(done))
    convert = converter_of(target, parse)
    chunks: list[pa.Array] = []
    reasons: dict[int, str] = {}
    for start in range(0, count, _BLOCK):
        stop = min(start + _BLOCK, count)
        block = _attempt(whole, start, stop) if count > _BLOCK else None
        if block is None:
            fitted = []
            for at, value in enumerate(values(start, stop), start):
                try:
                    fitted.append(convert(value))
                except Unfit as error:
                    fitted.append(None)
                    reasons[at] = error.reason(target.name)
            block = pa.array(fitted, target.type)
        chunks += block.chunks if isinstance(block, pa.ChunkedArray) else [block]
    return Fitted(pa.chunked_array(chunks, target.type), reasons)


def _attempt(whole: Callable[[int, int], pa.Array | None], start: int, stop: int) -> pa.Array | pa.ChunkedArray | None:
    try:
        return whole(start, stop)
    except _FAILURES:
        return None


def _whole(values: list[Any], kind: pa.DataType) -> pa.Array | None:
    """Convert Python values of few simple types at once; None or an error means that each value must be checked."""
    kinds = set(map(type, values)) - {NoneType}
    if not kinds:
        return pa.nulls(len(values), kind)
    if pa.types.is_boolean(kind) and kinds == {bool}:
        return pa.array(values, kind)
    if pa.types.is_integer(kind) and kinds == {int}:
        return pa.array(values, kind)
    if pa.types.is_integer(kind) and kinds == {float}:
        return _whole_numbers(pa.array(values, pa.float64()), kind)
    if pa.types.is_floating(kind) and kinds == {float}:
        return _narrowed(pa.array(values, pa.float64()), kind)
    if pa.types.is_floating(kind) and kinds <= {int, float}:
        return pa.array(values, kind) if kind.bit_width == 64 else None  # Arrow refuses integers beyond 2^53
    if pa.types.is_string(kind) and kinds == {str}:
        return pa.array(values, kind)
    if pa.types.is_binary(kind) and kinds == {bytes}:
        return pa.array(values, kind)
    if pa.types.is_date(kind) and kinds == {date}:
        return pa.array(values, kind)
    if pa.types.is_decimal(kind) and kinds <= {int, Decimal}:
        return pa.array(values, kind) if fits_arrow(values) else None
    if pa.types.is_timestamp(kind) and kinds == {datetime}:
        if kind.tz is None and any(value is not None and value.tzinfo is not None for value in values):
            return None
        return pa.array(values, kind)
    if pa.types.is_list(kind) and kinds == {list}:
        return _lists(values, kind)
    return None


def _lists(values: list[Any], kind: pa.DataType) -> pa.Array | None:
    """Convert lists by way of one column of all their items."""
    items = _whole([item for items_ in values if items_ is not None for item in items_], kind.value_type)
    if items is None or isinstance(items, pa.ChunkedArray):
        return None
    offsets: list[int | None] = []
    end = 0
    for items_ in values:
        offsets.append(None if items_ is None else end)
        end += 0 if items_ is None else len(items_)
    return pa.ListArray.from_arrays(pa.array([*offsets, end], pa.int32()), items, type=kind)


def _read(column: pa.ChunkedArray, kind: pa.DataType, parse: bool) -> pa.ChunkedArray | None:
    """Parse text with Arrow, where it accepts no more than `typed_values`; None means that each value must be checked."""
    if pa.types.is_timestamp(kind):
        return _read_times(column, kind)
    if pa.types.is_decimal(kind):
        return column.cast(kind) if _is_short(column, kind) else None
    if pa.types.is_date(kind):
        return _within_calendar(column.cast(kind))
    if pa.types.is_integer(kind) and parse:
        hexadecimal = pc.match_substring(column, "x", ignore_case=True)
        return None if _any(hexadecimal) else column.cast(kind)
    if pa.types.is_floating(kind) and parse:
        numbers = column.cast(pa.float64())
        return None if _differ(column, numbers, kind) else _narrowed(numbers, kind)
    if pa.types.is_boolean(kind) and parse:
        return column.cast(kind)
    return None


def _read_times(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    """Parse times that all have a zone, or that all have none, which means UTC; a mixture is parsed value by value."""
    if kind.tz is None or _ends_in_zone(column):
        return _within_calendar(column.cast(kind))
    return _within_calendar(column.cast(pa.timestamp("us")).cast(kind))


def _ends_in_zone(column: pa.ChunkedArray) -> bool:
    """Return whether the first time has a zone. Trying costs more than looking: Arrow writes a message for every failure."""
    valid = column.drop_null()
    return len(valid) > 0 and _ZONE.search(valid[0].as_py()) is not None


_ZONE = re.compile(r"[Zz]$|[ T]\S*[+-]\d\d(:?\d\d)?$")


def _within_calendar(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return the column, or None if it has a time before year 2: Arrow accepts the year 0, which Python's calendar, and
    so `typed_values`, does not have."""
    stamps = column.cast(pa.timestamp("us")) if pa.types.is_date(column.type) else column
    least = pc.min(stamps.cast(pa.int64())).as_py()
    return column if least is None or least >= _YEAR_2 else None


def _cast_rule(source: pa.DataType, target: pa.DataType) -> Callable[[pa.ChunkedArray], pa.ChunkedArray] | None:
    """Return how Arrow casts one type to another without changing a value; None if only `typed_values` can decide."""
    binary = pa.types.is_binary(source) or pa.types.is_large_binary(source) or pa.types.is_fixed_size_binary(source)
    plain = (
        (pa.types.is_integer(target) and (pa.types.is_integer(source) or _is_plain_decimal(source)))
        or (pa.types.is_decimal(target) and _is_plain_decimal(source) and _keeps_digits(source, target))
        or (pa.types.is_floating(target) and pa.types.is_integer(source))
        or (pa.types.is_binary(target) and (binary or pa.types.is_binary_view(source)))
        or (pa.types.is_timestamp(target) and pa.types.is_timestamp(source) and (target.tz or not source.tz))
        or (pa.types.is_timestamp(target) and pa.types.is_date(source))
        or (pa.types.is_date(target) and pa.types.is_date(source))
        or (pa.types.is_time(target) and pa.types.is_time(source))
    )
    if plain:
        return lambda column: column.cast(target)
    if pa.types.is_floating(source) and pa.types.is_integer(target):
        return lambda column: _whole_numbers(column, target)
    if pa.types.is_floating(source) and pa.types.is_floating(target):
        return lambda column: _narrowed(column, target)
    return None


def _is_plain_decimal(kind: pa.DataType) -> bool:
    """Return whether Arrow casts decimals of this type exactly. With a scale below 0 or above the precision, a cast can
    give another number, or end the process (Arrow 24 to 26): the power of ten is looked up without a bounds check."""
    return bool(pa.types.is_decimal(kind)) and 0 <= kind.scale <= kind.precision


def _keeps_digits(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether Arrow casts any decimal of one type to another correctly, or refuses it. A number that does not fit the words
    of its type in the new scale becomes another one (Arrow 24 to 26)."""
    return bool(source.precision - source.scale + target.scale <= (76 if pa.types.is_decimal256(source) else 38))


def may_differ(numbers: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Return a mask of doubles parsed from text that may differ from the text: those that are infinite or zero, and
    integers so large that a double (or float) does not represent all of them."""
    size = pc.abs(numbers)
    certain = pc.and_(pc.greater(size, 0), pc.less(size, 2.0 ** (24 if kind.bit_width == 32 else 53)))
    return pc.and_not(pc.invert(certain), pc.is_nan(numbers))


def _differ(texts: pa.ChunkedArray, numbers: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Return whether each text must be checked, because its parsed number may differ from it."""
    doubtful = may_differ(numbers, kind)
    if not _any(doubtful):
        return False
    return _any(pc.is_inf(numbers)) or not bool(
        pc.all(pc.match_substring_regex(texts.filter(doubtful), _NEAREST)).as_py()
    )


_NEAREST = r"^[+-]?(0+\.?0*|\.0+|[0-9]*[1-9][0-9]*\.[0-9]*)$"
"""Matches zero, and nonzero numbers with a point but no exponent: these become neither zero nor a wrong integer."""


def _narrowed(numbers: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Cast floating-point numbers to a type that may be narrower; ArrowInvalid if one becomes infinite or zero."""
    result = numbers.cast(kind)
    if kind.bit_width < numbers.type.bit_width:
        infinite = pc.and_not(pc.is_inf(result), pc.is_inf(numbers))
        if _any(infinite) or _any(pc.and_(pc.equal(result, 0), pc.not_equal(numbers, 0))):
            raise pa.ArrowInvalid("a number would become infinite or zero")
    return result


def _whole_numbers(numbers: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Cast floating-point numbers to integers; ArrowInvalid if one is out of range, since that cast is undefined, or
    not an integer."""
    least, most = integer_range(kind)  # the power of two above `most` is a double, `most` itself may not be one
    if _any(pc.or_(pc.less(numbers, float(least)), pc.greater_equal(numbers, float(most + 1)))):
        raise pa.ArrowInvalid("a number is out of range")
    return numbers.cast(kind)


def _is_short(column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Return whether Arrow can parse these texts as decimals: with an exponent, or many digits, it may fail or be wrong. It
    gives another number if the digits before the point do not fit 128 bits in the scale of the column (Arrow 24 to 26)."""
    lengths = pc.binary_length(column)
    longest = pc.max(lengths).as_py()
    if longest is None:
        return True
    if longest > 38 or _any(pc.match_substring(column, "e", ignore_case=True)):
        return False
    points = pc.find_substring(column, ".")
    return bool(pc.max(pc.if_else(pc.less(points, 0), lengths, points)).as_py() + kind.scale <= 38)


def _any(mask: pa.Array | pa.ChunkedArray) -> bool:
    return bool(pc.any(mask).as_py())


def _bisected(column: pa.ChunkedArray, target: pa.Field, cast: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> Fitted:
    chunks: list[pa.Array] = []
    reasons: dict[int, str] = {}
    todo = [(0, len(column))]
    while todo:
        start, stop = todo.pop()
        try:
            chunks += cast(column.slice(start, stop - start)).chunks
        except _FAILURES:
            values = python_values(column.slice(start, stop - start)) if stop - start <= _BLOCK else None
            if values is not None and not any(isinstance(value, _Unreadable) for value in values):
                fitted = fit_values(values, target)
                chunks += fitted.column.chunks
                reasons |= {start + at: reason for at, reason in fitted.reasons.items()}
            elif values is not None and len(values) == 1:
                chunks.append(pa.nulls(1, target.type))
                reasons[start] = Unfit(values[0], target.type).reason(target.name)
            else:
                middle = (start + stop) // 2
                todo += [(middle, stop), (start, middle)]
    return Fitted(pa.chunked_array(chunks, target.type), reasons)
