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
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

import numpy as np
import pyarrow as pa

from hayase.core.abandonment import OFTEN, check_abandoned
from hayase.core.errors import HayaseError, nearest
from hayase.core.numbers import BeyondNumber, exact_loads, is_number, number_of
from hayase.core.schemas import JSON, ddl, is_json
from hayase.core.times import instant, iso_moment
from hayase.streams.record_text import plain_value, shown

__all__ = [
    "DEEPEST_JSON",
    "LONGEST_JSON",
    "Convert",
    "Unfit",
    "converter",
    "converter_of",
    "integer_range",
    "is_null",
    "type_name",
]

Convert = Callable[[Any], Any]
"""Converts a value to one that Arrow accepts into the column unchanged; raises `Unfit`."""

_EXACT = Context(prec=76, traps=[Inexact, InvalidOperation, Overflow])
_NOT_FINITE = re.compile(r"[+-]?(?:nan(?:\(\w*\))?|inf(?:inity)?)", re.IGNORECASE)
_JSON_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_BEYOND_MICROSECONDS = re.compile(r"[.,][0-9]{6}0*[1-9]")
_FLOATS: dict[int, Callable[[float], Any]] = {32: np.float32, 64: float}


class Unfit(HayaseError):
    """A value that its column does not accept; `place` is its path inside a nested column."""

    def __init__(self, value: object, kind: pa.DataType | str, hint: str = "", place: str = ""):
        self.value, self.kind, self.hint, self.place = value, kind, hint, place
        super().__init__(self.reason(""))

    def reason(self, column: str) -> str:
        """Return the reason for the dead letter."""
        hint = f"; {self.hint}" if self.hint else ""
        name = self.kind if isinstance(self.kind, str) else type_name(self.kind)
        return f'column "{column}"{self.place} must be {name}, not {shown(self.value)}{hint}'

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


def converter_of(field: pa.Field, parse: bool = False) -> Convert:
    """Return the function that converts values to the type of a column; with `parse`, a text in a json column is JSON text."""
    if is_json(field):
        return _json_texts if parse else _json_values
    return converter(field.type, parse)


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
    if pa.types.is_time(kind):
        return lambda value: _time(value, kind)
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
    least, most = integer_range(kind)
    if not least <= whole <= most:
        raise Unfit(value, kind, f"it takes {least} to {most}")
    return whole


def integer_range(kind: pa.DataType) -> tuple[int, int]:
    """Return the least and the greatest integer of a type.

    >>> integer_range(pa.int8()), integer_range(pa.uint64())[1] == 2**64 - 1
    ((-128, 127), True)
    """
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**kind.bit_width - 1
    limit = 2 ** (kind.bit_width - 1)
    return -limit, limit - 1


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


def _time(value: Any, kind: pa.DataType) -> time:
    if isinstance(value, str):
        if _BEYOND_MICROSECONDS.search(value):
            raise Unfit(value, kind, "it is finer than microseconds")
        try:
            value = time.fromisoformat(value)
        except ValueError as error:
            raise Unfit(value, kind, 'write it like "12:30:00"') from error
    if not isinstance(value, time):
        raise Unfit(value, kind)
    if value.tzinfo is not None:
        raise Unfit(value, kind, "it has a zone; a time of day has none")
    return value


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


def _json(value: Any, kind: pa.DataType | str) -> Any:
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


DEEPEST_JSON = 200
"""Maximal depth of arrays and objects in a json column."""
LONGEST_JSON = 16 << 20
"""Maximal length of the text of a value in a json column, in characters."""


def _json_texts(value: Any) -> str | None:
    """Convert JSON text, or a value that is not a text, to the text of a json column."""
    return _json_values(_json(value, JSON) if isinstance(value, str) else value)


def _json_values(value: Any) -> str | None:
    """Convert any value that JSON has a form for to its text: without white space, keys in the order in which they came, and
    every number with all its digits. None is null."""
    if is_null(value):
        return None
    pieces: list[str] = []
    try:
        _write_json(value, pieces, DEEPEST_JSON)
        text = "".join(pieces)
        text.encode()
    except UnicodeEncodeError as error:
        raise Unfit(value, JSON, "a lone surrogate is not a character") from error
    if len(text) > LONGEST_JSON:
        raise Unfit(value, JSON, f"it has {len(text):,} characters as text; at most {LONGEST_JSON:,} are taken")
    return text


def _write_json(value: Any, pieces: list[str], depth: int) -> None:
    """Append the JSON text of a value, which may have `depth` levels of arrays and objects."""
    if isinstance(value, str):
        pieces.append(encode_basestring(value))
    elif value is None or value is True or value is False:
        pieces.append("null" if value is None else "true" if value else "false")
    elif isinstance(value, (Mapping, list, tuple)):
        if not depth:
            raise Unfit(value, JSON, f"it is nested too deep; at most {DEEPEST_JSON} levels are taken")
        is_object = isinstance(value, Mapping)
        pieces.append("{" if is_object else "[")
        for at, item in enumerate(value.items() if isinstance(value, Mapping) else value):
            if not at % OFTEN:
                check_abandoned()
            if at:
                pieces.append(",")
            if is_object:
                key, item = item
                if not isinstance(key, str):
                    raise Unfit(key, JSON, "the keys of an object are texts")
                pieces += (encode_basestring(key), ":")
            _write_json(item, pieces, depth - 1)
        pieces.append("}" if is_object else "]")
    else:
        pieces.append(_json_atom(value))


def _json_atom(value: Any) -> str:
    """Return the JSON text of a number, or of a value that JSON writes as a text: a time, a date, bytes."""
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64):
        return _json_atom(value.item())
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return int.__repr__(value)
        except ValueError as error:  # more digits than Python converts
            raise Unfit(value, JSON, "the integer has too many digits") from error
    if isinstance(value, float) and math.isfinite(value):
        return float.__repr__(value)
    if isinstance(value, BeyondNumber) or (isinstance(value, Decimal) and value.is_finite()):
        return str(value)
    if isinstance(value, (date, time, bytes, bytearray, memoryview, np.datetime64)):
        return encode_basestring(str(plain_value(value)))
    raise Unfit(value, JSON, "JSON has no form for it; write it as a text")
