"""The laws of jobs in whole pipelines, without a JVM: what they come to is what a plain Python program finds.

However the records are cut into appends, firings, batches, tasks and buckets, whenever jobs fire and runners are replaced.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, Phase, event, example, given, settings
from hypothesis import strategies as st

import access_log
import hayase as hy
from access_log import BEGIN, Moment, after_all, check_figures, disturbed, moved, plain, requests, statistics, total
from effort import examples
from examples import sensor_watch
from interruptions import passing_home

LAW = settings(
    max_examples=examples(4, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a run is a hundred files: shrinking would take minutes
)
MINUTE = timedelta(minutes=1)

moments = st.lists(
    st.builds(
        Moment,
        st.integers(0, 40),
        st.sampled_from([0, 0.5, 1, 2, 7]),
        st.integers(0, 3),
        st.sampled_from([1, 7, 1000]),
        st.booleans(),
    ),
    max_size=5,
)
runs = st.fixed_dictionaries({"script": moments, "tasks": st.integers(1, 3), "at_once": st.booleans()})
buckets = st.integers(1, 3)


def at(seconds: float) -> Any:
    return BEGIN + timedelta(seconds=seconds)


def pipeline_of(home: Path, schema: str, of: int, slack: Any = 0) -> hy.Pipeline:
    """A pipeline of one stream, called `events`."""
    pipeline = hy.Pipeline("events", home, buckets=of, clock=after_all)
    pipeline.stream("events", f"time timestamp, {schema}", slack=slack)
    return pipeline


# ------------------------------------------------------------------------------------------------ counting


def words(record: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for word in record["line"].split():
        yield word, 1


def count(key: str, values: list[int]) -> Iterator[tuple[str, int]]:
    yield key, sum(values)


def lengths(batch: pa.RecordBatch) -> pa.RecordBatch:
    length = pc.utf8_length(batch.column("line"))
    return pa.RecordBatch.from_arrays([length, pa.repeat(1, batch.num_rows)], names=["length", "n"])


@settings(LAW, max_examples=examples(3, 40))
@given(st.integers(0, 2**32), st.integers(1, 150), runs, buckets)
@example(3, 400, {"script": [Moment(70, 1, 2, 31, True)] * 5, "tasks": 2, "at_once": False}, 3)
def test_word_count_and_statistics_of_a_log_depend_on_the_log_alone(
    seed: int, length: int, run: dict[str, Any], of: int
) -> None:
    log = requests(seed, length, hours=length / 120)
    with passing_home() as home:
        pipeline = access_log.monitor(home, of)
        by_function = pipeline.job("words", reads="lines", every="3 seconds")
        by_function.map(words)
        by_function.reduce(count)
        by_aggregate = pipeline.job("sums", reads="lines", every="3 seconds")
        by_aggregate.map(words)
        by_aggregate.reduce("sum")
        of_batches = pipeline.job("lengths", reads="lines", every="1 second")
        of_batches.map(lengths, schema="length int, n bigint", key="length", batches=True)
        of_batches.reduce(n="sum(n)")
        disturbed(pipeline, "lines", [each.row() for each in log], **run)
        access_log.check(pipeline, log)
        wanted = statistics(log)
        event(f"alerts for busy addresses: {bool(statistics(log, access_log.rates_before()).busy)}")
        assert total(pipeline, "words") == total(pipeline, "sums") == wanted.words
        assert access_log.summed(pipeline, "lengths", "length", "n") == Counter(len(each.text) for each in log)


# ------------------------------------------------------------------------------------------------ windows


def with_one(record: dict[str, Any]) -> tuple[str, list[int]]:
    return record["sensor"], [record["value"], 1]


def added(key: str, values: list[list[int]]) -> tuple[str, list[int]]:
    return key, [sum(each) for each in zip(*values)]


samples = st.lists(
    st.fixed_dictionaries(
        {
            "time": st.integers(0, 90).map(lambda each: BEGIN + each * MINUTE) | st.integers(0, 5400).map(at),
            "sensor": st.sampled_from(["a", "b", "c"]),
            "value": st.integers(-100, 100),
        }
    ),
    max_size=60,
)


@LAW
@given(samples, runs, buckets)
def test_the_moving_average_of_15_minutes_every_6(rows: list[dict[str, Any]], run: dict[str, Any], of: int) -> None:
    with passing_home() as home:
        pipeline = pipeline_of(home, "sensor string, value bigint", of, slack="2 hours")
        sums = pipeline.job("sums", reads="events")
        sums.map(with_one)
        sums.reduce(added, window="15 minutes", every="6 minutes")
        means = pipeline.job("means", reads="events")
        means.reduce(key="sensor", window="15 minutes", every="6 minutes", mean="avg(value)", n="count(*)")
        disturbed(pipeline, "events", rows, **run)
        expected: dict[Any, list[int]] = {}
        end = BEGIN.replace(minute=48)
        while rows and end <= max(row["time"] for row in rows):
            for row in rows:
                if end - 15 * MINUTE < row["time"] <= end:
                    found = expected.setdefault((row["sensor"], end), [0, 0])
                    found[0] += row["value"]
                    found[1] += 1
            end += 6 * MINUTE
        told = [
            (json.loads(row["key"]), row["time"], json.loads(row["value"])) for row in pipeline.stream("sums").rows()
        ]
        assert sorted(told) == sorted((sensor, end, both) for (sensor, end), both in expected.items())
        mean = {(row["sensor"], row["time"]): (row["mean"], row["n"]) for row in pipeline.stream("means").rows()}
        assert mean == {key: (value / number, number) for key, (value, number) in expected.items()}
        assert not pipeline.dead_letters()
        check_figures(pipeline)


# ------------------------------------------------------------------------------------------------ merging


def pair(record: dict[str, Any]) -> tuple[Any, int]:
    return json.loads(record["key"]), record["value"]


def met(key: Any, new: list[int], stored: dict[str, Any] | None) -> tuple[Any, Any]:
    return key, [sorted(new), stored]


def load(record: dict[str, Any]) -> Any:
    return hy.to("stock", json.loads(record["key"]), {"amount": record["value"], "seen": record["value"]})


atoms = st.sampled_from(["a", "b", 'ü"', "", 1, 2, -3, True, 2.5])
keys = st.tuples(atoms, atoms)
entries = st.lists(st.tuples(keys, st.integers(0, 9)), max_size=12)


def rows_of(some: list[tuple[Any, int]]) -> list[dict[str, Any]]:
    return [{"time": at(number), "key": json.dumps(key), "value": value} for number, (key, value) in enumerate(some)]


@LAW
@given(entries, entries, moments, st.integers(1, 3), buckets)
def test_a_merge_is_a_hash_join(stored: list[Any], came: list[Any], script: list[Moment], tasks: int, of: int) -> None:
    """All sides, firing by firing, against a table that a job has filled."""
    came = came * 3
    with passing_home() as home:
        pipeline = pipeline_of(home, "key string, value bigint", of)
        pipeline.stream("deliveries", "time timestamp, key string, value bigint")
        pipeline.table("stock", key=["kind", "size"], amount=hy.Counter(), seen=hy.MaxRegister())
        loading = pipeline.job("loading", reads="deliveries")
        loading.map(load, also="stock")
        for side in ("left", "right", "both"):
            job = pipeline.job(side, reads="events")
            job.map(pair)
            job.merge("stock", met, side=side)
        if stored:
            pipeline.append("deliveries", rows_of(stored))
        pipeline.run_until_idle(spark=False)
        script = [Moment(each.records, 0, 0, 1000, each.restart) for each in script]
        disturbed(pipeline, "events", rows_of(came), script, tasks, finished=False, settled=True)

        table: dict[Any, dict[str, int]] = {}
        for key, value in stored:
            row = table.setdefault(_same(key), {"amount": 0, "seen": value})
            row["amount"] += value
            row["seen"] = max(row["seen"], value)
        wanted: dict[str, list[str]] = {"left": [], "right": [], "both": []}
        first = 0
        for records in [*(each.records for each in script), len(came)]:
            some, first = came[first : first + records], first + records
            groups: dict[Any, list[int]] = defaultdict(list)
            for key, value in some:
                groups[_same(key)].append(value)
            sides = {"left": set(groups), "right": set(table), "both": {*groups, *table}}
            for side, chosen in sides.items():
                if some:
                    wanted[side] += [_told(key, sorted(groups.get(key, [])), table.get(key)) for key in chosen]
        for side, lines in wanted.items():
            assert sorted(_told(_same(key), *value) for key, value in plain(pipeline, side)) == sorted(lines), side
        assert not pipeline.dead_letters()
        check_figures(pipeline)


def _same(key: Any) -> Any:
    """A key by which equal ones are found; true is not 1."""
    return tuple((type(each) is bool, each) for each in key)


def _told(*parts: Any) -> str:
    return json.dumps(parts, sort_keys=True, ensure_ascii=False)


# ------------------------------------------------------------------------------------------------ failures

FAULTS = {
    "raises": "faulty raised ValueError: it is bad",
    "later": "faulty raised KeyError: 'later'",
    "number": "faulty: it gave 7",
    "triple": "faulty: it gave a tuple of 3 parts",
    "unhashable": "a key is null, a boolean, a number, a text or a tuple",
    "huge": "at most 1,024 fit",
    "nan": "which equals nothing",
    "object": "is not JSON",
    "nowhere": "does not say also= that it does",
    "exit": "faulty raised SystemExit: 3",
    "stopped": "onward raised ValueError: no further",
}
RAISED = ("raises", "later", "exit", "stopped")


def faulty(record: dict[str, Any]) -> Iterator[Any]:
    what = record["what"]
    yield "came", 1
    if what == "raises":
        raise ValueError("it is bad")
    if what == "later":
        yield from [("never", 1), {}[what]]
    if what == "exit":
        raise SystemExit(3)
    strange = {
        "number": 7,
        "triple": (1, 2, 3),
        "unhashable": ({"a"}, 1),
        "huge": ("x" * 2000, 1),
        "nan": (float("nan"), 1),
        "object": ("k", object()),
        "nowhere": hy.to("nowhere", 1, 1),
    }
    yield strange.get(what, (what, 1))


def onward(record: dict[str, Any]) -> tuple[str, int]:
    if record["key"] == "stopped":
        raise ValueError("no further")
    return record["key"], record["value"]


def picky(key: str, values: list[int]) -> tuple[str, int]:
    if key == "refused":
        raise RuntimeError(f"no {key}")
    return key, sum(values)


@LAW
@given(st.lists(st.sampled_from([*FAULTS, "fine", "good", "refused"]), max_size=40), runs, buckets)
@example([*FAULTS, "fine", "refused", *FAULTS], {"script": [], "tasks": 1, "at_once": True}, 2)
def test_a_function_that_fails_costs_the_record_alone(whats: list[str], run: dict[str, Any], of: int) -> None:
    with passing_home() as home:
        pipeline = pipeline_of(home, "what string", of)
        mapped = pipeline.job("mapped", reads="events")
        mapped.map(faulty)
        mapped.map(onward)
        reduced = pipeline.job("reduced", reads="mapped")
        reduced.reduce(picky)
        disturbed(pipeline, "events", [{"time": at(number), "what": what} for number, what in enumerate(whats)], **run)

        fine = [what for what in whats if what not in FAULTS]
        found = [key for key, _ in plain(pipeline, "mapped")]
        assert Counter(found) == Counter(each for what in fine for each in ("came", what))
        kept = Counter(each for each in found if each != "refused")
        assert Counter(total(pipeline, "reduced")) == kept
        letters = pipeline.dead_letters()
        refused = {each["offset"]: each["reason"] for each in letters if each["stage"] == "mapped"}
        assert {number: what for number, what in enumerate(whats) if what in FAULTS}.keys() == refused.keys()
        for number, reason in refused.items():
            assert FAULTS[whats[number]] in reason
            assert whats[number] not in RAISED or (f"{Path(__file__).name}, line " in reason)
        of_key = [each["reason"] for each in letters if each["stage"] == "reduced"]
        assert len(of_key) == fine.count("refused")
        assert all("picky raised RuntimeError: no refused" in each for each in of_key)
        totals = pipeline.progress().totals
        assert (totals["mapped"].read, totals["mapped"].dead) == (len(whats), len(refused))
        assert (totals["reduced"].read, totals["reduced"].dead) == (len(found), len(of_key))
        check_figures(pipeline)


# ------------------------------------------------------------------------------------------------ order, loops


def numbered(record: dict[str, Any]) -> tuple[str, int]:
    return record["sensor"], record["value"]


def listed(key: str, values: list[int]) -> tuple[str, list[int]]:
    return key, values


@LAW
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20)), max_size=60), runs, buckets)
def test_values_come_in_the_order_of_their_times_on_request(
    some: list[tuple[str, int]], run: dict[str, Any], of: int
) -> None:
    rows = [{"time": at(second), "sensor": sensor, "value": second} for sensor, second in some]
    with passing_home() as home:
        pipeline = pipeline_of(home, "sensor string, value bigint", of)
        for name, order in (("ordered", "time"), ("unordered", None)):
            job = pipeline.job(name, reads="events")
            job.map(numbered)
            job.reduce(listed, order=order)
        disturbed(pipeline, "events", rows, **run)
        for name in ("ordered", "unordered"):
            found = list(plain(pipeline, name))
            assert Counter((key, each) for key, values in found for each in values) == Counter(some)
            assert name == "unordered" or all(values == sorted(values) for _, values in found)


def collatz(record: dict[str, Any]) -> Iterator[Any]:
    begun, number, steps = record["value"] if "key" in record else (record["value"], record["value"], 0)
    if number == 1:
        yield begun, steps
    else:
        yield hy.to("again", number, [begun, number // 2 if number % 2 == 0 else 3 * number + 1, steps + 1])


def started(record: dict[str, Any]) -> tuple[str, int]:
    return record["sensor"], record["value"]


def doubled(key: str, values: list[int]) -> tuple[str, int]:
    return key, 2 * sum(values)


@LAW
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 12)), max_size=20), runs, buckets, st.integers(1, 4))
def test_loops_end_by_themselves_or_after_so_many_rounds(
    some: list[tuple[str, int]], run: dict[str, Any], of: int, rounds: int
) -> None:
    rows = [{"time": at(number), "sensor": sensor, "value": value} for number, (sensor, value) in enumerate(some)]
    with passing_home() as home:
        pipeline = pipeline_of(home, "sensor string, value bigint", of)
        pipeline.job("steps", reads="events").map(collatz, reads=["events", "again"], also="again")
        doubling = pipeline.job("doubling", reads="events", rounds=rounds)
        doubling.map(started, writes="round_and_round")
        doubling.reduce(doubled, reads="round_and_round", writes="round_and_round")
        disturbed(pipeline, "events", rows, **run)
        assert Counter(plain(pipeline, "steps")) == Counter((value, _steps(value)) for _, value in some)
        sums: Counter[str] = Counter()
        for sensor, value in some:
            sums[sensor] += value * 2 ** (rounds + 1)
        assert total(pipeline, "doubling") == sums
        assert not pipeline.dead_letters()
        check_figures(pipeline)


def _steps(number: int) -> int:
    steps = 0
    while number != 1:
        number, steps = number // 2 if number % 2 == 0 else 3 * number + 1, steps + 1
    return steps


# ------------------------------------------------------------------------------------------------ sensors

CALIBRATIONS = {"a": (2.0, 1.0), "b": (0.5, -4.0), "ü": (1.0, 0.0)}


@LAW
@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "ü", "none"]), st.integers(-40, 40).map(lambda n: n / 4)), max_size=60
    ),
    runs,
    buckets,
)
def test_changes_of_sensors_are_those_of_a_plain_program(
    some: list[tuple[str, float]], run: dict[str, Any], of: int
) -> None:
    rows = [{"time": at(number), "sensor": sensor, "raw": raw} for number, (sensor, raw) in enumerate(some)]
    with passing_home() as home:
        pipeline = moved(sensor_watch.p, home, of)
        given_ones = [
            {"time": at(0), "id": each, "sensor": each, "scale": scale, "zero": zero}
            for each, (scale, zero) in CALIBRATIONS.items()
        ]
        pipeline.append("measured", given_ones)
        pipeline.run_until_idle(spark=False)
        disturbed(pipeline, "readings", rows, **run)
        changes: dict[str, list[Any]] = defaultdict(list)
        history: dict[str, dict[str, float]] = {}
        for sensor, raw in some:
            if sensor in CALIBRATIONS:
                scale, zero = CALIBRATIONS[sensor]
                _watch(history, changes[sensor], sensor, (raw - zero) * scale)
        found: dict[str, list[Any]] = defaultdict(list)
        for sensor, told in plain(pipeline, "changes"):
            found[sensor].append(told)
        assert found == {sensor: told for sensor, told in changes.items() if told}
        kept = {
            row["sensor"]: {name: row[name] for name in row if name != "sensor"}
            for row in pipeline.table("history").rows()
        }
        assert kept == history
        letters = pipeline.dead_letters()
        assert len(letters) == sum(sensor == "none" for sensor, _ in some)
        assert all("calibrate raised LookupError: none has no calibration" in each["reason"] for each in letters)
        check_figures(pipeline)


def _watch(history: dict[str, dict[str, float]], changes: list[Any], sensor: str, value: float) -> None:
    """One value, as a plain program would take it."""
    if sensor not in history:
        history[sensor] = {"count": 0, "sum": 0, "last": value, "low": value, "high": value}
    known = history[sensor]
    if abs(value - known["last"]) >= 5:
        changes.append({"jump": [known["last"], value]})
    if value < known["low"] or value > known["high"]:
        changes.append({"record": value})
    history[sensor] = {
        "count": known["count"] + 1,
        "sum": known["sum"] + value,
        "last": value,
        "low": min(known["low"], value),
        "high": max(known["high"], value),
    }
