"""The map side: chunks of bounded size, late records, messages per bucket."""

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
from hayase.engine.batch.map_side import map_task
from hayase.engine.batch.messages import Data, DeadLetters, MapFigures, Message, headers
from hayase.engine.batch.offsets import Batch, Offset, Position, ranges
from hayase.engine.definition.definitions import stages_of
from hayase.engine.logs import Logs
from hayase.streams import StreamLog


@pytest.fixture
def pipeline(tmp_path: Path) -> hy.Pipeline:
    return shop.shop(tmp_path, 2, ["copy", "spend"])


def mapped(pipeline: hy.Pipeline, batch: Batch, number: int = 0) -> list[Message]:
    definition = pipeline.apply()
    (task,) = ranges(batch.start, batch.end, slots=1)
    logs = Logs(pipeline.home, definition)
    return [message for some in map_task(definition, logs, batch, task, number, now=0) for message in some]


def data_in(messages: list[Message]) -> list[Data]:
    return [message for message in messages if isinstance(message, Data)]


def letters_in(messages: list[Message]) -> list[pa.Table]:
    return [message.letters for message in messages if isinstance(message, DeadLetters)]


def figures_in(messages: list[Message]) -> dict[str, tuple[int, int, int]]:
    """Records read, processed and dead, by stage."""
    found = [message.figures for message in messages if isinstance(message, MapFigures)]
    return {stage: (each.read, each.processed, each.dead) for some in found for stage, each in some.items()}


def append(pipeline: hy.Pipeline, *times: int) -> None:
    pipeline.append("events", [shop.Event(at, f"user {at}", at).row() for at in times])


def records(first: int, end: int, *stages: str, clock: int = BEGINNING) -> Batch:
    """A batch that takes these records, when the clock stands there."""
    start, after = Position(first, clock), Position(end, clock)
    return Batch(
        Offset(1, {stage: {"events": start} for stage in stages}),
        Offset(1, {stage: {"events": after} for stage in stages}),
    )


def test_a_batch_survives_its_blob() -> None:
    batch = Batch(Offset(), Offset(1, {"s": {"e": Position(3, 2, 1)}}, 9))
    assert Batch.from_blob(batch.as_blob()) == batch
    assert [each.bucket for each in headers(batch, 3)] == [0, 1, 2]


def test_late_records_go_to_the_dead_letters_of_the_stage_that_needs_order(pipeline: hy.Pipeline) -> None:
    append(pipeline, 10, 7, 8, 9, 20)
    messages = mapped(pipeline, records(0, 5, "copy", "spend"))
    (letters,) = (letters.to_pylist() for letters in letters_in(messages))
    assert [(each["stage"], each["offset"], each["stream"]) for each in letters] == [("spend", 1, "events")]
    assert "slack 2 us" in letters[0]["reason"]
    assert orjson.loads(letters[0]["record"]) == {"at": 7, "user": "user 7", "amount": 7}
    assert figures_in(messages) == {
        "copy": (5, 5, 0),
        "spend": (5, 4, 1),  # the reduce side subtracts what waits
    }
    sent = [data.rows for data in data_in(messages) if data.stages == ("spend",)]
    assert Counter(
        place for each in sent for place in zip(each.column(TIME).to_pylist(), each.column(OFFSET).to_pylist())
    ) == Counter([(10, 0), (8, 2), (9, 3), (20, 4)])


def test_what_the_clock_has_passed_by_decision_is_late_too(pipeline: hy.Pipeline) -> None:
    append(pipeline, 10, 11)
    messages = mapped(pipeline, records(0, 2, "spend", clock=11))
    assert [letters.column("offset").to_pylist() for letters in letters_in(messages)] == [[0]]


def test_lateness_looks_at_the_whole_log_not_at_the_range(pipeline: hy.Pipeline) -> None:
    append(pipeline, 100, 1, 2)
    messages = mapped(pipeline, records(1, 3, "spend"))
    assert [letters.column("offset").to_pylist() for letters in letters_in(messages)] == [[1, 2]]


def test_a_stage_without_a_kernel_keeps_the_order_of_the_log(pipeline: hy.Pipeline) -> None:
    append(pipeline, 5, 1, 3)
    data = data_in(mapped(pipeline, records(0, 3, "copy"), number=1))
    assert [(each.bucket, each.first) for each in data] == [(1, 0)]
    assert data[0].rows.column("at").to_pylist() == [5, 1, 3]


def test_operations_on_single_records_get_as_many_in_every_bucket(tmp_path: Path) -> None:
    p = hy.Pipeline("calls", home=tmp_path / "home", buckets=3)
    for stream in ("a", "b"):
        p.stream(stream, "at bigint", time="at", time_unit="us")
    p.operation("operator:itemgetter", reads=["a", "b"], writes="done", schema="x bigint")
    (stage,) = stages_of(p.apply()).values()
    assert [source.dealt for source in stage.inputs] == [True, True]
    for stream, count in (("a", 10), ("b", 1)):
        p.append(stream, [{"at": at} for at in range(count)])
    ends = {"a": Position(10), "b": Position(1)}
    batch = Batch(Offset(1, {"done": {"a": Position(0), "b": Position(0)}}), Offset(1, {"done": ends}))
    data = data_in(mapped(p, batch))
    counts = Counter({(each.input, each.bucket): each.rows.num_rows for each in data})
    assert sorted(counts[0, bucket] for bucket in range(3)) == [3, 3, 4]
    assert [bucket for number, bucket in counts if number == 1] == [1], "the second stream begins with another bucket"


def test_chunks_are_bounded_by_rows_and_by_bytes(pipeline: hy.Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_side, "CHUNK_ROWS", 16)
    monkeypatch.setattr(map_side, "CHUNK_BYTES", 4_000)
    pipeline.apply()
    sizes = [1] * 50 + [3_000] * 5 + [50_000] + [1] * 40
    pipeline.append("events", [{"at": at, "user": "x" * size, "amount": 1} for at, size in enumerate(sizes)])
    for at in range(30):
        pipeline.append("events", [{"at": len(sizes) + at, "user": "y", "amount": 1}])
    log = StreamLog.open(pipeline.home.path, "events")
    chunks = list(map_side.chunks_of(log.read(0, len(sizes) + 30), log))
    assert [each.first for each in chunks[1:]] == [each.first + len(each) for each in chunks[:-1]]
    assert sum(map(len, chunks)) == len(sizes) + 30
    assert all(len(each) <= 32 for each in chunks)
    assert all(each.rows.nbytes <= 4_500 or len(each) == 1 for each in chunks)
    assert len(chunks) < 40, "small segments are joined"
    times = [int(time) for each in chunks for time in each.times]
    peaks = [int(peak) for each in chunks for peak in each.peaks]
    assert times == list(range(len(sizes) + 30))
    assert peaks == [BEGINNING, *times[:-1]]


@pytest.mark.parametrize("rows", [2, 4, 64])
def test_lateness_is_the_same_however_appends_are_joined_and_cut(
    pipeline: hy.Pipeline, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(map_side, "CHUNK_ROWS", rows)
    appends = [[5], [3, 9, 6], [8, 1, 7, 20, 17, 18], [19], [2, 21]]
    for times in appends:
        append(pipeline, *times)
    count = sum(map(len, appends))
    letters = letters_in(mapped(pipeline, records(1, count, "spend")))
    late = [offset for each in letters for offset in each.column("offset").to_pylist()]
    times = [time for some in appends for time in some]
    assert late == [at for at in range(1, count) if times[at] < max(times[:at]) - 2]


def test_a_stream_that_is_read_twice_is_mapped_for_each_input_and_ticks_go_everywhere(tmp_path: Path) -> None:
    pipeline = shop.shop(tmp_path, 2, ["pairs"], buckets=3)
    append(pipeline, 10, 7, 11)
    messages = mapped(pipeline, records(0, 3, "pairs"))
    sent = Counter(
        (data.input, offset) for data in data_in(messages) for offset in data.rows.column(OFFSET).to_pylist()
    )
    ticks = [number for number, each in enumerate(pipeline_inputs(pipeline, "pairs")) if each.broadcast]
    assert len(ticks) == 1
    for number in range(3):
        assert [sent[number, offset] for offset in (0, 2)] == ([3, 3] if number in ticks else [1, 1])
    assert figures_in(messages) == {"pairs": (3, 2, 1)}, "a record counts once, also if it is read twice"


def pipeline_inputs(pipeline: hy.Pipeline, stage: str) -> tuple[Input, ...]:
    return stages_of(pipeline.apply())[stage].inputs
