"""Parses numbers without losing digits, and limits their size before anything computes with them.

Every reader of records parses its numbers here, so that a text means the same value in every format: `number_of` for text,
`exact_loads` for JSON. A number is an int, a float if its repr is the same text, or else a Decimal. A number too long or too
large for any column is a `BeyondNumber`, which no column accepts and every message can show.
"""

from __future__ import annotations

import itertools
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

from hayase.core.abandonment import OFTEN, check_abandoned, is_abandonable

__all__ = ["NUMBER", "BeyondNumber", "exact_loads", "fits_arrow", "is_number", "number_of"]

NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
"""Matches the text of a number."""
_LONGEST_INTEGER = 4000
"""The most digits of an integer; Python itself refuses to read more than 4,300."""
_LARGEST_EXPONENT = 10_000
"""The largest power of ten, positive or negative, before a number is a `BeyondNumber`; a double ends at 308."""
_WITHIN_ARROW = Context(
    prec=38, Emin=-38, Emax=38, traps=[Inexact, Rounded, Overflow, Underflow, Subnormal, Clamped, InvalidOperation]
)
"""Raises for a decimal with more than 38 digits or with a power of ten beyond 38."""


class BeyondNumber(Decimal):
    """A number that no column can hold. Its value is NaN, and `str` gives the original text.

    >>> number = BeyondNumber("1e-99999999999999999999")
    >>> str(number), number.is_finite()
    ('1e-99999999999999999999', False)
    """

    text: str

    def __new__(cls, text: str) -> BeyondNumber:
        number = super().__new__(cls, "NaN")
        number.text = text
        return number

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text if len(self.text) <= 60 else self.text[:60] + "…"

    def __reduce__(self) -> tuple[type[BeyondNumber], tuple[str]]:
        return type(self), (self.text,)


def is_number(text: str) -> bool:
    """Return whether a text is a decimal number, with or without a point and an exponent.

    >>> is_number("-1.5e3"), is_number(".5"), is_number("0x1F"), is_number(" 1")
    (True, True, False, False)
    """
    return NUMBER.fullmatch(text) is not None


def number_of(text: str) -> int | float | Decimal:
    """Return the value of a text for which `is_number` holds, with all its digits.

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
    except InvalidOperation:  # an exponent with more digits than Decimal accepts
        is_zero = not text.lower().partition("e")[0].strip("+-0.")
        return nearest if is_zero else BeyondNumber(text)
    if not exact:
        return nearest
    if abs(exact.adjusted()) > _LARGEST_EXPONENT:
        return BeyondNumber(text)
    return exact if exact.as_tuple().exponent else Decimal(f"{exact}.0")  # 5e0 is not written as an integer


def exact_loads(text: bytes | str) -> Any:
    """Parse JSON whose numbers keep all their digits. Raise ValueError if it is not JSON, or nested too deep.

    >>> exact_loads(b'[1, 0.5, 0.12345678901234567890123]')
    [1, 0.5, Decimal('0.12345678901234567890123')]
    """
    text = text if isinstance(text, str) else text.decode()
    decoder = _abandonable_decoder() if is_abandonable() else _DECODER
    try:
        try:
            return decoder.decode(text)
        except ValueError:  # perhaps an integer with more digits than Python reads
            return _PATIENT_DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deep; make it flatter") from None


def _abandonable_decoder() -> json.JSONDecoder:
    """Return a decoder that checks now and then whether its work is abandoned. Only numbers with a fraction take long."""
    numbers = itertools.count()

    def parse(text: str) -> int | float | Decimal:
        if not next(numbers) % OFTEN:
            check_abandoned()
        return number_of(text)

    return json.JSONDecoder(parse_float=parse, parse_constant=_refuse_constant)


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a number in JSON")


_DECODER = json.JSONDecoder(parse_float=number_of, parse_constant=_refuse_constant)
_PATIENT_DECODER = json.JSONDecoder(parse_float=number_of, parse_int=number_of, parse_constant=_refuse_constant)


def fits_arrow(values: Iterable[object]) -> bool:
    """Return whether these values can be passed to Arrow for a decimal column.

    Some cannot: an exponent with many digits ends the process, and a hundred zeros after the point give another number (Arrow 24
    to 26). If this returns False, the caller checks the values one by one.

    >>> fits_arrow([Decimal("1.5"), None, 3]), fits_arrow([Decimal("1e-10000000")]), fits_arrow([Decimal("1." + "0" * 99)])
    (True, False, False)
    """
    try:
        for value in values:
            if isinstance(value, Decimal) and not _WITHIN_ARROW.plus(value).is_finite():
                return False
    except DecimalException:
        return False
    return True
