"""Figure 5 of paper 5, for `bench mapreduce`: does the writer of a log notice that a map fires every few seconds?

A process on one core appends 300-byte lines of an access log, 10,000 at a time with pauses of 10 ms, every append durable
before the next begins. Spark with one task slot, its driver, workers and JVM, is on the other core; a job parses
all that has come every 2, 5 or 10 seconds. For comparison there is a run without a map.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import hayase as hy
from benchmarks.mapreduce_steps import LOGS, PARSED, batches, lines, parse
from benchmarks.measure import Steps, alternate, median, pin, until_idle, warm_lane
from hayase.core.declarations import Retention
from hayase.streams import StreamLog

__all__ = ["Written", "writing"]

ROWS = 10_000
PAUSE = 0.010
KEPT = 256 * 2**20
NO_MAP = "no map"


@dataclass(frozen=True)
class Written:
    """What the writer did: records in every second of every run, by the interval of the map; and what the maps took."""

    seconds: dict[str, list[list[float]]]
    figures: dict[str, float]
    ratios: dict[str, float]


def writing(place: Path, seconds: float, intervals: tuple[int, ...], repetitions: int) -> Written:
    """Run every interval in turn, `repetitions` times."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    maps = context.Process(target=_map, args=(there,), name="maps")
    maps.start()
    taken: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}

    def measured(name: str, every: int | None) -> Callable[[], Steps]:
        def once() -> Steps:
            home = place / "home"
            shutil.rmtree(home, ignore_errors=True)
            os.sync()  # what was deleted before must not cost this run anything
            StreamLog.ensure(home, _pipeline(home, 1).declaration.stream("logs"))
            here.send((str(home), every))
            _answer(here, maps)  # it is up
            answer, ask = context.Pipe(duplex=False)
            writer = context.Process(target=_write, args=(home, seconds, ask), name="writer")
            writer.start()
            ends, spent = _answer(answer, writer)
            writer.join()
            cpu.setdefault(name, []).append(1e6 * spent / (ROWS * len(ends)))
            here.send("over")
            left = _answer(here, maps)
            if every is not None:
                taken.setdefault(name, []).append(1 - left / (ROWS * len(ends)))
            shutil.rmtree(home, ignore_errors=True)
            return Steps(ends, ROWS)

        return once

    variants = {NO_MAP: measured(NO_MAP, None)}
    variants |= {f"map every {each} s": measured(f"map every {each} s", each) for each in intervals}
    try:
        runs = alternate(repetitions, variants)
        here.send(None)
        maps.join()
    finally:
        if maps.is_alive():
            maps.terminate()
            maps.join()
    series = {name: [each.per_second()[1:] for each in some] for name, some in runs.items()}
    slowest = {name: [min(each) / median(each) for each in some] for name, some in series.items()}
    rates = {name: median([each.rate() for each in some]) for name, some in runs.items()}
    asked = {name: "" if name == NO_MAP else " (at least 0.8)" for name in runs}
    return Written(
        series,
        figures={
            **{f"written records/s, {name}": rate for name, rate in rates.items()},
            **{f"slowest second to median second, {name}, worst run": min(each) for name, each in slowest.items()},
            **{f"CPU of the writer, us per record, {name}": median(each) for name, each in cpu.items()},
            **{f"part of the records that was mapped at the end, {name}": median(each) for name, each in taken.items()},
        },
        ratios={
            **{f"slowest second to median second, {name}{asked[name]}": median(each) for name, each in slowest.items()},
            **{f"written, {name} to {NO_MAP}": rate / rates[NO_MAP] for name, rate in rates.items() if name != NO_MAP},
        },
    )


def _answer(pipe: Any, process: Any) -> Any:
    """What a process says; it may die instead."""
    while not pipe.poll(0.2):
        if process.exitcode is not None and not pipe.poll(0.2):
            raise RuntimeError(f"the {process.name} process of the benchmark ended; see above")
    return pipe.recv()


def _pipeline(home: str | Path, every: int) -> hy.Pipeline:
    p = hy.Pipeline("access", home=home, buckets=1)
    p.stream("logs", LOGS, retention=Retention(size=KEPT))
    p.job("parsed", reads="logs", every=f"{every} seconds").map(parse, schema=PARSED, batches=True)
    return p


def _write(home: Path, seconds: float, ask: Any) -> None:
    pin(0)
    log = StreamLog.open(home, "logs")
    source = batches(lines(16 * ROWS), ROWS)
    made = [next(source) for _ in range(16)]
    ends: list[float] = []
    number = 0
    began, spent = time.perf_counter(), time.process_time()
    while not ends or ends[-1] < seconds:
        log.append(made[number % len(made)], now=time.time_ns() // 1000)
        time.sleep(PAUSE)
        ends.append(time.perf_counter() - began)
        number += 1
    ask.send((ends, time.process_time() - spent))


def _map(pipe: Any) -> None:
    """The process of the maps: everything it starts stays on its core."""
    pin(1)
    from hayase.engine.spark.session import local_master, open_session

    session = open_session(local_master(1), settings={"spark.driver.memory": "3g"})
    while (wanted := pipe.recv()) is not None:
        home, every = wanted
        log = StreamLog.open(Path(home), "logs")
        with _mapped(session, home, every) as lane:
            _warm(log, lane)
            pipe.send("up")
            while not pipe.poll(0.5):
                if lane is None:  # a lane does that itself
                    log.trim(log.index().next, now=time.time_ns() // 1000)
                else:
                    lane.check()
            pipe.recv()
            left = log.index().next - (0 if lane is None else lane.manifest.offset.positions["parsed"]["logs"].at)
        pipe.send(left)
    session.stop()


def _warm(log: StreamLog, lane: Any) -> None:
    """Some records through the lane: what it does for the first time takes longer."""
    for each in islice(batches(lines(ROWS), ROWS), 20):
        log.append(each, now=time.time_ns() // 1000)
    if lane is not None:
        until_idle(lane)


@contextlib.contextmanager
def _mapped(session: Any, home: str, every: int | None) -> Iterator[Any]:
    if every is None:
        yield None
        return
    with warm_lane(_pipeline(home, every), session) as lane:
        yield lane
