"""The map side: chunks of bounded size, late records, blobs per bucket."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

import hayase as hy
import shop
from hayase.core.stages import OFFSET, TIME, Input
from hayase.core.times import BEGINNING
from hayase.engine.batch import map_side
from hayase.engine.batch.map_side import Batch, from_blob, header_rows, map_ranges
from hayase.engine.batch.offsets import Offset, Position, Range
from hayase.engine.definition.definitions import stages_of
from hayase.engine.logs import Logs
from hayase.streams import StreamLog


@pytest.fixture
def pipeline(tmp_path: Path) -> hy.Pipeline:
    return shop.shop(tmp_path, 2, ["copy", "spend"])


def mapped(pipeline: hy.Pipeline, task: list[Range], number: int = 0) -> list[dict[str, object]]:
    definition = pipeline.apply()
    batches = list(map_ranges(definition, Logs(pipeline.home, definition), task, number, now=0))
    return [row for batch in batches for row in pa.Table.from_batches([batch]).to_pylist()]


def table_of(row: dict[str, object]) -> pa.RecordBatch:
    return from_blob(pa.scalar(row["blob"], pa.binary()))


def append(pipeline: hy.Pipeline, *times: int) -> None:
    pipeline.append("events", [shop.Event(at, f"user {at}", at).row() for at in times])


def whole(count: int, *stages: str, passed: int = BEGINNING) -> list[Range]:
    return [Range("events", 0, count, dict.fromkeys(stages, passed))]


def test_a_batch_survives_its_blob() -> None:
    batch = Batch(Offset(), Offset(1, {"s": {"e": Position(3, 2, 1)}}, 9))
    assert Batch.from_blob(batch.as_blob()) == batch
    assert header_rows(batch, 3).column("bucket").to_pylist() == [0, 1, 2]


def test_late_records_go_to_the_dead_letters_of_the_stage_that_needs_order(pipeline: hy.Pipeline) -> None:
    append(pipeline, 10, 7, 8, 9, 20)
    rows = mapped(pipeline, whole(5, "copy", "spend"))
    letters = [table_of(row).to_pylist() for row in rows if row["kind"] == "dead"]
    assert [(each["stage"], each["offset"], each["stream"]) for each in letters[0]] == [("spend", 1, "events")]
    assert "slack 2 us" in letters[0][0]["reason"]
    assert orjson.loads(letters[0][0]["record"]) == {"at": 7, "user": "user 7", "amount": 7}
    figures = next(orjson.loads(row["blob"]) for row in rows if row["kind"] == "figures")
    assert {name: (each["read"], each["processed"], each["dead"]) for name, each in figures.items()} == {
        "copy": (5, 5, 0),
        "spend": (5, 4, 1),  # the reduce side takes off what waits
    }
    sent = [table_of(row) for row in rows if row["stage"] == "spend" and row["kind"] == "data"]
    assert Counter(
        place for each in sent for place in zip(each.column(TIME).to_pylist(), each.column(OFFSET).to_pylist())
    ) == Counter([(10, 0), (8, 2), (9, 3), (20, 4)])


def test_what_the_clock_has_passed_by_decision_is_late_too(pipeline: hy.Pipeline) -> None:
    append(pipeline, 10, 11)
    rows = mapped(pipeline, whole(2, "spend", passed=11))
    assert [table_of(row).column("offset").to_pylist() for row in rows if row["kind"] == "dead"] == [[0]]


def test_lateness_looks_at_the_whole_log_not_at_the_range(pipeline: hy.Pipeline) -> None:
    append(pipeline, 100, 1, 2)
    rows = mapped(pipeline, [Range("events", 1, 3, {"spend": BEGINNING})])
    assert [table_of(row).column("offset").to_pylist() for row in rows if row["kind"] == "dead"] == [[1, 2]]


def test_a_stage_without_a_kernel_keeps_the_order_of_the_log(pipeline: hy.Pipeline) -> None:
    append(pipeline, 5, 1, 3)
    data = [row for row in mapped(pipeline, whole(3, "copy"), number=1) if row["kind"] == "data"]
    assert [(row["bucket"], row["first"]) for row in data] == [(1, 0)]
    assert table_of(data[0]).column("at").to_pylist() == [5, 1, 3]


def test_chunks_are_bounded_by_rows_and_by_bytes(pipeline: hy.Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_side, "CHUNK_ROWS", 16)
    monkeypatch.setattr(map_side, "CHUNK_BYTES", 4_000)
    pipeline.apply()
    sizes = [1] * 50 + [3_000] * 5 + [50_000] + [1] * 40
    pipeline.append("events", [{"at": at, "user": "x" * size, "amount": 1} for at, size in enumerate(sizes)])
    for at in range(30):
        pipeline.append("events", [{"at": len(sizes) + at, "user": "y", "amount": 1}])
    log = StreamLog.open(pipeline.home.path, "events")
    chunks = list(map_side._chunks(log.read(0, len(sizes) + 30), log))
    assert [each.first for each in chunks[1:]] == [each.first + len(each) for each in chunks[:-1]]
    assert sum(map(len, chunks)) == len(sizes) + 30
    assert all(len(each) <= 32 for each in chunks)
    assert all(each.rows.nbytes <= 4_500 or len(each) == 1 for each in chunks)
    assert len(chunks) < 40, "small segments are joined"
    times = [int(time) for each in chunks for time in each.times]
    peaks = [int(peak) for each in chunks for peak in each.peaks]
    assert times == list(range(len(sizes) + 30))
    assert peaks == [BEGINNING, *times[:-1]]


def test_a_stream_that_is_read_twice_is_mapped_for_each_input_and_ticks_go_everywhere(tmp_path: Path) -> None:
    pipeline = shop.shop(tmp_path, 2, ["pairs"], buckets=3)
    append(pipeline, 10, 7, 11)
    rows = mapped(pipeline, whole(3, "pairs"))
    sent: Counter[tuple[int, int]] = Counter()
    for row in rows:
        if row["kind"] == "data":
            for offset in table_of(row).column(OFFSET).to_pylist():
                sent[row["input"], offset] += 1  # type: ignore[index]
    ticks = [number for number, each in enumerate(pipeline_inputs(pipeline, "pairs")) if each.broadcast]
    assert len(ticks) == 1
    for number in range(3):
        assert [sent[number, offset] for offset in (0, 2)] == ([3, 3] if number in ticks else [1, 1])
    figures = next(orjson.loads(row["blob"]) for row in rows if row["kind"] == "figures")["pairs"]
    assert (figures["read"], figures["dead"]) == (3, 1), "a record counts once, also if it is read twice"


def pipeline_inputs(pipeline: hy.Pipeline, stage: str) -> tuple[Input, ...]:
    return stages_of(pipeline.apply())[stage].inputs
