"""Row changes a second that a table of PostgreSQL takes and gives; the server syncs every commit.

Out: portions of 20,000 changes, as an output writes them: rows of four columns appear, and a row is replaced or ends later. A
figure is the median of the portions after the first. In: a table is copied into a stream and then followed: updates in
transactions of 10 and of 1,000 rows. An update is one row change, and two records of the stream. Seed: 7.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psycopg2
import pyarrow as pa

from hayase.connectors.intake import Intake
from hayase.connectors.postgres_replication import ReplicationSource
from hayase.connectors.postgres_sink import PostgresSink
from hayase.connectors.sink import APPEARS, ROW, TIME, Changes, Position, SinkSetting
from hayase.connectors.source import SourceSetting
from hayase.core.clock import now_us
from hayase.core.connector_data import declared_output, declared_source
from hayase.core.declarations import StreamDeclaration
from hayase.core.schemas import arrow_schema
from hayase.streams import StreamLog

__all__ = ["replicated_per_second", "written_per_second"]

DSN = "HAYASE_BENCH_DSN"
ROWS = "user string, n bigint, spend double, seen timestamp"
PORTION, KEYS = 20_000, 200_000


def written_per_second(dsn: str, table: str, portions: int, **options: Any) -> float:
    """Return how many row changes a second an output writes to a new table."""
    os.environ[DSN] = dsn
    to = {"postgres": {"dsn_env": DSN, "table": table, **options}}
    declared = declared_output(table, {"reads": "results", "to": to})
    stream = StreamDeclaration("results", f"at timestamp, {ROWS}", time="at")
    setting = SinkSetting(stream, arrow_schema(ROWS), declared.values, "shop", table, "home")
    with closing(PostgresSink(setting)) as sink:
        sink.position()
        return _changes_per_second(sink, portions)


def _changes_per_second(sink: PostgresSink, portions: int) -> float:
    chance = np.random.default_rng(7)
    present: dict[int, int] = {}
    since, rows, seconds = None, 0, []
    for number in range(1, portions + 1):
        users = chance.choice(KEYS, PORTION // 2, replace=False).tolist()
        ending = [(present.pop(user), user) for user in users if user in present]
        begun = [(rows + at, user) for at, user in enumerate(users)][: PORTION - len(ending)]
        rows += len(begun)
        present |= {user: row for row, user in begun}
        changes = Changes(_table(ending, begun, number), since, Position(number, str(number)))
        started = time.perf_counter()
        sink.write(changes)
        seconds.append((time.perf_counter() - started) / changes.rows.num_rows)
        since = changes.until
    return float(1 / np.median(seconds[1:]))


def _table(ending: list[tuple[int, int]], begun: list[tuple[int, int]], instant: int) -> pa.Table:
    rows, users = zip(*ending, *begun)
    count, spend = len(rows), np.asarray(rows) * 0.1
    return pa.table({
        TIME: pa.array([instant] * count, pa.int64()),
        APPEARS: pa.array([False] * len(ending) + [True] * len(begun)),
        ROW: pa.array(rows, pa.int64()),
        "user": pa.array([f"user{user:09d}" for user in users]),
        "n": pa.array(rows, pa.int64()),
        "spend": pa.array(spend),
        "seen": pa.array([instant] * count, pa.int64()).view(pa.timestamp("us", tz="UTC")),
    })  # fmt: skip


def replicated_per_second(dsn: str, table: str, updates: int, size: int, rows: int = 100_000) -> float:
    """Return how many updates a second, `size` in a transaction, enter the stream of a table."""
    os.environ[DSN] = dsn
    stream = StreamDeclaration(
        table, "op string, at timestamp, id bigint, name string, n bigint, spend double", "at", changes="op", slack=0
    )
    declared = declared_source(table, {"postgres": {"dsn_env": DSN, "table": f"public.{table}", "slot": table}})
    with (
        closing(psycopg2.connect(dsn)) as connection,
        connection.cursor() as cursor,
        tempfile.TemporaryDirectory() as home,
    ):
        cursor.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, name text, n bigint, spend double precision)")
        cursor.execute(f"INSERT INTO {table} SELECT n, 'user' || n, n, n * 0.1 FROM generate_series(1, {rows}) n")
        connection.commit()
        with closing(ReplicationSource(SourceSetting(stream, declared.values, "shop", now_us))) as source:
            intake = Intake(Path(home), stream, source, now_us)
            _catch_up(intake)
            for first in range(updates // size):
                low = first * size % rows
                cursor.execute(f"UPDATE {table} SET n = n + 1 WHERE id > %s AND id <= %s", (low, low + size))
                connection.commit()
            log = StreamLog.open(Path(home), table)
            before, started = log.index().next, time.perf_counter()
            while log.index().next < before + 2 * updates:
                intake.step(0.05)
            seconds = time.perf_counter() - started
            _catch_up(intake)
            if log.index().next != before + 2 * updates:
                raise RuntimeError(f"{log.index().next - before:,} records of {updates:,} updates")
    return updates / seconds


def _catch_up(intake: Intake) -> None:
    until = time.monotonic() + 300
    while intake.lag():
        intake.step(0.05)
        if time.monotonic() > until:
            raise TimeoutError("the stream did not get what the table has")
    intake.confirm()
