"""Peers: four windowed queries over a CSV of 1,000,000 events, beside Flink SQL, from the file to the made result rows.

range   average per key over the last 10 seconds          rows   average and maximum per key over the last 100 rows
whole   average over the last 10,000 rows of the stream   join   equi-join of two streams over windows of 10 seconds

Events are 1 ms apart and have 1,000 keys. Both sides read the same files. Flink has two cores; Hayase is measured through a
lane on Spark with two cores, and in one process, as `hayase query` runs. Start-up is excluded: Flink's by taking off what
the same job takes over a few lines, the lane's by appending to a pipeline that already runs and has had a batch, the
process's by a first run over a few lines. Everything runs twice, and the faster run counts. Flink discards its rows; ours
are in a stream, durable. Flink gives a row per event; ours a row whenever the answer changes, so also when events leave a
window. Flink has an environment of its own, `.flink`, made if need be.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.csv

from benchmarks.flink import seconds_in_flink
from benchmarks.measure import until_idle, warm_lane
from hayase import Pipeline
from hayase.engine.batch.outcomes import TaskOutput
from hayase.engine.spark.session import local_master, open_session
from hayase.streams import StreamLog

SEED, KEYS = 11, 1000
SCHEMA = "ts bigint, k bigint, x double"
QUERIES = {
    "range": "select k, avg(x) as a from l [Range 10 seconds] group by k",
    "rows": "select k, avg(x) as a, max(x) as m from l [Partition By k Rows 100] group by k",
    "whole": "select avg(x) as a from l [Rows 10000]",
    "join": "select l.k, l.x, r.x as y from l [Range 10 seconds], r [Range 10 seconds] where l.k = r.k",
}


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Both sides over the same files, one after the other; `quick` has a twentieth of the events."""
    events = 50_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as folder:
        directory = Path(folder)
        _write(directory, events)
        flink = seconds_in_flink("flink_queries.py", directory, list(QUERIES))
        plain, thrown = {}, {}
        for name, text in QUERIES.items():
            _in_process(directory, text, "-few")
            plain[name] = _faster(_in_process(directory, text, "-named") for _ in range(2))
            thrown[name] = _faster(_discarded(directory, text) for _ in range(2))
        ours = _ours(directory)
    taken = {name: events * (2 if name == "join" else 1) for name in QUERIES}
    rates = {
        name: {
            "process, discarded": taken[name] / thrown[name]["seconds"],
            "process": taken[name] / plain[name]["seconds"],
            "lane": taken[name] / ours[name]["seconds"],
        }
        for name in QUERIES
    }
    for name, seconds in flink.items():
        rates[name]["flink"] = taken[name] / (seconds["whole"] - seconds["start_up"])
    return {
        "events": events,
        "lane": ours,
        "process": plain,
        "process, discarded": thrown,
        "flink_seconds": flink,
        "events_per_second": rates,
        "ratios": {
            f"{name}: events per second, {way}, to Flink (at least 5)": each[way] / each["flink"]
            for name, each in rates.items()
            for way in ("process, discarded", "process", "lane")
        },
    }


def _write(directory: Path, events: int) -> None:
    random = np.random.default_rng(SEED)
    options = pa.csv.WriteOptions(include_header=False)
    for side in ("left", "right"):
        columns = {"ts": np.arange(events), "k": random.integers(0, KEYS, events), "x": random.random(events).round(6)}
        table = pa.table(columns)
        pa.csv.write_csv(table, directory / f"{side}.csv", options)
        pa.csv.write_csv(table.slice(0, 100), directory / f"{side}-few.csv", options)
        pa.csv.write_csv(table, directory / f"{side}-named.csv")


def _ours(directory: Path) -> dict[str, dict[str, float]]:
    session = open_session(local_master(2), settings={"spark.driver.memory": "3g"})
    try:
        found = {}
        for name, text in QUERIES.items():
            _one(session, directory, text, "-few")  # compiles and warms up, as the few lines do for Flink
            found[name] = _faster(_one(session, directory, text, "-named") for _ in range(2))
        return found
    finally:
        session.stop()


def _discarded(directory: Path, text: str) -> dict[str, float]:
    """The same where the result rows are made and thrown away, as Flink's are."""
    with patch.object(TaskOutput, "_write_part", _empty_part):
        return _in_process(directory, text, "-named")


_write_part = TaskOutput._write_part


def _empty_part(output: TaskOutput, stream: str, rows: pa.Table, declaration: Any, order: int) -> None:
    _write_part(output, stream, rows.slice(0, 0), declaration, order)


def _in_process(directory: Path, text: str, files: str) -> dict[str, float]:
    """Seconds from the file to the last result row in this process alone, and how many rows there were."""
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as home:
        p = _pipeline(home, text)
        began = time.perf_counter()
        for stream in _used(text):
            p.append(stream, _named(directory, stream, files))
            p.finish(stream)
        p.run_until_idle(spark=False)
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "rows": float(StreamLog.open(p.home.path, "q").index().next)}


def _faster(runs: Iterable[dict[str, float]]) -> dict[str, float]:
    return min(runs, key=lambda run: run["seconds"])


def _pipeline(home: str, text: str) -> Pipeline:
    p = Pipeline("peers", home=home)
    for stream in _used(text):
        p.stream(stream, SCHEMA, time="ts", time_unit="ms")
    p.query("q", text)
    return p


def _used(text: str) -> tuple[str, ...]:
    return ("l", "r") if " r [" in text else ("l",)


def _one(session: Any, directory: Path, text: str, files: str) -> dict[str, float]:
    """Seconds from the file to the last result row, and how many rows there were."""
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as home:
        p = _pipeline(home, text)
        with warm_lane(p, session) as lane:
            began = time.perf_counter()
            for stream in _used(text):
                p.append(stream, _named(directory, stream, files))
                p.finish(stream)
            until_idle(lane)
            seconds = time.perf_counter() - began
        return {"seconds": seconds, "rows": float(StreamLog.open(p.home.path, "q").index().next)}


def _named(directory: Path, stream: str, files: str) -> Path:
    """A file with a header, which our reader wants; of the few lines it is made here."""
    side = "left" if stream == "l" else "right"
    path = directory / f"{side}{files}.csv"
    if files == "-few":
        named = directory / f"{side}-few-named.csv"
        named.write_text("ts,k,x\n" + path.read_text())
        return named
    return path
