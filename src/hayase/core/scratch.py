"""Uninitialised arrays for temporary use within a step.

They come from Arrow's memory pool, which keeps freed memory for the next step. `malloc` returns large blocks to the
operating system, so that each page of the next array costs a page fault: with batches of 65,536 tuples these cost more than
the work on the tuples.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

__all__ = ["scratch"]


def scratch(*shape: int, kind: type = np.int64) -> np.ndarray:
    """Return an array whose values are not initialised.

    >>> scratch(2, 3).shape
    (2, 3)
    """
    count = math.prod(shape)
    if not count:
        return np.empty(shape, kind)
    return np.frombuffer(pa.allocate_buffer(count * np.dtype(kind).itemsize), kind).reshape(shape)
