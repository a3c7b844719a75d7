"""Functions for queries, in a module of their own: their code is shipped to the home and loaded again there."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["low", "plus", "plus_arrays", "strict"]


def low(text: str) -> str:
    return text.lower()


def plus(x: int, y: int) -> int:
    return x + y


def plus_arrays(x: pa.Array, y: pa.Array) -> pa.Array:
    return pc.add_checked(x, y)


def strict(x: int) -> int:
    if x % 3 == 0:
        raise ValueError(f"three divides {x}")
    return x
