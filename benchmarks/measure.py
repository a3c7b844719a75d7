"""Measuring and drawing, for all benchmarks: alternating repetitions, rates per second, the disk's own limit."""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil

__all__ = [
    "Steps",
    "alternate",
    "cpu_seconds",
    "draw_rates",
    "fsynced_bytes_per_second",
    "median",
    "pin",
    "seconds_of",
    "until_idle",
    "warm_lane",
]

T = TypeVar("T")


def pin(core: int) -> None:
    """Keep this process on one core, if there are that many."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[core % len(cores)]})


def median(values: Sequence[float]) -> float:
    """The median; of nothing, not a number."""
    return float(statistics.median(values)) if values else float("nan")


def seconds_of(action: Callable[[], object]) -> float:
    """How long something takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def cpu_seconds() -> float:
    """What this process and all below it have used, with those that have ended."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # its time is in that of its parent
            total += sum(process.cpu_times()[:4])
    return total


def until_idle(lane: Any, patience: float = 900.0) -> None:
    """Wait until a lane has done all there is."""
    until = time.monotonic() + patience
    while not lane.is_idle():
        lane.check()
        if time.monotonic() > until:
            raise TimeoutError("the lane did not become idle")
        time.sleep(0.005)


@contextlib.contextmanager
def warm_lane(pipeline: Any, session: Any) -> Iterator[Any]:
    """A pipeline that runs, with everything up: its first batch, without data, is over."""
    from hayase.engine.spark.runner import run_lanes

    pipeline.apply()
    begun = threading.Event()
    with run_lanes(pipeline.home, session=session, awake=True, on_commit=lambda manifest: begun.set()) as lane:
        while not begun.wait(0.01):
            lane.check()
        until_idle(lane)
        yield lane


def alternate(repetitions: int, variants: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """Run the variants in turn, forwards and backwards, so that a drift of the machine meets all of them alike."""
    results: dict[str, list[T]] = {name: [] for name in variants}
    for repetition in range(repetitions):
        names = list(variants) if repetition % 2 == 0 else list(variants)[::-1]
        for name in names:
            results[name].append(variants[name]())
    return results


@dataclass(frozen=True)
class Steps:
    """When each of many equal steps ended, in seconds from the start, and how much each one did."""

    ends: Sequence[float]
    amount: float

    def per_second(self) -> list[float]:
        """The amount in every whole second; a step that spans two is shared out between them."""
        ends = np.asarray([0.0, *self.ends])
        done = np.arange(len(ends)) * self.amount
        return [float(each) for each in np.diff(np.interp(np.arange(int(ends[-1]) + 1), ends, done))]

    def rate(self) -> float:
        """The amount per second over all."""
        return len(self.ends) * self.amount / self.ends[-1]


def fsynced_bytes_per_second(directory: Path, data: bytes, seconds: float, kept: int = 64) -> float:
    """What the disk takes of files with that content, each synced, renamed and its directory synced; `kept` of them stay."""
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    files: list[Path] = []
    began = time.perf_counter()
    try:
        while time.perf_counter() - began < seconds:
            draft, path = directory / "limit.tmp", directory / f"limit-{len(files)}"
            descriptor = os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
            try:
                os.write(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            draft.rename(path)
            os.fsync(folder)
            files.append(path)
            if len(files) >= kept:  # as a log with a retention does
                files[len(files) - kept].unlink()
        return len(files) * len(data) / (time.perf_counter() - began)
    finally:
        os.close(folder)
        for path in files:
            path.unlink(missing_ok=True)


def draw_rates(path: Path, title: str, unit: str, runs: Mapping[str, Sequence[Sequence[float]]]) -> Path:
    """Draw the amount in every second: one colour per variant, one line per repetition."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 4.5))
    for number, (name, repetitions) in enumerate(runs.items()):
        for at, values in enumerate(repetitions):
            seconds: list[Any] = list(range(1, len(values) + 1))
            axes.plot(seconds, values, color=f"C{number}", alpha=0.8, linewidth=1.4, label=name if at == 0 else None)
    axes.set(title=title, xlabel="second", ylabel=unit)
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
