"""Linear Road: how many expressways keep every answer of `examples/linear_road` within 5 s, through a lane on 2 cores.

The traffic is that of the end of the benchmark's three hours, about 1,700 records a second from each expressway. First comes a
history as fast as the lane takes it, so that all windows are full; then real time: the records of a second are appended together
when that second begins. An answer is late if it is not visible within 5 s of that moment. It takes one second at least, since
only records of the next second say that there are no more of this one. The number of expressways doubles until an answer is
late or missing; then the largest number that keeps all of them is searched between the last two.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.measure import cpu_seconds, until_idle, warm_lane
from hayase import Pipeline
from hayase.engine.spark.session import local_master, open_session
from hayase.streams import StreamLog

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "linear_road"
LIMIT = 5.0
"""Seconds within which every answer is due."""
ANSWERS = ("toll_notifications", "accident_notifications", "balances", "expenditures")
CARS, MOST = 50_000, 256
"""Cars on each expressway; expressways at most."""
CHUNK = 10
"""Seconds of the history that are appended together."""


class Size(NamedTuple):
    """Seconds of the history and of real time; vehicles whose tolls of ten weeks are loaded."""

    history: int
    measured: int
    known: int


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Double the expressways until an answer is late, then search between; `quick` tries one and two, for 20 s each."""
    size = Size(60, 20, 1_000) if quick else Size(330, 120, 20_000)
    trials: dict[int, dict[str, Any]] = {}
    session = open_session(local_master(2), settings={"spark.driver.memory": "3g"})
    try:
        for expressways in next_trials(trials, 2 if quick else MOST):
            trial = trials[expressways] = _trial(session, expressways, size)
            kept = "all answers in time" if trial["kept"] else "answers late or missing"
            print(
                f"{expressways} expressways: {kept}, the last after {trial['largest_seconds']:.1f} s", file=sys.stderr
            )
    finally:
        session.stop()
    numbers = [expressways for expressways, trial in trials.items() if trial["kept"]]
    return {
        "expressways": max(numbers, default=0),
        "seconds": size.measured,
        "trials": trials,
        "picture": str(_draw(trials, out)),
        "ratios": {
            f"expressways of which every answer comes within {LIMIT:g} s": max(numbers, default=0),
            f"one expressway: the last answer to {LIMIT:g} s (at most 1)": trials[1]["largest_seconds"] / LIMIT,
        },
    }


def next_trials(trials: Mapping[int, Mapping[str, Any]], most: int) -> Iterator[int]:
    """Yield how many expressways to try next, by the verdicts so far."""
    expressways = 1
    while expressways <= most:
        yield expressways
        if not trials[expressways]["kept"]:
            break
        expressways *= 2
    low, high = expressways // 2, expressways
    while high <= most and high - low > max(1, low // 8):
        middle = (low + high) // 2
        yield middle
        low, high = (middle, high) if trials[middle]["kept"] else (low, middle)


# ---------------------------------------------------------------------------------------------------- a trial


def _trial(session: Any, expressways: int, size: Size) -> dict[str, Any]:
    """Run so many expressways through a new home; say how long the answers took."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as directory:
        p = _pipeline(Path(directory), expressways, size)
        loaded, told, seen = spawn.Event(), spawn.Queue(), spawn.Queue()
        begins = spawn.Value("d", 0.0)
        with warm_lane(p, session) as lane:
            home = p.home.path
            writer = spawn.Process(target=_write, args=(home, expressways, size, loaded, begins, told), daemon=True)
            follower = spawn.Process(target=_follow, args=(home, size, begins, seen), daemon=True)
            writer.start()
            while not loaded.wait(0.1):
                lane.check()
            until_idle(lane, patience=3600.0)
            follower.start()
            used = cpu_seconds()
            begins.value = time.time() + 5.0
            while seen.empty() and follower.is_alive():
                lane.check()
                time.sleep(0.2)
            waits = seen.get(timeout=60)
            used = cpu_seconds() - used
            due = told.get(timeout=60)
            writer.join(timeout=60)
    return verdict(size, waits, due, used)


def verdict(size: Size, waits: Mapping[str, np.ndarray], due: Mapping[str, int], used: float) -> dict[str, Any]:
    """Return the figures of a trial. The number of accident notifications is not known beforehand."""
    missing = {name: int(count) - len(waits[name]) for name, count in due.items() if name in ANSWERS}
    together = np.concatenate(list(waits.values()))
    p50, p99, largest = (float(np.percentile(together, each)) if len(together) else 0.0 for each in (50, 99, 100))
    return {
        "records_per_second": due["records"] / size.measured,
        "answers": {name: len(each) for name, each in waits.items()},
        "missing": missing,
        "late": int((together > LIMIT).sum()),
        "p50_seconds": p50,
        "p99_seconds": p99,
        "largest_seconds": largest,
        "largest_by_answer": {name: float(each.max()) for name, each in waits.items() if len(each)},
        "cpu_seconds_per_second": used / size.measured,
        "kept": largest <= LIMIT and not any(missing.values()),
    }


def _pipeline(directory: Path, expressways: int, size: Size) -> Pipeline:
    (directory / "pipeline.yaml").write_text((EXAMPLE / "pipeline.yaml").read_text())
    p = Pipeline.from_file(directory / "pipeline.yaml")
    first = 100  # the number of the first vehicle
    p.table("daily_tolls").load(_traffic().history(np.arange(first, first + size.known), _peak(expressways)))
    return p


def _traffic() -> Any:
    """The generator of the example."""
    sys.path.insert(0, str(EXAMPLE))
    import traffic  # type: ignore[import-not-found]

    return traffic


def _peak(expressways: int) -> Any:
    """Traffic as at the end of the three hours; there is an accident on each expressway in the fourth minute."""
    return _traffic().Traffic(expressways, cars=CARS, since=3 * 3600 - 240)


def _write(home: Path, expressways: int, size: Size, loaded: Any, begins: Any, told: Any) -> None:
    """Append the history, wait for the signal, then append second by second; say how many answers are due."""
    log = StreamLog.open(home, "input")
    entered = Entered()
    due = dict.fromkeys(("records", "toll_notifications", "balances", "expenditures"), 0)
    waiting: list[pa.Table] = []
    ends = size.history + size.measured
    for second, records in enumerate(_traffic().seconds(_peak(expressways), ends + round(LIMIT) + 1)):
        entries = entered.take(records)
        if second < size.history:
            waiting.append(records)
            if len(waiting) == CHUNK or second == size.history - 1:
                log.append(pa.concat_tables(waiting), now=time.time_ns() // 1000)
                waiting.clear()
            if second == size.history - 1:
                loaded.set()
                while not begins.value:
                    time.sleep(0.01)
            continue
        time.sleep(max(0.0, begins.value + second - size.history - time.time()))
        log.append(records, now=time.time_ns() // 1000)
        if second < ends:
            kinds = records.column("type").to_numpy()
            due["records"] += records.num_rows
            due["toll_notifications"] += entries
            due["balances"] += int((kinds == 2).sum())
            due["expenditures"] += int((kinds == 3).sum())
    told.put(due)


class Entered:
    """Where each vehicle was 30 seconds ago, to count those that enter a segment outside of the exit lane."""

    def __init__(self) -> None:
        self._segment = np.empty(0, np.int64)
        self._reported = np.empty(0, np.int64)

    def take(self, records: pa.Table) -> int:
        """Take the records of a second; return how many toll notifications are due for them."""
        columns = {
            name: records.column(name).to_numpy() for name in ("type", "time", "vid", "xway", "dir", "seg", "lane")
        }
        reports = columns["type"] == 0
        time_, vid, xway, direction, seg, lane = (columns[name][reports] for name in list(columns)[1:])
        if len(vid) and vid.max() >= len(self._segment):
            more = int(vid.max()) + 1_000_000 - len(self._segment)
            self._segment = np.concatenate([self._segment, np.full(more, -1)])
            self._reported = np.concatenate([self._reported, np.full(more, -1_000)])
        segment = (2 * xway + direction) * 100 + seg
        stays = (self._segment[vid] == segment) & (self._reported[vid] == time_ - 30)
        self._segment[vid], self._reported[vid] = segment, time_
        return int((~stays & (lane != 4)).sum())


def _follow(home: Path, size: Size, begins: Any, seen: Any) -> None:
    """Read the answers as they become visible; give the seconds from the moment their records were due."""
    logs = {name: StreamLog.open(home, name) for name in ANSWERS}
    at = {name: log.index().next for name, log in logs.items()}
    waits: dict[str, list[np.ndarray]] = {name: [] for name in ANSWERS}
    while not begins.value:
        time.sleep(0.01)
    until = begins.value + size.measured + LIMIT + 1.0
    while time.time() < until:
        for name, log in logs.items():
            end = log.index().next
            if end == at[name]:
                continue
            now = time.time()
            for piece in log.read(at[name], end):
                seconds = piece.rows.column("time").to_numpy() - size.history
                real = seconds[(seconds >= 0) & (seconds < size.measured)]
                waits[name].append(now - begins.value - real)
            at[name] = end
        time.sleep(0.005)
    seen.put({name: np.concatenate([np.empty(0), *parts]) for name, parts in waits.items()})


def _draw(trials: Mapping[int, Mapping[str, Any]], out: Path) -> Path:
    """Draw the seconds to an answer against the number of expressways."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    tried = sorted(trials)
    for label, key in (("median", "p50_seconds"), ("99th percentile", "p99_seconds"), ("last", "largest_seconds")):
        axes.plot(tried, [trials[each][key] for each in tried], marker="o", label=label)
    axes.axhline(LIMIT, color="black", linestyle="--", linewidth=1)
    axes.set(title="Linear Road", xlabel="expressways", ylabel="seconds to an answer")
    axes.set_ylim(bottom=0)
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    path = out / "linear_road.png"
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
