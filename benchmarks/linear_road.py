"""Linear Road: how many expressways keep every answer of `examples/linear_road` within 5 s, through a lane on 2 cores.

The traffic is that of the end of the benchmark's three hours, about 1,700 records a second from each expressway. First comes a
history as fast as the lane takes it, a minute at a time, so that all windows are full; then real time: the records of a second are
appended together when that second begins. An answer is late if it is not visible within 5 s of that moment. It takes one second at
least, since only records of the next second say that there are no more of this one. The minute of real time contains the end of a
minute of event time, when segment statistics and accidents become known. A trial ends with its first late answer, or when memory
runs short. The number of expressways doubles until a trial fails, or halves until one does not; then the largest number that keeps
all answers is searched between the last two, to within a quarter.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.measure import cpu_seconds, warm_lane
from hayase import Pipeline
from hayase.engine.spark.session import local_master, open_session
from hayase.streams import StreamLog

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "linear_road"
LIMIT = 5.0
"""Seconds within which every answer is due."""
ANSWERS = ("toll_notifications", "accident_notifications", "balances", "expenditures")
CARS = 50_000
"""Cars on each expressway."""
FIRST, MOST = 8, 128
"""Expressways of the first trial, and at most."""
CHUNK, MINUTE = 10, 60
"""Seconds of the history that are appended together, and that the lane gets at a time."""
SPARE = 2 << 30
"""Bytes of memory that a trial leaves to others."""
SHORT_OF_MEMORY = "memory runs short"


class Size(NamedTuple):
    """Seconds of the history and of real time; vehicles whose tolls of ten weeks are loaded."""

    history: int
    measured: int
    known: int


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Search the largest number of expressways whose answers all come in time; `quick` tries two, for 20 s."""
    size = Size(60, 20, 1_000) if quick else Size(330, 60, 20_000)
    trials: dict[int, dict[str, Any]] = {}
    session = open_session(local_master(2), settings={"spark.driver.memory": "3g"})
    try:
        for expressways in next_trials(trials, *((2, 2) if quick else (FIRST, MOST))):
            trial = trials[expressways] = _trial(session, expressways, size)
            told = "all answers in time" if trial["kept"] else trial["ended"] or "answers late or missing"
            print(
                f"{expressways} expressways: {told}, the last after {trial['largest_seconds']:.1f} s; "
                f"{trial['memory_bytes'] / 2**30:.1f} GiB",
                file=sys.stderr,
            )
    finally:
        session.stop()
    kept = {expressways: trial for expressways, trial in trials.items() if trial["kept"]}
    most = max(kept, default=0)
    ratios = {f"expressways of which every answer comes within {LIMIT:g} s": float(most)}
    if kept:
        ratios[f"their last answer to {LIMIT:g} s (at most 1)"] = kept[most]["largest_seconds"] / LIMIT
    return {
        "expressways": most,
        "seconds": size.measured,
        "trials": trials,
        "picture": str(_draw(trials, out)),
        "ratios": ratios,
    }


def next_trials(trials: Mapping[int, Mapping[str, Any]], first: int, most: int) -> Iterator[int]:
    """Yield how many expressways to try next, by the verdicts so far."""
    low, high = 0, first
    yield first
    while not low and not trials[high]["kept"] and high > 1:
        low, high = 0, high // 2
        yield high
    while high <= most and trials[high]["kept"]:
        low, high = high, 2 * high
        if high <= most and high not in trials:
            yield high
    while low and high <= most and high - low > max(1, low // 4):
        middle = (low + high) // 2
        yield middle
        low, high = (middle, high) if trials[middle]["kept"] else (low, middle)


# ---------------------------------------------------------------------------------------------------- a trial


class Signals:
    """What the processes of a trial tell each other."""

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.loaded = spawn.Barrier(2)
        """A minute of the history is in the log."""
        self.begins = spawn.Value("d", 0.0)
        """When real time begins; 0 as long as the history is not processed."""
        self.over = spawn.Event()
        """The trial is over, perhaps early."""
        self.due: Any = spawn.Queue()
        self.seen: Any = spawn.Queue()

    def await_begin(self) -> float:
        """Return when real time begins, once that is known."""
        while not self.begins.value:
            time.sleep(0.01)
        return float(self.begins.value)


class ShortOfMemory(Exception):
    """A trial needs more memory than there is."""


def _trial(session: Any, expressways: int, size: Size) -> dict[str, Any]:
    """Run so many expressways through a new home; say how long the answers took."""
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as directory:
        p = _pipeline(Path(directory), expressways, size)
        signals = Signals()
        with warm_lane(p, session) as lane, _processes(p.home.path, expressways, size, signals):
            try:
                for _ in range(-(-size.history // MINUTE)):
                    signals.loaded.wait(600)
                    _wait_for(lane.is_idle, lane)
                used = cpu_seconds()
                signals.begins.value = time.time() + 3.0
                _wait_for(lambda: not signals.seen.empty(), lane)
                used = cpu_seconds() - used
            except ShortOfMemory:
                return verdict(size, {}, {}, 0.0, memory_bytes(), SHORT_OF_MEMORY)
            waits = signals.seen.get(timeout=60)
            signals.over.set()
            memory = memory_bytes()
            due = signals.due.get(timeout=60)
    return verdict(size, waits, due, used, memory)


@contextlib.contextmanager
def _processes(home: Path, expressways: int, size: Size, signals: Signals) -> Iterator[None]:
    """A process that appends the records, and one that reads the answers."""
    spawn = multiprocessing.get_context("spawn")
    writer = spawn.Process(target=_write, args=(home, expressways, size, signals), daemon=True)
    follower = spawn.Process(target=_follow, args=(home, size, signals), daemon=True)
    writer.start()
    follower.start()
    try:
        yield
    finally:
        for process in (writer, follower):
            process.kill()
            process.join()


def _wait_for(done: Callable[[], bool], lane: Any) -> None:
    """Wait until something is done, while the lane runs and there is memory."""
    while not done():
        lane.check()
        if psutil.virtual_memory().available < SPARE:
            raise ShortOfMemory
        time.sleep(0.05)


def memory_bytes() -> int:
    """Return the memory of this process and of all below it; what several share counts once."""
    total = 0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total


def verdict(
    size: Size,
    waits: Mapping[str, np.ndarray],
    due: Mapping[str, int],
    used: float,
    memory: int = 0,
    ended: str | None = None,
) -> dict[str, Any]:
    """Return the figures of a trial; `ended` says why it has none. The number of accident notifications is not known
    beforehand."""
    missing = {name: int(count) - len(waits[name]) for name, count in due.items() if name in ANSWERS}
    together = np.concatenate([np.empty(0), *waits.values()])
    p50, p99, largest = (float(np.percentile(together, each)) if len(together) else 0.0 for each in (50, 99, 100))
    seconds = due.get("seconds", size.measured)
    return {
        "records_per_second": due.get("records", 0) / seconds,
        "answers": {name: len(each) for name, each in waits.items()},
        "missing": missing,
        "late": int((together > LIMIT).sum()),
        "p50_seconds": p50,
        "p99_seconds": p99,
        "largest_seconds": largest,
        "largest_by_answer": {name: float(each.max()) for name, each in waits.items() if len(each)},
        "cpu_seconds_per_second": used / seconds,
        "memory_bytes": memory,
        "ended": ended,
        "kept": ended is None and largest <= LIMIT and not any(missing.values()),
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


def _write(home: Path, expressways: int, size: Size, signals: Signals) -> None:
    """Append the history, wait for the signal, then append second by second; say how many answers are due."""
    log = StreamLog.open(home, "input")
    entered = Entered()
    due = dict.fromkeys(("seconds", "records", "toll_notifications", "balances", "expenditures"), 0)
    waiting: list[pa.Table] = []
    ends = size.history + size.measured
    for second, records in enumerate(_traffic().seconds(_peak(expressways), ends + round(LIMIT) + 1)):
        entries = entered.take(records)
        if second < size.history:
            waiting.append(records)
            last = second == size.history - 1
            if len(waiting) == CHUNK or last:
                log.append(pa.concat_tables(waiting), now=time.time_ns() // 1000)
                waiting.clear()
            if (second + 1) % MINUTE == 0 or last:
                signals.loaded.wait(600)
            continue
        begins = signals.await_begin()
        if signals.over.wait(max(0.0, begins + second - size.history - time.time())):
            break
        log.append(records, now=time.time_ns() // 1000)
        if second < ends:
            kinds = records.column("type").to_numpy()
            due["seconds"] += 1
            due["records"] += records.num_rows
            due["toll_notifications"] += entries
            due["balances"] += int((kinds == 2).sum())
            due["expenditures"] += int((kinds == 3).sum())
    signals.due.put(due)


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


def _follow(home: Path, size: Size, signals: Signals) -> None:
    """Read the answers as they become visible, until one is late; give the seconds from the moment their records were due."""
    begins = signals.await_begin()
    logs = {name: StreamLog.open(home, name) for name in ANSWERS}
    at = {name: log.index().next for name, log in logs.items()}
    waits: dict[str, list[np.ndarray]] = {name: [] for name in ANSWERS}
    until, latest = begins + size.measured + LIMIT + 1.0, 0.0
    while time.time() < until and latest <= LIMIT:
        for name, log in logs.items():
            end = log.index().next
            if end == at[name]:
                continue
            now = time.time()
            for piece in log.read(at[name], end):
                seconds = piece.rows.column("time").to_numpy() - size.history
                real = seconds[(seconds >= 0) & (seconds < size.measured)]
                waits[name].append(now - begins - real)
                latest = max(latest, float(waits[name][-1].max(initial=0.0)))
            at[name] = end
        time.sleep(0.005)
    signals.seen.put({name: np.concatenate([np.empty(0), *parts]) for name, parts in waits.items()})


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
