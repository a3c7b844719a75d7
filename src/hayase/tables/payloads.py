"""The encoding of JSON values, amounts and lists of byte strings in payloads and snapshots. Equal values have equal bytes.

**Values** are used where identity and order matter (registers, sets, keys of maps). Two values have the same bytes if and
only if they are equal in JSON: 1, 1.0 and Decimal("1.00") are one number, and false is not 0. The order of the bytes is jq's
order: null, false, true, numbers, texts by code point, arrays, objects (first by their sorted keys, then by the values). The
encoding is:

- null, false, true: one byte, 1, 2, 3;
- a number, 0.d1d2d3... times ten to the e, d1 not 0: one byte between 0x11 and 0xDF for sign and e (0x78 is zero; an e
  below -30 or above 70 takes two bytes more), two digits per byte, each byte plus one, and a zero byte. All bytes of a
  negative number are inverted;
- a text: 0xF1, its UTF-8 with the bytes 0 and 1 escaped as (1, 1) and (1, 2), and a zero byte;
- an array: 0xF2, its values, and a zero byte; an object: 0xF3, its keys as texts in order, a zero byte, its values in that
  order.

**Amounts** are used where numbers are added up: an integer in units of 10^-scale. The encoding is the scale times 1024 plus
the length, in base 128, then the integer in that many bytes, big-endian, two's complement. The scale is the least possible.

Numbers are exact. A float stands for the shortest decimal that reads back as that float, which is how JSON wrote it, so sums do
not depend on the order: 0.1 and 0.2 make 0.3. Numbers are limited to 400 digits before and 400 after the decimal point. A
decoded number is an int if it is whole and fits 64 bits, else a float if its shortest text is exactly the number, else a
Decimal; `json_bytes` writes all three in full.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.errors import DamagedState, HayaseError
from hayase.core.numbers import BeyondNumber

__all__ = [
    "LARGEST",
    "Amount",
    "DamagedPayload",
    "Json",
    "UnfitParameter",
    "added",
    "amount_bytes",
    "amount_from",
    "amount_of",
    "json_bytes",
    "kind_of",
    "many_amount_bytes",
    "many_text_bytes",
    "many_whole_bytes",
    "number",
    "pack",
    "plain_text",
    "reduced",
    "text_bytes",
    "text_column",
    "text_from",
    "unpack",
    "value_bytes",
    "value_from",
    "values_from",
    "varint",
    "varint_from",
]

Json: TypeAlias = Any
"""None, bool, int, float, Decimal, str, or a list or dict of these."""
Amount: TypeAlias = tuple[int, int]
"""A number n times 10^-scale, as (n, scale); scale is not negative."""

LARGEST = 65_536
"""The greatest size of an encoded parameter, in bytes."""
_DEEPEST = 100
_MOST_DIGITS = 400
_MOST_BITS = (10**_MOST_DIGITS).bit_length()
_SURE_DIGITS = 10**15
"""Every number below it, whatever its scale, equals the shortest text of its nearest float."""

_COMMON_SCALES = 7
"""How many scales `many_amount_bytes` tries on arrays before it encodes a number by itself."""

_NULL, _FALSE, _TRUE, _TEXT, _ARRAY, _OBJECT, _END = 0x01, 0x02, 0x03, 0xF1, 0xF2, 0xF3, 0x00
_ZERO, _TINY, _HUGE, _MIRROR = 0x78, 0x79, 0xDF, 0xF0
_LEAST_E, _GREATEST_E = -30, 70
_FIRST_E = _TINY + 1 - _LEAST_E
_UP = bytes((byte + 1) % 256 for byte in range(256))
_DOWN = bytes((byte - 1) % 256 for byte in range(256))
_MIRRORED = bytes(255 - byte for byte in range(256))


class UnfitParameter(HayaseError):
    """A parameter, an event id or an event time that no update can have; its event becomes a dead letter."""

    def __init__(self, reason: str, hint: str | None = None):
        self.reason, self.hint = reason, hint
        super().__init__(reason + (f"; {hint}" if hint else ""))


class DamagedPayload(DamagedState):
    """Bytes that this column type did not write, or that have changed since."""


def kind_of(value: Json) -> str:
    """Return the name of a value's JSON type for messages.

    >>> kind_of(True), kind_of(2.5), kind_of({})
    ('a boolean', 'a number', 'an object')
    """
    if value is None:
        return "null"
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return name
    return f"a {type(value).__name__}"


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "a boolean"),
    ((int, float, Decimal), "a number"),
    (str, "a text"),
    (list, "an array"),
    (dict, "an object"),
)


# ---------------------------------------------------------------------------------------------------- numbers


def amount_of(value: int | float | Decimal) -> Amount:
    """Return a number as (n, scale), exact and with the least scale.

    >>> amount_of(-3), amount_of(0.1), amount_of(Decimal("2.50")), amount_of(1e3)
    ((-3, 0), (1, 1), (25, 1), (1000, 0))
    """
    if isinstance(value, float):
        text = repr(value)
        if "e" not in text and "n" not in text:
            whole, _, part = text.partition(".")
            return (int(whole), 0) if part == "0" else (int(whole + part), len(part))
        value = Decimal(text)
    if isinstance(value, int):
        if value.bit_length() > _MOST_BITS:
            raise UnfitParameter("a number is too large", f"at most {_MOST_DIGITS} digits fit")
        return int(value), 0
    if isinstance(value, BeyondNumber):
        raise UnfitParameter(f"the number {value!r} is too large or too small", f"10^±{_MOST_DIGITS} is the limit")
    if not value.is_finite():
        raise UnfitParameter("a number is not finite" if value.is_infinite() else "a number is NaN")
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if value and not -_MOST_DIGITS <= value.adjusted() < _MOST_DIGITS:
        raise UnfitParameter(f"the number {value:.3e} is too large or too small", f"10^±{_MOST_DIGITS} is the limit")
    text = "".join(map(str, digits)).rstrip("0")
    exponent += len(digits) - len(text)
    if not text:
        return 0, 0
    if -exponent > _MOST_DIGITS:
        raise UnfitParameter(f"a number has {-exponent:,} decimals", f"at most {_MOST_DIGITS} fit")
    whole_number = int(text) * 10 ** max(exponent, 0)
    return -whole_number if sign else whole_number, max(-exponent, 0)


def number(amount: Amount) -> int | float | Decimal:
    """Return an amount as an int, float or Decimal, as the module's docstring says.

    >>> number((3, 1)), number((50, 1)), number((2**63, 0))
    (0.3, 5, Decimal('9223372036854775808'))
    """
    n, scale = amount if amount[1] == 0 else reduced(amount)
    if scale == 0 and -(2**63) <= n < 2**63:
        return n
    if -_SURE_DIGITS < n < _SURE_DIGITS and scale < 300:
        return n / 10**scale
    exact = Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale))
    nearest = float(exact)
    return nearest if math.isfinite(nearest) and Decimal(repr(nearest)) == exact else exact


def reduced(amount: Amount) -> Amount:
    """Return the same amount with the least scale."""
    n, scale = amount
    while scale and n % 10 == 0:
        n, scale = n // 10, scale - 1
    return n, scale


def added(one: Amount, other: Amount) -> Amount:
    """Return the exact sum of two amounts.

    >>> added((1, 1), (25, 2))
    (35, 2)
    """
    (n, scale), (m, other_scale) = one, other
    if scale == other_scale:
        return n + m, scale
    if scale < other_scale:
        return n * 10 ** (other_scale - scale) + m, other_scale
    return n + m * 10 ** (scale - other_scale), scale


def amount_bytes(amount: Amount) -> bytes:
    """Encode an amount.

    >>> amount_bytes((1999, 2)).hex(), amount_bytes((-10, 1)).hex()
    ('821007cf', '01ff')
    """
    n, scale = amount
    if scale and n % 10 == 0:
        n, scale = reduced(amount)
    length = ((n if n >= 0 else ~n).bit_length() + 8) // 8
    return varint(scale << 10 | length) + n.to_bytes(length, "big", signed=True)


def many_amount_bytes(values: Sequence[Json]) -> list[bytes] | None:
    """Return `amount_bytes(amount_of(value))` for many values; None if any is not a finite int or float.

    Nearly all numbers have few digits. Then the least scale at which a float is a whole number is the scale of its shortest
    text, because no two numbers of at most 15 digits are the same float.

    >>> many_amount_bytes([19.99, -1, 0.5]) == [amount_bytes(amount_of(each)) for each in (19.99, -1, 0.5)]
    True
    """
    if not {int, float}.issuperset(map(type, values)):
        return None
    try:
        floats = np.array(values, np.float64)
    except OverflowError:
        return None
    if not np.isfinite(floats).all():
        return None
    whole = np.zeros(len(floats), np.int64)
    scales = np.full(len(floats), -1)
    for scale in range(_COMMON_SCALES):
        left = np.flatnonzero(scales < 0)
        if not len(left):
            break
        with np.errstate(over="ignore"):
            scaled = np.rint(floats[left] * 10**scale)
        exact = (np.abs(scaled) < _SURE_DIGITS) & (scaled / 10**scale == floats[left])
        whole[left[exact]], scales[left[exact]] = scaled[exact], scale
    size = np.where(whole >= 0, whole, ~whole)
    lengths = np.ones(len(floats), np.int64)
    for length in range(1, 8):
        lengths += size >= 1 << (8 * length - 1)
    digits = whole.astype(">i8").view(np.uint8).reshape(-1, 8)
    shapes = np.where(scales < 0, -1, scales << 10 | lengths)
    encoded: list[bytes] = [b""] * len(floats)
    for shape in np.unique(shapes).tolist():
        positions = np.flatnonzero(shapes == shape)
        if shape < 0:
            bodies = [amount_bytes(amount_of(values[position])) for position in positions.tolist()]
        else:
            width = shape & 1023
            head, data = varint(shape), digits[positions, 8 - width :].tobytes()
            bodies = [head + data[begin : begin + width] for begin in range(0, len(data), width)]
        if len(positions) == len(encoded):
            return bodies
        for position, body in zip(positions.tolist(), bodies):
            encoded[position] = body
    return encoded


def amount_from(data: bytes, at: int = 0) -> tuple[Amount, int]:
    """Decode an amount; also return the position after it."""
    shape, at = varint_from(data, at)
    end = at + (shape & 1023)
    if end > len(data) or end == at:
        raise ValueError("an amount is cut off")
    return (int.from_bytes(data[at:end], "big", signed=True), shape >> 10), end


def _number_bytes(amount: Amount) -> bytes:
    n, scale = amount
    if n == 0:
        return b"\x78"
    digits = str(abs(n))
    exponent = len(digits) - scale
    digits = digits.rstrip("0")
    body = bytes.fromhex(digits + "0" if len(digits) % 2 else digits).translate(_UP) + b"\0"
    if _LEAST_E <= exponent <= _GREATEST_E:
        head = _FIRST_E + exponent
    else:
        head = _TINY if exponent < 0 else _HUGE
        body = (exponent + 2**15).to_bytes(2, "big") + body
    return bytes((head,)) + body if n > 0 else bytes((_MIRROR - head,)) + body.translate(_MIRRORED)


def many_whole_bytes(numbers: Iterable[int]) -> list[bytes] | None:
    """Return `value_bytes` of many integers; None if any is not of usual size.

    >>> many_whole_bytes([1200, 7]) == [value_bytes(1200), value_bytes(7)], many_whole_bytes([-1])
    (True, None)
    """
    texts = [str(number) for number in numbers]
    if any(text[0] in "-0" or len(text) > _GREATEST_E for text in texts):
        return None
    digits = [text.rstrip("0") for text in texts]
    return [
        b"%c%b\0" % (_FIRST_E + len(text), bytes.fromhex(some + "0" if len(some) & 1 else some).translate(_UP))
        for text, some in zip(texts, digits)
    ]


def _number_from(data: bytes, at: int) -> tuple[int | float | Decimal, int]:
    head, start = data[at], at + 1
    if head == _ZERO:
        return 0, start
    negative = head < _ZERO
    head = _MIRROR - head if negative else head
    exponent = head - _FIRST_E
    if head in (_TINY, _HUGE):
        far = data[start : start + 2]
        exponent = int.from_bytes(far.translate(_MIRRORED) if negative else far, "big") - 2**15
        if not (exponent < _LEAST_E if head == _TINY else exponent > _GREATEST_E):
            raise ValueError("a number is damaged")
        start += 2
    end = data.index(b"\xff" if negative else b"\0", start)
    body = data[start:end].translate(_MIRRORED) if negative else data[start:end]
    digits = body.translate(_DOWN).hex()
    if not digits.isdecimal() or digits[0] == "0" or digits.endswith("00") or abs(exponent) > _MOST_DIGITS:
        raise ValueError("a number is damaged")
    digits = digits.rstrip("0")
    n, scale = int(digits), len(digits) - exponent
    amount = (n, scale) if scale >= 0 else (n * 10**-scale, 0)
    return number((-amount[0], amount[1]) if negative else amount), end + 1


# ---------------------------------------------------------------------------------------------------- values


def value_bytes(value: Json) -> bytes:
    """Encode a JSON value. The order of the bytes is jq's order of the values.

    >>> value_bytes(2) == value_bytes(2.0) == value_bytes(Decimal("2.0"))
    True
    >>> value_bytes(None) < value_bytes(True) < value_bytes(-7.5) < value_bytes(10) < value_bytes("") < value_bytes([])
    True
    """
    return _value(value, 0)


def _value(value: Json, depth: int) -> bytes:
    if isinstance(value, str):
        return b"\xf1" + text_bytes(value)
    if isinstance(value, bool) or value is None:
        return b"\x01" if value is None else b"\x03" if value else b"\x02"
    if isinstance(value, (int, float, Decimal)):
        return _number_bytes(amount_of(value))
    if depth == _DEEPEST:
        raise UnfitParameter(f"a parameter is nested more than {_DEEPEST} deep")
    if isinstance(value, list):
        return b"\xf2" + b"".join([_value(item, depth + 1) for item in value]) + b"\0"
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise UnfitParameter("an object has a key that is not a text")
        entries = sorted((b"\xf1" + text_bytes(key), _value(item, depth + 1)) for key, item in value.items())
        return b"\xf3" + b"".join([key for key, _ in entries]) + b"\0" + b"".join([item for _, item in entries])
    raise UnfitParameter(f"a parameter is {kind_of(value)}", "it must be a JSON value")


def many_text_bytes(values: Sequence[Json]) -> list[bytes] | None:
    """Return `value_bytes` of many values, if all are texts without escapes; else None.

    >>> many_text_bytes(["a", "b"]) == [value_bytes("a"), value_bytes("b")]
    True
    """
    if not {str}.issuperset(map(type, values)):
        return None
    try:
        raw = "\0".join(values).encode()
    except UnicodeEncodeError:
        return None
    if b"\1" in raw or raw.count(b"\0") != max(len(values) - 1, 0):
        return None
    encoded = [b"\xf1%b\0" % text for text in raw.split(b"\0")] if values else []
    return encoded if max(map(len, encoded), default=0) <= LARGEST else None


def text_column(values: Sequence[Json], head: bytes = b"") -> pa.Array | None:
    """Return `value_bytes` of many texts as a column, each with the head in front; None if any is not text or needs escapes.

    >>> text_column(["a", "b"], b"-").to_pylist() == [b"-" + value_bytes("a"), b"-" + value_bytes("b")]
    True
    """
    if not {str}.issuperset(map(type, values)):
        return None
    try:
        texts = pa.array(values, pa.large_string())
    except (pa.ArrowException, UnicodeError):  # a lone surrogate
        return None
    body = texts.buffers()[2]
    raw = b"" if body is None else body.to_pybytes()
    if b"\0" in raw or b"\1" in raw:
        return None
    heads, ends = pa.scalar(head + b"\xf1", pa.large_binary()), pa.scalar(b"\0", pa.large_binary())
    nothing = pa.scalar(b"", pa.large_binary())
    return pc.binary_join_element_wise(heads, texts.cast(pa.large_binary()), ends, nothing)


def value_from(data: bytes) -> Json:
    """Decode the one value that `data` consists of.

    >>> value_from(value_bytes({"b": [1.50, None], "a": "\\0"}))
    {'a': '\\x00', 'b': [1.5, None]}
    """
    text = plain_text(data)
    if text is not None:
        return text
    try:
        value, end = _value_from(data, 0, 0)
    except (IndexError, ValueError) as error:
        raise DamagedPayload(f"{data[:64].hex()} is not a value: {error}") from error
    if end != len(data):
        raise DamagedPayload(f"{data[:64].hex()} is longer than its value")
    return value


def plain_text(data: bytes) -> str | None:
    """Decode the one text without escapes that `data` consists of; None if it is anything else, or damaged."""
    if data[:1] != b"\xf1" or data.find(b"\0") != len(data) - 1 or b"\1" in data:
        return None
    try:
        return data[1:-1].decode()
    except UnicodeDecodeError:
        return None


def values_from(data: bytes) -> list[Json]:
    """Decode consecutive values.

    >>> values_from(value_bytes("taro") + value_bytes(7))
    ['taro', 7]
    """
    values, at = [], 0
    try:
        while at < len(data):
            value, at = _value_from(data, at, 0)
            values.append(value)
    except (IndexError, ValueError) as error:
        raise DamagedPayload(f"{data[:64].hex()} are not values: {error}") from error
    return values


def _value_from(data: bytes, at: int, depth: int) -> tuple[Json, int]:
    kind = data[at]
    if kind == _TEXT:
        return text_from(data, at + 1)
    if _MIRROR - _HUGE <= kind <= _HUGE:
        return _number_from(data, at)
    if kind <= _TRUE and kind != _END:
        return (None, False, True)[kind - 1], at + 1
    if depth == _DEEPEST or kind not in (_ARRAY, _OBJECT):
        raise ValueError("unknown kind")
    at += 1
    values: list[Json] = []
    keys: list[str] = []
    if kind == _ARRAY:
        while data[at] != _END:
            value, at = _value_from(data, at, depth + 1)
            values.append(value)
        return values, at + 1
    while data[at] != _END:
        if data[at] != _TEXT:
            raise ValueError("a key is not a text")
        key, at = text_from(data, at + 1)
        if keys and key <= keys[-1]:
            raise ValueError("keys are not in order")
        keys.append(key)
    at += 1
    for _ in keys:
        value, at = _value_from(data, at, depth + 1)
        values.append(value)
    return dict(zip(keys, values)), at


def text_bytes(text: str) -> bytes:
    """Encode a text in UTF-8, escaped and terminated by the only zero byte in it.

    >>> text_bytes("a"), text_bytes("\\0\\1")
    (b'a\\x00', b'\\x01\\x01\\x01\\x02\\x00')
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise UnfitParameter("a text is not Unicode", f"lone surrogate at {error.start}") from error
    if b"\1" in data:
        data = data.replace(b"\1", b"\1\2")
    return (data.replace(b"\0", b"\1\1") if b"\0" in data else data) + b"\0"


def text_from(data: bytes, at: int = 0) -> tuple[str, int]:
    """Decode a text; also return the position after it."""
    end = data.index(b"\0", at)
    raw = data[at:end]
    if b"\1" not in raw:
        return raw.decode(), end + 1
    # A run of ones begins with a pair, so pairs can be replaced from the left.
    text = raw.replace(b"\1\1", b"\0").replace(b"\1\2", b"\1").decode()
    if text_bytes(text) != data[at : end + 1]:
        raise ValueError("a text is damaged")
    return text, end + 1


def json_bytes(value: Json) -> bytes:
    """Return a value as JSON text with all digits of its numbers.

    >>> json_bytes({"a": [Decimal("12345678901234567890.5"), 0.1]})
    b'{"a":[12345678901234567890.5,0.1]}'
    """
    return orjson.dumps(value, default=_literal)


def _literal(value: object) -> orjson.Fragment:
    if not isinstance(value, Decimal):
        raise TypeError(f"a {type(value).__name__} is not a JSON value")
    return orjson.Fragment(str(value))


# ---------------------------------------------------------------------------------------------------- lists of bytes


_SMALL = tuple(bytes((byte,)) for byte in range(128))


def varint(whole: int) -> bytes:
    """Encode a non-negative integer in base 128, the lowest digit first; all bytes but the last have the high bit set.

    >>> varint(5).hex(), varint(300).hex()
    ('05', 'ac02')
    """
    if whole < 128:
        return _SMALL[whole]
    if whole < 2**14:
        return bytes((whole & 127 | 128, whole >> 7))
    result = bytearray()
    while whole >= 128:
        result.append(whole & 127 | 128)
        whole >>= 7
    result.append(whole)
    return bytes(result)


def varint_from(data: bytes, at: int) -> tuple[int, int]:
    """Decode an integer in base 128; also return the position after it."""
    byte = data[at]
    if byte < 128:
        return byte, at + 1
    whole = shift = 0
    while True:
        byte = data[at]
        at += 1
        whole |= (byte & 127) << shift
        if byte < 128:
            return whole, at
        shift += 7


def pack(parts: Iterable[bytes]) -> bytes:
    """Concatenate byte strings, each preceded by its length."""
    pieces: list[bytes] = []
    for part in parts:
        pieces.append(varint(len(part)))
        pieces.append(part)
    return b"".join(pieces)


def unpack(data: bytes) -> list[bytes]:
    """Return the byte strings that `pack` concatenated.

    >>> unpack(pack([b"a", b"", b"bc"]))
    [b'a', b'', b'bc']
    """
    parts: list[bytes] = []
    at, end = 0, len(data)
    while at < end:
        length = data[at]
        at += 1
        if length >= 128:
            length, at = varint_from(data, at - 1)
        parts.append(data[at : at + length])
        at += length
    if at != end:
        raise ValueError("the last part is cut off")
    return parts
