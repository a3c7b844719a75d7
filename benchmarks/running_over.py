"""OVER over a stream: records per second for frames of different lengths, in one process, without Spark.

    python -m benchmarks.running_over

1,000 partitions; each step has 100,000 records. Printed for each frame are the medians over all rounds of the records per
second of wall clock and per second of CPU time; on a busy machine only the latter means something.
"""

from __future__ import annotations

import time
from statistics import median

import numpy as np
import pyarrow as pa

from hayase.lifetimes.plans import Frame, RunningCall, RunningOver, Unbounded, Windowed
from hayase.lifetimes.relations import OPEN, Delta, Span
from hayase.lifetimes.running_over import RunningOverOperator

KEYS, RECORDS, ROUNDS, SEED = 1_000, 100_000, 8, 1
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.float64())])
FRAMES = {
    "all before": Frame("unbounded", 0, peers=True),
    "10 rows": Frame("rows", 10),
    "1,000 rows": Frame("rows", 1_000),
    "a time of 10 records": Frame("range", 10 * KEYS, peers=True),
    "a time of 1,000 records": Frame("range", 1_000 * KEYS, peers=True),
}


def main() -> None:
    """Measure, and print the figures."""
    for name, frame in FRAMES.items():
        wall, cpu = _rates(frame)
        print(f"sum over {name}: {wall:,.0f} records/s, {cpu:,.0f} per second of CPU time")


def _rates(frame: Frame) -> tuple[float, float]:
    schema = pa.schema([*SCHEMA, ("sum", pa.float64())])
    call = RunningCall("sum", "sum", ("value",), frame)
    operator = RunningOverOperator(RunningOver(Windowed(0, Unbounded(), SCHEMA), ("key",), (call,), schema))
    dice = np.random.default_rng(SEED)
    rates = []
    for version in range(1, ROUNDS + 1):
        times = np.arange((version - 1) * RECORDS, version * RECORDS)
        columns = [pa.array(dice.integers(0, KEYS, RECORDS)), pa.array(dice.random(RECORDS))]
        delta = Delta(pa.record_batch(columns, schema=SCHEMA), times, np.full(RECORDS, OPEN), times)
        began, worked = time.perf_counter(), time.process_time()
        operator.advance([delta], Span(int(times[0]), int(times[-1]) + 1, version))
        spent = time.perf_counter() - began, time.process_time() - worked
        rates.append([RECORDS / seconds for seconds in spent])
    wall, cpu = (median(column) for column in zip(*rates))
    return wall, cpu


if __name__ == "__main__":
    main()
