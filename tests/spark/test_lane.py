"""The lane on Spark: equal to the model and to the runner without Spark, changed while it runs, hurt while it runs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import hayase as hy
import shop
from hayase.engine.definition import definitions
from hayase.engine.spark.runner import run_lanes, run_until_idle
from lane_processes import fork_servers, planner, until, workers
from shop import Event, check, expected

pytestmark = pytest.mark.spark


def some_events(count: int, seed: int) -> list[Event]:
    dice = random.Random(seed)
    return [
        Event(at + dice.randint(-9, 9), dice.choice(["a", "b", "c", None, ""]), dice.choice([None, 1, 4, 9, 2**62]))
        for at in range(count)
    ]


def append(pipeline: hy.Pipeline, events: list[Event]) -> None:
    pipeline.append("events", [each.row() for each in events])


def test_it_gives_what_the_model_and_the_runner_without_spark_give(spark: SparkSession, tmp_path: Path) -> None:
    given = some_events(400, seed=1)
    with_spark, without = (shop.shop(tmp_path / name, 6) for name in ("with", "without"))
    for pipeline in (with_spark, without):
        append(pipeline, given[:200])
        pipeline.apply()
    run_until_idle(with_spark.home, session=spark)
    without.run_until_idle(spark=False)
    check(with_spark, expected(given[:200], 6, finished=False))
    for pipeline in (with_spark, without):
        append(pipeline, given[200:])
        pipeline.finish("events")
    run_until_idle(with_spark.home, session=spark)
    without.run_until_idle(spark=False)
    check(with_spark, expected(given, 6, finished=True))
    for name in shop.QUERIES:
        one, other = (sorted(map(str, each.results(name).table().to_pylist())) for each in (with_spark, without))
        assert one == other, name
    letters = [
        sorted(
            (row["stage"], row["offset"], row["reason"], row["record"], row["version"]) for row in each.dead_letters()
        )
        for each in (with_spark, without)
    ]
    assert letters[0] == letters[1]


def test_stages_come_change_and_go_while_it_runs_and_workers_may_die(spark: SparkSession, tmp_path: Path) -> None:
    given = some_events(300, seed=2)
    pipeline = shop.shop(tmp_path, 6, ["spend"])
    append(pipeline, given[:100])
    pipeline.apply()
    with run_lanes(pipeline.home, session=spark) as lane:
        before = lane.run_ids()
        until(lane.is_idle, lane)
        for name in ("ranks", "big", "copy"):
            pipeline.query(name, shop.QUERIES[name])
        pipeline.apply()
        append(pipeline, given[100:200])
        until(lane.is_idle, lane)
        check(pipeline, expected(given[:200], 6, finished=False))

        pipeline.remove("copy")
        pipeline.remove("big")
        pipeline.query("big", "select user, amount * 2 as twice from events where amount > 5")
        pipeline.apply()
        until(lane.is_idle, lane)
        assert set(lane.manifest.totals) == {"spend", "ranks", "big"}
        doubled = shop.rows_of(pipeline, "big")
        pipeline.reset("spend")
        append(pipeline, given[200:])
        for each in workers():
            each.kill()  # a task that was theirs is tried again, in a worker that holds no kernels
        until(lane.is_idle, lane)
        assert lane.run_ids() == before
        pipeline.finish("events")
        until(lane.is_idle, lane)
    want = expected(given, 6, finished=True)
    for name in ("spend", "ranks"):
        assert shop.rows_of(pipeline, name) == want[name].rows
        assert want[name].figures in (None, shop.figures_of(pipeline, name))
    more = shop.expected_big([Event(e.at, e.user, e.amount if (e.amount or 0) > 5 else None) for e in given[200:]])
    assert shop.rows_of(pipeline, "big") - doubled == more.rows
    assert definitions.latest_version(pipeline.home) == 4


def test_queries_are_built_beside_the_old_ones_changed_or_in_other_buckets(spark: SparkSession, tmp_path: Path) -> None:
    given = some_events(300, seed=7)
    pipeline = shop.shop(tmp_path / "home", 6, ["spend", "ranks", "copy"])
    append(pipeline, given[:100])
    pipeline.apply()
    with run_lanes(pipeline.home, session=spark) as lane:
        until(lane.is_idle, lane)
        changed = shop.shop(tmp_path / "home", 6, ["spend", "ranks", "copy"])
        changed.query("spend", shop.SPEND.replace("from events", "from events where amount < 9"))
        assert changed.apply(beside=True).build is not None
        append(pipeline, given[100:200])
        until(lane.is_idle, lane)
        newest = definitions.latest(pipeline.home)
        assert newest is not None
        assert newest.build is None
        assert changed.rebucket(3).build is not None
        append(pipeline, given[200:])
        until(lane.is_idle, lane)
        newest = definitions.latest(pipeline.home)
        assert newest is not None
        assert (newest.build, newest.buckets) == (None, 3)
        pipeline.finish("events")
        until(lane.is_idle, lane)
    clean = shop.shop(tmp_path / "clean", 6, ["spend", "ranks", "copy"])
    clean.query("spend", shop.SPEND.replace("from events", "from events where amount < 9"))
    append(clean, given)
    clean.finish("events")
    clean.run_until_idle(spark=False)
    for name in ("spend", "ranks", "copy"):
        assert shop.rows_of(pipeline, name) == shop.rows_of(clean, name)
        if name == "copy":  # how many records tell the changes that ranks reads depends on the batches
            assert shop.figures_of(pipeline, name) == shop.figures_of(clean, name)
    versions = {record.fingerprint for record in newest.records}
    letters, wanted = (
        sorted((row["stage"], row["offset"]) for row in each.dead_letters() if row["version"] in versions)
        for each in (pipeline, clean)
    )
    assert letters == wanted


def test_a_planner_and_the_fork_server_may_die(spark: SparkSession, tmp_path: Path) -> None:
    given = some_events(200, seed=3)
    pipeline = shop.shop(tmp_path, 6, ["spend"])
    append(pipeline, given[:100])
    pipeline.apply()
    with run_lanes(pipeline.home, session=spark) as lane:
        until(lane.is_idle, lane)
        planner(lane).kill()
        append(pipeline, given[100:150])
        until(lane.is_idle, lane)
        until(lambda: bool(fork_servers()), lane)  # an earlier test may have ended it
        for server in fork_servers():
            server.kill()  # everything that it has forked ends; plain interpreters are started until there is another one
        append(pipeline, given[150:])
        pipeline.finish("events")
        until(lane.is_idle, lane)
    check(pipeline, expected(given, 6, finished=True), ["spend"])


def test_repeats_are_left_out_also_if_the_planner_and_the_workers_die(spark: SparkSession, tmp_path: Path) -> None:
    dice = random.Random(7)
    events = [{"ts": at, "id": f"e{at}", "user": dice.choice("abc"), "x": dice.randint(1, 9)} for at in range(300)]
    sent = sorted(
        (event for event in events for _ in range(dice.randint(1, 3))),
        key=lambda event: event["ts"] + dice.uniform(0, 5),
    )
    pipelines = []
    for name, dedupe in (("clean", None), ("repeated", "20 seconds")):
        pipeline = hy.Pipeline(name, tmp_path / name, buckets=3)
        schema = "ts bigint, id string, user string, x bigint"
        pipeline.stream("s", schema, "ts", "id", time_unit="s", slack="6 seconds", dedupe=dedupe)
        pipeline.query("spend", "select user, sum(x) as n, count(*) as c from s [Range 30 seconds] group by user")
        pipeline.query("big", "select id, x from s where x > 5")
        pipelines.append(pipeline)
    clean, repeated = pipelines
    clean.append("s", events)
    clean.finish("s")
    clean.run_until_idle(spark=False)
    repeated.append("s", sent[:100])
    repeated.apply()
    with run_lanes(repeated.home, session=spark) as lane:
        until(lane.is_idle, lane)
        killed = 0
        for start in (100, 200, 300):
            planner(lane).kill()  # the ids that it knew are read again from the log
            for worker in workers():  # Spark ends those that were idle for a minute
                worker.kill()
                killed += 1
            repeated.append("s", sent[start : start + 100 if start < 300 else len(sent)])
            until(lane.is_idle, lane)
        repeated.finish("s")
        until(lane.is_idle, lane)
        totals = lane.manifest.totals
    assert killed
    assert sorted(map(str, repeated.query("spend").intervals())) == sorted(map(str, clean.query("spend").intervals()))
    assert sorted(map(str, repeated.query("big").rows())) == sorted(map(str, clean.query("big").rows()))
    assert repeated.dead_letters() == []
    for figures in totals.values():
        assert figures.repeated == len(sent) - len(events)
        assert figures.read == figures.processed + figures.repeated + figures.waiting == len(sent)


def test_the_queries_of_the_shop_are_those_of_the_runner_without_spark_though_processes_die(
    spark: SparkSession, tmp_path: Path
) -> None:
    given = some_events(600, seed=5)
    pipeline = shop.shop(tmp_path / "spark", 6, shop.WINDOWED)
    pipeline.apply()
    with run_lanes(pipeline.home, session=spark) as lane:
        for first in range(0, 600, 150):
            append(pipeline, given[first : first + 150])
            if first == 150:
                until(lambda: lane.in_flight() or lane.is_idle(), lane)
                for worker in workers():
                    worker.kill()
            elif first == 300:
                planner(lane).kill()
            until(lane.is_idle, lane)
        pipeline.finish("events")
        until(lane.is_idle, lane)
    shop.check_windowed(pipeline, given, 6, tmp_path / "plain")


def test_workers_find_aggregates_of_ones_own(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "own_of_a_lane.py").write_text(
        "import pyarrow as pa\nfrom hayase.core.algebra import user_aggregate\n"
        'joined = user_aggregate("joined", lift=str, combine=lambda a, b: f"{a}{b}", result=pa.string())\n'
    )
    pipeline = shop.shop(tmp_path / "home", 0, [])
    pipeline.aggregate("joined", "own_of_a_lane:joined", tmp_path)
    pipeline.query("last", "select joined(user) as users from events [Rows 2, 4 Slide 2]")
    append(pipeline, [Event(at, user, 1) for at, user in enumerate("abcdef")])
    pipeline.finish("events")
    pipeline.apply()
    with run_lanes(pipeline.home, session=spark) as lane:
        until(lane.is_idle, lane)
    assert {(row["window"], row["users"]) for row in pipeline.query("last").at(5)} == {(2, "ef"), (4, "cdef")}


def test_workers_run_functions_of_ones_own_and_their_next_version(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, helper = Path("functions_of_a_lane.py"), Path("marks_of_a_lane.py")
    code.write_text(
        "from marks_of_a_lane import MARK\n\ndef shout(text: str) -> str:\n    if text == 'c':\n"
        "        raise ValueError('hoarse')\n    return text.upper() + MARK\n"
    )
    helper.write_text("MARK = '!'\n")
    pipeline = shop.shop(tmp_path / "home", 0, [])
    pipeline.function("functions_of_a_lane:shout")
    pipeline.function(name="more", sql="x + 1")
    pipeline.query("loud", "select shout(user) as name, more(amount) as amount from events")
    pipeline.query("named", "select more(count(*)) as n, user from events group by user having shout(user) <> 'B!'")
    append(pipeline, [Event(at, user, 1) for at, user in enumerate("abc")])
    pipeline.apply()
    with run_lanes(pipeline.home, session=spark) as lane:
        until(lane.is_idle, lane)
        assert sorted(row["name"] for row in pipeline.query("loud").rows()) == ["A!", "B!"]
        helper.write_text("MARK = '?'\n")
        pipeline.remove("named")
        pipeline.apply()
        append(pipeline, [Event(9, "a", 1)])
        pipeline.finish("events")
        until(lane.is_idle, lane)
    assert sorted(row["name"] for row in pipeline.query("loud").rows()) == ["A!", "A?", "B!"]
    letters = [(letter["stage"], letter["kind"], letter["reason"]) for letter in pipeline.dead_letters()]
    assert sorted((stage, kind) for stage, kind, _ in letters) == [("loud", "expression"), ("named", "expression")]
    assert all("shout raised ValueError: hoarse (functions_of_a_lane.py, line 5)" in reason for _, _, reason in letters)


def test_a_function_that_hangs_in_a_worker_costs_its_record_and_not_the_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("waits_of_a_lane.py").write_text(
        "import time\n\ndef shout(text: str) -> str:\n    while text == 'b':\n        time.sleep(3600)\n"
        "    return text.upper()\n\n"
        "def grow(text: str) -> str:\n    while text == 'c':\n        pass\n    return text + text\n"
    )
    pipeline = shop.shop(tmp_path / "home", 0, [])
    for name in ("shout", "grow"):
        pipeline.function(f"waits_of_a_lane:{name}", time_limit="200 ms")
    pipeline.query("loud", "select shout(user) as name from events")
    pipeline.query("long", "select grow(user) as name, count(*) as n from events group by user")
    append(pipeline, [Event(at, user, 1) for at, user in enumerate("abcd")])
    pipeline.apply()
    pipeline.finish("events")
    with run_lanes(pipeline.home, session=spark) as lane:
        until(lane.is_idle, lane)
    assert sorted(row["name"] for row in pipeline.query("loud").rows()) == ["A", "C", "D"]
    letters = {
        (letter["stage"], letter["kind"], letter["reason"].partition("took")[2]) for letter in pipeline.dead_letters()
    }
    assert ("loud", "expression", " more than 200 ms (waits_of_a_lane.py, line 5)") in letters
    ((_, where),) = [(kind, where) for stage, kind, where in letters if stage == "long"]
    assert where.startswith(" more than 200 ms (waits_of_a_lane.py, line ")


def test_a_record_of_64_megabytes_passes_and_leaving_finishes_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = shop.shop(tmp_path, 0, ["copy", "spend"])
    append(pipeline, [Event(1, "a", 1), Event(2, "x" * (64 * 2**20), 1), Event(3, "a", 1)])
    pipeline.apply()
    with run_lanes(pipeline.home, session=spark) as lane:
        until(lane.in_flight, lane)  # and leave while the batch runs
    assert lane.manifest.totals["spend"].read == 3
    found = [(len(row["user"]), row["n"]) for row, _, _ in pipeline.results("spend").intervals()]
    assert found == [(1, 1), (2**26, 1)], "the third may still have company"
    assert run_until_idle(pipeline.home, session=spark).offset == lane.manifest.offset, "nothing was left to do"


def test_spark_logs_batches_without_checksum_files_whatever_the_home_is_called(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Hadoop's local file system starts a process for each file and each checksum file that it writes."""
    pipeline = shop.shop(tmp_path / "50% of a: home", 6, ["spend"])
    append(pipeline, some_events(10, seed=5))
    pipeline.apply()
    with run_lanes(pipeline.home, session=spark) as lane:
        until(lane.is_idle, lane)
        until(lambda: not lane.in_flight(), lane)
        (epoch,) = pipeline.home.checkpoints("main").iterdir()
        names = {path.name for path in epoch.rglob("*") if path.is_file()}
    assert "0" in names
    assert not [name for name in names if name.endswith(".crc")]


def test_small_and_large_batches_take_turns(spark: SparkSession, tmp_path: Path) -> None:
    """A small batch is reduced by one task, a large one by a task for each bucket; both go on with the same state."""
    pipeline = hy.Pipeline("sizes", home=tmp_path)
    pipeline.stream("numbers", "time bigint, k bigint", time="time", time_unit="us")
    pipeline.query("counts", "select k, count(*) as n from numbers group by k")
    pipeline.apply()
    total = 0
    with run_lanes(pipeline.home, session=spark) as lane:
        for count in (10, 50_000, 10, 50_000, 10):
            times = range(total, total + count)
            pipeline.append("numbers", [{"time": at, "k": at % 7} for at in times])
            total += count
            until(lane.is_idle, lane)
        pipeline.finish("numbers")
        until(lane.is_idle, lane)
    counts = {row["k"]: row["n"] for row in pipeline.results("counts").at(total - 1)}
    assert counts == {k: len(range(k, total, 7)) for k in range(7)}
