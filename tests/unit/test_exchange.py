"""Blobs by way of files: what is taken in is what was put out."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from hayase.core.errors import DamagedState
from hayase.engine.batch import exchange
from hayase.engine.batch.map_side import BLOBS, blob_rows

ROWS = [
    (0, "header", "", 0, 0, b"h" * exchange.LARGE),
    (0, "data", "q", 0, 5, b"small"),
    (1, "data", "q", 1, 7, bytes(range(256)) * 300),
    (1, "data", "q", 1, 9, b"x" * (exchange.LARGE + 1)),
]


def batches(rows: list[tuple[int, str, str, int, int, bytes]]) -> list[pa.RecordBatch]:
    half = [rows[:3], rows[3:]]
    return [
        pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(zip(*some), BLOBS)], schema=BLOBS)
        for some in half
        if some
    ]


def test_what_is_taken_in_is_what_was_put_out(tmp_path: Path) -> None:
    sent = list(exchange.put_out(batches(ROWS), tmp_path))
    assert [each.schema for each in sent] == [BLOBS, BLOBS]
    shuffled = [row for each in sent for row in blob_rows(each)]
    assert [row["kind"] for row in shuffled] == ["header", "data", exchange.KIND, exchange.KIND]
    found = exchange.taken_in(shuffled, tmp_path)
    assert [(*(row[name] for name in BLOBS.names[:-1]), bytes(row["blob"].as_buffer())) for row in found] == ROWS
    assert len(list(tmp_path.iterdir())) == 1


def test_small_blobs_need_no_file(tmp_path: Path) -> None:
    assert list(exchange.put_out(batches(ROWS[:2]), tmp_path)) == batches(ROWS[:2])
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_gone_or_cut_is_told(tmp_path: Path) -> None:
    shuffled = [row for each in exchange.put_out(batches(ROWS), tmp_path) for row in blob_rows(each)]
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedState, match="should have"):
        exchange.taken_in(shuffled, tmp_path)
    exchange.clear(tmp_path)
    with pytest.raises(DamagedState, match="do all machines see the home"):
        exchange.taken_in(shuffled, tmp_path)
