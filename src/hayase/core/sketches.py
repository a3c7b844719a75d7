"""Sketches of Apache DataSketches as plain bytes: how many values are distinct, and their quantiles.

The empty sketch is `b""`. The quantile sketch is a t-digest because it is the only one of the library that draws no random
bits: its KLL, REQ and classic sketches gave other bytes for the same input from run to run, and cannot be seeded, so that the
same tuples would give another answer after a restart.
"""

from __future__ import annotations

import importlib
import math
from decimal import Context, Decimal
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

__all__ = [
    "digest_of_one", "digests_combined", "distinct_combined", "distinct_count", "distinct_of_one", "no_sketch", "quantile",
]  # fmt: skip

_HLL_BITS = 12
"""2^12 registers: 4 KB, and a standard error of 1.6 %."""
_DIGEST_SIZE = 500
"""About 9 KB when full. Quantiles were seen to be off by up to 0.83 % of the ranks, most in the middle; unlike KLL, a
t-digest promises no bound."""
_EXACT = Context(prec=200)


@cache
def _sketches() -> ModuleType:
    return importlib.import_module("datasketches")  # late: it takes a while, and few queries need it


def no_sketch() -> bytes:
    return b""


def _hashable(value: Any) -> int | float | str:
    """A value as the sketch hashes it: equal ones alike, and no empty text, which it would leave out."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return int(value)
    if isinstance(value, bytes):
        return "b" + value.decode("latin-1")
    if isinstance(value, Decimal):
        return f"d{_EXACT.plus(_EXACT.normalize(value))}"
    return f"t{value}"


def distinct_of_one(value: Any) -> bytes:
    if value is None:
        return b""
    sketch = _sketches().hll_sketch(_HLL_BITS, _sketches().HLL_8)
    sketch.update(_hashable(value))
    return bytes(sketch.serialize_compact())


def _distinct_union(older: bytes, newer: bytes) -> Any:
    library = _sketches()
    union = library.hll_union(_HLL_BITS)
    union.update(library.hll_sketch.deserialize(older))
    union.update(library.hll_sketch.deserialize(newer))
    return union.get_result(library.HLL_8)


def distinct_combined(older: bytes, newer: bytes) -> bytes:
    if not older or not newer:
        return older or newer
    return bytes(_distinct_union(older, newer).serialize_compact())


def distinct_count(sketch: bytes) -> int:
    # A sketch remembers how it came about and estimates a little better from that. The union with itself forgets it: the
    # answer follows from the set of values alone.
    return round(_distinct_union(sketch, sketch).get_estimate()) if sketch else 0


def digest_of_one(value: Any) -> bytes:
    if value is None or not math.isfinite(value):
        return b""
    sketch = _sketches().tdigest_double(_DIGEST_SIZE)
    sketch.update(float(value))
    return bytes(sketch.serialize())


def digests_combined(older: bytes, newer: bytes) -> bytes:
    if not older or not newer:
        return older or newer
    kind = _sketches().tdigest_double
    sketch = kind.deserialize(older)
    sketch.merge(kind.deserialize(newer))
    return bytes(sketch.serialize())


def quantile(fraction: float, sketch: bytes) -> float | None:
    return float(_sketches().tdigest_double.deserialize(sketch).get_quantile(fraction)) if sketch else None
