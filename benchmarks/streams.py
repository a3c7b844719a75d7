"""`bench streams`: does a continuous reader slow the writer of a log down, and how fast is `format("hayase")`?

Log lines of 300 bytes with a timestamp are appended 10,000 at a time, every append durable before the next begins. The
writer has one core; a reader that follows the log and touches every byte, if there is one, has another. What was read
is deleted as it goes, in both variants, by a third process. Then Spark reads the same lines from a stream and from
Parquet, by an aggregate over all columns and into its `noop` sink. Seed: 7.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from benchmarks.measure import Steps, alternate, draw_rates, fsynced_bytes_per_second, median, pin, seconds_of
from hayase.core.declarations import Retention, StreamDeclaration
from hayase.streams import StreamLog

__all__ = ["run"]

LINE = 300
ROWS = 10_000
KEPT = 256 * 2**20
STREAM = StreamDeclaration("lines", "time timestamp, line string", "time", retention=Retention(size=KEPT))
START = 1_767_225_600_000_000
LOOK = 0.004
"""Seconds between two looks of a reader that has read everything: as often as a lane looks."""


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Measure, draw into `out`, and return plain data (see the package)."""
    out.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="hayase-bench-", dir=out))  # on the disk of `out`, not in a memory file system
    try:
        appends = _appending(place, seconds=6 if quick else 20, repetitions=2 if quick else 5)
        reads = _reading(place, rows=40 * ROWS if quick else 400 * ROWS, repetitions=3 if quick else 7)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    picture = draw_rates(out / "streams.png", "Appending 300-byte lines, 10,000 at a time", "rows/s", appends.seconds)
    return {
        "ratios": {**appends.ratios, **reads.ratios},
        "figures": {**appends.figures, **reads.figures},
        "notes": [
            "with a reader to without: the median over pairs of neighbouring runs",
            "bare synced writes: files of the same size written, synced, renamed, their directory synced, between the runs",
            "every append is durable (two syncs) before the next begins; the first second of a run is left out",
        ],
        "pictures": [str(picture)],
    }


@dataclass(frozen=True)
class _Part:
    ratios: dict[str, float]
    figures: dict[str, float]
    seconds: dict[str, list[list[float]]]


def lines(rows: int, seed: int) -> pa.Array:
    """Lines like those of a web server, every one 300 bytes long."""
    random = np.random.default_rng(seed)
    levels, paths = ("INFO", "INFO", "INFO", "WARN", "ERROR"), ("cart", "checkout", "search", "item", "login", "admin")
    numbers = random.integers(0, 2**62, size=(rows, 6))
    texts = [
        f"{levels[a % 5]} host-{b % 64:02d} request={a:016x} session={b:016x} GET /shop/{paths[c % 6]}/{d % 100_000} "
        f"status={200 + e % 5 * 100} bytes={f % 1_000_000} ms={e % 3000} trace={c:016x}{d:016x} agent=Mozilla/5.0 "
        for a, b, c, d, e, f in numbers.tolist()
    ]
    return pa.array([(text + text)[:LINE] for text in texts], pa.string())


def _batches(count: int) -> Iterator[pa.Table]:
    """Batches without end, out of a few that were made ahead, with times that go on."""
    made = [lines(ROWS, 7 + number) for number in range(count)]
    steps = np.arange(ROWS, dtype=np.int64) * 10
    number = 0
    while True:
        times = pa.array(START + number * ROWS * 10 + steps).view(pa.timestamp("us", "UTC"))
        yield pa.table([times, made[number % count]], schema=STREAM.arrow_schema)
        number += 1


# -- appending --------------------------------------------------------------------------------------------------------
def _appending(place: Path, seconds: float, repetitions: int) -> _Part:
    limits: list[float] = []
    data = b"".join(each.as_py().encode() for each in lines(ROWS, 7)) + bytes(12 * ROWS)  # as large as a segment

    def measured(reader: bool) -> Callable[[], Steps]:
        def once() -> Steps:
            limits.append(fsynced_bytes_per_second(place, data, seconds / 5))
            return _append_once(place / "home", seconds, reader)

        return once

    runs = alternate(repetitions, {"without a reader": measured(False), "with a reader": measured(True)})
    rates = {name: [each.rate() for each in each_run] for name, each_run in runs.items()}
    series = {name: [each.per_second()[1:] for each in each_run] for name, each_run in runs.items()}
    slowest = {name: [min(each) / median(each) for each in values] for name, values in series.items()}
    alone, read = median(rates["without a reader"]), median(rates["with a reader"])
    pairs = [with_reader / without for with_reader, without in zip(rates["with a reader"], rates["without a reader"])]
    limit = median(limits)
    return _Part(
        ratios={
            "append with a reader to without (at least 0.9)": median(pairs),
            "slowest second to median second, with a reader (at least 0.8)": median(slowest["with a reader"]),
            "slowest second to median second, without a reader": median(slowest["without a reader"]),
            "append without a reader to bare synced writes of the same bytes": alone * len(data) / ROWS / limit,
        },
        figures={
            "append rows/s, without a reader": alone,
            "append rows/s, with a reader": read,
            "append MB/s, with a reader": read * LINE / 1e6,
            "bare synced writes MB/s": limit / 1e6,
            "slowest second to median second, with a reader, worst run": min(slowest["with a reader"]),
        },
        seconds=series,
    )


def _append_once(home: Path, seconds: float, reader: bool) -> Steps:
    """One run in fresh processes: writer on core 0; reader, and the one who deletes, on core 1."""
    shutil.rmtree(home, ignore_errors=True)
    os.sync()  # what was deleted before must not cost this run anything
    log = StreamLog.ensure(home, STREAM)
    context = multiprocessing.get_context("spawn")
    answer, ask = context.Pipe(duplex=False)
    seen, stop = context.Value("q", -1 if not reader else 0), context.Event()
    writer = context.Process(target=_write, args=(home, seconds, ask, stop, seen), name="writer")
    processes = [writer, context.Process(target=_trim, args=(home, seen, stop), name="trimmer")]
    if reader:
        processes.append(context.Process(target=_read, args=(home, seen, stop), name="reader"))
    for process in processes:
        process.start()
    try:
        while not answer.poll(0.2):
            _check_alive(processes, stop)
        ends: list[float] = answer.recv()
    finally:
        stop.set()
        for process in processes:
            process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError("a process of the benchmark failed; see above")
    if reader and seen.value != log.index().next:
        raise RuntimeError(f"the reader saw {seen.value} of {log.index().next} records")
    shutil.rmtree(home)
    return Steps(ends, ROWS)


def _check_alive(processes: list[Any], stop: Any) -> None:
    if any(process.exitcode not in (None, 0) for process in processes):
        stop.set()
        raise RuntimeError("a process of the benchmark failed; see above")


def _write(home: Path, seconds: float, ask: Any, stop: Any, seen: Any) -> None:
    pin(0)
    log = StreamLog.open(home, STREAM.name)
    batches = _batches(16)
    for _ in range(5):
        log.append(next(batches), now=START)
    while seen.value == 0 and not stop.is_set():  # a reader, if there is one, has begun
        time.sleep(LOOK)
    ends: list[float] = []
    began = time.perf_counter()
    while not ends or ends[-1] < seconds:
        log.append(next(batches), now=START)
        ends.append(time.perf_counter() - began)
    ask.send(ends)


def _read(home: Path, seen: Any, stop: Any) -> None:
    """Follow the log and touch every byte of it; at the end, read the rest."""
    pin(1)
    log = StreamLog.open(home, STREAM.name)
    at = total = 0
    while True:
        over = stop.is_set()
        end = log.index().next
        for piece in log.read(at, end):
            for column in piece.rows.columns:
                for buffer in column.buffers():
                    if buffer is not None:
                        total ^= xxhash.xxh3_64_intdigest(memoryview(buffer))
        if end == at:
            if over:
                return
            time.sleep(LOOK)
        at = end
        seen.value = at


def _trim(home: Path, seen: Any, stop: Any) -> None:
    """Delete what is too much and was read, so that the disk does not fill."""
    pin(1)
    log = StreamLog.open(home, STREAM.name)
    while not stop.wait(0.5):
        end = log.index().next
        log.trim(end if seen.value < 0 else seen.value, now=START)


# -- reading through Spark --------------------------------------------------------------------------------------------
def _reading(place: Path, rows: int, repetitions: int) -> _Part:
    home, parquet = place / "spark", str(place / "parquet")
    log = StreamLog.ensure(home, STREAM)
    batches = _batches(64)
    for _ in range(rows // ROWS):
        log.append(next(batches), now=START)
    with _session() as session:
        stream = session.read.format("hayase").load(str(log.path))
        stream.write.mode("overwrite").parquet(parquet)
        sources = {"hayase": stream, "parquet": session.read.parquet(parquet)}

        def aggregate(name: str) -> Callable[[], float]:
            def once() -> None:  # planned anew each time: Spark would keep the shuffle of the last one
                totals = sources[name].selectExpr("sum(length(line)) as bytes", "max(time) as latest")
                _expect(totals.collect()[0].bytes, rows * LINE)

            return lambda: seconds_of(once)

        def noop(name: str) -> Callable[[], float]:
            return lambda: seconds_of(lambda: sources[name].write.format("noop").mode("overwrite").save())

        variants = {f"{name}, aggregate": aggregate(name) for name in sources}
        variants |= {f"{name}, noop": noop(name) for name in sources}
        alternate(2, variants)  # warm up
        taken = alternate(repetitions, variants)
    speed = {name: rows / median(seconds) for name, seconds in taken.items()}
    return _Part(
        ratios={
            f'format("hayase") to Parquet, {way} (at least 0.5)': speed[f"hayase, {way}"] / speed[f"parquet, {way}"]
            for way in ("aggregate", "noop")
        },
        figures={f"read rows/s, {name}": figure for name, figure in speed.items()},
        seconds={},
    )


@contextmanager
def _session() -> Iterator[Any]:
    from hayase.engine.spark.session import open_session
    from hayase.spark import register

    session = open_session()
    try:
        register(session)
        yield session
    finally:
        session.stop()


def _expect(found: int, expected: int) -> None:
    if found != expected:
        raise RuntimeError(f"read {found} bytes of {expected}")
