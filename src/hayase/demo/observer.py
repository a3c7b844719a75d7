"""What there is to see while the shop runs, gathered a few times a second: results that come and go, tables that change."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from hayase.engine.results.query_results import Results
from hayase.pipeline import Pipeline
from hayase.streams.dead_letters import DEAD

__all__ = ["Move", "Sight", "Watch"]

Row = Mapping[str, Any]
KEPT = 40
"""Moves and dead letters that are remembered."""
BUYERS = 14
"""Customers whose rows of the table are looked up."""


@dataclass(frozen=True, slots=True)
class Move:
    """A customer who goes on a spree (+), or whose spree is over (-): since when, and with what."""

    sign: str
    at: datetime
    row: Row


@dataclass(frozen=True, slots=True)
class Sight:
    """One look at the shop. `fresh` are the customers whose rows of the table have changed since the look before."""

    clock: datetime | None = None
    spree: Sequence[Row] = ()
    moves: Sequence[Move] = ()
    revenue: Sequence[Row] = ()
    purchases: Sequence[Row] = ()
    fresh: frozenset[str] = frozenset()
    blocked: Mapping[str, int] = field(default_factory=dict)
    scores: int = 0
    letters: Sequence[Row] = ()


class Watch:
    """Looks at the results of a pipeline; each look reads what is new since the one before."""

    def __init__(self, pipeline: Pipeline):
        self._spree, self._revenue = pipeline.results("spree"), pipeline.results("revenue")
        self._purchases = pipeline.table("purchases")
        self._blocked, self._dead = pipeline.results("blocked"), pipeline.results(DEAD.name)
        self._scores, self._orders = pipeline.results("scores"), pipeline.results("orders")
        self._buyers: dict[str, None] = {}
        self._read: dict[str, int] = {}
        self._hits: Counter[str] = Counter()
        self._moves: deque[Move] = deque(maxlen=KEPT)
        self._letters: deque[Row] = deque(maxlen=KEPT)
        self._on_spree: dict[str, Row] = {}
        self._rows: dict[str, Row] = {}

    def look(self) -> Sight:
        """The shop as it is committed now."""
        clock = self._revenue.final()
        now: dict[str, Row] = {row["user_id"]: row for row in self._spree.at()}
        if clock is not None:
            self._moves += [Move("-", clock, row) for user, row in self._on_spree.items() if user not in now]
            self._moves += [Move("+", clock, row) for user, row in now.items() if user not in self._on_spree]
        self._on_spree = now
        for row in self._new(self._blocked):
            self._hits[row["address"]] += row["hits"]
        self._letters += self._new(self._dead)
        rows = self._bought()
        fresh = frozenset(user for user, row in rows.items() if self._rows.get(user) != row)
        self._rows = rows
        return Sight(
            clock=clock,
            spree=sorted(now.values(), key=lambda row: -row["spent"]),
            moves=tuple(self._moves),
            revenue=sorted(self._revenue.at(), key=lambda row: row["orders"]),
            purchases=list(rows.values()),
            fresh=fresh,
            blocked=dict(self._hits.most_common()),
            scores=self._scores.log.index().next,
            letters=tuple(self._letters),
        )

    def _bought(self) -> dict[str, Row]:
        """The rows of those who have bought something, the latest first."""
        for order in self._new(self._orders):
            if order["type"] == "purchase":
                self._buyers.pop(order["user_id"], None)
                self._buyers[order["user_id"]] = None
        buyers = list(reversed(self._buyers))[:BUYERS]
        rows = zip(buyers, self._purchases.get_many(buyers))
        return {user: {"user_id": user, **row} for user, row in rows if row and row["last_purchase_time"]}

    def _new(self, results: Results) -> list[dict[str, Any]]:
        name = results.log.declaration.name
        first = self._read.get(name, 0)
        found = results.table(first)
        self._read[name] = first + found.num_rows
        return list(found.to_pylist())
