"""The type of a column of numbers that loses no digit of any of them: bigint, double, decimal, or none.

A double keeps a number if, written with as many digits as the number has, it is that number again: 0.1 is kept, and
9007199254740993 is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.numbers import is_number, number_of

__all__ = ["exact_type", "kept_by_doubles", "type_of_texts"]

_SHORT = 15
"""Any number of so many digits is kept by a double."""


def exact_type(numbers: Iterable[int | float | Decimal]) -> pa.DataType | None:
    """The type that holds all of them; None if there is none.

    >>> exact_type([1, 2.5]), exact_type([9007199254740993, 2.5]), exact_type([1, 2**63 - 1])
    (DataType(double), Decimal128Type(decimal128(17, 1)), DataType(int64))
    >>> exact_type([10**40 + 1]) is None
    True
    """
    numbers = list(numbers)
    if all(isinstance(each, int) and -(2**63) <= each < 2**63 for each in numbers):
        return pa.int64()
    if all(map(_kept, numbers)):
        return pa.float64()
    before = after = 0
    for each in numbers:
        exact = Decimal(repr(each)) if isinstance(each, float) else Decimal(each)
        if not exact.is_finite():
            return None
        exponent = exact.as_tuple().exponent
        assert isinstance(exponent, int)
        before, after = max(before, exact.adjusted() + 1), max(after, -exponent)
    return pa.decimal128(max(before + after, 1), after) if before + after <= 38 else None


def type_of_texts(texts: pa.ChunkedArray) -> pa.DataType | None:
    """The same, of a column of texts that are all numbers; an empty one has no say."""
    if kept_by_doubles(texts):
        return pa.float64()
    return exact_type(number_of(each) for each in texts.to_pylist() if each is not None)


def kept_by_doubles(texts: pa.ChunkedArray | pa.Array) -> bool:
    """Whether doubles keep all numbers of a column of texts; a text that is no number has no say."""
    doubtful = texts.filter(
        pc.or_(pc.greater(pc.binary_length(texts), _SHORT), pc.match_substring(texts, "e", ignore_case=True))
    )
    try:
        shortest = doubtful.cast(pa.float64()).cast(pa.string())
        doubtful = doubtful.filter(pc.not_equal(shortest, doubtful))
    except pa.ArrowInvalid:
        pass  # one is no number; all are looked at
    return all(_kept(number_of(each)) for each in doubtful.to_pylist() if each is not None and is_number(each))


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
