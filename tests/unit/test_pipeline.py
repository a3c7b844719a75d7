"""The pipeline as people use it, without a JVM."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import hayase as hy
import shop
from hayase.core.errors import DeclarationError, StreamFinished, UnknownName
from shop import Event, check, expected

EVENTS = [Event(3, "a", 1), Event(1, "b", 2), Event(2, "a", None), Event(9, None, 4)]


@pytest.fixture
def pipeline(tmp_path: Path) -> hy.Pipeline:
    return shop.shop(tmp_path, 5)


def test_rows_tables_batches_and_frames_are_appended_alike(pipeline: hy.Pipeline) -> None:
    rows = [each.row() for each in EVENTS]
    table = pa.Table.from_pylist(rows)
    for records in (rows, table, table.to_batches()[0], pd.DataFrame(rows).astype({"amount": "Int64"})):
        assert pipeline.append("events", records).accepted == 4
    assert pipeline.results("events").table().to_pylist() == rows * 4


def test_declaring_writes_nothing(tmp_path: Path) -> None:
    shop.shop(tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_a_run_without_finish_leaves_open_what_may_still_come(pipeline: hy.Pipeline) -> None:
    pipeline.append("events", [each.row() for each in EVENTS])
    pipeline.run_until_idle(spark=False)
    check(pipeline, expected(EVENTS, 5, finished=False))
    assert pipeline.progress().totals["spend"].waiting == 1
    pipeline.finish("events")
    pipeline.run_until_idle(spark=False)
    check(pipeline, expected(EVENTS, 5, finished=True))
    with pytest.raises(StreamFinished):
        pipeline.append("events", [EVENTS[0].row()])


def test_a_run_that_has_nothing_to_do_commits_nothing(pipeline: hy.Pipeline) -> None:
    pipeline.append("events", [each.row() for each in EVENTS])
    first = pipeline.run_until_idle(spark=False)
    assert pipeline.run_until_idle(spark=False) == first


def test_results_come_in_time_order_and_ties_in_log_order(pipeline: hy.Pipeline) -> None:
    pipeline.append("events", [each.row() for each in [*EVENTS, Event(3, "z", 0)]])
    assert [(row["at"], row["user"]) for row in pipeline.results("events")] == [
        (1, "b"), (2, "a"), (3, "a"), (3, "z"), (9, None),
    ]  # fmt: skip


def test_names_that_stand_for_nothing(pipeline: hy.Pipeline) -> None:
    with pytest.raises(UnknownName, match='did you mean "events"'):
        pipeline.append("event", [])
    with pytest.raises(UnknownName, match='did you mean "spend"'):
        pipeline.query("spent")
    with pytest.raises(UnknownName):
        pipeline.remove("nothing")
    with pytest.raises(DeclarationError, match="declared twice"):
        pipeline.query("spend", shop.SPEND)


def test_a_mistaken_query_is_not_declared(pipeline: hy.Pipeline) -> None:
    with pytest.raises(DeclarationError, match='did you mean "amount"'):
        pipeline.query("wrong", "select amuont from events")
    pipeline.check()


def test_removing_what_a_query_reads_is_refused_when_it_is_applied(pipeline: hy.Pipeline) -> None:
    pipeline.remove("spend")
    with pytest.raises(DeclarationError, match='unknown stream "spend"'):
        pipeline.apply()


def test_a_pipeline_without_queries_runs(tmp_path: Path) -> None:
    pipeline = shop.shop(tmp_path, 0, [])
    pipeline.append("events", [EVENTS[0].row()])
    assert pipeline.run_until_idle(spark=False).totals == {}


def test_an_added_column_is_null_in_older_records(tmp_path: Path) -> None:
    shop.shop(tmp_path, 0, ["copy"]).append("events", [Event(1, "a", 1).row()])
    wider = hy.Pipeline("shop", tmp_path, clock=lambda: 0)
    wider.stream("events", shop.EVENTS + ", note string", "at", time_unit="us", max_ahead=None)
    wider.query("notes", "select user, note from events")
    wider.append("events", [{"at": 2, "user": "b", "note": "new"}])
    wider.run_until_idle(spark=False)
    assert [(row["user"], row["note"]) for row in wider.query("notes")] == [("a", None), ("b", "new")]


def test_a_file_is_appended_whole_and_a_repeat_is_recognised(tmp_path: Path) -> None:
    pipeline = hy.Pipeline("files", home=tmp_path / "home")
    pipeline.stream("orders", "time bigint, amount double", time="time", time_unit="s")
    file = tmp_path / "orders.csv"
    file.write_text("time,amount\n1,2.5\n2,a lot\n3,4\n")
    done = pipeline.append("orders", file, producer="import")
    assert (done.accepted, done.refused, done.first, done.next, done.repeated) == (2, 1, 0, 2, False)
    assert pipeline.append("orders", str(file), producer="import").repeated
    assert [row["amount"] for row in pipeline.stream("orders").rows()] == [2.5, 4.0]
    assert len(pipeline.dead_letters()) == 1
    (tmp_path / "empty.ndjson").touch()
    assert pipeline.append("orders", tmp_path / "empty.ndjson") == hy.Accepted(0, 0, 2, 2)
    with pytest.raises(hy.HayaseError, match="there is no file"):
        pipeline.append("orders", tmp_path / "other.csv")
    with pytest.raises(hy.HayaseError, match="without a sequence"):
        pipeline.append("orders", file, producer="import", sequence=1)
