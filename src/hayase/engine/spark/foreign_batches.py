"""The batches of any streaming source of Spark, handed over one by one: the next begins when the last one is durable elsewhere.

Spark numbers the batches of a checkpoint and repeats the last one with the same number and the same records until it has returned.
So the id of the checkpoint and the number of a batch identify its records.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from hayase.core.errors import EndpointError
from hayase.engine.spark.session import local_master, open_session

__all__ = ["ForeignBatches", "OpenedSession", "open_frame"]

NOTHING_NEW = "Waiting for data to arrive"
"""What Spark says of a query that has found nothing new."""
SLOTS = 2
"""Tasks that read at the same time."""


class OpenedSession(NamedTuple):
    """A session of Spark, and whether it was opened here."""

    spark: SparkSession
    is_ours: bool

    def close(self) -> None:
        if self.is_ours:
            self.spark.stop()


def open_frame(
    form: str, options: Mapping[str, str], schema: str | None, settings: Mapping[str, str], log: Path | None
) -> tuple[OpenedSession, DataFrame]:
    """Return a session and the frame of a streaming source; EndpointError if Spark refuses its options."""
    is_ours = SparkContext._active_spark_context is None  # another one of this process is used as it is, and stays
    session = open_session(local_master(SLOTS), log=log, settings=settings)
    session = session if is_ours else session.newSession()
    try:
        reader = session.readStream.format(form).options(**options)
        return OpenedSession(session, is_ours), (reader if schema is None else reader.schema(schema)).load()
    except (PySparkException, Py4JError) as error:
        OpenedSession(session, is_ours).close()
        raise EndpointError(
            f'Spark cannot read the format "{form}": {_first_line(error)}', "check its options"
        ) from error


class ForeignBatches:
    """A running query whose batches wait here until they are released."""

    def __init__(self, session: OpenedSession, frame: DataFrame, checkpoint: Path):
        self._session, self._changed = session, threading.Condition()
        self._batch: tuple[int, pa.Table] | None = None
        self._released, self._closed = -1, False
        writer = frame.writeStream.foreachBatch(self._hand_over).option("checkpointLocation", str(checkpoint))
        try:
            self._query = writer.start()
        except (PySparkException, Py4JError) as error:
            session.close()
            raise EndpointError(f"Spark cannot start to read: {_first_line(error)}", "check its options") from error
        self.identity = str(self._query.id)
        """The id of the checkpoint."""

    def next(self, patience: float) -> tuple[int, pa.Table] | None:
        """Return the number and the records of the batch that waits; None if there is none within `patience` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._batch is not None, patience)
            batch = self._batch
        if batch is None and not self._query.isActive:
            error = self._query.exception()
            raise EndpointError(
                f"Spark has stopped to read: {'' if error is None else _first_line(error)}", "see the log"
            )
        return batch

    def release(self, number: int) -> None:
        """Let Spark go on behind a batch: it is durable."""
        with self._changed:
            self._released, self._batch = number, None
            self._changed.notify_all()

    @property
    def is_idle(self) -> bool:
        """Whether Spark has looked for more and found nothing."""
        status = self._query.status
        with self._changed:
            is_free = self._batch is None
        return is_free and not status["isDataAvailable"] and status["message"] == NOTHING_NEW

    def close(self) -> None:
        """Stop the query, and the session if it was opened for it; a batch that was not released is read again."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        try:
            self._query.stop()
        finally:
            self._session.close()

    def _hand_over(self, frame: DataFrame, number: int) -> None:
        """Called by Spark with each batch; returns when it is released."""
        table = frame.toArrow()
        with self._changed:
            if number > self._released:
                self._batch = (number, table)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._released >= number or self._closed)
            if self._released < number:
                raise InterruptedError("the source was closed")


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
