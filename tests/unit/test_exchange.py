"""Messages through files and through Arrow: what is read is what was written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from hayase.core.errors import DamagedState
from hayase.core.reasons import Reason, ReasonKind
from hayase.engine.batch import exchange
from hayase.engine.batch.bodies import from_body, to_body
from hayase.engine.batch.messages import (
    BLOBS,
    Data,
    DeadLetters,
    Exchanged,
    Header,
    MapFigures,
    Message,
    decode,
    encode,
)
from hayase.engine.batch.offsets import Batch, Offset, Position
from hayase.engine.batch.report import Figures
from hayase.engine.spark.lane_source import LaneSource
from hayase.streams.dead_letters import dead_table

SMALL: list[Message] = [
    Header(0, Batch(Offset(), Offset(1, {"q": {"s": Position(3, 2, 1)}}))),
    Data(0, ("q",), 0, 5, pa.record_batch({"text": ["small"]})),
    DeadLetters(1, dead_table("q", "f", "s", [4], ["{}"], [Reason(ReasonKind.LATE, "late")], 1, now=7)),
    MapFigures(1, "s", {"q": Figures(5, 3, 2, seconds=0.5), "r": Figures(work={"s": (1, 0.5)})}),
]
LARGE: list[Message] = [
    Data(1, ("q", "r"), 1, 7, pa.record_batch({"n": pa.array(range(10_000))})),
    Data(1, ("q",), 1, 9, pa.record_batch({"text": ["x" * (exchange.LARGE + 1)]}), replayed=True),
]


def shuffled(messages: list[Message], directory: Path) -> list[Message]:
    """Messages as the reduce side gets them from Spark, with large bodies in files."""
    sent = list(exchange.write_large([messages[:3], messages[3:]], directory))
    assert [len(each) for each in sent] == [3, len(messages) - 3]
    return [message for each in sent for message in decode(encode(each))]


def test_messages_survive_their_encoding() -> None:
    encoded = encode([*SMALL, *LARGE])
    assert encoded.schema == BLOBS
    assert decode(encoded) == [*SMALL, *LARGE]


def test_spark_is_told_the_schema_of_messages() -> None:
    columns = [column.split() for column in LaneSource({}).schema().split(", ")]
    names = {"int": "int32", "bigint": "int64", "array<string>": "list<item: string>"}
    assert [(name, names.get(kind, kind)) for name, kind in columns] == [(each.name, str(each.type)) for each in BLOBS]


def test_bodies_are_arrow_streams() -> None:
    rows = pa.record_batch({"n": [1, 2, None], "text": ["a", None, "b" * 99], "list": [[1], None, [2, 3]]})
    for part in (rows, rows.slice(1), rows.slice(1, 1), rows.slice(0, 0)):
        assert from_body(to_body(part)).equals(part)


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    received = shuffled([*SMALL, *LARGE], tmp_path)
    assert [type(each) for each in received[4:]] == [Exchanged, Exchanged]
    assert list(exchange.read_large(received, tmp_path)) == [*SMALL, *LARGE]
    assert len(list(tmp_path.iterdir())) == 1


def test_small_bodies_need_no_file(tmp_path: Path) -> None:
    assert shuffled(SMALL, tmp_path) == SMALL
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_gone_or_cut_is_reported(tmp_path: Path) -> None:
    received = shuffled([*SMALL, *LARGE], tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedState, match="should have"):
        list(exchange.read_large(received, tmp_path))
    exchange.clear(tmp_path)
    with pytest.raises(DamagedState, match="do all machines see the home"):
        list(exchange.read_large(received, tmp_path))
