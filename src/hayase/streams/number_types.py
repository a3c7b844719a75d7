"""Finds the type of a numeric column that keeps every digit of its values: bigint, double, decimal, or none.

A double keeps a number if, printed with as many digits as the number has, it gives that number again: 0.1 is kept, and
9007199254740993 is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.numbers import is_number, number_of

__all__ = ["exact_type", "kept_by_doubles", "type_of_texts"]

_SHORT = 15
"""A double keeps any number with at most this many digits."""


def exact_type(numbers: Iterable[int | float | Decimal]) -> pa.DataType | None:
    """Return the type that holds all numbers exactly; None if there is none. A number that no column can hold does not count: a
    reader refuses its record.

    >>> exact_type([1, 2.5]), exact_type([9007199254740993, 2.5]), exact_type([1, 2**63 - 1])
    (DataType(double), Decimal128Type(decimal128(17, 1)), DataType(int64))
    >>> exact_type([1, 2.5, Decimal("1e400")]), exact_type([10**40 + 1])
    (DataType(double), None)
    """
    numbers = list(numbers)
    found = _common_type(numbers)
    if found is None:
        possible = [number for number in numbers if _fits_some_column(number)]
        found = _common_type(possible) if possible else None
    return found


def _fits_some_column(number: float | Decimal) -> bool:
    """Return whether some column accepts a number: exactly, or as the nearest double if it is not written as an integer."""
    if _common_type([number]) is not None:
        return True
    nearest = float(number) if isinstance(number, Decimal) and number.is_finite() else math.inf
    return math.isfinite(nearest) and nearest != 0


def _common_type(numbers: Sequence[int | float | Decimal]) -> pa.DataType | None:
    if all(isinstance(number, int) and -(2**63) <= number < 2**63 for number in numbers):
        return pa.int64()
    if all(map(_kept, numbers)):
        return pa.float64()
    before = after = 0
    for number in numbers:
        exact = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
        if not exact.is_finite():
            return None
        exponent = exact.as_tuple().exponent
        assert isinstance(exponent, int)
        before, after = max(before, exact.adjusted() + 1), max(after, -exponent)
    return pa.decimal128(max(before + after, 1), after) if before + after <= 38 else None


def type_of_texts(texts: pa.ChunkedArray) -> pa.DataType | None:
    """Like `exact_type`, for a column of texts that are all numbers; nulls are ignored."""
    if kept_by_doubles(texts):
        return pa.float64()
    return exact_type(number_of(text) for text in texts.to_pylist() if text is not None)


def kept_by_doubles(texts: pa.ChunkedArray | pa.Array) -> bool:
    """Return whether doubles keep all numbers in a column of texts; texts that are not numbers are ignored."""
    doubtful = texts.filter(
        pc.or_(pc.greater(pc.binary_length(texts), _SHORT), pc.match_substring(texts, "e", ignore_case=True))
    )
    try:
        shortest = doubtful.cast(pa.float64()).cast(pa.string())
        doubtful = doubtful.filter(pc.not_equal(shortest, doubtful))
    except pa.ArrowInvalid:
        pass  # a text is not a number: all are checked below
    return all(_kept(number_of(text)) for text in doubtful.to_pylist() if text is not None and is_number(text))


def _kept(number: float | Decimal) -> bool:
    if isinstance(number, float):
        return True
    try:
        double = float(number)
    except OverflowError:
        return False
    if isinstance(number, int):
        return double == number
    if not math.isfinite(double) or (number and not double):
        return False
    digits = len(number.as_tuple().digits)
    return Decimal(repr(double)) == number or Decimal(f"{Decimal(double):.{digits - 1}e}") == number
