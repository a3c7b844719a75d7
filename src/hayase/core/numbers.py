"""Numbers as people and programs write them, read without losing a digit, and bounded before anybody computes with them.

Every reader of records takes its numbers from here, so that one text means one value whatever the format: `number_of`
for a text, `exact_loads` for JSON. A number is an int, a float if that writes the same text, or else a Decimal. One
that is too long or too large for any column is a `BeyondNumber`, which no column takes and every message can show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from decimal import (
    Clamped,
    Context,
    Decimal,
    DecimalException,
    Inexact,
    InvalidOperation,
    Overflow,
    Rounded,
    Subnormal,
    Underflow,
)
from typing import Any

__all__ = ["BeyondNumber", "exact_loads", "fits_arrow", "is_number", "number_of"]

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONGEST_INTEGER = 4000
"""Digits of an integer; Python itself refuses to read more than 4,300."""
_LARGEST_EXPONENT = 10_000
"""Powers of ten beyond which, up or down, a number is `BeyondNumber`; a double ends at 308."""
_WITHIN_ARROW = Context(
    prec=38, Emin=-38, Emax=38, traps=[Inexact, Rounded, Overflow, Underflow, Subnormal, Clamped, InvalidOperation]
)
"""Raises for a decimal of more than 38 digits or of a power of ten beyond 38."""


class BeyondNumber(Decimal):
    """A number that no column can hold; it counts as NaN, and `str` gives the text that it was.

    >>> number = BeyondNumber("1e-99999999999999999999")
    >>> str(number), number.is_finite()
    ('1e-99999999999999999999', False)
    """

    text: str

    def __new__(cls, text: str) -> BeyondNumber:
        made = super().__new__(cls, "NaN")
        made.text = text
        return made

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text if len(self.text) <= 60 else self.text[:60] + "…"

    def __reduce__(self) -> tuple[type[BeyondNumber], tuple[str]]:
        return type(self), (self.text,)


def is_number(text: str) -> bool:
    """Whether a text is a number in digits, with or without a point and an exponent.

    >>> is_number("-1.5e3"), is_number(".5"), is_number("0x1F"), is_number(" 1")
    (True, True, False, False)
    """
    return _NUMBER.fullmatch(text) is not None


def number_of(text: str) -> int | float | Decimal:
    """The value of a text that `is_number`, with all its digits.

    >>> number_of("9007199254740993"), number_of("0.1"), number_of("0.10"), number_of("1e-9999999")
    (9007199254740993, 0.1, Decimal('0.10'), 1e-9999999)
    """
    if (text[1:] if text[0] in "+-" else text).isdigit():
        if len(text) > _LONGEST_INTEGER:
            return BeyondNumber(text)
        return int(text) or (-0.0 if text[0] == "-" else 0)
    nearest = float(text)
    if repr(nearest) == text:
        return nearest
    try:
        exact = Decimal(text)
    except InvalidOperation:  # an exponent of more digits than Decimal takes
        is_zero = not text.lower().partition("e")[0].strip("+-0.")
        return nearest if is_zero else BeyondNumber(text)
    if not exact:
        return nearest
    if abs(exact.adjusted()) > _LARGEST_EXPONENT:
        return BeyondNumber(text)
    return exact if exact.as_tuple().exponent else Decimal(f"{exact}.0")  # 5e0 was not written as an integer


def exact_loads(text: bytes | str) -> Any:
    """A JSON text whose numbers keep all their digits; ValueError if it is no JSON, or nested too deep.

    >>> exact_loads(b'[1, 0.5, 0.12345678901234567890123]')
    [1, 0.5, Decimal('0.12345678901234567890123')]
    """
    text = text if isinstance(text, str) else text.decode()
    try:
        try:
            return _DECODER.decode(text)
        except ValueError:  # perhaps an integer of more digits than Python reads
            return _PATIENT_DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deep; make it flatter") from None


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a number in JSON")


_DECODER = json.JSONDecoder(parse_float=number_of, parse_constant=_refuse_constant)
_PATIENT_DECODER = json.JSONDecoder(parse_float=number_of, parse_int=number_of, parse_constant=_refuse_constant)


def fits_arrow(values: Iterable[object]) -> bool:
    """Whether Arrow can be given these values for a decimal column.

    It cannot be given all: an exponent of many digits ends the process, and of a hundred zeros behind the point Arrow
    makes another number (Arrow 24 to 26). What does not fit here is judged one by one.

    >>> fits_arrow([Decimal("1.5"), None, 3]), fits_arrow([Decimal("1e-10000000")]), fits_arrow([Decimal("1." + "0" * 99)])
    (True, False, False)
    """
    try:
        for each in values:
            if isinstance(each, Decimal) and not _WITHIN_ARROW.plus(each).is_finite():
                return False
    except DecimalException:
        return False
    return True
