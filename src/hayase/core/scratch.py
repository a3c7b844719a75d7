"""Room for the arrays that every step makes anew.

It comes from Arrow's memory pool, which keeps what is given back for the next step. `malloc` returns large pieces to the
system, and then each page of the next array costs a fault: at batches of 65,536 tuples more than the work on them.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

__all__ = ["scratch"]


def scratch(*shape: int, kind: type = np.int64) -> np.ndarray:
    """An array whose values are not set.

    >>> scratch(2, 3).shape
    (2, 3)
    """
    count = math.prod(shape)
    if not count:
        return np.empty(shape, kind)
    return np.frombuffer(pa.allocate_buffer(count * np.dtype(kind).itemsize), kind).reshape(shape)
