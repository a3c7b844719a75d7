"""Latency: 10,000 events a second through one stage, from append to visible result, after a minute of warm-up."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hayase import Pipeline
from hayase.engine.spark.runner import run_lanes
from hayase.engine.spark.session import local_master, open_session
from hayase.streams import StreamLog

RATE, PER_APPEND = 10_000, 100
TOTALS = "select k, count(*) as n, sum(x) as total from events group by k"


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Append at a steady rate in one process, run the lane in this one, follow the results in a third."""
    warm_up, measured = (10.0, 10.0) if quick else (60.0, 60.0)
    session = open_session(local_master(2))
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as home:
        p = Pipeline("latency", home=home)
        p.stream("events", "time bigint, k bigint, x double", time="time", time_unit="us")
        p.query("totals", TOTALS)
        p.apply()
        results: multiprocessing.Queue[list[tuple[int, int]]] = multiprocessing.get_context("spawn").Queue()
        with run_lanes(p.home, session=session, awake=True) as lane:
            spawn = multiprocessing.get_context("spawn")
            began = time.time()
            writer = spawn.Process(target=_write, args=(home, began, warm_up + measured), daemon=True)
            reader = spawn.Process(target=_follow, args=(home, began + warm_up, measured, results), daemon=True)
            writer.start()
            reader.start()
            while reader.is_alive() and results.empty():
                lane.check()
                time.sleep(0.05)
            seen = results.get(timeout=60)
            writer.join(timeout=30)
    session.stop()
    waits = np.repeat([seconds for seconds, _ in seen], [count for _, count in seen]) / 1e6
    p50, p99 = (float(np.percentile(waits, each)) for each in (50, 99))
    draw(waits, out / "latency.png")
    return {
        "events": int(sum(count for _, count in seen)),
        "events_per_second": RATE,
        "p50_seconds": p50,
        "p99_seconds": p99,
        "largest_seconds": float(waits.max()),
        "ratios": {"p50 to half a second (at most 1)": p50 / 0.5, "p99 to p50": p99 / p50},
    }


def _write(home: str, began: float, seconds: float) -> None:
    """Append `PER_APPEND` events at a time, each with the moment of its append as its event time."""
    log = StreamLog.open(Path(home), "events")
    random = np.random.default_rng(1)
    step = PER_APPEND / RATE
    for number in range(int(seconds / step)):
        due = began + number * step
        if (ahead := due - time.time()) > 0:
            time.sleep(ahead)
        now = time.time_ns() // 1000
        keys, values = random.integers(0, 1000, PER_APPEND), random.random(PER_APPEND)
        log.append(pa.table({"time": np.full(PER_APPEND, now), "k": keys, "x": values}), now=now)
    log.finish()


def _follow(home: str, since: float, seconds: float, results: Any) -> None:
    """Read the results as they are published: (microseconds from append to here, how many events)."""
    log = StreamLog.open(Path(home), "totals")
    seen: list[tuple[int, int]] = []
    at = 0
    while time.time() < since + seconds:
        end = log.index().next
        if end == at:
            time.sleep(0.001)
            continue
        now = time.time_ns() // 1000
        for piece in log.read(at, end):
            changed, since_when = (piece.rows.column(name).to_numpy() for name in ("changed_at", "valid_from"))
            moments, counts = np.unique(changed[changed == since_when], return_counts=True)  # rows that appear
            inside = moments >= since * 1e6
            seen += zip((now - moments[inside]).tolist(), counts[inside].tolist())
        at = end
    results.put(seen)


def draw(waits: np.ndarray, path: Path) -> None:
    """Draw which share of the events was visible after how many seconds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.5))
    ordered = np.sort(waits)
    axes.plot(ordered, np.arange(1, len(ordered) + 1) / len(ordered))
    axes.set(xlabel="seconds from append to visible result", ylabel="share of events", title="latency, 10,000 events/s")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
