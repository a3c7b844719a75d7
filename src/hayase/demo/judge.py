"""What must come out of the shop, by plain Python over the same events: loops, dicts and sums, from beginning to end.

It knows nothing of batches, lanes, processes or files. An order is late for the queries if it is older than the latest
order before it less the slack; the table takes it all the same, and takes a repeated one once.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from hayase.demo.scoring import risk

__all__ = ["Interval", "Verdict", "coalesced", "is_taken", "verdict"]

Record = Mapping[str, Any]
Row = tuple[Any, ...]
Interval = tuple[Row, datetime, datetime | None]
"""A row, from when it is valid, and until when, if that has come."""

MINUTE = timedelta(minutes=1)
WINDOWS = {"1 minute": MINUTE, "10 minutes": 10 * MINUTE, "1 hour": 60 * MINUTE}
UNBEARABLE = ("cursed mirror", "paper dragon", "endless scarf")
COLUMNS = {"time", "uuid", "type", "user_id", "item", "amount"}
LINE = re.compile(r'\d+\.\d+\.\d+\.\d+ - - \[.*\] "[A-Z]+ \S+ HTTP/1\.1" \d+ \d+ ".*" ".*"')


@dataclass(slots=True)
class Verdict:
    """All results of the shop. Dead letters are told by the offsets of the records, stage by stage."""

    spree: list[Interval] = field(default_factory=list)
    revenue: list[Interval] = field(default_factory=list)
    purchases: dict[str, dict[str, Any]] = field(default_factory=dict)
    blocked: dict[str, tuple[int, str]] = field(default_factory=dict)
    scores: Counter[Row] = field(default_factory=Counter)
    dead: dict[str, set[int]] = field(default_factory=dict)


def is_taken(order: Record) -> bool:
    """Whether an order that is sent fits its stream; the others are refused at the door."""
    amount = order.get("amount")
    return order.keys() <= COLUMNS and order.get("time") is not None and (amount is None or isinstance(amount, int))


def verdict(
    orders: Sequence[Record], lines: Sequence[Record], blocklist: Mapping[str, str], slack: timedelta, threshold: int
) -> Verdict:
    """The results of these orders and lines of the log, in the order in which they were taken; there is an order at least."""
    late = set(_late(orders, slack))
    in_time = sorted((each for at, each in enumerate(orders) if at not in late), key=lambda each: each["time"])
    first, last = in_time[0]["time"], in_time[-1]["time"]
    bought = [each for each in in_time if each["type"] == "purchase"]
    unscored = {at for at, each in enumerate(orders) if each["item"] in UNBEARABLE or each["amount"] is None}
    return Verdict(
        spree=_spree(bought, last, threshold),
        revenue=_revenue(bought, first, last),
        purchases=_purchases(orders),
        blocked=_blocked(lines, blocklist),
        scores=Counter(
            (each["time"], each["uuid"], each["user_id"], risk(dict(each)))
            for at, each in enumerate(orders)
            if at not in unscored
        ),
        dead={
            "spree": late,
            "revenue": late,
            "purchases": {
                at for at, each in enumerate(orders) if each["type"] == "purchase" and each["amount"] is None
            },
            "traffic": {at for at, each in enumerate(lines) if not LINE.fullmatch(each["line"])},
            "blocked": set(),
            "scores": unscored,
        },
    )


def _late(orders: Iterable[Record], slack: timedelta) -> Iterator[int]:
    """The offsets of those that come too late."""
    latest: datetime | None = None
    for at, each in enumerate(orders):
        if latest is not None and each["time"] < latest - slack:
            yield at
        latest = each["time"] if latest is None else max(latest, each["time"])


def _total(orders: Iterable[Record]) -> int | None:
    amounts = [each["amount"] for each in orders if each["amount"] is not None]
    return sum(amounts) if amounts else None


def _spree(bought: Sequence[Record], last: datetime, threshold: int) -> list[Interval]:
    """Customer by customer: at every instant at which an order comes or is ten minutes old, what the orders that are alive
    then come to."""
    by_user: dict[str, list[Record]] = defaultdict(list)
    for each in bought:
        by_user[each["user_id"]].append(each)
    found: list[Interval] = []
    for user, orders in by_user.items():
        times = {each["time"] for each in orders} | {each["time"] + 10 * MINUTE for each in orders}
        instants = sorted(time for time in times if time <= last)
        begin = end = 0
        for since, until in zip(instants, [*instants[1:], None]):
            while end < len(orders) and orders[end]["time"] <= since:
                end += 1
            while begin < end and orders[begin]["time"] + 10 * MINUTE <= since:
                begin += 1
            spent = _total(orders[begin:end])
            if spent is not None and spent >= threshold:
                found.append(((user, end - begin, spent), since, until))
    return coalesced(found)


def _revenue(bought: Sequence[Record], begin: datetime, last: datetime) -> list[Interval]:
    """At full minutes, for each window, what was bought in it; nothing, from the first order to the next minute."""
    found: list[Interval] = []
    times = [each["time"] for each in bought]
    for name, length in WINDOWS.items():
        instants = {begin} | {_full_minute(time + later) for time in times for later in (timedelta(0), length)}
        passed = sorted(each for each in instants if each <= last)
        for since, until in zip(passed, [*passed[1:], None]):
            minute = since.replace(second=0, microsecond=0)
            inside = bought[bisect_right(times, minute - length) : bisect_right(times, minute)]
            largest = max((each["amount"] for each in inside if each["amount"] is not None), default=None)
            found.append(((name, len(inside), _total(inside), largest), since, until))
    return coalesced(found)


def _full_minute(time: datetime) -> datetime:
    """The first full minute that is not before a time."""
    minute = time.replace(second=0, microsecond=0)
    return minute if minute == time else minute + MINUTE


def coalesced(intervals: Iterable[Interval]) -> list[Interval]:
    """Intervals of equal rows that follow upon each other as one, all in the order of their rows and beginnings."""
    found: list[Interval] = []
    for row, since, until in sorted(intervals, key=lambda each: (tuple(map(str, each[0])), each[1])):
        if found and found[-1][0] == row and found[-1][2] == since:
            since = found.pop()[1]
        found.append((row, since, until))
    return found


def _purchases(orders: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """The table, by the events in the order of their times, each once; one without an amount adds none. What is put into a basket
    as it is bought stays there: so purchases come first."""
    once = {each["uuid"]: each for each in orders}
    found: dict[str, dict[str, Any]] = {}
    for each in sorted(once.values(), key=lambda each: (each["time"], each["type"] == "basket", each["uuid"])):
        row = found.setdefault(
            each["user_id"], {"orders": 0, "total": 0, "last_purchase_time": None, "by_day": {}, "basket": []}
        )
        if each["type"] == "basket":
            row["basket"] = sorted({*row["basket"], each["item"]})
            continue
        row["orders"] += 1
        row["last_purchase_time"] = each["time"]
        row["basket"] = [item for item in row["basket"] if item != each["item"]]
        if each["amount"] is not None:
            day = f"{each['time']:%Y-%m-%d}"
            row["total"] += each["amount"]
            row["by_day"] = dict(sorted({**row["by_day"], day: row["by_day"].get(day, 0) + each["amount"]}.items()))
    return found


def _blocked(lines: Iterable[Record], blocklist: Mapping[str, str]) -> dict[str, tuple[int, str]]:
    """How often each blocked address came, and why it is blocked."""
    hits = Counter(each["line"].split()[0] for each in lines if LINE.fullmatch(each["line"]))
    return {address: (hits[address], reason) for address, reason in blocklist.items() if hits[address]}
