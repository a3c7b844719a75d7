"""An access log to test jobs with, in Apache's combined format, and what a plain Python program counts in it.

The log is made from requests, so that what it says is known without reading it. Lines come out of order by less than a
minute, some of them twice, and some are not lines of a log at all.

    python access_log.py HOME CHUNKS    a program to be killed; started again on the same home it goes on
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import hayase as hy
from examples import access_monitor
from hayase.engine import local
from hayase.engine.batch import offsets
from hayase.engine.batch.gate import Grants
from hayase.engine.local import InProcess

BEGIN = datetime(2026, 3, 9, 22, 50, tzinfo=UTC)
HOUR, WEEK = timedelta(hours=1), timedelta(days=7)
SLACK = timedelta(minutes=1)
APACHE = Path(__file__).parents[2] / "shared" / "data" / "apache_access.log"
"""A real log, where it is present: its facts stand beside it."""
AGENTS = [
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36",
    "curl/8.5.0",
    "Fetcher/1.0 (+http://example.org/ü)",
    "-",
]
POISON = ["", "GET /", '10.0.0.1 - - [09/Mar/2026:22:50:00 +0000] "GET /a HTTP/1.1" 200 12 "-" "cut off', "\x00\xff"]


@dataclass(frozen=True, slots=True)
class Request:
    """A line of the log, with what it says; `address` is None if that is nothing."""

    at: datetime
    text: str
    address: str | None = None
    path: str = ""
    status: int = 0
    size: int = 0

    def row(self) -> dict[str, Any]:
        return {"time": self.at, "line": self.text}


def request(draw: random.Random, at: datetime, addresses: int = 6, wide: bool = False) -> Request:
    """A line of some moment; about 300 bytes if it is `wide`."""
    if draw.random() < 0.03:
        return Request(at, draw.choice(POISON))
    often = draw.random() < 0.5
    address = (
        draw.choice(["10.0.0.0", "10.0.0.1"]) if often else f"10.0.{draw.randrange(2)}.{draw.randrange(addresses)}"
    )
    path = draw.choice(["/", "/index.html", "/blog/tags/ü", "/a?b=[c]&d=%20", "/images/logo.png"])
    status = draw.choice([200] * 6 + [304, 404, 404, 500])
    size = draw.choice([0, 235, 7697, 203_023, 2**40])
    told = "-" if size == 0 and draw.random() < 0.5 else str(size)
    agent, referrer = draw.choice(AGENTS), draw.choice(["-", "http://example.org/x"])
    method = draw.choice(["GET", "HEAD", "POST"])
    stamp = f"{at:%d/%b/%Y:%H:%M:%S} +0000"
    text = f'{address} - - [{stamp}] "{method} {path} HTTP/1.1" {status} {told} "{referrer}" "{agent}"'
    if wide:
        text = f'{text[:-1]} {"x" * max(0, 299 - len(text))}"'
    return Request(at, text, address, path, status, size)


def requests(seed: int, count: int, hours: float = 3, addresses: int = 6) -> list[Request]:
    """The lines of a log as they arrive."""
    draw = random.Random(seed)
    made: list[tuple[datetime, Request]] = []
    for number in range(count):
        at = BEGIN + timedelta(seconds=round(hours * 3600 * number / max(count, 1)))
        if draw.random() < 0.1:
            at = at.replace(minute=0, second=0)  # on the edge of a window
        one = request(draw, at, addresses)
        made += [(at + SLACK * draw.random(), one) for _ in range(1 + (draw.random() < 0.05))]
    return [one for _, one in sorted(made, key=lambda each: each[0])]


def apache_requests() -> list[Request]:
    """The lines of the real log, taken apart without a pattern."""
    return [_taken_apart(text) for text in APACHE.read_text("utf-8", "surrogateescape").splitlines()]


def _taken_apart(text: str) -> Request:
    head, called, numbers, *rest = text.split('"')
    stamp = head[head.index("[") + 1 : head.index("]")]
    at = datetime.strptime(stamp, "%d/%b/%Y:%H:%M:%S %z")
    status, size = numbers.split()
    if len(rest) != 4:  # referrer, agent, and what is around them
        return Request(at, text)
    return Request(at, text, head.split()[0], called.split()[1], int(status), 0 if size == "-" else int(size))


# ------------------------------------------------------------------------------------------------ what it comes to


@dataclass(slots=True)
class Statistics:
    """What the monitor must find in a log that is over, whatever firings there were."""

    statuses: Counter[int] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    hourly: Counter[tuple[str, str]] = field(default_factory=Counter)
    busy: list[dict[str, Any]] = field(default_factory=list)
    read: int = 0
    dead: int = 0

    def blocked(self, blocklist: dict[str, str]) -> dict[str, tuple[str, int]]:
        return {each: (reason, self.hits[each]) for each, reason in blocklist.items() if each in self.hits}


def statistics(log: Iterable[Request], rates: dict[tuple[str, str], int] | None = None) -> Statistics:
    """Count, one line after the other."""
    found, times = Statistics(), list[datetime]()
    by_hour: Counter[tuple[str, datetime]] = Counter()
    for each in log:
        found.read += 1
        found.words.update(each.text.split())
        if each.address is None:
            found.dead += 1
            continue
        times.append(each.at)
        found.statuses[each.status] += 1
        found.hits[each.address] += 1
        found.bytes[each.address] += each.size
        by_hour[each.address, hour_of(each.at)] += 1
    for (address, hour), hits in by_hour.items():
        if hour + HOUR <= max(times):  # the last hour is not over
            found.hourly[address, f"{hour:%Y-%m-%dT%H}"] = hits
            before = f"{hour - WEEK:%Y-%m-%dT%H}"
            known = (rates or {}).get((address, before), 0)
            if hits > 3 * max(known, 10):
                found.busy.append({"address": address, "hits": hits, "a_week_before": known, "hour": before})
    found.busy.sort(key=json.dumps)
    return found


def hour_of(at: datetime) -> datetime:
    """When the hour began that a moment is in; its end belongs to it, its beginning does not."""
    before = at - timedelta(microseconds=1)
    return before.replace(minute=0, second=0, microsecond=0)


# ------------------------------------------------------------------------------------------------ running it

BLOCKLIST = {"10.0.0.1": "scans", "10.0.1.2": "spam", "192.0.2.7": "never comes"}


def rates_before() -> dict[tuple[str, str], int]:
    """Of the week before: one address came as often, others hardly or not at all."""
    hours = [f"{BEGIN - WEEK + HOUR * number:%Y-%m-%dT%H}" for number in range(5)]
    return {("10.0.0.0", hour): 12 for hour in hours} | {("10.0.0.1", hour): 2 for hour in hours[1:]}


def after_all() -> int:
    """A wall clock that stands behind all records."""
    return int((BEGIN + timedelta(days=30)).timestamp() * 1_000_000)


def moved(declared: hy.Pipeline, home: Path, buckets: int | None = None) -> hy.Pipeline:
    """A pipeline that was declared for one home, at another."""
    pipeline = hy.Pipeline(declared.declaration.name, home, clock=after_all)
    pipeline.declaration = replace(declared.declaration, buckets=buckets)
    return pipeline


def monitor(home: Path, buckets: int | None = None) -> hy.Pipeline:
    """The monitor, with what is stored already in its tables."""
    pipeline = moved(access_monitor.p, home, buckets)
    if not home.joinpath("lanes").exists():
        at = BEGIN - WEEK
        bans = [{"time": at, "id": each, "address": each, "reason": why} for each, why in BLOCKLIST.items()]
        known = [
            {"time": at, "id": f"{address} {hour}", "address": address, "hour": hour, "hits": hits}
            for (address, hour), hits in rates_before().items()
        ]
        pipeline.append("bans", bans, producer="files", sequence=1)
        pipeline.append("known", known, producer="files", sequence=1)
        pipeline.run_until_idle(spark=False)
    return pipeline


def check(pipeline: hy.Pipeline, log: Sequence[Request]) -> None:
    """What the monitor has come to is what the plain program counts."""
    rates = rates_before()
    wanted = statistics(log, rates)
    assert summed(pipeline, "statuses", "status", "hits") == wanted.statuses
    assert summed(pipeline, "addresses", "address", "hits") == wanted.hits
    assert summed(pipeline, "addresses", "address", "bytes") == wanted.bytes
    alerts: dict[str, tuple[str, int]] = {}
    for address, told in plain(pipeline, "blocked"):
        alerts[address] = (told["reason"], told["hits"] + alerts.get(address, ("", 0))[1])
    assert alerts == wanted.blocked(BLOCKLIST)
    busy = [{"address": address, **told} for address, told in plain(pipeline, "busy")]
    assert sorted(busy, key=json.dumps) == wanted.busy
    kept = {(row["address"], row["hour"]): row["hits"] for row in pipeline.table("rates").rows()}
    assert kept == {**rates, **wanted.hourly}
    letters = pipeline.dead_letters()
    assert [each["stage"] for each in letters] == ["requests"] * wanted.dead
    assert all("parse raised ValueError" in each["reason"] for each in letters)
    totals = pipeline.progress().totals
    assert (totals["requests"].read, totals["requests"].dead) == (wanted.read, wanted.dead)
    check_figures(pipeline)


def check_figures(pipeline: hy.Pipeline) -> None:
    """Whatever a stage has read it has processed or refused."""
    for name, each in pipeline.progress().totals.items():
        assert each.read == each.processed + each.dead, name
        assert each.waiting == 0, name


def summed(pipeline: hy.Pipeline, stream: str, key: str, value: str) -> Counter[Any]:
    """What typed tuples of all firings add up to."""
    found: Counter[Any] = Counter()
    for row in pipeline.stream(stream).rows():
        found[row[key]] += row[value]
    return found


def plain(pipeline: hy.Pipeline, stream: str) -> Iterator[tuple[Any, Any]]:
    """Plain tuples as they were emitted; of a key that is a list, as a tuple."""
    for row in pipeline.stream(stream).rows():
        key = json.loads(row["key"])
        yield tuple(key) if isinstance(key, list) else key, json.loads(row["value"])


def total(pipeline: hy.Pipeline, stream: str) -> dict[Any, Any]:
    """What plain tuples of all firings add up to."""
    found: dict[Any, Any] = defaultdict(int)
    for key, value in plain(pipeline, stream):
        found[key] += value
    return dict(found)


@dataclass(frozen=True, slots=True)
class Moment:
    """What happens after an append of so many records: the clock goes on, then some batches, of so many records."""

    records: int
    seconds: float = 0
    steps: int = 0
    limit: int = 1000
    restart: bool = False


@dataclass
class Conditions:
    """A wall clock and a gate that a test sets."""

    now: int = field(default_factory=after_all)
    limit: int = 1000

    def clock(self) -> int:
        return self.now

    def grants(self) -> Grants:
        return Grants(limit=self.limit)


def disturbed(
    pipeline: hy.Pipeline,
    stream: str,
    rows: Sequence[dict[str, Any]],
    script: Sequence[Moment] = (),
    tasks: int = 1,
    at_once: bool = True,
    finished: bool = True,
    settled: bool = False,
) -> None:
    """Append and run by a script, then to the end. If it is not `at_once`, jobs fire when the clock says so; `settled`:
    each firing has come to its end before the next."""
    pipeline.apply()
    conditions, at = Conditions(), 0

    def runner() -> InProcess:
        return InProcess(pipeline.home, conditions.clock, gate=conditions, tasks=tasks, at_once=at_once)

    with mock.patch.object(local, "ranges", partial(offsets.ranges, least=1)):
        running = runner()
        for moment in script:
            if moment.records and rows[at : at + moment.records]:
                pipeline.append(stream, rows[at : at + moment.records])
                at += moment.records
            conditions.now += round(moment.seconds * 1_000_000)
            conditions.limit = 1_000_000 if settled else moment.limit
            for _ in range(moment.steps):
                running.step()
            if settled:
                running.run_until_idle()
            if moment.restart:
                running.close()
                running = runner()
        if rows[at:]:
            pipeline.append(stream, rows[at:])
        if finished:
            pipeline.finish(stream)
        conditions.limit = 1_000_000
        idle = 0
        while idle < 3:  # a job whose time has not come does nothing for a while
            conditions.now += 60_000_000
            idle = 0 if running.step() else idle + 1
            running.run_until_idle()
        running.close()


# ------------------------------------------------------------------------------------------------ a program to be killed

ROWS = 40


def log_of(chunks: int) -> list[Request]:
    """The log of that program: always the same."""
    return requests(seed=5, count=chunks * ROWS, hours=2.5)


def append_chunk(pipeline: hy.Pipeline, log: Sequence[Request], number: int, chunks: int) -> bool:
    """Append a part of the log; whether it is new. A sequence lets an append of an earlier life be known again."""
    bounds = [len(log) * at // chunks for at in (number, number + 1)]
    rows = [each.row() for each in log[bounds[0] : bounds[1]]]
    return not pipeline.append("lines", rows, producer="server", sequence=number + 1).repeated


def work(home: Path, chunks: int, **how: Any) -> None:
    """Append what is not in the log yet, part by part, while the monitor runs on Spark, and wait until all is done."""
    from hayase.engine.spark.runner import run_lanes

    pipeline, log = monitor(home, buckets=2), log_of(chunks)
    committed = threading.Event()
    with pipeline.home.lock():
        pipeline.apply()
        with run_lanes(pipeline.home, on_commit=lambda manifest: committed.set(), **how) as lane:
            for number in range(chunks):
                committed.clear()
                if append_chunk(pipeline, log, number, chunks):
                    while not committed.wait(0.2):
                        lane.check()
            if not pipeline.results("lines").log.index().finished:
                pipeline.finish("lines")
            while not lane.is_idle():
                lane.check()
                time.sleep(0.02)


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]), awake=True)  # so that jobs fire at their intervals
