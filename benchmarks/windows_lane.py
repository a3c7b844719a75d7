"""Shared windows on Spark: 100 windows in one statement, beside one window and beside ten queries of one window each.

Seconds from the append of a file of records to the last result row, in a lane that already runs, on two cores.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks.measure import alternate, until_idle, warm_lane
from hayase import Pipeline
from hayase.engine.spark.session import local_master, open_session

__all__ = ["on_spark"]

SEED = 7
SLIDE = 1000
LARGEST = 100_000


def _text(*lengths: int) -> str:
    return f"select avg(x) as average, max(x) as most from s [Rows {', '.join(map(str, lengths))} Slide {SLIDE}]"


WAYS = {
    "1 window": [_text(LARGEST)],
    "100 windows": [_text(*range(LARGEST // 100, LARGEST + 1, LARGEST // 100))],
    "10 queries": [_text(length) for length in range(LARGEST // 10, LARGEST + 1, LARGEST // 10)],
}


def on_spark(records: int, repetitions: int) -> dict[str, Any]:
    """Seconds of each way, the least of some runs in turn, and the ratios."""
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as folder:
        values = np.random.default_rng(SEED).random(records)
        files = {"few": Path(folder) / "few.parquet", "all": Path(folder) / "all.parquet"}
        for name, count in (("few", 2 * SLIDE), ("all", records)):
            pa.parquet.write_table(pa.table({"ts": np.arange(count), "x": values[:count]}), files[name])
        session = open_session(local_master(2), settings={"spark.driver.memory": "3g"})
        try:
            for texts in WAYS.values():
                _seconds(session, texts, files["few"])
            ways = {name: lambda texts=texts: _seconds(session, texts, files["all"]) for name, texts in WAYS.items()}
            least = {name: min(found) for name, found in alternate(repetitions, ways).items()}
        finally:
            session.stop()
    return {
        "records": records,
        "seconds": least,
        "ratios": {
            "on Spark: seconds, 100 windows in one statement to 1 window (at most 3)": least["100 windows"]
            / least["1 window"],
            "on Spark: seconds, 100 queries (10, extrapolated) to 100 windows in one statement": (
                least["1 window"] + (least["10 queries"] - least["1 window"]) * 99 / 9
            )
            / least["100 windows"],
        },
    }


def _seconds(session: Any, texts: list[str], file: Path) -> float:
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as home:
        p = Pipeline("windows", home=home)
        p.stream("s", "ts bigint, x double", time="ts", time_unit="ms")
        for number, text in enumerate(texts):
            p.query(f"q{number}", text)
        with warm_lane(p, session) as lane:
            began = time.perf_counter()
            p.append("s", file)
            p.finish("s")
            until_idle(lane)
            return time.perf_counter() - began
