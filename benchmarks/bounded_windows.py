"""Windows with bounds in the kernel of a query: sessions, tumbling and hopping windows of 10,000 keys.

Count, greatest and sum of a double for each window and key, from rows as the map side gives them to result rows with lifetimes.
Records are 1 microsecond apart on average, and 131,072 of them are a step; CPU time on one core, the least of several runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from benchmarks.measure import alternate
from hayase.core.declarations import PipelineDeclaration, QueryDeclaration, StreamDeclaration
from hayase.core.stages import OFFSET, TIME, Stage
from hayase.core.times import BEGINNING
from hayase.cql.planner import plan

__all__ = ["million_records_per_second"]

SEED = 7
KEYS = 10_000
STEP = 131_072
WINDOWS = {
    "sessions, gap 30 ms": "[Session 30 ms]",
    "tumbling, 100 ms": "[Tumble 100 ms]",
    "hopping, 100 ms every 20 ms": "[Hop 100 ms Every 20 ms]",
}


def million_records_per_second(records: int, rounds: int) -> dict[str, float]:
    """Million records per second of each window."""
    batch = _records(records)
    runs = {name: _run(_stage(text), batch) for name, text in WINDOWS.items()}
    for run in runs.values():
        run()  # loads the loops
    return {name: max(speeds) for name, speeds in alternate(rounds, runs).items()}


def _records(count: int) -> pa.RecordBatch:
    chance = np.random.default_rng(SEED)
    times = np.sort(chance.integers(0, count, count))
    keys, values = chance.integers(0, KEYS, count), chance.random(count)
    return pa.record_batch({"time": pa.array(times, pa.timestamp("us", "UTC")), "k": keys, "x": values})


def _stage(window: str) -> Stage:
    stream = StreamDeclaration("s", "time timestamp, k bigint, x double", time="time")
    text = f"select k, window_start, window_end, count(*) as n, max(x) as most, sum(x) as total from s {window}"
    query = QueryDeclaration("q", f"{text} group by k, window_start, window_end")
    (stage,) = plan(PipelineDeclaration("bench", (stream,), (query,))).stages
    return stage


def _run(stage: Stage, batch: pa.RecordBatch) -> Callable[[], float]:
    rows = stage.inputs[0].map_side(batch).rows
    times = batch.column("time").cast(pa.int64())
    rows = rows.append_column(TIME, times).append_column(OFFSET, pa.array(np.arange(batch.num_rows)))
    instants = times.to_numpy()
    clocks = [*instants[STEP::STEP].tolist(), int(instants[-1]) + 1_000_000]
    assert stage.kernel is not None

    def run() -> float:
        assert stage.kernel is not None
        kernel, since, first = stage.kernel(0, 1), BEGINNING, 0
        began = time.process_time()
        for version, clock in enumerate(clocks, 1):
            last = int(np.searchsorted(instants, clock))
            kernel.process([rows.slice(first, last - first)], since, clock, version)
            since, first = clock, last
        return batch.num_rows / (time.process_time() - began) / 1e6

    return run
