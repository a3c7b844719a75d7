"""The reduce side of a lane as Spark runs it: a function on Arrow batches, of which Spark's column is built once for all batches.

What changes from batch to batch, the `Task`, reaches the workers as a local property of Spark. To build the column anew for every
batch would take some 40 calls from Python into the JVM. It is done all the same for a task that is too large for a property.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, pandas_udf
from pyspark.sql.types import StringType, StructField, StructType
from pyspark.util import PythonEvalType

from hayase.core.data_classes import dataclass
from hayase.core.timeline import reach
from hayase.engine.batch import exchange
from hayase.engine.batch.messages import BLOBS, Inbox, Message, decode
from hayase.engine.batch.outcomes import Task
from hayase.engine.batch.reduce_side import reduce_bucket
from hayase.engine.batch.report import Report
from hayase.engine.definition.definitions import definition_of

__all__ = ["Reduction"]

_TASK = "hayase.task"
_MOST_BYTES = 65_536
"""Bytes up to which a task is sent as a property; Spark sends properties with every task of a job."""
_SCHEMA = StructType([StructField("report", StringType())])


@dataclass(frozen=True)
class Reducer:
    """The encoded messages of some buckets in, a report of each bucket out. Without a task, it is in Spark's local properties."""

    task: Task | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = self.task or _sent_task()
        by_bucket: dict[int, list[Message]] = {}
        for message in (message for rows in batches for message in decode(rows)):
            by_bucket.setdefault(message.bucket, []).append(message)
        reach("messages read")
        for bucket, messages in by_bucket.items():
            inbox = Inbox.of(bucket, task.lane, exchange.read_large(messages, task.home.exchange(task.lane)))
            definition = definition_of(task.home, inbox.batch.end.definition).of_lane(task.lane)
            report = reduce_bucket(task, definition, inbox)
            reach("reduce ends")
            yield pa.RecordBatch.from_pydict({"report": [report.as_json().decode()]})


def _sent_task() -> Task:
    context = TaskContext.get()
    sent = None if context is None else context.getLocalProperty(_TASK)
    assert sent is not None, "Spark has lost the local property of the task"
    return Task.from_json(sent)


class Reduction:
    """The reduce side of a lane in a session."""

    def __init__(self, session: SparkSession):
        self._session = session
        reduce = pandas_udf(Reducer(), returnType=_SCHEMA, functionType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
        self._column = reduce(*[col(name) for name in BLOBS.names])

    def reports(self, task: Task, messages: DataFrame) -> list[Report]:
        """Reduce the encoded messages of a batch; the messages of a bucket are in one partition."""
        sent = task.as_json()
        if len(sent) > _MOST_BYTES:
            rows = messages.mapInArrow(Reducer(task), _SCHEMA).collect()
        else:
            self._session.sparkContext.setLocalProperty(_TASK, sent.decode())
            mapped = messages._jdf.mapInArrow(self._column._jc, False, None)  # as DataFrame.mapInArrow does
            rows = DataFrame(mapped, self._session).collect()
        return [Report.from_json(row.report) for row in rows]
