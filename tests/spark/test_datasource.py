"""`format("hayase")`: what goes in comes out, in batches and as a stream, and nothing is counted twice."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import hayase as hy
import hayase.spark
from hayase.core.declarations import Retention, StreamDeclaration
from hayase.core.errors import HayaseError, StreamFinished
from hayase.engine.spark.stream_sink import StreamWriter
from hayase.engine.spark.stream_source import StreamFollower, sliced
from hayase.streams import StreamLog
from hayase.streams.dead_letters import DEAD

pytestmark = pytest.mark.spark

EVERYTHING = StreamDeclaration(
    "everything",
    "time timestamp not null, `order` timestamp_ntz, i tinyint, j smallint, k int, l bigint, f float, d double, "
    "s string, b binary, y date, c decimal(20, 3), a array<int>, m map<string, double>, "
    "r struct<x: int, z: array<struct<w: date, v: timestamp>>>, o boolean",
    "time",
)
NOON = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
FULL = {
    "time": NOON, "order": datetime(2026, 1, 1, 12), "i": -1, "j": 2, "k": 3, "l": 2**62, "f": 0.5, "d": float("inf"),
    "s": "早瀬", "b": b"\x00\xff", "y": date(2026, 1, 2), "c": Decimal("-12345678901234567.890"), "a": [1, None],
    "m": {"x": 1.0, "y": None}, "r": {"x": 1, "z": [{"w": date(2026, 1, 3), "v": NOON}, None]}, "o": True,
}  # fmt: skip
EMPTY = {**dict.fromkeys(FULL), "time": NOON}
COUNTS = StreamDeclaration("counts", "at bigint, n bigint", "at", time_unit="s")


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    hayase.spark.register(spark)
    return spark


def filled(home: Path, name: str = "counts", *, rows: int = 0, segment: int = 10) -> StreamLog:
    """A log of the numbers 0, 1, ..., which are also the seconds of their times."""
    log = StreamLog.ensure(home, StreamDeclaration(name, COUNTS.schema, "at", time_unit="s"))
    for first in range(0, rows, segment):
        add(log, first, min(first + segment, rows))
    return log


def add(log: StreamLog, first: int, end: int) -> None:
    log.append(pa.table({"at": range(first, end), "n": range(first, end)}, log.declaration.arrow_schema), now=0)


def records(log: StreamLog) -> pa.Table:
    index = log.index()
    pieces = log.read(index.start, index.next)
    return pa.Table.from_batches([each.rows for each in pieces], schema=log.declaration.arrow_schema)


def numbers(log: StreamLog) -> list[int]:
    return [int(each) for each in records(log).column("n").to_pylist()]


def read(session: SparkSession, home: Path, name: str = "counts", **options: object) -> DataFrame:
    return session.read.format("hayase").options(home=str(home), stream=name, **options).load()


def follow(session: SparkSession, home: Path, **options: object) -> DataFrame:
    return session.readStream.format("hayase").options(**options).load(f"{home}/streams/counts")


def copy(rows: DataFrame, home: Path, checkpoint: Path) -> Any:
    """Run a streaming query into stream `copy` until it has read what is there."""
    query = (
        rows.writeStream.format("hayase")
        .options(home=str(home), stream="copy", checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


# -- batch ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_every_type_survives_a_round_trip_in_any_session_zone(session: SparkSession, tmp_path: Path, zone: str) -> None:
    log = StreamLog.ensure(tmp_path, EVERYTHING)
    given = pa.Table.from_pylist([FULL, EMPTY], schema=EVERYTHING.arrow_schema)
    log.append(given, now=0)
    session.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = read(session, tmp_path, "everything")
        assert rows.selectExpr("unix_micros(time)", "s", "c", "r.x").collect() == [
            (1_767_268_800_250_000, "早瀬", Decimal("-12345678901234567.890"), 1),
            (1_767_268_800_250_000, None, None, None),
        ]
        rows.write.format("hayase").mode("append").save(f"{tmp_path}/streams/everything")
    finally:
        session.conf.set("spark.sql.session.timeZone", "UTC")
    assert records(log).equals(pa.concat_tables([given, given]))
    assert not list((log.path / "staging").iterdir())


def test_types_that_spark_does_not_have_are_read_as_others_and_written_back(
    session: SparkSession, tmp_path: Path
) -> None:
    declared = StreamDeclaration("types", "at bigint, t time, u ubigint, j json", "at", time_unit="s")
    log = StreamLog.ensure(tmp_path, declared)
    rows = {"at": [1, 2], "t": [time(12, 30, 0, 5), None], "u": [2**64 - 1, None], "j": ['{"a":[0.10]}', None]}
    log.append(pa.table(rows, declared.arrow_schema), now=0)
    StreamLog.ensure(tmp_path, replace(declared, name="copy"))
    frame = read(session, tmp_path, "types")
    assert [kind for _, kind in frame.dtypes] == ["bigint", "string", "decimal(20,0)", "string"]
    assert tuple(frame.orderBy("at").collect()[0]) == (1, "12:30:00.000005", Decimal(2**64 - 1), '{"a":[0.10]}')
    frame.coalesce(1).write.format("hayase").mode("append").options(home=str(tmp_path), stream="copy").save()
    assert records(StreamLog.open(tmp_path, "copy")).equals(records(log))


def test_repeats_are_not_read(session: SparkSession, tmp_path: Path) -> None:
    declared = replace(COUNTS, id="n", dedupe=10_000_000)
    log = StreamLog.ensure(tmp_path, declared)
    for _ in range(2):
        log.append(pa.table({"at": range(5), "n": range(5)}, declared.arrow_schema), now=0)
    assert sorted(row.n for row in read(session, tmp_path).collect()) == [0, 1, 2, 3, 4]


def test_offsets_and_times_select_records_and_slices_share_them(session: SparkSession, tmp_path: Path) -> None:
    filled(tmp_path, rows=100)

    def found(**options: object) -> list[int]:
        return [row.n for row in read(session, tmp_path, **options).select("n").collect()]

    assert found() == list(range(100))
    assert found(**{"from": 15, "to": 42}) == list(range(15, 42))
    assert found(since="1970-01-01T00:00:25Z", until="1970-01-01T00:00:31Z") == list(range(25, 31))
    assert read(session, tmp_path, slices=7).rdd.getNumPartitions() == 7
    one_column = session.read.format("hayase").schema("n bigint").load(f"{tmp_path}/streams/counts")
    assert [tuple(row) for row in one_column.collect()] == [(n,) for n in range(100)]


def test_segments_of_other_times_are_not_opened(session: SparkSession, tmp_path: Path) -> None:
    log = filled(tmp_path, rows=100)
    for entry in (log.index().entries[0], log.index().entries[-1]):
        path = log.path / entry.name
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 0xFF  # opened, it would be found damaged
        path.write_bytes(data)
    rows = read(session, tmp_path, since="1970-01-01T00:00:25Z", until="1970-01-01T00:01:15Z")
    assert rows.count() == 50
    with pytest.raises(PySparkException, match="is damaged"):
        read(session, tmp_path).count()


def test_an_empty_stream_reads_as_no_rows(session: SparkSession, tmp_path: Path) -> None:
    filled(tmp_path)
    assert read(session, tmp_path).count() == 0


def test_rows_that_do_not_fit_go_to_the_dead_letters(session: SparkSession, tmp_path: Path) -> None:
    log = filled(tmp_path)
    far = int((datetime.now(UTC) + timedelta(days=400)).timestamp())
    rows = session.createDataFrame([(1, 1), (None, 2), (far, 3), (4, 4)], "at bigint, n bigint").coalesce(1)
    rows.write.format("hayase").mode("append").options(home=str(tmp_path), stream="counts").save()
    assert numbers(log) == [1, 4]
    letters = records(StreamLog.open(tmp_path, DEAD.name)).to_pylist()
    assert [(each["stage"], each["stream"], each["attempts"]) for each in letters] == [("append", "counts", 1)] * 2
    assert letters[0]["record"] == '{"at": null, "n": 2}'
    assert "null, and is the time column" in letters[0]["reason"]
    assert "max_ahead is 1 day" in letters[1]["reason"]


def test_a_write_keeps_order_and_fills_missing_columns(session: SparkSession, tmp_path: Path) -> None:
    log = filled(tmp_path)
    rows = session.range(0, 1000, 1, 4).selectExpr("cast(id as int) as at")
    rows.write.format("hayase").mode("append").save(f"{tmp_path}/streams/counts")
    assert records(log).column("at").to_pylist() == list(range(1000))
    assert records(log).column("n").null_count == 1000


def test_a_failed_write_leaves_nothing(session: SparkSession, tmp_path: Path) -> None:
    log = filled(tmp_path)
    rows = session.range(0, 100, 1, 2).selectExpr("id as at", "if(id = 99, raise_error('boom'), id) as n")
    with pytest.raises(PySparkException, match="boom"):
        rows.write.format("hayase").mode("append").save(f"{tmp_path}/streams/counts")
    assert numbers(log) == []
    assert not list((log.path / "staging").iterdir())


# -- streaming --------------------------------------------------------------------------------------------------------
def test_a_query_copies_in_bounded_batches_and_goes_on_after_a_restart(session: SparkSession, tmp_path: Path) -> None:
    log, target = filled(tmp_path, rows=25), filled(tmp_path, "copy")
    rows = follow(session, tmp_path, max_rows=10)
    query = copy(rows, tmp_path, tmp_path / "checkpoint")
    assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [10, 10, 5]
    assert numbers(target) == list(range(25))
    add(log, 25, 31)
    copy(rows, tmp_path, tmp_path / "checkpoint")
    assert numbers(target) == list(range(31))
    (folder,) = (target.path / "staging").iterdir()
    assert sorted(each.name for each in folder.iterdir()) == ["committed.json", "lock"]


def test_a_batch_that_spark_did_not_get_to_note_is_not_written_twice(session: SparkSession, tmp_path: Path) -> None:
    filled(tmp_path, rows=25)
    target = filled(tmp_path, "copy")
    copy(follow(session, tmp_path, max_rows=10), tmp_path, tmp_path / "checkpoint")
    for name in ("commits/2", "commits/.2.crc"):
        (tmp_path / "checkpoint" / name).unlink(missing_ok=True)
    rows = follow(session, tmp_path, slices=5).repartition(3)  # the same records, in other tasks
    copy(rows, tmp_path, tmp_path / "checkpoint")
    assert numbers(target) == list(range(25))


def test_a_new_checkpoint_is_another_query(session: SparkSession, tmp_path: Path) -> None:
    filled(tmp_path, rows=5)
    target = filled(tmp_path, "copy")
    copy(follow(session, tmp_path), tmp_path, tmp_path / "one")
    copy(follow(session, tmp_path), tmp_path, tmp_path / "two")
    assert numbers(target) == [*range(5), *range(5)]
    copy(follow(session, tmp_path, start="latest"), tmp_path, tmp_path / "three")
    assert len(numbers(target)) == 10


def test_an_interrupted_commit_is_finished_by_its_repetition(tmp_path: Path) -> None:
    target = filled(tmp_path, "copy")
    writer = StreamWriter(tmp_path, "copy", ["at", "n"])
    folder = writer.target.folder("query")
    folder.mkdir()

    def staged(*parts: range) -> list[Any]:
        return [writer.target.stage(folder, [pa.record_batch({"at": part, "n": part})], 10**9) for part in parts]

    first = staged(range(3), range(3, 5))
    (folder / first[1].rows[0]).rename(folder / "away")  # the second file is lost after the decision, for a moment
    (folder / first[1].rows[0]).mkdir()
    with pytest.raises(HayaseError):
        writer.commit(first, 0)
    writer.abort(first, 0)
    (folder / first[1].rows[0]).rmdir()
    (folder / "away").rename(folder / first[1].rows[0])
    writer.commit(staged(range(4), range(4, 5)), 0)
    writer.commit(staged(range(5)), 0)
    assert numbers(target) == list(range(5))
    writer.abort(staged(range(5, 9)), 1)
    writer.commit(staged(range(5, 7)), 1)
    writer.commit([], 2)
    assert numbers(target) == list(range(7))


def test_records_that_retention_removed_are_missed_aloud(session: SparkSession, tmp_path: Path) -> None:
    declared = StreamDeclaration("counts", COUNTS.schema, "at", time_unit="s", retention=Retention(size=0))
    log = StreamLog.ensure(tmp_path, declared)
    filled(tmp_path, "copy")
    add(log, 0, 10)
    copy(follow(session, tmp_path), tmp_path, tmp_path / "checkpoint")
    add(log, 10, 20)
    add(log, 20, 30)
    log.trim(20, now=0)
    with pytest.raises(StreamingQueryException, match='records 10 to 19 of stream "counts" were removed by retention'):
        copy(follow(session, tmp_path), tmp_path, tmp_path / "checkpoint")
    with pytest.raises(PySparkException, match="the first one left is 20"):
        read(session, tmp_path, **{"from": 15}).count()


def test_offsets_of_another_stream_are_refused(tmp_path: Path) -> None:
    follower = StreamFollower(filled(tmp_path, rows=5), StructType.fromDDL("at bigint, n bigint"), {})
    with pytest.raises(HayaseError, match='of a query that read stream "other"'):
        follower.partitions({"stream": "other", "next": 0}, {"stream": "other", "next": 5})
    with pytest.raises(HayaseError, match="another stream of that name"):
        follower.partitions({"stream": "counts", "next": 0}, {"stream": "counts", "next": 6})


# -- mistakes ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stream": "count"}, 'unknown stream "count" in ".*"; did you mean "counts"?'),
        ({"stream": "counts", "slice": "2"}, 'unknown option "slice".*did you mean "slices"?'),
        ({"stream": "counts", "slices": "0"}, 'option slices: "0" is not a number of at least 1'),
        ({"stream": "counts", "from": "3", "to": "9"}, "has no records from 3 to 9: it holds 0 to 5"),
        ({"stream": "counts", "since": "noon"}, 'option since: "noon" is not a time'),
        ({"stream": "counts", "path": "/x/streams/y"}, "say which stream: by the options home and stream, or"),
        ({}, "say which stream"),
    ],
)
def test_mistakes_in_options_are_told(
    session: SparkSession, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    filled(tmp_path, rows=5)
    with pytest.raises(PySparkException, match=message):
        session.read.format("hayase").options(home=str(tmp_path), **options).load().count()


def test_mistakes_in_schemas_and_modes_are_told(session: SparkSession, tmp_path: Path) -> None:
    log = filled(tmp_path, rows=5)
    place = f"{tmp_path}/streams/counts"
    with pytest.raises(PySparkException, match='unknown column "m" in stream "counts"'):
        session.read.format("hayase").schema("m bigint").load(place).count()
    with pytest.raises(PySparkException, match='column "n" of stream "counts" cannot be read as asked'):
        session.read.format("hayase").schema("n string").load(place).count()
    rows = session.range(1).selectExpr("id as at")
    with pytest.raises(PySparkException, match='stream "counts" only grows'):
        rows.write.format("hayase").mode("overwrite").save(place)
    with pytest.raises(PySparkException, match='stream "counts" has no column "att"'):
        rows.withColumnRenamed("at", "att").write.format("hayase").mode("append").save(place)
    log.finish()
    with pytest.raises(PySparkException, match="is finished and takes no more records"):
        rows.write.format("hayase").mode("append").save(place)
    with pytest.raises(StreamFinished):
        StreamWriter(tmp_path, "counts", ["at"])


def test_slices_are_about_equal_and_cover_everything() -> None:
    parts = sliced([(0, 5), (7, 8), (100, 194)], 3)
    offsets = [offset for part in parts for span in part.spans for offset in range(*span)]
    assert offsets == [*range(5), 7, *range(100, 194)]
    assert [sum(next_ - first for first, next_ in part.spans) for part in parts] == [33, 33, 34]
    assert sliced([(3, 3)], 4) == []


# -- runs behind a program --------------------------------------------------------------------------------------------
def test_a_run_on_spark_goes_on_where_one_in_process_stopped(session: SparkSession, tmp_path: Path) -> None:
    p = hy.Pipeline("shop", tmp_path / "home")
    p.stream("orders", "time bigint, user string, amount bigint", time="time", time_unit="s")
    p.query("spend", "select user, sum(amount) as spend from orders [Range 10 seconds] group by user")
    with p:
        for number, spark in enumerate([False, True, False]):
            p.start(spark=spark)
            p.append("orders", [{"time": at, "user": "taro", "amount": at} for at in (3 * number, 3 * number + 1)])
            p.wait_until_idle()
            p.stop()
        p.finish("orders")
        p.run_until_idle(spark=False)
    assert [(row["spend"], since) for row, since, _ in p.query("spend").intervals()] == [
        (0, 0), (1, 1), (4, 3), (8, 4), (14, 6), (21, 7),
    ]  # fmt: skip


STARTED = """
import sys
import hayase as hy
p = hy.Pipeline("shop", sys.argv[1])
p.stream("orders", "time bigint, user string, amount bigint", time="time", time_unit="s")
p.query("spend", "select user, sum(amount) as spend from orders group by user")
p.start(on_progress=lambda progress: print(progress, flush=True))
p.append("orders", [{"time": 1, "user": "taro", "amount": 1}])
p.wait_until_idle()
"""


def test_a_program_that_ends_stops_its_run_in_order(tmp_path: Path) -> None:
    """Spark starts while the program has done much already, and the program ends without a stop."""
    command = [sys.executable, "-c", STARTED, str(tmp_path / "home")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    assert "running: 2 batches, 1 records read" in done.stdout
    assert hy.open(tmp_path / "home").progress().totals["spend"].read == 1


# -- queries and tables -----------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> hy.Pipeline:
    """A relation with a past, a stream of results and a table, all of them run without Spark."""
    p = hy.Pipeline("shop", tmp_path_factory.mktemp("shop") / "home")
    p.stream("orders", "time timestamp, uuid string, user string, amount bigint", time="time", id="uuid")
    p.query("spend", "select user, sum(amount) as spend from orders [Range 10 seconds] group by user")
    p.query("large", "select user, amount from orders where amount > 1")
    p.table("bought", key="user", total=hy.Counter(), last=hy.Register())
    p.rules(text="{source: orders, rules: [{tables: {bought: {key: .user, columns: {total: .amount, last: .time}}}}]}")
    rows = [
        {"time": f"2026-01-01T00:00:{at:02d}Z", "uuid": str(at), "user": user, "amount": at}
        for at, user in enumerate(["taro", "hana", "7", "taro", "jiro"] * 6)
    ]
    p.append("orders", rows)
    p.finish("orders")
    p.run_until_idle(spark=False)
    return p


def ask(session: SparkSession, p: hy.Pipeline, **options: object) -> DataFrame:
    return session.read.format("hayase").options(home=str(p.home.path), **options).load()


def dicts(rows: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in rows.collect()), key=str)


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as Spark gives them: times without a zone, in that of this machine."""
    told = [
        {
            name: each.astimezone().replace(tzinfo=None) if isinstance(each, datetime) else each
            for name, each in row.items()
        }
        for row in rows
    ]
    return sorted(told, key=str)


def test_a_query_gives_present_rows_past_rows_and_lifetimes(session: SparkSession, shop: hy.Pipeline) -> None:
    spend, early = shop.query("spend"), "2026-01-01T00:00:09Z"
    assert dicts(ask(session, shop, query="spend")) == plain(spend.at())
    assert dicts(ask(session, shop, query="spend", at=early)) == plain(spend.at(early))
    history = ask(session, shop, query="spend", history="true")
    assert history.columns == ["user", "spend", "valid_from", "valid_to"]
    assert dicts(history) == plain(spend.to_arrow(history=True).to_pylist())
    assert dicts(ask(session, shop, query="large")) == plain(list(shop.query("large")))


def test_a_table_gives_folded_rows_and_looks_keys_up(session: SparkSession, shop: hy.Pipeline) -> None:
    bought, rows = shop.table("bought"), ask(session, shop, table="bought")
    assert dicts(rows) == plain(bought.to_arrow().to_pylist())
    for key in ("taro", "7", "nobody"):
        assert dicts(ask(session, shop, table="bought", key=key)) == plain(bought.batch_of([key]).to_pylist())
    early = ask(session, shop, table="bought", at="2026-01-01T00:00:01Z").where("user <= 'hana'").select("total")
    assert [row.total for row in early.collect()] == [1.0]


def test_filters_do_not_outlive_their_query(session: SparkSession, shop: hy.Pipeline) -> None:
    """As they would if they were pushed down: Spark keeps those of the last query over a DataFrame that had some."""
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        orders = ask(session, shop, stream="orders")
        counts = [
            orders.where("user = 'taro'").count(),
            orders.count(),
            orders.where("amount = 1 or user = '7'").count(),
        ]
    finally:
        session.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert counts == [12, 30, 7]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query": "spent"}, 'unknown stream "spent"'),
        ({"query": "spend", "at": "2027-01-01T00:00:00Z"}, "is final up to"),
        ({"query": "spend", "history": "yes"}, 'option history cannot be "yes"'),
        ({"query": "spend", "since": "2026-01-01T00:00:00Z"}, 'unknown option "since"'),
        ({"table": "bougt"}, 'unknown table "bougt"; did you mean "bought"'),
        ({"table": "bought", "key": '["a", "b"]'}, 'the key of table "bought" has 1 parts, user'),
    ],
)
def test_mistakes_in_questions_are_told(
    session: SparkSession, shop: hy.Pipeline, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        ask(session, shop, **options).count()


NOT_ACTIVATED = """
import sys
from pyspark.sql import SparkSession
import hayase.spark
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
hayase.spark.register(session)
rows = session.read.format("hayase").option("home", sys.argv[1]).option("query", "spend").load()
print("rows:", rows.count())
"""


def test_it_works_from_an_environment_that_is_not_activated(shop: hy.Pipeline, tmp_path: Path) -> None:
    """The `python3` that Spark finds there knows nothing of Hayase."""
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "python3").chmod(0o755)
    told = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK") and name != "PYTHONPATH"}
    told["PATH"] = f"{tmp_path}:{told['PATH']}"
    command = [sys.executable, "-c", NOT_ACTIVATED, str(shop.home.path)]
    done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=1200)
    assert f"rows: {len(shop.query('spend').at())}" in done.stdout, done.stderr
