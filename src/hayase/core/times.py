"""Parses and formats instants (int64 microseconds since 1970, UTC) and durations (microseconds). Nothing here reads a clock."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from hayase.core.errors import HayaseError

__all__ = ["BEGINNING", "END", "UNITS", "duration", "duration_text", "instant", "instant_text", "iso_moment"]

BEGINNING = -(2**62)
"""Before every event time: the clock of a stream without records."""
END = 2**62
"""After every event time: the clock of a finished stream."""

UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Units of integer time columns, in microseconds."""

_SPELLINGS = {
    "us": 1, "microsecond": 1, "microseconds": 1,
    "ms": 1_000, "millisecond": 1_000, "milliseconds": 1_000,
    "s": 10**6, "sec": 10**6, "second": 10**6, "seconds": 10**6,
    "m": 60 * 10**6, "min": 60 * 10**6, "minute": 60 * 10**6, "minutes": 60 * 10**6,
    "h": 3600 * 10**6, "hour": 3600 * 10**6, "hours": 3600 * 10**6,
    "d": 86400 * 10**6, "day": 86400 * 10**6, "days": 86400 * 10**6,
    "w": 7 * 86400 * 10**6, "week": 7 * 86400 * 10**6, "weeks": 7 * 86400 * 10**6,
}  # fmt: skip
_PART = re.compile(r"\s*(\d{1,19}(?:\.\d{1,18})?)\s*([a-zA-Z]+)\s*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def duration(text: str | int | timedelta) -> int:
    """Return a duration in microseconds. It is text like "10 minutes", "500 ms" or "1h 30m", a timedelta, or microseconds.

    >>> duration("10 minutes"), duration("500 ms"), duration("1h"), duration("1h 30m")
    (600000000, 500000, 3600000000, 5400000000)
    """
    if isinstance(text, timedelta):
        return _bounded((text.days * 86400 + text.seconds) * 10**6 + text.microseconds, text)
    if isinstance(text, int) and not isinstance(text, bool):
        return _bounded(text, text)
    total, at = 0, 0
    while isinstance(text, str) and (part := _PART.match(text, at)):
        scale = _SPELLINGS.get(part[2].lower())
        whole, _, fraction = part[1].partition(".")
        if scale is None or (fraction and int(fraction) * scale % 10 ** len(fraction)):
            break
        total += int(whole) * scale + (int(fraction) * scale // 10 ** len(fraction) if fraction else 0)
        at = part.end()
        if at == len(text):
            return _bounded(total, text)
    raise HayaseError(
        f'"{text}" is not a duration', 'write a number and a unit, like "10 minutes", "500 ms" or "1h 30m"'
    )


def _bounded(microseconds: int, written: object) -> int:
    if abs(microseconds) >= END:
        raise HayaseError(f'"{written}" is too long for a duration', "it must stay below 146,000 years")
    return microseconds


def duration_text(microseconds: int) -> str:
    """Return the shortest exact text of a duration; `duration` reads it back.

    >>> duration_text(600_000_000), duration_text(1_500_000), duration_text(0)
    ('10 minutes', '1500 ms', '0 s')
    """
    for name, scale in (("day", 86400 * 10**6), ("hour", 3600 * 10**6), ("minute", 60 * 10**6)):
        if microseconds and microseconds % scale == 0:
            count = microseconds // scale
            return f"{count} {name}{'' if count == 1 else 's'}"
    for name, scale in (("s", 10**6), ("ms", 1000)):
        if microseconds % scale == 0:
            return f"{microseconds // scale} {name}"
    return f"{microseconds} us"


_DIGIT_BEHIND_DATE = re.compile(r"[0-9]{9}|[0-9]{4}-[0-9]{2}-[0-9]{3}")


def iso_moment(text: str) -> datetime:
    """The time that an ISO text says; ValueError if it is none.

    Python takes any character between the date and the time of day, also a digit: it reads "1710101112345", milliseconds
    since 1970, as a time in the year 1710.

    >>> iso_moment("20260131T12")
    datetime.datetime(2026, 1, 31, 12, 0)
    >>> iso_moment("1710101112345")
    Traceback (most recent call last):
    ValueError: a digit stands between the date and the time of day
    """
    if _DIGIT_BEHIND_DATE.match(text):
        raise ValueError("a digit stands between the date and the time of day")
    return datetime.fromisoformat(text)


def instant(value: datetime | str | int) -> int:
    """Return an instant in microseconds. A datetime or ISO text without a time zone is in UTC; an integer is microseconds.

    >>> instant("1970-01-01T00:00:01Z"), instant(datetime(1970, 1, 1, 0, 0, 2))
    (1000000, 2000000)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            value = iso_moment(value)
        except ValueError as error:
            raise HayaseError(f'"{value}" is not a time; write it like "2026-01-31T12:00:00Z"') from error
    if not isinstance(value, datetime):
        raise HayaseError(f"{value!r} is not a time; give a datetime, ISO text or microseconds")
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def instant_text(microseconds: int) -> str:
    """Return the ISO text of an instant; outside of the years 1 to 9999, its microseconds.

    >>> instant_text(1_500_000)
    '1970-01-01T00:00:01.500000Z'
    """
    try:
        text = (_EPOCH + timedelta(microseconds=microseconds)).isoformat()
    except OverflowError:
        return f"{microseconds} us"
    return text.replace("+00:00", "Z")
