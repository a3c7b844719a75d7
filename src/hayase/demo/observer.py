"""Reads the state of the shop while it runs, a few times a second: rows of queries and tables, counts, dead letters."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any

from hayase.core.data_classes import dataclass
from hayase.engine.results.query_results import Results
from hayase.pipeline import Pipeline
from hayase.streams.dead_letters import DEAD

__all__ = ["Observation", "Observer", "SpreeChange"]

Row = Mapping[str, Any]
KEPT = 40
"""How many of the last spree changes and dead letters are kept."""
BUYERS = 14
"""How many customers are looked up in the table."""


@dataclass(frozen=True, slots=True)
class SpreeChange:
    """A customer went on a spree (+) or left it (-), by the event time `at`; `row` is the row that came or went."""

    sign: str
    at: datetime
    row: Row


@dataclass(frozen=True, slots=True)
class Observation:
    """The committed state of the shop. `changed` has the customers whose table rows differ from the observation before."""

    clock: datetime | None = None
    spree: Sequence[Row] = ()
    spree_changes: Sequence[SpreeChange] = ()
    revenue: Sequence[Row] = ()
    purchases: Sequence[Row] = ()
    changed: frozenset[str] = frozenset()
    blocked: Mapping[str, int] = field(default_factory=dict)
    scores: int = 0
    dead_letters: Sequence[Row] = ()


class Observer:
    """Observes a pipeline; each observation reads only the records that are new since the one before."""

    def __init__(self, pipeline: Pipeline):
        self._spree, self._revenue = pipeline.results("spree"), pipeline.results("revenue")
        self._purchases = pipeline.table("purchases")
        self._blocked, self._dead = pipeline.results("blocked"), pipeline.results(DEAD.name)
        self._scores, self._orders = pipeline.results("scores"), pipeline.results("orders")
        self._buyers: dict[str, None] = {}
        self._next_offsets: dict[str, int] = {}
        self._hits: Counter[str] = Counter()
        self._spree_changes: deque[SpreeChange] = deque(maxlen=KEPT)
        self._dead_letters: deque[Row] = deque(maxlen=KEPT)
        self._on_spree: dict[str, Row] = {}
        self._rows: dict[str, Row] = {}

    def observe(self) -> Observation:
        """Return the state that is committed now."""
        clock = self._revenue.final()
        now: dict[str, Row] = {row["user_id"]: row for row in self._spree.at()}
        if clock is not None:
            ended = [SpreeChange("-", clock, row) for user, row in self._on_spree.items() if user not in now]
            begun = [SpreeChange("+", clock, row) for user, row in now.items() if user not in self._on_spree]
            self._spree_changes += ended + begun
        self._on_spree = now
        for row in self._new_records(self._blocked):
            self._hits[row["address"]] += row["hits"]
        self._dead_letters += self._new_records(self._dead)
        before, self._rows = self._rows, self._rows_of_buyers()
        return Observation(
            clock=clock,
            spree=sorted(now.values(), key=lambda row: -row["spent"]),
            spree_changes=tuple(self._spree_changes),
            revenue=sorted(self._revenue.at(), key=lambda row: row["orders"]),
            purchases=list(self._rows.values()),
            changed=frozenset(user for user, row in self._rows.items() if before.get(user) != row),
            blocked=dict(self._hits.most_common()),
            scores=self._scores.log.index().next,
            dead_letters=tuple(self._dead_letters),
        )

    def _rows_of_buyers(self) -> dict[str, Row]:
        """Return the table rows of the customers who bought something last, the latest first."""
        for order in self._new_records(self._orders):
            if order["type"] == "purchase":
                self._buyers.pop(order["user_id"], None)
                self._buyers[order["user_id"]] = None
        buyers = list(reversed(self._buyers))[:BUYERS]
        rows = zip(buyers, self._purchases.get_many(buyers))
        return {user: {"user_id": user, **row} for user, row in rows if row and row["last_purchase_time"]}

    def _new_records(self, results: Results) -> list[dict[str, Any]]:
        name = results.log.declaration.name
        first = self._next_offsets.get(name, 0)
        records = results.table(first)
        self._next_offsets[name] = first + records.num_rows
        return list(records.to_pylist())
