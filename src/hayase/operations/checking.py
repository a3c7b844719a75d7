"""Checking an operation before it is taken: its module loads, its function works on a sample, its schema is known."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from hayase.core.errors import DeclarationError
from hayase.core.schemas import arrow_schema, ddl
from hayase.operations.children import Children, Limits
from hayase.operations.functions import FunctionSource
from hayase.operations.windows import WindowSpec

__all__ = ["MOST_SAMPLES", "check_function"]

MOST_SAMPLES = 20
"""Windows of a sample that a function is called on."""


def check_function(
    function: FunctionSource,
    window: WindowSpec,
    reads: pa.Schema,
    writes: str | None = None,
    sample: pa.RecordBatch | None = None,
    limits: Limits | None = None,
) -> str:
    """The schema, as DDL, of what the function gives: the declared one, else as it is found by calling it on a sample.

    Everything runs in a child process. A function that cannot be loaded, fails on the sample, or gives what does not fit is
    refused with a DeclarationError.
    """
    window.check(reads)
    children = Children(function, reads, None if writes is None else arrow_schema(writes), limits)
    try:
        children.check()
        if sample is None or not sample.num_rows:
            if writes is None:
                hint = 'declare it, like "name string, score double"'
                raise DeclarationError(
                    f"the schema of what {function.source} gives is not known without a sample", hint
                )
            return ddl(arrow_schema(writes))
        size = min(window.size, sample.num_rows) if window.unit == "count" else sample.num_rows
        starts = np.arange(0, sample.num_rows - size + 1, size)[:MOST_SAMPLES]
        if writes is None:
            return children.infer(sample, starts, starts + size)
        failures = children.call(sample, starts, starts + size).failures
        for failure in failures.values():
            told = f"{function.source} failed for the sample: {failure.reason}{failure.place}"
            raise DeclarationError(f"{told}\n{failure.traceback}" if failure.traceback else told)
        return ddl(arrow_schema(writes))
    finally:
        children.close()
