"""The baseline of `bench connectors`: Spark's own source for Kafka and a running count and sum of each key; nothing of Hayase.

    python -m benchmarks.plain_kafka '{"brokers": ..., "topic": ..., "jars": [...], "rows": ..., "work": ...}'

prints a line of JSON: the records and seconds of each batch, by the way in which groups are made. `applyInPandas` makes them
within a batch and knows nothing of earlier ones; `applyInPandasWithState` goes on from batch to batch, as Hayase's query does.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.state import GroupState

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SCHEMA", "measured"]

SCHEMA = "time timestamp, user string, item bigint, amount double"
_TOTALS = "time timestamp, user string, n bigint, total double"


def _session(jars: list[str]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "3g")
        .config("spark.jars", ",".join(jars))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def _totals(group: pd.DataFrame, n: int = 0, total: float = 0.0) -> pd.DataFrame:
    """Return a row for each record of a key: the count and the sum up to it, after those given."""
    import numpy
    import pandas

    count = n + numpy.arange(1, len(group) + 1)
    sums = total + group["amount"].to_numpy().cumsum()
    return pandas.DataFrame({"time": group["time"], "user": group["user"], "n": count, "total": sums})


def _within_batches(group: pd.DataFrame) -> pd.DataFrame:
    return _totals(group)


def _across_batches(key: Any, groups: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    n, total = state.get if state.exists else (0, 0.0)
    for group in groups:
        totals = _totals(group, n, total)
        n, total = int(totals["n"].iloc[-1]), float(totals["total"].iloc[-1])
        yield totals
    state.update((n, total))


def _records(session: SparkSession, brokers: str, topic: str, rows: int) -> DataFrame:
    messages = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", brokers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(rows))
        .load()
    )
    value = f.from_json(f.col("value").cast("string"), SCHEMA)
    return messages.select(value.alias("record")).select("record.*")


def measured(brokers: str, topic: str, jars: list[str], rows: int, work: str) -> dict[str, list[tuple[int, float]]]:
    """Read the whole topic in each way, `rows` at a time; return the records and seconds of every batch."""
    session = _session(jars)
    found = {}
    try:
        for way in ("applyInPandas", "applyInPandasWithState"):
            records = _records(session, brokers, topic, rows)
            if way == "applyInPandas":
                writer = records.writeStream.foreachBatch(_write_totals)
            else:
                totals = records.groupBy("user").applyInPandasWithState(
                    _across_batches, _TOTALS, "n bigint, total double", "append", "NoTimeout"
                )
                writer = totals.writeStream.format("noop").outputMode("append")
            query = writer.option("checkpointLocation", f"{work}/{way}").trigger(availableNow=True).start()
            query.awaitTermination()
            found[way] = [
                (int(each["numInputRows"]), each["durationMs"]["triggerExecution"] / 1000)
                for each in query.recentProgress
                if each["numInputRows"]
            ]
    finally:
        session.stop()
    return found


def _write_totals(batch: DataFrame, number: int) -> None:
    batch.groupBy("user").applyInPandas(_within_batches, _TOTALS).write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    print(json.dumps(measured(**json.loads(sys.argv[1]))))
