"""JSON text of any record, whatever its content, so that a refused record can be read, kept and appended again.

`record_text` never fails and loses nothing that can be printed: depth and size are unlimited, lone surrogates are
escaped, and values that JSON lacks become text (NaN and infinities by name, bytes as base64, ISO times, digits of
decimals).
"""

from __future__ import annotations

import base64
import json
import math
import reprlib
from collections.abc import Iterator, Mapping
from datetime import date, time
from decimal import Decimal
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any

import numpy as np

__all__ = ["Verbatim", "line_text", "plain_value", "record_text", "shown"]

_SHOWN = 60
_SHORT = reprlib.Repr()
_SHORT.maxother = _SHORT.maxlong = _SHOWN


def record_text(record: object) -> str:
    """Return the record as JSON text.

    >>> record_text({"day": date(2026, 1, 31), "ratio": math.inf, "body": b"ab"})
    '{"day": "2026-01-31", "ratio": "Infinity", "body": "YWI="}'
    """
    try:
        text = json.dumps(record, ensure_ascii=False, allow_nan=False, default=plain_value)
        text.encode()
    except (ValueError, TypeError, RecursionError):  # NaN, surrogates, huge integers, odd keys, cycles; too deep
        return "".join(_pieces(record))
    return text


def line_text(line: bytes) -> str:
    """Return a line of a file as text; bytes that are not UTF-8 are escaped.

    >>> line_text(b"caf\\xe9")
    'caf\\\\xe9'
    """
    return line.decode("utf-8", "backslashreplace")


def shown(value: object) -> str:
    """Return a value as error messages show it: short, on one line."""
    if isinstance(value, str):
        return _quoted(value if len(value) <= _SHOWN else value[:_SHOWN] + "…")
    if isinstance(value, (date, time, Decimal)):
        text = str(value)
        return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    try:
        text = _SHORT.repr(value)
    except Exception:  # raised by a user-defined __repr__, or for an integer with more digits than Python converts
        text = f"{value:#x}"[:_SHOWN] + "…" if isinstance(value, int) else object.__repr__(value)
    return _quoted(text)[1:-1] if not text.isprintable() else text


def _quoted(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return encode_basestring_ascii(text)
    return encode_basestring(text)


def plain_value(value: object) -> Any:
    """Return the JSON value for a Python object that JSON has no form for."""
    if isinstance(value, Verbatim):
        raise TypeError("the encoder of Python cannot write it")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, (date, time)):
        return value.isoformat() if value == value else None  # pandas' NaT is a datetime
    if isinstance(value, np.datetime64):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    return shown(value)


def _pieces(record: object) -> Iterator[str]:
    """Yield JSON text without recursion, so that depth costs only memory; a container inside itself is cut there."""
    todo: list[Any] = [record]
    opened: set[int] = set()
    while todo:
        value = todo.pop()
        if isinstance(value, Verbatim):
            opened.discard(value.closes)
            yield value.text
        elif isinstance(value, (dict, list, tuple)):
            if id(value) in opened:
                yield '"..."'
                continue
            opened.add(id(value))
            parts: list[Any] = []
            if isinstance(value, dict):
                for key, item in value.items():
                    parts += [Verbatim(f"{', ' if parts else '{'}{_key(key)}: "), item]
                parts.append(Verbatim("}" if parts else "{}", id(value)))
            else:
                for item in value:
                    parts += [Verbatim(", " if parts else "["), item]
                parts.append(Verbatim("]" if parts else "[]", id(value)))
            todo += reversed(parts)
        else:
            yield _atom(value)


class Verbatim:
    """JSON text that is a value of a record and is written as it is."""

    __slots__ = ("closes", "text")

    def __init__(self, text: str, closes: int = 0):
        self.text, self.closes = text, closes

    def __str__(self) -> str:
        return self.text


def _key(key: object) -> str:
    return _quoted(key) if isinstance(key, str) else _quoted(_atom(key).strip('"'))


def _atom(value: object) -> str:
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float) and not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, int):
        try:
            return int.__repr__(value)
        except ValueError:  # more digits than Python converts
            return f'"{value:#x}"'
    plain = plain_value(value)
    return "".join(_pieces(plain)) if isinstance(plain, (dict, list)) else _atom(plain)
