"""Types of PostgreSQL and of Hayase, both ways: the type of a column, and its values as PostgreSQL's texts.

What is written and read again is the same value. PostgreSQL has no text with the character 0, and no jsonb with it or with half of
a surrogate pair: U+FFFD stands in its place.
"""

from __future__ import annotations

import base64
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.schemas import is_json
from hayase.streams.records import row_texts

__all__ = ["accepts", "can_read", "postgres_type", "readable", "texts_of"]

REPLACEMENT = "\ufffd"
_ATOMS = {
    pa.bool_(): "boolean", pa.int8(): "smallint", pa.int16(): "smallint", pa.int32(): "integer", pa.int64(): "bigint",
    pa.uint64(): "numeric(20)", pa.float32(): "real", pa.float64(): "double precision", pa.string(): "text",
    pa.binary(): "bytea", pa.date32(): "date", pa.timestamp("us", tz="UTC"): "timestamp with time zone",
    pa.timestamp("us"): "timestamp without time zone", pa.time64("us"): "time without time zone",
}  # fmt: skip
_TEXTS = ("text", "varchar", "bpchar", "citext", "uuid", "name")
_ACCEPTS = {
    pa.bool_(): ("bool",), pa.int8(): ("int2", "int4", "int8", "numeric"), pa.int16(): ("int2", "int4", "int8", "numeric"),
    pa.int32(): ("int4", "int8", "numeric"), pa.int64(): ("int8", "numeric"), pa.uint64(): ("numeric",),
    pa.float32(): ("float4", "float8"), pa.float64(): ("float8",), pa.string(): _TEXTS, pa.binary(): ("bytea",),
    pa.date32(): ("date",), pa.timestamp("us", tz="UTC"): ("timestamptz",), pa.timestamp("us"): ("timestamp",),
    pa.time64("us"): ("time",),
}  # fmt: skip
"""The types of an existing table, as its catalog names them, that hold every value of a type."""
_NUMBERS = ("int2", "int4", "int8", "float4", "float8", "numeric", "oid")
_PLAIN_YEARS = np.datetime64("0001-01-01", "us").astype(np.int64), np.datetime64("9999-12-31", "us").astype(np.int64)
_ESCAPES = re.compile(r"(?P<kept>\\[^u]|\\ud[89ab]..\\ud[c-f]..)|(?P<bad>\\u0000|\\ud[89a-f]..)", re.IGNORECASE)
_HAS_ESCAPES = re.compile(r"\\u(?:0000|d[89a-f])", re.IGNORECASE)


def postgres_type(field: pa.Field) -> str:
    """Return the type of the column that is created for a field.

    >>> postgres_type(pa.field("tags", pa.list_(pa.string()))), postgres_type(pa.field("p", pa.struct([("x", pa.int8())])))
    ('text[]', 'jsonb')
    """
    kind = field.type
    if is_json(field):
        return "jsonb"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if kind in _ATOMS:
        return _ATOMS[kind]
    return f"{postgres_type(kind.value_field)}[]" if _is_array(kind) else "jsonb"


def accepts(field: pa.Field, type_name: str) -> bool:
    """Return whether a column of an existing table takes the values of a field; the type is named as in `pg_type`.

    >>> accepts(pa.field("n", pa.int32()), "int8"), accepts(pa.field("n", pa.int64()), "int4")
    (True, False)
    """
    kind = field.type
    if is_json(field):
        return type_name in ("json", "jsonb")
    if pa.types.is_decimal(kind):
        return type_name == "numeric"
    if kind in _ACCEPTS:
        return type_name in _ACCEPTS[kind]
    if _is_array(kind) and type_name.startswith("_"):
        return accepts(kind.value_field, type_name[1:])
    return type_name in ("json", "jsonb")


def _is_array(kind: pa.DataType) -> bool:
    """Return whether a type is an array in PostgreSQL: a list of values that are neither lists, maps nor structs."""
    return bool(pa.types.is_list(kind)) and not pa.types.is_nested(kind.value_type)


def texts_of(column: pa.ChunkedArray | pa.Array, field: pa.Field) -> pa.Array:
    """Return values as PostgreSQL reads them, as texts; null stays null.

    >>> texts_of(pa.array([[1, None], []]), pa.field("n", pa.list_(pa.int64()))).to_pylist()
    ['{1,NULL}', '{}']
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = field.type
    if is_json(field):
        return _without_zeros_in_json(column)
    if pa.types.is_string(kind):
        return pc.replace_substring(column, "\0", REPLACEMENT)
    if pa.types.is_boolean(kind):
        return pc.if_else(column, "t", "f")
    if pa.types.is_floating(kind):
        return _number_texts(column)
    if pa.types.is_binary(kind):
        return pa.array([None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()], pa.string())
    if pa.types.is_timestamp(kind):
        return _time_texts(column.view(pa.int64()), "Z" if kind.tz else "")
    if pa.types.is_date(kind):
        days = column.view(pa.int32()).cast(pa.int64())
        return pc.replace_substring(_time_texts(pc.multiply(days, 86_400_000_000)), " 00:00:00.000000", "")
    if _is_array(kind):
        return _array_texts(column, kind)
    if pa.types.is_nested(kind):
        texts = [text[len('{"v": ') : -1] for text in row_texts(pa.table({"v": column}))]
        whole = pa.array(texts, pa.string(), mask=column.is_null().to_numpy(zero_copy_only=False))
        return _without_zeros_in_json(whole)
    return column.cast(pa.string())


def _number_texts(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.string())
    if pc.all(pc.is_finite(column)).as_py() is not False:
        return texts
    texts = pc.if_else(pc.is_nan(column), "NaN", texts)
    return pc.if_else(pc.is_inf(column), pc.if_else(pc.greater(column, 0), "Infinity", "-Infinity"), texts)


def _time_texts(micros: pa.Array, zone: str = "") -> pa.Array:
    """Return microseconds since 1970 as times, in any year that PostgreSQL knows and some that it refuses."""
    bounds = pc.min_max(micros)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is None or (low >= _PLAIN_YEARS[0] and high < _PLAIN_YEARS[1]):
        texts = micros.view(pa.timestamp("us")).cast(pa.string())
        return pc.binary_join_element_wise(texts, zone, "") if zone else texts
    stamps = np.datetime_as_string(micros.fill_null(0).to_numpy(zero_copy_only=False).astype("datetime64[us]"))
    written = [_era(text.replace("T", " ") + zone) for text in stamps.tolist()]
    return pa.array(written, pa.string(), mask=micros.is_null().to_numpy(zero_copy_only=False))


def _era(text: str) -> str:
    """Return a time as PostgreSQL writes years: the year 0 is 1 BC."""
    year, rest = int(text[: text.index("-", 1)]), text[text.index("-", 1) :]
    return f"{year:04d}{rest}" if year > 0 else f"{1 - year:04d}{rest} BC"


def _array_texts(column: pa.Array, kind: pa.DataType) -> pa.Array:
    items = texts_of(column.flatten(), kind.value_field)
    if not (pa.types.is_integer(kind.value_type) or pa.types.is_boolean(kind.value_type)):
        items = pc.replace_substring(pc.replace_substring(items, "\\", "\\\\"), '"', '\\"')
        items = pc.binary_join_element_wise('"', items, '"', "")
    lengths = pc.list_value_length(column).fill_null(0)
    offsets = np.concatenate([[0], np.cumsum(lengths.to_numpy(zero_copy_only=False))])
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items.fill_null("NULL"))
    joined = pc.binary_join_element_wise("{", pc.binary_join(lists, ","), "}", "")
    return pc.if_else(column.is_valid(), joined, pa.scalar(None, pa.string()))


def _without_zeros_in_json(texts: pa.Array) -> pa.Array:
    """Return JSON texts that jsonb takes."""
    doubtful = pc.match_substring_regex(texts, r"\\u(0000|[dD][89a-fA-F])")
    if not pc.any(doubtful).as_py():
        return texts
    return pa.array([None if text is None else _json_for_postgres(text) for text in texts.to_pylist()], pa.string())


def _json_for_postgres(text: str) -> str:
    if not _HAS_ESCAPES.search(text):
        return text
    return _ESCAPES.sub(lambda match: match["kept"] or f"\\u{ord(REPLACEMENT):04x}", text)


# ------------------------------------------------------------------------------------------------ from PostgreSQL


def can_read(type_name: str, field: pa.Field) -> bool:
    """Return whether values of a type can be those of a column of a stream at all; single ones may be refused.

    >>> can_read("text", pa.field("s", pa.string())), can_read("text", pa.field("n", pa.int64()))
    (True, False)
    """
    kind = field.type
    if is_json(field) or pa.types.is_map(kind) or pa.types.is_struct(kind):
        return type_name in ("json", "jsonb") or (is_json(field) and type_name.startswith("_"))
    if pa.types.is_list(kind):
        return type_name.startswith("_") or type_name in ("json", "jsonb")
    if pa.types.is_string(kind):
        return True
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return type_name in _NUMBERS
    if pa.types.is_timestamp(kind):
        return type_name in ("timestamptz", "timestamp", "date") and (kind.tz is not None or type_name != "timestamptz")
    return type_name in _ACCEPTS[kind]


def readable(texts: pa.Array, type_name: str, field: pa.Field) -> pa.Array:
    """Return texts of a type of PostgreSQL, named as in `pg_type`, in a form that a column of a stream reads. What `texts_of`
    writes for the values that were read is read as the same values.

    >>> readable(pa.array(["{1,NULL}", None]), "_int4", pa.field("n", pa.list_(pa.int64()))).to_pylist()
    ['[1, null]', None]
    >>> readable(pa.array(["t", None]), "bool", pa.field("b", pa.bool_())).to_pylist()
    [True, None]
    """
    kind = field.type
    if type_name == "bool":
        if pa.types.is_boolean(kind):
            return pc.equal(texts, "t")
        return pc.if_else(pc.equal(texts, "t"), "true", pc.if_else(pc.equal(texts, "f"), "false", texts))
    if type_name == "bytea" and pa.types.is_binary(kind):
        return pa.array([None if text is None else bytes.fromhex(text[2:]) for text in texts.to_pylist()], pa.binary())
    if type_name == "timestamptz" and pa.types.is_timestamp(kind):
        return pc.replace_substring_regex(texts, r"\+00$", "Z")
    if type_name.startswith("_") and (pa.types.is_list(kind) or is_json(field)):
        item = type_name[1:]
        return pa.array([None if text is None else _list_text(text, item) for text in texts.to_pylist()], pa.string())
    return texts


_ITEM = re.compile(r'\{|\}|,|"((?:[^"\\]|\\.)*)"|([^{},"]+)', re.DOTALL)
_BOUNDS = re.compile(r"(\[-?\d+:-?\d+\])+=")


def _list_text(text: str, item: str) -> str:
    """Return an array of PostgreSQL as JSON text."""
    bounds = _BOUNDS.match(text)
    if text.startswith("[") and not bounds:  # it was read before
        return text
    pieces = []
    for match in _ITEM.finditer(text, bounds.end() if bounds else 0):
        quoted, plain = match[1], match[2]
        if quoted is not None:
            pieces.append(_item_text(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL), item))
        elif plain is not None:
            pieces.append("null" if plain == "NULL" else _item_text(plain, item))
        else:
            pieces.append({"{": "[", "}": "]", ",": ", "}[match[0]])
    return "".join(pieces)


def _item_text(text: str, type_name: str) -> str:
    if type_name == "bool":
        return "true" if text == "t" else "false"
    if type_name in ("json", "jsonb"):
        return text
    if type_name in _NUMBERS and text not in ("NaN", "Infinity", "-Infinity"):
        return "-0.0" if text == "-0" else text
    if type_name == "bytea":
        return json.dumps(base64.b64encode(bytes.fromhex(text[2:])).decode())
    return json.dumps(text, ensure_ascii=False)
