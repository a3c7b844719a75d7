"""The first rows of an order under changes: the top 100 of 1,000,000 keys, in one process, without Spark.

    python -m benchmarks.top_rows

Each change replaces the value of a random key. Printed are the medians over all rounds of the changes per
second of wall clock and per second of CPU time; on a busy machine only the latter means something. `hayase bench windows` has the
latter among its ratios.
"""

from __future__ import annotations

import time
from statistics import median

import numpy as np
import pyarrow as pa

from hayase.lifetimes.plans import Order, Top, Unbounded, Windowed
from hayase.lifetimes.relations import OPEN, Delta, Span
from hayase.lifetimes.top_rows import TopOperator

__all__ = ["changes_per_second"]

KEYS, CHANGES, ROUNDS, LIMIT, SEED = 1_000_000, 50_000, 20, 100, 1
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.float64())])


def changes_per_second(rounds: int) -> tuple[float, float]:
    """Return the medians of the changes per second of wall clock and of CPU time."""
    order = Order("value", descending=True), Order("key")
    operator = TopOperator(Top(Windowed(0, Unbounded(), SCHEMA), (), order, 1, LIMIT, 0, False, SCHEMA))
    dice = np.random.default_rng(SEED)
    none = np.empty(0, np.int64)
    newest = np.arange(KEYS)
    operator.advance([_delta(newest, dice.random(KEYS), newest, newest, none)], Span(0, KEYS, 1))
    clock, rates = KEYS, []
    for version in range(2, rounds + 2):
        keys = dice.choice(KEYS, CHANGES, replace=False)
        times = np.arange(clock, clock + CHANGES)
        delta = _delta(keys, dice.random(CHANGES), times, times, newest[keys])
        newest[keys] = times
        began, worked = time.perf_counter(), time.process_time()
        operator.advance([delta], Span(clock, clock + CHANGES, version))
        spent = time.perf_counter() - began, time.process_time() - worked
        rates.append([CHANGES / seconds for seconds in spent])
        clock += CHANGES
    wall, cpu = (median(column) for column in zip(*rates))
    return wall, cpu


def main() -> None:
    """Measure, and print the figures."""
    wall, cpu = changes_per_second(ROUNDS)
    print(f"{wall:,.0f} changes/s, {cpu:,.0f} per second of CPU time; target 200,000 per core")


def _delta(keys: np.ndarray, values: np.ndarray, start: np.ndarray, ids: np.ndarray, closed: np.ndarray) -> Delta:
    rows = pa.record_batch([pa.array(keys), pa.array(values)], schema=SCHEMA)
    return Delta(rows, start, np.full(len(start), OPEN), ids, closed, start[: len(closed)])


if __name__ == "__main__":
    main()
