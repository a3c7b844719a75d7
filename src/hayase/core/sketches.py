"""Sketches of Apache DataSketches as bytes: approximate distinct counts (HLL) and quantiles (t-digest).

The empty sketch is `b""`. The quantile sketch is a t-digest because it is the only one of the library that uses no random
bits: its KLL, REQ and classic sketches gave different bytes for the same input from run to run and cannot be seeded, so the
same tuples would give another result after a restart.
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
"""About 9 KB when full. Measured quantiles were off by up to 0.83 % of the ranks, mostly in the middle; unlike KLL, a
t-digest guarantees no bound."""
_EXACT = Context(prec=200)


@cache
def _sketches() -> ModuleType:
    return importlib.import_module("datasketches")  # imported late: it is slow, and few queries need it


def no_sketch() -> bytes:
    """Return the empty sketch."""
    return b""


def _hashable(value: Any) -> int | float | str:
    """Return a value for the sketch to hash: the same for equal values, and never empty text, which it ignores."""
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
    """Return the distinct-count sketch of one value; the empty one for None."""
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
    """Return the union of two distinct-count sketches."""
    if not older or not newer:
        return older or newer
    return bytes(_distinct_union(older, newer).serialize_compact())


def distinct_count(sketch: bytes) -> int:
    """Return the estimated number of distinct values."""
    # A sketch keeps its update history for a slightly better estimate. The union with itself drops that, so that the
    # estimate depends on the set of values alone.
    return round(_distinct_union(sketch, sketch).get_estimate()) if sketch else 0


def digest_of_one(value: Any) -> bytes:
    """Return the t-digest of one value; the empty one for None, NaN and infinity."""
    if value is None or not math.isfinite(value):
        return b""
    sketch = _sketches().tdigest_double(_DIGEST_SIZE)
    sketch.update(float(value))
    return bytes(sketch.serialize())


def digests_combined(older: bytes, newer: bytes) -> bytes:
    """Return the merged t-digest of two."""
    if not older or not newer:
        return older or newer
    kind = _sketches().tdigest_double
    sketch = kind.deserialize(older)
    sketch.merge(kind.deserialize(newer))
    return bytes(sketch.serialize())


def quantile(fraction: float, sketch: bytes) -> float | None:
    """Return the estimated quantile; None for the empty t-digest."""
    return float(_sketches().tdigest_double.deserialize(sketch).get_quantile(fraction)) if sketch else None
