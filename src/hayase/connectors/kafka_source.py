"""Messages of a Kafka topic as the records of a stream.

Hayase assigns the partitions itself: the position of each is in the stream's log. Positions are also committed to a consumer
group, for people's tools. Only committed transactions are read, and the end of a partition is its last stable offset; aborted
messages and markers leave gaps, so a position moves also where there is no message.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from hayase.connectors.inlet import Inlet
from hayase.connectors.kafka_client import TIMEOUT, client_settings, explained
from hayase.connectors.message_formats import decoder
from hayase.connectors.read_ahead import ReadAhead
from hayase.connectors.source import Portion, Source, SourceSetting
from hayase.connectors.upserts import Upsert, Upserts
from hayase.core.data_classes import dataclass
from hayase.core.errors import EndpointError
from hayase.core.reasons import ReasonKind
from hayase.streams.record_text import line_text
from hayase.streams.records import Conformed, Refused

__all__ = ["KafkaSource"]

AT_ONCE = 10_000
"""Messages that are asked of the client at once."""
MOST_MESSAGES = 100_000
MOST_BYTES = 16 << 20
"""Messages and bytes in one read."""
LINGER = 0.05
"""Seconds in which messages are collected, so that a slow topic does not make an append of each message."""
BACKOFF = 10
"""Milliseconds after which the client fetches again when its queue was full. By itself it waits a second, in which the queue runs
empty: most of the time of a backlog was this wait."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class KafkaSource(Source):
    """A topic. `identity` has the cluster and the topic, and a partition is its number."""

    def __init__(self, setting: SourceSetting):
        self._setting, self._options = setting, setting.options
        self._topic = setting.options["topic"]
        stream = setting.stream
        self._extra = {
            what: self._options[f"{what}_column"]
            for what in ("timestamp", "key", "headers", "partition", "offset")
            if self._options[f"{what}_column"]
        }
        signs = [str(stream.changes)] if self._options["upserts"] else []
        self._decode = decoder(self._options, stream, [*self._extra.values(), *signs])
        self._ahead = ReadAhead(self._read)
        settings = client_settings(self._options)
        group = self._options["group"] or f"hayase-{setting.pipeline}-{stream.name}"
        self._consumer = Consumer({
            **settings,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "queued.max.messages.kbytes": 65_536,
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": BACKOFF,
        })  # fmt: skip
        self._admin = AdminClient(settings)
        self._upserts: Upserts | None = None
        """The last row of each key, if messages are upserts."""
        self._at: dict[str, int] = {}
        """Where the consumer reads next, by partition."""
        self._moved = False
        """Whether a partition has to be read from elsewhere."""
        try:
            with explained(self._options):
                metadata = self._consumer.list_topics(self._topic, timeout=TIMEOUT)
            self.identity = f"kafka/{metadata.cluster_id}/{self._topic}"
        except BaseException:
            self.close()
            raise

    def prepare(self, inlet: Inlet) -> None:
        if self._options["upserts"]:
            self._upserts = Upserts(self._setting.stream, inlet.log, self._options["key_column"])

    def starts(self) -> Mapping[str, int]:
        partitions = self._partitions()
        if self._options["start"] == "earliest":
            return self._offsets(partitions, OffsetSpec.earliest())
        with explained(self._options):  # a position of the group is where this source once began
            known = self._consumer.committed([TopicPartition(self._topic, int(each)) for each in partitions], TIMEOUT)
        starts = {str(place.partition): place.offset for place in known if place.offset >= 0}
        new = [each for each in partitions if each not in starts]
        if new:
            starts |= self._offsets(new, OffsetSpec.latest())
            self._commit({each: starts[each] for each in new}, wait=True)
        return starts

    def ends(self) -> Mapping[str, int]:
        return self._offsets(self._partitions(), OffsetSpec.latest())

    def read(self, positions: Mapping[str, int], patience: float) -> Sequence[Portion]:
        if self._upserts is not None:  # they follow from the rows that the stream has
            return self._read(positions, patience)
        return self._ahead(positions, patience)

    def _read(self, positions: Mapping[str, int], patience: float) -> Sequence[Portion]:
        if positions != self._at or self._moved:
            self._at, self._moved = dict(positions), False
            if self._upserts is not None:  # after the positions: an append in between is noticed by the next one
                self._upserts.load()
            self._consumer.assign([TopicPartition(self._topic, int(each), at) for each, at in positions.items()])
        taken: dict[str, _Taken] = {}
        for messages in self._received(patience, taken):
            events = []
            if any(map(Message.error, messages)):
                events = [message for message in messages if message.error() is not None]
                messages = [message for message in messages if message.error() is None]
            for number, run in _runs(messages):
                partition = str(number)
                self._take(taken.setdefault(partition, _Taken()), run)
                self._at[partition] = taken[partition].offsets[-1] + 1
            for event in events:
                self._take_event(event, positions)
        return [
            Portion(partition, self._conformed(partition, taken.get(partition)), at)
            for partition, at in self._at.items()
            if at != positions[partition]
        ]

    def confirm(self, positions: Mapping[str, int]) -> None:
        self._commit({partition: at for partition, at in positions.items() if at >= 0}, wait=False)

    def close(self) -> None:
        self._ahead.close()
        self._consumer.close()

    def _take_event(self, event: Message, positions: Mapping[str, int]) -> None:
        """Take what the client says about a partition, behind the messages before it."""
        partition, error = str(event.partition()), event.error()
        if error.code() == KafkaError._PARTITION_EOF:
            self._at[partition] = max(self._at[partition], event.offset())
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._at[partition] = self._behind_missing(partition, positions[partition])
        else:
            with explained(self._options):
                raise KafkaException(error)

    def _received(self, patience: float, taken: Mapping[str, _Taken]) -> Iterator[list[Message]]:
        """Yield messages, waiting for the first at most `patience`, and then shortly for more, until enough of them are `taken`.
        Some thousands come at a time: the objects of messages are many, and are to be gone before the garbage collector looks at
        them."""
        with explained(self._options):
            messages = self._consumer.consume(1, patience)
        until = time.monotonic() + LINGER
        while messages:
            is_last = len(messages) < AT_ONCE and time.monotonic() >= until
            yield messages
            count = sum(len(each.values) for each in taken.values())
            if is_last or count >= MOST_MESSAGES or sum(each.size for each in taken.values()) >= MOST_BYTES:
                return
            with explained(self._options):
                messages = self._consumer.consume(AT_ONCE, max(0.0, min(LINGER, until - time.monotonic())))

    def _take(self, taken: _Taken, messages: list[Message]) -> None:
        """Take what is needed of messages of one partition."""
        values = list(map(Message.value, messages))
        taken.values += values
        taken.size += sum(map(len, filter(None, values)))
        taken.offsets += _offsets(messages)
        if self._upserts is not None:
            taken.keys += map(_text, map(Message.key, messages))
            taken.times += [milliseconds * 1_000 for _, milliseconds in map(Message.timestamp, messages)]
            taken.extra.setdefault(str(self._setting.stream.changes), []).extend(repeat("+", len(messages)))
        for what, column in self._extra.items():
            values = taken.extra.setdefault(column, [])
            if what == "timestamp":
                values += [self._time(column, milliseconds) for _, milliseconds in map(Message.timestamp, messages)]
            elif what == "key":
                values += map(_text, map(Message.key, messages))
            elif what == "headers":
                values += map(_headers_text, map(Message.headers, messages))
            else:
                values += map(Message.partition if what == "partition" else Message.offset, messages)

    def _conformed(self, partition: str, taken: _Taken | None) -> Conformed:
        if taken is None:
            return Conformed(self._setting.stream.arrow_schema.empty_table())
        if self._upserts is None:
            return self._decoded(partition, taken, set())
        return self._changed(partition, taken, self._upserts)

    def _changed(self, partition: str, taken: _Taken, upserts: Upserts) -> Conformed:
        """Return messages as changes of the rows of their keys; one that cannot be read changes nothing."""
        valued = [at for at, (key, value) in enumerate(zip(taken.keys, taken.values)) if None not in (key, value)]
        refused: set[int] = set()
        decoded = self._decoded(partition, taken.only(valued), refused)
        unread = {valued[number] for number in refused}
        rows = {at: row for row, at in enumerate(at for at in valued if at not in unread)}
        changed = upserts.changes(
            [
                Upsert(key, taken.times[at], rows.get(at))
                for at, key in enumerate(taken.keys)
                if key is not None and at not in unread
            ],
            decoded,
        )
        why = "a message without a key is no upsert"
        letters = [
            Refused(
                line_text(taken.values[at] or b""),
                f"{self._place(partition, taken.offsets[at])}: {why}",
                ReasonKind.UNREADABLE,
            )
            for at, key in enumerate(taken.keys)
            if key is None
        ]
        return Conformed(changed.rows, (*changed.refused, *letters))

    def _decoded(self, partition: str, taken: _Taken, refused: set[int]) -> Conformed:
        """Return the values of messages as records, and in `refused` which of them are none."""
        if not taken.values:
            return Conformed(self._setting.stream.arrow_schema.empty_table())

        def place(at: int) -> str:
            refused.add(at)  # who is asked for its place is refused
            return self._place(partition, taken.offsets[at])

        values = taken.values if all(taken.values) else [value or b"" for value in taken.values]
        return self._decode(values, self._setting.now(), place, taken.extra)

    def _place(self, partition: str, offset: int) -> str:
        return f'topic "{self._topic}", partition {partition}, offset {offset}'

    def _time(self, column: str, milliseconds: int) -> Any:
        stream = self._setting.stream
        if pa.types.is_timestamp(stream.arrow_schema.field(column).type):
            return _EPOCH + timedelta(milliseconds=milliseconds)
        return milliseconds * 1_000 // stream.time_scale if column == stream.time else milliseconds

    def _partitions(self) -> list[str]:
        with explained(self._options):
            topic = self._consumer.list_topics(self._topic, timeout=TIMEOUT).topics.get(self._topic)
            if topic is None or topic.error is not None:
                why = "it does not exist" if topic is None else topic.error.str()
                raise EndpointError(
                    f'Kafka at {self._options["brokers"]} has no topic "{self._topic}": {why}',
                    "create it, or check its name",
                )
        return [str(number) for number in sorted(topic.partitions)]

    def _offsets(self, partitions: Sequence[str], of: OffsetSpec) -> dict[str, int]:
        """Return offsets of partitions; the latest is the last stable one."""
        asked = {TopicPartition(self._topic, int(each)): of for each in partitions}
        with explained(self._options):
            answers = self._admin.list_offsets(
                asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=TIMEOUT
            )
            return {str(place.partition): answer.result().offset for place, answer in answers.items()}

    def _behind_missing(self, partition: str, position: int) -> int:
        """Return the first offset that the topic still has, if going on there is wanted."""
        first = self._offsets([partition], OffsetSpec.earliest())[partition]
        end = self._offsets([partition], OffsetSpec.latest())[partition]
        where = f'partition {partition} of topic "{self._topic}"'
        if position > end:
            raise EndpointError(
                f"{where} ends at {end}, and the stream has read up to {position}: the topic was created anew",
                "read it into a stream of another name, or give the topic another name",
            )
        if self._options["missing"] == "stop":
            raise EndpointError(
                f"messages {position} to {first - 1} of {where} were removed before they were read",
                "go on behind them with missing: skip",
            )
        self._moved = True
        return first

    def _commit(self, positions: Mapping[str, int], *, wait: bool) -> None:
        if positions:
            places = [TopicPartition(self._topic, int(each), at) for each, at in positions.items()]
            with explained(self._options):
                self._consumer.commit(offsets=places, asynchronous=not wait)


@dataclass(slots=True)
class _Taken:
    """What was received of a partition: the values of messages, their offsets, and the columns that come from elsewhere; for
    upserts also keys and times in microseconds."""

    values: list[Any] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    extra: dict[str, list[Any]] = field(default_factory=dict)
    keys: list[str | None] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    size: int = 0
    """Bytes of all values."""

    def only(self, places: Sequence[int]) -> _Taken:
        """Return values, offsets and columns of the messages at some places."""
        extra = {name: [column[at] for at in places] for name, column in self.extra.items()}
        return _Taken([self.values[at] for at in places], [self.offsets[at] for at in places], extra)


def _runs(messages: list[Message]) -> Iterator[tuple[int, list[Message]]]:
    """Yield the messages of each partition in their order, those that follow each other together. The client gives many of one
    partition in a row."""
    partitions = np.fromiter(map(Message.partition, messages), np.int64, len(messages))
    cuts = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(messages)]
    for first, end in pairwise(cuts):
        if first < end:
            yield int(partitions[first]), messages[first:end]


def _offsets(messages: list[Message]) -> Iterable[int]:
    """Return the offsets of messages of one partition, at least one. They increase, so that as many as lie between the first and
    the last leave no gap; else each message is asked."""
    first, last = messages[0].offset(), messages[-1].offset()
    return range(first, last + 1) if last - first + 1 == len(messages) else map(Message.offset, messages)


def _headers_text(headers: list[tuple[str, bytes | None]] | None) -> str:
    return json.dumps({name: _text(value) for name, value in headers or ()})


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")
