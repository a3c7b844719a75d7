"""Segment files: what is written comes back, and any damage is noticed."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DamagedSegment, SchemaMismatch
from hayase.streams import segments
from hayase.streams.event_time import event_times
from hayase.streams.segments import Produced, open_segment, read_trailer, stage

STREAM = StreamDeclaration("s", "at bigint, text string", time="at", time_unit="us")


def table(*times: int) -> pa.Table:
    return pa.table(
        {"at": pa.array(times, pa.int64()), "text": pa.array([f"record {time}" for time in times], pa.string())}
    )


def staged(directory: Path, *times: int) -> Path:
    return stage(directory, table(*times), STREAM, "x.seg", written_at=7, producer="p", sequence=3)


def test_records_and_trailer_come_back(tmp_path: Path) -> None:
    path = staged(tmp_path, 5, -2, 9)
    segment = open_segment(path, "s")
    assert segment.batch(0).to_pydict() == table(5, -2, 9).to_pydict()
    assert segment.trailer == read_trailer(path, "s")
    assert (segment.trailer.rows, segment.trailer.earliest, segment.trailer.latest) == (3, -2, 9)
    assert segment.trailer.producers == (Produced("p", 3, 0, 3),)
    assert segment.trailer.written_at == 7
    assert [each.name for each in tmp_path.iterdir()] == ["x.seg"]


def test_a_file_cut_at_any_byte_is_damaged(tmp_path: Path) -> None:
    whole = staged(tmp_path, 1, 2, 3).read_bytes()
    path = tmp_path / "cut.seg"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedSegment, match=r'cut\.seg" of stream "s" is damaged: .*backup'):
            open_segment(path, "s")


def test_a_flipped_byte_anywhere_is_damage(tmp_path: Path) -> None:
    whole = staged(tmp_path, 1, 2, 3).read_bytes()
    for at in range(len(whole)):
        path = tmp_path / f"flipped-{at}.seg"
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(DamagedSegment, match=r"put back an intact copy"):
            open_segment(path, "s")


def test_a_checksum_is_computed_once_per_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = staged(tmp_path, 1, 2, 3)
    open_segment(path, "s")
    hashed: list[int] = []
    digest = segments.xxhash.xxh3_64_intdigest
    monkeypatch.setattr(segments.xxhash, "xxh3_64_intdigest", lambda data: hashed.append(len(data)) or digest(data))
    size = read_trailer(path, "s") and os.stat(path).st_size
    hashed.clear()
    open_segment(path, "s")
    assert len(hashed) == 1
    assert hashed[0] < size / 2  # the trailer only


def test_reading_copies_nothing(tmp_path: Path) -> None:
    path = stage(tmp_path, table(*range(10_000)), STREAM, "x.seg", written_at=0)
    before = pa.total_allocated_bytes()
    batch = open_segment(path, "s").batch(0)
    assert pa.total_allocated_bytes() - before < 10_000
    assert batch.num_rows == 10_000


def test_large_tables_are_cut_into_batches_with_their_maxima(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "BATCH_ROWS", 2)
    trailer = open_segment(staged(tmp_path, 4, 9, 1, 2, 3), "s").trailer
    assert trailer.batches == ((2, 9), (2, 2), (1, 3))


def test_chunks_become_one_batch(tmp_path: Path) -> None:
    rows = pa.concat_tables([table(1), table(2), table(3)])
    segment = open_segment(stage(tmp_path, rows, STREAM, "x.seg", written_at=0), "s")
    assert segment.trailer.batches == ((3, 3),)


def test_a_record_of_64_megabytes(tmp_path: Path) -> None:
    text = "x" * (64 * 1024 * 1024)
    path = stage(tmp_path, pa.table({"at": [1], "text": [text]}), STREAM, "x.seg", written_at=0)
    assert len(open_segment(path, "s").batch(0).column("text")[0].as_py()) == len(text)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (pa.table({"at": [1], "txt": ["x"]}), r"columns \(at int64, txt string\) do not fit"),
        (pa.table({"at": [1], "text": [1]}), r"text int64"),
        (pa.table({"at": pa.array([None], pa.int64()), "text": ["x"]}), 'null in time column "at"'),
        (pa.table({"at": [2**62], "text": ["x"]}), "beyond every calendar"),
    ],
)
def test_records_that_do_not_fit(tmp_path: Path, rows: pa.Table, complaint: str) -> None:
    with pytest.raises(SchemaMismatch, match=complaint):
        stage(tmp_path, rows, STREAM, "x.seg", written_at=0)
    assert not list(tmp_path.iterdir())


def test_times_that_leave_64_bits_are_refused() -> None:
    seconds = StreamDeclaration("s", "at bigint", time="at", time_unit="s")
    with pytest.raises(SchemaMismatch, match="64 bits"):
        event_times(pa.table({"at": [2**60]}), seconds)


def test_timestamps_are_seen_without_a_copy() -> None:
    stream = StreamDeclaration("s", "at timestamp", time="at")
    column = pa.array([1, 2], pa.timestamp("us", tz="UTC"))
    times = event_times(pa.record_batch({"at": column}), stream)
    assert times.tolist() == [1, 2]
    assert times.ctypes.data == column.buffers()[1].address


def test_producer_and_sequence_come_together(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="together"):
        stage(tmp_path, table(1), STREAM, "x.seg", written_at=0, producer="p")
