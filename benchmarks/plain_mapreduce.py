"""The baseline of `bench mapreduce`: parse and count by `foreachBatch` and `applyInPandas`, and nothing of Hayase but, if it
is asked to read streams, their source.

Lines are parsed by Spark's own functions, and kept for both counts. The counts go to Parquet files.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["counted"]

_KINDS = {"status": "int", "address": "string"}


def _session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "3g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


def _counts_in_pandas(rows: DataFrame, key: str) -> DataFrame:
    def count(group: pd.DataFrame) -> pd.DataFrame:
        import pandas

        return pandas.DataFrame({key: group[key].iloc[:1], "hits": [len(group)]})

    return rows.groupBy(key).applyInPandas(count, f"{key} {_KINDS[key]}, hits bigint")


def _counts_in_spark(rows: DataFrame, key: str) -> DataFrame:
    return rows.groupBy(key).agg(f.count("*").alias("hits"))


def counted(source: str, path: str, work: str, rows: int, files: int, in_pandas: bool) -> dict[str, Any]:
    """Count all that is there, `rows` at a time: the seconds of each batch, and the hits by status.

    `source` is "hayase", then `path` is a stream's directory, or "parquet", then it has `files` files for each batch.
    """
    session = _session()
    if source == "hayase":
        from hayase.spark import register

        register(session)
        lines = session.readStream.format("hayase").option("max_rows", str(rows)).load(path)
    else:
        reader = session.readStream.schema("time timestamp, line string").option("maxFilesPerTrigger", files)
        lines = reader.parquet(path)

    def count(batch: DataFrame, number: int) -> None:
        fields = f.split(batch["line"], " ", 10)
        parsed = batch.select(fields[8].cast("int").alias("status"), fields[0].alias("address")).persist()
        for key in _KINDS:
            counts = _counts_in_pandas(parsed, key) if in_pandas else _counts_in_spark(parsed, key)
            counts.write.mode("append").parquet(f"{work}/by_{key}")
        parsed.unpersist()

    query = (
        lines.writeStream.foreachBatch(count)
        .option("checkpointLocation", f"{work}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    taken = [each for each in query.recentProgress if each["durationMs"].get("addBatch")]
    totals = {key: session.read.parquet(f"{work}/by_{key}").groupBy(key).sum("hits").collect() for key in _KINDS}
    found = {
        "seconds": [each["durationMs"]["triggerExecution"] / 1000 for each in taken],
        "by_status": {int(row[0]): int(row[1]) for row in totals["status"]},
        "hits_of_addresses": sum(int(row[1]) for row in totals["address"]),
    }
    session.stop()
    return found
