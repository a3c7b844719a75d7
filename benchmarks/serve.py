"""Reads from replicas beside a pipeline that takes 10,000 events/s: keys/s, their p99, freshness, and what it costs the batches.

Everything shares the machine: the pipeline (in process), the writer, the workers of the replica and the load generator, a process
of its own that speaks HTTP/1.1 over raw sockets with keep-alive.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import orjson
import psutil
import pyarrow as pa

import hayase as hy
from benchmarks.measure import median
from hayase.core.clock import now_us
from hayase.engine.commit.ledger import open_ledger
from hayase.engine.home import Home
from hayase.engine.local_run import run_local_lanes
from hayase.serving import Status, serving
from hayase.serving.replica_process import replicas

KEYS = 100_000
RATE = 10_000
"""Events per second."""
TURNS = 50
"""Appends per second."""
MANY = 1_000
"""Keys in a request for many."""
RULES = """
source: orders
rules:
  - tables:
      purchases: {key: .user, columns: {n: '1', last: .number}}
"""


@dataclass(frozen=True)
class Load:
    """What a load generator measured: answers, seconds, latencies in milliseconds, keys in each, answers that were refused."""

    answers: int
    seconds: float
    latencies: np.ndarray
    keys: int
    refused: int

    @property
    def rate(self) -> float:
        return self.answers * self.keys / self.seconds

    @property
    def p99(self) -> float:
        return float(np.percentile(self.latencies, 99)) if len(self.latencies) else float("nan")


def pipeline_in(home: Path) -> hy.Pipeline:
    """A stream of orders with a table of them by user, and a query."""
    pipeline = hy.Pipeline("served", home, buckets=2)
    pipeline.stream("orders", "time timestamp, number bigint, user string, amount double", time="time", id="number")
    pipeline.query("spend", "select user, sum(amount) as spend from orders [Range 10 seconds] group by user")
    pipeline.table("purchases", "user", n=hy.Counter(), last=hy.Register())
    pipeline.rules(text=RULES)
    return pipeline


def orders(first: int, count: int) -> pa.Table:
    """Orders of now; their numbers say which keys they change."""
    numbers = np.arange(first, first + count)
    return pa.table({
        "time": pa.array(np.full(count, now_us()), pa.timestamp("us", "UTC")),
        "number": numbers,
        "user": [f"u{number % KEYS}" for number in numbers],
        "amount": numbers % 100 / 4,
    })  # fmt: skip


class Writer:
    """Appends orders at a fixed rate, and notes when each append was durable and how far behind the rate it is."""

    def __init__(self, pipeline: hy.Pipeline, first: int):
        self._pipeline, self._next = pipeline, first
        self._stop = threading.Event()
        self.appended: list[tuple[float, int]] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        began, turn = time.monotonic(), 0
        while not self._stop.is_set():
            self._pipeline.append("orders", orders(self._next, RATE // TURNS))
            self._next += RATE // TURNS
            self.appended.append((time.time(), self._next))
            turn += 1
            self._stop.wait(max(0.0, began + turn / TURNS - time.monotonic()))

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def _generate(port: int, connections: int, seconds: float, many: int, results: Any) -> None:
    """Ask over some connections in turn, each with one request in flight, and put what was measured into a queue."""
    random = np.random.default_rng(7)
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    latencies, answers, refused = [], 0, 0
    sent = [0.0] * connections
    texts = [_request(random, many) for _ in range(256)]

    def send(at: int) -> None:
        sent[at] = time.perf_counter()
        sockets[at].sendall(texts[(answers + at) % 256])

    began = time.perf_counter()
    for at in range(connections):
        send(at)
    while time.perf_counter() < began + seconds:
        for at in range(connections):
            status = _read(sockets[at])
            latencies.append((time.perf_counter() - sent[at]) * 1e3)
            answers += 1
            refused += status != b"200"
            send(at)
    elapsed = time.perf_counter() - began
    results.put((answers, elapsed, np.array(latencies), refused))


def _request(random: np.random.Generator, many: int) -> bytes:
    if not many:
        return b"GET /tables/purchases/u%d HTTP/1.1\r\nhost: localhost\r\n\r\n" % random.integers(KEYS)
    body = orjson.dumps({"keys": [f"u{number}" for number in random.integers(KEYS, size=many)]})
    head = b"POST /tables/purchases HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


def _read(connection: socket.socket) -> bytes:
    """Read an answer; return its status."""
    data = connection.recv(1 << 18)
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += connection.recv(1 << 18)
    length = int(data[data.index(b"content-length: ") + 16 : end].split(b"\r\n", 1)[0])
    missing = end + 4 + length - len(data)
    while missing > 0:
        missing -= len(connection.recv(missing))
    return data[9:12]


def load(port: int, seconds: float, *, connections: int = 8, many: int = 0) -> Load:
    """Ask from another process."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=_generate, args=(port, connections, seconds, many, results))
    process.start()
    answers, elapsed, latencies, refused = results.get(timeout=seconds + 60)
    process.join()
    return Load(answers, elapsed, latencies, many or 1, refused)


class Freshness:
    """Watches one replica from a thread: how long after an append was durable an answer shows it."""

    def __init__(self, port: int, writer: Writer):
        self._port, self._writer = port, writer
        self._stop = threading.Event()
        self.delays: list[float] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        connection = socket.create_connection(("127.0.0.1", self._port))
        while not self._stop.wait(0.1):
            if not self._writer.appended:
                continue
            at, end = self._writer.appended[-1]
            path = b"/tables/purchases/u1?at_least=orders@%d" % end
            connection.sendall(b"GET " + path + b" HTTP/1.1\r\nhost: localhost\r\n\r\n")
            if _read(connection) == b"200":
                self.delays.append(time.time() - at)

    def __enter__(self) -> Freshness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@contextlib.contextmanager
def running(pipeline: hy.Pipeline, seconds_of_batches: list[float]) -> Iterator[Any]:
    """Run the pipeline in this process with its own server; its batches are timed. Yields the server and the status."""
    with pipeline.home.lock():
        pipeline.apply()
        with open_ledger(pipeline.home) as ledger:
            status = Status("starting", ledger.latest())

            def committed(manifest: Any) -> None:
                seconds_of_batches.append(manifest.seconds)
                status.committed(manifest)

            with (
                serving(pipeline.home, "127.0.0.1:0", tables=ledger.tables, status=status) as server,
                run_local_lanes(pipeline.home, ledger=ledger, awake=True, on_commit=committed) as lanes,
            ):
                yield server, lanes


def run(*, quick: bool = False, out: Path | None = None) -> dict[str, Any]:
    """Measure; return figures and ratios."""
    seconds, workers = (2.0 if quick else 10.0), 2
    with TemporaryDirectory(prefix="hayase-serve-") as room:
        home = Path(room) / "home"
        pipeline = pipeline_in(home)
        pipeline.append("orders", orders(0, KEYS))
        pipeline.run_until_idle(spark=False)
        batches: list[float] = []
        with running(pipeline, batches) as (server, _), Writer(pipeline, KEYS) as writer:
            _settle(writer)
            alone = _batches_during(batches, lambda: time.sleep(seconds))
            own = load(server.address.port, seconds)
            with replicas(Home(home), "127.0.0.1:0", workers=workers) as apart:
                port = apart.address.port
                _wait_until_served(port)
                used = [_cpu_of(apart.processes)]
                followed = _batches_during(batches, lambda: time.sleep(seconds))
                used.append(_cpu_of(apart.processes))
                rounds = [load(port, seconds)]
                used.append(_cpu_of(apart.processes))
                rounds += [load(server.address.port, seconds), load(port, seconds)]
                used.append(_cpu_of(apart.processes))
                many = load(port, seconds, connections=2, many=MANY)
                used.append(_cpu_of(apart.processes))
                with Freshness(port, writer) as fresh:
                    time.sleep(seconds)
                followed += _batches_during(batches, lambda: time.sleep(seconds))
            alone += _batches_during(batches, lambda: time.sleep(seconds))
        replica = [rounds[0], rounds[2]]
        own_rate = median([own.rate, rounds[1].rate])
        rate, p99 = median([each.rate for each in replica]), max(each.p99 for each in replica)
        figures = {
            "workers": workers, "cores": os.cpu_count(), "load_average": os.getloadavg()[0],
            "events_per_second": len(writer.appended) * (RATE // TURNS) / (writer.appended[-1][0] - writer.appended[0][0]),
            "own_keys_per_second": own_rate, "own_p99_ms": max(own.p99, rounds[1].p99),
            "replica_keys_per_second": rate, "replica_p99_ms": p99,
            "many_keys_per_second": many.rate, "many_p99_ms": many.p99,
            "freshness_p99_seconds": float(np.percentile(fresh.delays, 99)) if fresh.delays else None,
            "freshness_median_seconds": median(fresh.delays),
            "cpu_of_following_a_worker": (used[1] - used[0]) / seconds / workers,
            "cpu_us_per_read": (used[2] - used[1] - (used[1] - used[0])) / rounds[0].answers * 1e6,
            "cpu_us_per_key_of_many": (used[4] - used[3] - (used[1] - used[0])) / (many.answers * MANY) * 1e6,
            "batch_seconds_alone": median(alone), "batch_seconds_followed": median(followed),
            "refused": sum(each.refused for each in (own, *rounds, many)),
        }  # fmt: skip
    for name, value in figures.items():
        print(f"{name:<28} {value:,.3f}" if isinstance(value, float) else f"{name:<28} {value}")
    ratios = {
        "single keys: two replicas / the pipeline's own server": rate / own_rate,
        "a batch with replicas that follow / without": median(followed) / median(alone),
    }
    return {"figures": figures, "ratios": ratios}


def _cpu_of(processes: list[int]) -> float:
    """The processor time that processes have used, in seconds."""
    return sum(sum(psutil.Process(process).cpu_times()[:2]) for process in processes)


def _settle(writer: Writer) -> None:
    """Wait until the writer has run for two seconds."""
    while len(writer.appended) < 2 * TURNS:
        time.sleep(0.05)


def _batches_during(batches: list[float], action: Any) -> list[float]:
    before = len(batches)
    action()
    return batches[before:]


def _wait_until_served(port: int) -> None:
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET /tables/purchases/u1 HTTP/1.1\r\nhost: localhost\r\n\r\n")
            if _read(connection) == b"200":
                return
        time.sleep(0.05)
