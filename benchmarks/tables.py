"""Tables: events a second into the table of paper 4, beside Redis; reads while writing; what payloads and keys cost.

events/s      figure 8's three columns, from a stream to the readable table, through a lane on Spark with two cores: all
              events appended first, then run, and from batch to batch while there is always more, while nothing is old
              enough to be folded, and while all but the last of ten days is; beside the same updates into Redis, in memory
              and with its log synced every second
reads         latency by HTTP, by wrk, while 10,000 events a second are written
payloads      time of reading a key against the number of payloads since its snapshot, 0 to 100,000
folds         payloads a second that reads fold, by compiled loops and object by object in turn: pages of all rows, the
              rows of many keys, an export to Arrow, and one key with all payloads; CPU time
bytes         of an event in the log, of a payload in the table, and of a key after folding
keys          time of a batch of 10,000 events, append to commit, with 10,000 to 10,000,000 keys in the table
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import hayase as hy
from benchmarks import redis_tables
from benchmarks.lanes import Batches
from benchmarks.measure import until_idle, warm_lane
from hayase.core.stages import MAIN
from hayase.engine.batch.gate import FileGate, Grants
from hayase.engine.commit.ledger import open_ledger
from hayase.engine.local import InProcess
from hayase.engine.spark.runner import run_lanes
from hayase.engine.spark.session import local_master, open_session
from hayase.streams import StreamLog

SEED, USERS, DAYS = 4, 100_000, 10
DAY = 86_400_000_000
BEGIN = 1_514_764_800_000_000  # 2018-01-01
SCHEMA = "time timestamp, uuid string, type string, amount bigint, user_id string"
RULES = r"""
source: stream1
branches:
  - condition: '.type == "purchase"'
    tables:
      - tableName: user_purchase_status
        ops:
          - {key: .user_id, columnName: last_purchase_time, method: set, paramJq: .time}
          - {key: .user_id, columnName: total, method: incr, paramJq: .amount}
          - {key: .user_id, columnName: by_day, method: add, paramJq: "{(.time[:10]):.amount}"}
"""
TABLE = "user_purchase_status"
RATE, PER_APPEND = 10_000, 500
WRK = "there is no wrk; `apt install wrk` brings it"


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    batch: int
    batches: int
    redis: int
    payloads: tuple[int, ...]
    keys: tuple[int, ...]
    folded: int
    rounds: int
    seconds: int


FULL = Sizes(
    500_000,
    8,
    500_000,
    (0, 1, 10, 100, 1_000, 10_000, 100_000),
    (10_000, 100_000, 1_000_000, 10_000_000),
    400_000,
    24,
    30,
)
QUICK = Sizes(50_000, 3, 50_000, (0, 1, 10, 100, 1_000), (10_000, 100_000), 40_000, 8, 5)


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Measure everything, one thing after the other; `quick` makes it small. What is missing here is said and left out."""
    sizes = QUICK if quick else FULL
    left_out: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as folder:
        redis = _redis(Path(folder), sizes, left_out)
    session = open_session(local_master(2), settings={"spark.driver.memory": "3g"})
    try:
        rates, _ = _throughput(session, sizes, DAY // 2, False)
        folding, space = _throughput(session, sizes, DAYS * DAY, True)
        rates["appended first, folded meanwhile"] = folding["appended first"]
        reads = _reads(session, sizes, left_out)
        batches = {keys: _batch_seconds(session, keys, sizes.rounds) for keys in sizes.keys}
    finally:
        session.stop()
    payloads = _read_cost(sizes.payloads)
    folds = _fold_rates(sizes.folded)
    for reason in left_out.values():
        print(f"left out: {reason}", file=sys.stderr)
    draw(out / "tables.png", payloads, batches)
    least, most = min(sizes.keys), max(sizes.keys)
    ratios = {
        f"events per second, {way}, to Redis {kind} (at least 5)": rates[way] / rate
        for way in rates
        for kind, rate in redis.items()
    }
    ratios[f"batch over {most:,} keys to {least:,}"] = batches[most] / batches[least]
    for way, rate in folds["by loops"].items():
        ratios[f"payloads folded per second, {way}, by loops to object by object"] = rate / folds["by object"][way]
    if reads:
        ratios["reads while writing, p99 to p50"] = reads["p99_seconds"] / reads["p50_seconds"]
    return {
        "events_per_second": rates,
        "redis_events_per_second": redis,
        "redis_does": (redis_tables.__doc__ or "").partition("\n\n")[2].strip(),
        "bytes": space,
        "reads_while_writing": reads,
        "read_seconds_by_payloads_since_the_snapshot": {str(each): seconds for each, seconds in payloads.items()},
        "payloads_folded_per_second": folds,
        "batch_seconds_by_keys": {str(each): seconds for each, seconds in batches.items()},
        "left_out": left_out,
        "ratios": ratios,
    }


# ------------------------------------------------------------------------------------------------ events


def purchases(first: int, count: int, users: int, span: int = DAYS * DAY, total: int | None = None) -> pa.Table:
    """Events like figure 7 at places of a stream that covers a span in `total` events, by users drawn at random."""
    draw = np.random.default_rng([SEED, first])
    step = span // (total or count)
    times = BEGIN + (first + np.arange(count)) * step + draw.integers(0, max(step, 1), count)
    return pa.table(
        {
            "time": pa.array(times, pa.timestamp("us", tz="UTC")),
            "uuid": _uuids(draw, count),
            "type": pa.array(["purchase"]).take(pa.array(np.zeros(count, np.int64))),
            "amount": draw.integers(1, 10_000, count),
            "user_id": _names(draw.integers(0, users, count)),
        }
    )


def _names(users: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise("user-", pa.array(users).cast(pa.string()), "")


def _uuids(draw: np.random.Generator, count: int) -> pa.Array:
    """Random ids in the usual form."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[draw.integers(0, 16, (count, 36), np.uint8)]
    digits[:, [8, 13, 18, 23]] = ord("-")
    offsets = np.arange(0, 36 * (count + 1), 36, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(digits.tobytes()))


def pipeline_at(home: str | Path) -> hy.Pipeline:
    """Figure 8 over the stream. Events of ten days come in order, so that of all but the last day payloads are folded."""
    p = hy.Pipeline("purchases", home=home)
    p.stream("stream1", SCHEMA, time="time", id="uuid")
    p.table(TABLE, key="user_id", last_purchase_time=hy.Register(), total=hy.Counter(), by_day=hy.MapCounter())
    p.rules(text=RULES)
    return p


def _append(p: hy.Pipeline, events: pa.Table) -> None:
    StreamLog.ensure(p.home.path, p.declaration.stream("stream1")).append(events, now=time.time_ns() // 1000)


# ------------------------------------------------------------------------------------------------ events a second


def _redis(directory: Path, sizes: Sizes, left_out: dict[str, str]) -> dict[str, float]:
    if reason := redis_tables.missing():
        left_out["Redis"] = reason
        return {}
    events = purchases(0, sizes.redis, USERS)
    times = pc.strftime(events["time"], format="%Y-%m-%dT%H:%M:%SZ").to_pylist()
    updates = (events["user_id"].to_pylist(), times, events["amount"].to_pylist(), [each[:10] for each in times])
    rates: dict[str, list[float]] = {"in memory": [], "with its log synced every second": []}
    for number in range(2):
        for kind, found in rates.items():
            place = directory / f"{kind} {number}"
            place.mkdir()
            with redis_tables.server(place, append_only=kind != "in memory") as client:
                found.append(redis_tables.feed(client, updates))
    return {kind: max(found) for kind, found in rates.items()}


def _throughput(session: Any, sizes: Sizes, span: int, measured: bool) -> tuple[dict[str, float], dict[str, float]]:
    """Events a second, appended first and then run, and from batch to batch; and if `measured` what they take on disk.

    Of a span of ten days all payloads but those of the last are folded meanwhile; of half a day none.
    """
    seen = Batches()
    total = sizes.batch * (2 * sizes.batches + 1)
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as home:
        p = pipeline_at(home)
        p.apply()
        with run_lanes(p.home, session=session, on_commit=seen) as lane:
            gate = FileGate(p.home.gate(MAIN))
            _append(p, purchases(0, sizes.batch, USERS, span, total))
            until_idle(lane)  # everything is up and warm
            seconds, steady = [], 0.0
            for first, limit in ((1, Grants(limit=sizes.batch)), (1 + sizes.batches, Grants())):
                gate.set(Grants(open=False))
                for number in range(first, first + sizes.batches):
                    _append(p, purchases(number * sizes.batch, sizes.batch, USERS, span, total))
                seen.moments.clear()
                began = time.perf_counter()
                gate.set(limit)
                until_idle(lane)
                seconds.append(time.perf_counter() - began)
                steady = steady or seen.median(skip=0)
            whole = seconds[-1]
        _check(p, total)
        space = _space(p, total) if measured else {}
    rates = {
        "appended first": sizes.batch * sizes.batches / whole,
        "from batch to batch": sizes.batch / steady,
    }
    return rates, space


def _check(p: hy.Pipeline, events: int) -> None:
    """A few users have what they must have: speed without it is worth nothing."""
    totals = p.progress().totals[TABLE]
    if (totals.read, totals.processed) != (events, events):
        raise AssertionError(f"{events:,} events were appended, {totals.processed:,} processed")
    stored = StreamLog.open(p.home.path, "stream1")
    users = [f"user-{each}" for each in range(0, USERS, USERS // 50)]
    wanted = dict.fromkeys(users, 0)
    for piece in stored.read(0, stored.index().next):
        rows = pa.table(piece.rows).select(["user_id", "amount"])
        rows = rows.filter(pc.is_in(rows["user_id"], pa.array(users)))
        for user, amount in zip(rows["user_id"].to_pylist(), rows["amount"].to_pylist()):
            wanted[user] += amount
    for user, row in zip(users, p.table(TABLE).get_many(users)):
        found = 0 if row is None else row["total"]
        if found != wanted[user] or (row is not None and sum(row["by_day"].values()) != wanted[user]):
            raise AssertionError(f"{user} has {found}, and should have {wanted[user]}")


def _space(p: hy.Pipeline, events: int) -> dict[str, float]:
    """Bytes of an event in the log, of a payload in a table that is not folded, and of what is left after folding."""
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as directory:
        own = _own(p, Path(directory) / "table")
        stored = StreamLog.open(p.home.path, "stream1")
        for number, piece in enumerate(stored.read(0, events)):
            _ingest(own, p, pa.table(piece.rows), Path(directory), number)
        before, payloads = _size(Path(directory) / "table"), own.info().payloads
        _fold_all(own)
        folded, after = _settled(Path(directory) / "table"), own.info()
        own.close()
    return {
        "log, per event": _size(p.home.path / "streams" / "stream1") / events,
        "table, per payload, before folding": before / payloads,
        "table, per payload, after folding": folded / payloads,
        "table, per key, after folding": folded / max(after.keys, 1),
    }


def _settled(directory: Path, patience: float = 60.0) -> int:
    """The size of a store that goes on tidying up by itself: when it has not changed for three seconds."""
    until, since, size = time.monotonic() + patience, time.monotonic(), _size(directory)
    while time.monotonic() < min(until, since + 3):
        time.sleep(0.1)
        if (now := _size(directory)) != size:
            since, size = time.monotonic(), now
    return size


def _size(directory: Path) -> int:
    total = 0
    for each in directory.rglob("*"):
        with suppress(FileNotFoundError):  # removed meanwhile
            total += each.stat().st_size if each.is_file() else 0
    return total


# ------------------------------------------------------------------------------------------------ tables made directly


def _own(p: hy.Pipeline, path: Path) -> Any:
    """A table as the pipeline has it, in another place."""
    from hayase.tables.table import open_own

    return open_own(path, p.declaration.table(TABLE))


def _ingest(own: Any, p: hy.Pipeline, events: pa.Table, directory: Path, number: int) -> None:
    """Bring events into a table as a batch of a lane does: the map side of its rules, a run, its ingestion."""
    from hayase.engine.definition.check import check
    from hayase.tables.stores import write_run

    (source,) = next(each for each in check(p.declaration) if each.name == TABLE).inputs
    schema = p.declaration.stream("stream1").arrow_schema
    batches = events.select(schema.names).cast(schema).combine_chunks().to_batches()
    marker = b"load/%012d" % number
    path = directory / f"{number}.run"
    write_run(path, [source.map_side(each).rows for each in batches], marker)
    own.ingest([path], marker)


def _fold_all(own: Any) -> None:
    """Fold every payload, as if the newest event were from far in the future."""
    own.fold(2**62, 2**62)


def _read_cost(counts: Sequence[int]) -> dict[int, float]:
    """Seconds of reading one key, by the number of its payloads since its snapshot; the least of many readings."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as folder:
        directory = Path(folder)
        p = pipeline_at(directory / "nowhere")
        for at, count in enumerate(counts):
            own = _own(p, directory / f"table {count}")
            _ingest(own, p, _of_one_user(0, 10), directory, 2 * at)
            _fold_all(own)
            if count:
                _ingest(own, p, _of_one_user(10, count), directory, 2 * at + 1)
            _ingest(own, p, purchases(0, 10_000, 10_000), directory, 10**6 + at)  # others, too
            reads = max(5, min(300, 200_000 // (count + 1)))
            own.get(("one",))
            found[count] = min(_seconds(lambda own=own: own.get(("one",))) for _ in range(reads))
            own.close()
    return found


def _fold_rates(payloads: int) -> dict[str, dict[str, float]]:
    """Payloads a second of CPU time that reads fold, twenty of each key and all of one: the best of three rounds."""
    from hayase.tables import entry_blocks
    from hayase.tables.table_results import TableResults

    users = payloads // 20
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as folder:
        directory = Path(folder)
        p = pipeline_at(directory / "nowhere")
        many, one = _own(p, directory / "many"), _own(p, directory / "one")
        for number in range(4):
            events = purchases(number * payloads // 4, payloads // 4, users, total=payloads)
            _ingest(many, p, events, directory, number)
        _ingest(one, p, _of_one_user(0, payloads), directory, 4)
        keys = [(f"user-{user}",) for user in range(users)]
        results = TableResults(directory / "many", p.declaration.table(TABLE))
        ways: dict[str, Callable[[], object]] = {
            "pages of rows": lambda: many.scan(limit=users),
            "rows of keys": lambda: many.get_many(keys),
            "an export": results.to_arrow,
            "one key": lambda: one.get(("one",)),
        }
        rates: dict[str, dict[str, float]] = {"by loops": {}, "by object": {}}
        usual = entry_blocks.COMPILED_ENTRIES
        for _ in range(3):
            for kind, least in (("by loops", usual), ("by object", 2**62)):
                entry_blocks.COMPILED_ENTRIES = least
                for way, read in ways.items():
                    began = time.process_time()
                    read()
                    rate = payloads / (time.process_time() - began)
                    rates[kind][way] = max(rate, rates[kind].get(way, 0))
        entry_blocks.COMPILED_ENTRIES = usual
        results.close()
        many.close()
        one.close()
    return rates


def _seconds(action: Any) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _of_one_user(first: int, count: int) -> pa.Table:
    events = purchases(first, count, 1, total=10 * (first + count))
    later = pc.add(events["time"].cast(pa.int64()), first * DAY).cast(events["time"].type)
    names = pa.array(["one"]).take(pa.array(np.zeros(count, np.int64)))
    return events.set_column(0, "time", later).set_column(4, "user_id", names)


@contextmanager
def _loaded(keys: int) -> Iterator[hy.Pipeline]:
    """A pipeline whose table has so many keys, with one payload each."""
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as home:
        p = pipeline_at(home)
        p.apply()
        runner = InProcess(p.home, lambda: time.time_ns() // 1000)
        runner.run_until_idle()  # begins the table
        own = runner.tables.own(p.declaration.table(TABLE))
        for number, first in enumerate(range(0, keys, 250_000)):
            count = min(250_000, keys - first)
            events = purchases(first, count, keys, span=DAY, total=2 * keys)
            names = _names(np.arange(first, first + count))
            _ingest(own, p, events.set_column(4, "user_id", names), Path(home), number)
        runner.close()
        yield p


def _batch_seconds(session: Any, keys: int, rounds: int) -> float:
    """Seconds of a batch of 10,000 events, from the append to the commit, in a table of so many keys."""
    took = []
    with _loaded(keys) as p, warm_lane(p, session) as lane:
        gc.collect()
        for number in range(rounds):
            events = purchases(keys + number * 10_000, 10_000, keys, span=DAY, total=2 * keys + rounds * 10_000)
            began = time.perf_counter()
            _append(p, events)
            until_idle(lane)
            took.append(time.perf_counter() - began)
    return statistics.median(took[rounds // 3 :])


# ------------------------------------------------------------------------------------------------ reads while writing

WRK_SCRIPT = """
request = function()
  return wrk.format("GET", "/tables/%s/user-" .. math.random(0, %d))
end
done = function(summary, latency, requests)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format('{"requests": %%d, "failed": %%d, "seconds": %%f, "p50": %%f, "p99": %%f, "most": %%f}\\n',
    summary.requests, failed, summary.duration / 1e6, latency:percentile(50) / 1e6, latency:percentile(99) / 1e6,
    latency.max / 1e6))
end
"""


def _reads(session: Any, sizes: Sizes, left_out: dict[str, str]) -> dict[str, float]:
    """Latency of reading a key over HTTP, while a process of its own appends and the lane takes it in."""
    if shutil.which("wrk") is None:
        left_out["reads while writing"] = WRK
        return {}
    users = 10_000
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as folder:
        p = pipeline_at(Path(folder) / "home")
        _append(p, _everybody(users))
        script = Path(folder) / "reads.lua"
        script.write_text(WRK_SCRIPT % (TABLE, users - 1))
        with _served(p, session) as (lane, url):
            until_idle(lane)
            spawn = multiprocessing.get_context("spawn")
            writer = spawn.Process(target=_write, args=(str(p.home.path), users, sizes.seconds + 10.0), daemon=True)
            writer.start()
            time.sleep(5)  # the writer is up, and the lane has had some of it
            before = p.progress().totals[TABLE].read
            command = ["wrk", "-t1", "-c4", f"-d{sizes.seconds}s", "-s", str(script), url]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            written = p.progress().totals[TABLE].read - before
            writer.terminate()
            writer.join()
    told = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    if told["failed"]:
        raise AssertionError(f"{told['failed']} of {told['requests']} reads failed")
    return {
        "reads_per_second": told["requests"] / told["seconds"],
        "events_per_second_meanwhile": written / told["seconds"],
        "p50_seconds": told["p50"],
        "p99_seconds": told["p99"],
        "largest_seconds": told["most"],
    }


@contextmanager
def _served(p: hy.Pipeline, session: Any) -> Iterator[tuple[Any, str]]:
    """The lane at work, and the address at which its process serves the tables."""
    from hayase.serving import Status, serving

    p.apply()
    status = Status()
    with (
        open_ledger(p.home) as ledger,
        serving(p.home, "127.0.0.1:0", tables=ledger.tables, status=status) as server,
        run_lanes(p.home, ledger=ledger, session=session, awake=True, on_commit=status.committed) as lane,
    ):
        if status.now.manifest.version < lane.manifest.version:
            status.committed(lane.manifest)  # what the lane began with
        status.set("running")
        yield lane, server.url


def _everybody(users: int) -> pa.Table:
    """One event of each user."""
    return purchases(0, users, users, span=DAY).set_column(4, "user_id", _names(np.arange(users)))


def _write(home: str, users: int, seconds: float) -> None:
    """Append `RATE` events a second, `PER_APPEND` at a time."""
    p = pipeline_at(home)
    began = time.time()
    for number in range(int(seconds * RATE / PER_APPEND)):
        if (ahead := began + number * PER_APPEND / RATE - time.time()) > 0:
            time.sleep(ahead)
        _append(p, purchases(10**6 + number * PER_APPEND, PER_APPEND, users, total=10**8))


# ------------------------------------------------------------------------------------------------ drawing


def draw(path: Path, payloads: dict[int, float], batches: dict[int, float]) -> None:
    """Draw the seconds of a read by payloads since the snapshot, and those of a batch by keys in the table."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    left.plot([max(each, 0.5) for each in payloads], [1e6 * each for each in payloads.values()], marker="o")
    left.set(xscale="log", yscale="log", xlabel="payloads since the snapshot (the first: none)", ylabel="microseconds")
    left.set_title("reading one key")
    right.plot(list(batches), [1e3 * each for each in batches.values()], marker="o")
    right.set(xscale="log", xlabel="keys in the table", ylabel="milliseconds")
    right.set_ylim(bottom=0)
    right.set_title("one batch of 10,000 events, append to commit")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
