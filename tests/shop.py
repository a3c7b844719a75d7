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
LARGEST = 2**63 - 1
REASONS = ("late", "amount * 2", "sum(amount)")


@dataclass(frozen=True, slots=True)
class Event:
    at: int
    user: str | None
    amount: int | None

    def row(self) -> dict[str, Any]:
        return {"at": self.at, "user": self.user, "amount": self.amount}


@dataclass(slots=True)
class Expected:
    """What a stage gives: rows as a multiset, dead letters as (offset, what the reason speaks of), the figures."""

    rows: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    dead: Counter[tuple[int, str]] = field(default_factory=Counter)
    read: int = 0
    waiting: int = 0

    @property
    def figures(self) -> tuple[int, int, int, int, int]:
        dead = self.dead.total()
        return (self.read, self.read - dead - self.waiting, dead, self.waiting, self.rows.total())


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
    for at, offset in taken:
        if at > clock and not finished:
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
        found.rows[event.user, n + 1, known, spent, at] += 1
    return found


def expected_ranks(spend: Expected) -> Expected:
    """How many users came to their n-th purchase: reads what `spend` made, in time order."""
    found = Expected(read=spend.rows.total())
    count: Counter[int] = Counter()
    for _, n, _, _, at in sorted(spend.rows.elements(), key=lambda row: row[-1]):
        count[n] += 1
        found.rows[n, count[n], at] += 1
    return found


def expected(events: Sequence[Event], slack: int, finished: bool) -> dict[str, Expected]:
    spend = expected_spend(events, slack, finished)
    counted = expected_spend([Event(each.at, each.user, None) for each in events], slack, finished)
    again = Expected(Counter(), counted.dead, counted.read, counted.waiting)
    for row in counted.rows.elements():
        again.rows[row[0], row[1], row[-1]] += 1
    copy = Expected(Counter((each.user, each.amount, each.at) for each in events), read=len(events))
    return {"big": expected_big(events), "copy": copy, "spend": spend, "ranks": expected_ranks(spend), "again": again}


def shop(
    home: Path, slack: int = 0, queries: Iterable[str] = QUERIES, clock: Callable[[], int] = lambda: 0, **more: Any
) -> hy.Pipeline:
    """The pipeline, with some or all of its queries."""
    pipeline = hy.Pipeline("shop", home, clock=clock)
    pipeline.stream("events", EVENTS, "at", time_unit="us", slack=slack, max_ahead=None, **more)
    for name in queries:
        pipeline.query(name, QUERIES[name])
    return pipeline


def rows_of(pipeline: hy.Pipeline, name: str) -> Counter[tuple[Any, ...]]:
    """What is in a stream now, as a multiset."""
    return Counter(tuple(row.values()) for row in pipeline.results(name).table().to_pylist())


def dead_of(pipeline: hy.Pipeline, stage: str) -> Counter[tuple[int, str]]:
    """The dead letters of a stage: offset, and what the reason speaks of."""
    found: Counter[tuple[int, str]] = Counter()
    for row in pipeline.dead_letters():
        if row["stage"] == stage:
            found[row["offset"], next(each for each in REASONS if each in row["reason"])] += 1
    return found


def figures_of(pipeline: hy.Pipeline, stage: str) -> tuple[int, int, int, int, int]:
    each = pipeline.progress().totals[stage]
    return (each.read, each.processed, each.dead, each.waiting, each.written)


def check(pipeline: hy.Pipeline, want: dict[str, Expected], stages: Iterable[str] | None = None) -> None:
    """The streams, dead letters and figures of the stages are what the model says."""
    for name in [each.name for each in pipeline.declaration.queries] if stages is None else stages:
        assert rows_of(pipeline, name) == want[name].rows, name
        assert dead_of(pipeline, name) == want[name].dead, name
        assert figures_of(pipeline, name) == want[name].figures, name
