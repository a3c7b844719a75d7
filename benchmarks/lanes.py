"""Lanes: throughput beside plain transformWithState, cost of stages, cost of live state, recovery of lost workers.

rows/s        keyed running sum over 1,000 keys, batches of millions, beside the same program on `transformWithState`
stages        a batch of 1,000 records with 10 stages against one with 1
live tuples   a batch of 100,000 records over 10,000,000 keys against one over 10,000
lost workers  the first batch after every Python worker was killed, over those 10,000,000 keys
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import until_idle
from hayase import Pipeline
from hayase.core.stages import MAIN
from hayase.engine.batch.gate import FileGate, Grants
from hayase.engine.commit.manifests import Manifest
from hayase.engine.spark.lanes import Lanes
from hayase.engine.spark.runner import run_lanes
from hayase.engine.spark.session import local_master, open_session
from hayase.streams import StreamLog

SEED = 7
SCHEMA = pa.schema([("time", pa.int64()), ("k", pa.int64()), ("x", pa.float64())])
TOTALS = "select k, count(*) as n, sum(x) as total from numbers group by k"


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Measure everything in one session; `quick` makes it small."""
    session = open_session(local_master(2), settings={"spark.driver.memory": "3g"})
    rows = 500_000 if quick else 4_000_000
    live = 500_000 if quick else 10_000_000
    throughput = _throughput(session, rows, batches=3 if quick else 6)
    plain_rows = 100_000 if quick else 1_000_000
    session.stop()
    plain = _plain_program(plain_rows, batches=3)
    session = open_session(local_master(2), settings={"spark.driver.memory": "3g"})
    one, ten = _small_batches(session, 1), _small_batches(session, 10)
    few = _live_tuples(session, 10_000)
    many = _live_tuples(session, live)
    session.stop()
    return {
        "rows_per_batch": rows,
        "stage_rows_per_second": throughput,
        "transform_with_state_rows_per_batch": plain_rows,
        "transform_with_state_rows_per_second": plain,
        "small_batch_seconds": {"1 stage": one, "10 stages": ten},
        "live_tuples": {"10000": few, str(live): many},
        "ratios": {
            "rows per second, to transformWithState (at least 8)": throughput / plain,
            "small batch, 10 stages to 1 (at most 1.3)": ten / one,
            f"batch over {live:,} live tuples to 10,000 (at most 1.5)": many["batch_seconds"] / few["batch_seconds"],
            "first batch after all workers were lost, to a usual one": many["after_loss_seconds"]
            / many["batch_seconds"],
        },
    }


class Batches:
    """Durations of batches, from one commit to the next while there is always more to do."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def __call__(self, manifest: Manifest) -> None:
        self.moments.append(time.perf_counter())

    def median(self, skip: int) -> float:
        pairs = list(zip(self.moments, self.moments[1:]))[skip:]
        return statistics.median(after - before for before, after in pairs)


@contextmanager
def _pipeline(session: Any, stages: int, limit: int, batches: Batches) -> Iterator[tuple[Pipeline, Lanes]]:
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as home:
        p = Pipeline("bench", home=home)
        p.stream("numbers", "time bigint, k bigint, x double", time="time", time_unit="us")
        for number in range(stages):
            p.query(f"totals_{number}", TOTALS)
        p.apply()
        with run_lanes(p.home, session=session, on_commit=batches) as lane:
            FileGate(p.home.gate(MAIN)).set(Grants(limit=limit))
            yield p, lane


def _numbers(rows: int, keys: int, start: int, random: np.random.Generator) -> pa.Table:
    time_us = np.arange(start, start + rows)
    return pa.table([time_us, random.integers(0, keys, rows), random.random(rows)], schema=SCHEMA)


def _append(p: Pipeline, table: pa.Table) -> None:
    StreamLog.ensure(p.home.path, p.declaration.stream("numbers")).append(table, now=time.time_ns() // 1000)


def _throughput(session: Any, rows: int, batches: int) -> float:
    """Records per second of one stage, when there is always a full batch waiting."""
    random, seen = np.random.default_rng(SEED), Batches()
    with _pipeline(session, 1, rows, seen) as (p, lane):
        piece = rows // 8
        for number in range(8):
            _append(p, _numbers(piece, 1000, number * piece, random))
        until_idle(lane)
        FileGate(p.home.gate(MAIN)).set(Grants(open=False))
        for number in range(8, 8 * (batches + 2)):
            _append(p, _numbers(piece, 1000, number * piece, random))
        FileGate(p.home.gate(MAIN)).set(Grants(limit=rows))
        seen.moments.clear()
        until_idle(lane)
        return rows / seen.median(skip=0)


def _small_batches(session: Any, stages: int) -> float:
    """Seconds of a batch of 1,000 records, from the append to the commit, after some warm-up."""
    random, seen = np.random.default_rng(SEED), Batches()
    took = []
    with _pipeline(session, stages, 1_000_000, seen) as (p, lane):
        for number in range(30):
            table = _numbers(1000, 1000, number * 1000, random)
            began = time.perf_counter()
            _append(p, table)
            until_idle(lane)
            took.append(time.perf_counter() - began)
    return statistics.median(took[10:])


def _live_tuples(session: Any, keys: int) -> dict[str, float]:
    """Seconds of a batch of 100,000 records when `keys` keys are alive; after the loss of all workers; memory of them."""
    random, seen = np.random.default_rng(SEED), Batches()
    took = []
    with _pipeline(session, 1, 2_000_000, seen) as (p, lane):
        at = 0
        for first in range(0, keys, 500_000):
            count = min(500_000, keys - first)
            table = pa.table(
                [np.arange(at, at + count), np.arange(first, first + count), np.ones(count)], schema=SCHEMA
            )
            _append(p, table)
            at += count
        until_idle(lane)
        for _ in range(24):
            table = _numbers(100_000, keys, at, random)
            at += 100_000
            began = time.perf_counter()
            _append(p, table)
            until_idle(lane)
            took.append(time.perf_counter() - began)
        memory = _memory_of_children()
        _kill_workers()
        table = _numbers(100_000, keys, at, random)
        began = time.perf_counter()
        _append(p, table)
        until_idle(lane)
        lost = time.perf_counter() - began
    return {"batch_seconds": statistics.median(took[8:]), "after_loss_seconds": lost, "memory_bytes": memory}


def _memory_of_children() -> int:
    """Bytes that the processes below this one hold; one that ends meanwhile holds none."""
    found = 0
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += each.memory_info().rss
    return found


def _kill_workers() -> None:
    """Kill the daemon and with it every worker; Spark starts them again."""
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # one that ended by itself, meanwhile
            if each.name() == "hayase-workers":
                each.kill()


def _plain_program(rows: int, batches: int) -> float:
    """The same running sum as anybody would write it with Spark's own state API."""
    from benchmarks.plain_totals import running_totals

    random = np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as folder:
        for number in range(batches + 1):
            pq.write_table(_numbers(rows, 1000, number * rows, random), f"{folder}/{number:03d}.parquet")
        seconds = running_totals(folder, f"{folder}/checkpoint")
    return rows / statistics.median(seconds[1:])
