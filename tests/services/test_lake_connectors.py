"""Files and Parquet in object stores, with real servers: each file and each change once, with the server killed between."""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import obstore
import pyarrow as pa
import pytest
from obstore.store import ObjectStore, from_url

from every_type import changes_of, column_of
from hayase import Files, Parquet, Pipeline
from hayase.connectors.file_source import FileSource
from hayase.connectors.intake import Intake
from hayase.connectors.laws import check_sink
from hayase.connectors.parquet_sink import ParquetSink
from hayase.connectors.sink import Changes, Position, SinkSetting
from hayase.connectors.source import SourceSetting
from hayase.core.connector_data import declared_output, declared_source
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import EndpointError, PositionMoved
from hayase.streams import StreamLog
from servers.azure import Azure
from servers.gcs import GoogleStorage
from servers.s3 import S3

READ = pytest.mark.parametrize("object_store", ["s3", "azure", "gcs"], indirect=True)
LOGS = StreamDeclaration("logs", "time bigint, n bigint", "time", time_unit="s")
ROWS = pa.schema({"user": pa.string(), "total": pa.int64()})


def store_of(bucket: str) -> ObjectStore:
    return from_url(bucket, client_options={"allow_http": True})


def put(bucket: str, key: str, *numbers: int) -> None:
    text = "".join(f'{{"time": 1, "n": {number}}}\n' for number in numbers)
    put_bytes(bucket, key, text.encode())


def put_bytes(bucket: str, key: str, data: bytes) -> None:
    if bucket.startswith("gs://"):  # the server does not take what obstore sends
        path = f"/upload/storage/v1/b/{bucket.removeprefix('gs://')}/o?uploadType=media&name={quote(key, safe='')}"
        request = urllib.request.Request(
            os.environ["GOOGLE_BASE_URL"] + path, data, {"Content-Type": "text/plain"}, method="POST"
        )
        urllib.request.urlopen(request).close()
    else:
        obstore.put(store_of(bucket), key, data)


def intake(home: Path, path: str, **options: Any) -> Intake:
    values = declared_source("logs", {"files": {"path": path, **options}}).values | {"watch": 0}
    StreamLog.ensure(home, LOGS)
    setting = SourceSetting(LOGS, values, "shop", lambda: 1_800_000_000_000_000, home / "sources" / "logs")
    return Intake(home, LOGS, FileSource(setting), lambda: 1_800_000_000_000_000)


def read_all(reading: Intake) -> None:
    quiet = 0
    while quiet < 3:
        quiet = 0 if reading.step(0.0) else quiet + 1
    reading.close()


def numbers(home: Path) -> list[int]:
    log = StreamLog.ensure(home, LOGS)
    return [n for piece in log.read(0, log.index().next) for n in piece.rows.column("n").to_pylist()]


def parquet(bucket: str, keep: Path, rows: pa.Schema = ROWS, **options: Any) -> ParquetSink:
    path = f"{bucket}/lake"
    values = declared_output("mart", {"reads": "logs", "to": {"parquet": {"path": path, **options}}}).values
    return ParquetSink(SinkSetting(LOGS, rows, values, "shop", "mart", "h", keep))


def written(bucket: str, tmp_path: Path) -> list[Any]:
    """The rows of all Parquet files in a bucket, read by DuckDB."""
    store, rows = store_of(bucket), []
    for item in [item for part in obstore.list(store) for item in part]:
        if item["path"].endswith(".parquet"):
            (tmp_path / "copy.parquet").write_bytes(bytes(obstore.get(store, item["path"]).bytes()))
            rows += duckdb.sql(f"SELECT * FROM read_parquet('{tmp_path}/copy.parquet')").fetchall()
    return sorted(rows, key=str)


@READ
def test_objects_are_read_once_however_late_they_are_listed(bucket: str, tmp_path: Path) -> None:
    put(bucket, "logs/b.ndjson", 2)
    put(bucket, "logs/2026/c.ndjson", 3)
    put(bucket, "logs/_SUCCESS")
    put(bucket, "other/d.ndjson", 4)
    reading = intake(tmp_path, f"{bucket}/logs/**/*.ndjson")
    while not reading.step(0.0):
        pass
    put(bucket, "logs/a.ndjson", 1)
    read_all(reading)
    read_all(intake(tmp_path, f"{bucket}/logs/**/*.ndjson"))
    assert numbers(tmp_path) == [3, 2, 1]
    put(bucket, "logs/a.ndjson", 1, 5)
    read_all(intake(tmp_path, f"{bucket}/logs/**/*.ndjson", changed="read"))
    assert numbers(tmp_path) == [3, 2, 1, 1, 5]


@READ
def test_parquet_and_compressed_objects(bucket: str, tmp_path: Path) -> None:
    import gzip
    import io

    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.table({"time": [1] * 200_000, "n": list(range(200_000))}), out)
    put_bytes(bucket, "a.parquet", out.getvalue())
    put_bytes(bucket, "b.csv.gz", gzip.compress(b"time,n\n1,-1\n"))
    read_all(intake(tmp_path, f"{bucket}/*"))
    assert numbers(tmp_path) == [*range(200_000), -1]


@READ
def test_a_store_that_is_down_is_an_error_and_loses_nothing(
    bucket: str, object_store: S3 | Azure | GoogleStorage, tmp_path: Path
) -> None:
    put(bucket, "a.ndjson", 1)
    reading = intake(tmp_path, f"{bucket}/*.ndjson", unreadable="skip")
    object_store.stop() if isinstance(
        object_store, Azure
    ) else object_store.kill()  # Azurite saves what it has every 5 s
    try:
        with pytest.raises(EndpointError, match="fails"):
            read_all(reading)
    finally:
        object_store.start()
    read_all(intake(tmp_path, f"{bucket}/*.ndjson", unreadable="skip"))
    assert numbers(tmp_path) == [1]


def test_the_laws_of_a_sink_in_an_object_store(bucket: str, tmp_path: Path) -> None:
    rows = pa.table({"user": ["taro", "hana"], "total": [1, 2]})
    check_sink(lambda: parquet(bucket, tmp_path), rows, lambda: written(bucket, tmp_path))


def test_of_two_writers_one_goes_on(bucket: str, tmp_path: Path) -> None:
    table = changes_of("bigint")
    zombie, successor = (parquet(bucket, tmp_path, column_of("bigint"), emit="rows") for _ in range(2))
    zombie.position()
    successor.position()
    successor.write(Changes(table, None, Position(1, "a.1.1")))
    with pytest.raises(PositionMoved):
        zombie.write(Changes(table, None, Position(1, "a.1.1")))
    assert len(written(bucket, tmp_path)) == 2
    successor.write(Changes(table.slice(0, 1), Position(1, "a.1.1"), Position(2, "a.2.1"), anew=True))
    assert len(written(bucket, tmp_path)) == 1


def test_a_pipeline_from_bucket_to_bucket(bucket: str, tmp_path: Path) -> None:
    put(bucket, "in/a.ndjson", 1, 2)
    pipeline = Pipeline("shop", home=tmp_path / "home")
    source = Files(f"{bucket}/in/*.ndjson")
    pipeline.stream("logs", "time bigint, n bigint", time="time", time_unit="s", source=source)
    pipeline.query("total", "SELECT n FROM logs [RANGE UNBOUNDED]")
    pipeline.output("lake", reads="logs", to=Parquet(f"{bucket}/out", emit="rows", partition_by="date"))
    pipeline.run_until_idle(spark=False)
    put(bucket, "in/b.ndjson", 3)
    pipeline.run_until_idle(spark=False)
    assert [row[1] for row in written(bucket, tmp_path)] == [1, 2, 3]
