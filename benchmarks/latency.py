"""Latency: from append to visible result at several rates, after a warm-up, and where the time of a batch goes, hop by hop."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.measure import cpu_seconds, median
from hayase import Pipeline
from hayase.core.timeline import VARIABLE, hops_in
from hayase.engine.spark.class_archive import JAVA_OPTIONS
from hayase.engine.spark.runner import run_lanes
from hayase.engine.spark.session import local_master, open_session
from hayase.streams import StreamLog

TOTALS = "select k, count(*) as n, sum(x) as total from events group by k"
TARGETS = {"idle": (0.12, None), "10,000 events/s": (None, None), "50,000 events/s": (0.15, 0.35)}
"""Seconds at most for the median and the 99th percentile, by load."""
PHASES = {
    "offset log (Spark)": "tasks asked",
    "planning (Spark)": "batch handed over",
    "job start (Spark)": "map begins",
    "map side": "map ends",
    "shuffle (Spark)": "messages read",
    "kernels": "kernels ran",
    "staged files": "reduce ends",
    "collect (Spark)": "reports collected",
    "directory syncs": "directories synced",
    "manifest": "manifest renamed",
    "publish": "outputs published",
    "notify": "batch notified",
    "commit log (Spark)": "planner asked",
}
"""The phases of a batch in their order, each with the hop that ends it. A batch begins when it is planned."""


class Load(NamedTuple):
    """A steady rate: so many events in each append, so many seconds between appends."""

    name: str
    events: int
    every: float
    seconds: float


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Append at steady rates in one process, run the lane in this one, follow the results in a third."""
    measured = 8.0 if quick else 60.0
    loads = [
        Load("warm-up", 500, 0.01, 12.0 if quick else 60.0),
        Load("idle", 1, 0.5, measured),
        Load("10,000 events/s", 100, 0.01, measured),
        Load("50,000 events/s", 500, 0.01, measured),
    ]
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as directory:
        began, seen, spark_phases, cpu = _run(Path(directory), loads)
        hops = hops_in(Path(directory) / "timeline")
    bounds = [began + seconds for seconds in accumulate((load.seconds for load in loads), initial=0.0)]
    offset = time.time() - time.monotonic()
    results, waits = {}, {}
    for load, (first, last) in list(zip(loads, pairwise(bounds)))[1:]:
        waits[load.name] = _waits(seen, first, last)
        results[load.name] = {
            **_percentiles(waits[load.name]),
            "cpu_seconds_per_second": (cpu[last] - cpu[first]) / load.seconds,
            **_breakdown(batch_phases(hops, first - offset, last - offset)),
            "spark_milliseconds": _medians([told for at, told in spark_phases if first <= at < last]),
        }
    draw(waits, out / "latency.png")
    draw_phases({name: told["phases"] for name, told in results.items()}, out / "latency-phases.png")
    ratios = {
        f"{name}: {label} to {limit:g} s (at most 1)": results[name][key] / limit
        for name, limits in TARGETS.items()
        for label, key, limit in zip(("median", "99th percentile"), ("p50_seconds", "p99_seconds"), limits)
        if limit is not None
    }
    shares = {f"{name}: share of a batch that is Spark's own": told["spark_share"] for name, told in results.items()}
    return {"loads": results, "ratios": ratios | shares}


def _run(
    directory: Path, loads: Sequence[Load]
) -> tuple[float, list[tuple[int, int, int]], list[tuple[float, Mapping[str, int]]], dict[float, float]]:
    """Run all loads; return when they began, the results that were seen, the durations that Spark tells of each batch with the time
    of its end, and the CPU seconds of all processes of the lane at the bounds of the loads."""
    (directory / "timeline").mkdir()
    os.environ[VARIABLE] = str(directory / "timeline")
    java_options = os.environ.get("JAVA_OPTIONS")
    session = open_session(local_master(2), settings={} if java_options is None else {JAVA_OPTIONS: java_options})
    home = directory / "home"
    p = Pipeline("latency", home=home)
    p.stream("events", "time bigint, k bigint, x double", time="time", time_unit="us")
    p.query("totals", TOTALS)
    p.apply()
    spawn = multiprocessing.get_context("spawn")
    results: Any = spawn.Queue()
    progress: dict[int, tuple[float, Mapping[str, int]]] = {}
    with run_lanes(p.home, session=session, awake=True) as lane:
        began = time.time() + 3.0
        bounds = [began + seconds for seconds in accumulate((load.seconds for load in loads), initial=0.0)]
        cpu: dict[float, float] = {}
        processes = [
            spawn.Process(target=_write, args=(home, began, loads), daemon=True),
            spawn.Process(target=_follow, args=(home, bounds[-1], results), daemon=True),
        ]
        for process in processes:
            process.start()
        while processes[1].is_alive() and results.empty():
            lane.check()
            for query in session.streams.active:
                told = [(each.batchId, each.numInputRows, each.durationMs) for each in query.recentProgress[-20:]]
                progress |= {number: (time.time(), spent) for number, rows, spent in told if number not in progress}
            cpu |= {bound: cpu_seconds() for bound in bounds if bound <= time.time() and bound not in cpu}
            time.sleep(0.2)
        seen = results.get(timeout=60)
        cpu |= {bound: cpu_seconds() for bound in bounds if bound not in cpu}
        processes[0].join(timeout=30)
    session.stop()
    del os.environ[VARIABLE]
    return began, seen, list(progress.values()), cpu


def _write(home: Path, began: float, loads: Sequence[Load]) -> None:
    """Append events whose event time is the moment of their append, an even number of microseconds. While a stream is idle, another
    event follows in the same append, one microsecond later: a result is visible once the stream's clock has passed it."""
    log = StreamLog.open(home, "events")
    random = np.random.default_rng(1)
    due = began
    for load in loads:
        marker = load.every > 0.1
        for _ in range(round(load.seconds / load.every)):
            if (ahead := due - time.time()) > 0:
                time.sleep(ahead)
            due += load.every
            now = time.time_ns() // 2000 * 2
            count = load.events + marker
            times = np.full(count, now)
            times[load.events :] += 1
            log.append(
                pa.table({"time": times, "k": random.integers(0, 1000, count), "x": random.random(count)}), now=now
            )
    log.finish()


def _follow(home: Path, until: float, results: Any) -> None:
    """Read the results as they are published: when the events were appended, when they were seen (microseconds), and how many."""
    log = StreamLog.open(home, "totals")
    seen: list[tuple[int, int, int]] = []
    at = 0
    while time.time() < until + 0.5:
        end = log.index().next
        if end == at:
            time.sleep(0.001)
            continue
        now = time.time_ns() // 1000
        for piece in log.read(at, end):
            changed, since_when = (piece.rows.column(name).to_numpy() for name in ("changed_at", "valid_from"))
            moments, counts = np.unique(changed[changed == since_when], return_counts=True)  # rows that appear
            even = moments % 2 == 0
            seen += [(moment, now, count) for moment, count in zip(moments[even].tolist(), counts[even].tolist())]
        at = end
    results.put(seen)


def _waits(seen: Sequence[tuple[int, int, int]], first: float, last: float) -> np.ndarray:
    """Return the seconds from append to visible result of all events that were appended between two times."""
    chosen = [(now - moment, count) for moment, now, count in seen if first * 1e6 <= moment < last * 1e6]
    return np.repeat([waited for waited, _ in chosen], [count for _, count in chosen]) / 1e6


def _percentiles(waits: np.ndarray) -> dict[str, float]:
    p50, p99 = (float(np.percentile(waits, each)) for each in (50, 99))
    return {"events": len(waits), "p50_seconds": p50, "p99_seconds": p99, "largest_seconds": float(waits.max())}


def batch_phases(hops: Sequence[tuple[float, str]], first: float, last: float) -> list[dict[str, float]]:
    """Return the seconds of each phase of every batch that was planned between two times and notified.

    A hop that several tasks reach ends its phase with the last of them; the first map task begins the map side. A phase whose hop
    is missing took no time.
    """
    times = [moment for moment, _ in hops]
    planned = [moment for moment, hop in hops if hop == "batch planned" and first <= moment < last]
    batches = []
    for begin in planned:
        after = hops[bisect_right(times, begin) :]
        end = next((number for number, (_, hop) in enumerate(after) if hop == "planner asked"), None)
        reached: dict[str, float] = {}
        for moment, hop in after[: None if end is None else end + 1]:
            reached[hop] = reached.get(hop, moment) if hop in ("map begins", "tasks asked") else moment
        if "batch notified" not in reached or "planner asked" not in reached:
            continue
        batch, before = {}, begin
        for phase, hop in PHASES.items():
            moment = max(before, reached.get(hop, before))
            batch[phase], before = moment - before, moment
        batches.append(batch)
    return batches


def _breakdown(batches: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the median of each phase, and of whole batches; which share of them is Spark's own work."""
    phases = _medians(batches)
    whole = [sum(batch.values()) for batch in batches]
    spark = [sum(seconds for phase, seconds in batch.items() if "(Spark)" in phase) for batch in batches]
    return {
        "batches": len(batches),
        "batch_seconds": median(whole),
        "spark_seconds": median(spark),
        "spark_share": median([part / total for part, total in zip(spark, whole)]),
        "phases": phases,
    }


def _medians(told: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for each in told for name in each)
    return {name: median([each.get(name, 0.0) for each in told]) for name in names}


def draw(waits: Mapping[str, np.ndarray], path: Path) -> None:
    """Draw which share of the events was visible after how many seconds, with a line for each load."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.5))
    for name, values in waits.items():
        axes.plot(np.sort(values), np.arange(1, len(values) + 1) / len(values), label=name)
    axes.set(xlabel="seconds from append to visible result", ylabel="share of events", title="latency")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_phases(phases: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Draw a bar of the phases of a batch for each load: the median of each phase, one after the other."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(11, 3.6))
    left = dict.fromkeys(phases, 0.0)
    for number, phase in enumerate(PHASES):
        widths = [1000 * told.get(phase, 0.0) for told in phases.values()]
        axes.barh(list(phases), widths, left=list(left.values()), label=phase, color=plt.colormaps["tab20"](number))
        left = {name: left[name] + width for name, width in zip(phases, widths)}
    axes.set(xlabel="milliseconds", title="a batch, from its plan to the next plan (medians)")
    axes.legend(fontsize="x-small", ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    axes.grid(alpha=0.3, axis="x")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
