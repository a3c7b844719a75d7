"""The records of a round: chunks of orders and visits, made from a seed, some of them late, repeated or broken.

A chunk is what one append takes. Its records depend on the seed, the producer and its number alone, so that a chunk can be
sent again and recognised in the log.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["PAGES", "STREAMS", "USERS", "WATCHED", "Chunk", "chunk"]

STREAMS = ("orders", "visits")
USERS = ("aoi", "ren", "yui", "sora", "mio", "riku")
PAGES = ("/", "/tea", "/rice", "/sale", "/nowhere")
WATCHED = [{"page": "/sale", "reason": "it is new"}, {"page": "/tea", "reason": "it sells"}]
"""The rows of the table `watched`, loaded before the first run."""
ROWS = 24
AMOUNTS = (None, 1, 2, 3, 5, 13, 21, 34, 55, 8, 8)
TOO_LARGE, EXITS = 2**62, 89


@dataclass(frozen=True, slots=True)
class Chunk:
    """The records of one append, in their order; `broken` are the places of those that do not fit."""

    producer: str
    number: int
    stream: str
    records: tuple[dict[str, Any], ...]
    broken: frozenset[int]

    @property
    def good(self) -> list[dict[str, Any]]:
        """The records that fit, as the log must have them."""
        return [each for place, each in enumerate(self.records) if place not in self.broken]

    @property
    def refused(self) -> list[str]:
        """The ids of the records that do not fit."""
        return [self.records[place]["id"] for place in sorted(self.broken)]

    def lines(self) -> bytes:
        """The chunk as NDJSON."""
        return "".join(json.dumps(each) + "\n" for each in self.records).encode()


def chunk(seed: int, producer: str, number: int, stream: str, rows: int = ROWS) -> Chunk:
    """The chunk of a producer with a number."""
    dice = random.Random(f"{seed} {producer} {number} {stream}")
    records: list[dict[str, Any]] = []
    broken = set()
    for place in range(rows):
        if records and dice.random() < 0.04:
            records.append(dice.choice(records))  # the same event once more
            continue
        record = {"at": _time(dice, number), "id": f"{producer}-{number}-{place}", "user": dice.choice((*USERS, None))}
        records.append(record | (_order(dice) if stream == "orders" else {"page": dice.choice((*PAGES, None))}))
        if dice.random() < 0.03:
            records[-1] |= {"at": "noon", "id": f"{record['id']}-broken"}
    broken = {place for place, each in enumerate(records) if each["at"] == "noon"}
    return Chunk(producer, number, stream, tuple(records), frozenset(broken))


def _time(dice: random.Random, number: int) -> int:
    """About a second for each chunk; now and then one that is late, whoever comes first."""
    return 1_000_000 + number * 1_000 + dice.randint(-1_500, 500) - (9_000 if dice.random() < 0.03 else 0)


def _order(dice: random.Random) -> dict[str, Any]:
    amount = dice.choice(AMOUNTS)
    if dice.random() < 0.02:
        amount = dice.choice((TOO_LARGE, EXITS))
    return {"item": dice.choice(("tea", "rice", "soap")), "amount": amount}


def all_records(chunks: Sequence[Chunk]) -> list[dict[str, Any]]:
    """The records of several chunks that fit."""
    return [record for each in chunks for record in each.good]
