"""Jobs in the engine: firings, loops and their clocks, changed functions."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import hayase as hy
from hayase.core.errors import StageChanged
from hayase.core.times import END
from hayase.engine.local import InProcess


def pair(record: dict[str, Any]) -> tuple[str, int]:
    return record["user"], record["n"]


def total(key: str, values: list[int]) -> tuple[str, int]:
    return key, sum(values)


def doubled(key: str, values: list[int]) -> tuple[str, int]:
    return key, 2 * sum(values)


def halved(key: str, values: list[int]) -> Any:
    for value in values:
        yield hy.to("out", key, value) if value < 2 else hy.to("again", key, value // 2)


def counted(home: Path, function: Any = total, **options: Any) -> hy.Pipeline:
    p = hy.Pipeline("p", home=home, clock=lambda: 0)
    p.stream("numbers", schema="time bigint, user string, n int", time="time", time_unit="us", max_ahead=None)
    job = p.job("sums", reads="numbers", every="100 us")
    job.map(pair)
    job.reduce(**options)(function)
    return p


def append(p: hy.Pipeline, *rows: tuple[int, str, int]) -> None:
    p.append("numbers", [{"time": time, "user": user, "n": n} for time, user, n in rows])


def sums(p: hy.Pipeline) -> list[tuple[str, str]]:
    return [(row["key"], row["value"]) for row in p.stream("sums").table().to_pylist()]


def test_a_firing_takes_all_that_is_there_in_whatever_order(tmp_path: Path) -> None:
    p = counted(tmp_path)
    p.apply()
    now = 0
    with closing(InProcess(p.home, lambda: now, at_once=False)) as runner:
        append(p, (50, "a", 1), (7, "a", 2))  # nothing is late for a job
        runner.run_until_idle()
        append(p, (60, "a", 5))
        runner.run_until_idle()
        assert sums(p) == [('"a"', "3")]
        now = 100
        append(p, (1, "a", 5))
        runner.run_until_idle()
    assert sums(p) == [('"a"', "3"), ('"a"', "10")]


def test_a_changed_function_goes_on_from_the_next_firing(tmp_path: Path) -> None:
    append(p := counted(tmp_path), (1, "a", 3))
    p.run_until_idle(spark=False)
    append(p := counted(tmp_path, doubled), (2, "a", 3))
    p.run_until_idle(spark=False)
    assert sums(p) == [('"a"', "3"), ('"a"', "6")]


def test_a_changed_sliding_reduce_begins_anew(tmp_path: Path) -> None:
    sliding = {"window": "10 us", "every": "5 us"}
    append(p := counted(tmp_path, **sliding), (1, "a", 3))
    p.run_until_idle(spark=False)
    with pytest.raises(StageChanged, match="hayase reset sums --from earliest"):
        counted(tmp_path, doubled, **sliding).apply()


def test_behind_a_loop_clocks_go_on_and_nothing_ends(tmp_path: Path) -> None:
    p = hy.Pipeline("p", home=tmp_path, clock=lambda: 0)
    p.stream("numbers", schema="time bigint, user string, n int", time="time", time_unit="us", max_ahead=None)
    job = p.job("down", reads=["numbers"], every="100 us")
    job.map(pair, reads=["numbers"], writes="again")
    job.reduce(reads="again", also=["again", "out"])(halved)
    p.query("last", "select count(*) as n from out [Range 5 microseconds]")
    append(p, (10, "a", 9), (20, "b", 4))
    p.finish("numbers")
    manifest = p.run_until_idle(spark=False)
    found = sorted((row["key"], row["value"]) for row in p.stream("out").rows())
    assert found == [('"a"', "1"), ('"b"', "1")]
    assert 20 <= manifest.clocks["out"] < END
