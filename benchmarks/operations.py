"""Operations: what isolation costs, speed and poison on Spark, and a change of one operation while two are under load.

isolation   windows/s of a function that does next to nothing: called in the process of the kernel, in a child process, and
            through a lane on Spark
speed       a backlog of records whose calls take 1, 3, 10 and 100 ms, to plain processes that call the same function
            (`benchmarks.operation_speed`); of one operation, and, 1 and 10 ms, of two that share the lane
poison      100,000 records that take 1 ms each, of which 10% raise, and 0.1% each end the process, make it crash, or hang until
            the limit of 200 ms; beside as many without poison. What the limits themselves take is taken off: a hang has its
            200 ms in every attempt. Poison takes its 1 ms too, in every attempt; with 1 and with 3 of them
hot change  two operations whose streams get 300 records a second each; one is changed: what is lost, what comes twice, when
            the change takes effect, and what the other does in every second
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import operation_functions as functions
from benchmarks.measure import alternate, cpu_seconds, median, seconds_of, until_idle
from benchmarks.operation_speed import MILLISECONDS, OF_TWO, measure_speed, plain_processes, ratios_of
from hayase import Pipeline
from hayase.core.function_sources import source_of
from hayase.core.stages import OFFSET, TIME
from hayase.engine.commit.manifests import Manifest
from hayase.engine.definition.operation_changes import update_operation
from hayase.engine.spark.lanes import Lanes
from hayase.engine.spark.runner import run_lanes
from hayase.engine.spark.session import local_master, open_session
from hayase.operations.operation_kernel import OperationConfig, OperationKernel
from hayase.operations.outcomes import Outcomes, Request
from hayase.operations.record_windows import WindowSpec
from hayase.operations.user_functions import Function, OperationFunction
from hayase.operations.window_runner import run as in_process
from hayase.streams import StreamLog

SEED = 3
WORKERS = 4
"""Task slots on Spark. The functions sleep, so that they fit on fewer cores."""
WARM_UPS = 3
ATTEMPTS = (1, 3)
"""One, and as many as is usual."""
LIMIT = 0.2
SCHEMA = pa.schema([("time", pa.int64()), ("number", pa.int64()), ("kind", pa.string())])
DDL = "time bigint, number bigint, kind string"
GOOD, HANG = "good", "hang"


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Measure everything in one run; `quick` makes it small."""
    out.mkdir(parents=True, exist_ok=True)
    isolation = {size: measure_isolation(size, 20_000 if quick else 100_000, 3 if quick else 7) for size in (1, 10)}
    session = open_session(local_master(WORKERS))
    try:
        on_spark = _flood(session, 50_000 if quick else 400_000)
        speeds, of_two = _speeds(session, 4.0 if quick else 20.0, 1 if quick else 3)
        poison = _poison(session, 5_000 if quick else 100_000)
        change = _hot_change(session, 300, 6.0 if quick else 20.0)
    finally:
        session.stop()
    picture = draw(out / "operations.png", isolation, on_spark, change)
    return {
        "windows_per_second": isolation,
        "spark_windows_per_second": on_spark,
        "spark_workers": WORKERS,
        "speed": speeds,
        "speed_of_two": of_two,
        "poison": poison,
        "hot_change": change,
        "picture": str(picture),
        "ratios": {
            **{
                f"windows a second, child process to in-process, {what} time, windows of {size}": each["child"][what]
                / each["in-process"][what]
                for size, each in isolation.items()
                for what in ("cpu", "wall")
            },
            "windows a second on Spark, to one kernel with a child": on_spark / isolation[1]["child"]["wall"],
            **ratios_of(speeds),
            **ratios_of(of_two, "two queues, "),
            "poison: good records that are lost or repeated (0)": poison["good_wrong"],
            "poison: bad records without exactly one dead letter (0)": poison["bad_wrong"],
            **{
                f"poison: records a second to those without, less the limits, {attempts} attempts (at least 0.8)": ratio
                for attempts, ratio in poison["throughput_ratios"].items()
            },
            "poison: records a second without any, to what the function alone would take": poison[
                "share_of_ideal_without_poison"
            ],
            "hot change: records that are lost or repeated (0)": change["changed_wrong"] + change["other_wrong"],
            "hot change: slowest second of the other operation since, to the median before": change["slowest_since"]
            / change["median_before"],
            "hot change: seconds until the new version has its first results": change["effect_seconds"],
        },
    }


# ---------------------------------------------------------------------------------------------------- isolation


PORTION = 4096
"""Windows that a child gets at once. Called in-process they come in the same portions: larger ones cost more."""


@dataclass(slots=True)
class InProcess:
    """Calls a function right here, by the loop that a child runs: what isolation is compared with."""

    function: Function
    writes: pa.Schema

    def call(self, rows: pa.RecordBatch, starts: np.ndarray, stops: np.ndarray, careful: bool) -> Outcomes:
        parts = []
        for at in range(0, len(starts), PORTION):
            some = slice(at, at + PORTION)
            first, end = int(starts[some].min()), int(stops[some].max())
            request = Request(rows.slice(first, end - first), starts[some] - first, stops[some] - first)
            parts.append(in_process(self.function, self.writes, request))
        if any(each.failures for each in parts):
            raise AssertionError("a trivial function failed")
        return Outcomes(
            pa.concat_tables([each.rows for each in parts]),
            np.concatenate([each.counts for each in parts]),
            nanoseconds=np.concatenate([each.nanoseconds for each in parts]),
        )

    def renew(self) -> None:
        """It has nothing that it could forget."""


def measure_isolation(size: int, windows: int, repetitions: int) -> dict[str, dict[str, float]]:
    """Windows a second of a kernel: by the wall clock, and by the CPU time of all processes.

    Who calls a child does other things beside it, if there is a core for that: the wall clock alone would hide the price.
    """
    output = pa.schema([("time", pa.int64()), ("number", pa.int64())])
    function = OperationFunction(source_of(functions.trivial))
    config = OperationConfig(
        "trivial", "1", function, WindowSpec("count", size, size, by_arrival=True), ("q",), SCHEMA, output, "time"
    )
    caller = InProcess(function.load(), config.writes)
    kernels = {"in-process": OperationKernel(config, caller=caller), "child": OperationKernel(config)}
    at = 0

    def fed(kernel: OperationKernel) -> tuple[float, float]:
        nonlocal at
        batch = _with_places(_records(windows * size, at))
        at += windows * size
        before = cpu_seconds()
        took = seconds_of(lambda: kernel.process([batch], 0, at, 1))
        return took, cpu_seconds() - before

    for kernel in kernels.values():
        for _ in range(2):
            fed(kernel)
    took = alternate(repetitions, {name: partial(fed, kernel) for name, kernel in kernels.items()})
    return {
        name: {
            "wall": windows / min(wall for wall, _ in each),
            "cpu": windows * len(each) / max(sum(cpu for _, cpu in each), 0.01),  # which is counted in hundredths
        }
        for name, each in took.items()
    }


def _records(count: int, first: int = 0, kinds: Sequence[str] | None = None) -> pa.Table:
    numbers = np.arange(first, first + count)
    return pa.table([numbers, numbers, pa.array(kinds or [GOOD] * count)], schema=SCHEMA)


def _with_places(rows: pa.Table) -> pa.RecordBatch:
    (batch,) = rows.combine_chunks().to_batches()
    places = batch.column("number")
    return pa.record_batch([*batch.columns, places, places], names=[*SCHEMA.names, TIME, OFFSET])


# ---------------------------------------------------------------------------------------------------- on Spark


@dataclass(slots=True)
class Running:
    """A pipeline at work, and when how much of each output was committed."""

    pipeline: Pipeline
    lanes: Lanes
    outputs: dict[str, StreamLog]
    commits: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    def append(self, stream: str, rows: pa.Table) -> None:
        log = StreamLog.ensure(self.pipeline.home.path, self.pipeline.declaration.stream(stream))
        log.append(rows, now=time.time_ns() // 1000)

    def until_idle(self) -> None:
        until_idle(self.lanes)

    def until_committed(self, name: str, end: int, patience: float = 900.0) -> None:
        """Wait until an output has so many records; unlike `until_idle`, that costs next to nothing."""
        until = time.monotonic() + patience
        while not self.commits[name] or self.commits[name][-1][1] < end:
            self.lanes.check()
            if time.monotonic() > until:
                raise TimeoutError(f"{name} has not {end} records")
            time.sleep(0.02)


@contextlib.contextmanager
def _running(session: Any, operations: dict[str, Callable[..., Any]], schema: str, **options: Any) -> Iterator[Running]:
    """Operations, each of a stream of its own, `q_` and its name, with warm workers: some records are done."""
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as home:
        p = Pipeline("bench", home=home, buckets=WORKERS)
        for name, function in operations.items():
            p.stream(f"q_{name}", DDL, time="time", time_unit="us", max_ahead=None)
            p.operation(function, reads=f"q_{name}", writes=name, schema=schema, **options)
        p.apply()
        outputs = {name: p.results(name).log for name in operations}
        commits: dict[str, list[tuple[float, int]]] = {name: [] for name in operations}

        def committed(manifest: Manifest) -> None:
            for name, log in outputs.items():
                commits[name].append((time.monotonic(), log.index().next))

        with run_lanes(p.home, session=session, awake=True, on_commit=committed) as lanes:
            made = Running(p, lanes, outputs, commits)
            for name in operations:
                made.append(f"q_{name}", _records(20 * WORKERS, -20 * WORKERS))
            made.until_idle()
            yield made


def _flood(session: Any, windows: int) -> float:
    """Windows a second of a trivial function, when there are always more."""
    with _running(session, {"trivial": functions.trivial}, "number bigint") as it:
        it.append("q_trivial", _records(windows // 4))  # so that it is known how little one takes
        it.until_idle()
        it.append("q_trivial", _records(windows, windows // 4))
        return windows / seconds_of(it.until_idle)


def _speeds(session: Any, seconds: float, rounds: int) -> tuple[dict[int, dict[str, Any]], dict[int, dict[str, Any]]]:
    """Measure calls of all lengths, `seconds` of them for every worker in a round: of one operation, and of two."""
    one, two = {"lasting": functions.lasting}, {"lasting": functions.lasting, "serving": functions.lasting}
    with plain_processes(WORKERS) as plain:

        def speed(operations: dict[str, Callable[..., Any]], milliseconds: int) -> dict[str, Any]:
            count = round(seconds * WORKERS * 1000 / milliseconds)
            with _running(session, operations, "number bigint") as it:
                for _ in range(WARM_UPS):
                    _lasting(it, milliseconds, max(count // 10, 5 * WORKERS))
                return measure_speed(plain.records_per_second, partial(_lasting, it), milliseconds, count, rounds)

        return {each: speed(one, each) for each in MILLISECONDS}, {each: speed(two, each) for each in OF_TWO}


def _lasting(it: Running, milliseconds: int, count: int) -> float:
    """Append records whose calls take so many milliseconds, to the queues of all operations in equal parts, and return the seconds
    until the last result is committed."""
    part = count // len(it.outputs)
    ends = {name: log.index().next + part for name, log in it.outputs.items()}
    began = time.monotonic()
    for name in it.outputs:
        it.append(f"q_{name}", _records(part, 0, [f"{milliseconds}"] * part))
    for name, end in ends.items():
        it.until_committed(name, end)
    return max(next(moment for moment, at in it.commits[name] if at >= end) for name, end in ends.items()) - began


def _poison(session: Any, count: int) -> dict[str, Any]:
    """The same number of records with and without poison, one after the other.

    The ratio alone could be met by a run without poison that is slow for other reasons: so both are told beside what the
    workers could do if there was nothing but the function.
    """
    kinds = mixed_kinds(count)
    ideal = count * functions.SHORT / WORKERS
    plain, clean = _settled(session, [GOOD] * count, ATTEMPTS[0])
    with_poison = {attempts: _settled(session, kinds, attempts) for attempts in ATTEMPTS}
    limits = {attempts: kinds.count(HANG) * LIMIT * attempts / WORKERS for attempts in ATTEMPTS}
    left = {attempts: took - limits[attempts] for attempts, (took, _) in with_poison.items()}
    return {
        "records": count,
        "kinds": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
        "seconds_without_poison": plain,
        "seconds_with_poison": {f"{attempts}": took for attempts, (took, _) in with_poison.items()},
        "seconds_of_limits": {f"{attempts}": seconds for attempts, seconds in limits.items()},
        "seconds_of_function_alone": ideal,
        "share_of_ideal_without_poison": ideal / plain,
        "throughput_ratios": {f"{attempts}": plain / seconds for attempts, seconds in left.items()},
        "good_wrong": clean["good"] + sum(wrong["good"] for _, wrong in with_poison.values()),
        "bad_wrong": clean["bad"] + sum(wrong["bad"] for _, wrong in with_poison.values()),
    }


def mixed_kinds(count: int) -> list[str]:
    """What each record is: good, or poison of some kind."""
    few = max(1, count // 1000)
    bad = ["raise"] * (count // 10) + ["exit"] * few + ["fault"] * few + [HANG] * few
    kinds = np.array([*bad, *[GOOD] * (count - len(bad))])
    np.random.default_rng(SEED).shuffle(kinds)
    return [str(each) for each in kinds]


def _settled(session: Any, kinds: Sequence[str], attempts: int) -> tuple[float, dict[str, int]]:
    """Seconds until every record has come to an end, and for how many that was the wrong one."""
    options = {"attempts": attempts, "time_limit": f"{LIMIT * 1000:.0f} ms", "pause": "50 ms"}
    with _running(session, {"scored": functions.poisonous}, "number bigint", **options) as it:
        for _ in range(WARM_UPS):  # good ones, until it is known how little one takes: batches are small before
            it.append("q_scored", _records(len(kinds) // 10, -len(kinds)))
            it.until_idle()
        first = StreamLog.open(it.pipeline.home.path, "q_scored").index().next
        it.append("q_scored", _records(len(kinds), 0, kinds))
        took = seconds_of(it.until_idle)
        out = it.pipeline.results("scored").table().column("number").to_numpy()
        dead = it.pipeline.results("_dead").table()
    good = np.array([number for number, kind in enumerate(kinds) if kind == GOOD])
    bad = np.array([number for number, kind in enumerate(kinds) if kind != GOOD])
    return took, {"good": wrong(out[out >= 0], good), "bad": wrong(dead.column("offset").to_numpy() - first, bad)}


def wrong(found: np.ndarray, expected: np.ndarray) -> int:
    """How many are missing, repeated, or not expected at all.

    >>> wrong(np.array([1, 2, 2, 9]), np.array([1, 2, 3]))
    3
    """
    numbers, counts = np.unique(found, return_counts=True)
    missing = len(np.setdiff1d(expected, numbers))
    strangers = int(counts[~np.isin(numbers, expected)].sum())
    return missing + strangers + int((counts[np.isin(numbers, expected)] - 1).sum())


# ---------------------------------------------------------------------------------------------------- hot change


def _hot_change(session: Any, rate: int, seconds: float) -> dict[str, Any]:
    """Change one of two operations in the middle of a steady stream of records."""
    operations = {"changed": functions.older, "other": functions.older}
    with _running(session, operations, "number bigint, version string", pause="50 ms") as it:
        stop = threading.Event()
        feeder = _Feeder(it, list(operations), rate, stop)
        feeder.start()
        began = time.monotonic()
        _wait(it, 3.0 + seconds)
        called = time.monotonic()
        name = source_of(functions.newer).name
        update_operation(it.pipeline.home, "changed", {"function": name}, str(Path(__file__).resolve().parents[1]))
        answered = time.monotonic()
        _wait(it, seconds)
        stop.set()
        feeder.join()
        ended = time.monotonic()
        it.until_idle()
        tables = {name: it.pipeline.results(name).table() for name in operations}
    numbers = np.arange(feeder.sent)
    changed = tables["changed"]
    newer = np.flatnonzero(changed.column("version").to_numpy(zero_copy_only=False) == "newer")
    if not len(newer):
        raise TimeoutError("the change did not take effect")
    effect = next(moment for moment, end in it.commits["changed"] if end > newer[0])
    other = per_second(it.commits["other"], began + 3.0, ended)
    before, since = around(other, began + 3.0, called)
    return {
        "records_per_second": rate,
        "records": feeder.sent,
        "changed_wrong": wrong(_sent(changed), numbers),
        "other_wrong": wrong(_sent(tables["other"]), numbers),
        "scored_by_older_after_newer": int(changed.num_rows - newer[0] - len(newer)),
        "call_seconds": answered - called,
        "effect_seconds": effect - called,
        "called_after_seconds": called - began - 3.0,
        "other_per_second": other,
        "median_before": median(before),
        "slowest_before": min(before),
        "median_since": median(since),
        "slowest_since": min(since),
    }


class _Feeder(threading.Thread):
    """Appends records to the streams of all operations, at a steady rate."""

    STEP = 0.1

    def __init__(self, it: Running, names: Sequence[str], rate: int, stop: threading.Event) -> None:
        super().__init__(name="feeder", daemon=True)
        self._it, self._names, self._rate, self._stopped = it, names, rate, stop
        self.sent = 0

    def run(self) -> None:
        began, count, step = time.monotonic(), round(self._rate * self.STEP), 0
        while not self._stopped.wait(max(0.0, began + step * self.STEP - time.monotonic())):
            for name in self._names:
                self._it.append(f"q_{name}", _records(count, self.sent))
            self.sent += count
            step += 1


def _wait(it: Running, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        it.lanes.check()
        time.sleep(0.05)


def _sent(results: pa.Table) -> np.ndarray:
    numbers: np.ndarray = results.column("number").to_numpy()
    return numbers[numbers >= 0]  # without those that warmed it up


def per_second(commits: Sequence[tuple[float, int]], start: float, stop: float) -> list[float]:
    """What was committed in every second; a batch that spans two is shared out between them."""
    moments, ends = zip(*commits, strict=True)
    return [float(each) for each in np.diff(np.interp(np.arange(start, stop, 1.0), moments, ends))]


def around(rates: Sequence[float], start: float, moment: float) -> tuple[list[float], list[float]]:
    """The whole seconds before a moment, and those from it on."""
    at = int(moment - start)
    return list(rates[:at]), list(rates[at:])


# ---------------------------------------------------------------------------------------------------- drawing


def draw(
    path: Path, isolation: dict[int, dict[str, dict[str, float]]], on_spark: float, change: dict[str, Any]
) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (bars, line) = plt.subplots(1, 2, figsize=(12, 4.5))
    told = {f"{name},\n{size} records": rate["wall"] for size, each in isolation.items() for name, rate in each.items()}
    told[f"Spark, {WORKERS} workers,\n1 record"] = on_spark
    bars.bar(list(told), list(told.values()))
    bars.tick_params(axis="x", labelsize=8)
    bars.set(title="Windows a second of a trivial function")
    seconds = [each + 0.5 for each in range(len(change["other_per_second"]))]
    line.plot(seconds, change["other_per_second"], label="the other operation")
    line.axvline(change["called_after_seconds"], color="C3", linewidth=1, label="change asked for")
    effect = change["called_after_seconds"] + change["effect_seconds"]
    line.axvline(effect, color="C2", linewidth=1, label="new version at work")
    line.set(title="An operation is changed; another one goes on", xlabel="second", ylabel="results a second")
    line.set_ylim(bottom=0)
    line.legend(fontsize=8)
    for axes in (bars, line):
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
