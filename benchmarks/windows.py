"""Shared windows: cost per tuple against window sizes, beside the baselines; mixed sizes; the kernel beside a bare pass.

figure 3     slide 2, W = {10, 13, 19, 40} times 1, 2, 5, 10, 20, 50; sum and max of a synthetic sensor field; beside
             recomputation, two stacks per query and panes alone, which get fewer records where they are slow
mixed sizes  {1, 7, 1,000,000} against {10, 13, 19, 40}, slide 2
kernel       sum and max over {10, 13, 19, 40}, slide 2: tuples per second, nanoseconds per tuple and window (both
             aggregates), and what a bare pass (NumPy's sum and max of the same array) takes
many         100 windows up to 100,000 rows with slide 1,000, against one; also on Spark, in one statement, beside ten
             queries (`windows_lane`)
bounds       sessions, tumbling and hopping windows of 10,000 keys (`bounded_windows`)
first rows   the top 100 of 1,000,000 keys whose values change (`top_rows`)

Records are pushed 65,536 at a time; all on one core, in CPU time, the least of several runs in turn. Sums of floats keep
what rounding cuts off; those of the baselines do not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bounded_windows import million_records_per_second
from benchmarks.measure import alternate, pin
from benchmarks.top_rows import changes_per_second
from benchmarks.window_baselines import BASELINES
from benchmarks.windows_lane import on_spark
from hayase.windows.shared import SharedWindows, Window

SEED = 7
LENGTHS = (10, 13, 19, 40)
FACTORS = (1, 2, 5, 10, 20, 50)
SLIDE = 2
BATCH = 65_536
AGGREGATES = ("sum", "max")
COMBINES = 40_000_000
"""What a baseline may do in one run: it gets as many records as that is enough for."""


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Measure, draw into `out`, and return plain data."""
    lane = on_spark(200_000, 1) if quick else on_spark(5_000_000, 2)
    pin(1)
    out.mkdir(parents=True, exist_ok=True)
    records, rounds = (1_000_000, 3) if quick else (10_000_000, 5)
    field = sensor_field(records)
    flat = _figure(field, rounds)
    mixes = {"{10, 13, 19, 40}": _windows(1), "{1, 7, 1,000,000}": [Window(each, SLIDE) for each in (1, 7, 1_000_000)]}
    mixed = _least(rounds, {name: _shared(windows, field) for name, windows in mixes.items()})
    counts = field.astype(np.int32)
    kernel = _least(
        rounds + 2,
        {
            "floats": _shared(_windows(1), field),
            "integers": _shared(_windows(1), counts),
            "bare pass": lambda: _per_tuple(lambda: (field.sum(), field.max()), records),
        },
    )
    many = _least(
        rounds,
        {
            "1 window": _shared([Window(100_000, 1000)], field),
            "100 windows": _shared([Window(each * 1000, 1000) for each in range(1, 101)], field),
        },
    )
    bounded = million_records_per_second(1_000_000 if quick else 5_000_000, rounds)
    top = changes_per_second(5 if quick else 20)[1]
    picture = draw(out / "windows.png", flat)
    return {
        "records": records,
        "figure_3_ns_per_tuple": flat,
        "mixed_ns_per_tuple": mixed,
        "kernel_ns_per_tuple": kernel,
        "kernel_ns_per_tuple_and_window": {name: kernel[name] / len(LENGTHS) for name in ("floats", "integers")},
        "many_ns_per_tuple": many,
        "bounds_million_records_per_second": bounded,
        "top_100_changes_per_second": top,
        "on_spark": lane,
        "picture": str(picture),
        "ratios": {
            **lane["ratios"],
            "time per tuple, windows times 50 to times 1 (at most 1.2)": flat["shared"]["50"] / flat["shared"]["1"],
            "time per tuple, {1, 7, 1,000,000} to {10, 13, 19, 40} (at most 3)": mixed["{1, 7, 1,000,000}"]
            / mixed["{10, 13, 19, 40}"],
            "million tuples per second, sum and max of floats (at least 50)": 1000 / kernel["floats"],
            "million tuples per second, sum and max of integers (at least 50)": 1000 / kernel["integers"],
            "time per tuple, all answers to a bare pass": kernel["floats"] / kernel["bare pass"],
            "time per tuple, 100 windows to 1": many["100 windows"] / many["1 window"],
            "million records per second, 10,000 session keys (at least 1)": bounded["sessions, gap 30 ms"],
            "changes per second, top 100 of 1,000,000 keys (at least 200,000)": top,
            **{
                f"time per tuple at times 50, {name} to shared": flat[name]["50"] / flat["shared"]["50"]
                for name in BASELINES
            },
        },
    }


def sensor_field(records: int) -> np.ndarray:
    """A reading that drifts, swings and jitters, in steps of the converter, as floats."""
    random = np.random.default_rng(SEED)
    drift = np.cumsum(random.normal(0, 0.5, records))
    swing = 2000 * np.sin(np.arange(records) * (2 * np.pi / 10_000))
    return np.round(8000 + drift + swing + random.normal(0, 40, records)) + 0.0


def _windows(factor: int) -> list[Window]:
    return [Window(length * factor, SLIDE) for length in LENGTHS]


def _per_tuple(action: Callable[[], object], records: int) -> float:
    began = time.process_time()
    action()
    return (time.process_time() - began) * 1e9 / records


def _shared(windows: Sequence[Window], field: np.ndarray) -> Callable[[], float]:
    """Nanoseconds per tuple of a run over the field; one kernel goes on from run to run, so that windows are full."""
    shared = SharedWindows(windows, AGGREGATES)
    batches = np.split(field, range(BATCH, len(field), BATCH))

    def measured() -> float:
        return _per_tuple(lambda: [shared.push(batch) and None for batch in batches], len(field))

    return measured


def _baseline(name: str, windows: Sequence[Window], field: np.ndarray) -> Callable[[], float]:
    lengths = sum(each.length for each in windows)
    cost = {"recompute": lengths / SLIDE, "two stacks per query": 3 * len(windows), "panes alone": lengths / SLIDE}[
        name
    ]
    part = field[: min(len(field), int(COMBINES / cost))]

    def measured() -> float:
        return _per_tuple(lambda: [BASELINES[name](windows, each, part) for each in AGGREGATES], len(part))

    return measured


def _least(rounds: int, variants: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """The least of several runs in turn."""
    return {name: min(each) for name, each in alternate(rounds, variants).items()}


def _figure(field: np.ndarray, rounds: int) -> dict[str, dict[str, float]]:
    """All sizes and all ways in turn, so that whatever else the machine does meets all of them alike."""
    variants = {f"shared x {factor}": _shared(_windows(factor), field) for factor in FACTORS}
    for name in BASELINES:
        variants |= {f"{name} x {factor}": _baseline(name, _windows(factor), field) for factor in FACTORS}
    least = _least(rounds, variants)
    return {name: {str(factor): least[f"{name} x {factor}"] for factor in FACTORS} for name in ("shared", *BASELINES)}


def draw(path: Path, flat: Mapping[str, Mapping[str, float]]) -> Path:
    """Draw the time per tuple of every method against the size of the windows."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5))
    for name, times in flat.items():
        axes.plot(FACTORS, [times[str(factor)] for factor in FACTORS], marker="o", label=name)
    axes.set(
        title="Sum and max over windows of {10, 13, 19, 40} times k, slide 2", xlabel="k",
        ylabel="nanoseconds per tuple", xscale="log", yscale="log",
    )  # fmt: skip
    axes.set_xticks(FACTORS, [str(factor) for factor in FACTORS])
    axes.set_ylim(bottom=1)
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
