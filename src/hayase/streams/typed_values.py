"""Converts one value to the type of its column: exactly, or `Unfit` with what was expected.

This is the slow and complete definition of what a column accepts; `hayase.streams.typed_columns` has the fast forms,
which accept less and agree where they accept. Nothing is changed silently: 3.0 is an integer and 3.7 is not, a number
is not a text, `true` is not a number. Values that JSON has no form for are given as text: ISO times and dates, digits
of decimals, base64, and "NaN", "Infinity" and "-Infinity" for floating point. With `parse` (CSV) every value is text
and is parsed by the column's type.

Exact means, for a number: an integer or decimal column holds precisely the number that was written, or refuses it. A
`double` or `float` column accepts an integer (no point, no exponent) only if it represents precisely that integer. A
number with a point or an exponent stands for the nearest `double` or `float`, as in every language, and is refused only
if that is infinite, or zero although the number is not.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from hayase.core.abandonment import OFTEN, check_abandoned
from hayase.core.errors import HayaseError, nearest
from hayase.core.numbers import exact_loads, is_number, number_of
from hayase.core.schemas import ddl
from hayase.core.times import instant, iso_moment
from hayase.streams.record_text import shown

__all__ = ["Convert", "Unfit", "converter", "is_null", "type_name"]

Convert = Callable[[Any], Any]
"""Converts a value to one that Arrow accepts into the column unchanged; raises `Unfit`."""

_EXACT = Context(prec=76, traps=[Inexact, InvalidOperation, Overflow])
_NOT_FINITE = re.compile(r"[+-]?(?:nan(?:\(\w*\))?|inf(?:inity)?)", re.IGNORECASE)
_JSON_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_BEYOND_MICROSECONDS = re.compile(r"[.,][0-9]{6}0*[1-9]")
_FLOATS: dict[int, Callable[[float], Any]] = {32: np.float32, 64: float}


class Unfit(HayaseError):
    """A value that its column does not accept; `place` is its path inside a nested column."""

    def __init__(self, value: object, kind: pa.DataType, hint: str = "", place: str = ""):
        self.value, self.kind, self.hint, self.place = value, kind, hint, place
        super().__init__(self.reason(""))

    def reason(self, column: str) -> str:
        """Return the reason for the dead letter."""
        hint = f"; {self.hint}" if self.hint else ""
        return f'column "{column}"{self.place} must be {type_name(self.kind)}, not {shown(self.value)}{hint}'

    def inside(self, place: str) -> Unfit:
        """Return the same error with the path extended by the surrounding container."""
        return Unfit(self.value, self.kind, self.hint, place + self.place)


@lru_cache(maxsize=1024)
def type_name(kind: pa.DataType) -> str:
    """Return the type as a schema writes it.

    >>> type_name(pa.list_(pa.int64()))
    'array<bigint>'
    """
    return ddl(pa.schema([pa.field("x", kind)])).removeprefix("x ")


def is_null(value: object) -> bool:
    """Return whether a value is None, or what pandas and NumPy use for it; NaN is a number."""
    if value is None:
        return True
    name = type(value).__name__
    return name in ("NaTType", "NAType") or (isinstance(value, np.datetime64) and bool(np.isnat(value)))


@lru_cache(maxsize=1024)
def converter(kind: pa.DataType, parse: bool = False) -> Convert:
    """Return the function that converts values to a type; nulls become None.

    >>> converter(pa.int64())(3.0), converter(pa.int64(), parse=True)("3")
    (3, 3)
    """
    convert = _nested(kind, parse) or _atom(kind, parse)

    def checked(value: Any) -> Any:
        if is_null(value):
            return None
        if isinstance(value, np.generic) and not isinstance(value, np.datetime64):
            value = value.item()
        return convert(value)

    return checked


def _atom(kind: pa.DataType, parse: bool) -> Convert:
    if pa.types.is_boolean(kind):
        return lambda value: _boolean(value, kind, parse)
    if pa.types.is_integer(kind):
        return lambda value: _integer(value, kind, parse)
    if pa.types.is_floating(kind):
        return lambda value: _floating(value, kind, parse)
    if pa.types.is_decimal(kind):
        return lambda value: _decimal(value, kind)
    if pa.types.is_string(kind):
        return lambda value: _string(value, kind)
    if pa.types.is_binary(kind):
        return lambda value: _binary(value, kind)
    if pa.types.is_date(kind):
        return lambda value: _date(value, kind)
    if pa.types.is_timestamp(kind):
        return lambda value: _timestamp(value, kind)
    raise HayaseError(f"no column of a stream is a {kind}")


def _boolean(value: Any, kind: pa.DataType, parse: bool) -> bool:
    if isinstance(value, bool):
        return value
    if parse and isinstance(value, str) and value.lower() in ("true", "false", "1", "0"):
        return value.lower() in ("true", "1")
    raise Unfit(value, kind)


def _integer(value: Any, kind: pa.DataType, parse: bool) -> int:
    number = number_of(value) if parse and isinstance(value, str) and is_number(value) else value
    if not (
        (isinstance(number, int) and not isinstance(number, bool))
        or (isinstance(number, float) and number.is_integer())
        or (isinstance(number, Decimal) and _is_whole(number))
    ):
        raise Unfit(value, kind)
    whole = int(number)
    limit = 2 ** (kind.bit_width - 1)
    if not -limit <= whole < limit:
        raise Unfit(value, kind, f"it takes {-limit} to {limit - 1}")
    return whole


def _is_whole(value: Decimal) -> bool:
    # check the exponent first: an integer of a billion digits must not be built only to be refused
    return value.is_finite() and (not value or (value.adjusted() < 40 and value == value.to_integral_value()))


def _floating(value: Any, kind: pa.DataType, parse: bool) -> float:
    number = value
    if isinstance(value, str):
        if value in _JSON_NOT_FINITE or (parse and _NOT_FINITE.fullmatch(value)):
            return float(value.partition("(")[0])
        if parse and is_number(value):
            number = number_of(value)
    if isinstance(number, float) and not math.isfinite(number):
        return float(number)
    if isinstance(number, bool) or not (
        isinstance(number, (int, float)) or (isinstance(number, Decimal) and number.is_finite())
    ):
        raise Unfit(value, kind)
    result = _nearest(number, kind)
    if not math.isfinite(result):
        raise Unfit(value, kind, "it would become infinite")
    if number and not result:
        raise Unfit(value, kind, "it would become zero")
    if _is_integer(number) and result != number:
        raise Unfit(value, kind, f"no {type_name(kind)} is that integer; declare the column decimal or bigint")
    return result


def _nearest(number: float | Decimal, kind: pa.DataType) -> float:
    try:
        double = float(number)
    except OverflowError:
        return math.inf
    with np.errstate(over="ignore", under="ignore"):
        return float(_FLOATS[kind.bit_width](double))


def _is_integer(number: float | Decimal) -> bool:
    """Return whether the number was written as an integer: 3 was, 3.0 was not."""
    return isinstance(number, int) or (isinstance(number, Decimal) and number.as_tuple().exponent == 0)


def _decimal(value: Any, kind: pa.DataType) -> Decimal:
    number = value
    if isinstance(value, float):
        number = Decimal(repr(float(value)))  # the digits people see, not the binary fraction behind them
    elif isinstance(value, str) and is_number(value):
        number = number_of(value)
        number = Decimal(repr(number)) if isinstance(number, float) else number
    if isinstance(number, int) and not isinstance(number, bool) and number.bit_length() < 256:
        number = Decimal(number)
    if not isinstance(number, Decimal) or not number.is_finite():
        raise Unfit(value, kind)
    try:
        fixed = number.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    except (Inexact, InvalidOperation) as error:
        raise Unfit(value, kind) from error
    if fixed != 0 and fixed.adjusted() >= kind.precision - kind.scale:
        raise Unfit(value, kind)
    return fixed


def _string(value: Any, kind: pa.DataType) -> str:
    if not isinstance(value, str):
        raise Unfit(value, kind)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Unfit(value, kind, "a lone surrogate is not a character") from error
    return str.__str__(value)


def _binary(value: Any, kind: pa.DataType) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        try:
            return binascii.a2b_base64(value, strict_mode=True)
        except ValueError as error:
            raise Unfit(value, kind, "text for binary is base64") from error
    raise Unfit(value, kind)


def _date(value: Any, kind: pa.DataType) -> date:
    if isinstance(value, np.datetime64):
        value = _datetime(value, kind)
    if isinstance(value, datetime):
        if value.timetz() == datetime.min.time() and not getattr(value, "nanosecond", 0):
            return value.date()
        raise Unfit(value, kind, "it has a time of day or a zone")
    if isinstance(value, date):
        return value
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError as error:
            raise Unfit(value, kind, 'write it like "2026-01-31"') from error
    raise Unfit(value, kind)


def _timestamp(value: Any, kind: pa.DataType) -> int:
    if isinstance(value, str):
        if _BEYOND_MICROSECONDS.search(value):
            raise Unfit(value, kind, "it is finer than microseconds")
        try:
            moment = iso_moment(value)
        except ValueError as error:
            raise Unfit(value, kind, 'write it like "2026-01-31T12:00:00Z"') from error
    elif isinstance(value, np.datetime64):
        moment = _datetime(value, kind)
    elif isinstance(value, datetime):
        if getattr(value, "nanosecond", 0):
            raise Unfit(value, kind, "it is finer than microseconds")
        moment = value
    elif isinstance(value, date):
        moment = datetime(value.year, value.month, value.day)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        raise Unfit(value, kind, "to count time in numbers, declare the column bigint and give the stream a time_unit")
    else:
        raise Unfit(value, kind)
    if moment.utcoffset() is None:
        moment = moment.replace(tzinfo=UTC)
    elif kind.tz is None:
        raise Unfit(value, kind, "it has a zone and the column has none")
    return instant(moment)


def _datetime(value: np.datetime64, kind: pa.DataType) -> datetime:
    micros = value.astype("datetime64[us]")
    if micros != value:
        raise Unfit(value, kind, "it is finer than microseconds")
    moment = micros.item()
    if not isinstance(moment, datetime):
        raise Unfit(value, kind, "it is beyond the calendar")
    return moment


def _nested(kind: pa.DataType, parse: bool) -> Convert | None:
    """Return the converter of an array, map or struct, which in CSV are JSON text; None for other types."""
    if pa.types.is_list(kind):
        convert = _array(kind)
    elif pa.types.is_map(kind):
        convert = _map(kind)
    elif pa.types.is_struct(kind):
        convert = _struct(kind)
    else:
        return None
    return (lambda value: convert(_json(value, kind))) if parse else convert


def _json(value: Any, kind: pa.DataType) -> Any:
    try:
        return exact_loads(value)
    except ValueError as error:
        raise Unfit(value, kind, "write it as JSON") from error


def _array(kind: pa.DataType) -> Convert:
    inner = converter(kind.value_type)

    def convert(value: Any) -> list[Any]:
        if isinstance(value, np.ndarray):
            value = value.tolist() if value.dtype.kind not in "Mm" else list(value)
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray, memoryview)):
            raise Unfit(value, kind)
        items = []
        for at, item in enumerate(value):
            if not at % OFTEN:
                check_abandoned()
            try:
                items.append(inner(item))
            except Unfit as error:
                raise error.inside(f"[{at}]") from error
        return items

    return convert


def _map(kind: pa.DataType) -> Convert:
    key_of, key_of_text = converter(kind.key_type), converter(kind.key_type, parse=True)
    inner = converter(kind.item_type)

    def convert(value: Any) -> list[tuple[Any, Any]]:
        pairs = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(pairs, list) or not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
            raise Unfit(value, kind)
        result = []
        for at, (key, item) in enumerate(pairs):
            if not at % OFTEN:
                check_abandoned()
            if is_null(key):
                raise Unfit(value, kind, "a key is null")
            try:  # the keys of a JSON object are always text
                result.append(((key_of_text if isinstance(key, str) else key_of)(key), inner(item)))
            except Unfit as error:
                raise error.inside(f"[{shown(key)}]") from error
        return result

    return convert


def _struct(kind: pa.DataType) -> Convert:
    fields = {field.name: converter(field.type) for field in kind}

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise Unfit(value, kind)
        for name in value:
            if name not in fields:
                raise Unfit(value, kind, f"unknown field {shown(name)}" + nearest(str(name), fields))
        result = {}
        for name, inner in fields.items():
            try:
                result[name] = inner(value.get(name))
            except Unfit as error:
                raise error.inside(f".{name}") from error
        return result

    return convert
