"""Computes the results of the shop from its events in plain Python: loops, dicts and sums.

It uses no batches, lanes, processes or files. An order is late for the queries if its time is before the greatest time of
the orders before it, less the slack. The table takes late orders too, and a repeated order once.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from typing import Any

from hayase.core.data_classes import dataclass
from hayase.demo.events import FAULTY_ITEMS
from hayase.demo.scoring import risk

__all__ = ["ExpectedResults", "Interval", "coalesce", "expected_results", "fits_stream"]

Record = Mapping[str, Any]
Row = tuple[Any, ...]
Interval = tuple[Row, datetime, datetime | None]
"""A row with its lifetime; the end is None if it is not reached yet."""

MINUTE = timedelta(minutes=1)
WINDOWS = {"1 minute": MINUTE, "10 minutes": 10 * MINUTE, "1 hour": 60 * MINUTE}
COLUMNS = {"time", "uuid", "type", "user_id", "item", "amount"}
LINE = re.compile(r'\d+\.\d+\.\d+\.\d+ - - \[.*\] "[A-Z]+ \S+ HTTP/1\.1" \d+ \d+ ".*" ".*"')


@dataclass(slots=True)
class ExpectedResults:
    """All results of the shop. `dead` has the offsets of the records that become dead letters, by stage."""

    spree: list[Interval] = field(default_factory=list)
    revenue: list[Interval] = field(default_factory=list)
    purchases: dict[str, dict[str, Any]] = field(default_factory=dict)
    blocked: dict[str, tuple[int, str]] = field(default_factory=dict)
    scores: Counter[Row] = field(default_factory=Counter)
    dead: dict[str, set[int]] = field(default_factory=dict)


def fits_stream(order: Record) -> bool:
    """Whether an order fits the schema of its stream; the append refuses the others."""
    amount = order.get("amount")
    return order.keys() <= COLUMNS and order.get("time") is not None and (amount is None or isinstance(amount, int))


def expected_results(
    orders: Sequence[Record], lines: Sequence[Record], blocklist: Mapping[str, str], slack: timedelta, threshold: int
) -> ExpectedResults:
    """Compute the results from the accepted orders (at least one) and lines, in the order of their offsets."""
    late = set(_late_offsets(orders, slack))
    in_time = sorted((order for at, order in enumerate(orders) if at not in late), key=lambda order: order["time"])
    first, last = in_time[0]["time"], in_time[-1]["time"]
    purchases = [order for order in in_time if order["type"] == "purchase"]
    unscored = {at for at, order in enumerate(orders) if order["item"] in FAULTY_ITEMS or order["amount"] is None}
    return ExpectedResults(
        spree=_sprees(purchases, last, threshold),
        revenue=_revenue(purchases, first, last),
        purchases=_table_rows(orders),
        blocked=_blocked_hits(lines, blocklist),
        scores=Counter(
            (order["time"], order["uuid"], order["user_id"], risk(dict(order)))
            for at, order in enumerate(orders)
            if at not in unscored
        ),
        dead={
            "spree": late,
            "revenue": late,
            "purchases": {
                at for at, order in enumerate(orders) if order["type"] == "purchase" and order["amount"] is None
            },
            "traffic": {at for at, line in enumerate(lines) if not LINE.fullmatch(line["line"])},
            "blocked": set(),
            "scores": unscored,
        },
    )


def _late_offsets(orders: Iterable[Record], slack: timedelta) -> Iterator[int]:
    latest: datetime | None = None
    for offset, order in enumerate(orders):
        if latest is not None and order["time"] < latest - slack:
            yield offset
        latest = order["time"] if latest is None else max(latest, order["time"])


def _total(orders: Iterable[Record]) -> int | None:
    amounts = [order["amount"] for order in orders if order["amount"] is not None]
    return sum(amounts) if amounts else None


def _sprees(purchases: Sequence[Record], last: datetime, threshold: int) -> list[Interval]:
    """For each customer and each instant at which a purchase enters or leaves the window of ten minutes, sum the window."""
    by_user: dict[str, list[Record]] = defaultdict(list)
    for purchase in purchases:
        by_user[purchase["user_id"]].append(purchase)
    sprees: list[Interval] = []
    for user, orders in by_user.items():
        times = {order["time"] for order in orders} | {order["time"] + 10 * MINUTE for order in orders}
        instants = sorted(time for time in times if time <= last)
        begin = end = 0
        for since, until in zip(instants, [*instants[1:], None]):
            while end < len(orders) and orders[end]["time"] <= since:
                end += 1
            while begin < end and orders[begin]["time"] + 10 * MINUTE <= since:
                begin += 1
            spent = _total(orders[begin:end])
            if spent is not None and spent >= threshold:
                sprees.append(((user, end - begin, spent), since, until))
    return coalesce(sprees)


def _revenue(purchases: Sequence[Record], begin: datetime, last: datetime) -> list[Interval]:
    """For each window, sum it at full minutes; it is empty from the first order to the next full minute."""
    rows: list[Interval] = []
    times = [purchase["time"] for purchase in purchases]
    for name, length in WINDOWS.items():
        changes = {begin} | {_next_full_minute(time + later) for time in times for later in (timedelta(0), length)}
        instants = sorted(instant for instant in changes if instant <= last)
        for since, until in zip(instants, [*instants[1:], None]):
            minute = since.replace(second=0, microsecond=0)
            inside = purchases[bisect_right(times, minute - length) : bisect_right(times, minute)]
            largest = max((order["amount"] for order in inside if order["amount"] is not None), default=None)
            rows.append(((name, len(inside), _total(inside), largest), since, until))
    return coalesce(rows)


def _next_full_minute(time: datetime) -> datetime:
    """Return the first full minute that is not before a time."""
    minute = time.replace(second=0, microsecond=0)
    return minute if minute == time else minute + MINUTE


def coalesce(intervals: Iterable[Interval]) -> list[Interval]:
    """Join adjacent intervals of equal rows; return them sorted by row and start."""
    joined: list[Interval] = []
    for row, since, until in sorted(intervals, key=lambda interval: (tuple(map(str, interval[0])), interval[1])):
        if joined and joined[-1][0] == row and joined[-1][2] == since:
            since = joined.pop()[1]
        joined.append((row, since, until))
    return joined


def _table_rows(orders: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """Apply each order once, in the order of event times; one without an amount adds nothing to the sums. At equal times
    purchases come first: an item that is put into the basket at the instant of its purchase stays in it."""
    once = {order["uuid"]: order for order in orders}
    rows: dict[str, dict[str, Any]] = {}
    for order in sorted(once.values(), key=lambda order: (order["time"], order["type"] == "basket", order["uuid"])):
        row = rows.setdefault(
            order["user_id"], {"orders": 0, "total": 0, "last_purchase_time": None, "by_day": {}, "basket": []}
        )
        if order["type"] == "basket":
            row["basket"] = sorted({*row["basket"], order["item"]})
            continue
        row["orders"] += 1
        row["last_purchase_time"] = order["time"]
        row["basket"] = [item for item in row["basket"] if item != order["item"]]
        if order["amount"] is not None:
            day = f"{order['time']:%Y-%m-%d}"
            row["total"] += order["amount"]
            row["by_day"] = dict(sorted({**row["by_day"], day: row["by_day"].get(day, 0) + order["amount"]}.items()))
    return rows


def _blocked_hits(lines: Iterable[Record], blocklist: Mapping[str, str]) -> dict[str, tuple[int, str]]:
    """Return the number of requests and the reason for each blocked address that sent any."""
    hits = Counter(line["line"].split()[0] for line in lines if LINE.fullmatch(line["line"]))
    return {address: (hits[address], reason) for address, reason in blocklist.items() if hits[address]}
