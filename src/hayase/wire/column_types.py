"""Columns of Arrow as types of PostgreSQL: the number of the type, and values as text and in binary.

What has no such type, such as a structure or a map, is sent as JSON. Parameters are read by the type that the client names, or
as text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import orjson
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError

__all__ = ["NAMES", "ColumnType", "InvalidValue", "column_type", "parameter", "placeholder", "values"]

Text = Callable[[Any], bytes]
_EPOCH, _EPOCH_DATE = datetime(2000, 1, 1, tzinfo=UTC), date(2000, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


class InvalidValue(HayaseError):
    """A parameter is not a value of its type."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type of PostgreSQL: its number and size, its name, how a value is written, and in binary if that is possible."""

    oid: int
    size: int
    name: str
    text: Text
    binary: Text | None = None


def _plain(value: Any) -> bytes:
    return str(value).encode()


def _boolean(value: Any) -> bytes:
    return b"t" if value else b"f"


def _float(value: float) -> bytes:
    if value != value:
        return b"NaN"
    return (
        repr(value).removesuffix(".0").encode()
        if abs(value) != float("inf")
        else b"Infinity"
        if value > 0
        else b"-Infinity"
    )


def _moment(value: datetime) -> bytes:
    zone = "" if value.tzinfo is None else "+00"
    return f"{value.replace(tzinfo=None).isoformat(sep=' ')}{zone}".encode()


def _since_2000(value: datetime) -> bytes:
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return struct.pack("!q", (aware - _EPOCH) // _MICROSECOND)


def _interval(value: Any) -> bytes:
    if isinstance(value, timedelta):
        return f"{value.days} days {value.seconds + value.microseconds / 1e6:f} seconds".encode()
    months, days, nanoseconds = value
    return f"{months} mons {days} days {nanoseconds / 1e9:f} seconds".encode()


def _json(value: Any) -> bytes:
    return orjson.dumps(_jsonable(value), default=str, option=orjson.OPT_NON_STR_KEYS)


def _jsonable(value: Any) -> Any:
    """A map comes as a list of pairs; the pairs of a map make an object."""
    if isinstance(value, list) and value and all(isinstance(each, tuple) and len(each) == 2 for each in value):
        return {str(key): _jsonable(item) for key, item in value}
    if isinstance(value, list):
        return [_jsonable(each) for each in value]
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    return value.hex() if isinstance(value, bytes) else value


def _numeric(value: Decimal) -> bytes:
    return format(value, "f").encode()


def _numeric_binary(value: Decimal) -> bytes:
    """Groups of four decimal digits, with the weight of the first."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return struct.pack("!hhHh", 0, 0, 0xC000, 0)
    scale = max(0, -exponent)
    text = "".join(map(str, digits)) + "0" * max(0, exponent)
    whole = text[: len(text) - scale] if scale else text
    fraction = text[len(text) - scale :].rjust(scale, "0") if scale else ""
    whole = whole.rjust(-(-len(whole) // 4) * 4, "0")
    fraction = fraction.ljust(-(-len(fraction) // 4) * 4, "0")
    groups = [int((whole + fraction)[at : at + 4]) for at in range(0, len(whole) + len(fraction), 4)]
    weight = len(whole) // 4 - 1
    while groups and groups[0] == 0:
        groups.pop(0)
        weight -= 1
    while groups and groups[-1] == 0:
        groups.pop()
    return struct.pack(
        f"!hhHh{len(groups)}H", len(groups), weight if groups else 0, 0x4000 if sign else 0, scale, *groups
    )


def _packed(form: str) -> Text:
    return lambda value: struct.pack(form, value)


def _seconds_of_day(value: time) -> bytes:
    return struct.pack("!q", ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond)


_BOOLEAN = ColumnType(16, 1, "boolean", _boolean, lambda value: b"\1" if value else b"\0")
_BYTES = ColumnType(17, -1, "bytea", lambda value: b"\\x" + value.hex().encode(), bytes)
_BIGINT = ColumnType(20, 8, "bigint", _plain, _packed("!q"))
_SMALLINT = ColumnType(21, 2, "smallint", _plain, _packed("!h"))
_INTEGER = ColumnType(23, 4, "integer", _plain, _packed("!i"))
_TEXT = ColumnType(
    25, -1, "text", lambda value: value.encode(errors="replace"), lambda value: value.encode(errors="replace")
)
_JSON = ColumnType(114, -1, "json", _json, _json)
_REAL = ColumnType(700, 4, "real", _float, _packed("!f"))
_DOUBLE = ColumnType(701, 8, "double precision", _float, _packed("!d"))
_DATE = ColumnType(1082, 4, "date", _plain, lambda value: struct.pack("!i", (value - _EPOCH_DATE).days))
_TIME = ColumnType(1083, 8, "time without time zone", _plain, _seconds_of_day)
_TIMESTAMP = ColumnType(1114, 8, "timestamp without time zone", _moment, _since_2000)
_TIMESTAMPTZ = ColumnType(1184, 8, "timestamp with time zone", _moment, _since_2000)
_INTERVAL = ColumnType(1186, 16, "interval", _interval)
_NUMERIC = ColumnType(1700, -1, "numeric", _numeric, _numeric_binary)
_ARRAYS = {
    16: 1000,
    20: 1016,
    21: 1005,
    23: 1007,
    25: 1009,
    700: 1021,
    701: 1022,
    1082: 1182,
    1114: 1115,
    1184: 1185,
    1700: 1231,
}
NAMES = {
    each.oid: each.name
    for each in (_BOOLEAN, _BYTES, _BIGINT, _SMALLINT, _INTEGER, _TEXT, _JSON, _REAL, _DOUBLE, _DATE, _TIME, _TIMESTAMP,
                 _TIMESTAMPTZ, _INTERVAL, _NUMERIC)
}  # fmt: skip
NAMES |= {array: f"{NAMES[oid]}[]" for oid, array in _ARRAYS.items()}


def column_type(kind: pa.DataType) -> ColumnType:
    """Return the type of PostgreSQL that holds the values of an Arrow type.

    >>> column_type(pa.int64()).name, column_type(pa.list_(pa.string())).name, column_type(pa.struct({"a": pa.int8()})).name
    ('bigint', 'text[]', 'json')
    """
    if pa.types.is_dictionary(kind):
        return column_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = column_type(kind.value_type)
        return _array(element) if element.oid in _ARRAYS else _JSON
    if pa.types.is_decimal(kind):
        return _NUMERIC
    if pa.types.is_timestamp(kind):
        return _TIMESTAMP if kind.tz is None else _TIMESTAMPTZ
    for is_kind, found in _KINDS:
        if is_kind(kind):
            return found
    return _JSON if pa.types.is_nested(kind) else _TEXT_OF_ANY


_TEXT_OF_ANY = ColumnType(25, -1, "text", _plain, _plain)
_KINDS: tuple[tuple[Callable[[pa.DataType], bool], ColumnType], ...] = (
    (pa.types.is_boolean, _BOOLEAN),
    (pa.types.is_int64, _BIGINT),
    (pa.types.is_int32, _INTEGER),
    (pa.types.is_uint16, _INTEGER),
    (pa.types.is_uint32, _BIGINT),
    (pa.types.is_uint64, ColumnType(1700, -1, "numeric", _plain, lambda value: _numeric_binary(Decimal(value)))),
    (pa.types.is_integer, _SMALLINT),
    (pa.types.is_float64, _DOUBLE),
    (pa.types.is_floating, _REAL),
    (pa.types.is_string, _TEXT),
    (pa.types.is_large_string, _TEXT),
    (pa.types.is_binary, _BYTES),
    (pa.types.is_large_binary, _BYTES),
    (pa.types.is_date, _DATE),
    (pa.types.is_time, _TIME),
    (pa.types.is_duration, _INTERVAL),
    (pa.types.is_interval, _INTERVAL),
)


def _array(element: ColumnType) -> ColumnType:
    def text(value: Sequence[Any]) -> bytes:
        return b"{" + b",".join(b"NULL" if each is None else quoted(element.text(each)) for each in value) + b"}"

    def quoted(part: bytes) -> bytes:
        if (
            part
            and part.upper() != b"NULL"
            and not any(sign in part for sign in (b'"', b"\\", b",", b"{", b"}", b" ", b"\t", b"\n"))
        ):
            return part
        return b'"' + part.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'

    def binary(value: Sequence[Any]) -> bytes:
        assert element.binary is not None
        parts = [struct.pack("!iiI", 1 if value else 0, int(any(each is None for each in value)), element.oid)]
        parts += [struct.pack("!ii", len(value), 1)] if value else []
        for each in value:
            data = None if each is None else element.binary(each)
            parts += [b"\xff\xff\xff\xff"] if data is None else [struct.pack("!i", len(data)), data]
        return b"".join(parts)

    return ColumnType(_ARRAYS[element.oid], -1, f"{element.name}[]", text, binary if element.binary else None)


def values(column: pa.Array, kind: ColumnType, binary: bool) -> list[bytes | None]:
    """Return the values of a column as a client gets them."""
    write = kind.binary if binary and kind.binary is not None else kind.text
    return [None if value is None else write(value) for value in column.to_pylist()]


# ---------------------------------------------------------------------------------------------------- parameters

_READ_BINARY: dict[int, Callable[[bytes], Any]] = {
    16: lambda data: data != b"\0",
    17: bytes,
    20: lambda data: struct.unpack("!q", data)[0],
    21: lambda data: struct.unpack("!h", data)[0],
    23: lambda data: struct.unpack("!i", data)[0],
    26: lambda data: struct.unpack("!I", data)[0],
    700: lambda data: struct.unpack("!f", data)[0],
    701: lambda data: struct.unpack("!d", data)[0],
    1082: lambda data: _EPOCH_DATE + timedelta(days=struct.unpack("!i", data)[0]),
    1114: lambda data: (_EPOCH + timedelta(microseconds=struct.unpack("!q", data)[0])).replace(tzinfo=None),
    1184: lambda data: _EPOCH + timedelta(microseconds=struct.unpack("!q", data)[0]),
}
_READ_TEXT: dict[int, Callable[[str], Any]] = {
    16: lambda text: text.lower() in ("t", "true", "on", "yes", "y", "1"),
    20: int, 21: int, 23: int, 26: int, 700: float, 701: float, 1700: Decimal,
    17: lambda text: bytes.fromhex(text.removeprefix("\\x")),
    1082: date.fromisoformat, 1114: datetime.fromisoformat, 1184: datetime.fromisoformat,
}  # fmt: skip
_PLACEHOLDERS: dict[int, Any] = {
    16: True, 17: b"", 20: 2**40, 21: 1, 23: 1, 26: 1, 700: 0.5, 701: 0.5, 1700: Decimal("0.5"), 1082: _EPOCH_DATE,
    1114: _EPOCH.replace(tzinfo=None), 1184: _EPOCH,
}  # fmt: skip


def parameter(data: bytes | None, oid: int, binary: bool) -> Any:
    """Return the value of a parameter; a type that is not known is text."""
    if data is None:
        return None
    try:
        if binary and oid in _READ_BINARY:
            return _READ_BINARY[oid](data)
        text = data.decode()
        return _READ_TEXT[oid](text) if oid in _READ_TEXT else text
    except (ValueError, struct.error, InvalidOperation):
        kind = NAMES.get(oid, "text")
        raise InvalidValue(f"a parameter is not a value of type {kind}", "send one that is") from None


def placeholder(oid: int) -> Any:
    """Return some value of a type, to find out the columns of a statement before its parameters are known."""
    return _PLACEHOLDERS.get(oid)
