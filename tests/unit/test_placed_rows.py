"""Output rows with places: files of several buckets are merged in the order of event time and place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DamagedState
from hayase.engine.batch.placed_rows import merge_placed, write_placed
from hayase.streams.segments import BATCH_ROWS
from hayase.testing import trial

OUTPUT = StreamDeclaration("q", "name string, at bigint", time="at", time_unit="s")


def rows(times: np.ndarray, places: np.ndarray) -> pa.Table:
    names = pa.array([None if place % 7 == 0 else f"r{place}" for place in places.tolist()], pa.string())
    return pa.table({"name": names, "at": times})


@pytest.mark.parametrize("count", [1, 5, 2 * BATCH_ROWS + 3])
def test_rows_of_all_buckets_are_merged_by_time_and_place(tmp_path: Path, count: int) -> None:
    chance = np.random.default_rng(3)
    times, places = np.sort(chance.integers(0, max(2, count // 50), count)), chance.permutation(count)
    order = np.lexsort((places, times))
    times, places, bucket = times[order], places[order], chance.integers(0, 3, count)
    files = []
    for number in range(3):
        own_times, own = times[bucket == number], places[bucket == number]
        files.append(write_placed(tmp_path, f"{number}.placed", "q", rows(own_times, own), own))
    merged = merge_placed(tmp_path, files, OUTPUT)
    assert sum(file.rows for file in files) == count
    assert merged.equals(rows(times, places))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    file = write_placed(tmp_path, "a.placed", "q", rows(np.arange(9), np.arange(9)), np.arange(9))
    damaged = bytearray((tmp_path / "a.placed").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "a.placed").write_bytes(damaged)
    with pytest.raises(DamagedState, match=r"a\.placed is damaged"):
        merge_placed(tmp_path, [file], OUTPUT)
    with pytest.raises(DamagedState, match=r"b\.placed cannot be read"):
        merge_placed(tmp_path, [replace(file, file="b.placed")], OUTPUT)


def test_a_window_by_rows_behind_over_follows_the_offsets_and_nothing_is_left_behind() -> None:
    with trial() as t:
        t.declaration = replace(t.declaration, buckets=4)
        t.stream("s", "time bigint, k bigint, n bigint", time_unit="s")
        t.query("numbered", "select k, n, row_number() over (partition by k order by time) as place from s")
        t.query("newest", "select n, place from numbered [Rows 2]")
        t.append("s", [{"time": 1, "k": n % 5, "n": n} for n in range(12)])
        t.finish("s")
        t.run()
        log = t.query("numbered").log
        assert [row["n"] for piece in log.read(0, log.index().next) for row in piece.rows.to_pylist()] == [*range(12)]
        assert [(row["n"], row["place"]) for row, _, end in t.query("newest").intervals() if end is None] == [
            (10, 3), (11, 3),
        ]  # fmt: skip
        assert not [*t.home.path.glob("staged/*/*")]
