"""The canonical form of numbers in jq results: exact, one Python form per value.

libjq keeps the digits of a number that a program only passes on, such as an id of 64 bits or a price with many decimals; a
computed number is a double. The canonical form of a number is an int if it has no fraction, else a float if the float's shortest
decimal is exactly that value, else a Decimal.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

from hayase.core.numbers import BeyondNumber, number_of
from hayase.tables.jq_child import DEEPEST

__all__ = ["NotPlain", "canonical", "canonical_number", "read"]

_LONGEST, _LONGEST_INTEGER = 1000, 309
_SCALARS = (str, int, bool, type(None))


class NotPlain(ValueError):
    """A value without a canonical form; the message is the reason."""


def read(text: str | bytes) -> Any:
    """Decode a JSON text, with numbers in canonical form.

    >>> read('[1.0, 1e2, 0.10, 12345678901234567890, 0.12345678901234567890123]')
    [1, 100, 0.1, 12345678901234567890, Decimal('0.12345678901234567890123')]
    """
    return _DECODER.decode(text if isinstance(text, str) else text.decode())


def canonical(value: Any, depth: int = 0) -> Any:
    """Return the same value with its numbers in canonical form.

    >>> canonical({"a": [2.0, Decimal("0.50")]})
    {'a': [2, 0.5]}
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is float:
        if not math.isfinite(value):
            raise NotPlain("a number that is not finite")
        return _of_float(value) if value.is_integer() else value
    if kind is Decimal:
        return _of_decimal(value)
    if depth >= DEEPEST:
        raise NotPlain(f"a value nested more than {DEEPEST} deep")
    if kind is list:
        return [canonical(item, depth + 1) for item in value]
    if kind is dict:
        return {key: canonical(item, depth + 1) for key, item in value.items()}
    raise NotPlain(f"a {kind.__name__}, which is not JSON")


def _of_float(value: float) -> int:
    return int(value) if abs(value) < 1e15 else int(Decimal(repr(value)))


def _of_decimal(value: Decimal) -> int | float | Decimal:
    if not value.is_finite() or value.adjusted() > 308 or value.adjusted() < -_LONGEST:
        raise NotPlain("a number out of range")
    if value == value.to_integral_value():
        return int(value)
    shortest = float(value)
    return shortest if Decimal(repr(shortest)) == value else value


def canonical_number(text: str) -> int | float | Decimal:
    """Return the canonical form of a text that is a number (`core.numbers.is_number`); NotPlain if it is out of range.

    >>> canonical_number("0e99999999999999999999"), canonical_number("1e2"), canonical_number("0.10")
    (0, 100, 0.1)
    """
    number = number_of(text)
    if isinstance(number, BeyondNumber) or (isinstance(number, int) and len(text) > _LONGEST_INTEGER):
        raise NotPlain("a number out of range")
    if number and len(text) > _LONGEST:
        raise NotPlain(f"a number of more than {_LONGEST:,} digits")
    return number if isinstance(number, int) else canonical(number)


_DECODER = json.JSONDecoder(parse_float=canonical_number, parse_int=canonical_number)
