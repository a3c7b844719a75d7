"""Growth: what a batch, a start, memory and disk cost as one thing after the other grows in a home.

For every thing that can grow (keys, rows in a window, streams, stages, segments, batches, dead letters, definitions) homes of three
sizes are prepared. A process of its own opens each of them and runs batches of the same records in process, without Spark. It says
how long the start and a batch take, how much memory it needed, and how much the disk holds. A line that is flat has a ratio near 1
from the smallest size to the largest.
"""

from __future__ import annotations

import multiprocessing
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.measure import median, seconds_of
from hayase.core.clock import now_us
from hayase.engine.local import InProcess
from hayase.pipeline import Pipeline
from hayase.streams.durable import without_syncs

__all__ = ["run"]

RECORDS = 1_000
"""Records of a measured batch."""
BATCHES = 7
SCHEMA = "at timestamp, key bigint, n bigint"
SPEND = "select key, sum(n) as total, count(*) as records from events group by key"
FLAT = 1.5
"""A batch may take that much longer in the largest home than in the smallest."""


@dataclass(frozen=True)
class Growth:
    """Something that grows: its sizes, how a home of a size is prepared, and the queries and streams of its pipeline."""

    unit: str
    sizes: tuple[int, int, int]
    prepare: Callable[[Pipeline, int], None]
    declare: Callable[[Pipeline, int], None]
    note: str = ""


# ---------------------------------------------------------------------------------------------------- what grows


def _spend(pipeline: Pipeline, size: int) -> None:
    pipeline.query("spend", SPEND)


def _append(pipeline: Pipeline, keys: np.ndarray[Any, Any], first: int) -> None:
    """Append a record for each key, one a microsecond, from the given place on."""
    times = pa.array(np.arange(first, first + len(keys)), pa.int64()).cast(pa.timestamp("us", "UTC"))
    pipeline.append(
        "events", pa.table({"at": times, "key": pa.array(keys, pa.int64()), "n": pa.array(keys, pa.int64())})
    )


def _run(pipeline: Pipeline) -> None:
    pipeline.run_until_idle(spark=False)


def _keys(pipeline: Pipeline, size: int) -> None:
    for first in range(0, size, 200_000):
        _append(pipeline, np.arange(first, min(size, first + 200_000)), first)
    _run(pipeline)


def _window(pipeline: Pipeline, size: int) -> None:
    pipeline.query(
        "spend", f"select key, sum(n) as total, max(n) as most from events [Range {size} microseconds] group by key"
    )


def _rows(pipeline: Pipeline, size: int) -> None:
    for first in range(0, size, 200_000):
        _append(pipeline, np.arange(first, min(size, first + 200_000)) % 1_000, first)
    _run(pipeline)


def _few(pipeline: Pipeline, size: int) -> None:
    _append(pipeline, np.arange(1_000), 0)
    _run(pipeline)


def _streams(pipeline: Pipeline, size: int) -> None:
    for number in range(size - 1):
        pipeline.stream(f"other{number}", SCHEMA, time="at")
    pipeline.query("spend", SPEND)


def _stages(pipeline: Pipeline, size: int) -> None:
    for number in range(size):
        pipeline.query(f"spend{number}", SPEND.replace("sum(n)", f"sum(n + {number})"))


def _segments(pipeline: Pipeline, size: int) -> None:
    for number in range(size):
        _append(pipeline, np.arange(10), 10 * number)
    _run(pipeline)


def _batches(pipeline: Pipeline, size: int) -> None:
    for number in range(size):
        _append(pipeline, np.arange(10), 10 * number)
        _run(pipeline)


def _letters(pipeline: Pipeline, size: int) -> None:
    """Dead letters of the append: numbers that are none."""
    for first in range(0, size, 50_000):
        count = min(50_000, size - first)
        pipeline.append("events", [{"at": "2026-01-01T00:00:00Z", "key": 1, "n": "many"}] * count)
    _few(pipeline, size)


def _definitions(pipeline: Pipeline, size: int) -> None:
    for number in range(size):
        pipeline.query("other", f"select key from events where n = {number}")
        pipeline.apply()
    _few(pipeline, size)


GROWTHS: Mapping[str, Growth] = {
    "keys": Growth("live keys", (10_000, 100_000, 1_000_000), _keys, _spend),
    "window": Growth("rows in a window", (10_000, 100_000, 1_000_000), _rows, _window),
    "streams": Growth("streams", (10, 100, 1_000), _few, _streams),
    "stages": Growth(
        "stages", (1, 10, 100), _few, _stages, "each stage computes its own sums: the work grows as they do"
    ),
    "segments": Growth("appends", (100, 1_000, 5_000), _segments, _spend),
    "batches": Growth("batches", (50, 200, 1_000), _batches, _spend),
    "letters": Growth("dead letters", (1_000, 100_000, 1_000_000), _letters, _spend),
    "definitions": Growth("definitions", (10, 100, 1_000), _definitions, _spend),
}


# ---------------------------------------------------------------------------------------------------- measuring


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Measure every growth; with `quick`, at a tenth of the sizes."""
    measured = {name: _measure(growth, quick) for name, growth in GROWTHS.items()}
    draw(measured, out / "growth.png")
    return {
        "growth": measured,
        "ratios": {
            f"{GROWTHS[name].unit}, {points[0]['size']:,} to {points[-1]['size']:,}: {what}": points[-1][key]
            / points[0][key]
            for name, points in measured.items()
            for key, what in (
                ("batch_seconds", f"seconds of a batch (at most {FLAT})"),
                ("start_seconds", "seconds of a start"),
                ("memory_bytes", "memory"),
            )
        },
        "notes": {name: growth.note for name, growth in GROWTHS.items() if growth.note},
        "picture": str(out / "growth.png"),
    }


def _measure(growth: Growth, quick: bool) -> list[dict[str, float]]:
    spawn = multiprocessing.get_context("spawn")
    points = []
    for size in growth.sizes:
        size = max(1, size // 10) if quick else size
        with tempfile.TemporaryDirectory(prefix="hayase-growth-") as directory, without_syncs():
            home = Path(directory) / "home"
            pipeline = _declared(home, growth, size)
            growth.prepare(pipeline, size)
            disk = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
            with spawn.Pool(1) as pool:
                name = next(name for name, each in GROWTHS.items() if each is growth)
                point = pool.apply(_point, (name, str(home), size))
            points.append({"size": size, "disk_bytes": disk, **point})
            shutil.rmtree(home, ignore_errors=True)
    return points


def _declared(home: Path, growth: Growth, size: int) -> Pipeline:
    pipeline = Pipeline("growth", home=home)
    pipeline.stream("events", SCHEMA, time="at")
    growth.declare(pipeline, size)
    return pipeline


def _point(name: str, home: str, size: int) -> dict[str, float]:
    """Open a home in this process, run batches, and say what that costs."""
    growth = GROWTHS[name]
    first = 10 * max(growth.sizes)
    began = time.perf_counter()
    pipeline = _declared(Path(home), growth, size)
    if name == "definitions":  # the last of them
        pipeline.query("other", f"select key from events where n = {size - 1}")
    pipeline.apply()
    took = []
    with pipeline.home.lock(), closing(InProcess(pipeline.home, now_us)) as lanes:
        _append(pipeline, np.arange(RECORDS) % 997, first)
        lanes.run_until_idle()
        start = time.perf_counter() - began
        for number in range(1, BATCHES + 1):
            _append(pipeline, np.arange(RECORDS) % 997, first + RECORDS * number)
            took.append(seconds_of(lanes.run_until_idle))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"start_seconds": start, "batch_seconds": median(took), "memory_bytes": float(memory)}


def draw(measured: Mapping[str, list[dict[str, float]]], path: Path) -> Path:
    """Draw each cost over how much there is, as a multiple of that of the smallest home."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    costs = (("batch_seconds", "batch"), ("start_seconds", "start"), ("memory_bytes", "memory"), ("disk_bytes", "disk"))
    figure, axes = plt.subplots(1, len(costs), figsize=(15, 4.2))
    for axis, (key, title) in zip(axes, costs):
        for name, points in measured.items():
            sizes = [point["size"] / points[0]["size"] for point in points]
            axis.plot(sizes, [point[key] / points[0][key] for point in points], marker="o", label=GROWTHS[name].unit)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_title(f"{title}, to the smallest")
        axis.set_xlabel("times as much")
        axis.grid(visible=True, alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
