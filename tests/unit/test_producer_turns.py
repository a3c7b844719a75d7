"""Appends that name the one before them: of two processes that append as one producer, only one goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import OutOfTurn
from hayase.streams import StreamLog
from hayase.streams.appends import append_conformed, last_sequence
from hayase.streams.dead_letters import DEAD
from hayase.streams.log import FIRST
from hayase.streams.records import conform
from interruptions import passing_home

NOW = 1_800_000_000_000_000
ORDERS = StreamDeclaration("orders", "time timestamp, amount bigint", "time")


def append(home: Path, values: list[object], sequence: int, after: int | None) -> None:
    rows = [{"time": "2026-01-01T00:00:00Z", "amount": value} for value in values]
    append_conformed(home, ORDERS, conform(rows, ORDERS, NOW), NOW, "kafka/0", sequence, after)


def test_the_first_append_comes_after_nothing(tmp_path: Path) -> None:
    append(tmp_path, [1], 1, FIRST)
    assert last_sequence(tmp_path, ORDERS, "kafka/0") == 1
    with pytest.raises(OutOfTurn, match="stop one of the two"):
        append(tmp_path, [2], 2, FIRST)


def test_a_repeat_is_recognised_whatever_it_comes_after(tmp_path: Path) -> None:
    append(tmp_path, [1], 1, FIRST)
    append(tmp_path, [1], 1, FIRST)
    assert StreamLog.open(tmp_path, "orders").index().next == 1


def test_an_append_of_dead_letters_only_counts(tmp_path: Path) -> None:
    append(tmp_path, ["x"], 1, FIRST)
    assert last_sequence(tmp_path, ORDERS, "kafka/0") == 1
    append(tmp_path, ["y"], 2, 1)
    append(tmp_path, [3], 3, 2)
    with pytest.raises(OutOfTurn):
        append(tmp_path, ["z"], 4, 2)
    append(tmp_path, [4, "w"], 5, 3)
    assert last_sequence(tmp_path, ORDERS, "kafka/0") == 5
    assert StreamLog.open(tmp_path, "orders").index().next == 2
    assert StreamLog.open(tmp_path, "_dead").index().next == 3


@settings(max_examples=examples(50))
@given(data=st.data())
def test_two_readers_of_one_partition_append_each_record_once(data: st.DataObject) -> None:
    """Two readers take turns in any order, with portions of any size; one that is out of turn begins at the stream's place."""
    with passing_home() as home:
        records: list[object] = data.draw(st.lists(st.sampled_from([1, 2, 3, "bad"]), max_size=12))
        places = [FIRST, FIRST]
        while min(max(place, 0) for place in places) < len(records):
            reader = data.draw(st.integers(0, 1))
            first = max(places[reader], 0)
            if first >= len(records):
                places[reader] = last_sequence(home, ORDERS, "kafka/0")
                continue
            end = data.draw(st.integers(first + 1, len(records)))
            try:
                append(home, records[first:end], end, places[reader])
                places[reader] = end
            except OutOfTurn:
                places[reader] = last_sequence(home, ORDERS, "kafka/0")
        good = [record for record in records if record != "bad"]
        rows = [row for piece in StreamLog.ensure(home, ORDERS).read(0, len(good)) for row in piece.rows.to_pylist()]
        assert [row["amount"] for row in rows] == good
        assert StreamLog.ensure(home, ORDERS).index().next == len(good)
        assert StreamLog.ensure(home, DEAD).index().next == len(records) - len(good)
