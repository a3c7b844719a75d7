"""`bench input_files`: how fast are CSV and NDJSON files read and checked, beside DuckDB's readers of the same files?

A record has a time, two texts, an integer and a double; a third of the texts in the CSV file are quoted. Both sides read a file
into Arrow with the declared types; Hayase also checks every value and would refuse records one by one. Then the same files are
appended to a stream, which makes them durable. Seconds are CPU time of all threads, in turn, so that a busy machine changes the
ratios little. Seed: 11.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.measure import alternate, median
from hayase.core.declarations import StreamDeclaration
from hayase.streams.appends import append_source
from hayase.streams.file_formats import format_of, read_records

__all__ = ["run"]

SEED, START = 11, 1_767_225_600_000_000
SCHEMA = "time timestamp, user string, note string, amount double, items bigint"
DUCKDB_TYPES = "{time: 'TIMESTAMPTZ', user: 'VARCHAR', note: 'VARCHAR', amount: 'DOUBLE', items: 'BIGINT'}"
STREAM = StreamDeclaration("orders", SCHEMA, "time")


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Measure and return plain data (see the package)."""
    rows = 200_000 if quick else 2_000_000
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as folder:
        directory = Path(folder)
        files = _files(directory, rows)
        ways: dict[str, Callable[[str, Path], int]] = {"DuckDB": _duckdb, "read": _read, "appended": _appended}
        variants = {
            f"{form}, {way}": partial(_cpu_seconds, read, form, file, rows)
            for form, file in files.items()
            for way, read in ways.items()
        }
        alternate(1, variants)  # warm up
        taken = alternate(3 if quick else 5, variants)
        sizes = {form: file.stat().st_size / 1e6 for form, file in files.items()}
    speed = {name: sizes[name.partition(",")[0]] / median(seconds) for name, seconds in taken.items()}
    return {
        "ratios": {
            f"{form}, {way} to DuckDB's reader (at least 0.5)": speed[f"{form}, {way}"] / speed[f"{form}, DuckDB"]
            for form in files
            for way in ("read", "appended")
        },
        "figures": {f"MB per second of CPU time, {name}": rate for name, rate in speed.items()},
        "notes": ["DuckDB and Hayase use all cores; the ratio is of CPU time, of neighbouring runs"],
    }


def _files(directory: Path, rows: int) -> dict[str, Path]:
    """The same records as CSV and as NDJSON, written by DuckDB."""
    random = np.random.default_rng(SEED)
    numbers = random.integers(0, 2**31, rows)
    notes = np.array(["plain", "with a, comma", 'said "so"', "", "two words", "日本"])
    table = pa.table(
        {
            "time": pa.array(START + np.arange(rows) * 1000, pa.timestamp("us", "UTC")),
            "user": pa.array([f"user-{number % 100_000}" for number in numbers.tolist()]),
            "note": pa.array(notes[numbers % 6].tolist()),
            "amount": pa.array(np.round(random.random(rows) * 1000, 2)),
            "items": pa.array(numbers),
        }
    )
    files = {"CSV": directory / "orders.csv", "NDJSON": directory / "orders.ndjson"}
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("orders", table)
        times = "select strftime(time, '%Y-%m-%dT%H:%M:%S.%fZ') as time, * exclude (time) from orders"
        connection.execute(f"COPY ({times}) TO '{files['CSV']}' (HEADER)")
        connection.execute(f"COPY ({times}) TO '{files['NDJSON']}' (FORMAT json)")
    return files


def _cpu_seconds(read: Callable[[str, Path], int], form: str, file: Path, rows: int) -> float:
    """CPU time of reading a file, of all threads."""
    began = time.process_time()
    found = read(form, file)
    if found != rows:
        raise RuntimeError(f"read {found:,} records of {rows:,}")
    return time.process_time() - began


def _duckdb(form: str, file: Path) -> int:
    reader = (
        f"read_csv('{file}', columns = {DUCKDB_TYPES}, header = true)"
        if form == "CSV"
        else f"read_json('{file}', columns = {DUCKDB_TYPES}, format = 'newline_delimited')"
    )
    with duckdb.connect() as connection:
        return sum(batch.num_rows for batch in connection.sql(f"select * from {reader}").to_arrow_reader(100_000))


def _read(form: str, file: Path) -> int:
    chunks = read_records(file, format_of(file), STREAM, lambda: START)
    return sum(chunk.conformed.rows.num_rows for chunk in chunks)


def _appended(form: str, file: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="hayase-bench-", dir=file.parent) as home:
        parts = append_source(Path(home), STREAM, file, format_of(file), lambda: START)
        return sum(result.accepted for _, result in parts)
