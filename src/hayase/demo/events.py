"""Makes the shop's events: orders and the lines of its access log, as they are in life, late, repeated and broken.

Time in the shop runs faster than on the wall: a tick is six seconds. What happens in a tick depends on the seed and the
number of the tick alone, so a shop that was stopped goes on as if it had not been.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

__all__ = ["BEGIN", "BLOCKED", "SLACK", "TICK", "Event", "Shop", "Tick"]

BEGIN = datetime(2025, 12, 31, 23, 50, tzinfo=UTC)
"""When the shop opens: ten of its minutes before midnight."""
TICK = timedelta(seconds=6)
"""How much time goes by in the shop from one tick to the next."""
SLACK = timedelta(seconds=30)
"""How late events may be. Some are later."""
ORDERS, LINES = 10, 30
"""Events of a tick."""
SPREE_TICKS = 30
"""For so long one customer buys far more than the others; then comes another one's turn."""

Event = dict[str, Any]

CUSTOMERS = [
    f"{name}{number or ''}"
    for number in range(6)
    for name in ("taro", "hana", "ken", "yui", "sora", "mei", "riku", "aoi", "jun", "emi", "ren", "kana")
]
ITEMS = {"tea": 900, "sake": 2_400, "lantern": 3_200, "kite": 1_500, "rice cooker": 14_000, "daruma": 1_200}
TROUBLE = {"cursed mirror": 7_700, "paper dragon": 1_300, "endless scarf": 5_500}
"""Items that the operation which scores orders cannot bear; `scoring` says how."""
BLOCKED = {"198.51.100.7": "scans for holes", "203.0.113.66": "buys out the stock", "192.0.2.99": "never comes"}
ADDRESSES = [f"10.0.{number // 8}.{number % 8}" for number in range(40)]
PAGES = ("/", "/new-year", "/basket", "/item/daruma", "/item/tea", "/search?q=kite")
AGENTS = ("Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (iPhone)", "curl/8.5.0")
NO_LINES = ("", "GET / HTTP/1.1", '10.0.0.1 - - [31/Dec/2025:23:59:59 +0000] "GET /')

LATE, TOO_LATE, BROKEN, NO_AMOUNT, TROUBLED, REPEATED = 60, 12, 6, 4, 6, 10
"""How often each of these happens, in thousandths."""


@dataclass(frozen=True, slots=True)
class Tick:
    """What is sent to the streams `orders` and `lines`."""

    orders: list[Event]
    lines: list[Event]


@dataclass(frozen=True, slots=True)
class Shop:
    """Makes events, the same ones for the same seed."""

    seed: int = 1

    def tick(self, number: int) -> Tick:
        """The events of a tick, counted from 0."""
        return Tick(self._orders(number), self._lines(number))

    def on_spree(self, number: int) -> str:
        """The customer who buys far more than the others now."""
        return random.Random(f"{self.seed} spree {number // SPREE_TICKS}").choice(CUSTOMERS)  # noqa: S311 - no secret

    def _orders(self, number: int) -> list[Event]:
        made = self._new_orders(number)
        draw = random.Random(f"{self.seed} again {number}")  # noqa: S311 - no secret
        before = self._new_orders(number - 1) if number else []
        return made + [each for each in before if draw.random() < REPEATED / 1000]

    def _new_orders(self, number: int) -> list[Event]:
        draw = random.Random(f"{self.seed} orders {number}")  # noqa: S311 - no secret
        made = []
        for place in range(ORDERS):
            spree = draw.random() < 0.25
            item = draw.choice(list(ITEMS))
            order: Event = {
                "time": _moment(draw, number, place / ORDERS),
                "uuid": f"{self.seed}-{number}-{place}",
                "type": "purchase" if draw.random() < (0.9 if spree else 0.5) else "basket",
                "user_id": self.on_spree(number) if spree else draw.choice(CUSTOMERS),
                "item": item,
                "amount": ITEMS[item] * draw.randint(1, 3),
            }
            dice = draw.random() * 1000
            if dice < BROKEN:
                order |= draw.choice(({"amount": "a lot"}, {"time": None}, {"userid": "typo"}))
            elif dice < BROKEN + NO_AMOUNT:
                order |= {"type": "purchase", "amount": None}
            elif dice < BROKEN + NO_AMOUNT + TROUBLED:
                item = draw.choice(list(TROUBLE))
                order |= {"item": item, "amount": TROUBLE[item]}
            made.append(order)
        return made

    def _lines(self, number: int) -> list[Event]:
        draw = random.Random(f"{self.seed} lines {number}")  # noqa: S311 - no secret
        made = []
        for place in range(LINES):
            at = _moment(draw, number, place / LINES)
            address = draw.choice(ADDRESSES) if draw.random() < 0.97 else draw.choice(list(BLOCKED)[:2])
            status = draw.choices((200, 304, 404, 500), (90, 5, 4, 1))[0]
            line = (
                f'{address} - - [{at:%d/%b/%Y:%H:%M:%S +0000}] "GET {draw.choice(PAGES)} HTTP/1.1" '
                f'{status} {draw.randint(200, 40_000)} "-" "{draw.choice(AGENTS)}"'
            )
            made.append({"time": at, "line": draw.choice(NO_LINES) if draw.random() * 1000 < BROKEN else line})
        return made


def _moment(draw: random.Random, number: int, share: float) -> datetime:
    """A time within a tick; some events come late, and some too late."""
    at = BEGIN + TICK * (number + share)
    dice = draw.random() * 1000
    if dice < TOO_LATE:
        at -= SLACK * (2 + 10 * draw.random())
    elif dice < TOO_LATE + LATE:
        at -= SLACK * draw.random()
    return at.replace(microsecond=at.microsecond // 1000 * 1000)
