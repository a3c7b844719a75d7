"""The records and the steps of `bench mapreduce`: access-log lines, how they are parsed, reduced and merged. Seed: 5.

Spark's workers import this module to find the functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "ADDRESSES",
    "LINE",
    "LOGS",
    "LOGS_SCHEMA",
    "PARSED",
    "START",
    "as_pair",
    "batches",
    "lines",
    "parse",
    "parse_record",
    "picked",
    "sum_of_pairs",
    "total",
    "with_stored",
]

SEED = 5
LINE = 300
ADDRESSES = 10_000
START = 1_767_225_600_000_000  # 2026-01-01
LOGS = "time timestamp, line string"
LOGS_SCHEMA = pa.schema([("time", pa.timestamp("us", "UTC")), ("line", pa.string())])
PARSED = "status int, address string"

_STATUSES = (200, 200, 200, 200, 200, 206, 301, 304, 404, 500)
_PATHS = ("cart", "checkout", "search", "item", "login", "admin")
_AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36"


def lines(rows: int, addresses: int = ADDRESSES) -> pa.Array:
    """Lines like Apache's combined log, every one 300 bytes long, of so many addresses."""
    draws = np.random.default_rng(SEED).integers(0, 2**31, size=(rows, 5))
    times = [f"01/Jan/2026:{each // 3600:02d}:{each // 60 % 60:02d}:{each % 60:02d} +0000" for each in range(86_400)]
    texts = []
    for a, b, c, d, e in draws.tolist():
        address = a % addresses
        text = (
            f"10.7.{address >> 8}.{address & 255} - - [{times[e % 86_400]}] "
            f'"GET /shop/{_PATHS[b % 6]}/{c % 100_000} HTTP/1.1" {_STATUSES[d % 10]} {c % 100_000} '
            f'"https://shop.example.com/{_PATHS[e % 6]}?session={a:08x}{b:08x}{c:08x}" "{_AGENT} '
        )
        texts.append(f'{text:x<{LINE - 1}}"')
    return pa.array(texts, pa.string())


def batches(pool: pa.Array, rows: int, first: int = 0) -> Iterator[pa.Table]:
    """Batches without end: lines out of a pool, with times that go on."""
    steps = np.arange(rows, dtype=np.int64) * 10
    for number in range(first, 2**62):
        times = pa.array(START + number * rows * 10 + steps).view(pa.timestamp("us", "UTC"))
        places = (np.arange(rows) + number * rows) % len(pool)
        yield pa.table([times, pool.take(pa.array(places))], schema=LOGS_SCHEMA)


# ------------------------------------------------------------------------------------------------ maps


def parse(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The status and the address of each line: fields between blanks."""
    fields = pc.split_pattern(batch.column("line"), " ", max_splits=9)
    status, address = pc.list_element(fields, 8), pc.list_element(fields, 0)
    return pa.record_batch({"status": status.cast(pa.int32()), "address": address})


def parse_record(record: dict[str, Any]) -> dict[str, Any]:
    """The same for one record."""
    fields = record["line"].split(" ", 9)
    return {"status": int(fields[8]), "address": fields[0]}


def picked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A key and a number."""
    return batch.select(["k", "x"])


def as_pair(record: dict[str, Any]) -> tuple[int, int]:
    """The same for one record, as a plain tuple."""
    return record["k"], record["x"]


# ------------------------------------------------------------------------------------------------ reduces and merges


def total(key: int, values: list[dict[str, Any]]) -> dict[str, Any]:
    """The sum of typed values."""
    return {"k": key, "total": sum(each["x"] for each in values)}


def sum_of_pairs(key: int, values: list[int]) -> tuple[int, int]:
    """The sum of plain values."""
    return key, sum(values)


def with_stored(key: int, values: list[dict[str, Any]], stored: dict[str, Any] | None) -> dict[str, Any]:
    """What came beside what is stored."""
    return {"k": key, "came": sum(each["x"] for each in values), "before": None if stored is None else stored["total"]}
