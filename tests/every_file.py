"""A small pipeline whose home has a file of every kind: for tests of formats, upgrades and damage.

It runs in this process, with a clock of its own, and so gives the same answers every time: `history` lays the home out,
`later` goes on with it, `answers` reads everything that can be asked. It uses nothing that the code of format 1 lacks, unless
`newer` kinds of files are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import hayase as hy
from hayase.engine.commit.housekeeping import run_housekeeping
from hayase.engine.local import InProcess
from hayase.streams import StreamLog

START = 1_767_225_600 * 1_000_000
"""2026-01-01T00:00:00Z"""

PIPELINE = """
pipeline: shop
home: ./home
buckets: 2
streams:
  orders: {schema: "time timestamp, id string, user string, amount bigint", time: time, id: id, slack: 2 seconds}
  pings: {schema: "time timestamp, host string", time: time, retention: {size: 1 kB}}
queries:
  large: select user, amount from orders where amount >= 4
  spend: select user, sum(amount) as spend, count(*) as orders from orders [Range 5 seconds] group by user
  hosts: select host, count(*) as pings from pings [Rows 3] group by host
tables:
  purchases: {key: user, columns: {total: Counter, last: Register}}
rules:
  source: orders
  rules:
    - tables: {purchases: {key: .user, columns: {total: .amount, last: .time}}}
jobs:
  sums:
    reads: orders
    every: 1 second
    steps:
      - {map: "counting:by_user"}
      - {reduce: sum}
operations:
  scores: {reads: orders, function: "scoring:score", schema: "user string, score bigint", attempts: 1}
"""
NEWER_STREAMS = """
  clicks:
    schema: "time timestamp, id string, page string, extra json"
    time: time
    id: id
    slack: 2 seconds
    dedupe: 20 seconds
    extra_fields: keep
"""
NEWER_QUERIES = """
  pages: select page, count(*) as clicks, count(extra) as extras from clicks group by page
  visits: select page, window_start, count(*) as clicks from clicks [Partition By page Session 1 second] group by page, window_start
  newest: select id, page from clicks [Range 4 seconds] order by id desc limit 3
  placed: select id, rank() over (partition by page order by id) as place from clicks [Range 2 seconds]
"""
COUNTING = """
def by_user(record):
    return record["user"], record["amount"]
"""
SCORING = """
import factors

def score(records):
    order = records[0]
    if order["amount"] == 7:
        raise ValueError("seven is not scored")
    return {"user": order["user"], "score": order["amount"] * factors.FACTOR}
"""
FACTORS = "FACTOR = 10\n"

seen: list[int] = []
"""What the view was given in this process."""


def scored(records: list[dict[str, Any]]) -> None:
    """The view of the operation's results."""
    seen.extend(record["score"] for record in records)


def lay_out(directory: Path, *, newer: bool = False) -> None:
    """Write the pipeline's file and its modules."""
    directory.mkdir(parents=True, exist_ok=True)
    text = PIPELINE
    if newer:
        text = text.replace("\nqueries:", f"{NEWER_STREAMS.rstrip()}\nqueries:{NEWER_QUERIES.rstrip()}")
    (directory / "pipeline.yaml").write_text(text)
    for name, text in (("counting", COUNTING), ("scoring", SCORING), ("factors", FACTORS)):
        (directory / f"{name}.py").write_text(text)


def opened(directory: Path, clock: Callable[[], int] = lambda: START) -> hy.Pipeline:
    """The pipeline in a directory that was laid out."""
    pipeline = hy.Pipeline.from_file(directory / "pipeline.yaml", clock=clock)
    pipeline.view("scores", scored)
    return pipeline


def _orders(numbers: range) -> list[dict[str, Any]]:
    return [{"time": _time(at / 2), "id": f"o{at}", "user": "abc"[at % 3], "amount": at % 9} for at in numbers]


def _time(seconds: float) -> str:
    return f"2026-01-01T00:00:{seconds:06.3f}Z"


def _clicks(numbers: range) -> list[dict[str, Any]]:
    """Every second click has the id of the one before; some have a field that the schema lacks."""
    return [
        {"time": _time(at / 10), "id": f"c{at // 2}", "page": "xyz"[at % 5 % 3]} | ({"from": at} if at % 3 else {})
        for at in numbers
    ]


def _has_clicks(pipeline: hy.Pipeline) -> bool:
    return any(stream.name == "clicks" for stream in pipeline.declaration.streams)


def append(pipeline: hy.Pipeline, first: int, count: int, sequence: int) -> None:
    """Several small appends, among them a record that does not fit, and one that is too late."""
    for number in range(count):
        at = first + 4 * number
        pipeline.append("orders", _orders(range(at, at + 4)), producer="till", sequence=sequence + number)
        pings = [{"time": _time(at + each), "host": "xy"[each % 2]} for each in range(4)]
        pipeline.append("pings", pings, producer="probe", sequence=sequence + number)
    odd = [
        {"time": _time(0), "id": "bad", "user": "a", "amount": "much"},
        {"time": _time(0), "id": f"late{first}", "user": "a", "amount": 1},
    ]
    pipeline.append("orders", odd, producer="odd", sequence=sequence)
    if _has_clicks(pipeline):  # many repeats at first, so that their marks fill a file of their own
        clicks = range(200) if not first else range(200 + 3 * first, 206 + 3 * first)
        pipeline.append("clicks", _clicks(clicks), producer="page", sequence=sequence)


def run(pipeline: hy.Pipeline) -> None:
    """Process everything that is there."""
    pipeline.run_until_idle(spark=False)


def history(directory: Path, *, newer: bool = False) -> hy.Pipeline:
    """Lay a home out, with several batches, a merged segment and single ones, trimmed and settled records."""
    lay_out(directory, newer=newer)
    pipeline = opened(directory)
    append(pipeline, 0, 4, 1)
    run(pipeline)
    append(pipeline, 16, 3, 5)
    run(pipeline)
    with pipeline.home.lock(), closing(InProcess(pipeline.home, lambda: START)) as runner:
        run_housekeeping(pipeline.home, START, runner.commits)
    StreamLog.open(pipeline.home.path, "orders").compact(at_least=2)
    append(pipeline, 28, 2, 8)
    pipeline.replay(stage="append", edit=_mended, limit=1)
    pipeline.drop_letters(reason="seven")
    run(pipeline)
    return pipeline


def _mended(record: Any) -> Any:
    return {**record, "amount": 3}


def later(pipeline: hy.Pipeline) -> None:
    """Go on: more records, which depend on all that the home remembers. It can be repeated after an error."""
    append(pipeline, 36, 2, 10)
    pipeline.append("orders", _orders(range(32, 36)), producer="till", sequence=9)  # repeated: nothing happens
    pipeline.finish("orders")
    run(pipeline)


def answers(pipeline: hy.Pipeline) -> dict[str, Any]:
    """Everything that can be asked, as plain values that do not depend on how records were cut into batches."""
    newer = _has_clicks(pipeline)
    read: dict[str, Any] = {name: pipeline.stream(name).rows() for name in ("orders", *(["clicks"] if newer else []))}
    for name in ("large", "spend", "hosts", *(["pages", "visits", "newest", "placed"] if newer else [])):
        read[name] = [[row, str(since), str(until)] for row, since, until in pipeline.query(name).intervals()]
        read[f"{name} now"] = pipeline.query(name).at()
    for name in ("sums", "scores"):
        read[name] = [
            {column: value for column, value in row.items() if column != "time"}
            for row in pipeline.results(name).rows()
        ]
    read["purchases"] = [[user, pipeline.table("purchases").get(user)] for user in "abc"]
    letters = pipeline.dead_letters()
    read["dead letters"] = [[each["stage"], each["stream"], each["offset"], each["record"]] for each in letters]
    return {name: sorted(map(repr, rows)) for name, rows in read.items()}
