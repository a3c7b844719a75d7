"""Asking by SQL: lookups while events come in, an aggregate beside DuckDB over Parquet, and what 32 clients cost the batches.

lookups      a row of a table and of a query by key, with one client of `hayase run --sql`, while 10,000 events/s come in
aggregate    count and sum over a stream, to DuckDB over the same records in a Parquet file, in turn
clients      32 clients with 200 statements/s together: how much longer batches take than without, in turn; no join may be torn

Writer, clients, pipeline and server share the machine.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.ask_clients import Asked, crowd, one_by_one, torn
from benchmarks.measure import alternate, median, seconds_of
from hayase import Pipeline
from hayase.engine.commit.manifests import Commits
from hayase.engine.home import Home
from hayase.relations import HomeReader
from hayase.streams import StreamLog

__all__ = ["draw_statement", "percentiles", "run"]

USERS, RATE, EVERY = 5000, 10_000, 0.02
CLIENTS, STATEMENTS = 32, 200
PIPELINE = """
pipeline: ask
home: home
streams:
  events: {schema: "id bigint, time bigint, user_id string, amount bigint", id: id, time: time, time_unit: us}
queries:
  spend: select user_id, sum(amount) as spent, count(*) as n from events [Range 10 seconds] group by user_id
  total: select sum(amount) as spent, count(*) as n from events [Range 10 seconds]
tables:
  purchases: {key: user_id, columns: {n: Counter, spent: Counter}, horizon: 1 minute, fold_after: 30 seconds}
  copies: {key: user_id, columns: {n: Counter, spent: Counter}, horizon: 1 minute, fold_after: 30 seconds}
rules:
  source: events
  branches:
    - tables:
        purchases: {key: .user_id, columns: {n: '1', spent: .amount}}
        copies: {key: .user_id, columns: {n: '1', spent: .amount}}
"""


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Measure all of it in one run, about four minutes; `quick` takes one."""
    aggregate = _aggregate(1_000_000 if quick else 10_000_000, repetitions=5 if quick else 15)
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as directory:
        served = _served(Path(directory), warm_up=8.0 if quick else 45.0, measured=5.0 if quick else 30.0)
    lookups, crowded = served["lookups"], served["clients"]
    ratios = {
        f"{name}: {label} to {limit * 1000:g} ms (at most 1)": lookups[name][key] / limit
        for name in ("table", "query")
        for label, key, limit in (("median", "p50_seconds", 0.003), ("99th percentile", "p99_seconds", 0.04))
    }
    ratios["aggregate over a stream, to DuckDB over Parquet (at most 2)"] = aggregate["ratio"]
    ratios["batches beside 32 clients, to batches without (at most 1.1)"] = crowded["batch_ratio"]
    answered = "answers a second to 32 clients, to 200 (at least 0.95)"
    ratios[answered] = crowded["statements_per_second"] / STATEMENTS
    ratios["torn joins (at most 0)"] = float(crowded["torn"])
    return {"lookups": lookups, "aggregate": aggregate, "clients": crowded, "ratios": ratios}


# ---------------------------------------------------------------------------------------------------- aggregate


def _aggregate(records: int, repetitions: int) -> dict[str, Any]:
    sql = "select count(*), sum(amount) from {}"
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as folder:
        home, file = Path(folder) / "home", Path(folder) / "orders.parquet"
        pipeline = Pipeline("orders", home)
        pipeline.stream("orders", "id bigint, at timestamp, user string, amount double", time="at", max_ahead=None)
        pipeline.apply()
        drawn, portions = np.random.default_rng(1), []
        for first in range(0, records, 1_000_000):
            ids = np.arange(first, first + min(1_000_000, records))
            times = pa.array(1_767_225_600_000_000 + 1000 * ids, pa.timestamp("us", "UTC"))
            users = pa.array(np.char.add("u", (ids % USERS).astype(str)))
            rows = pa.table({"id": ids, "at": times, "user": users, "amount": drawn.random(len(ids))})
            pipeline.append("orders", rows)
            portions.append(rows)
        pq.write_table(pa.concat_tables(portions), file)
        del portions, rows
        with HomeReader(home) as reader, duckdb.connect(config={"threads": "2"}) as other:
            first_scan = seconds_of(lambda: reader.statement(sql.format("orders")).table())
            counts = reader.statement(sql.format("orders")).table(), other.sql(sql.format(f"'{file}'")).to_arrow_table()
            assert [each.column(0)[0].as_py() for each in counts] == [records, records]
            seconds = alternate(repetitions, {
                "stream": lambda: seconds_of(lambda: reader.statement(sql.format("orders")).table()),
                "Parquet": lambda: seconds_of(lambda: other.sql(sql.format(f"'{file}'")).to_arrow_table()),
            })  # fmt: skip
    medians = {name: median(values) for name, values in seconds.items()}
    return {"records": records, "first_scan_seconds": first_scan, "seconds": medians,
            "ratio": medians["stream"] / medians["Parquet"]}  # fmt: skip


# ---------------------------------------------------------------------------------------------------- beside a run


def _served(directory: Path, warm_up: float, measured: float) -> dict[str, Any]:
    """Run the pipeline with `--sql`, append at a steady rate, and ask."""
    (directory / "pipeline.yaml").write_text(PIPELINE)
    Pipeline.from_file(directory / "pipeline.yaml").apply()
    home, port = Home(directory / "home"), _free_port()
    program = "from hayase.cli import program; program()"
    line = [
        sys.executable,
        "-c",
        program,
        "run",
        str(directory / "pipeline.yaml"),
        "--sql",
        f"127.0.0.1:{port}",
        "--plain",
    ]
    with (directory / "run.log").open("wb") as log:
        process = subprocess.Popen(line, stdout=log, stderr=log, start_new_session=True)
    writer = multiprocessing.get_context("spawn").Process(target=_write, args=(home.path,), daemon=True)
    try:
        writer.start()
        _await_batches(home, process, directory / "run.log")
        time.sleep(warm_up)
        server, lookups = _server(process), {}
        for name in ("table", "query"):
            cpu = _cpu(server)
            spent = [each[1] for each in one_by_one(port, _only(name), measured, 0.005)]
            lookups[name] = percentiles(spent) | {"server_cpu_seconds_each": (_cpu(server) - cpu) / len(spent)}
        used = elapsed = 0.0
        without: list[float] = []
        beside: list[float] = []
        asked: list[Asked] = []
        for _ in range(3):
            first = Commits(home, "main").latest().version
            time.sleep(measured)
            without += _batches(home, first)
            first = Commits(home, "main").latest().version
            cpu, began = _cpu(server), time.monotonic()
            asked += crowd(port, draw_statement, measured, CLIENTS, STATEMENTS)
            used += _cpu(server) - cpu
            elapsed += time.monotonic() - began
            beside += _batches(home, first)
    finally:
        writer.terminate()
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    joined = [rows for name, _, rows in asked if name == "join"]
    clients = {
        "statements_per_second": len(asked) / elapsed,
        "server_cpu_seconds_each": used / len(asked),
        **{
            name: percentiles([spent for each, spent, _ in asked if each == name])
            for name in ("table", "query", "join")
        },
        "joins": len(joined),
        "torn": sum(torn(rows) for rows in joined),
        "batch_seconds": {"without": median(without), "beside": median(beside)},
        "batches": {"without": len(without), "beside": len(beside)},
        "batch_ratio": median(beside) / median(without),
    }
    return {"lookups": lookups, "clients": clients}


def _batches(home: Home, first: int) -> list[float]:
    """Return the seconds of the newest batches after a version; the home keeps the last manifests."""
    commits = Commits(home, "main")
    versions = [version for version in commits.versions()[1:] if version > first]  # the oldest may be removed meanwhile
    return [commits.load(version).seconds for version in versions]


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return the number of answers, and how long half of them, 99 % and all of them took at most.

    >>> percentiles([0.1, 0.2, 0.3])["p50_seconds"]
    0.2
    """
    p50, p99 = (float(np.percentile(seconds, each)) for each in (50, 99))
    return {"answers": len(seconds), "p50_seconds": p50, "p99_seconds": p99, "largest_seconds": max(seconds)}


def draw_statement(drawn: random.Random) -> tuple[str, str]:
    """Draw a statement as the clients send them: seven lookups of a table, two of a query, and one join of everything."""
    user, number = f"u{drawn.randrange(USERS)}", drawn.randrange(10)
    if number < 7:
        return "table", f"select * from purchases where user_id = '{user}'"
    if number < 9:
        return "query", f"select * from spend where user_id = '{user}'"
    at = "for system_time as of 'complete'"
    return "join", (
        f"select (select sum(n) from spend {at}), (select sum(n) from total {at}), (select sum(spent) from spend {at}), "
        f"(select sum(spent) from total {at}), a.n, b.n, a.spent, b.spent from purchases {at} a join copies {at} b "
        f"on a.user_id = b.user_id where a.user_id = '{user}' and b.user_id = '{user}'"
    )


def _server(process: subprocess.Popen[bytes]) -> psutil.Process:
    """Return the process of the SQL server of a run."""
    for child in psutil.Process(process.pid).children():
        if "hayase.wire.sql_process" in child.cmdline():
            return child
    raise RuntimeError("the SQL server does not run")


def _cpu(server: psutil.Process) -> float:
    return float(sum(server.cpu_times()[:2]))


def _only(name: str) -> Any:
    relation = {"table": "purchases", "query": "spend"}[name]
    return lambda drawn: (name, f"select * from {relation} where user_id = 'u{drawn.randrange(USERS)}'")


def _write(home: Path) -> None:
    """Append events whose event time is the moment of their append, at a steady rate, until this process is ended."""
    log = StreamLog.open(home, "events")
    drawn = np.random.default_rng(1)
    users = np.array([f"u{number}" for number in range(USERS)])
    due, written = time.time(), 0
    while True:
        time.sleep(max(0.0, due - time.time()))
        due = max(due + EVERY, time.time() - 1.0)
        count, now = int(RATE * EVERY), time.time_ns() // 1000
        events = {"id": np.arange(written, written + count), "time": np.full(count, now)}
        who, amounts = pa.array(drawn.choice(users, count)), drawn.integers(1, 100, count)
        log.append(pa.table({**events, "user_id": who, "amount": amounts}), now=now)
        written += count


def _await_batches(home: Home, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the pipeline has processed batches."""
    until = time.monotonic() + 180
    while Commits(home, "main").latest().version < 5:
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"the pipeline does not run: {log.read_text()[-2000:]}")
        time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
