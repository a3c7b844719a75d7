"""A run without Spark that is stopped and killed gives what one run over all records gives; frames hold what intervals say."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hayase as hy
from effort import examples
from hayase.engine.local_run import run_local_lanes
from interruptions import passing_home

QUERIES = {
    "spend": "select user, sum(amount) as spend from orders [Range 5 seconds] group by user",
    "newest": "select user, amount from orders [Rows 2]",
    "large": "select user, amount from orders where amount > 3",
}
SCHEMA = "time bigint, uuid string, user string, amount bigint"
orders = st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abc"), st.integers(0, 5)), max_size=25)


def shop(home: Path) -> hy.Pipeline:
    p = hy.Pipeline("shop", home, buckets=2)
    p.stream("orders", SCHEMA, time="time", id="uuid", time_unit="s", slack="5 seconds", max_ahead=None)
    for name, text in QUERIES.items():
        p.query(name, text)
    p.table("bought", key="user", total=hy.Counter())
    p.rules(text="{source: orders, rules: [{tables: {bought: {key: .user, columns: {total: .amount}}}}]}")
    return p


def rows(given_orders: list[tuple[int, str, int]]) -> list[dict[str, Any]]:
    return [
        {"time": at, "uuid": str(number), "user": user, "amount": amount}
        for number, (at, user, amount) in enumerate(given_orders)
    ]


def results(p: hy.Pipeline) -> dict[str, Any]:
    """All that a reader can see, but the order of rows that start at the same time."""
    told: dict[str, Any] = {name: sorted(map(str, p.query(name).intervals())) for name in QUERIES}
    told["bought"] = sorted(map(str, p.table("bought").rows()))
    told["dead"] = sorted((letter["stage"], letter["record"]) for letter in p.dead_letters())
    return told


def without_a_stop(given_orders: list[tuple[int, str, int]]) -> dict[str, Any]:
    with passing_home() as home:
        p = shop(home)
        p.append("orders", rows(given_orders))
        p.finish("orders")
        p.run_until_idle(spark=False)
        return results(p)


@settings(max_examples=examples(10))
@given(orders, st.lists(st.sampled_from(["stop", "abandon", "idle"]), min_size=1, max_size=4))
def test_starts_and_stops_change_nothing(given_orders: list[tuple[int, str, int]], ends: list[str]) -> None:
    with passing_home() as home:
        p = shop(home)
        records, parts = rows(given_orders), len(ends)
        for number, end in enumerate(ends):
            part = records[number * len(records) // parts : (number + 1) * len(records) // parts]
            with contextlib.suppress(KeyError), p.home.lock():
                p.apply()
                with run_local_lanes(p.home, awake=True) as lanes:
                    p.append("orders", part)
                    while end == "idle" and not lanes.is_idle():
                        lanes.check()
                    if end == "abandon":
                        raise KeyError  # the block ends with an error: the running batch is not waited for
        p.finish("orders")
        p.start(spark=False)
        p.wait_until_idle()
        p.stop()
        assert results(p) == without_a_stop(given_orders)


def in_order(changes: list[tuple[Any, str, dict[str, Any]]]) -> list[tuple[Any, str, str]]:
    """Changes of one time and sign have no order of their own."""
    return sorted((time, sign, repr(row)) for time, sign, row in changes)


@settings(max_examples=examples(30))
@given(orders)
def test_frames_hold_what_intervals_changes_and_instants_say(given_orders: list[tuple[int, str, int]]) -> None:
    with passing_home() as home:
        p = shop(home)
        p.append("orders", rows(given_orders))
        p.run_until_idle(spark=False)
        for name in QUERIES:
            found = p.query(name)
            history = found.to_arrow(history=True)
            told = [tuple(row.values()) for row in history.to_pylist()]
            assert told == [(*row.values(), since, until) for row, since, until in found.intervals()]
            assert history.schema == found.schema(history=True)
            assert pa.table(found).schema == found.schema()
            assert [tuple(row.values()) for row in found] == [
                tuple(row.values()) for row in found.to_arrow().to_pylist()
            ]
            changes = list(found.tail(timeout=0))
            if found.log.declaration.lifetimes:
                assert in_order(changes) == in_order(found.changes())
                assert [change[:2] for change in changes] == [change[:2] for change in found.changes()]
            else:  # records are told as they are committed
                assert [row for _, _, row in changes] == [
                    {key: row[key] for key in ("user", "amount")} for row in found
                ]
        assert p.table("bought").to_arrow().to_pylist() == [
            {"user": row["user"], "total": float(row["total"])} for row in p.table("bought").rows()
        ]


PROGRAM = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background ignores it
sys.path[:0] = {path!r}
from test_local_run_laws import shop
from pathlib import Path
lines = iter(["ready\\n"])
def stop():
    sys.stdout.write(next(lines, ""))
    sys.stdout.flush()
shop(Path(sys.argv[1])).run(spark=False, stop=stop)
"""


@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_process_loses_nothing_and_counts_nothing_twice(tmp_path: Path, ends: signal.Signals) -> None:
    chance = random.Random(7)
    given_orders = [(chance.randrange(60), chance.choice("abc"), chance.randrange(6)) for _ in range(300)]
    p = shop(tmp_path / "home")
    records = rows(given_orders)
    program = PROGRAM.format(path=[str(Path(__file__).parent), str(Path(__file__).parents[1])])
    for number in range(3):
        command = [sys.executable, "-c", program, str(p.home.path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            before = p.progress().version
            for part in range(5):
                first = (number * 5 + part) * 20
                p.append("orders", records[first : first + 20])
            while p.progress().version == before and process.poll() is None:
                pass  # a first batch: the next ones are cut off
            process.send_signal(ends)
            _, error = process.communicate()
        assert process.returncode == (0 if ends == signal.SIGINT else -ends), error.decode()
    p.finish("orders")
    p.run_until_idle(spark=False)
    assert results(p) == without_a_stop(given_orders)
