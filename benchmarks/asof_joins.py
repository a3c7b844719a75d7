"""ASOF joins: changes per second of CPU time, for one key and for many, and for rows that end.

python -m benchmarks.asof_joins
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from hayase.lifetimes.asof_joins import AsofOperator
from hayase.lifetimes.plans import Asof, Order, Unbounded, Windowed
from hayase.lifetimes.relations import OPEN, Delta, Span

SEED, ROWS, STEPS = 1, 20_000, 20
LEFT = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("n", pa.float64())])
RIGHT = pa.schema([("j", pa.int64()), ("u", pa.int64()), ("p", pa.float64())])
NODE = Asof(
    "left", Windowed(0, Unbounded(), LEFT), Windowed(1, Unbounded(), RIGHT), (("k", "j"),), "t",
    (Order("u", descending=True), Order("p")), False, pa.schema([*LEFT, *RIGHT]),
)  # fmt: skip


def delta(schema: pa.Schema, step: int, keys: int, length: int | None, dice: np.random.Generator) -> Delta:
    """Return the tuples of a step, ten microseconds apart, with random keys."""
    ids = np.arange(step * ROWS, (step + 1) * ROWS)
    values = [pa.array(dice.integers(0, keys, ROWS)), pa.array(ids * 10), pa.array(dice.random(ROWS))]
    end = np.full(ROWS, OPEN) if length is None else ids * 10 + length
    return Delta(pa.RecordBatch.from_arrays(values, schema=schema), ids * 10, end, ids)


def main() -> None:
    """Print a line for each case."""
    for keys, length in ((1, None), (1_000, None), (1_000, 1_000_000)):
        operator, dice, rows = AsofOperator(NODE), np.random.default_rng(SEED), 0
        seconds = 0.0
        for step in range(STEPS):
            inputs = [delta(schema, step, keys, length, dice) for schema in (LEFT, RIGHT)]
            began = time.process_time()
            span = Span(step * ROWS * 10, (step + 1) * ROWS * 10, step + 1)
            rows += len(operator.advance(inputs, span).delta)
            seconds += time.process_time() - began
        ends = "never end" if length is None else f"end after {length / 1e6:g} s"
        print(f"{keys:>5} keys, rows {ends}: {2 * ROWS * STEPS / seconds:>9,.0f} rows/s of CPU time, {rows} results")


if __name__ == "__main__":
    main()
