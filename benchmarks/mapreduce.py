"""Jobs: does a map slow the writer down, records a second from parse to counts beside plain PySpark, groups, merges.

writer        figure 5 of paper 5: records a second of a writer on one core while a map fires every 2, 5 or 10 seconds
records/s     access-log lines of 300 bytes, parsed and counted by status and by address, through a lane with two cores;
              beside `foreachBatch` and `applyInPandas` over the same lines, read from the stream and from Parquet
groups        microseconds for each of 1,000,000 keys of one firing, reduced by a function of Python
merge         one firing of 100,000 tuples against 10,000,000 stored keys, beside reading all that is stored
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import hayase as hy
from benchmarks import plain_mapreduce
from benchmarks.lanes import Batches
from benchmarks.mapreduce_steps import (
    ADDRESSES,
    LOGS,
    PARSED,
    START,
    as_pair,
    batches,
    lines,
    parse,
    parse_record,
    picked,
    sum_of_pairs,
    total,
    with_stored,
)
from benchmarks.mapreduce_writer import writing
from benchmarks.measure import draw_rates, until_idle
from hayase.core.stages import MAIN
from hayase.engine.batch.gate import FileGate, Grants
from hayase.engine.local import InProcess
from hayase.engine.spark.runner import run_lanes
from hayase.engine.spark.session import local_master, open_session
from hayase.streams import StreamLog

__all__ = ["run"]

MI = 2**20
SEED_OF_KEYS = 55
FILES = 4
"""Parquet files that the plain program reads in a batch: both cores have something to do."""
NUMBERS = "time timestamp, k bigint, x bigint"
TABLE = "accounts"
RULES = f"""
source: seed
rules:
  - tables: {{{TABLE}: {{key: .k, columns: {{total: .x}}}}}}
"""


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    seconds: float
    intervals: tuple[int, ...]
    repetitions: int
    addresses: int
    batch: int
    batches: int
    record_batches: int
    plain_batches: int
    keys: int
    new: int
    stored: tuple[int, ...]
    rounds: int


FULL = Sizes(40, (2, 5, 10), 1, ADDRESSES, 1_000_000, 8, 3, 3, 1_000_000, 100_000, (100_000, 10_000_000), 9)
QUICK = Sizes(5, (2,), 1, 1_000, 100_000, 3, 2, 1, 50_000, 10_000, (10_000, 100_000), 3)


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Measure one thing after the other, draw into `out`, and return plain data; `quick` makes it small."""
    sizes = QUICK if quick else FULL
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hayase-bench-", dir=out) as folder:
        written = writing(Path(folder), sizes.seconds, sizes.intervals, sizes.repetitions)
    title = "Appending 300-byte lines, 10,000 at a time, pauses of 10 ms"
    picture = draw_rates(out / "mapreduce.png", title, "records/s", written.seconds)
    with tempfile.TemporaryDirectory(prefix="hayase-bench-", dir=out) as folder:
        plain = _plain(Path(folder), sizes)
    session = open_session(local_master(2), settings={"spark.driver.memory": "3g"})
    try:
        ours = {
            "batch function": _counts(session, sizes, sizes.batches, parse, True),
            "record function": _counts(session, sizes, sizes.record_batches, parse_record, False),
        }
        groups = {name: _groups(session, sizes, name) for name in _WAYS}
        merges = {stored: _merge(session, sizes, stored) for stored in sizes.stored}
    finally:
        session.stop()
    least, most = min(sizes.stored), max(sizes.stored)
    in_pandas = max(rate for name, rate in plain.items() if "applyInPandas" in name)
    counted = ours["batch function"]["from batch to batch"]
    return {
        "writer": {**written.figures, "per_second": written.seconds},
        "records_per_second": ours,
        "plain_records_per_second": plain,
        "groups": groups,
        "merges": {str(stored): each for stored, each in merges.items()},
        "pictures": [str(picture)],
        "notes": [
            "records/s: commit to commit while there is always more; plain PySpark: Spark's own seconds of its batches",
            "groups and merges: from the append to the commit, Spark's part included; CPU is of all processes",
            f"there are {sizes.addresses:,} addresses; most of what applyInPandas takes is for its groups, not for the records",
            "all that is stored, read once: in one process; taken by halves, as if two cores shared it",
        ],
        "ratios": {
            **written.ratios,
            "parse and count, Mi records/s (at least 0.5)": counted / MI,
            "parse and count, to foreachBatch and applyInPandas (at least 3)": counted / in_pandas,
            "parse and count, to foreachBatch and Spark's own count": counted / plain["parquet, Spark's own count"],
            "parse and count with a function of records, Mi records/s": ours["record function"]["from batch to batch"]
            / MI,
            "parse and count with a function of records, to foreachBatch and applyInPandas": ours["record function"][
                "from batch to batch"
            ]
            / in_pandas,
            **{
                f"microseconds per group, {sizes.keys:,} keys, {name}, {way}": each[f"{way}_us_per_group"]
                for name, each in groups.items()
                for way in ("wall", "cpu")
            },
            f"merge of {sizes.new:,} against {most:,} stored, seconds": merges[most]["seconds"],
            f"merge, {most:,} stored to {least:,}": merges[most]["seconds"] / merges[least]["seconds"],
            f"reading all of {most:,} stored, to the merge": merges[most]["all_seconds"] / 2 / merges[most]["seconds"],
        },
    }


@contextmanager
def _lane(p: hy.Pipeline, session: Any, seen: Batches | None = None) -> Iterator[Any]:
    """A lane that fires as soon as there is something, with its first batch, without data, over."""
    p.apply()
    with run_lanes(p.home, session=session, on_commit=seen) as lane:
        until_idle(lane)
        yield lane


def _append(p: hy.Pipeline, stream: str, rows: pa.Table) -> None:
    StreamLog.ensure(p.home.path, p.declaration.stream(stream)).append(rows, now=time.time_ns() // 1000)


def _cpu() -> float:
    """Seconds of CPU that this process and all below it have had."""
    spent = 0.0
    for each in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            spent += sum(each.cpu_times()[:2])
    return spent


def _expect(what: str, found: object, expected: object) -> None:
    """Speed without the right answer is worth nothing."""
    if found != expected:
        raise AssertionError(f"{what}: {found}, and should be {expected}")


# ------------------------------------------------------------------------------------------------ records a second


def _pool(sizes: Sizes) -> pa.Array:
    return lines(min(sizes.batch, 200_000), sizes.addresses)


def _statuses(tables: Sequence[pa.Table]) -> dict[int, int]:
    """The hits by status, counted directly."""
    found: dict[int, int] = {}
    for table in tables:
        for each in table.combine_chunks().to_batches():
            counts = parse(each).column("status").value_counts()
            for status, hits in zip(counts.field(0).to_pylist(), counts.field(1).to_pylist()):
                found[status] = found.get(status, 0) + hits
    return found


def _appended(p: hy.Pipeline, tables: Sequence[pa.Table]) -> None:
    for table in tables:
        for first in range(0, len(table), 50_000):
            _append(p, "logs", table.slice(first, 50_000))


def _counts(session: Any, sizes: Sizes, count: int, function: Callable[..., Any], of_batches: bool) -> dict[str, float]:
    """Records a second through two jobs, which read the stream together: everything appended first, then run."""
    batch, seen = sizes.batch, Batches()
    source = batches(_pool(sizes), batch)
    made = [next(source) for _ in range(count + 1)]
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as home:
        p = hy.Pipeline("access", home=home)
        p.stream("logs", LOGS)
        for key in ("status", "address"):
            job = p.job(f"by_{key}", reads="logs", every="2 seconds")
            job.map(function, schema=PARSED, key=key, batches=of_batches)
            job.reduce(hits="count(*)")
        with _lane(p, session, seen) as lane:
            gate = FileGate(p.home.gate(MAIN))
            _appended(p, made[:1])
            until_idle(lane)
            gate.set(Grants(open=False, at_once=True))
            _appended(p, made[1:])
            seen.moments.clear()
            cpu, began = _cpu(), time.perf_counter()
            gate.set(Grants(limit=batch, at_once=True))
            until_idle(lane)
            whole, spent = time.perf_counter() - began, _cpu() - cpu
            steady = seen.median(skip=0)
        hits: dict[int, int] = {}
        for row in p.results("by_status").rows():
            hits[row["status"]] = hits.get(row["status"], 0) + row["hits"]
        _expect("hits by status", hits, _statuses(made))
        _expect("hits by address", sum(row["hits"] for row in p.results("by_address").rows()), batch * (count + 1))
    return {
        "appended first": batch * count / whole,
        "from batch to batch": batch / steady,
        "cpu_us_per_record": 1e6 * spent / (batch * count),
    }


def _plain(directory: Path, sizes: Sizes) -> dict[str, float]:
    """Records a second of the plain program over the same lines, in processes of its own."""
    batch, count = sizes.batch, sizes.plain_batches
    source = batches(_pool(sizes), batch)
    made = [next(source) for _ in range(count + 1)]
    p = hy.Pipeline("plain", home=directory / "home")
    p.stream("logs", LOGS)
    _appended(p, made)
    (directory / "lines").mkdir()
    piece = -(-batch // FILES)
    for number, table in enumerate(made):
        for part in range(FILES):
            file = directory / "lines" / f"{number:03d}-{part}.parquet"
            pq.write_table(table.slice(part * piece, piece), file)
            time.sleep(0.002)  # Spark takes files in the order of their times
    places = {"hayase": StreamLog.open(p.home.path, "logs").path, "parquet": directory / "lines"}
    variants = {
        "hayase, applyInPandas": ("hayase", True),
        "parquet, applyInPandas": ("parquet", True),
        "parquet, Spark's own count": ("parquet", False),
    }
    rates = {}
    for name, (source_name, in_pandas) in variants.items():
        work = directory / name
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _quiet) as pool:
            given = (source_name, str(places[source_name]), str(work), batch, FILES, in_pandas)
            found = pool.submit(plain_mapreduce.counted, *given).result()
        _expect(f"hits by status, {name}", found["by_status"], _statuses(made))
        _expect(f"hits by address, {name}", found["hits_of_addresses"], batch * (count + 1))
        _expect(f"batches, {name}", len(found["seconds"]), count + 1)
        rates[name] = batch / statistics.median(found["seconds"][1:])
    return rates


def _quiet() -> None:
    """Let a process and its JVM, which tells of much, write their errors nowhere; exceptions come back all the same."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


# ------------------------------------------------------------------------------------------------ groups


def _typed(job: Any) -> None:
    job.map(picked, schema="k bigint, x bigint", key="k", batches=True)
    job.reduce(total, schema="k bigint, total bigint")


def _plain_tuples(job: Any) -> None:
    job.map(as_pair)
    job.reduce(sum_of_pairs)


def _aggregate(job: Any) -> None:
    job.map(picked, schema="k bigint, x bigint", key="k", batches=True)
    job.reduce(total="sum(x)")


_WAYS: dict[str, Callable[[Any], None]] = {
    "function, typed tuples": _typed,
    "function and map of records, plain tuples": _plain_tuples,
    "aggregate": _aggregate,
}


def _numbers(keys: np.ndarray, first: int) -> pa.Table:
    times = pa.array(START + first + np.arange(len(keys), dtype=np.int64)).view(pa.timestamp("us", "UTC"))
    return pa.table({"time": times, "k": keys, "x": np.arange(len(keys)) % 1000})


def _groups(session: Any, sizes: Sizes, way: str) -> dict[str, float]:
    """Microseconds for each key of a firing in which every key occurs twice; medians."""
    walls, cpus = [], []
    random = np.random.default_rng(SEED_OF_KEYS)
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as home:
        p = hy.Pipeline("groups", home=home)
        p.stream("numbers", NUMBERS)
        _WAYS[way](p.job("totals", reads="numbers", every="2 seconds"))
        with _lane(p, session) as lane:
            for number in range(4):
                keys = random.permutation(np.repeat(np.arange(sizes.keys), 2))
                table = _numbers(keys, number * len(keys))
                gc.collect()
                cpu, began = _cpu(), time.perf_counter()
                _append(p, "numbers", table)
                until_idle(lane)
                walls.append(time.perf_counter() - began)
                cpus.append(_cpu() - cpu)
        _expect("groups", StreamLog.open(p.home.path, "totals").index().next, 4 * sizes.keys)
    return {
        "wall_us_per_group": 1e6 * statistics.median(walls[1:]) / sizes.keys,
        "cpu_us_per_group": 1e6 * statistics.median(cpus[1:]) / sizes.keys,
    }


# ------------------------------------------------------------------------------------------------ merges


def _merging(home: str) -> hy.Pipeline:
    p = hy.Pipeline("merging", home=home)
    p.stream("seed", NUMBERS, id="k")
    p.stream("numbers", NUMBERS)
    p.table(TABLE, key="k", total=hy.Counter())
    p.rules(text=RULES)
    job = p.job("met", reads="numbers", every="2 seconds")
    job.map(picked, schema="k bigint, x bigint", key="k", batches=True)
    job.merge(TABLE, with_stored, schema="k bigint, came bigint, before bigint")
    return p


def _fill(p: hy.Pipeline, keys: int) -> None:
    """Bring one update of each key into the table, as its batches do, in runs that are made directly."""
    from hayase.engine.definition.check import check
    from hayase.tables.stores import write_run

    p.apply()
    runner = InProcess(p.home, lambda: time.time_ns() // 1000)
    runner.run_until_idle()  # begins the table
    own = runner.tables.own(p.declaration.table(TABLE))
    (source,) = next(each for each in check(p.declaration) if each.name == TABLE).inputs
    schema = p.declaration.stream("seed").arrow_schema
    for number, first in enumerate(range(0, keys, 250_000)):
        rows = _numbers(np.arange(first, min(first + 250_000, keys)), first).cast(schema)
        marker, path = b"load/%012d" % number, p.home.path / f"{number}.run"
        write_run(path, [source.map_side(each).rows for each in rows.combine_chunks().to_batches()], marker)
        own.ingest([path], marker)
    runner.close()


def _merge(session: Any, sizes: Sizes, stored: int) -> dict[str, float]:
    """Seconds of a firing against so many stored keys, and of reading them all."""
    walls, cpus = [], []
    random = np.random.default_rng(SEED_OF_KEYS)
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as home:
        p = _merging(home)
        _fill(p, stored)
        with _lane(p, session) as lane:
            for number in range(sizes.rounds):
                table = _numbers(random.integers(0, stored, sizes.new), number * sizes.new)
                gc.collect()
                cpu, began = _cpu(), time.perf_counter()
                _append(p, "numbers", table)
                until_idle(lane)
                walls.append(time.perf_counter() - began)
                cpus.append(_cpu() - cpu)
        last = p.results("met").rows()[-100:]
        _expect("what is stored", [row["before"] for row in last], [row["k"] % 250_000 % 1000 for row in last])
        all_seconds = _read_all(p, stored)
    return {
        "seconds": statistics.median(walls[sizes.rounds // 3 :]),
        "cpu_seconds": statistics.median(cpus[sizes.rounds // 3 :]),
        "all_seconds": all_seconds,
    }


def _read_all(p: hy.Pipeline, expected: int) -> float:
    from hayase.tables.job_tables import StoredTable

    stored = StoredTable(p.declaration.table(TABLE), p.home.table(TABLE))
    began = time.perf_counter()
    found = sum(1 for _ in stored.all())
    seconds = time.perf_counter() - began
    _expect("stored keys", found, expected)
    return seconds
