"""Tuples as columns: plain tuples have a key and a value as JSON text, typed tuples the columns of a schema.

The text of a key is canonical: equal keys have equal texts. A float without fraction equals the integer, a tuple equals the list.
An object that cannot be a key or a value is reported by position, with what was expected; the others are not affected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError, nearest
from hayase.core.schemas import is_json
from hayase.streams.json_columns import json_values
from hayase.streams.record_text import shown
from hayase.streams.typed_columns import fit_values, python_values

__all__ = [
    "KEY", "MOST_KEY", "MOST_VALUE", "PLAIN", "VALUE", "Shape", "Unfit", "as_key", "key_column", "key_text", "loads_all",
    "typed_columns", "value_column",
]  # fmt: skip

KEY, VALUE = "key", "value"
MOST_KEY = 1024
"""The greatest size of a key's text, in bytes."""
MOST_VALUE = 16 * 2**20
"""The greatest size of a value's text, in bytes."""
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
_ESCAPED = r'["\\\x00-\x1f]'
_ATOMS = (str, bool, int, float, type(None))

Reasons = dict[int, str]
"""Why values do not fit, by position."""


class Unfit(Exception):
    """A value of the wrong kind; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of tuples: their columns, and the columns of the key by which they are grouped."""

    schema: pa.Schema
    key: tuple[str, ...]
    plain: bool = False

    @property
    def rest(self) -> tuple[str, ...]:
        """The columns that are not in the key."""
        return tuple(name for name in self.schema.names if name not in self.key)

    @property
    def nullable_fields(self) -> list[pa.Field]:
        """The columns without NOT NULL, for rows inside a job: a tuple that does not fit is refused before."""
        return [pa.field(field.name, field.type) for field in self.schema]

    def keys(self, rows: pa.RecordBatch) -> list[Any]:
        """Return the keys of rows as functions see them: one value, or a tuple of several."""
        if self.plain:
            return [as_key(key) for key in loads_all(rows.column(KEY))]
        columns = [_values(rows.column(name)) for name in self.key]
        return columns[0] if len(columns) == 1 else list(zip(*columns))

    def values(self, rows: pa.RecordBatch) -> list[Any]:
        """Return the values of rows: plain values, or dicts of the columns that are not in the key."""
        return loads_all(rows.column(VALUE)) if self.plain else dicts(rows.select(list(self.rest)))

    def records(self, rows: pa.RecordBatch) -> list[dict[str, Any]]:
        """Return rows as a map sees them, as dicts; plain tuples have a key and a value."""
        if not self.plain:
            return dicts(rows)
        others = [name for name in rows.schema.names if name not in (KEY, VALUE)]
        columns = [self.keys(rows), self.values(rows), *(_values(rows.column(name)) for name in others)]
        names = [KEY, VALUE, *others]
        return [dict(zip(names, row)) for row in zip(*columns)]


PLAIN = Shape(pa.schema([(KEY, pa.string()), (VALUE, pa.string())]), (KEY,), plain=True)
"""The shape of plain tuples: keys and values of any type, as JSON."""


def dicts(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as dicts."""
    names = rows.schema.names
    if not names:
        return [{} for _ in range(rows.num_rows)]
    columns = (
        json_values(column) if is_json(field) else _values(column) for field, column in zip(rows.schema, rows.columns)
    )
    return [dict(zip(names, row)) for row in zip(*columns)]


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column as Python objects."""
    kind = column.type
    if kind not in (pa.timestamp("us", tz="UTC"), pa.timestamp("us")) or column.null_count:
        return python_values(column)
    zero = datetime(1970, 1, 1, tzinfo=None if kind.tz is None else UTC)
    try:
        return [zero + since for since in column.view(pa.int64()).to_numpy().view("m8[us]").tolist()]
    except (OverflowError, TypeError):  # beyond Python's calendar
        return python_values(column)


# ---------------------------------------------------------------------------------------------------- JSON in columns


def loads_all(texts: pa.Array) -> list[Any]:
    """Decode a column of JSON texts at once."""
    if not len(texts):
        return []
    if isinstance(texts, pa.ChunkedArray) or texts.nbytes >= 2**30:
        return [orjson.loads(text) for text in texts.to_pylist()]
    whole = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), ",")
    values: list[Any] = orjson.loads(b"[" + memoryview(whole[0].as_buffer()) + b"]")
    return values


def as_key(value: Any) -> Any:
    """Return a key as functions see it: lists become tuples, which can be hashed."""
    return tuple(as_key(part) for part in value) if type(value) is list else value


def key_text(key: Any) -> bytes:
    """Return the canonical text of a key.

    >>> key_text(("tokyo", 3.0)), key_text(-0.0)
    (b'["tokyo",3]', b'0')
    """
    text = orjson.dumps(_canonical(key))
    if len(text) > MOST_KEY:
        raise Unfit(f"the key has {len(text):,} bytes as JSON; at most {MOST_KEY:,} fit")
    return text


def _canonical(key: Any) -> Any:
    if isinstance(key, np.generic):
        key = key.item()
    if key is None or isinstance(key, bool):
        return key
    if isinstance(key, str):
        if not _is_text(key):
            raise Unfit(f"the key {shown(key)} has a lone surrogate, which is not text")
        return str(key)
    if isinstance(key, int):
        if not -(2**63) <= key < 2**63:
            raise Unfit(f"the key {shown(key)} does not fit 64 bits; make it a text")
        return int(key)
    if isinstance(key, float):
        if not math.isfinite(key):
            raise Unfit(
                f"the key is {key}, which equals nothing; a key is null, a boolean, a number, a text or a tuple"
            )
        return int(key) if key.is_integer() and abs(key) < 2**63 else float(key)
    if isinstance(key, tuple | list):
        return _canonical_parts(key)
    raise Unfit(f"the key is {_with_type(key)}; a key is null, a boolean, a number, a text or a tuple of such")


def _canonical_parts(key: Sequence[Any]) -> list[Any]:
    try:
        return [_canonical(part) for part in key]
    except RecursionError:
        raise Unfit("the key is nested too deep") from None


def _is_text(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _with_type(value: Any) -> str:
    return f"{shown(value)} (a {type(value).__name__})"


def _value_text(value: Any) -> bytes:
    try:
        text = orjson.dumps(value, option=_OPTIONS)
    except (TypeError, RecursionError) as error:  # orjson.JSONEncodeError is one
        raise Unfit(f"the value {shown(value)} is not JSON: {error}") from None
    if len(text) > MOST_VALUE:
        raise Unfit(f"the value has {len(text):,} bytes as JSON; at most {MOST_VALUE:,} fit")
    if b"null" in text and value is not None and not _all_finite(value):
        raise Unfit(f"the value {shown(value)} has a number in it that is not finite, which JSON cannot say")
    return text


def _all_finite(value: Any) -> bool:
    if isinstance(value, float | np.floating):
        return bool(math.isfinite(value))
    if isinstance(value, np.ndarray):
        return value.dtype.kind != "f" or bool(np.isfinite(value).all())
    if isinstance(value, Mapping):
        return all(map(_all_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(_all_finite, value))


def key_column(keys: Sequence[Any]) -> tuple[pa.Array, Reasons]:
    """Encode keys as a column of texts; keys that do not fit are null and have a reason."""
    column = _encode_uniform(keys, MOST_KEY)
    return (column, {}) if column is not None else _encode_each(keys, key_text)


def value_column(values: Sequence[Any]) -> tuple[pa.Array, Reasons]:
    """Encode values as a column of texts; values that do not fit are null and have a reason."""
    column = _encode_uniform(values, MOST_VALUE)
    return (column, {}) if column is not None else _encode_each(values, _value_text)


def _encode_uniform(values: Sequence[Any], most: int) -> pa.Array | None:
    """Encode values by Arrow, if all are integers, or all are short texts without escapes, or all are tuples of these; else
    None."""
    kinds = set(map(type, values))
    if kinds == {tuple}:
        return _encode_uniform_tuples(values, most)
    try:
        if kinds == {int}:
            return pa.array(values, pa.int64()).cast(pa.string())
        if kinds == {str}:
            texts = pa.array(values, pa.string())
            fits = isinstance(texts, pa.Array) and pc.max(pc.binary_length(texts)).as_py() <= most - 2
            if fits and not pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py():
                return pc.binary_join_element_wise('"', texts, '"', "")
    except (OverflowError, UnicodeError, pa.ArrowException):
        pass
    return None


def _encode_uniform_tuples(values: Sequence[tuple[Any, ...]], most: int) -> pa.Array | None:
    if len(set(map(len, values))) != 1 or not values[0]:
        return None
    joined: list[pa.Array | str] = []
    for at in range(len(values[0])):
        texts = _encode_uniform([value[at] for value in values], most)
        if texts is None:
            return None
        joined += ["," if at else "[", texts]
    whole = pc.binary_join_element_wise(*joined, "]", "")
    return whole if pc.max(pc.binary_length(whole)).as_py() <= most else None


def _encode_each(values: Sequence[Any], text: Callable[[Any], bytes]) -> tuple[pa.Array, Reasons]:
    data, ends, reasons = bytearray(), np.zeros(len(values) + 1, np.int64), Reasons()
    for at, value in enumerate(values):
        try:
            data += text(value)
        except Unfit as error:
            reasons[at] = str(error)
        ends[at + 1] = len(data)
    if len(data) >= 2**31:
        raise HayaseError("a step emits more than 2 GB of keys or values at once; let it emit less per record")
    valid = np.ones(len(values), np.bool_)
    valid[list(reasons)] = False
    bits = pa.py_buffer(np.packbits(valid, bitorder="little")) if reasons else None
    buffers = [bits, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(bytes(data))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers), reasons


# ---------------------------------------------------------------------------------------------------- typed


def typed_columns(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> tuple[list[pa.Array], Reasons]:
    """Convert dicts to the columns of a schema; return the reasons of values that do not fit, by position."""
    reasons: dict[int, list[str]] = {}
    names = set(schema.names)
    columns = []
    values = _whole_columns(rows, schema.names)
    for place, field in enumerate(schema):
        fitted = fit_values([row.get(field.name) for row in rows] if values is None else values[place], field)
        for at, reason in fitted.reasons.items():
            reasons.setdefault(at, []).append(reason)
        column = fitted.column.combine_chunks()
        if not field.nullable and column.null_count:
            for at in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                if at not in fitted.reasons:
                    reasons.setdefault(at, []).append(f'column "{field.name}" is null, and must not be')
        columns.append(column)
    for at, row in enumerate(rows if values is None else ()):
        if not row.keys() <= names:
            unknown = [f'there is no column "{name}"{nearest(str(name), names)}' for name in row if name not in names]
            reasons.setdefault(at, []).extend(unknown)
    return columns, {at: "; ".join(row_reasons) for at, row_reasons in sorted(reasons.items())}


def _whole_columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[list[Any]] | None:
    """Return the values by column, if all rows are dicts with these names and no others; else None."""
    if not ({*map(type, rows)} <= {dict} and {*map(len, rows)} <= {len(names)}):
        return None
    try:
        return [[*map(itemgetter(name), rows)] for name in names]
    except KeyError:
        return None


def is_atom(key: Iterable[Any]) -> bool:
    """Whether a table's key can have these parts."""
    return all(isinstance(part, _ATOMS) and part is not None for part in key)
