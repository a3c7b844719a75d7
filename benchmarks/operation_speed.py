"""Operations beside plain processes: the records a second of a lane with a backlog, to what the same function reaches by itself.

Plain processes, as many as the lane has workers, call the function on records that they already have and keep what it
returns. They are measured before and after every run of the lane; the faster of both counts. A run of the lane lasts from
the append of the records to the commit of the last result.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from benchmarks import operation_functions as functions
from benchmarks.measure import median

__all__ = ["MILLISECONDS", "OF_TWO", "PlainProcesses", "measure_speed", "plain_processes", "ratios_of"]

MILLISECONDS = (1, 3, 10, 100)
"""How long a call takes, from case to case."""
OF_TWO = (1, 10)
"""How long one takes where two operations, each with a queue of its own, share the lane."""
TARGET = 0.9
SHARE_OF_PLAIN = 4
"""The plain processes call the function on the number of records divided by this: they need no time to get going."""


class Backlog(Protocol):
    """A lane that gets records whose calls take so many milliseconds, and returns the seconds until all are committed."""

    def __call__(self, milliseconds: int, count: int) -> float: ...


class PlainProcesses:
    """Processes that call `functions.lasting` and nothing else."""

    def __init__(self, workers: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipes = []
        self._processes = []
        for _ in range(workers):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)
        self.records_per_second(1, workers)

    def records_per_second(self, milliseconds: int, count: int) -> float:
        """Divide the records among the processes, and return how many are done in a second."""
        share = max(1, count // len(self._pipes))
        for pipe in self._pipes:
            pipe.send((milliseconds, share))
        return share * len(self._pipes) / max(pipe.recv() for pipe in self._pipes)

    def close(self) -> None:
        for pipe, process in zip(self._pipes, self._processes):
            pipe.send(None)
            process.join()


def _serve(pipe: Any) -> None:
    while (asked := pipe.recv()) is not None:
        milliseconds, count = asked
        windows = [[{"time": number, "number": number, "kind": f"{milliseconds}"}] for number in range(count)]
        began = time.perf_counter()
        results = [functions.lasting(window) for window in windows]
        pipe.send(time.perf_counter() - began)
        assert len(results) == count


@contextmanager
def plain_processes(workers: int) -> Iterator[PlainProcesses]:
    processes = PlainProcesses(workers)
    try:
        yield processes
    finally:
        processes.close()


def measure_speed(
    alone: Callable[[int, int], float], backlog: Backlog, milliseconds: int, count: int, rounds: int
) -> dict[str, Any]:
    """Measure plain processes, `alone`, and the lane in turn; `count` records of so many milliseconds in each round."""
    own = [alone(milliseconds, count // SHARE_OF_PLAIN)]
    lane = []
    for _ in range(rounds):
        lane.append(count / backlog(milliseconds, count))
        own.append(alone(milliseconds, count // SHARE_OF_PLAIN))
    ratios = [rate / max(before, after) for rate, before, after in zip(lane, own, own[1:])]
    return {
        "records": count,
        "plain_records_per_second": own,
        "lane_records_per_second": lane,
        "ratios": ratios,
        "best": max(ratios),
        "median": median(ratios),
    }


def ratios_of(speeds: dict[int, dict[str, Any]], case: str = "") -> dict[str, float]:
    """Return the ratios by what they are called in the report."""
    told: Sequence[tuple[str, str]] = (("best", f"best round (at least {TARGET})"), ("median", "median round"))
    return {
        f"speed: records a second to plain processes, calls of {milliseconds} ms, {case}{name}": speed[key]
        for milliseconds, speed in speeds.items()
        for key, name in told
    }
