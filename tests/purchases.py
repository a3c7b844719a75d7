"""Purchases to test tables with: the events, pipeline and HiveQL of paper 4, section 5, a market with rules of every
kind, and what their tables must hold, computed by plain Python.

The model knows nothing of batches, runs, snapshots or files: of the records that a stream took it keeps those that are
not older than the horizon, each once, and says what the operations they cause come to.

    python purchases.py HOME CHUNKS [--spark]    a program to be killed; started again on the same home it goes on
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import hayase as hy
from hayase.engine.commit import housekeeping
from hayase.engine.local import InProcess

DAY = 86_400_000_000
BEGIN = datetime(2018, 1, 1, tzinfo=UTC)
Row = dict[str, Any]
Key = tuple[Any, ...]
Answers = dict[Key, dict[str, Any]]

# ------------------------------------------------------------------------------------------------ section 5 of paper 4

PURCHASES = "time timestamp, uuid string, type string, amount {number}, user_id string"
FIGURE_8 = r"""
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
TABLE_4 = {"total": "Counter", "last_purchase_time": "Register", "by_day": "MapCounter"}
FIGURE_6 = """
insert overwrite directory '{hive_purchase}/dt={day}' using parquet
select
  coalesce(prev.user_id, today.user_id) as user_id,
  cast(coalesce(prev.total, 0) + coalesce(today.amount, 0) as {number})
  as total,
  coalesce(today.latest_time, prev.last_purchase_time)
  as last_purchase_time,
  if(today.user_id is null,
   prev.by_day,
   mergemap(
     coalesce(prev.by_day, map("{day}", cast(0 as {number}))),
     map("{day}", cast(today.amount as {number}))
   )
  ) as by_day
from
(
  select
    user_id,
    total,
    last_purchase_time,
    by_day
  from
    hive_purchase
  where
    dt = "{day_before}"
) prev
full outer join
(
  select
    user_id,
    sum(cast(amount as {number})) as amount,
    max(time) as latest_time
  from
    input_purchase_events
  where dt = "{day}" and type = "purchase"
  group by user_id
) today
on prev.user_id = today.user_id
"""
"""Figure 6 as meant: its maps name the day that is loaded. A day's partition is written as a directory, since Spark does
not overwrite a part of a table that it reads, and the total has its type; where the paper has an int, any number."""
MERGEMAP = """
create or replace temporary function mergemap(old map<string, {number}>, new map<string, {number}>)
returns map<string, {number}>
return map_concat(map_filter(old, (day, amount) -> not map_contains_key(new, day)), new)
"""


@dataclass(frozen=True, slots=True)
class Purchase:
    """Figure 7; `at` is its time, in microseconds."""

    at: int
    uuid: str
    user_id: str
    amount: int | Decimal
    type: str = "purchase"

    @property
    def time(self) -> str:
        """The event's time as rules see it; all events have a fraction of a second, so that texts sort like times."""
        return f"{moment(self.at):%Y-%m-%dT%H:%M:%S.%f}Z"

    @property
    def day(self) -> str:
        return self.time[:10]

    def row(self) -> Row:
        return {
            "time": moment(self.at),
            "uuid": self.uuid,
            "type": self.type,
            "amount": self.amount,
            "user_id": self.user_id,
        }


def moment(at: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)


def micros(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def purchases(seed: int, count: int, days: int = 5, users: int = 20, cents: bool = False) -> list[Purchase]:
    """Different events, in no order; a tenth of them are of another type. On the first and the third day some users buy
    nothing, and some instants have several events."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        user = draw.randrange(users)
        day = draw.choice([each for each in range(days) if user % 3 or each not in (0, 2)])
        second = draw.choice([0, draw.randrange(86_400)])
        amount = draw.choice([draw.randint(-500, 9_999), 0, 10**9])
        made.append(
            Purchase(
                at=micros(BEGIN) + day * DAY + second * 1_000_000 + draw.randint(1, 999) * 1_000,
                uuid=str(UUID(int=draw.getrandbits(128), version=4)),
                user_id=f"user-{user}",
                amount=Decimal(amount) / 100 if cents else amount,
                type=draw.choice(["purchase"] * 9 + ["view"]),
            )
        )
    return made


def delivered(events: Sequence[Purchase], seed: int, repeated: float = 0.3, delay: int = 3 * DAY) -> list[Purchase]:
    """The events as they arrive: each late by up to `delay`, and some of them again, at another time."""
    draw = random.Random(seed)
    arrivals = [(each.at + draw.randrange(delay), number) for number, each in enumerate(events)]
    again = [number for number in range(len(events)) if draw.random() < repeated]
    arrivals += [(events[number].at + draw.randrange(delay), number) for number in again]
    return [events[number] for _, number in sorted(arrivals)]


def purchase_pipeline(
    home: Path, number: str = "bigint", fold_after: int = DAY, horizon: int = 30 * DAY, buckets: int | None = None
) -> hy.Pipeline:
    """The rules of figure 8 over a stream of events like figure 7, into table 4."""
    pipeline = hy.Pipeline("purchases", home, buckets=buckets)
    pipeline.stream("stream1", PURCHASES.format(number=number), time="time", id="uuid")
    columns = {name: getattr(hy, kind)() for name, kind in TABLE_4.items()}
    pipeline.table("user_purchase_status", key="user_id", fold_after=fold_after, horizon=horizon, **columns)
    pipeline.rules(text=FIGURE_8)
    return pipeline


def purchase_table(events: Iterable[Purchase]) -> Answers:
    """What table 4 must hold."""
    answers: Answers = {}
    for each in sorted(set(events), key=lambda each: (each.at, each.uuid)):
        if each.type == "purchase":
            row = answers.setdefault((each.user_id,), {"total": 0, "last_purchase_time": None, "by_day": {}})
            row["total"] += each.amount
            row["last_purchase_time"] = each.time
            row["by_day"][each.day] = row["by_day"].get(each.day, 0) + each.amount
    return answers


# ------------------------------------------------------------------------------------------------ a market

SALES = "at bigint not null, id string, kind string, country string, user string, amount decimal(9,2)"
VISITS = "at bigint not null, id bigint, country string, user string, page string"
TABLES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "buyers": (
        ("user",),
        {
            "total": "Counter",
            "last": "Register",
            "by_country": "MapCounter",
            "greatest": "MaxRegister",
            "kinds": "GSet",
            "wanted": "LWWSet",
        },
    ),
    "places": (("country", "user"), {"last": "Register", "seen": "Counter", "pages": "MapSet"}),
}
SALES_RULES = r"""
source: sales
rules:
  - when: .kind == "purchase"
    tables:
      buyers:
        key: .user
        columns: {last: .at, total: .amount, by_country: "{(.country): .amount}"}
      places:
        key: [.country, .user]
        columns: {last: .kind}
  - when: .kind == "refund"
    tables:
      buyers:
        key: .user
        columns: {last: .at, total: 0 - .amount}
  - tables:
      buyers:
        key: .user
        columns: {kinds: .kind, greatest: .amount}
"""
VISITS_RULES = r"""
- source: visits
  rules:
    - tables:
        places:
          key: [.country, .user]
          columns: {seen: "1", last: .page, pages: "{(.country): .page}"}
    - when: .page == "basket"
      tables:
        buyers:
          key: .user
          columns: {wanted: {add: .country}}
    - when: .page == "bin"
      tables:
        buyers:
          key: .user
          columns: {wanted: {remove: .country}}
"""


class Caused(NamedTuple):
    """An operation that an event causes; `order` is its place among the operations of the rules."""

    table: str
    key: Key
    column: str
    method: str
    value: Any
    order: int


class Broken(NamedTuple):
    """A rule that an event breaks."""

    table: str
    column: str


def of_sale(row: Row) -> Iterator[Caused | Broken]:
    """What an event of sales causes."""
    kind, country, user, amount = (row[name] for name in ("kind", "country", "user", "amount"))
    if kind == "purchase":
        yield _caused("buyers", (user,), "last", "set", row["at"], 0)
        yield _caused("buyers", (user,), "total", "incr", amount, 1, fits=amount is not None)
        entry = {country: amount}
        fits = amount is not None and country is not None
        yield _caused("buyers", (user,), "by_country", "add", entry, 2, fits=fits)
        yield _caused("places", (country, user), "last", "set", kind, 3)
    if kind == "refund":
        yield _caused("buyers", (user,), "last", "set", row["at"], 4)
        change = None if amount is None else -amount
        yield _caused("buyers", (user,), "total", "incr", change, 5, fits=amount is not None)
    yield _caused("buyers", (user,), "kinds", "add", kind, 6)
    yield _caused("buyers", (user,), "greatest", "set", amount, 7, fits=amount is not None)


def of_visit(row: Row) -> Iterator[Caused | Broken]:
    """What an event of visits causes."""
    country, user, page = (row[name] for name in ("country", "user", "page"))
    yield _caused("places", (country, user), "seen", "incr", 1, 8)
    yield _caused("places", (country, user), "last", "set", page, 9)
    yield _caused("places", (country, user), "pages", "add", {country: page}, 10, fits=country is not None)
    if page == "basket":
        yield _caused("buyers", (user,), "wanted", "add", country, 11)
    if page == "bin":
        yield _caused("buyers", (user,), "wanted", "remove", country, 12)


CAUSES: dict[str, Callable[[Row], Iterator[Caused | Broken]]] = {"sales": of_sale, "visits": of_visit}
FED_BY = {"buyers": ("sales", "visits"), "places": ("sales", "visits")}


def _caused(
    table: str, key: Key, column: str, method: str, value: Any, order: int, fits: bool = True
) -> Caused | Broken:
    broken = None in key or not fits
    return Broken(table, column) if broken else Caused(table, key, column, method, value, order)


def market(
    home: Path, fold_after: int = 0, horizon: int = 2**40, buckets: int | None = None, together: bool = False
) -> hy.Pipeline:
    """The market's pipeline; its rules are one text, or two."""
    pipeline = hy.Pipeline("market", home, clock=lambda: 0, buckets=buckets)
    pipeline.stream("sales", SALES, "at", id="id", time_unit="us", max_ahead=None)
    pipeline.stream("visits", VISITS, "at", id="id", time_unit="us", max_ahead=None)
    for name, (key, columns) in TABLES.items():
        types = {column: getattr(hy, kind)() for column, kind in columns.items()}
        pipeline.table(name, key=key, fold_after=fold_after, horizon=horizon, **types)
    for text in [f"{SALES_RULES}---{VISITS_RULES}"] if together else [SALES_RULES, VISITS_RULES]:
        pipeline.rules(text=text)
    return pipeline


Log = Mapping[str, Sequence[Row]]
"""The records of each stream, in the order of its log."""


@dataclass(slots=True)
class Expected:
    """What one table must hold, what its stage must refuse, by stream and offset, with the columns whose rules were
    broken (none: too old), and how many records it reads."""

    updates: dict[tuple[Any, ...], Caused] = field(default_factory=dict)
    dead: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    read: int = 0

    def answers(self, table: str, as_of: int | None = None) -> Answers:
        """The rows, of all events or of those up to a time."""
        columns = TABLES[table][1]
        found: dict[Key, dict[str, list[Caused]]] = defaultdict(lambda: {name: [] for name in columns})
        for version in sorted(self.updates):
            each = self.updates[version]
            if as_of is None or version[0] <= as_of:
                found[each.key][each.column].append(each)
        return {
            key: {name: VALUES[columns[name]](each) for name, each in by_column.items()}
            for key, by_column in found.items()
        }


def expected(log: Log, horizon: int) -> dict[str, Expected]:
    """What each table must come to."""
    tables = {name: Expected() for name in TABLES}
    for source, rows in log.items():
        too_old = too_old_ones([row["at"] for row in rows], horizon)
        for offset, row in enumerate(rows):
            for name, table in tables.items():
                table.read += source in FED_BY[name]
                if offset in too_old and source in FED_BY[name]:
                    table.dead[source, offset] = set()
            if offset in too_old:
                continue
            for each in CAUSES[source](row):
                if isinstance(each, Broken):
                    tables[each.table].dead.setdefault((source, offset), set()).add(each.column)
                else:
                    version = (row["at"], id_order(row["id"]), each.order)
                    tables[each.table].updates[version] = each
    return tables


def too_old_ones(times: Sequence[int], horizon: int) -> set[int]:
    """Offsets of records older than the running maximum before them less the horizon."""
    old, peak = set(), None
    for offset, at in enumerate(times):
        if peak is not None and at < peak - horizon:
            old.add(offset)
        peak = at if peak is None else max(peak, at)
    return old


def id_order(id: str | int) -> tuple[int, Any]:
    return (1, id) if isinstance(id, int) else (3, id)


def _counter(operations: Sequence[Caused]) -> Any:
    return plain(sum(each.value for each in operations))


def _register(operations: Sequence[Caused]) -> Any:
    return plain(operations[-1].value) if operations else None


def _greatest(operations: Sequence[Caused]) -> Any:
    return plain(max((each.value for each in operations), default=None))


def _elements(values: Iterable[Any]) -> list[Any]:
    return sorted(set(values), key=lambda value: (value is not None, value or ""))  # jq's order, of texts and null


def _gset(operations: Sequence[Caused]) -> Any:
    return _elements(each.value for each in operations)


def _lww_set(operations: Sequence[Caused]) -> Any:
    latest = {each.value: each.method for each in operations}
    return _elements(value for value, method in latest.items() if method == "add")


def _map_counter(operations: Sequence[Caused]) -> Any:
    sums: dict[str, Any] = {}
    for each in operations:
        for key, amount in each.value.items():
            sums[key] = sums.get(key, 0) + amount
    return {key: plain(sums[key]) for key in sorted(sums)}


def _map_set(operations: Sequence[Caused]) -> Any:
    sets: dict[str, set[Any]] = {}
    for each in operations:
        for key, element in each.value.items():
            sets.setdefault(key, set()).add(element)
    return {key: _elements(sets[key]) for key in sorted(sets)}


VALUES: dict[str, Callable[[Sequence[Caused]], Any]] = {
    "Counter": _counter,
    "Register": _register,
    "MaxRegister": _greatest,
    "GSet": _gset,
    "LWWSet": _lww_set,
    "MapCounter": _map_counter,
    "MapSet": _map_set,
}


def plain(value: Any) -> Any:
    """A decimal as a plain number, as JSON has it."""
    if not isinstance(value, Decimal):
        return value
    return int(value) if value == value.to_integral_value() else float(value)


# ------------------------------------------------------------------------------------------------ reading


def answers_of(pipeline: hy.Pipeline, name: str, as_of: int | None = None) -> Answers:
    """A whole table."""
    parts = pipeline.declaration.table(name).key
    found: Answers = {}
    for row in pipeline.table(name).rows(as_of=as_of):
        key = tuple(row.pop(part) for part in parts)
        assert key not in found, "a row stands there twice"
        found[key] = row
    return found


def check(pipeline: hy.Pipeline, log: Log, horizon: int, again: bool = False) -> None:
    """The market's tables, dead letters and figures are what the model says; `again` if stages may have begun anew, which
    leaves the dead letters of before."""
    wanted = expected(log, horizon)
    for name, table in wanted.items():
        assert answers_of(pipeline, name) == table.answers(name), name
        assert dead_of(pipeline, name, again) == table.dead, name
        assert figures_of(pipeline, name) == (table.read, table.read - len(table.dead), len(table.dead)), name


def dead_of(pipeline: hy.Pipeline, table: str, again: bool = False) -> dict[tuple[str, int], set[str]]:
    """The dead letters of a table's stage: where, and the columns whose rules they name."""
    found: dict[tuple[str, int], set[str]] = {}
    for row in pipeline.dead_letters():
        if row["stage"] == table:
            place = (row["stream"], row["offset"])
            assert again or place not in found, "a record is refused once"
            named = {column for column in TABLES[table][1] if f"{table}.{column}" in row["reason"]}
            assert named or "horizon" in row["reason"], row["reason"]
            found[place] = named
    return found


def figures_of(pipeline: hy.Pipeline, table: str) -> tuple[int, int, int]:
    each = pipeline.progress().totals[table]
    assert (each.waiting, each.spoiled) == (0, 0)
    assert each.read == each.processed + each.dead
    return each.read, each.processed, each.dead


# ------------------------------------------------------------------------------------------------ a program to be killed

ROWS, HORIZON, FOLD_AFTER = 25, 300, 60
COUNTRIES, USERS, AMOUNTS = ["jp", "fr", None], ["a", "b", "c", None], [None, "1", "2.5", "-3.75", "1000000"]


def chunk(number: int) -> dict[str, list[Row]]:
    """The records of one append to each stream: about in order, some too old, some that break rules, some repeated."""
    draw = random.Random(number)
    made: dict[str, list[Row]] = {"sales": [], "visits": []}
    for place in range(ROWS):
        event = number * ROWS + place
        if event and draw.random() < 0.2:  # one of a chunk before, or of this one, once more
            event = draw.randrange(max(0, event - 3 * ROWS), event)
        source, row = market_event(event)
        made[source].append(row)
    return made


def market_event(number: int) -> tuple[str, Row]:
    """The event of a number: always the same one."""
    draw = random.Random(f"event {number}")
    at = number * 10 + draw.choice([0, 5, -40, -draw.randint(0, 2 * HORIZON)])
    place = {"country": draw.choice(COUNTRIES), "user": draw.choice(USERS)}
    if draw.random() < 0.6:
        amount = draw.choice(AMOUNTS)
        kind = draw.choice(["purchase", "purchase", "refund", "view", None])
        money = None if amount is None else Decimal(amount)
        return "sales", {"at": at, "id": f"sale {number}", "kind": kind, **place, "amount": money}
    return "visits", {"at": at, "id": number, **place, "page": draw.choice(["basket", "bin", "home", None])}


def log_of(chunks: int) -> dict[str, list[Row]]:
    log: dict[str, list[Row]] = {"sales": [], "visits": []}
    for number in range(chunks):
        for source, rows in chunk(number).items():
            log[source] += rows
    return log


def killed_pipeline(home: Path) -> hy.Pipeline:
    return market(home, FOLD_AFTER, HORIZON, buckets=2)


def check_whole(home: Path, chunks: int) -> None:
    """What was killed and started again has come to what it must."""
    check(killed_pipeline(home), log_of(chunks), HORIZON)


def append_chunk(pipeline: hy.Pipeline, number: int) -> bool:
    """Append a chunk; whether any of it is new. A sequence lets an append of an earlier life be known again."""
    new = [
        not pipeline.append(source, rows, producer="till", sequence=number).repeated
        for source, rows in chunk(number).items()
        if rows
    ]
    return any(new)


def _plainly(pipeline: hy.Pipeline, chunks: int) -> None:
    """Append, run and fold by turns, in this process."""
    with pipeline.home.lock():
        pipeline.apply()
        with closing(InProcess(pipeline.home, lambda: 0)) as runner:
            for number in range(chunks):
                append_chunk(pipeline, number)
                runner.run_until_idle()
                housekeeping.run_housekeeping(pipeline.home, 0, runner.commits)


def main(home: Path, chunks: int, spark: bool) -> None:
    housekeeping.PAUSE = 0.05  # so that folding, too, is met
    pipeline = killed_pipeline(home)
    if not spark:
        _plainly(pipeline, chunks)
        return
    from hayase.engine.spark.runner import run_lanes

    committed = threading.Event()
    with pipeline.home.lock():
        pipeline.apply()
        with run_lanes(pipeline.home, on_commit=lambda manifest: committed.set()) as lane:
            for number in range(chunks):
                committed.clear()
                if append_chunk(pipeline, number):
                    while not committed.wait(0.2):
                        lane.check()
            while not lane.is_idle():
                lane.check()
                time.sleep(0.02)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), "--spark" in sys.argv)
