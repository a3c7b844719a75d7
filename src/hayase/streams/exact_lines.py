"""Reads lines of JSON into rows: fast where the fast reader is exact, and with all digits where it would round.

orjson reads numbers as 64-bit integers and doubles, and rounds all others. Lines whose numbers were, or may have been,
rounded in a way that their columns would not notice are read again by `exact_loads`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import orjson
import pyarrow as pa

from hayase.core.numbers import exact_loads
from hayase.core.schemas import is_json

__all__ = ["Load", "loader"]

Load: TypeAlias = Callable[[Sequence[bytes]], list[Any]]
"""Returns the value of each line; ValueError if one of them is not JSON."""

_LONG_OR_POWER = re.compile(rb"[0-9.]{17}|[0-9][eE]")
"""Matches numbers that a double may not represent: a number with fewer digits and no exponent is recovered exactly from
its double."""
_TINY = re.compile(rb"[eE]-[0-9]{3}|0{100}")
"""Matches numbers that may underflow: a nonzero number that becomes zero as a double has such an exponent or that many
zeros."""


def loader(schema: pa.Schema) -> Load:
    """Return the reader of lines whose fields go into columns of these types.

    >>> loader(pa.schema([("n", pa.int64()), ("x", pa.float64())]))([b'{"n": 1.00000000000000000001, "x": 0.5}'])
    [{'n': Decimal('1.00000000000000000001'), 'x': 0.5}]
    """
    if any(is_json(field) or _holds(field.type, pa.types.is_decimal) for field in schema):
        return lambda lines: list(map(exact_loads, lines))
    integers = [field.name for field in schema if pa.types.is_integer(field.type)]
    floats = [
        (field.name, 2.0 ** (24 if field.type.bit_width == 32 else 53))
        for field in schema
        if pa.types.is_floating(field.type)
    ]
    nested = any(_holds(field.type, _is_number) for field in schema if pa.types.is_nested(field.type))

    def load(lines: Sequence[bytes]) -> list[Any]:
        rows = list(map(orjson.loads, lines))
        again = set(_rounded(rows, lines, integers, floats))
        if nested:
            again.update(at for at, line in enumerate(lines) if _LONG_OR_POWER.search(line))
        for at in again:
            rows[at] = exact_loads(lines[at])
        return rows

    return load


def _rounded(
    rows: list[Any], lines: Sequence[bytes], integers: list[str], floats: list[tuple[str, float]]
) -> Iterator[int]:
    """Yield the positions of rows that may be rounded: a float for an integer column with many digits or an exponent, or one for a
    float column so large that it may have been written as an integer, or a zero that may have been a tiny number."""
    records = rows if set(map(type, rows)) == {dict} else [row if isinstance(row, dict) else {} for row in rows]
    for name in integers:
        for at, row in enumerate(records):
            if type(row.get(name)) is float and _LONG_OR_POWER.search(lines[at]):
                yield at
    for name, limit in floats:
        for at, row in enumerate(records):
            value = row.get(name)
            if type(value) is float and (not -limit < value < limit or (value == 0 and _TINY.search(lines[at]))):
                yield at


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _holds(kind: pa.DataType, what: Callable[[pa.DataType], bool]) -> bool:
    return what(kind) or any(_holds(kind.field(at).type, what) for at in range(kind.num_fields))
