"""Parses the parameters of requests: keys, times, columns and cursors in addresses and headers."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import Path, Query

from hayase.core.errors import HayaseError, nearest
from hayase.core.times import END, instant
from hayase.serving.bodies import exact_json
from hayase.serving.problems import Problem

__all__ = [
    "Limit",
    "Name",
    "append_key",
    "column_names",
    "cursor_bytes",
    "cursor_text",
    "instant_of",
    "key_in",
    "refuse_unknown",
    "time_of",
    "whole_key",
]

Name = Annotated[str, Path(max_length=64, examples=["purchases"])]
Limit = Annotated[int, Query(ge=1, le=1000, description="Rows in one answer, at most.")]

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_LOST_PLUS = re.compile(r"(.*:.*) (\d\d:?\d\d)")
"""A time with a zone like +09:00 whose plus was not percent-encoded, so that it arrives as a space."""


def refuse_unknown(names: Iterable[str], known: Iterable[str]) -> None:
    """Raise a problem if a parameter is unknown: a misspelt one must not be ignored silently."""
    allowed = list(known)
    for name in names:
        if name not in allowed:
            raise Problem(422, f'unknown parameter "{name[:60]}"{nearest(name[:60], allowed)}')


def key_in(raw_path: bytes, as_json: bool) -> tuple[Any, ...]:
    """Return the key in the path of an address: /tables/NAME/PART/PART.

    >>> key_in(b"/tables/t/JP/a%2Fb", False), key_in(b"/tables/t/5/%225%22", True)
    (('JP', 'a/b'), (5, '5'))
    """
    parts = raw_path.split(b"/", 3)[3].split(b"/")
    try:
        texts = [unquote_to_bytes(part).decode() if b"%" in part else part.decode() for part in parts]
    except UnicodeDecodeError:
        raise Problem(
            422, "a part of the key is not UTF-8; encode each part as UTF-8, then with percent signs"
        ) from None
    return tuple(exact_json(text.encode(), f'"{text[:60]}"') for text in texts) if as_json else tuple(texts)


def whole_key(key: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    """Return a key as a tuple of all its parts; a key of one part may be that part alone."""
    parts = tuple(key) if isinstance(key, (list, tuple)) else (key,)
    if len(parts) != len(names):
        raise Problem(
            422, f"a key of this table has {len(names)} parts ({', '.join(names)}), and {len(parts)} are given"
        )
    return parts


def column_names(text: str | None) -> list[str] | None:
    """Return the columns in a list separated by commas."""
    return None if text is None else [part.strip() for part in text.split(",")]


def time_of(text: str | int) -> str | int:
    """Return a time as a whole number, or as ISO text that is not parsed yet."""
    if isinstance(text, int):
        return text
    if _WHOLE.fullmatch(text):
        return int(text)
    lost = _LOST_PLUS.fullmatch(text)
    return f"{lost[1]}+{lost[2]}" if lost else text


def instant_of(text: str | int, scale: int = 1) -> int:
    """Return a time in microseconds; a whole number counts units of `scale` microseconds.

    >>> instant_of("1970-01-01T09:00:01 09:00"), instant_of("5"), instant_of("5", 1000)
    (1000000, 5, 5000)
    """
    value = time_of(text)
    try:
        time = value * scale if isinstance(value, int) else instant(value)
    except (HayaseError, OverflowError) as error:
        raise Problem(422, str(error)) from None
    if not -END < time < END:
        raise Problem(422, f"the time {value} is past the end of all times")
    return time


def cursor_text(cursor: bytes | None) -> str | None:
    """Encode a cursor as text for an address."""
    return None if cursor is None else base64.urlsafe_b64encode(cursor).decode().rstrip("=")


def cursor_bytes(text: str | None) -> bytes | None:
    """Decode the text that `cursor_text` gives."""
    if text is None:
        return None
    try:
        cursor = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise Problem(422, "this is not a cursor; send one from an answer, unchanged") from None
    return cursor


def append_key(headers: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the producer and the sequence number of an append, or None if it has none.

    An `Idempotency-Key` is a producer of its own. For a producer that counts its appends only the last one is stored.
    """
    key, producer, sequence = (headers.get(name) for name in ("idempotency-key", "hayase-producer", "hayase-sequence"))
    for value in (key, producer):
        if value is not None and not 0 < len(value) <= 200:
            raise Problem(422, "an Idempotency-Key or Hayase-Producer has 1 to 200 characters")
    if key is not None and producer is None and sequence is None:
        return f"key/{key}", 1
    if key is not None or (producer is None) != (sequence is None):
        raise Problem(422, "send an Idempotency-Key, or a Hayase-Producer and its Hayase-Sequence, or none of them")
    if producer is None or sequence is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", sequence):
        raise Problem(422, "a Hayase-Sequence is a whole number that grows with each append of its producer")
    return producer, int(sequence)
