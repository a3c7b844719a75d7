"""A small shop to test the engine with: its pipeline, and what must come out, computed by plain Python.

The model knows nothing of batches, buckets, files or processes: it says what the words of the design mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hayase as hy

EVENTS = "at bigint not null, user string, amount bigint"
BIG = "select user, amount * 2 as twice from events where amount > 1"
COPY = "select user, amount from events"
SPEND = "select user, count(*) as n, count(amount) as known, sum(amount) as spent from events group by user"
RANKS = "select n, count(*) as users from spend group by n"
AGAIN = "select user, count(*) as n from copy group by user"
QUERIES = {"big": BIG, "copy": COPY, "spend": SPEND, "ranks": RANKS, "again": AGAIN}
WINDOWED = {
    "recent": "select user, sum(amount) as spent, max(amount) as most from events [Range 30 microseconds] group by user",
    "latest": "select count(*) as n, avg(amount) as mean from events [Rows 7] where amount > 1",
    "pairs": "select a.user, a.amount, b.amount as other from events [Rows 5] a, events [Partition By user Rows 2] b "
    "where a.user = b.user and a.amount < b.amount",
    "gone": "select user from events [Range 40 microseconds] except select user from events [Range 10 microseconds]",
    "alone": "select a.user, a.amount, b.at from events [Range 20 microseconds] a "
    "left join events [Range 20 microseconds Slide 7 microseconds] b on a.amount = b.amount and a.user <> b.user",
    "crowds": "select n, count(*) as users from "
    "(select user, count(*) as n from events [Range 50 microseconds] group by user) group by n",
    "entered": "Istream(select distinct user from events [Range 25 microseconds])",
    "asked": "Rstream(select a.user, b.n from events [Now] a join "
    "(select user, count(*) as n from events [Rows 9] group by user) b on a.user = b.user)",
    "moves": "select count(*) as n, max(amount) as most, first(amount) as oldest from events [Rows 5, 9, 20 Slide 3]",
    "longer": "select last(user) as newest, avg(amount) as mean from events [Rows 40 Slide 4]",
    "tides": "select user, min(amount) as least, count(*) as n "
    "from events [Range 20 microseconds, 70 microseconds Slide 5 microseconds] group by user",
    "leaders": "select user, count(*) as n from events [Range 50 microseconds] group by user order by n desc limit 2 offset 1",
    "tied": 'select distinct on (user) user, amount from events [Range 30 microseconds] order by "at" desc',
    "largest": "select user, amount, rank() over (partition by user order by amount desc) as place "
    "from events [Range 40 microseconds] qualify place <= 2",
    "before": 'select user, amount, lag(amount) over (partition by user order by "at") as previous from events [Rows 12]',
    "asof": "select a.user, a.amount, b.amount as newest from events [Rows 9] a "
    'asof left join events [Range 30 microseconds] b on a.user = b.user and a."at" > b."at"',
    "near": "select a.user, a.amount, b.amount as later from events a join events b "
    'on a.user = b.user and b."at" between a."at" + 1 and a."at" + 20 '
    "and exists (select 1 from events [Rows 99] c where c.user = b.user)",
    "kinds": "select {'user': user, 'amounts': [amount]} as kind, count(*) as n from events [Range 30 microseconds] group by kind",
    "tops": 'select user, max(amount) as most, arg_max("at", amount) as at_most '
    "from events [Partition By user Rows 3, 8] group by user",
    "middles": "select user, median(amount) as middle, list(amount) as amounts, sum(amount) as spent, last(amount) as newest "
    "from events [Range 30 microseconds] group by user",
    "above": "select user, amount, (select count(*) from events [Rows 5] as b where b.user = a.user) as n "
    "from events [Range 20 microseconds] as a where amount > (select min(amount) from events [Rows 6]) "
    "or user in (select user from events [Now])",
    "levels": "select user, amount, count(*) as n, string_agg(distinct user, '-') as users, grouping(user) as of_all "
    "from events [Rows 12] group by cube (user, amount)",
    "hours": "select user, window_start, window_end, count(*) as n, max(amount) as most, last(amount) as newest "
    "from events [Hop 30 microseconds Every 7 microseconds Offset 3 microseconds] group by user, window_start, window_end",
    "days": "select window_end, sum(amount) as spent, is_final "
    "from events [Cumulate 40 microseconds By 20 microseconds Early 5 microseconds] group by window_start, window_end, is_final",
    "visits": "select user, window_start, window_end, count(*) as n, min(amount) as least "
    "from events [Session 3 microseconds Keep Unbounded] where amount > 1 group by user, window_start, window_end",
    "stays": "select user, amount, window_start, window_end "
    "from events [Partition By user Session 4 microseconds] where amount < 9",
}
"""Windows, joins and set operations, a self-join, a cut into two stages, windows that share a pass; judged by other runs
of the same."""
LARGEST = 2**63 - 1
REASONS = ("late", "amount * 2", "sum(amount)")


@dataclass(frozen=True, slots=True)
class Event:
    at: int
    user: str | None
    amount: int | None

    def row(self) -> dict[str, Any]:
        return {"at": self.at, "user": self.user, "amount": self.amount}


Row = tuple[Any, ...]
FOR_EVER = None


@dataclass(slots=True)
class Expected:
    """What a stage gives: rows as a multiset, dead letters as (offset, what the reason speaks of), the figures.

    The rows of a relation end with the time from which they are valid and, if it has come, the time at which they ended.
    How many records a stage reads of another's changes depends on the batches, and is not told.
    """

    rows: Counter[Row] = field(default_factory=Counter)
    dead: Counter[tuple[int, str]] = field(default_factory=Counter)
    read: int | None = None
    waiting: int = 0

    @property
    def figures(self) -> tuple[int, int, int, int] | None:
        dead = self.dead.total()
        return None if self.read is None else (self.read, self.read - dead - self.waiting, dead, self.waiting)


def lifetimes(states: Iterable[tuple[int, Any, Row | None]]) -> Counter[Row]:
    """The rows of a relation from what each key's row is after some instants, in time order; None is not a row."""
    rows: Counter[Row] = Counter()
    now: dict[Any, tuple[Row, int]] = {}
    for at, key, row in states:
        if key in now and now[key][0] == row:
            continue
        if key in now:
            old, since = now.pop(key)
            rows[(*old, since, at)] += 1
        if row is not None:
            now[key] = (row, at)
    rows.update((*row, since, FOR_EVER) for row, since in now.values())
    return rows


def late_ones(times: Sequence[int], slack: int) -> set[int]:
    """Offsets of records older than the running maximum before them less the slack."""
    late, peak = set(), None
    for offset, time in enumerate(times):
        if peak is not None and time < peak - slack:
            late.add(offset)
        peak = time if peak is None else max(peak, time)
    return late


def expected_big(events: Sequence[Event]) -> Expected:
    found = Expected(read=len(events))
    for offset, each in enumerate(events):
        if each.amount is not None and each.amount > 1:
            if each.amount * 2 > LARGEST:
                found.dead[offset, "amount * 2"] += 1
            else:
                found.rows[each.user, each.amount * 2, each.at] += 1
    return found


def expected_spend(events: Sequence[Event], slack: int, finished: bool) -> Expected:
    found = Expected(read=len(events))
    late = late_ones([each.at for each in events], slack)
    found.dead.update((offset, "late") for offset in late)
    taken = sorted((each.at, offset) for offset, each in enumerate(events) if offset not in late)
    clock = max((each.at for each in events), default=0) - slack
    totals: dict[str | None, tuple[int, int, int | None]] = {}
    after: dict[tuple[int, str | None], Row] = {}  # the last at an instant is what holds from then on
    for at, offset in taken:
        if at >= clock and not finished:
            found.waiting += 1
            continue
        event = events[offset]
        n, known, spent = totals.get(event.user, (0, 0, None))
        if event.amount is not None:
            known, spent = known + 1, (spent or 0) + event.amount
            if not -LARGEST - 1 <= spent <= LARGEST:
                found.dead[offset, "sum(amount)"] += 1
                continue
        totals[event.user] = (n + 1, known, spent)
        after[at, event.user] = (event.user, n + 1, known, spent)
    found.rows = lifetimes((at, user, row) for (at, user), row in after.items())
    return found


def expected_ranks(spend: Expected) -> Expected:
    """How many users are at their n-th event, over time."""
    changes: Counter[tuple[int, int]] = Counter()
    for _, n, _, _, since, until in spend.rows.elements():
        changes[since, n] += 1
        if until is not FOR_EVER:
            changes[until, n] -= 1
    users: Counter[int] = Counter()
    states = []
    for (at, n), change in sorted(changes.items()):
        users[n] += change
        states.append((at, n, (n, users[n]) if users[n] else None))
    return Expected(lifetimes(states))


def expected(events: Sequence[Event], slack: int, finished: bool) -> dict[str, Expected]:
    spend = expected_spend(events, slack, finished)
    counted = expected_spend([Event(each.at, each.user, None) for each in events], slack, finished)
    again = Expected(Counter(), counted.dead, counted.read, counted.waiting)
    for user, n, _, _, since, until in counted.rows.elements():
        again.rows[user, n, since, until] += 1
    copy = Expected(Counter((each.user, each.amount, each.at) for each in events), read=len(events))
    return {"big": expected_big(events), "copy": copy, "spend": spend, "ranks": expected_ranks(spend), "again": again}


def shop(
    home: Path,
    slack: int = 0,
    queries: Iterable[str] = QUERIES,
    clock: Callable[[], int] = lambda: 0,
    buckets: int | None = None,
    **more: Any,
) -> hy.Pipeline:
    """The pipeline, with some or all of its queries."""
    pipeline = hy.Pipeline("shop", home, clock=clock, buckets=buckets)
    pipeline.stream("events", EVENTS, "at", time_unit="us", slack=slack, max_ahead=None, **more)
    for name in queries:
        pipeline.query(name, {**QUERIES, **WINDOWED}[name])
    return pipeline


def check_windowed(pipeline: hy.Pipeline, events: Sequence[Event], slack: int, home: Path) -> None:
    """The windowed queries have come to what they come to in one batch and one bucket, without Spark, in another home."""
    plain = shop(home, slack, WINDOWED, buckets=1)
    plain.append("events", [each.row() for each in events])
    plain.finish("events")
    plain.run_until_idle(spark=False)
    for name in WINDOWED:
        found, wanted = (sorted(map(repr, each.query(name).intervals())) for each in (pipeline, plain))
        assert found, name
        assert found == wanted, name
        assert dead_of(pipeline, name) == dead_of(plain, name), name


def rows_of(pipeline: hy.Pipeline, name: str) -> Counter[Row]:
    """What is in a stream now, as a multiset; a row of a relation that was told open and then closed counts once."""
    results = pipeline.results(name)
    found = results.table().to_pylist()
    if not results.log.declaration.lifetimes:
        return Counter(tuple(row.values()) for row in found)
    whole: dict[int, Row] = {}
    for row in sorted(found, key=lambda row: row["event_time"]):
        *values, row_id, valid_from, valid_to, changed_at = row.values()
        assert changed_at == (valid_to if row_id in whole else valid_from)
        assert row_id not in whole or whole[row_id][:-1] == (*values, valid_from)
        assert valid_to is None or valid_from < valid_to
        whole[row_id] = (*values, valid_from, valid_to)
    return Counter(whole.values())


def dead_of(pipeline: hy.Pipeline, stage: str) -> Counter[tuple[int, str]]:
    """The dead letters of a stage: offset, and what the reason speaks of."""
    found: Counter[tuple[int, str]] = Counter()
    for row in pipeline.dead_letters():
        if row["stage"] == stage:
            found[row["offset"], next(each for each in REASONS if each in row["reason"])] += 1
    return found


def figures_of(pipeline: hy.Pipeline, stage: str) -> tuple[int, int, int, int]:
    each = pipeline.progress().totals[stage]
    assert each.read == each.processed + each.dead + each.waiting
    assert each.written == pipeline.results(stage).table().num_rows
    assert each.spoiled == 0
    return (each.read, each.processed, each.dead, each.waiting)


def check(pipeline: hy.Pipeline, want: dict[str, Expected], stages: Iterable[str] | None = None) -> None:
    """The streams, dead letters and figures of the stages are what the model says."""
    for name in [each.name for each in pipeline.declaration.queries] if stages is None else stages:
        assert rows_of(pipeline, name) == want[name].rows, name
        assert dead_of(pipeline, name) == want[name].dead, name
        assert want[name].figures in (None, figures_of(pipeline, name)), name
