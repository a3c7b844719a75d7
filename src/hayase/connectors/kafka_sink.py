"""Results as messages of a Kafka topic, in transactions: each change exactly once for whoever reads committed messages.

The position is committed to a consumer group in the same transaction. An output has one transactional id, so a new process shuts
out an old one that is still alive, and what that one left unfinished is aborted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import repeat

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from hayase.connectors.change_texts import change_texts, key_texts, upserts
from hayase.connectors.kafka_client import TIMEOUT, client_settings, explained
from hayase.connectors.sink import APPEARS, HEADS, Changes, Position, Sink, SinkSetting
from hayase.core.errors import EndpointError, PositionMoved
from hayase.streams.records import row_texts

__all__ = ["KafkaSink"]

COMMIT = 60.0
"""Seconds that a transaction may take to be committed."""


class KafkaSink(Sink):
    """A topic that gets changes, rows or upserts."""

    def __init__(self, setting: SinkSetting):
        self._setting, self._options = setting, setting.options
        self._topic, self._key = setting.options["topic"], setting.options["key"]
        name = f"hayase-{setting.home[:12]}-{setting.output}"
        settings = client_settings(self._options)
        self._consumer = Consumer({
            **settings, "group.id": name, "enable.auto.commit": False, "isolation.level": "read_committed",
            "auto.offset.reset": "earliest", "enable.partition.eof": True,
        })  # fmt: skip
        self._producer = Producer({
            **settings, "transactional.id": name, "transaction.timeout.ms": 60_000, "enable.idempotence": True,
            "error_cb": self._note_error,
            "linger.ms": 20, "compression.type": "lz4", "queue.buffering.max.messages": 200_000,
        })  # fmt: skip
        self._at: Position | None = None
        self._lost = self._stuck = False
        try:
            with explained(self._options):
                self._producer.init_transactions(TIMEOUT * 2)
        except BaseException:
            self._consumer.close()
            raise

    def position(self) -> Position | None:
        with explained(self._options):
            place = self._consumer.committed([TopicPartition(self._topic, 0)], TIMEOUT)[0]
            if place.error is not None:
                raise KafkaException(place.error)
        self._at = Position(place.offset, place.metadata or "") if place.offset >= 0 else None
        return self._at

    def write(self, changes: Changes) -> None:
        self._producer.poll(0)
        if self._lost:
            raise EndpointError(f"the connection to Kafka at {self._options['brokers']} was lost")
        if changes.since != self._at:
            raise PositionMoved(
                f'topic "{self._topic}" holds {self._at}, not {changes.since}', "start the output again"
            )
        with explained(self._options):
            self._producer.begin_transaction()
            try:
                if changes.anew:
                    for key in self._present_keys():
                        self._send(key.encode(), None)
                for name, value in self._messages(changes):
                    self._send(name, value)
                place = TopicPartition(self._topic, 0, changes.until.number, metadata=changes.until.cursor)
                self._send_position(place)
                self._commit()
            except BaseException:
                if not self._stuck:
                    self._abort()
                raise
        self._at = changes.until

    def close(self) -> None:
        if not self._stuck:
            self._producer.purge()
        self._consumer.close()

    def _messages(self, changes: Changes) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Yield the key and the value of each message."""
        rows, emit = changes.rows, self._options["emit"]
        if emit == "upserts":
            texts = row_texts(rows.drop_columns(list(HEADS)))
            for name, at in upserts(rows, self._key):
                yield name.encode(), None if at is None else texts[at].encode()
            return
        if emit == "rows":
            rows = rows.filter(rows.column(APPEARS))
            values = iter(row_texts(rows.drop_columns(list(HEADS))))
        else:
            values = change_texts(rows, self._setting.stream)
        keys = (key.encode() for key in key_texts(rows, self._key)) if self._key else repeat(None)
        for key, value in zip(keys, values):
            yield key, value.encode()

    def _send(self, key: bytes | None, value: bytes | None) -> None:
        while True:
            try:
                self._producer.produce(self._topic, value=value, key=key)
                return
            except BufferError:  # the queue is full: let some go
                self._producer.poll(0.1)

    def _note_error(self, error: KafkaError) -> None:
        """Remember that all brokers were away: the client does not always find the coordinator of the group again
        (librdkafka issue 5511), so another client goes on."""
        self._lost |= error.code() == KafkaError._ALL_BROKERS_DOWN

    def _send_position(self, place: TopicPartition) -> None:
        """Add the position to the transaction. The client does not keep its own time limit (librdkafka issue 5456)."""
        failed: list[BaseException] = []

        def send() -> None:
            try:
                group = self._consumer.consumer_group_metadata()
                self._producer.send_offsets_to_transaction([place], group, TIMEOUT)
            except BaseException as error:
                failed.append(error)

        sending = threading.Thread(target=send, name="position", daemon=True)
        sending.start()
        sending.join(2 * TIMEOUT)
        if sending.is_alive():
            self._stuck = True
            raise EndpointError(f"Kafka at {self._options['brokers']} does not take a position")
        if failed:
            raise failed[0]

    def _commit(self) -> None:
        """Commit the transaction; one that the broker has not answered is asked about again."""
        for _ in range(3):
            try:
                self._producer.commit_transaction(COMMIT)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
        raise EndpointError(f"Kafka at {self._options['brokers']} does not say whether a transaction was committed")

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction(TIMEOUT)
        except KafkaException:  # the next process of this output aborts it
            self._producer.purge()

    def _present_keys(self) -> list[str]:
        """Return the keys whose last message in the topic has a value: after a reset they are emptied first, if upserts go out."""
        if self._options["emit"] != "upserts":
            return []
        partitions = self._consumer.list_topics(self._topic, timeout=TIMEOUT).topics[self._topic].partitions
        places = [TopicPartition(self._topic, number, 0) for number in partitions]
        for place in places:
            place.offset = self._consumer.get_watermark_offsets(place, timeout=TIMEOUT)[0]
        self._consumer.assign(places)
        present: dict[str, bool] = {}
        open_partitions = {place.partition for place in places}
        while open_partitions:
            for message in self._consumer.consume(10_000, 1.0):
                error = message.error()
                if error is None:
                    present[(message.key() or b"").decode("utf-8", "backslashreplace")] = message.value() is not None
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                else:
                    raise KafkaException(error)
        self._consumer.unassign()
        return [key for key, is_there in present.items() if is_there]
