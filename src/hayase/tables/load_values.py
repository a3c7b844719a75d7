"""Column-wise encoding for bulk loads: columns of values as keys and as deltas.

Texts, integers, numbers of few digits and booleans are encoded by Arrow and numpy, all others value by value. Both ways give the
same bytes (`payloads.value_bytes`). Null stays null; a value that does not fit becomes null and has a reason.
"""

from __future__ import annotations

from decimal import Decimal
from types import NoneType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.streams.typed_columns import python_values
from hayase.tables.entries import LONGEST_KEY, key_bytes
from hayase.tables.events import events_of
from hayase.tables.maps import MapSet
from hayase.tables.payloads import LARGEST, UnfitParameter, value_bytes
from hayase.tables.registers import MaxRegister, MinRegister, Register
from hayase.tables.sets import ADD_ALL
from hayase.tables.types import ColumnType

__all__ = ["Encoded", "Values", "deltas_of", "keys_of", "plain_bytes"]

Values: TypeAlias = pa.Array | list[Any]
"""A column, as an Arrow array or plain values."""

_BINARY = pa.large_binary()
_NOTHING = pa.scalar(b"", _BINARY)
_JSON = {str, int, float, bool, NoneType, Decimal, list, dict}
_DIGITS, _PAIRS = 18, 9
_POWERS = 10 ** np.arange(_DIGITS, dtype=np.int64)
_MOST = 10**15
"""No two decimals with fewer digits than this number are the same double."""
_LEAST, _GREATEST = -15, 18
_ABOVE = np.array([value_bytes(Decimal(1).scaleb(power - 1))[0] for power in range(_LEAST, _GREATEST + 1)], np.uint8)
_BELOW = np.array([value_bytes(-Decimal(1).scaleb(power - 1))[0] for power in range(_LEAST, _GREATEST + 1)], np.uint8)
"""The first byte of a positive and of a negative number, by its power of ten."""
_ZERO = value_bytes(0)[0]


class Encoded(NamedTuple):
    """A column of bytes, with nulls, and the reasons of values that did not fit, by position."""

    bytes: pa.Array
    reasons: dict[int, str]


def keys_of(parts: list[Values]) -> Encoded:
    """Encode keys, given a column for each part. A key with a null does not fit."""
    columns, reasons = [], dict[int, str]()
    for values in parts:
        part = _key_part(values)
        columns.append(part.bytes)
        reasons = part.reasons | reasons
    whole = columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, _NOTHING)
    for at in np.flatnonzero(whole.is_null().to_numpy(zero_copy_only=False)).tolist():
        reasons.setdefault(at, "the key is null; it must be a text, a number or a boolean")
    lengths = pc.fill_null(pc.binary_length(whole), 0).to_numpy(zero_copy_only=False)
    if len(lengths) and lengths.max() > LONGEST_KEY:
        for at in np.flatnonzero(lengths > LONGEST_KEY).tolist():
            reasons[at] = f"the key takes {lengths[at]:,} bytes; at most {LONGEST_KEY:,} fit"
    return Encoded(whole, reasons)


def _key_part(values: Values) -> Encoded:
    plain = plain_bytes(values)
    if plain is not None:
        return Encoded(plain, {})
    encoded: list[bytes | None] = []
    reasons: dict[int, str] = {}
    for at, value in enumerate(_documents(values)):
        try:
            encoded.append(None if value is None else key_bytes((value,)))
        except UnfitParameter as error:
            encoded.append(None)
            reasons[at] = str(error)
    return Encoded(pa.array(encoded, _BINARY), reasons)


def deltas_of(kind: ColumnType[Any], values: Values) -> Encoded:
    """Encode the deltas of a column type's first method with these parameters. For a set, an array means all its elements, as in
    the value of the column; likewise for each value of a map of sets."""
    if isinstance(kind, (Register, MinRegister, MaxRegister)):
        plain = plain_bytes(values)
        if plain is not None and (pc.max(pc.binary_length(plain)).as_py() or 0) <= LARGEST:
            head = pa.scalar(kind.payload(None, 0)[:2], _BINARY)
            return Encoded(pc.binary_join_element_wise(head, plain, _NOTHING), {})
    documents = _documents(values)
    parameters = documents if None not in documents else [document for document in documents if document is not None]
    deltas = _payloads(kind, parameters)
    reasons: dict[int, str] = {}
    if UnfitParameter not in set(map(type, deltas)):
        if len(deltas) == len(documents):
            return Encoded(pa.array(deltas, _BINARY), reasons)
        following = iter(deltas)
        return Encoded(
            pa.array([None if document is None else next(following) for document in documents], _BINARY), reasons
        )
    encoded: list[bytes | None] = []
    following = iter(deltas)
    for at, document in enumerate(documents):
        delta = None if document is None else next(following)
        if isinstance(delta, UnfitParameter):
            reasons[at], delta = str(delta), None
        encoded.append(delta)
    return Encoded(pa.array(encoded, _BINARY), reasons)


def _payloads(kind: ColumnType[Any], parameters: list[Any]) -> list[bytes | UnfitParameter]:
    if ADD_ALL not in kind.methods:
        return kind.payloads(None, parameters)
    return [_payload(kind, parameter) for parameter in parameters]


def _payload(kind: ColumnType[Any], parameter: Any) -> bytes | UnfitParameter:
    """Encode the delta of a value for a set or for a map of sets."""
    method: str | None = None
    if (
        isinstance(kind, MapSet)
        and isinstance(parameter, dict)
        and any(isinstance(element, list) for element in parameter.values())
    ):
        parameter = {key: element if isinstance(element, list) else [element] for key, element in parameter.items()}
        method = ADD_ALL
    elif isinstance(parameter, list) and not isinstance(kind, MapSet):
        method = ADD_ALL
    return kind.payloads(method, (parameter,))[0]


def _documents(values: Values) -> list[Any]:
    """Convert values to JSON: times to ISO texts, maps to objects."""
    if isinstance(values, list):
        if _JSON.issuperset(map(type, values)):
            return values
        try:
            values = pa.array(values)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            return values  # each one is refused by itself
    if pa.types.is_map(values.type):
        return [None if pairs is None else dict(pairs) for pairs in python_values(values)]
    return list(events_of(pa.record_batch([values], ["values"])).field("values"))


# ---------------------------------------------------------------------------------------------------- whole columns


def plain_bytes(values: Values) -> pa.Array | None:
    """Return `value_bytes` of all values, if they have one of the common types; else None.

    >>> plain_bytes([7, None, -120]).to_pylist() == [value_bytes(7), None, value_bytes(-120)]
    True
    """
    column = _uniform(values) if isinstance(values, list) else values
    if column is None:
        return None
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _texts(column)
    if pa.types.is_boolean(kind):
        both = pa.array([value_bytes(False), value_bytes(True)], _BINARY)
        return both.take(column.cast(pa.int8()))
    if pa.types.is_integer(kind) and kind != pa.uint64():
        whole = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        fits = not len(whole) or (whole.min() > -(10**_DIGITS) and whole.max() < 10**_DIGITS)
        return _restored(_numbers(whole, np.zeros(len(whole), np.int64)), column) if fits else None
    if pa.types.is_float64(kind):
        return _floats(column)
    return None


def _uniform(values: list[Any]) -> pa.Array | None:
    kinds = set(map(type, values)) - {NoneType}
    if len(kinds) != 1 or not kinds <= {str, int, bool, float}:
        return None
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return None


def _texts(column: pa.Array) -> pa.Array | None:
    raw = column.cast(_BINARY)
    _, starts, data = raw.buffers()
    offsets = np.frombuffer(starts, np.int64)[raw.offset : raw.offset + len(raw) + 1] if len(raw) else np.zeros(1, int)
    letters = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.empty(0, np.uint8)
    if len(letters) and letters.min() <= 1:
        return None  # these bytes need escapes
    head, end = pa.scalar(b"\xf1", _BINARY), pa.scalar(b"\0", _BINARY)
    return pc.binary_join_element_wise(head, raw, end, _NOTHING)


def _floats(column: pa.Array) -> pa.Array | None:
    """Encode doubles whose shortest decimals have at most fifteen digits, NaN and infinities as null; None for others."""
    floats = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False)
    finite = np.isfinite(floats)
    floats = np.where(finite, floats, 0.0)
    whole, scales = np.zeros(len(floats), np.int64), np.full(len(floats), -1)
    left = np.arange(len(floats))
    for scale in range(-_LEAST + 1):
        with np.errstate(over="ignore"):
            scaled = np.rint(floats[left] * 10.0**scale)
        exact = (np.abs(scaled) < _MOST) & (scaled / 10.0**scale == floats[left])
        whole[left[exact]], scales[left[exact]] = scaled[exact], scale
        left = left[~exact]
        if not len(left):
            break
    digits = np.searchsorted(_POWERS, np.abs(whole), side="right")
    if len(left) or (len(digits) and (digits - scales).min() < _LEAST):
        return None
    encoded = _restored(_numbers(whole, scales), column)
    return encoded if finite.all() else pc.if_else(pa.array(finite), encoded, pa.scalar(None, _BINARY))


def _restored(encoded: pa.Array, column: pa.Array) -> pa.Array:
    """Put nulls where the column has them."""
    return pc.if_else(column.is_valid(), encoded, pa.scalar(None, _BINARY)) if column.null_count else encoded


def _numbers(whole: np.ndarray, scales: np.ndarray) -> pa.Array:
    """Encode integers times ten to the minus scale, two digits per byte, as `payloads` describes."""
    size, below = np.abs(whole), whole < 0
    digits = np.searchsorted(_POWERS, size, side="right")
    shifted = size * np.where(digits, 10 ** (_DIGITS - np.maximum(digits, 1)), 0)
    rows = np.zeros((len(whole), _PAIRS + 2), np.uint8)
    kept = np.zeros(len(whole), np.int64)
    for pair in range(_PAIRS):
        two = shifted // 100 ** (_PAIRS - 1 - pair) % 100
        rows[:, pair + 1] = (two // 10 << 4) + two % 10 + 1
        kept[two > 0] = pair + 1
    rows[np.arange(len(whole)), kept + 1] = 0
    rows[below] = 255 - rows[below]
    powers = digits - scales - _LEAST
    rows[:, 0] = np.where(size == 0, _ZERO, np.where(below, _BELOW[powers], _ABOVE[powers]))
    lengths = np.where(size == 0, 1, kept + 2)
    data = rows[np.arange(_PAIRS + 2) < lengths[:, None]]
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    return pa.Array.from_buffers(_BINARY, len(whole), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
