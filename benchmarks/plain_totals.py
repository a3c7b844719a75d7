"""The baseline of `bench lanes`: a keyed running count and sum on Spark's own `transformWithState`, nothing of Hayase."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle


class Totals(StatefulProcessor):
    """One value state per key; one output row per input row."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState("totals", "n bigint, total double")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        held = self.state.get() if self.state.exists() else None
        n, total = held if held else (0, 0.0)
        for row in rows:
            n, total = n + 1, total + row.x
            yield Row(time=row.time, k=key[0], n=n, total=total)
        self.state.update((n, total))

    def close(self) -> None:
        pass


def running_totals(folder: str, checkpoint: str) -> list[float]:
    """Run over one Parquet file per batch, in a session of its own; the seconds of each batch."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "3g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    schema = "time bigint, k bigint, x double"
    numbers = session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder)
    query = (
        numbers.groupBy("k")
        .transformWithState(Totals(), "time bigint, k bigint, n bigint, total double", "append", "none")
        .writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seconds = [each["durationMs"]["triggerExecution"] / 1000 for each in query.recentProgress if each["numInputRows"]]
    session.stop()
    return seconds
