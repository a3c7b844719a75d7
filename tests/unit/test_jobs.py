"""Jobs as stages: groups, tables, typed tuples, batches, sliding reduces, and what is refused when they are planned."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import hayase.jobs as hy
from hayase.core.algebra import user_aggregate
from hayase.core.declarations import (
    AggregateDeclaration,
    JobDeclaration,
    PipelineDeclaration,
    StepDeclaration,
    StreamDeclaration,
    TableDeclaration,
)
from hayase.jobs.job_builder import Job
from hayase.jobs.job_planner import plan_jobs
from hayase.jobs.tuples import key_column, key_text, loads_all, value_column
from job_runner import RowBuffer, Runner

LOGS = StreamDeclaration("logs", "at timestamp, line string, status int, size bigint, user string", "at", slack=5)
BLOCKED = TableDeclaration("blocked", ("address", "reason"), (("since", "Register"),))
TOTALS = TableDeclaration("totals", ("user",), (("hits", "Counter"), ("last", "Register")))
APACHE = Path(__file__).parents[3] / "shared" / "data" / "apache_access.log"


def at(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def rows(*lines: str, **more: Any) -> list[dict[str, Any]]:
    return [{"at": at(n), "line": line, "user": line, "size": n, **more} for n, line in enumerate(lines)]


def job(*steps: Any, name: str = "out", reads: Any = "logs", rounds: int | None = None) -> JobDeclaration:
    made = Job(name, reads, "2 seconds", rounds=rounds)
    for step in steps:
        step(made)
    return made.declaration


# ---------------------------------------------------------------------------------------------------- functions


def pair(record: dict[str, Any]) -> tuple[str, int]:
    return record["line"], record["size"]


def count(key: Any, values: list[Any]) -> tuple[Any, int]:
    return key, len(values)


def seen(record: dict[str, Any]) -> tuple[str, str]:
    return "seen", repr(sorted(record.items(), key=lambda each: each[0]))


def sorting(record: dict[str, Any]) -> Iterator[Any]:
    yield record["line"], record["size"]
    if record["size"] % 2:
        yield hy.to("odd", record["line"], record["size"])
    if record["size"] > 2:
        yield hy.to("totals", record["user"], {"hits": 1, "last": record["size"]})


def updating(key: Any, values: list[Any]) -> Any:
    if key == "bad column":
        return hy.to("totals", key, {"hit": 1})
    if key == "bad key":
        return hy.to("totals", (1, 2), {"hits": 1})
    if key == "bad value":
        return hy.to("totals", key, 3)
    return key, {"hits": len(values)}


def blocked(key: tuple[str, str], values: list[Any], stored: dict[str, Any] | None) -> Any:
    return (key, [len(values), stored["since"]]) if stored else None


def composite(record: dict[str, Any]) -> tuple[tuple[str, str], int]:
    return (record["line"], record["user"]), 1


def lengths(batch: pa.RecordBatch) -> pa.RecordBatch:
    if pc.any(pc.equal(batch.column("line"), "poison")).as_py():
        raise ValueError("poison")
    return pa.record_batch({"line": batch.column("line"), "length": pc.utf8_length(batch.column("line"))})


def letters(batch: pa.RecordBatch) -> Iterator[pa.Table]:
    lines = batch.column("line").to_pylist()
    row = [at for at, line in enumerate(lines) for _ in line]
    yield pa.table({"letter": [letter for line in lines for letter in line], "__row": row})


def short(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"letter": ["x"] * (batch.num_rows - 1)})


def strange(batch: pa.RecordBatch) -> Any:
    return {"other": pa.record_batch({"line": batch.column("line"), "lenght": [1] * batch.num_rows}), "none": 3}.get(
        batch.column("line")[0].as_py(),
        pa.record_batch({"line": batch.column("line"), "length": ["x"] * batch.num_rows}),
    )


def longest(key: str, values: pa.RecordBatch) -> pa.RecordBatch:
    if key == "b":
        raise KeyError(key)
    return pa.record_batch({"user": [key], "most": [pc.max(values.column("size")).as_py()]})


def other_key(key: str, values: list[int]) -> tuple[str, int]:
    return ("b" if key == "c" else key), sum(values)


def failing(key: str, values: list[int]) -> tuple[str, int]:
    if key == "b":
        raise ValueError("no")
    return key, sum(values)


def wrong_dict(record: dict[str, Any]) -> Any:
    answers: dict[str, Any] = {
        "missing": {"user": "x"},
        "unknown": {"user": "x", "amount": 1, "amuont": 2},
        "unfit": {"user": 3, "amount": "x"},
        "tuple": ("x", 1),
        "null": {"user": None, "amount": Decimal(1)},
        "several": [{"user": "s", "amount": 1}, {"user": "t", "amount": 2}],
    }
    return answers[record["line"]]


ATTEMPTS = {"left": 2}


def flaky(record: dict[str, Any]) -> Iterator[tuple[str, int]]:
    yield record["line"], 1
    if ATTEMPTS["left"]:
        ATTEMPTS["left"] -= 1
        raise OSError("try again")


def address_and_status(record: dict[str, Any]) -> Iterator[tuple[tuple[str, str], int]]:
    before, _, behind = record["line"].partition('" ')
    yield ("address", before.split(" ", 1)[0]), 1
    yield ("status", behind.split(" ", 1)[0] if behind[:3].isdigit() else record["line"].split('" ')[1][:3]), 1


greatest = user_aggregate("greatest_of_all", lift=int, combine=max, result=pa.int64(), commutative=True)


# ---------------------------------------------------------------------------------------------------- flows


def test_a_map_behind_a_reduce_sees_tuples_as_records() -> None:
    runner = Runner([job(lambda j: j.map(pair), lambda j: j.reduce(count), lambda j: j.map(seen))], [LOGS])
    assert [stage.name for stage in runner.stages] == ["_out_1", "out"]
    assert [stage.every for stage in runner.stages] == [2_000_000, 0]
    runner.append("logs", rows("a"))
    runner.until_idle()
    assert runner.tuples("out")[0][1].startswith("[('key', 'a'), ('time', datetime.datetime(1970")


def test_maps_are_fused_and_see_the_same() -> None:
    runner = Runner([job(lambda j: j.map(pair), lambda j: j.map(seen))], [LOGS])
    assert [stage.name for stage in runner.stages] == ["out"]
    assert (runner.stages[0].stream.slack, runner.stages[0].stream.ordered) == (5, False)
    runner.append("logs", rows("a"))
    runner.until_idle()
    assert runner.tuples("out")[0][1].startswith("[('key', 'a'), ('time', datetime.datetime(1970")


def test_a_record_is_refused_with_all_its_tuples() -> None:
    runner = Runner([job(lambda j: j.map(two_sizes), lambda j: j.map(no_threes), lambda j: j.reduce(count))], [LOGS])
    runner.append("logs", rows("a", "a", "a", "a"))
    runner.until_idle()
    assert runner.tuples("out") == [("a", 4)]
    assert [record["size"] for _, record, _ in runner.dead] == [2, 3]


def two_sizes(record: dict[str, Any]) -> list[tuple[str, int]]:
    return [(record["line"], record["size"]), (record["line"], record["size"] + 1)]


def no_threes(record: dict[str, Any]) -> tuple[str, int]:
    if record["value"] == 3:
        raise ValueError("three")
    return record["key"], record["value"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"), (True, "true"), (1.0, "1"), (-0.0, "0"), (2.5, "2.5"), ("ü\n", '"ü\\n"'),
        (((), [1.0, ("x",)]), '[[],[1,["x"]]]'), (np.int64(3), "3"), (np.float64(3), "3"), (np.bool_(True), "true"),
        (-(2**63), "-9223372036854775808"),
    ],
)  # fmt: skip
def test_texts_of_keys(value: Any, text: str) -> None:
    assert key_text(value).decode() == text
    assert key_column([value])[0].to_pylist() == [text]
    assert key_column([value, b"no key"])[0].to_pylist() == [text, None]
    assert key_column([value, "x", 3, ("y", 1)])[0].to_pylist() == [text, '"x"', "3", '["y",1]']


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (2**63, "does not fit 64 bits"), (float("inf"), "equals nothing"), ("\ud800", "a lone surrogate"), ({}, "the key is {}"),
        ("x" * 1023, "1,025 bytes"), (b"x", "(a bytes)"), (datetime(2026, 1, 1), "(a datetime)"), ((1, [set()]), "(a set)"),
    ],
)  # fmt: skip
def test_what_is_no_key(value: Any, told: str) -> None:
    column, reasons = key_column(["good", value, 3])
    assert column.to_pylist() == ['"good"', None, "3"]
    assert told in reasons[1]
    assert list(key_column([value])[1]) == [0]


def test_values_come_back_as_they_were() -> None:
    values = [None, True, 1, -1.5, 'x"', [1, [2]], {"a": {"b": None}}, 2**64 - 1, "", np.int32(4), (1, 2)]
    column, reasons = value_column(values)
    assert not reasons
    assert loads_all(column) == [*values[:-2], 4, [1, 2]]
    for alike in ([1, 2, 3], ["a", "b"], ["a", '"'], [2**63, 1], [("a", 1), ("b", 2)], [("a", 1), ("b", 2.5)], []):
        assert loads_all(value_column(alike)[0]) == [list(each) if isinstance(each, tuple) else each for each in alike]
    bad = [
        float("nan"),
        [float("inf")],
        {1: 2},
        2**64,
        object(),
        datetime(2026, 1, 1),
        {"a": np.array([np.nan])},
        "\ud800",
    ]
    for each in bad:
        assert list(value_column(["good", each])[1]) == [1], each


def test_several_groups_and_a_table() -> None:
    made = job(
        lambda j: j.map(also=["odd", "totals", "public"])(sorting),
        lambda j: j.reduce(count),
        lambda j: j.reduce(reads="odd", writes="odds")(count),
    )
    runner = Runner([made], [LOGS], [RowBuffer(TOTALS, {})])
    assert [stage.name for stage in runner.stages] == ["_out_1", "out", "odds", "public"]
    assert runner.declared["_out_1"].schema == "`group` string, key string, value string, time timestamp"
    assert runner.emitted == {"totals": ("_out_1",)}
    runner.append("logs", rows("a", "b", "a", "b"))
    runner.until_idle()
    assert dict(runner.tuples("out")) == {"a": 2, "b": 2}
    assert runner.tuples("odds") == [("b", 2)]
    assert runner.rows("public") == []
    updates = [each for each in runner.rows("_out_1") if each["group"] == "totals"]
    assert [(each["key"], json.loads(each["value"]), each["time"]) for each in updates] == [
        ('"b"', {"hits": 1, "last": 3}, at(3))
    ]
    assert not runner.dead


def test_a_step_reads_several_groups_of_one_stage() -> None:
    made = job(
        lambda j: j.map(also=["odd", "totals"], writes="all")(sorting), lambda j: j.reduce(reads=["odd", "all"])(count)
    )
    runner = Runner([made], [LOGS], [RowBuffer(TOTALS, {})])
    assert [each.stream for each in runner.stages[1].inputs] == ["_out_1"]
    runner.append("logs", rows("a", "b", "a", "b"))
    runner.until_idle()
    assert dict(runner.tuples("out")) == {"a": 2, "b": 4}


def test_tuples_that_do_not_update_a_table_are_refused() -> None:
    made = job(lambda j: j.map(pair), lambda j: j.reduce(writes="totals")(updating))
    runner = Runner([made], [LOGS], [RowBuffer(TOTALS, {})], buckets=1)
    runner.append("logs", rows("ok", "bad column", "bad key", "bad value"))
    runner.until_idle()
    assert [(each["group"], each["key"], each["value"]) for each in runner.rows("_out_1")] == [
        ("totals", '"ok"', '{"hits":1}')
    ]
    told = {json.loads(record["key"]): reason for _, record, reason in runner.dead}
    assert told == {
        "bad column": 'updating: table "totals" has no column "hit"; did you mean "hits"?',
        "bad key": 'updating: the key (1, 2) is none of table "totals"; give user, each a text, a number or a boolean',
        "bad value": 'updating: it gave 3 (a int) for table "totals"; give {column: parameter}',
    }


@pytest.mark.parametrize("typed", [True, False])
def test_aggregates_update_a_table(typed: bool) -> None:
    calls = {"hits": "count(*)", "last": "last(size)" if typed else "last(value)"}
    steps = [] if typed else [lambda j: j.map(pair)]
    made = job(*steps, lambda j: j.reduce(key="user" if typed else (), writes="totals", **calls))
    runner = Runner([made], [LOGS], [RowBuffer(TOTALS, {})])
    runner.append("logs", rows("a", "b", "a"))
    runner.until_idle()
    found = {each["key"]: json.loads(each["value"]) for each in runner.rows("_out_1")}
    assert found == {'"a"': {"hits": 2, "last": 2}, '"b"': {"hits": 1, "last": 1}}


def test_a_merge_by_a_composite_key() -> None:
    shelf = RowBuffer(BLOCKED, {("a", "x"): {"since": 1}, ("b", "y"): {"since": 2}})
    runner = Runner([job(lambda j: j.map(composite), lambda j: j.merge("blocked")(blocked))], [LOGS], [shelf])
    runner.append("logs", [*rows("a", "a", "b", user="x"), *rows("b", user="y")])
    runner.until_idle()
    assert sorted(runner.tuples("out")) == [(["a", "x"], [2, 1]), (["b", "y"], [1, 2])]
    assert sorted(shelf.asked) == [("a", "x"), ("b", "x"), ("b", "y")]


def test_jobs_read_each_other_in_any_order_of_declaration() -> None:
    first, second = job(lambda j: j.map(pair)), job(lambda j: j.reduce("count"), name="counts", reads="out")
    runner = Runner([second, first], [LOGS])
    assert [stage.name for stage in runner.stages] == ["out", "counts"]
    runner.append("logs", rows("a", "b", "a"))
    runner.until_idle()
    assert dict(runner.tuples("counts")) == {"a": 2, "b": 1}


def test_several_streams() -> None:
    more = StreamDeclaration("more", "t bigint, line string, size bigint", "t", time_unit="s")
    runner = Runner([job(lambda j: j.map(pair), lambda j: j.reduce(count), reads=["logs", "more"])], [LOGS, more])
    runner.append("logs", rows("a", "b"))
    runner.append("more", [{"t": 9, "line": "a", "size": 1}])
    runner.until_idle()
    assert dict(runner.tuples("out")) == {"a": 2, "b": 1}
    assert {each["key"]: each["time"] for each in runner.rows("out")} == {'"a"': at(9), '"b"': at(1)}


# ---------------------------------------------------------------------------------------------------- batches and types


def test_batches_are_halved_until_the_poison_is_alone() -> None:
    made = job(
        lambda j: j.map(schema="line string, length int", key="length", batches=True)(lengths),
        lambda j: j.reduce("count"),
    )
    runner = Runner([made], [LOGS])
    runner.append("logs", rows("a", "bb", "poison", "cc", "d", "poison", ""))
    runner.until_idle()
    found = sorted((each["length"], each["count"], each["time"]) for each in runner.rows("out"))
    assert found == [(0, 1, at(6)), (1, 2, at(4)), (2, 2, at(3))]
    assert [record["size"] for _, record, _ in runner.dead] == [2, 5]
    assert "lengths raised ValueError: poison" in runner.dead[0][2]


def test_a_batch_may_give_rows_of_its_own_number() -> None:
    runner = Runner([job(lambda j: j.map(schema="letter string", batches=True)(letters))], [LOGS], chunk=2)
    runner.append("logs", rows("ab", "", "c"))
    runner.until_idle()
    assert [(each["letter"], each["time"]) for each in runner.rows("out")] == [("a", at(0)), ("b", at(0)), ("c", at(2))]
    runner = Runner([job(lambda j: j.map(schema="letter string", batches=True)(short))], [LOGS])
    runner.append("logs", rows("ab", "c"))
    runner.until_idle()
    assert len(runner.dead) == 2
    assert "it took 1 rows and gave 0" in runner.dead[0][2]
    made = job(lambda j: j.map(schema="line string, length int", batches=True)(strange))
    runner = Runner([made], [LOGS], chunk=1)
    runner.append("logs", rows("other", "none", "unfit"))
    runner.until_idle()
    assert [reason for _, _, reason in runner.dead] == [
        'strange: it gave no column "length"; it gave a column "lenght", which the schema does not have',
        "strange: it gave 3 (a int); give an Arrow batch or table, a list of such, or None",
        'strange: column "length" must be int, not "x"',
    ]


def test_reduces_of_batches() -> None:
    made = job(lambda j: j.reduce(key="user", schema="user string, most bigint", batches=True)(longest))
    runner = Runner([made], [LOGS])
    runner.append("logs", rows("a", "b", "a", "b", "c"))
    runner.until_idle()
    assert sorted((each["user"], each["most"]) for each in runner.rows("out")) == [("a", 2), ("c", 4)]
    assert [record["user"] for _, record, _ in runner.dead] == ["b", "b"]


def test_typed_tuples_that_do_not_fit() -> None:
    made = job(lambda j: j.map(schema="user string not null, amount int")(wrong_dict))
    runner = Runner([made], [LOGS])
    runner.append("logs", rows("missing", "unknown", "unfit", "tuple", "null", "several"))
    runner.until_idle()
    assert [(each["user"], each["amount"]) for each in runner.rows("out")] == [("x", None), ("s", 1), ("t", 2)]
    assert {record["line"]: reason for _, record, reason in runner.dead} == {
        "unknown": 'wrong_dict: there is no column "amuont"; did you mean "amount"?',
        "unfit": 'wrong_dict: column "user" must be string, not 3; column "amount" must be int, not "x"',
        "tuple": "wrong_dict: it gave ('x', 1) (a tuple); give a dict of the columns user, amount, a list of such, or None",
        "null": 'wrong_dict: column "user" is null, and must not be',
    }


def test_only_some_failures_are_told_with_their_tracebacks() -> None:
    for made in (job(lambda j: j.map(no_threes)), job(lambda j: j.map(schema="a int", batches=True)(no_threes))):
        runner = Runner([made], [LOGS])
        runner.append("logs", rows(*["x"] * 120))
        runner.until_idle()
        assert sum("Traceback" in reason for _, _, reason in runner.dead) == 100
        assert len(runner.dead) == 120
        assert runner.dead[-1][2].startswith("no_threes raised KeyError: ")


def test_another_attempt() -> None:
    ATTEMPTS["left"] = 2
    runner = Runner([job(lambda j: j.map(attempts=3)(flaky))], [LOGS])
    runner.append("logs", rows("a", "b"))
    runner.until_idle()
    assert runner.tuples("out") == [("a", 1), ("b", 1)]
    assert not runner.dead


def test_sums_that_do_not_fit_and_values_that_are_none() -> None:
    made = job(lambda j: j.reduce(key="user", total="sum(size)"))
    runner = Runner([made], [LOGS])
    runner.append("logs", [{"at": at(0), "user": user, "size": 2**62} for user in "aab"])
    runner.until_idle()
    assert [(each["user"], each["total"]) for each in runner.rows("out")] == [("b", 2**62)]
    assert [(record["user"], reason) for _, record, reason in runner.dead] == [("a", "sum(size) does not fit its type")]
    runner = Runner([job(lambda j: j.map(seen), lambda j: j.reduce("max"))], [LOGS])
    runner.append("logs", rows("a"))
    runner.until_idle()
    assert "and numbers were expected" in runner.dead[0][2]


def test_named_aggregates_of_plain_tuples() -> None:
    calls = {
        "n": "count(*)",
        "mean": "avg(value)",
        "most": "max",
        "kinds": "approx_count_distinct(value)",
        "p": "approx_quantile(value, 1)",
    }
    runner = Runner([job(lambda j: j.map(pair), lambda j: j.reduce(**calls))], [LOGS], chunk=1)
    runner.append("logs", rows("a", "a", "b"))
    runner.until_idle()
    assert dict(runner.tuples("out")) == {
        "a": {"n": 2, "mean": 0.5, "most": 1, "kinds": 2, "p": 1.0},
        "b": {"n": 1, "mean": 2.0, "most": 2, "kinds": 1, "p": 2.0},
    }


# ---------------------------------------------------------------------------------------------------- windows


def test_a_sliding_reduce_that_fails_or_gives_another_key() -> None:
    slides = {"window": "4 s", "every": "2 s"}
    runner = Runner([job(lambda j: j.map(pair), lambda j: j.reduce(**slides)(other_key))], [LOGS])
    runner.append("logs", rows("a", "c", "a"))
    runner.fire(100_000_000)
    assert {json.loads(each["key"]) for each in runner.rows("out")} == {"a"}
    assert "a sliding reduce keeps its key" in runner.dead[0][2]
    runner = Runner([job(lambda j: j.map(pair), lambda j: j.reduce(**slides)(failing))], [LOGS])
    runner.append("logs", rows("a", "b", "b"))
    runner.fire(100_000_000)
    assert {json.loads(each["key"]) for each in runner.rows("out")} == {"a"}
    assert [json.loads(record["key"]) for _, record, _ in runner.dead] == ["b", "b"]


def test_several_tuples_of_a_record_are_told_apart_in_windows() -> None:
    made = job(lambda j: j.map(twice), lambda j: j.reduce("sum", window="4 s", every="2 s"))
    turns = itertools.cycle([False, False, True])
    runner = Runner([made], [LOGS], changes=lambda: next(turns))
    for second in range(6):
        runner.append("logs", [{"at": at(second), "line": "x", "size": 1}])
        runner.fire(second * 1_000_000)
    runner.fire(100_000_000)
    found = {each["time"]: json.loads(each["value"]) for each in runner.rows("out")}
    assert found == {at(0): 2, at(2): 6, at(4): 8, at(6): 6, at(8): 2}


@pytest.mark.parametrize("how", ["function", "aggregate"])
@pytest.mark.parametrize("turns", [(False, True), (False, True, True, True)])
@pytest.mark.parametrize("lag", [0, 5])
def test_workers_take_turns(how: str, turns: tuple[bool, ...], lag: int) -> None:
    """What one worker has reduced, or left open, the other goes on with, once."""
    slides: dict[str, Any] = {"window": "9 s", "every": "6 s"}
    reduce = (lambda j: j.reduce("sum", **slides)) if how == "aggregate" else (lambda j: j.reduce(**slides)(added))
    order = itertools.cycle(turns)
    runner = Runner([job(lambda j: j.map(pair), reduce)], [LOGS], buckets=1, changes=lambda: next(order))
    for second in range(26):
        runner.append("logs", [{"at": at(second), "line": "x", "size": 2**second}])
        runner.fire((second - lag) * 1_000_000)
    runner.fire(100_000_000)
    found = {each["time"]: json.loads(each["value"]) for each in runner.rows("out")}
    assert len(found) == len(runner.rows("out"))
    assert found == {
        at(end): sum(2**second for second in range(26) if end - 9 < second <= end) for end in range(0, 36, 6)
    }


def added(key: str, values: list[int]) -> tuple[str, int]:
    return key, sum(values)


def twice(record: dict[str, Any]) -> list[tuple[str, int]]:
    return [("x", 1), ("x", 1)]


# ---------------------------------------------------------------------------------------------------- planning


def told(*jobs: JobDeclaration, tables: tuple[TableDeclaration, ...] = ()) -> list[str]:
    declaration = PipelineDeclaration("p", (LOGS,), jobs=jobs, tables=tables)
    stored: Any = {each.name: RowBuffer(each, {}) for each in tables}
    made = plan_jobs(declaration, {"logs": LOGS}, stored)
    assert not made.stages or not made.mistakes
    return [f"{name}: {mistake}" for name, mistake in made.mistakes]


def test_what_is_refused() -> None:
    assert told(job(lambda j: j.map("nowhere_at_all:f"), reads="log")) == [
        'out: unknown stream or group "log"; did you mean "logs"?',
        "out: step 1 (f): there is no module nowhere_at_all; it must be installed, or lie in the directory of the pipeline",
    ]
    assert told(job(lambda j: j.map(pair), lambda j: j.merge("blokked")(blocked)), tables=(BLOCKED,)) == [
        'out: step 2 (blocked): unknown table "blokked"; did you mean "blocked"?'
    ]
    assert told(job(lambda j: j.reduce(count))) == [
        'out: step 1 (count): it has no key to group by; add key="at" or other columns'
    ]
    assert told(job(lambda j: j.reduce(key="usr")(count))) == [
        'out: step 1 (count): unknown key column "usr"; did you mean "user"?'
    ]
    assert told(job(lambda j: j.map(key="user")(pair), lambda j: j.reduce(key="key")(count))) == [
        "out: step 1 (pair): plain tuples are grouped by their keys; leave key out, or give a schema",
        "out: step 2 (count): plain tuples are grouped by their keys; leave key out, or type what it reads",
    ]
    assert told(job(lambda j: j.reduce("sum", key="user", writes="logs"))) == [
        'out: step 1 (sum): "logs" is a stream that others write; name a group of the job\'s own, or a table'
    ]
    calls = {"a": "sum(sise)", "b": "summ(size)", "d": "sum", "e": "1+1"}
    assert [each.rpartition("1+1): ")[2] for each in told(job(lambda j: j.reduce(key="user", **calls)))] == [
        'sum(sise): unknown column "sise"; did you mean "size"?',
        'summ(size): there is no aggregate summ; did you mean "sum"?',
        "sum: its column is missing; write it like sum(at)",
        "1+1: it is not an aggregate; write it like count(*) or sum(size)",
    ]
    assert "sum(line): there is no sum of a string" in told(job(lambda j: j.reduce(key="user", c="sum(line)")))[0]
    assert told(job(lambda j: j.map(schema="a array<int>", key="a")(pair), lambda j: j.reduce("count"))) == [
        'out: step 2 (count): column "a": a list<item: int32> cannot be a key here; use its atomic parts as key columns'
    ]
    assert told(job(lambda j: j.map(schema="user string", writes="totals")(pair)), tables=(TOTALS,)) == [
        'out: step 1 (pair): typed tuples cannot go to table "totals"; leave schema out, and emit (key, {column: parameter})'
    ]
    assert told(job(lambda j: j.map(pair), lambda j: j.reduce("count", writes="totals")), tables=(TOTALS,)) == [
        'out: step 2 (count): the column of table "totals" to update is missing; name the column: job.reduce(hits="count")'
    ]
    assert told(job(lambda j: j.reduce(key=["user", "status"], writes="totals", hit="count(*)")), tables=(TOTALS,)) == [
        'out: step 1 (hit=count(*)): table "totals" has no column "hit"; did you mean "hits"?',
        'out: step 1 (hit=count(*)): it groups by user, status, and table "totals" by user; group by as many columns',
    ]
    assert told(job(lambda j: j.map(reads="totals")(pair)), tables=(TOTALS,)) == [
        'out: step 1 (pair): "totals" is a table, and cannot be read like a stream; a merge meets a table: @job.merge'
    ]
    slides: dict[str, Any] = {"window": "4 s", "every": "2 s"}
    assert told(
        job(lambda j: j.map(pair), lambda j: j.reduce(p="approx_quantile(value, 0.9)", **slides)),
        job(lambda j: j.map(pair), lambda j: j.reduce(also="odd", **slides)(count), name="other"),
    ) == [
        "out: step 2 (p=approx_quantile(value, 0.9)): approx_quantile(value, 0.9) over plain tuples cannot slide; "
        "give them a schema",
        "other: step 2 (count): a sliding reduce cannot emit to named groups; leave also out, or emit from a map after it",
    ]
    assert told(
        job(lambda j: j.reduce(key="user", **slides)(count)),
        job(
            lambda j: j.map(reads=["logs", "again"], also="again")(pair),
            lambda j: j.reduce("count", **slides),
            name="x",
            rounds=2,
        ),
        job(lambda j: j.reduce("count", reads="out"), name="silent"),
    ) == [
        "out: step 1 (count): a sliding reduce must take the shape that it returns; "
        "let both be plain, or give it a schema and typed tuples to read",
        "x: step 2 (count): rounds are not counted through a sliding reduce; leave rounds out",
    ]
    different = job(
        lambda j: j.map(writes="out")(pair), lambda j: j.reduce(reads="logs", key="user", writes="out", n="count(*)")
    )
    assert told(different) == [
        'out: tuples of different shapes go to the stream "out"; let some go elsewhere with writes='
    ]


def test_a_users_own_aggregate() -> None:
    declared = AggregateDeclaration("best", f"{__name__}:greatest", str(Path(__file__).parent))
    declaration = PipelineDeclaration(
        "p", (LOGS,), jobs=(job(lambda j: j.reduce(key="user", m="best(size)")),), aggregates=(declared,)
    )
    made = plan_jobs(declaration, {"logs": LOGS}, {})
    assert not made.mistakes
    assert made.stages[0].stream.schema == "`user` string, m bigint, time timestamp"


def test_fingerprints_follow_the_functions(tmp_path: Path) -> None:
    module = tmp_path / "fingerprinted.py"

    def fingerprint(text: str, **changes: Any) -> str:
        module.write_text(text)
        step = StepDeclaration("map", f"{module}:f", **changes)
        made = plan_jobs(
            PipelineDeclaration("p", (LOGS,), jobs=(JobDeclaration("out", ("logs",), 1, (step,)),)), {"logs": LOGS}, {}
        )
        return made.stages[0].fingerprint

    text = "LIMIT = 3\n\ndef f(record):\n    return record['line'], LIMIT\n"
    first = fingerprint(text)
    assert fingerprint(text) == first
    assert fingerprint(text.replace("return", "  # a remark\n    return") + "\nOTHER = 3\n") == first
    assert fingerprint(text.replace("= 3", "= 4")) != first
    assert fingerprint(text, schema="a int") != first


@pytest.mark.skipif(not APACHE.exists(), reason="the sample log is not here")
def test_the_sample_log_has_its_true_counts() -> None:
    lines = APACHE.read_text(errors="replace").splitlines()
    made = job(lambda j: j.map(address_and_status), lambda j: j.reduce("count"))
    runner = Runner([made], [LOGS], buckets=3, chunk=2500)
    runner.append("logs", [{"at": at(n), "line": line} for n, line in enumerate(lines)])
    runner.until_idle()
    found = {tuple(key): value for key, value in runner.tuples("out")}
    status = {key[1]: value for key, value in found.items() if key[0] == "status"}
    assert sum(1 for key in found if key[0] == "address") == 1753
    assert status == {"200": 9126, "304": 445, "404": 213, "301": 164, "206": 45, "500": 3, "416": 2, "403": 2}


def test_nothing_costs_nothing() -> None:
    runner = Runner([job(lambda j: j.map(pair), lambda j: j.reduce(count))], [LOGS])
    stage = runner.stages[0]
    mapped = stage.inputs[0].map_side(runner.whole("logs"))
    assert mapped.rows.num_rows == 0
    assert mapped.rows.schema.equals(stage.inputs[0].schema)
    assert len(mapped.refused) == 0
    assert np.array_equal(mapped.input_rows, [])
