"""Kinds of values that fields of declarations have: how each is read, written and described in a JSON schema.

A value arrives as text from a pipeline file or the command line, or as plain data from Python or JSON. `Kind.read` takes both
and returns what the declaration keeps; it raises a `HayaseError` otherwise. `Kind.write` returns the canonical plain form,
which `read` takes back. This module imports neither Arrow nor Spark, so that the command line starts quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError, HayaseError
from hayase.core.plain_data import names, one_or_list
from hayase.core.sizes import size, size_text
from hayase.core.times import duration, duration_text

__all__ = [
    "COLUMNS",
    "COUNT",
    "DURATION",
    "EXTENT",
    "FLAG",
    "LIST",
    "MAPPING",
    "NAME",
    "NAMES",
    "NUMBER",
    "OPTIONAL_DURATION",
    "SECONDS",
    "SIZE",
    "TEXT",
    "Kind",
    "choice",
]


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value. `plain` is its Python type in JSON and on the command line, `schema` the JSON schema of what a pipeline
    file may hold, `unit` what the declared number counts."""

    name: str
    read: Callable[[object], Any]
    plain: Any
    schema: Mapping[str, Any]
    write: Callable[[Any], Any] = _same
    unit: str = ""


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _read_text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise DeclarationError(f"{_quoted(value)} is not text", "write it as one")


def _read_names(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or (isinstance(value, Sequence) and all(isinstance(name, str) for name in value)):
        return names(value)
    raise DeclarationError(f"{_quoted(value)} is not a name", "give one, or a list of them")


def _read_columns(value: object) -> str:
    """A text, or a list of texts, which are joined: a list in YAML may have been cut at the comma of decimal(10, 2)."""
    return ", ".join(_read_names(value)) if not isinstance(value, str) else value


def _read_count(value: object) -> int:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 19:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise DeclarationError(f"{_quoted(value)} is not a whole number", "write one, like 3")


def _read_number(value: object) -> float:
    """A number, whole if it is written so."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    for kind in (int, float):
        try:
            if isinstance(value, str) and abs(number := kind(value)) < 1e300:
                return number
        except ValueError:
            pass
    raise DeclarationError(f"{_quoted(value)} is not a number", "write one, like 0.5")


def _read_flag(value: object) -> bool:
    if value in ("true", "false"):
        return value == "true"
    if isinstance(value, bool):
        return value
    raise DeclarationError(f"{_quoted(value)} is neither true nor false", "write one of them")


def _read_duration(value: object) -> int:
    if isinstance(value, str | timedelta) or (isinstance(value, int) and not isinstance(value, bool)):
        return duration(value)
    raise DeclarationError(f"{_quoted(value)} is not a duration", 'write it like "30 s"')


def _read_optional_duration(value: object) -> int | None:
    return None if value in ("none", "off") else _read_duration(value)


def _read_seconds(value: object) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    try:
        return float(_read_number(value))
    except DeclarationError:
        return duration(_read_text(value)) / 1_000_000


def _read_size(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return size(_read_text(value))


def _read_extent(value: object) -> tuple[int, bool]:
    """A number of records and False, or microseconds and True."""
    if isinstance(value, timedelta):
        return duration(value), True
    try:
        return _read_count(value), False
    except HayaseError:
        if not isinstance(value, str):
            raise
    try:
        return duration(value), True
    except HayaseError:
        hint = 'give a number of records like 10, or a duration like "5 minutes"'
        raise DeclarationError(f'"{value}" is not a window', hint) from None


def _write_extent(extent: tuple[int, bool]) -> int | str:
    length, by_time = extent
    return duration_text(length) if by_time else length


_SCALAR = {"type": ["string", "number", "boolean"], "minLength": 1}
_DURATION = r"\s*([0-9]+(\.[0-9]+)?\s*[a-zA-Z]+\s*)+"

TEXT = Kind("text", _read_text, str, _SCALAR)
NAME = Kind("name", _read_text, str, {"type": ["string", "boolean"], "pattern": "^[A-Za-z][A-Za-z0-9_]{0,62}$"})
NAMES = Kind(
    "name or list of names",
    _read_names,
    str | list[str],
    {"anyOf": [_SCALAR, {"type": "array", "items": _SCALAR}]},
    one_or_list,
)
COLUMNS = Kind("text or list of texts", _read_columns, str | list[str], NAMES.schema)
COUNT = Kind("whole number", _read_count, int, {"type": ["integer", "string"], "pattern": r"^\s*[0-9]+\s*$"})
NUMBER = Kind("number", _read_number, float, {"type": ["number", "string"], "pattern": r"^\s*[-+.0-9]"})
FLAG = Kind("true or false", _read_flag, bool, {"enum": [True, False, "true", "false"]})
DURATION = Kind(
    "duration", _read_duration, str, {"type": "string", "pattern": f"^{_DURATION}$"}, duration_text, "microseconds"
)
OPTIONAL_DURATION = Kind(
    "duration, or none",
    _read_optional_duration,
    str,
    {"type": "string", "pattern": f"^({_DURATION}|none|off)$"},
    duration_text,
    "microseconds",
)
SECONDS = Kind(
    "seconds or duration",
    _read_seconds,
    float | str,
    {"type": ["number", "string"], "pattern": r"^\s*[-+.0-9]"},
    unit="seconds",
)
SIZE = Kind(
    "size", _read_size, str, {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*[a-zA-Z]+\s*$"}, size_text, "bytes"
)
EXTENT = Kind(
    "records or duration",
    _read_extent,
    int | str,
    {"type": ["integer", "string"], "pattern": rf"^(\s*[0-9]+\s*|{_DURATION})$"},
    _write_extent,
    "records, or microseconds",
)
MAPPING = Kind("mapping", _same, dict, {"type": "object"}, dict)
LIST = Kind("list", _same, list, {"type": "array"}, list)
"""Values with parts of their own, which have readers and JSON schemas of their own."""


def choice(*values: str) -> Kind:
    """One of several words. The declaration refuses others, in its own words."""
    return Kind(" or ".join(values), _read_text, str, {"enum": list(values)})
