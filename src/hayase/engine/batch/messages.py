"""The messages that map tasks send to the buckets of a batch, and their one Arrow encoding.

| message | content |
|---|---|
| `Header` | the offsets of the batch, and so every clock; one for each bucket, with or without data |
| `Data` | mapped rows for an input of one or more stages; `replayed` if they come from settled dead letters |
| `Exchanged` | the place of a `Data` body that lies in a file (`hayase.engine.batch.exchange`) |
| `DeadLetters` | records that the map side refused |
| `MapFigures` | how many records of a stream each stage read, and how long that took |

Spark shuffles messages as rows of `BLOBS` (`encode`, `decode`); the local runner passes the objects. Decoding copies no body.
A bucket's messages are indexed once, in an `Inbox`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import orjson
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.errors import DamagedState
from hayase.core.stages import OFFSET, TIME
from hayase.engine.batch.bodies import from_body, to_body
from hayase.engine.batch.offsets import Batch
from hayase.engine.batch.report import Figures

__all__ = [
    "BLOBS",
    "Data",
    "DeadLetters",
    "Exchanged",
    "Header",
    "Inbox",
    "MapFigures",
    "Message",
    "decode",
    "encode",
    "headers",
    "mapped_schema",
]

BLOBS = pa.schema(
    [
        ("bucket", pa.int32()),
        ("kind", pa.string()),
        ("stages", pa.list_(pa.string())),
        ("input", pa.int32()),
        ("first", pa.int64()),
        ("blob", pa.binary()),
    ]
)
"""The rows that Spark shuffles; `hayase.engine.spark.lane_source` declares the same schema to Spark."""


@dataclass(frozen=True, slots=True)
class Header:
    """The offsets between which a batch reads."""

    bucket: int
    batch: Batch


@dataclass(frozen=True, slots=True)
class Data:
    """Mapped rows for input number `input` of all `stages`, made of the chunk of a log that begins at offset `first`.

    They become bytes when they go to another process.
    """

    bucket: int
    stages: tuple[str, ...]
    input: int
    first: int
    rows: pa.RecordBatch
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Exchanged:
    """`Data` whose body is in a file: `length` bytes from `start` on, with their checksum."""

    bucket: int
    stages: tuple[str, ...]
    input: int
    first: int
    file: str
    start: int
    length: int
    checksum: str
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Dead letters, with the columns of the stream `_dead`."""

    bucket: int
    letters: pa.Table


@dataclass(frozen=True, slots=True)
class MapFigures:
    """What happened on the map side to the records of a stream, for each stage that reads them."""

    bucket: int
    stream: str
    figures: Mapping[str, Figures]


Message: TypeAlias = Header | Data | Exchanged | DeadLetters | MapFigures

_Row = tuple[int, str, Sequence[str], int, int, Any]


def mapped_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of the rows that a kernel takes: the mapped columns, the event time and the offset."""
    return schema.append(pa.field(TIME, pa.int64())).append(pa.field(OFFSET, pa.int64()))


def headers(batch: Batch, buckets: int) -> list[Message]:
    """A header for each bucket."""
    return [Header(bucket, batch) for bucket in range(buckets)]


def encode(messages: Iterable[Message]) -> pa.RecordBatch:
    """Messages as rows of `BLOBS`."""
    columns = list(zip(*map(_row, messages)))
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, BLOBS)], schema=BLOBS
    )


def _row(message: Message) -> _Row:
    match message:
        case Header(bucket, batch):
            return bucket, "header", (), 0, 0, batch.as_blob()
        case Data(bucket, stages, input, first, rows, replayed):
            return bucket, "replayed" if replayed else "data", stages, input, first, memoryview(to_body(rows))
        case Exchanged(bucket, stages, input, first, file, start, length, checksum, replayed):
            place = orjson.dumps([file, start, length, checksum, replayed])
            return bucket, "exchanged", stages, input, first, place
        case DeadLetters(bucket, letters):
            return bucket, "dead", (), 0, 0, memoryview(to_body(letters.combine_chunks().to_batches()[0]))
        case MapFigures(bucket, stream, figures):
            return bucket, "figures", (), 0, 0, orjson.dumps([stream, figures])


def decode(rows: pa.RecordBatch) -> list[Message]:
    """The messages in rows of `BLOBS`; their rows refer to the memory of these."""
    *columns, blobs = (column if column.type == pa.binary() else column.to_pylist() for column in rows.columns)
    return [_message(values, blob.as_buffer()) for *values, blob in zip(*columns, blobs)]


def _message(values: Sequence[Any], body: pa.Buffer) -> Message:
    bucket, kind, stages, input, first = values
    match kind:
        case "header":
            return Header(bucket, Batch.from_blob(memoryview(body)))
        case "data" | "replayed":
            return Data(bucket, tuple(stages), input, first, from_body(body), kind == "replayed")
        case "exchanged":
            return Exchanged(bucket, tuple(stages), input, first, *orjson.loads(memoryview(body)))
        case "dead":
            return DeadLetters(bucket, pa.table(from_body(body)))
        case "figures":
            stream, figures = orjson.loads(memoryview(body))
            return MapFigures(bucket, stream, {stage: Figures(**fields) for stage, fields in figures.items()})
    raise AssertionError(f"unknown kind of message: {kind}")


@dataclass(frozen=True, slots=True)
class Inbox:
    """The messages of one bucket: the batch they belong to, the data of each stage, dead letters and figures."""

    bucket: int
    batch: Batch
    data: Mapping[str, Sequence[Data]]
    letters: Sequence[pa.Table]
    figures: Sequence[MapFigures]

    @classmethod
    def of(cls, bucket: int, lane: str, messages: Iterable[Message]) -> Inbox:
        """Index messages; DamagedState if none of them is a header."""
        batch: Batch | None = None
        data: dict[str, list[Data]] = {}
        letters, figures = [], []
        for message in messages:
            match message:
                case Header():
                    batch = message.batch
                case Data():
                    for stage in message.stages:
                        data.setdefault(stage, []).append(message)
                case DeadLetters():
                    letters.append(message.letters)
                case MapFigures():
                    figures.append(message)
                case Exchanged():
                    raise AssertionError("data in a file must be read first (exchange.read_large)")
        if batch is None:
            raise DamagedState(f"bucket {bucket} of lane {lane} got no header; this is a fault in Hayase")
        return cls(bucket, batch, data, letters, figures)

    @property
    def replayed(self) -> frozenset[str]:
        """The stages that got replayed records in this bucket."""
        return frozenset(stage for stage, messages in self.data.items() if any(data.replayed for data in messages))
