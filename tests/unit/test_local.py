"""The runner without Spark: threads make no difference to the results, and an error in one of them is raised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hayase.engine import local
from hayase.engine.batch import offsets
from hayase.engine.batch.gate import FileGate, Grants
from hayase.pipeline import Pipeline

QUERIES = {
    "large": "select k, x + 1 as y from l where x > 0.5",
    "spend": "select k, sum(x) as s, max(x) as m from l [Range 3 seconds] group by k",
    "pairs": "select l.k, l.x, r.x as y from l [Range 1 second], r [Rows 50] where l.k = r.k",
}


def run(home: Path) -> dict[str, pa.Table]:
    random = np.random.default_rng(7)
    p = Pipeline("threads", home=home, buckets=3)
    for name in ("l", "r"):
        p.stream(name, "t bigint, k bigint, x double", time="t", time_unit="ms", slack="1 second")
    for name, text in QUERIES.items():
        p.query(name, text)
    for _ in range(3):
        for name in ("l", "r"):
            began = p.progress().version * 1000
            times = np.sort(random.integers(0, 5000, 500)) + began
            rows = {"t": times, "k": random.integers(0, 20, 500), "x": random.random(500)}
            p.append(name, pa.table(rows))
        p.run_until_idle(spark=False)
    return {name: p.results(name).table() for name in (*QUERIES, "_dead")}


def test_threads_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = offsets.ranges
    monkeypatch.setattr(local, "ranges", lambda start, end, slots: cut(start, end, 4, least=100))
    alone = run(tmp_path / "alone")
    monkeypatch.setattr(local, "THREADED", 1)
    together = run(tmp_path / "together")
    assert alone["pairs"].num_rows > 0
    for name in QUERIES:
        assert together[name].equals(alone[name])
    columns = ["stage", "stream", "reason"]
    assert together["_dead"].select(columns).equals(alone["_dead"].select(columns))


def test_an_error_in_a_thread_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(local, "THREADED", 1)
    monkeypatch.setattr(local, "reduce_bucket", fails)
    with pytest.raises(MemoryError, match="no more"):
        run(tmp_path)


def test_a_gate_that_a_run_left_closed_stops_no_later_one(tmp_path: Path) -> None:
    p = Pipeline("gate", home=tmp_path)
    p.stream("s", "t bigint, x bigint", time="t", time_unit="ms")
    p.query("q", "select x from s")
    p.append("s", [{"t": 1, "x": 1}])
    FileGate(p.home.gate("main")).set(Grants(open=False))  # as one that was killed while it stopped leaves it
    p.run_until_idle(spark=False)
    assert [row["x"] for row in p.results("q").rows()] == [1]


def test_commits_do_not_grow_older_when_the_clock_is_set_back(tmp_path: Path) -> None:
    now = 1_000_000
    p = Pipeline("clock", home=tmp_path, clock=lambda: now)
    p.stream("s", "t bigint, x bigint", time="t", time_unit="ms")
    p.query("q", "select x from s")
    p.append("s", [{"t": 1, "x": 1}])
    first = p.run_until_idle(spark=False)
    now = 10
    p.append("s", [{"t": 2, "x": 2}])
    second = p.run_until_idle(spark=False)
    assert second.version > first.version
    assert second.committed_at == first.committed_at == 1_000_000
