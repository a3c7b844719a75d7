"""Generates the events of the shop: orders and lines of its access log, including late, repeated and malformed ones.

Event time runs faster than the wall clock: a tick is six seconds of it. The events of a tick depend only on the seed and the
number of the tick, so a shop that was stopped continues with the same events.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from hayase.core.data_classes import dataclass

__all__ = ["BEGIN", "BLOCKED", "SLACK", "TICK", "Event", "Shop", "Tick"]

BEGIN = datetime(2025, 12, 31, 23, 50, tzinfo=UTC)
"""When the shop opens, in event time: ten minutes before midnight."""
TICK = timedelta(seconds=6)
"""The event time of one tick."""
SLACK = timedelta(seconds=30)
"""The slack of the streams. Some events are later than that."""
ORDERS, LINES = 10, 30
"""Events per tick."""
SPREE_TICKS = 30
"""For this many ticks one customer buys far more than the others, then another one."""

Event = dict[str, Any]

CUSTOMERS = [
    f"{name}{number or ''}"
    for number in range(6)
    for name in ("taro", "hana", "ken", "yui", "sora", "mei", "riku", "aoi", "jun", "emi", "ren", "kana")
]
ITEMS = {"tea": 900, "sake": 2_400, "lantern": 3_200, "kite": 1_500, "rice cooker": 14_000, "daruma": 1_200}
FAULTY_ITEMS = {"cursed mirror": 7_700, "paper dragon": 1_300, "endless scarf": 5_500}
"""Items on which the operation `scoring` fails."""
BLOCKED = {"198.51.100.7": "scans for holes", "203.0.113.66": "buys out the stock", "192.0.2.99": "never comes"}
ADDRESSES = [f"10.0.{number // 8}.{number % 8}" for number in range(40)]
PAGES = ("/", "/new-year", "/basket", "/item/daruma", "/item/tea", "/search?q=kite")
AGENTS = ("Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (iPhone)", "curl/8.5.0")
MALFORMED_LINES = ("", "GET / HTTP/1.1", '10.0.0.1 - - [31/Dec/2025:23:59:59 +0000] "GET /')

LATE, TOO_LATE, MALFORMED, NO_AMOUNT, FAULTY, REPEATED = 60, 12, 6, 4, 6, 10
"""How often each of these happens, in thousandths."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The events of one tick, for the streams `orders` and `lines`."""

    orders: list[Event]
    lines: list[Event]


@dataclass(frozen=True, slots=True)
class Shop:
    """Generates events, the same ones for the same seed."""

    seed: int = 1

    def tick(self, number: int) -> Tick:
        """Return the events of a tick, counted from 0."""
        return Tick(self._orders(number), self._lines(number))

    def on_spree(self, number: int) -> str:
        """Return the customer who buys far more than the others in a tick."""
        return self._random("spree", number // SPREE_TICKS).choice(CUSTOMERS)

    def _random(self, purpose: str, number: int) -> random.Random:
        return random.Random(f"{self.seed} {purpose} {number}")  # noqa: S311 - not used for a secret

    def _orders(self, number: int) -> list[Event]:
        """Return the new orders of a tick, and some orders of the tick before once more."""
        draw = self._random("again", number)
        before = self._new_orders(number - 1) if number else []
        return self._new_orders(number) + [order for order in before if draw.random() < REPEATED / 1000]

    def _new_orders(self, number: int) -> list[Event]:
        draw = self._random("orders", number)
        orders = []
        for place in range(ORDERS):
            spree = draw.random() < 0.25
            item = draw.choice(list(ITEMS))
            order: Event = {
                "time": _event_time(draw, number, place / ORDERS),
                "uuid": f"{self.seed}-{number}-{place}",
                "type": "purchase" if draw.random() < (0.9 if spree else 0.5) else "basket",
                "user_id": self.on_spree(number) if spree else draw.choice(CUSTOMERS),
                "item": item,
                "amount": ITEMS[item] * draw.randint(1, 3),
            }
            fault = draw.random() * 1000
            if fault < MALFORMED:
                order |= draw.choice(({"amount": "a lot"}, {"time": None}, {"userid": "typo"}))
            elif fault < MALFORMED + NO_AMOUNT:
                order |= {"type": "purchase", "amount": None}
            elif fault < MALFORMED + NO_AMOUNT + FAULTY:
                item = draw.choice(list(FAULTY_ITEMS))
                order |= {"item": item, "amount": FAULTY_ITEMS[item]}
            orders.append(order)
        return orders

    def _lines(self, number: int) -> list[Event]:
        draw = self._random("lines", number)
        lines = []
        for place in range(LINES):
            time = _event_time(draw, number, place / LINES)
            address = draw.choice(ADDRESSES) if draw.random() < 0.97 else draw.choice(list(BLOCKED)[:2])
            status = draw.choices((200, 304, 404, 500), (90, 5, 4, 1))[0]
            line = (
                f'{address} - - [{time:%d/%b/%Y:%H:%M:%S +0000}] "GET {draw.choice(PAGES)} HTTP/1.1" '
                f'{status} {draw.randint(200, 40_000)} "-" "{draw.choice(AGENTS)}"'
            )
            malformed = draw.random() * 1000 < MALFORMED
            lines.append({"time": time, "line": draw.choice(MALFORMED_LINES) if malformed else line})
        return lines


def _event_time(draw: random.Random, number: int, share: float) -> datetime:
    """Return the event time at a share of a tick; some events are late, within the slack or beyond it."""
    time = BEGIN + TICK * (number + share)
    lateness = draw.random() * 1000
    if lateness < TOO_LATE:
        time -= SLACK * (2 + 10 * draw.random())
    elif lateness < TOO_LATE + LATE:
        time -= SLACK * draw.random()
    return time.replace(microsecond=time.microsecond // 1000 * 1000)
