"""Nexmark: the queries of `examples/nexmark` over 1,000,000 events, beside Flink SQL, from files to result rows.

Both sides read the same CSV files. Flink has two cores; Hayase is measured through a lane on Spark with two cores, and in one
process, as `hayase query` runs. Start-up is excluded: Flink's by taking off what the same job takes over a few lines, the lane's
by appending to a pipeline that already runs and has had a batch, the process's by a first run over a few lines. The faster of
two runs counts (`quick`: of one). Flink discards its rows; ours are in a stream, durable. q6 runs here alone: Flink refuses OVER
above a result that changes. Queries that read no bids (q3, q8) would read 80,000 records, which both sides do within what their
start varies by: they get eight times the events, of which they read 640,000. Rates are in records that a query reads.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import yaml

from benchmarks.flink import seconds_in_flink
from benchmarks.measure import until_idle, warm_lane
from hayase import Pipeline
from hayase.engine.spark.session import local_master, open_session
from hayase.streams import StreamLog

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "nexmark"
STREAMS = ("person", "auction", "bid")
SIDE = [{"key": key, "value": f"side {key}"} for key in range(10_000)]
FEW = 500
"""Events of the first run, which compiles and warms up."""
LONG = 8
"""How many times the events a query gets that reads no bids, so that it reads about as many records as the others."""
ONLY_HERE = ("q6",)


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Both sides over the same files, query by query; `quick` has a fifth of the events."""
    events, repetitions = (200_000, 1) if quick else (1_000_000, 2)
    texts: dict[str, str] = yaml.safe_load((EXAMPLE / "pipeline.yaml").read_text())["queries"]
    queries = [name for name in texts if name.startswith("q")]
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as folder:
        directory = Path(folder)
        counts = {"": _write(directory, events), "-long": _write(directory, LONG * events, "-long")}
        sizes = {name: "" if "bid" in _streams(name, texts) else "-long" for name in queries}
        taken = {name: sum(counts[sizes[name]][stream] for stream in _streams(name, texts)) for name in queries}
        asked = [f"{name}{sizes[name]}" for name in queries if name not in ONLY_HERE]
        flink = seconds_in_flink("flink_nexmark.py", directory, asked)
        process, lane = {}, {}
        session = open_session(local_master(2), settings={"spark.driver.memory": "3g"})
        try:
            for name in queries:
                _in_process(directory, name, texts, "-few")
                given = directory, name, texts, sizes[name]
                process[name] = _faster(_in_process(*given) for _ in range(repetitions))
                _through_lane(session, directory, name, texts, "-few")
                lane[name] = _faster(_through_lane(session, *given) for _ in range(repetitions))
        finally:
            session.stop()
    rates = {
        name: {"process": taken[name] / process[name]["seconds"], "lane": taken[name] / lane[name]["seconds"]}
        | ({"flink": taken[name] / seconds} if (seconds := _without_start_up(flink.get(name))) else {})
        for name in queries
    }
    return {
        "events": events,
        "events_without_bids": {name: LONG * events for name in queries if sizes[name]},
        "records": taken,
        "process": process,
        "lane": lane,
        "flink_seconds": flink,
        "events_per_second": rates,
        "picture": str(_draw(rates, out)),
        "ratios": {
            f"{name}: events per second, {way}, to Flink (at least 1)": rate[way] / rate["flink"]
            for name, rate in rates.items()
            if "flink" in rate
            for way in ("process", "lane")
        },
    }


def _write(directory: Path, events: int, size: str = "") -> dict[str, int]:
    """Write the events as CSV, with a header for our reader and without for Flink's; return how many each stream has. Files of
    another size have no bids and are not written for the first run."""
    sys.path.insert(0, str(EXAMPLE))
    import generator  # type: ignore[import-not-found]

    blocks = list(generator.blocks(events, with_bids=not size))
    tables = {stream: pa.concat_tables([getattr(block, stream) for block in blocks]) for stream in STREAMS}
    if not size:
        tables["side"] = pa.Table.from_pylist(SIDE)
    for stream, table in tables.items():
        few = table.slice(0, FEW if stream == "bid" else FEW // 10)
        for suffix, rows in ((size, table),) if size else (("", table), ("-few", few)):
            text = _with_text_times(rows)
            for header in (True, False):
                path = directory / f"{stream}{suffix}{'-named' if header else ''}.csv"
                pa.csv.write_csv(text, path, pa.csv.WriteOptions(include_header=header, quoting_style="needed"))
    return {stream: tables[stream].num_rows for stream in STREAMS}


def _with_text_times(table: pa.Table) -> pa.Table:
    """Return a table whose timestamps are texts that both sides read: in UTC, with milliseconds."""
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            texts = pa.compute.strftime(table.column(at).cast(pa.timestamp("ms")), "%Y-%m-%d %H:%M:%S")
            table = table.set_column(at, field.name, texts)
    return table


def _needed(name: str, texts: dict[str, str]) -> list[str]:
    """Return a query and the queries it reads, those first."""
    before = [other for other in texts if other != name and re.search(rf"\b(from|join) {other}\b", texts[name])]
    return [*(earlier for other in before for earlier in _needed(other, texts)), name]


def _streams(name: str, texts: dict[str, str]) -> list[str]:
    read = " ".join(texts[query] for query in _needed(name, texts))
    return [stream for stream in STREAMS if re.search(rf"\b(from|join) {stream}\b", read)]


def _pipeline(home: str, name: str, texts: dict[str, str]) -> Pipeline:
    declared = yaml.safe_load((EXAMPLE / "pipeline.yaml").read_text())
    p = Pipeline("nexmark", home=home)
    for stream in _streams(name, texts):
        p.stream(stream, declared["streams"][stream]["schema"], time="date_time", max_ahead=None)
    if "side_input" in texts[name]:
        p.table("side_input", key="key", columns={"value": "Register"})
        p.table("side_input").load(SIDE)
    for query in dict.fromkeys(_needed(name, texts)):
        p.query(query, texts[query])
    return p


def _append(p: Pipeline, directory: Path, name: str, texts: dict[str, str], suffix: str) -> None:
    for stream in _streams(name, texts):
        p.append(stream, directory / f"{stream}{suffix}-named.csv")
        p.finish(stream)


def _in_process(directory: Path, name: str, texts: dict[str, str], suffix: str = "") -> dict[str, float]:
    """Seconds from the files to the last result row in this process alone, and how many rows there were."""
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as home:
        p = _pipeline(home, name, texts)
        began = time.perf_counter()
        _append(p, directory, name, texts, suffix)
        p.run_until_idle(spark=False)
        return _figures(p, name, time.perf_counter() - began)


def _through_lane(
    session: Any, directory: Path, name: str, texts: dict[str, str], suffix: str = ""
) -> dict[str, float]:
    """The same through a lane on Spark that runs already."""
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as home:
        p = _pipeline(home, name, texts)
        with warm_lane(p, session) as lane:
            began = time.perf_counter()
            _append(p, directory, name, texts, suffix)
            until_idle(lane)
            seconds = time.perf_counter() - began
        return _figures(p, name, seconds)


def _figures(p: Pipeline, name: str, seconds: float) -> dict[str, float]:
    return {"seconds": seconds, "rows": float(StreamLog.open(p.home.path, name).index().next)}


def _without_start_up(seconds: dict[str, float] | None) -> float:
    """Return what a job of Flink took beside its start-up; 0 if that cannot be told apart, or if there is no such job."""
    if seconds is None or seconds["whole"] < 1.1 * seconds["start_up"]:
        return 0.0
    return seconds["whole"] - seconds["start_up"]


def _faster(runs: Iterable[dict[str, float]]) -> dict[str, float]:
    return min(runs, key=lambda run: run["seconds"])


def _draw(rates: dict[str, dict[str, float]], out: Path) -> Path:
    """Draw events per second of each query, one bar per side."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(12, 4.5))
    for at, way in enumerate(("process", "lane", "flink")):
        places = [number + (at - 1) * 0.27 for number in range(len(rates))]
        axes.bar(places, [rate.get(way, 0.0) for rate in rates.values()], 0.27, label=way, color=f"C{at}")
    axes.set(title="Nexmark", ylabel="events per second", yscale="log")
    axes.set_xticks(range(len(rates)), list(rates))
    axes.legend()
    axes.grid(axis="y", alpha=0.3)
    figure.tight_layout()
    path = out / "nexmark.png"
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
