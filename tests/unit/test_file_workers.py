"""Files in and Parquet out by the processes of a running pipeline, which are killed between: every record once."""

from __future__ import annotations

import threading
from pathlib import Path

import duckdb
import psutil

from hayase import Files, Parquet, Pipeline
from hayase.connectors.supervision import Connectors
from hayase.engine.home import Home

FILES = 12


def written(directory: Path) -> list[int]:
    """The numbers in the files of the output; a file that is removed meanwhile counts later."""
    if not list(directory.glob("*.parquet")):
        return []
    try:
        return sorted(n for (n,) in duckdb.sql(f"SELECT n FROM read_parquet('{directory}/*.parquet')").fetchall())
    except duckdb.IOException:
        return []


def workers() -> list[psutil.Process]:
    """The processes of sources and outputs that this process has started."""
    return [child for child in psutil.Process().children() if "hayase.connectors.worker" in child.cmdline()]


def test_processes_that_are_killed_lose_and_repeat_nothing(tmp_path: Path) -> None:
    files, out = tmp_path / "in", tmp_path / "out"
    files.mkdir()
    pipeline = Pipeline("shop", home=tmp_path / "home")
    source = Files(f"{files}/*.ndjson", watch="100 ms")
    pipeline.stream("logs", "time bigint, n bigint", time="time", time_unit="s", source=source)
    pipeline.query("total", "SELECT sum(n) AS total FROM logs [RANGE UNBOUNDED]")
    pipeline.output("lake", reads="logs", to=Parquet(str(out), every="100 ms", emit="rows"))
    pipeline.apply()
    moment = threading.Event()
    with Connectors(Home(tmp_path / "home")):
        for number in range(FILES):
            draft = files / f"{number}.part"
            draft.write_text("".join(f'{{"time": 1, "n": {number * 100 + at}}}\n' for at in range(100)))
            draft.rename(draft.with_suffix(".ndjson"))
            if number % 4 == 3:
                while len(written(out)) < (number - 2) * 100:
                    moment.wait(0.05)
                for worker in workers():
                    worker.kill()
        while len(written(out)) < FILES * 100:
            moment.wait(0.05)
    assert written(out) == list(range(FILES * 100))
